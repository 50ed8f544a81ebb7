//! Other systems beside ours: programs that speak the words of one, and those in this program.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use chunkcomm_testkit::Scratch;
use serde_json::Value;

use crate::program::{assert_keys, chunkperf, refusal, row, rows};

const KEYS: &[&str] = &[
    "baseline",
    "ratio",
    "ratio_low",
    "ratio_high",
    "baseline_version",
    "baseline_flavour",
    "reason",
];

/// Returns a folder with these programs, each of a name and a script.
fn programs(all: &[(&str, &str)]) -> Scratch {
    let folder = Scratch::folder("peers");
    for (name, script) in all {
        let file = folder.join(format!("peer-{name}"));
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).expect("a folder of our own");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("a file of our own");
    }
    folder
}

/// Returns a script that tells times without taking any: `ns` nanoseconds a message with its best
/// settings, and twice that as documented. An idle connection takes a page.
fn fake(name: &str, ns: u64) -> String {
    format!(
        "each={ns}; [ $5 = docs ] && each=$((2 * each)); echo {name} 9.8.7\n\
         while read n; do ns=$((n * each)); us=$((each / 1000))\n\
         printf '{{\"seconds\":%d.%09d,\"count\":%d,\"p50_us\":%d,\"p99_us\":%d,\"bytes\":%d}}\\n' \
         $((ns / 1000000000)) $((ns % 1000000000)) $n $us $((2 * us)) $((4096 * n)); done"
    )
}

fn beside(folder: &Scratch, arguments: &[&str]) -> Value {
    let folder = folder.to_str().expect("a name in ASCII");
    let row = row(&[arguments, &["--peers-dir", folder]].concat());
    assert_keys(&row, KEYS);
    row
}

/// Commands at tiny sizes, with the key of their figure.
const COMMANDS: &[(&[&str], &str)] = &[
    (&["stream", "--messages", "1000"], "messages_per_second"),
    (&["latency", "--iterations", "100"], "p50_us"),
    (&["bandwidth", "--size", "1MiB", "--repeat", "10"], "bytes_per_second"),
    (&["calls", "--calls", "500"], "calls_per_second"),
];

#[test]
fn the_faster_settings_of_a_program_are_measured_in_turns_with_ours() {
    // A message takes 50 us.
    let folder = programs(&[("zmq", &fake("zmq", 50_000))]);
    let theirs = [20_000.0, 50.0, 20_000.0 * f64::from(1 << 20), 20_000.0];
    for ((command, key), theirs) in COMMANDS.iter().zip(theirs) {
        let row = beside(&folder, &[command, &["--against", "zmq"][..]].concat());
        assert_eq!((&row["baseline"], &row["baseline_flavour"]), (&"zmq".into(), &"best".into()));
        assert_eq!(row["baseline_version"], "zmq 9.8.7");
        let told = row[format!("baseline_{key}")].as_f64().unwrap();
        assert!((told / theirs - 1.0).abs() < 1e-6, "{row}");
        assert!(row["ratio"].as_f64() > Some(0.0) && row["reason"].is_null(), "{row}");
    }
}

#[test]
fn a_system_that_is_missing_or_fails_costs_its_figures_only() {
    let fails = "echo zmq 9; read n; echo peer-zmq: message 7 is wrong >&2; exit 1";
    let folder = programs(&[("zmq", fails), ("nats", "echo peer-nats: no calls >&2; exit 3")]);
    for ((command, key), (name, cause)) in COMMANDS.iter().zip([
        ("zmq", "peer-zmq: message 7 is wrong"),
        ("zenoh", "it is not built; peers/build zenoh builds it"),
        ("mpich", "peers/build mpich"),
        ("nats", "peer-nats: no calls"),
    ]) {
        // MPICH of `latency` is another: it stands beside a pair that spins.
        let row = beside(&folder, &[command, &["--against", name][..]].concat());
        assert!(row[*key].as_f64() > Some(0.0), "ours is there: {row}");
        assert!(row["ratio"].is_null() && row[format!("baseline_{key}")].is_null(), "{row}");
        assert!(row["reason"].as_str().is_some_and(|told| told.contains(cause)), "{row}");
    }
}

#[test]
fn the_best_system_is_the_fastest_that_is_there() {
    let folder = programs(&[
        ("zmq", &fake("zmq", 1)),
        ("nats", &fake("nats", 1_000_000)),
        ("timely", "echo peer-timely: it must not start >&2; exit 1"),
        ("zenoh", "exit 1"),
    ]);
    let row = beside(&folder, &["stream", "--messages", "1000", "--against", "best"]);
    assert_eq!((&row["baseline"], &row["baseline_version"]), (&"best".into(), &"zmq 9.8.7".into()));
    let within = if cfg!(feature = "peers") { "framed, " } else { "" };
    assert_eq!(row["baseline_of"], format!("{within}zmq, nats"));
    // Fewer microseconds are better here, and timely takes part.
    let folder = programs(&[("timely", &fake("timely", 1000)), ("zmq", &fake("zmq", 90_000))]);
    let row = beside(&folder, &["latency", "--iterations", "100", "--against", "best"]);
    assert_eq!(row["baseline_version"], "timely 9.8.7");
    let row = beside(&programs(&[]), &["stream", "--messages", "1000", "--against", "best"]);
    assert_eq!(row["ratio"].is_number(), cfg!(feature = "peers"), "{row}");
    assert_eq!(row["reason"].is_string(), !cfg!(feature = "peers"), "{row}");
}

#[test]
fn what_stands_beside_another_system_is_refused_with_what_is_allowed() {
    let cases: &[(&[&str], &str)] = &[
        (&["stream", "--against", "zmq", "--transport", "unix"], "--transport tcp and tls"),
        (&["stream", "--against", "zmq", "--connect", "127.0.0.1:1"], "without --connect"),
        (&["stream", "--against", "tarpc"], "framed, timely, tonic"),
        (&["stream", "--against", "zmq", "--peers-dir", "/nowhere"], "folders that exist"),
        (&["latency", "--against", "openmpi"], "--runtime busy-poll and --transport tcp"),
        (
            &["calls", "--against", "timely"],
            "raw, latency, closure, tarpc, tonic, zenoh, zmq, nats, best",
        ),
        (&["peers", "--only", "pvm"], "[possible values: framed, timely, tarpc, tonic, zenoh"),
        (&["peers", "--json", "--markdown"], "--markdown"),
    ];
    for (arguments, says) in cases {
        let said = refusal(arguments);
        assert!(said.contains(says), "{arguments:?} says: {said}");
    }
}

#[test]
fn the_table_has_every_line_and_says_what_is_missing() {
    let folder = programs(&[("zmq", &fake("zmq", 50_000)), ("mpich", &fake("mpich", 1_000))]);
    let options = ["peers", "--quick", "--only", "zmq,zenoh,mpich", "--peers-dir"];
    let all = rows(&[&options[..], &[folder.to_str().unwrap()]].concat());
    let of =
        |name: &str| -> Vec<&Value> { all.iter().filter(|row| row["system"] == name).collect() };
    // Spinning, there is MPI alone.
    assert_eq!((of("zmq").len(), of("zenoh").len(), of("mpich").len()), (7, 7, 5));
    assert_eq!((of("many").len(), all.len()), (3, 22));
    for row in &all {
        assert_keys(row, &["line", "unit", "version", "flavour", "machine", "date", "ratio_low"]);
        assert_eq!(row["figure"].is_number(), row["system"] != "zenoh", "{row}");
        assert_eq!(row["reason"].is_string(), row["system"] == "zenoh", "{row}");
    }
    let asleep = of("zmq")[3];
    assert_eq!((&asleep["unit"], &asleep["figure"]), (&"us".into(), &50.0.into()), "{asleep}");
    let spinning = of("mpich")[3];
    assert_eq!((&spinning["runtime"], &spinning["wins"]), (&"busy-poll:1".into(), &true.into()));
    let idle = of("zmq")[6];
    assert_eq!((&idle["figure"], &idle["pairs"]), (&4096.0.into(), &3.into()), "{idle}");
    assert!(idle["ours"].is_number(), "{idle}");
}

#[test]
fn the_table_for_people_names_versions_and_the_machine() {
    let folder = programs(&[("openmpi", &fake("openmpi", 1_000))]);
    let folder = folder.to_str().unwrap();
    let options = ["peers", "--quick", "--only", "openmpi", "--markdown", "--peers-dir", folder];
    let output = chunkperf(&options);
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{err}");
    assert!(out.contains(" | openmpi 9.8.7 |") && out.contains("; many "), "{out}");
    assert!(out.contains("Versions: chunkcomm ") && out.contains("openmpi 9.8.7."), "{out}");
    assert!(out.contains("| round trip spinning, p50, us * |") && out.contains("cores, "), "{out}");
    // A line of progress each: three of ours with many, and five lines that have Open MPI.
    assert!(err.contains("chunkperf: 8 of 8, "), "{err}");
}

#[cfg(feature = "peers")]
#[test]
fn systems_in_the_two_processes_of_ours() {
    let empty = programs(&[]);
    for (command, key) in COMMANDS {
        for name in ["framed", "tarpc"] {
            let has = match command[0] {
                "latency" => true,
                "calls" => name == "tarpc",
                _ => name == "framed",
            };
            if !has {
                continue;
            }
            let row = beside(&empty, &[command, &["--against", name][..]].concat());
            assert_eq!(row["baseline"], name);
            assert!(row["ratio"].as_f64() > Some(0.0), "{row}");
            assert!(row[format!("baseline_{key}")].as_f64() > Some(0.0), "{row}");
            let version = row["baseline_version"].as_str().unwrap();
            assert!(version.starts_with(name) && version.contains('.'), "{row}");
        }
    }
    // Every kind of message.
    for size in ["8", "9", "17", "1024", "100KiB"] {
        for command in [&["stream", "--messages", "300"], &["latency", "--iterations", "40"]] {
            let row =
                beside(&empty, &[&command[..], &["--size", size, "--against", "framed"]].concat());
            assert!(row["ratio"].is_number(), "{row}");
        }
    }
    let all = rows(&["peers", "--quick", "--only", "framed,tarpc"]);
    assert_eq!(all.len(), 3 + 6 + 3, "{all:?}");
    for row in &all {
        // Few connections may find room in memory that is there.
        let least = if row["unit"] == "B" { 0.0 } else { f64::MIN_POSITIVE };
        assert!(row["figure"].as_f64() >= Some(least), "{row}");
    }
}
