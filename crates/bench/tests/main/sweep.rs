//! `chunkperf stream sweep` at a tiny size: a row a cell with every key, also for a cell that is left out.

use crate::program::{STREAM_KEYS, assert_keys, chunkperf, refusal, rows};

/// Keys beside those of `stream`: the best fixed setting, and the ratios against it.
const KEYS: &[&str] = &[
    "rate",
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
    let rows = rows(&[
        "stream",
        "sweep",
        "--quick",
        "--sizes",
        "8,64KiB",
        "--rates",
        "100,1000000000,max",
    ]);
    let cells: Vec<_> =
        rows.iter().map(|row| (row["payload_bytes"].as_u64(), row["rate"].as_u64())).collect();
    // A rate that any machine reaches, and one that none does.
    let rates = [Some(100), Some(1_000_000_000), None];
    let expected: Vec<_> =
        [8, 65_536].iter().flat_map(|bytes| rates.map(|rate| (Some(*bytes), rate))).collect();
    assert_eq!(cells, expected);
    for row in &rows {
        assert_keys(row, STREAM_KEYS);
        assert_keys(row, KEYS);
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
    let output =
        chunkperf(&["stream", "sweep", "--quick", "--sizes", "16", "--rates", "1000000000,max"]);
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines.len(), 4, "{out}");
    assert!(lines[0].contains("mean nothing") && lines[1].contains("best fixed"), "{out}");
    assert!(lines[2].ends_with(" yes") && lines[3].ends_with(" no"), "{out}");
}

#[test]
fn wrong_sizes_and_rates_say_what_is_allowed() {
    for (options, says) in [
        (["--sizes", "8,7"], "at least 8"),
        (["--rates", "1000,most"], "or max"),
        (["--connect", "127.0.0.1:1"], "starts its processes on this machine"),
    ] {
        let said = refusal(&[&["stream", "sweep"], &options[..]].concat());
        assert!(said.contains(says), "{options:?}: {said}");
    }
}
