//! `chunkperf model` at a small size: two rows with every key of the contract.

use crate::program::{assert_keys, refusal, rows};

const KEYS: &[&str] = &[
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
    let rows = rows(&["model", "--messages", "200"]);
    let paths: Vec<_> = rows.iter().map(|row| row["path"].as_str()).collect();
    assert_eq!(paths, [Some("plain"), Some("chunked")]);
    for row in &rows {
        assert_keys(row, KEYS);
        assert!(row["lambda_us"].is_number() && row["beta_us_per_byte"].is_number());
    }
    // The plain path gathers nothing and so saves nothing.
    assert!(rows[0]["copy_us_per_byte"].is_null() && rows[0]["saving_measured_us"].is_null());
    for key in ["copy_us_per_byte", "variable_us", "saving_predicted_us", "saving_measured_us"] {
        assert!(rows[1][key].is_number(), "{key} in {}", rows[1]);
    }
}

#[test]
fn a_number_of_messages_too_small_for_slices_is_refused() {
    assert!(refusal(&["model", "--messages", "5"]).contains("at least 10"));
}
