//! `chunkperf model` at a small size: two rows with every key of the contract.

use std::process::{Command, Stdio};

use serde_json::Value;

const KEYS: &[&str] = &[
    "bench",
    "transport",
    "runtime",
    "path",
    "lambda_us",
    "beta_us_per_byte",
    "copy_us_per_byte",
    "variable_us",
    "crossover_bytes",
    "saving_predicted_us",
    "saving_measured_us",
];

#[test]
fn both_paths_have_a_row_with_every_key() {
    let output = Command::new(env!("CARGO_BIN_EXE_chunkperf"))
        .args(["model", "--messages", "200", "--json"])
        .stdin(Stdio::null())
        .output()
        .expect("chunkperf starts");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    let out = String::from_utf8_lossy(&output.stdout);
    let rows: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let paths: Vec<_> = rows.iter().map(|row| row["path"].as_str()).collect();
    assert_eq!(paths, [Some("plain"), Some("chunked")]);
    for row in &rows {
        for key in KEYS {
            assert!(row.get(key).is_some(), "no key {key} in {row}");
        }
        assert!(row["lambda_us"].is_number() && row["beta_us_per_byte"].is_number());
    }
    // Nothing is gathered on the plain path, so that nothing is saved there.
    assert!(rows[0]["copy_us_per_byte"].is_null() && rows[0]["saving_measured_us"].is_null());
    for key in ["copy_us_per_byte", "variable_us", "saving_predicted_us", "saving_measured_us"] {
        assert!(rows[1][key].is_number(), "{key} in {}", rows[1]);
    }
}

#[test]
fn a_number_of_messages_too_small_for_slices_is_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_chunkperf"))
        .args(["model", "--messages", "5"])
        .output()
        .expect("chunkperf starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("at least 10"));
}
