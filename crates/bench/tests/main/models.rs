//! One farm in several models, by built programs: here a script that prints a line of JSON.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use chunkcomm_testkit::Scratch;
use serde_json::Value;

use crate::program::{assert_keys, refusal};

/// Notes its options, and says times by them.
const SCRIPT: &str = r#"#!/bin/sh
echo "$*" >> "$0.calls"
seconds=0.3
case "$*" in *--iterations=1*) seconds=0.06 ;; *--double-buffering=off*) seconds=0.5 ;; esac
for word; do case "$word" in --npy=*) printf 'nothing' > "${word#--npy=}" ;; esac; done
echo "{\"lines\":50,\"double_buffering\":\"native\",\"tasks\":600,\"messages_per_task\":2.5,
    \"seconds\":$seconds,\"speed_up\":1.5}"
"#;

fn examples(script: &str) -> Scratch {
    let folder = Scratch::folder("examples");
    let file = folder.join("models");
    fs::write(&file, script).expect("the folder is ours");
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).expect("it is ours");
    folder
}

/// An empty search path: no compiler, no PVM.
fn without_pvm(folder: &Scratch, options: &[&str]) -> Vec<Value> {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_chunkperf"))
        .args([
            "coupled",
            "models",
            "--json",
            "--runs",
            "2",
            "--examples",
            folder.to_str().expect("ASCII"),
        ])
        .args(options)
        .env("PATH", "/nowhere")
        .output()
        .expect("chunkperf starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("rows are text");
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

#[test]
fn each_farm_has_a_row_for_each_model() {
    let folder = examples(SCRIPT);
    let rows = without_pvm(&folder, &["--nodes", "4"]);
    let names: Vec<_> = rows.iter().map(|row| (&row["system"], &row["model"])).collect();
    assert_eq!(names.len(), 10, "{names:?}");
    for row in &rows {
        assert_keys(row, &["system", "model", "us_per_task", "virtual_seconds_single"]);
        if row["system"] == "PVM 3" {
            assert!(row["seconds"].is_null() && row["reason"].is_string(), "{row}");
            continue;
        }
        assert_eq!((&row["seconds"], &row["virtual_seconds"]), (&0.3.into(), &0.3.into()));
        assert_eq!(row["us_per_task"].as_f64().map(f64::round), Some(100.0), "{row}");
        assert_eq!((&row["virtual_seconds_single"], &row["lines"]), (&0.5.into(), &50.into()));
    }
    let calls = fs::read_to_string(folder.join("models.calls")).unwrap();
    for (words, count) in [
        ("--idiom=linda --model=a", 3 + 2 * 2),
        ("--lan=virtual:ethernet-10m-sparc --step=1440 --double-buffering=off", 8),
        ("--nodes=4 --sequential-check", 2 * 8),
    ] {
        assert_eq!(calls.matches(words).count(), count, "{words}: {calls}");
    }
}

#[test]
fn farms_that_are_not_built_are_a_reason() {
    for row in without_pvm(&Scratch::folder("examples"), &[]) {
        assert!(row["seconds"].is_null() && row["reason"].is_string(), "{row}");
    }
}

#[test]
fn another_picture_than_that_of_pvm_is_an_error() {
    if std::process::Command::new("pvmd").arg("-h").output().is_err() {
        return eprintln!("skipped: there is no pvmd (Debian: pvm, pvm-dev)");
    }
    let folder = examples(SCRIPT);
    let words = ["coupled", "models", "--runs", "1", "--examples", folder.to_str().unwrap()];
    let said = refusal(&words);
    assert!(said.contains("comparing PVM's picture with ours: they differ"), "{said}");
}

#[test]
fn what_cannot_be_is_refused() {
    for (options, says) in [
        (&["--examples", "/nowhere"][..], "allowed is the folder of the built programs"),
        (&["--nodes", "1"], "--nodes 2 or more"),
        (&["--lan", "real"], "allowed are virtual:NAME and virtual:FILE"),
        (&["--transport", "tls"], "allowed are no --transport"),
    ] {
        let said = refusal(&[&["coupled", "models"], options].concat());
        assert!(said.contains(says), "{options:?} says: {said}");
    }
}
