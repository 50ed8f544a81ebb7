//! The lab at small sizes: its scenarios run to the end, their promises hold, and its output has
//! the promised form. Limits of time are wide: lateness is not tested here.

use std::process::{Command, Output, Stdio};

#[cfg(target_os = "linux")]
use chunkcomm_testkit::proc;
use serde_json::Value;

fn program(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    command.args(arguments).stdin(Stdio::null()).output().expect("the lab starts")
}

/// Runs a scenario; returns its rows and its exit status.
fn lab(scenario: &str, options: &[&str]) -> (Vec<Value>, Option<i32>) {
    let common = [scenario, "--json", "--seed", "7", "--late-max", "20s"];
    let output = program(&[&common[..], options].concat());
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let row = |line| serde_json::from_str(line).expect("a row is JSON");
    let rows: Vec<Value> = out.lines().map(row).collect();
    assert!(!rows.is_empty(), "{scenario} {options:?}: {err}");
    for row in &rows {
        assert_eq!((&row["bench"], &row["seed"]), (&Value::from("lab"), &Value::from(7)));
        println!("{row}");
    }
    (rows, output.status.code())
}

/// Runs a test for each of these at once: the programs of the lab mostly wait.
fn at_once<const N: usize>(those: [&str; N], test: impl Fn(&str) + Sync) {
    let test = &test;
    std::thread::scope(|scope| {
        for it in those {
            scope.spawn(move || test(it));
        }
    });
}

/// Runs a scenario in which every promise must hold; returns its rows.
#[track_caller]
fn held(scenario: &str, options: &[&str]) -> Vec<Value> {
    let (rows, status) = lab(scenario, options);
    assert_eq!(status, Some(0), "{rows:?}");
    for row in &rows {
        assert_eq!(row["broken"], Value::Array(Vec::new()));
    }
    rows
}

const CUTS: &[&str] = &["--cuts", "12", "--every", "5ms", "--resume-max", "60s"];

#[test]
fn a_stream_survives_cuts_whichever_way_it_goes() {
    at_once(["forth", "back", "both"], |direction| {
        let rows = held("cuts", &[CUTS, &["--direction", direction]].concat());
        let row = &rows[0];
        assert_eq!((&row["cuts"], &row["direction"]), (&Value::from(12), &Value::from(direction)));
        assert!(row["messages"].as_u64().is_some_and(|messages| messages > 0));
        assert!(row["resumes"].as_u64().is_some_and(|resumes| resumes > 0));
        for key in ["resume_p50_us", "resume_p99_us", "resume_max_us", "longest_gap_us"] {
            assert!(row[key].as_f64().is_some_and(|us| us > 0.0), "{key} in {row}");
        }
        for key in ["backoff_p50_us", "beyond_backoff_p99_us", "packets_resent"] {
            assert!(row[key].is_number(), "{key} in {row}");
        }
    });
}

#[test]
fn a_stream_survives_connections_that_swallow_or_stand_still() {
    at_once(["one-way", "blackhole", "stall"], |how| {
        let options = ["--cuts", "2", "--how", how, "--dead", "5s", "--resume-max", "60s"];
        assert_eq!(held("cuts", &options)[0]["cuts"], 2);
    });
}

#[test]
fn a_stream_survives_cuts_on_a_long_way() {
    let row = &held("cuts", &[CUTS, &["--delay", "3ms"]].concat())[0];
    assert_eq!(row["cuts"], 12);
    // Each side's hello must cross, and then the stream.
    assert!(row["beyond_backoff_p50_us"].as_f64().is_some_and(|us| us >= 9_000.0), "{row}");
}

#[test]
fn a_broken_promise_is_exit_status_1_and_stands_in_the_row() {
    let (rows, status) = lab("cuts", &["--cuts", "2", "--resume-max", "0s"]);
    assert_eq!(status, Some(1));
    let broken = rows[0]["broken"].as_array().expect("a list");
    assert!(broken[0].as_str().is_some_and(|text| text.contains("beyond the backoff")));
}

#[test]
fn a_session_outlives_a_stop_and_not_a_death() {
    at_once(["receiver", "sender"], |whom| {
        let options = ["--dead", "3s", "--for", "200ms", "--for", "6s", "--kill"];
        let rows = held("stop", &[&options[..], &["--whom", whom]].concat());
        let survived: Vec<_> = rows.iter().map(|row| row["survived"].as_bool()).collect();
        assert_eq!((survived[0], survived[2]), (Some(true), Some(false)), "{whom}");
        // A receiver that waits for nothing need not notice a stopped sender.
        assert!(whom == "sender" || survived[1] == Some(false));
        assert_eq!(rows[2]["scenario"], "kill");
    });
}

#[test]
fn links_resume_all_at_once() {
    let rows = held("resumes", &["--links", "20", "--cuts", "2"]);
    assert!(rows[0]["all_resumed_max_us"].as_f64().is_some_and(|us| us > 0.0));
    assert!(rows[0]["connections"].as_u64().is_some_and(|connections| connections >= 60));
}

#[test]
fn idle_links_stay_alive() {
    let rows = held("idle-links", &["--links", "20", "--watch", "200ms", "--bytes-max", "1MiB"]);
    assert_eq!((&rows[0]["links"], &rows[0]["processes"]), (&Value::from(20), &Value::from(2)));
    assert!(rows[0]["wakeups_per_second"].is_number() || !cfg!(target_os = "linux"));
}

#[test]
fn slow_receivers_are_served_beside_a_brisk_one() {
    let rows = held("slow", &["--seconds", "2", "--channels", "2", "--growth-max", "1GiB"]);
    for key in ["sender_growth_bytes_per_second", "brisk_messages_per_second"] {
        assert!(rows[0][key].is_number(), "{key}");
    }
}

#[test]
fn a_turned_bit_ends_a_session_or_is_seen_by_the_check() {
    let rows = held("corrupt", &["--sessions", "6", "--dead", "2s"]);
    let sum: u64 = [
        "ended_with_an_error",
        "undecodable_messages",
        "wrong_messages",
        "resumed",
        "without_effect",
        "hung",
    ]
    .iter()
    .filter_map(|key| rows[0][key].as_u64())
    .sum();
    assert_eq!((sum, &rows[0]["hung"]), (6, &Value::from(0)));
}

#[test]
fn sealed_streams_survive_cuts_as_well() {
    let rows = held("cuts", &[CUTS, &["--transport", "tls", "--direction", "both"]].concat());
    assert_eq!((&rows[0]["cuts"], &rows[0]["transport"]), (&Value::from(12), &Value::from("tls")));
}

#[test]
fn sessions_survive_faults_of_the_network_or_the_reason_is_told() {
    let arguments = "namespaces --json --seed 7 --late-max 20s --dead 5s --faults 6 \
                     --every 50ms --outage 100ms";
    let output = program(&arguments.split_whitespace().collect::<Vec<_>>());
    let (out, err) = (output.stdout, String::from_utf8_lossy(&output.stderr));
    println!("{}{err}", String::from_utf8_lossy(&out));
    assert_eq!(output.status.code(), Some(0), "{err}");
    if err.contains("lab: namespaces is skipped: ") {
        return;
    }
    let row: Value = serde_json::from_slice(&out).expect("a row is JSON");
    assert_eq!((&row["faults"], &row["idle_survived"]), (&Value::from(6), &Value::from(true)));
    assert!(row["resumes"].as_u64().is_some_and(|resumes| resumes >= 4), "{row}");
}

#[test]
fn a_farm_survives_dead_and_stopped_workers() {
    let options = ["--kills", "5", "--stops", "2", "--every", "50ms", "--tasks", "200"];
    let row = &held("farm", &options)[0];
    let figures = ["kills", "stops", "wrong", "workers_started"].map(|key| row[key].as_u64());
    assert_eq!(figures, [Some(5), Some(2), Some(0), Some(3 + 5)], "{row}");
    for key in ["runs", "tasks", "reissued"] {
        assert!(row[key].as_u64().is_some_and(|count| count > 0), "{key} in {row}");
    }
    for key in ["returned", "copied", "dropped", "seconds"] {
        assert!(row[key].is_number(), "{key} in {row}");
    }
}

#[test]
fn a_farm_survives_dead_sub_farmers() {
    let row = &held("subfarmers", &["--kills", "2", "--tasks", "400"])[0];
    assert_eq!((row["kills"].as_u64(), row["wrong"].as_u64()), (Some(2), Some(0)), "{row}");
    for key in ["runs", "tasks", "tasks_below"] {
        assert!(row[key].as_u64().is_some_and(|count| count > 0), "{key} in {row}");
    }
    assert!(row["reissued"].is_number(), "{row}");
}

#[test]
fn a_farmer_goes_on_from_its_journal() {
    let options = ["--kills", "4", "--every", "800ms", "--tasks", "400"];
    let row = &held("farmer", &options)[0];
    assert_eq!((row["kills"].as_u64(), row["wrong"].as_u64()), (Some(4), Some(0)), "{row}");
    for key in ["runs", "tasks", "recalled"] {
        assert!(row[key].as_u64().is_some_and(|count| count > 0), "{key} in {row}");
    }
}

#[test]
fn what_cannot_be_is_refused_with_what_is_allowed() {
    let cases: &[(&[&str], &str)] = &[
        (&[], "idle-links"),
        (&["earthquake", "--json"], "allowed are cuts, stop"),
        (&["cuts", "--transport", "memory"], "carries TCP"),
        (&["cuts", "--session", "off"], "--session off is not allowed"),
        (&["slow", "--connect", "127.0.0.1:1"], "--connect is allowed with"),
        (&["cuts", "--how", "gently"], "half-open"),
        (&["stop", "--for", "2"], "10us"),
        (&["idle-links", "--links", "0"], "allowed are 1"),
        (&["cuts", "--cuts", "-1"], "whole numbers from 1"),
        (&["cuts", "--cuts", "x"], "whole numbers from 1"),
        (&["cuts", "--cuts", "0"], "whole numbers from 1"),
        (&["cuts", "--seed", "x"], "whole numbers from 0 to 18446744073709551615"),
        (&["cuts", "--every", "0s"], "durations above 0"),
        (&["cuts", "--every", "-1s"], "allowed are 500ns, 10us"),
        (&["cuts", "--dead", "0s"], "durations from 100 ms"),
        (&["cuts", "--how", "slowly"], "[possible values: mixed, reset"),
        (&["resumes", "--cuts", "x"], "whole numbers from 1"),
        (&["resumes", "--links", "0"], "1 to 28000"),
        (&["namespaces", "--faults", "x"], "whole numbers from 1"),
        (&["namespaces", "--outage", "0s"], "durations above 0"),
        (&["stop", "--for", "0s"], "durations above 0"),
        (&["slow", "--channels", "-1"], "whole numbers from 0 to 1000"),
        (&["farm", "--kills", "0"], "whole numbers from 1"),
        (&["farm", "--tasks", "x"], "whole numbers from 1"),
        (&["idle-links", "--watch", "0s"], "durations above 0"),
    ];
    for (arguments, says) in cases {
        let output = program(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(says), "{arguments:?} says: {said}");
    }
}

/// A lab that runs until it is killed, at the latest when this is dropped.
#[cfg(target_os = "linux")]
struct Endless(proc::Program);

#[cfg(target_os = "linux")]
impl Endless {
    fn start(err: Stdio) -> Endless {
        let mut lab = Command::new(env!("CARGO_BIN_EXE_lab"));
        lab.args(["slow", "--seconds", "1000000"]).stdout(Stdio::null()).stderr(err);
        Endless(proc::Program(lab.spawn().expect("the lab starts")))
    }

    /// Returns the ids of its two node processes.
    fn nodes(&self) -> Vec<u32> {
        proc::children(self.0.0.id(), 2)
    }
}

#[cfg(target_os = "linux")]
#[test]
fn the_nodes_of_the_lab_explain_themselves() {
    use rustix::process::Signal;
    use std::io::{BufRead, BufReader};

    let mut lab = Endless::start(Stdio::piped());
    let mut lines = BufReader::new(lab.0.0.stderr.take().unwrap()).lines();
    for node in lab.nodes() {
        // Before the node handles the signal, the signal would end it.
        proc::wait_until_handled(node, Signal::USR1);
        // A signal is lost if it comes after its handler is set but before a task listens.
        let (explained, waits) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let lost = std::sync::mpsc::RecvTimeoutError::Timeout;
                while {
                    proc::signal(node, Signal::USR1);
                    waits.recv_timeout(std::time::Duration::from_secs(1)) == Err(lost)
                } {}
            });
            assert!(lines.any(|line| line.unwrap().starts_with("node ")), "it explains nothing");
            drop(explained);
        });
    }
    assert!(lab.0.0.try_wait().unwrap().is_none(), "it goes on");
}

#[cfg(target_os = "linux")]
#[test]
fn no_node_process_outlives_the_lab() {
    let lab = Endless::start(Stdio::null());
    let nodes = lab.nodes();
    drop(lab);
    proc::wait_until_gone(&nodes);
}
