//! Redistributions: baselines beside each other, all elements verified by the ranks.

use crate::program::{assert_keys, refusal, row, rows};

const KEYS: &[&str] = &["bytes", "seconds", "bytes_per_second", "plan_seconds", "messages"];

const AGAINST_KEYS: &[&str] =
    &["baseline", "ratio", "ratio_low", "ratio_high", "time_ratio", "baseline_seconds"];

/// Layouts of blocks that do not come out even, and the pairs of processes that exchange something.
const CASES: [(&[&str], u64); 6] = [
    (&["--from", "(block,*)@3x1", "--to", "(*,block)@1x2"], 6),
    (&["--from", "(block,*)@4x1", "--to", "(*,block)@1x4", "--within"], 12),
    (&["--from", "(*,cyclic)@1x4", "--to", "(*,block)@1x4", "--within"], 12),
    (&["--from", "(cyclic(3),block)@2x2", "--to", "(block,cyclic(7))@1x3", "--transposed"], 12),
    (&["--from", "(*,*)@1x1", "--to", "(cyclic(5),blocks(10,7,33))@2x3"], 6),
    (&["--from", "(blocks(37,0),*)@2x1", "--to", "(block,*)@2x1", "--within"], 1),
];

fn redistribute(options: &[&str]) -> serde_json::Value {
    row(&[&["redistribute", "--repeat", "12", "--shape", "37x50"], options].concat())
}

#[test]
fn transfers_by_hand_beside_the_same_bytes() {
    for (options, messages) in CASES {
        let row = redistribute(&[options, &["--side", "hand", "--against", "raw"]].concat());
        assert_keys(&row, KEYS);
        assert_keys(&row, AGAINST_KEYS);
        assert_eq!((&row["bytes"], &row["baseline"]), (&(37 * 50 * 8).into(), &"raw".into()));
        assert_eq!(row["messages"], messages, "{row}");
        assert!(row["ratio"].as_f64() > Some(0.0) && row["plan_seconds"].is_number(), "{row}");
    }
}

/// Every case beside the same by hand, and beside itself with other settings.
#[test]
fn transfers_of_ours() {
    for (options, messages) in CASES {
        let row = redistribute(&[options, &["--against", "hand"]].concat());
        assert_keys(&row, KEYS);
        assert_keys(&row, AGAINST_KEYS);
        assert_eq!((&row["messages"], &row["plan"]), (&messages.into(), &"kept".into()));
        assert!(row["ratio"].as_f64() > Some(0.0) && row["plan_seconds"].is_number(), "{row}");
    }
    let row = redistribute(&[CASES[1].0, &["--copy", "--against", "raw"]].concat());
    assert!(row["ratio"].as_f64() > Some(0.0) && row["copy"] == true, "{row}");
    let cyclic = ["--from", "(*,cyclic)@1x2", "--to", "(*,block)@1x2", "--within", "--npy"];
    let row = redistribute(&[&cyclic[..], &["--against", "blocks"]].concat());
    assert!(row["ratio"].as_f64() > Some(0.0) && row["npy"] == true, "{row}");
    let row = redistribute(&[CASES[3].0, &["--overlap", "off"]].concat());
    assert!(row["seconds"].as_f64() > Some(0.0) && row["overlap"] == "off", "{row}");
    let row = redistribute(&["--from", "(block,*)@2x2", "--to", "(*,*)@1x1"]);
    assert!(row["messages"].is_null() && row["seconds"].as_f64() > Some(0.0), "{row}");
}

/// The elements are compared where both have put them.
#[test]
fn packing_is_beside_loops_by_hand() {
    for (options, _) in CASES {
        let row = redistribute(&[options, &["--pack-only"]].concat());
        assert_keys(&row, &["seconds", "baseline", "ratio", "baseline_seconds"]);
        assert!(row["ratio"].as_f64() > Some(0.0), "{row}");
    }
}

#[test]
fn plans_are_fresh_or_kept() {
    for options in [CASES[0].0, CASES[1].0] {
        let row = redistribute(&[options, &["--plan", "fresh", "--against", "kept"]].concat());
        assert_keys(&row, &["barrier_us", "extra_us", "extra_barriers"]);
        assert!(row["barrier_us"].as_f64() > Some(0.0), "{row}");
        assert_eq!((&row["plan"], &row["baseline"]), (&"fresh".into(), &"kept".into()));
    }
}

#[test]
fn transfers_there_and_back() {
    let words = ["redistribute", "--ping-pong", "--rows-max", "32", "--group-max", "2"];
    let rows = rows(&[&words[..], &["--repeat", "12"]].concat());
    assert_eq!(rows.len(), 2 * 2 * 2, "sizes, groups, plans");
    for row in rows {
        assert!(row["seconds"].as_f64() > Some(0.0), "{row}");
        assert_eq!(row["schedule_us"].as_f64() > Some(0.0), row["plan"] == "fresh", "{row}");
        assert!(row["packing_us"].as_f64() > Some(0.0), "{row}");
    }
}

/// Rows of more bytes than a buffer, and parts of many buffers.
#[test]
fn large_transfers_by_hand() {
    for options in [
        &["--shape", "3x50000", "--to", "(*,cyclic(100))@1x2"][..],
        &["--shape", "1000x600", "--from", "(cyclic,*)@2x1", "--within", "--transposed"],
    ] {
        let row = redistribute(&[options, &["--side", "hand", "--against", "raw"]].concat());
        assert!(row["seconds"].as_f64() > Some(0.0), "{row}");
    }
}

/// The ratio is there, or the reason why not.
#[test]
fn transfers_by_hand_beside_an_mpi() {
    for (baseline, options) in [
        ("openmpi", CASES[0].0),
        ("openmpi", CASES[1].0),
        ("scalapack", CASES[0].0),
        ("scalapack", CASES[2].0),
    ] {
        let row = redistribute(&[options, &["--side", "hand", "--against", baseline]].concat());
        assert_keys(&row, AGAINST_KEYS);
        assert!(row["seconds"].is_number(), "{row}");
        assert_ne!(row["ratio"].is_number(), row["reason"].is_string(), "{row}");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let cases: &[(&[&str], &str)] = &[
        (&["--shape", "37"], "allowed are ROWSxCOLUMNS"),
        (&["--shape", "0x4"], "each 1 to 1048576"),
        (&["--from", "block"], "allowed are layouts with their grid"),
        (&["--from", "(block,*)@4"], "--from (block,*)@4: "),
        (&["--to", "(block,blok)@1x2"], "--to (block,blok)@1x2: "),
        (&["--from", "(block,*)@65x1"], "1 to 64 ranks"),
        (&["--from", "(block,*)@4x1", "--within"], "grids of as many ranks, not 4 and 2"),
        (&["--from", "(block,*)@2x2", "--against", "raw"], "each element has one owner"),
        (&["--from", "(cyclic,*)@2x1", "--against", "openmpi"], "allowed are block and *"),
        (&["--transposed", "--against", "scalapack"], "without --transposed"),
        (&["--from", "(blocks(1,36),*)@2x1", "--against", "scalapack"], "not blocks of several"),
        (
            &["--plan", "fresh", "--side", "hand", "--against", "kept"],
            "--plan fresh --against kept",
        ),
        (&["--against", "kept"], "--plan fresh --against kept"),
        (&["--from", "(*,block)@1x2", "--within", "--copy", "--plan", "fresh"], "--plan kept"),
        (&["--against", "blocks"], "--npy --against blocks"),
        (&["--ping-pong", "--group-max", "33"], "allowed are 1 to 32"),
        (&["--ping-pong", "--against", "hand"], "allowed without --against"),
        (&["--transport", "unix"], "tcp and tls are allowed"),
        (
            &["--against", "pvm"],
            "[possible values: hand, raw, openmpi, scalapack, kept, overlap-off, blocks]",
        ),
    ];
    for (options, says) in cases {
        let words = [&["redistribute", "--shape", "37x50"], *options].concat();
        let said = refusal(&words);
        assert!(said.contains(says), "{options:?} says: {said}");
    }
}
