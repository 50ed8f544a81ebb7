//! Statements of papers: everything runs, with the same figures as before.
//!
//! Of a digest that has changed on purpose: the failure says the new one.

use serde_json::Value;

use crate::program::row;

/// Runs a paper at tiny sizes and compares its digest.
#[track_caller]
fn assert_digest(paper: &str, digest: &str) -> Value {
    let row = row(&["reproduce", "--paper", paper, "--quick", "--summary"]);
    assert_eq!(row["digest"], digest, "{row}");
    row
}

#[test]
fn gdh() {
    let row = assert_digest("gdh", "?");
    // Several tasks a processor are faster at any size.
    assert!(row["gdh_best_share"].as_f64() < Some(0.95), "{row}");
}

#[test]
fn lan() {
    assert_digest("lan", "?");
}

#[test]
fn eden() {
    assert_digest("eden", "?");
}
