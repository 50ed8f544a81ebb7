//! Collective calls: every operation beside every baseline, all results verified by the ranks.

use crate::program::{assert_keys, refusal, row};

const KEYS: &[&str] = &["op", "algorithm", "ranks", "payload_bytes", "segments", "seconds"];

const AGAINST_KEYS: &[&str] =
    &["baseline", "ratio", "ratio_low", "ratio_high", "time_ratio", "baseline_seconds"];

const OPERATIONS: [&str; 7] =
    ["barrier", "broadcast", "reduce", "all-reduce", "all-gather", "all-to-all", "scan"];

fn collective(options: &[&str]) -> serde_json::Value {
    row(&[&["collective", "--repeat", "12"], options].concat())
}

#[test]
fn every_operation_beside_the_relay() {
    // Blocks of elements, and pieces of a read, that do not come out even.
    for (ranks, size) in [("3", "600024"), ("4", "8")] {
        for op in OPERATIONS {
            let size = if op == "all-to-all" { "96000" } else { size };
            let row =
                collective(&["--op", op, "--size", size, "--ranks", ranks, "--against", "relay"]);
            assert_keys(&row, KEYS);
            assert_keys(&row, AGAINST_KEYS);
            assert_eq!((&row["op"], &row["baseline"]), (&op.into(), &"relay".into()));
            assert!(row["ratio"].as_f64() > Some(0.0), "{row}");
            assert!(row["baseline_seconds"].as_f64() > Some(0.0), "{row}");
        }
    }
}

#[test]
fn small_calls_beside_a_dissemination() {
    for options in [
        &["--op", "barrier", "--ranks", "3"][..],
        &["--op", "all-reduce", "--size", "8"],
        &["--op", "all-reduce", "--size", "8", "--ranks", "2", "--runtime", "busy-poll"],
    ] {
        let row = collective(&[options, &["--against", "dissemination"]].concat());
        assert_keys(&row, AGAINST_KEYS);
        assert!(row["time_ratio"].as_f64() > Some(0.0), "{row}");
    }
}

/// The ratio is there, or the reason why not.
#[test]
fn large_calls_beside_an_mpi() {
    for baseline in ["mpich", "openmpi", "openmpi-adapt", "openmpi-512k"] {
        for op in ["broadcast", "all-reduce"] {
            let options = ["--op", op, "--size", "64KiB", "--ranks", "3", "--against", baseline];
            let row = collective(&options);
            assert_keys(&row, AGAINST_KEYS);
            assert!(row["seconds"].is_number(), "{row}");
            assert_ne!(row["ratio"].is_number(), row["reason"].is_string(), "{row}");
            assert_eq!(row["baseline"], baseline);
        }
    }
}

#[test]
fn an_algorithm_is_taken_by_its_name() {
    for algorithm in ["chain", "binomial"] {
        let options = ["--op", "broadcast", "--algorithm", algorithm, "--ranks", "3"];
        assert_eq!(collective(&options)["algorithm"], algorithm);
    }
}

#[cfg(feature = "virtual")]
#[test]
fn virtual_calls_have_the_closed_form_beside_them() {
    let options = ["--op", "broadcast", "--size", "1MiB", "--ranks", "4"];
    for algorithm in ["chain", "binomial", "auto"] {
        let more = ["--algorithm", algorithm, "--lan", "virtual:default", "--check"];
        let row = collective(&[&options[..], &more].concat());
        assert_keys(&row, KEYS);
        assert!(row["seconds"].as_f64() > Some(0.0) && row["check"] == "same", "{row}");
        assert_eq!(row["form_seconds"].is_number(), algorithm != "auto", "{row}");
    }
    let tables = ["--forms", "--choice", "--lan", "virtual:default"];
    let small = ["--size-max", "64KiB", "--ranks-max", "16", "--summary"];
    let row = collective(&[&tables[..], &small].concat());
    assert!(row["auto_ratio"].as_f64() > Some(0.5), "{row}");
    assert!(row["form_error"].as_f64() > Some(0.0), "{row}");
    let said = refusal(&["collective", "--choice"]);
    assert!(said.contains("--lan virtual:NAME"), "{said}");
}

#[test]
fn what_cannot_be_is_refused() {
    let cases: &[(&[&str], &str)] = &[
        (&["--size", "12"], "multiples of 8 above 0"),
        (&["--op", "all-to-all", "--size", "8"], "multiples of 32 above 0"),
        (&["--ranks", "65"], "allowed are 1 to 64"),
        (&["--transport", "unix"], "tcp and tls are allowed"),
        (&["--against", "dissemination"], "--op all-reduce --size 8"),
        (&["--algorithm", "rnig"], "allowed are auto, chain"),
        (&["--op", "gather"], "[possible values: barrier, broadcast"),
        (&["--against", "pvm"], "[possible values: relay, mpich, openmpi"),
        (&["--repeat", "5", "--against", "relay"], "at least 12"),
    ];
    for (options, says) in cases {
        let said = refusal(&[&["collective"], *options].concat());
        assert!(said.contains(says), "{options:?} says: {said}");
    }
}
