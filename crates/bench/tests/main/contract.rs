//! The program's contract: keys that are always there, one JSON object a row and nothing else on
//! standard output, errors on standard error with exit status 2.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use chunkcomm_testkit::Scratch;
use serde_json::Value;

use crate::program::{
    STREAM_KEYS, assert_keys, chunkperf, chunkperf_with, refusal, row, rows, rows_of,
};

const AGAINST_KEYS: &[&str] = &["baseline", "ratio", "ratio_low", "ratio_high"];

#[test]
fn stream_rows() {
    // Every kind of message: a word, short, a record, long.
    for size in ["8", "9", "15", "16", "17", "1024", "100KiB"] {
        let row = row(&["stream", "--size", size, "--messages", "300"]);
        assert_keys(&row, STREAM_KEYS);
        assert_eq!(row["messages"], 300, "{size}");
        assert!(row["flushes"]["full"].is_u64() && row["flushes"]["explicit"].is_u64());
        assert!(row["delivery_p50_us"].as_f64().is_some_and(|us| us > 0.0));
    }
}

#[test]
fn stream_against_baselines() {
    for baseline in ["hand-batched", "unbatched", "raw", "session-off"] {
        let row = row(&["stream", "--messages", "1000", "--against", baseline]);
        assert_keys(&row, STREAM_KEYS);
        assert_keys(&row, AGAINST_KEYS);
        assert_eq!(row["baseline"], baseline);
        assert!(row["baseline_messages_per_second"].as_f64().is_some_and(|rate| rate > 0.0));
    }
    let row = row(&["stream", "--rate", "10000", "--messages", "200", "--against", "latency"]);
    assert!(row["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0));
    assert!(row["baseline_p50_us"].as_f64().is_some_and(|us| us > 0.0));
}

#[test]
fn stream_of_each_transport_runtime_and_policy() {
    let many: &[&[&str]] = &[
        &["--packet-bytes", "4KiB"],
        &["--rate", "100000", "--pace", "sleep"],
        &["--transport", "tls"],
        &["--transport", "unix"],
        &["--transport", "memory"],
        &["--runtime", "io-thread"],
        &["--runtime", "busy-poll"],
        &["--threads", "2"],
        &["--session", "off"],
        &["--api", "many"],
        &["--api", "many", "--size", "1024"],
        &["--policy", "unbuffered"],
        &["--policy", "linger:200us"],
    ];
    for options in many {
        let row = row(&[&["stream", "--messages", "2000"], *options].concat());
        assert_keys(&row, STREAM_KEYS);
    }
    let fixed = row(&["stream", "--messages", "2000", "--without", "packet-size,rings"]);
    assert_eq!(fixed["without"], "packet-size,rings");
    let said = refusal(&["stream", "--without", "everything"]);
    assert!(said.contains("packet-size") && said.contains("watching"), "{said}");
    let row = row(&["stream", "--messages", "100", "--policy", "unbuffered"]);
    assert_eq!((&row["packets"], &row["policy"]), (&Value::from(100), &Value::from("unbuffered")));
}

#[test]
fn latency_rows() {
    let keys = ["payload_bytes", "iterations", "p50_us", "p99_us"];
    for options in [
        &["--against", "raw"][..],
        &["--load", "bulk", "--load-bytes", "1MiB", "--against", "load-idle"],
        &["--size", "64KiB"],
    ] {
        let row = row(&[&["latency", "--iterations", "100"], options].concat());
        assert_keys(&row, &keys);
        assert_eq!(row["iterations"], 100);
    }
    let row = row(&[
        "latency",
        "--iterations",
        "100",
        "--runtime",
        "busy-poll",
        "--transport",
        "unix",
        "--against",
        "raw",
    ]);
    assert_keys(&row, AGAINST_KEYS);
    assert_eq!(row["runtime"], "busy-poll:1");
}

/// With `on` a link that stays with TCP is a failure.
#[cfg(target_os = "linux")]
#[test]
fn rows_over_the_unix_socket_of_the_host() {
    for command in [
        &["latency", "--iterations", "100"][..],
        &["bandwidth", "--size", "1MiB", "--repeat", "10"],
        &["calls", "--calls", "2000"],
    ] {
        for way in ["on", "off"] {
            let row = row(&[command, &["--same-host", way]].concat());
            assert_eq!((&row["transport"], &row["same_host"]), (&"tcp".into(), &way.into()));
        }
    }
}

/// Beside the spinner both ends still sleep and wake: the ratio is there, or the reason why not.
#[test]
fn latency_beside_a_spinner_and_against_mpich() {
    for options in [
        &["--load", "spinner", "--against", "raw"][..],
        &["--runtime", "busy-poll", "--against", "mpich"],
    ] {
        let row = row(&[&["latency", "--iterations", "20"], options].concat());
        assert_keys(&row, AGAINST_KEYS);
        assert!(row["p50_us"].is_number(), "{row}");
        assert_ne!(row["ratio"].is_number(), row["reason"].is_string(), "{row}");
        assert_eq!(row["load"], if options[1] == "spinner" { "spinner" } else { "idle" });
    }
}

/// Our pair has to outlive the time in which MPICH's ranks meet, which is longer here than a session
/// endures silence.
#[test]
fn latency_beside_an_mpich_that_starts_slowly() {
    let tools = Scratch::folder("slow-mpich");
    let launcher = "#!/bin/sh\n\
        mkdir \"$0.ran\" 2>/dev/null && sleep 11\n\
        for count; do :; done\n\
        while [ $count -gt 0 ]; do echo 10000; count=$((count - 1)); done\n";
    for (name, script) in [("mpicc.mpich", "#!/bin/sh\n"), ("mpiexec.mpich", launcher)] {
        fs::write(tools.join(name), script).unwrap();
        fs::set_permissions(tools.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let options = ["--iterations", "20", "--runtime", "busy-poll", "--against", "mpich", "--json"];
    let output = chunkperf_with(&tools, &[&["latency"][..], &options].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let row = &rows_of(&output)[0];
    assert_eq!(row["baseline_p50_us"], 10.0, "{row}");
    assert!(tools.join("mpiexec.mpich.ran").exists());
}

#[test]
fn bandwidth_rows() {
    let row = row(&["bandwidth", "--size", "1MiB", "--repeat", "10", "--against", "raw"]);
    assert_keys(&row, &["payload_bytes", "bytes_per_second", "fresh_bytes_per_second"]);
    assert_keys(&row, AGAINST_KEYS);
    assert!(row["baseline_bytes_per_second"].as_f64().is_some_and(|rate| rate > 0.0));
}

#[test]
fn tracked_rows() {
    let rows = rows(&["tracked", "--bytes", "400KiB", "--rounds", "1"]);
    for row in &rows {
        assert_keys(row, &["side", "engine", "buffer_bytes", "increment_pages"]);
        let keys: &[&str] = match row["side"].as_str() {
            _ if row.get("skipped").is_some() => &[],
            Some("send") => &["fault_us", "look_us", "protect_us", "read_us"],
            Some("recv") => &["open_us", "load_us", "stall_us"],
            _ => &["whole_us", "explicit_us", "tracked_us", "speed_up", "against_explicit"],
        };
        assert_keys(row, keys);
    }
    let sides = |side: &str| rows.iter().filter(|row| row["side"] == side).count();
    assert_eq!((sides("send"), sides("recv")), (3, 3));
    let row = row(&["tracked", "--bytes", "100KiB", "--rounds", "1", "--against", "explicit"]);
    assert!(row["reason"].is_string() || row["ratio"].as_f64() > Some(0.0), "{row}");
}

#[test]
fn cluster_rows() {
    let row = row(&["cluster", "--nodes", "3", "--repeat", "2"]);
    assert_keys(&row, &["nodes", "repeat", "start_seconds", "end_seconds", "seconds"]);
    assert_eq!((&row["nodes"], &row["repeat"]), (&3.into(), &2.into()));
    assert!(row["start_seconds"].as_f64().is_some_and(|seconds| seconds > 0.0));
    let said = refusal(&["cluster", "--nodes", "0"]);
    assert!(said.contains("1 to 4096 processes"), "{said}");
}

#[test]
fn calls_rows() {
    let keys = ["in_flight", "calls_per_second", "p50_us", "p99_us"];
    let many: &[&[&str]] = &[
        &["--in-flight", "1"],
        &["--in-flight", "7", "--size", "8"],
        &["--size", "100KiB", "--in-flight", "3"],
        &["--transport", "memory"],
        &["--transport", "tls"],
        &["--threads", "2"],
        &["--runtime", "io-thread"],
    ];
    for options in many {
        let row = row(&[&["calls", "--calls", "500"], *options].concat());
        assert_keys(&row, &keys);
        assert_eq!(row["calls"], 500, "{options:?}");
    }
    let mut baselines = vec![("raw", "40"), ("latency", "1")];
    if cfg!(feature = "peers") {
        baselines.extend([("closure", "40"), ("tarpc", "40")]);
    } else {
        for needs_peers in [["--against", "tarpc"], ["--form", "trait"]] {
            let said = refusal(&[&["calls"], &needs_peers[..]].concat());
            assert!(said.contains("--features peers"), "{said}");
        }
    }
    for (baseline, width) in baselines {
        let form = if baseline == "closure" { "trait" } else { "closure" };
        let options = ["--in-flight", width, "--form", form, "--against", baseline];
        let row = row(&[&["calls", "--calls", "500"], &options[..]].concat());
        assert_eq!(row["form"], form);
        assert_keys(&row, &keys);
        assert_keys(&row, AGAINST_KEYS);
        assert_eq!(row["baseline"], baseline);
        assert!(row["baseline_calls_per_second"].as_f64().is_some_and(|rate| rate > 0.0));
        assert!(row["baseline_p50_us"].as_f64().is_some_and(|us| us > 0.0));
    }
    let said = refusal(&["calls", "--form", "trait", "--size", "8"]);
    assert!(said.contains("--form trait needs --size 16, not 8"), "{said}");
}

#[test]
fn idle_rows() {
    let row = row(&["idle", "--links", "5"]);
    assert_keys(&row, &["links", "bytes_per_link", "wakeups_per_second"]);
    assert_eq!(row["links"], 5);
    let row = self::row(&["idle", "--links", "5", "--fed", "300KiB", "--stopped", "1"]);
    assert_keys(&row, &["bytes_per_link", "feeder_bytes_per_link", "stopped"]);
    assert!(refusal(&["idle", "--stopped", "1"]).contains("--stopped needs --fed"));
}

#[test]
fn feed_rows() {
    let options = ["--subscribers", "3", "--messages", "2000"];
    for more in [&["--against", "loop"][..], &["--stopped", "1", "--against", "reading"]] {
        let row = row(&[&["feed"], &options[..], more].concat());
        assert_keys(&row, &["payload_bytes", "subscribers", "deliveries_per_second", "ratio"]);
        assert_eq!(row["subscribers"], 3);
    }
    assert!(refusal(&["feed", "--stopped", "8"]).contains("--stopped must leave"));
}

#[test]
fn starve_rows() {
    let options = ["--threads", "3", "--computing", "2", "--work", "1ms", "--messages", "20"];
    let against = ["eventfd", "threads"].map(|baseline| ["--against", baseline]);
    for more in [&against[0], &against[1], &["--runtime", "io-thread"]] {
        let row = row(&[&["starve"], &options[..], more].concat());
        assert_keys(&row, &["payload_bytes", "iterations", "p50_us", "p99_us", "computing"]);
        assert_eq!(row["iterations"], 20);
    }
    assert!(refusal(&["starve", "--threads", "3", "--computing", "3"]).contains("--computing 2"));
}

#[test]
fn farm_rows() {
    let keys = ["tasks", "seconds", "tasks_per_second", "overhead_us_per_task", "efficiency"];
    let many: &[&[&str]] = &[
        &["--against", "hand-farm", "--prefetch", "8"],
        &["--against", "hand-farm", "--workers", "2", "--work", "10us"],
        &["--runtime", "busy-poll", "--work", "10us"],
        &["--against", "hand-farm", "--workers-as", "thread", "--transport", "unix"],
        &["--workers", "2", "--model", "a", "--task-bytes", "1024", "--prefetch", "auto"],
        &["--transport", "tls"],
        &["--journal", "sync", "--against", "plain"],
        &["--workers-as", "thread", "--transport", "memory", "--grain", "5", "--task-bytes", "9"],
    ];
    for options in many {
        let row = row(&[&["farm", "--tasks", "200"], *options].concat());
        assert_keys(&row, &keys);
        assert_eq!(row["tasks"], 200, "{options:?}");
        let works = options.contains(&"--work");
        for key in ["efficiency", "threads_efficiency", "threads_ratio", "sequential_seconds"] {
            assert_eq!(row[key].is_number(), works, "{options:?}: {row}");
        }
        assert_eq!(row["work_iterations"].as_u64() > Some(0), works, "{options:?}: {row}");
    }
}

#[test]
fn farm_sweep_rows() {
    let works = ["farm", "sweep", "--quick", "--works", "10us"];
    for more in [&["--workers", "1"][..], &["--transport", "unix"]] {
        let row = row(&[&works[..], more].concat());
        assert_keys(&row, &["tasks", "tasks_per_second", "best_prefetch", "best_grain", "met"]);
        assert_keys(&row, AGAINST_KEYS);
        // Three openings of a pair each.
        assert_eq!((&row["work"], &row["tasks"]), (&"10us".into(), &60.into()), "{row}");
        assert!(row["settings"].as_u64() > Some(1), "{row}");
    }
    let output = chunkperf(&["farm", "sweep", "--quick", "--works", "1us,mix:20us", "--json"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 2);
}

#[cfg(target_os = "linux")]
#[test]
fn farm_queue_rows() {
    for (queue, grain) in [("held", Some(4)), ("pool", None)] {
        let tasks = ["--tasks", "100000", "--queue", queue, "--grain", "4"];
        let row = row(&[&["farm", "queue"], &tasks[..]].concat());
        assert_keys(&row, &["task_bytes", "bytes", "bytes_per_task"]);
        assert_eq!((&row["tasks"], &row["grain"]), (&100_000.into(), &grain.into()));
        // The tasks are there: each has at least its 16 bytes.
        assert!(row["bytes_per_task"].as_f64() > Some(12.0), "{row}");
    }
}

/// One row for each time of a task: the number of workers from which a tree is better, or none.
#[cfg(feature = "virtual")]
#[test]
fn farm_tree_rows() {
    let all = rows(&["farm", "tree", "--work", "50us", "--work", "100us"]);
    assert_eq!(
        all.iter().map(|row| row["work_us"].as_f64()).collect::<Vec<_>>(),
        [Some(50.0), Some(100.0)]
    );
    for row in all {
        assert_keys(&row, &["world", "farmer_us", "formula_workers"]);
        let [formula, farmer] = ["formula_workers", "farmer_us"].map(|key| row[key].as_f64());
        let work = formula.zip(farmer).map(|(formula, farmer)| (formula * farmer).round());
        assert_eq!(work, row["work_us"].as_f64(), "{row}");
        for key in ["workers", "gain", "ratio"] {
            assert_eq!(row[key].is_number(), row["workers"].is_number(), "{key} in {row}");
        }
    }
}

/// The ratio is there, or the reason why not.
#[test]
fn farm_against_mpich() {
    let options = ["--runtime", "busy-poll", "--against", "mpich", "--prefetch", "8"];
    for more in [&["--tasks", "200"][..], &["--tasks", "40", "--work", "10us", "--task-bytes", "8"]]
    {
        let row = row(&[&["farm"][..], &options, more].concat());
        assert_keys(&row, &["ratio", "ratio_low", "ratio_high", "baseline_tasks_per_second"]);
        assert!(row["tasks_per_second"].is_number(), "{row}");
        assert_eq!(row["baseline"], "mpich");
        assert_ne!(row["ratio"].is_number(), row["reason"].is_string(), "{row}");
    }
}

#[test]
fn delta_rows() {
    let keys = [
        "pattern",
        "nodes",
        "bytes",
        "delta_bytes",
        "whole_seconds",
        "delta_seconds",
        "speedup",
        "bytes_per_second",
    ];
    let many: &[&[&str]] = &[
        &["--pattern", "pair", "--compute", "empty", "--against", "bandwidth"],
        &["--pattern", "cascade", "--compute", "trig", "--delta", "8KiB"],
        &["--pattern", "cascade", "--nodes", "4", "--compute", "random", "--lan", "real"],
        &["--pattern", "ring", "--compute", "random", "--delta", "12KiB"],
    ];
    let delta = |options: &[&str]| {
        row(&[&["delta", "--bytes", "256KiB", "--repeat", "10"], options].concat())
    };
    for options in many {
        let row = delta(options);
        assert_keys(&row, &keys);
        assert!(row["overlap_seconds"].is_null() && row["ideal_seconds"].is_null(), "{row}");
        assert!(row["delta_cpu_seconds"].is_number(), "{row}");
    }
    let row = delta(&["--compute", "random", "--independent", "2"]);
    assert!(row["overlap_seconds"].is_number() && row["overlap_speedup"].is_number(), "{row}");
    let waits = ["--pattern", "cascade", "--compute", "wait:1ms", "--delta", "64KiB"];
    for against in ["hop", "sockets"] {
        let row = delta(&[&waits[..], &["--against", against]].concat());
        // Three nodes and four increments: two more quarters of the wait.
        assert_eq!(row["ideal_seconds"].as_f64(), Some(0.0015));
        assert!(row["delta_seconds"].as_f64() >= Some(0.0015), "{row}");
        assert!(row["ideal_ratio"].is_number(), "{row}");
        assert_eq!(row["baseline"], against);
        assert_keys(&row, &["ratio", "ratio_low", "ratio_high", "baseline_bytes_per_second"]);
    }
    // Odd lengths; every result is verified.
    let many: &[&[&str]] = &[
        &["reduce", "--compute", "trig", "--delta", "8KiB", "--algorithm", "binary"],
        &["reduce", "--compute", "wait:1ms", "--nodes", "3", "--algorithm", "chain"],
        &["broadcast", "--compute", "random", "--bytes", "100004", "--algorithm", "binomial"],
        &["broadcast", "--compute", "empty", "--nodes", "3"],
        &["broadcast", "--compute", "1ns", "--transport", "tls", "--nodes", "2"],
        &["all-reduce", "--compute", "random", "--runtime", "io-thread"],
        &["all-reduce", "--compute", "empty", "--bytes", "4", "--algorithm", "chains"],
    ];
    for options in many {
        let row = delta(&[&["--against", "calls", "--pattern"], *options].concat());
        assert_keys(&row, &keys);
        assert_keys(&row, AGAINST_KEYS);
        assert_eq!((&row["pattern"], &row["baseline"]), (&options[0].into(), &"calls".into()));
    }
}

/// Whole messages and increments beside their closed forms, and patterns that have none.
#[cfg(feature = "virtual")]
#[test]
fn virtual_collectives_that_flow() {
    let delta = ["delta", "--lan", "virtual:lan-1g-one-core", "--nodes", "5", "--check"];
    let reduce = ["--bytes", "1MiB", "--delta", "20KiB", "--compute", "5ns", "--gamma", "0.25"];
    for algorithm in ["chain", "binary"] {
        let options = ["--pattern", "reduce", "--algorithm", algorithm];
        let row = row(&[&delta[..], &reduce, &options].concat());
        assert!(row["form_error"].as_f64() < Some(0.1), "{row}");
    }
    for pattern in ["broadcast", "all-reduce"] {
        let options = ["--pattern", pattern, "--bytes", "256KiB", "--against", "calls"];
        let row = row(&[&delta[..], &options].concat());
        assert!(row["ratio"].is_number() && row["form_seconds"].is_null(), "{row}");
    }
    let hop = ["delta", "--pattern", "cascade", "--compute", "empty", "--bytes", "1MiB"];
    let virtually = ["--against", "hop", "--lan", "virtual:lan-1g"];
    let row = row(&[&hop[..], &virtually].concat());
    assert!(row["ratio"].as_f64() > Some(1.0), "{row}");
}

#[test]
fn budgets_run_all_at_tiny_sizes() {
    let output = chunkperf(&["budgets", "--quick", "--json"]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{err}", output.status);
    let out = String::from_utf8(output.stdout).unwrap();
    let list = include_str!("../../budgets.txt").lines();
    let budgets = list.filter(|line| !line.is_empty() && !line.starts_with('#'));
    assert_eq!(out.lines().count(), budgets.count());
    let (told, lacking) = (err.lines().next().unwrap_or_default(), "lack something here: ");
    let is_lacking = cfg!(not(all(feature = "peers", feature = "virtual")));
    assert!(told.contains(lacking) || !is_lacking, "one line tells all that is missing: {told}");
    assert!(err.lines().last().unwrap_or_default().contains("not measured here"), "{err}");
    for line in out.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        assert_keys(&row, &["name", "figure", "budget", "aim", "met"]);
        assert!(row["figure"].is_number() || row["reason"].is_string(), "{row}");
    }
}

/// Tries one budget of each direction, with a limit that no machine reaches and one that every
/// machine does.
#[test]
fn a_missed_budget_is_exit_status_1() {
    for (name, missed, met) in
        [("stream-one", "1e9", "0"), ("idle", "0", "1e18"), ("farm-rate", "1e18", "0")]
    {
        for (limit, is_met) in [(missed, false), (met, true)] {
            let arguments = ["budgets", "--quick", "--only", name, "--limit", limit];
            let output = chunkperf(&[&arguments[..], &["--json"]].concat());
            let err = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(i32::from(!is_met)), "{name} {limit}: {err}");
            let row: Value = serde_json::from_slice(&output.stdout).expect("a row is JSON");
            assert_eq!((&row["name"], &row["met"]), (&Value::from(name), &Value::from(is_met)));
            assert_eq!(row["budget"].as_f64(), limit.parse().ok());
        }
    }
    let output = chunkperf(&["budgets", "--quick", "--only", "idle", "--limit", "0"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains(" NO "));
}

#[test]
fn what_cannot_be_is_refused_with_what_is_allowed() {
    let virtual_time = cfg!(feature = "virtual");
    let no_threads = if virtual_time { "allowed with --lan real" } else { "--features virtual" };
    let no_lan = if virtual_time { "neither a file nor a preset" } else { "--features virtual" };
    let cases: &[(&[&str], &str)] = &[
        (&["distribute", "--json"], "allowed are stream, latency"),
        (&["stream", "--transport", "udp", "--json"], "[possible values: tcp, tls, unix, memory]"),
        (&["stream", "--size", "7"], "at least 8"),
        (&["stream", "--messages", "0"], "whole numbers from 1"),
        (&["stream", "--policy", "eager"], "chunked, unbuffered and linger:DUR"),
        (&["stream", "--packet-bytes", "2MiB"], "1 KiB to 1 MiB"),
        (&["stream", "--against", "pvm"], "hand-batched"),
        (&["stream", "--runtime", "busy-poll", "--threads", "2"], "only --threads 1"),
        (&["stream", "--transport", "memory", "--against", "raw"], "tcp and unix"),
        (&["stream", "--messages", "5", "--against", "raw"], "at least 10"),
        (&["stream", "--against", "alone"], "only --idle-channels above 0"),
        (&["stream", "--rate", "1000", "--api", "many"], "--api one"),
        (&["stream", "--connect", "127.0.0.1:1", "--transport", "unix"], "--transport tcp"),
        (&["stream", "--connect", "foo"], "HOST:PORT"),
        (&["stream", "--connect", "127.0.0.1:1"], "connecting to 127.0.0.1:1"),
        (&["latency", "--load", "spinner", "--against", "load-idle"], "raw, mpich or session-off"),
        (&["latency", "--same-host", "on", "--transport", "tls"], "allowed with --transport tcp"),
        (&["latency", "--against", "mpich"], "--runtime busy-poll and --transport tcp"),
        (&["calls", "--in-flight", "0"], "1 to 1000000"),
        (&["calls", "--size", "64KiB", "--against", "raw"], "65536 bytes in flight"),
        (&["farm", "--work", "10"], "10us"),
        (&["farm", "--grain", "0"], "allowed are auto and whole numbers from 1"),
        (&["farm", "--grain", "-1"], "whole numbers from 1"),
        (&["stream", "--size", "-4KiB"], "allowed are B, KiB, MiB"),
        (&["farm", "--task-bytes", "64MiB"], "at most 32 MiB"),
        (&["farm", "--task-bytes", "1MiB", "--grain", "32"], "less than 1048576 bytes a task"),
        (&["farm", "--transport", "memory"], "--workers-as thread"),
        (&["farm", "--against", "plain"], "with a --journal"),
        (&["farm", "--against", "mpich"], "--runtime busy-poll, --transport tcp and"),
        (&["farm", "--against", "hand-farm", "--model", "a"], "--model b is allowed"),
        (&["farm", "queue", "--grain", "4294967296"], "allowed are 1 to 4294967295"),
        (&["farm", "queue", "--transport", "memory"], "tcp, tls and unix are allowed"),
        (&["farm", "sweep", "--works", "mix:"], "mix:DUR for a mix of lengths"),
        (&["farm", "sweep", "--transport", "memory"], "tcp, tls and unix are allowed"),
        (
            &["delta", "--pattern", "tree"],
            "[possible values: pair, cascade, ring, reduce, broadcast, all-reduce]",
        ),
        (&["delta", "--compute", "cosine"], "allowed are empty, random, trig and a wait"),
        (&["delta", "--compute", "5parsecs"], "a time a byte such as 5ns"),
        (&["delta", "--against", "calls"], "reduce, broadcast and all-reduce"),
        (&["delta", "--pattern", "ring", "--gamma", "1"], "reduce, broadcast and all-reduce"),
        (&["delta", "--pattern", "reduce", "--against", "hop"], "--against calls alone"),
        (&["delta", "--pattern", "reduce", "--gamma", "1"], "--lan virtual:NAME"),
        (&["delta", "--pattern", "reduce", "--transport", "unix"], "tcp and tls"),
        (&["delta", "--pattern", "reduce", "--nodes", "65"], "up to 64 nodes"),
        (&["delta", "--lan", "virtual"], "allowed are real, virtual:NAME and virtual:FILE"),
        (&["delta", "--lan", "virtual:x"], no_lan),
        (&["farm", "--check"], "allowed with --lan virtual:NAME"),
        (&["farm", "--lan", "virtual:lan-1g", "--threads", "7"], no_threads),
        (&["delta", "--nodes", "3"], "2 to 2 nodes"),
        (&["delta", "--bytes", "5"], "multiples of 4"),
        (&["budgets", "--only", "nothing"], "stream-one"),
        (&["budgets", "--limit", "1"], "--only"),
        (&["budgets", "--only", "idle", "--limit", "low"], "allowed are numbers"),
        (&["serve", "--listen", "foo"], "HOST:PORT"),
        (&["serve", "--listen", "0.0.0.0:0"], "--insecure-bind-beyond-loopback"),
    ];
    for (arguments, says) in cases {
        let said = refusal(arguments);
        assert!(said.contains(says), "{arguments:?} says: {said}");
    }
}

#[test]
fn a_closed_standard_output_is_a_plain_error() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_chunkperf"))
        .args(["stream", "--messages", "100", "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("chunkperf starts");
    drop(program.stdout.take());
    let output = program.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.starts_with("chunkperf: writing to standard output: "), "{told}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_server_is_the_far_end_for_near_ends_and_survives_strangers() {
    use std::io::{BufRead, BufReader, Write};
    let mut server = Command::new(env!("CARGO_BIN_EXE_chunkperf"))
        .args(["serve", "--listen", "127.0.0.1:0", "--runs", "2"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("chunkperf starts");
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    let address = line.rsplit(' ').next().unwrap().to_owned();
    let mut stranger = std::net::TcpStream::connect(&address).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    for _ in 0..2 {
        let row = row(&["stream", "--messages", "1000", "--connect", &address]);
        assert_keys(&row, STREAM_KEYS);
    }
    assert!(server.wait().unwrap().success());
}

#[cfg(target_os = "linux")]
#[test]
fn no_process_outlives_the_program() {
    use chunkcomm_testkit::proc;

    let mut near = Command::new(env!("CARGO_BIN_EXE_chunkperf"));
    near.args(["latency", "--iterations", "100000000"]).stdout(Stdio::null());
    let near = proc::Program(near.spawn().expect("chunkperf starts"));
    let far = proc::children(near.0.id(), 1);
    drop(near);
    proc::wait_until_gone(&far);
}
