//! `chunkperf sweep` at a tiny size: a row a cell with every key, and what is left out said so.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn sweep(options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_chunkperf"))
        .arg("sweep")
        .args(options)
        .stdin(Stdio::null())
        .output()
        .expect("chunkperf starts")
}

/// What `stream` has, and the best fixed setting beside it.
const KEYS: &[&str] = &[
    "bench",
    "transport",
    "runtime",
    "policy",
    "payload_bytes",
    "rate",
    "messages",
    "seconds",
    "messages_per_second",
    "bytes_per_second",
    "packets",
    "messages_per_packet",
    "writes",
    "flushes",
    "cpu_us_per_message",
    "delivery_p50_us",
    "delivery_p99_us",
    "best_policy",
    "best_packet_bytes",
    "best_messages_per_second",
    "best_cpu_us_per_message",
    "best_delivery_p99_us",
    "rate_ratio",
    "p99_ratio",
    "cpu_ratio",
    "skipped",
    "met",
];

#[test]
fn a_row_a_cell_and_what_cannot_be_reached_is_left_out() {
    let options = ["--quick", "--json", "--sizes", "8,64KiB", "--rates", "100,1000000000,max"];
    let output = sweep(&options);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    let out = String::from_utf8_lossy(&output.stdout);
    let rows: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let cells: Vec<_> =
        rows.iter().map(|row| (row["payload_bytes"].as_u64(), row["rate"].as_u64())).collect();
    // One that any machine reaches, one that none does.
    let rates = [Some(100), Some(1_000_000_000), None];
    let expected: Vec<_> =
        [8, 65_536].iter().flat_map(|bytes| rates.map(|rate| (Some(*bytes), rate))).collect();
    assert_eq!(cells, expected);
    for row in &rows {
        for key in KEYS {
            assert!(row.get(key).is_some(), "no key {key} in {row}");
        }
        let skipped = row["rate"] == 1_000_000_000;
        assert_eq!(row["skipped"], skipped, "{row}");
        assert_eq!(row["met"].is_null(), skipped, "{row}");
        for key in ["rate_ratio", "p99_ratio", "cpu_ratio", "best_packet_bytes"] {
            assert_eq!(row[key].is_number(), !skipped, "{key} in {row}");
        }
    }
}

#[test]
fn a_table_has_a_line_a_cell() {
    let output = sweep(&["--quick", "--sizes", "16", "--rates", "1000000000,max"]);
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines.len(), 4, "{out}");
    assert!(lines[0].contains("mean nothing") && lines[1].contains("best fixed"), "{out}");
    assert!(lines[2].contains("left out") && lines[3].contains("KiB"), "{out}");
}

#[test]
fn wrong_sizes_and_rates_say_what_is_allowed() {
    for (options, says) in [
        (["--sizes", "8,7"], "at least 8"),
        (["--rates", "1000,most"], "or max"),
        (["--connect", "127.0.0.1:1"], "starts its processes on this machine"),
    ] {
        let output = sweep(&options);
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(says), "{options:?}: {said}");
    }
}
