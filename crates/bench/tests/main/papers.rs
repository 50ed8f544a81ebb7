//! Statements of papers at tiny sizes: everything runs, with the same figures everywhere.
//!
//! Of a digest that has changed on purpose: the failure says the new one.

use chunkcomm_testkit::Scratch;
use serde_json::Value;

use crate::coupled::{SCRIPT, examples, text};
use crate::program::{row, rows};

fn summary(paper: &str, more: &[&str]) -> Value {
    row(&[&["reproduce", "--paper", paper, "--quick", "--summary"], more].concat())
}

/// Runs all of a paper and compares its digest.
#[track_caller]
fn assert_digest(paper: &str, more: &[&str], digest: &str) -> Value {
    let row = summary(paper, more);
    assert_eq!(row["digest"], digest, "{row}");
    row
}

#[test]
fn gdh() {
    assert_digest("gdh", &[], "b6b47956db96526d");
}

#[test]
fn lan() {
    assert_digest("lan", &[], "f2ec43ac508b0d5f");
}

#[test]
fn eden() {
    assert_digest("eden", &[], "3782941d53587c09");
}

/// Returns the outcome of a statement.
fn outcome(rows: &[Value], statement: &str) -> String {
    let row = rows.iter().find(|row| row["statement"] == statement);
    row.map_or("none", |row| row["outcome"].as_str().unwrap_or("none")).to_owned()
}

#[test]
fn delta() {
    let row = assert_digest("delta", &[], "09021fe96873c894");
    assert!(row["auto_ratio"].as_f64() > Some(0.9), "{row}");
    // Its real part is another program's.
    assert_eq!(row["missing"], 1, "{row}");
}

#[test]
fn hpf() {
    let folder = examples(SCRIPT);
    assert_digest("hpf", &["--examples", text(&folder)], "c73603aa8a17aaf1");
    let quick = ["reproduce", "--paper", "hpf", "--only", "fft2d", "--quick", "--examples"];
    let slow = examples(&SCRIPT.replace("each=0.3", "each=0.1"));
    for (folder, expected) in [(folder, "holds"), (slow, "differs")] {
        let all = rows(&[&quick[..], &[text(&folder)]].concat());
        assert_eq!(outcome(&all, "fft-small-arrays"), expected);
    }
    let nothing = Scratch::folder("examples");
    let row = summary("hpf", &["--only", "convolution", "--examples", text(&nothing)]);
    assert!(row["missing"].as_u64() > Some(0) && row["hold"] == 0, "{row}");
}
