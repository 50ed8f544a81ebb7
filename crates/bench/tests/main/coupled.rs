//! Built programs of coupled groups, by path: here scripts that print a line of JSON.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use chunkcomm_testkit::Scratch;
use serde_json::Value;

use crate::program::{assert_keys, chunkperf, refusal, row};

/// Notes its options, and says times by its form.
pub(crate) const SCRIPT: &str = r#"#!/bin/sh
echo "$*" >> "$0.calls"
form=pipelined ranks='[4,4]' each=0.15
case "$*" in *--data-parallel*) form=data-parallel ranks='[8]' each=0.3 ;; esac
case "$*" in *--slabs=off*) each=0.2 ;; esac
echo "{\"program\":\"fft2d\",\"form\":\"$form\",\"ranks\":$ranks,\"shape\":\"512x512\",\"arrays\":5,
    \"overlap\":true,\"slabs\":true,\"depth\":2,\"seconds\":1.5,\"waiting_share\":[0.5,0.25],
    \"seconds_an_array\":$each,\"seconds_a_sweep\":$each}"
"#;

/// Makes a folder with such programs.
pub(crate) fn examples(script: &str) -> Scratch {
    let folder = Scratch::folder("examples");
    for name in ["fft2d", "convolution", "multiblock"] {
        let file = folder.join(name);
        fs::write(&file, script).expect("the folder is ours");
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    folder
}

pub(crate) fn text(folder: &Path) -> &str {
    folder.to_str().expect("a path of ASCII")
}

fn coupled(folder: &Path, options: &[&str]) -> Value {
    row(&[&["coupled", "--examples", text(folder)], options].concat())
}

#[test]
fn a_row_has_what_the_program_says() {
    let folder = examples(SCRIPT);
    let row = coupled(&folder, &["--shape", "512x512", "--ranks", "4,4", "--arrays", "5"]);
    assert_keys(&row, &["form", "ranks", "shape", "waiting_share"]);
    assert_eq!((&row["steady_seconds"], &row["seconds"]), (&0.15.into(), &1.5.into()));
    assert_eq!((&row["arrays"], &row["form"]), (&5.into(), &"pipelined".into()));
    assert!(row.get("ratio").is_none() && row.get("form_error").is_none(), "{row}");
    let calls = fs::read_to_string(folder.join("fft2d.calls")).unwrap();
    assert_eq!(calls, "--json --no-progress --ranks=4,4 --shape=512x512 --arrays=5\n");
    coupled(&folder, &["--program", "multiblock", "--shape", "32x32", "--arrays", "7"]);
    let calls = fs::read_to_string(folder.join("multiblock.calls")).unwrap();
    assert!(calls.contains("--side=32 --sweeps=7 --output "), "{calls}");
}

#[test]
fn two_forms_run_in_turns() {
    let folder = examples(SCRIPT);
    let row = coupled(&folder, &["--ranks", "4,4", "--against", "data-parallel"]);
    assert_keys(&row, &["ratio_low", "ratio_high"]);
    assert_eq!((&row["ratio"], &row["baseline_seconds"]), (&2.0.into(), &0.3.into()));
    let calls = fs::read_to_string(folder.join("fft2d.calls")).unwrap();
    let calls: Vec<&str> = calls.lines().collect();
    let both =
        ["--json --no-progress --ranks=4,4", "--json --no-progress --nodes=8 --data-parallel"];
    assert_eq!(calls, both.repeat(5));
    let row = coupled(&folder, &["--against", "no-slabs"]);
    assert!((row["ratio"].as_f64().unwrap() - 4.0 / 3.0).abs() < 1e-9, "{row}");
}

/// 0.13636 s by the model: 128 transforms of 512 elements, packing 2 MiB, a message to and from each of four.
#[cfg(feature = "virtual")]
#[test]
fn a_model_stands_beside_virtual_time() {
    let folder = examples(SCRIPT);
    let virtually = ["--lan", "virtual:sp2", "--ranks", "4,4"];
    let row = coupled(&folder, &virtually);
    assert_eq!((&row["transport"], &row["flop_ns"]), (&"virtual".into(), &40.0.into()));
    assert!((row["model_seconds"].as_f64().unwrap() - 0.13636).abs() < 1e-5, "{row}");
    assert!((row["form_error"].as_f64().unwrap() - 0.1).abs() < 1e-3, "{row}");
    let row = coupled(&folder, &[&virtually[..], &["--flop", "80", "--packing", "0"]].concat());
    assert!((row["model_seconds"].as_f64().unwrap() - 0.23625).abs() < 1e-5, "{row}");
    let row = coupled(&folder, &["--lan", "virtual:sp2", "--nodes", "8", "--data-parallel"]);
    assert!((row["model_seconds"].as_f64().unwrap() - 0.15195).abs() < 1e-4, "{row}");
    let row = coupled(&folder, &["--program", "convolution", "--lan", "virtual:sp2"]);
    assert!(row.get("model_seconds").is_none(), "{row}");
}

#[test]
fn programs_that_are_not_built_are_a_reason() {
    let build = "cargo build --release --features chunkcomm-examples/virtual --examples";
    let old =
        examples("#!/bin/sh\necho 'virtual time needs a build: the feature virtual' >&2; exit 2\n");
    for folder in [&Scratch::folder("examples"), &old] {
        let row = coupled(folder, &["--against", "no-slabs"]);
        assert!(row["steady_seconds"].is_null() && row["ratio"].is_null(), "{row}");
        assert!(row["reason"].as_str().unwrap().contains(build), "{row}");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let failing = examples("#!/bin/sh\necho 'error: no rows' >&2; exit 1\n");
    let silent = examples("#!/bin/sh\necho '{}'\n");
    let [failing, silent] = [&failing, &silent].map(|folder| text(folder));
    let cases: &[(&[&str], &str)] = &[
        (&["--examples", "/nowhere"], "allowed is the folder of the built programs"),
        (&["--examples", failing], "error: no rows"),
        (&["--examples", silent], "it says no number seconds"),
        (&["--ranks", "4,1,4"], "allowed are 2 numbers"),
        (&["--ranks", "4,0"], "allowed are ranks of each group"),
        (&["--ranks", "4,4", "--data-parallel"], "--nodes, not --ranks"),
        (&["--depth", "3"], "allowed are 1 to 2"),
        (&["--program", "kmeans"], "[possible values: fft2d, convolution, multiblock]"),
        (&["--program", "multiblock", "--against", "no-slabs"], "--program fft2d"),
        (&["--program", "multiblock", "--shape", "3x4"], "are squares"),
        (&["--flop", "2"], "--lan virtual:NAME"),
        (&["--transport", "tls"], "allowed are no --transport"),
    ];
    for (options, says) in cases {
        let said = refusal(&[&["coupled"], *options].concat());
        assert!(said.contains(says), "{options:?} says: {said}");
    }
}

#[test]
fn a_budget_whose_program_is_not_built_is_not_missed() {
    // Whether it is built beside this program or not, the command runs.
    let output = chunkperf(&["budgets", "--quick", "--only", "fft2d-slabs", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
