//! Statements of papers: everything runs, with the same figures as before.
//!
//! Of a digest that has changed on purpose: the failure says the new one.

use crate::program::row;

/// Runs a paper at tiny sizes and compares its digest.
#[track_caller]
fn assert_digest(paper: &str, digest: &str) {
    let row = row(&["reproduce", "--paper", paper, "--quick", "--summary"]);
    assert_eq!(row["digest"], digest, "{row}");
}

#[test]
fn eden() {
    assert_digest("eden", "363a662ac44dcc78");
}
