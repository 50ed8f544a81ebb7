//! The example program `multiblock`, run as its user runs it: a cluster of copies on this machine.

use std::path::Path;
use std::process::Stdio;

use chunkcomm_array::{Layout, Npy};
use chunkcomm_examples::picture;
use chunkcomm_testkit::Scratch;

use super::example::Example;
use super::nodes::free_address;

pub(crate) const MULTIBLOCK: Example = Example { name: "multiblock" };

/// The files of a run.
struct Solved {
    report: String,
    /// The whole geometry, row by row.
    values: Vec<f64>,
    picture: Vec<[u8; 3]>,
}

/// Solves on blocks of this side, and compares with one process.
fn solved(folder: &Path, side: usize, options: &[&str]) -> Solved {
    let (png, npy) = (folder.join("solved.png"), folder.join("solved.npy"));
    let common = [
        format!("--side={side}"),
        format!("--output={}", png.display()),
        format!("--npy={}", npy.display()),
    ];
    let common = common.iter().map(String::as_str).chain(["--no-progress", "--check"]);
    let report = MULTIBLOCK.prints(&common.chain(options.iter().copied()).collect::<Vec<_>>());
    let mut file = Npy::open(&npy).unwrap();
    assert_eq!(file.shape(), [side, 2 * side + side / 2]);
    let whole = Layout::parse("(*,*)", file.shape()).unwrap();
    let values = file.read_local(&whole, 0).unwrap();
    let ((width, _), picture) = picture::load(&png).unwrap();
    assert_eq!(width as usize % (2 * side + side / 2), 0);
    Solved { report, values, picture }
}

/// Whether a point is in one of the blocks.
fn is_inside(side: usize, row: isize, column: isize) -> bool {
    let (side, middle) = (side as isize, side as isize / 2);
    let top = (side - middle) / 2;
    let rows = match column {
        _ if column < 0 || column >= 2 * side + middle => return false,
        _ if column < side || column >= side + middle => 0..side,
        _ => top..top + middle,
    };
    rows.contains(&row)
}

/// Checks that the values solve the equation with a source of strength 100 at (0.4, 0.35), up to this share of
/// the largest value.
fn solves(side: usize, values: &[f64], tolerance: f64) {
    let columns = 2 * side + side / 2;
    let value = |row: isize, column: isize| match is_inside(side, row, column) {
        true => values[row as usize * columns + column as usize],
        false => 0.0,
    };
    let (mut largest, mut inside) = (0.0_f64, 0);
    for (at, found) in values.iter().enumerate() {
        let (row, column) = ((at / columns) as isize, (at % columns) as isize);
        assert_eq!(found.is_nan(), !is_inside(side, row, column), "row {row}, column {column}");
        if !found.is_nan() {
            (largest, inside) = (largest.max(found.abs()), inside + 1);
        }
    }
    assert_eq!(inside, 2 * side * side + (side / 2) * (side / 2));
    // The value beneath a disc of this density grows with the logarithm of the distance to the boundary.
    assert!((0.5..3.0).contains(&largest), "{largest}");
    for at in 0..values.len() {
        let (row, column) = ((at / columns) as isize, (at % columns) as isize);
        if !is_inside(side, row, column) {
            continue;
        }
        let around = [(-1, 0), (1, 0), (0, -1), (0, 1)].map(|(r, c)| value(row + r, column + c));
        let place = |index: isize| (index as f64 + 0.5) / side as f64;
        let is_near = |x: f64| (place(column) - x).hypot(place(row) - 0.35) < 0.125;
        let width = columns as f64 / side as f64;
        let density = f64::from(is_near(0.4)) - f64::from(is_near(width - 0.4));
        let inflow = 100.0 * density / (side * side) as f64;
        let left_over = inflow + around.iter().sum::<f64>() - 4.0 * value(row, column);
        assert!(left_over.abs() < tolerance * largest, "{left_over} in row {row}, column {column}");
    }
}

/// Returns the value of the report's line with this name.
fn row<'a>(report: &'a str, name: &str) -> &'a str {
    report.lines().find_map(|line| line.strip_prefix(name)).expect(report).trim()
}

#[test]
fn all_forms_solve_the_equation_with_the_same_bits() {
    let folder = Scratch::folder("multiblock");
    for (side, forms) in [
        (
            32,
            &[
                (&["--ranks=4,1,4"][..], "4 + 1 + 4, concurrent"),
                (&["--nodes=3"], "1 + 1 + 1, concurrent"),
                (&["--data-parallel", "--nodes=9"], "9, data-parallel"),
                (&["--data-parallel", "--nodes=1"], "1, data-parallel"),
            ][..],
        ),
        (
            27, // its middle block is not in the middle
            &[
                (&["--ranks=3,2,1"], "3 + 2 + 1, concurrent"),
                (&["--nodes=7", "--every=1"], "3 + 1 + 3, concurrent"),
                (&["--data-parallel", "--nodes=5"], "5, data-parallel"),
            ],
        ),
        (
            5, // ranks without a row
            &[
                (&["--ranks=4,3,2"], "4 + 3 + 2, concurrent"),
                (&["--data-parallel", "--nodes=4"], "4, data-parallel"),
            ],
        ),
    ] {
        let mut first: Option<(Vec<u64>, String)> = None;
        for (options, ranks) in forms {
            let options = [options, &["--tolerance=1e-9"][..]].concat();
            let Solved { report, values, .. } = solved(&folder, side, &options);
            assert_eq!(row(&report, "ranks"), *ranks, "{report}");
            let points = 2 * side * side + (side / 2) * (side / 2);
            let checked = format!("{points} values equal those of one process, bit for bit");
            assert_eq!(row(&report, "check"), checked, "{report}");
            if side > 5 {
                solves(side, &values, 1e-6);
            }
            if options.contains(&"--every=1") {
                continue; // it ends earlier
            }
            let bits = values.iter().map(|value| value.to_bits()).collect();
            let residual = format!("{} {}", row(&report, "sweeps"), row(&report, "residual"));
            let (expected, told) = first.get_or_insert_with(|| (bits, residual.clone()));
            assert_eq!(residual, *told, "{report}");
            assert!(
                values.iter().zip(expected).all(|(value, bits)| value.to_bits() == *bits),
                "{options:?}"
            );
        }
    }
}

#[test]
fn the_picture_shows_source_sink_boundary_and_residual() {
    let folder = Scratch::folder("multiblock-picture");
    let Solved { picture, .. } = solved(&folder, 16, &["--nodes=3"]);
    let columns = 40 * 15; // pixels of a point: 15
    let (solution, curve) = picture.split_at(16 * 15 * columns);
    let at = |row: f64, column: f64| {
        let side = 16.0 * 15.0;
        solution[(row * side) as usize * columns + (column * side) as usize]
    };
    let [source, sink] = [at(0.35, 0.4), at(0.35, 2.1)];
    assert!(source[0] > 150 && source[2] < 100, "{source:?}");
    assert!(sink[2] > 150 && sink[0] < 100, "{sink:?}");
    let grey = |pixel: [u8; 3]| pixel[0] == pixel[2] && pixel[0] < 255;
    assert!(grey(at(0.1, 1.25)) && grey(at(0.9, 1.25)), "outside of the blocks");
    assert_eq!(at(0.5, 1.25), [255; 3], "between source and sink");
    // The residual falls from left to right.
    let height_at = |column: usize| {
        (0..curve.len() / columns).find(|row| curve[row * columns + column][0] < 100).unwrap()
    };
    assert!(height_at(columns - 1) > height_at(columns / 2) + 30);
}

#[test]
fn the_others_name_a_rank_that_dies() {
    let folder = Scratch::folder("multiblock-dies");
    let output = format!("--output={}", folder.join("none.png").display());
    for (rank, options) in [
        ("3", &["--nodes=9", "--die=3:5"][..]),
        ("4", &["--nodes=9", "--die=4:1"]), // the middle block
        ("1", &["--nodes=3", "--die=1:4"]),
        ("2", &["--nodes=4", "--die=2:6", "--data-parallel"]),
    ] {
        let options = [&["--side=32", "--tolerance=0", &output][..], options].concat();
        // It ends when all processes have closed their standard error.
        let output = MULTIBLOCK.command(&options).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{told}");
        let named = format!("multiblock: rank {rank} is gone");
        assert!(told.lines().any(|line| line.starts_with(&named)), "{options:?}: {told}");
        assert!(output.stdout.is_empty() && !folder.join("none.png").exists());
    }
}

#[test]
fn one_line_of_json_has_the_numbers() {
    let folder = Scratch::folder("multiblock-json");
    let options = ["--json", "--nodes=5", "--sweeps=12", "--every=5"];
    let Solved { report, .. } = solved(&folder, 20, &options);
    assert_eq!(report.lines().count(), 1, "{report}");
    let line: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(line["program"], "multiblock");
    assert_eq!(line["form"], "concurrent");
    assert_eq!(line["ranks"], serde_json::json!([2, 1, 2]));
    assert_eq!(line["shape"], "20 x 20, 10 x 10, 20 x 20");
    assert_eq!(line["sweeps"], 12);
    assert_eq!(line["elements_checked"], 900);
    for key in ["seconds", "seconds_a_sweep", "residual"] {
        assert!(line[key].as_f64().unwrap() > 0.0, "{report}");
    }
}

#[test]
fn what_makes_no_sense_is_named() {
    MULTIBLOCK.refuses(&[
        (["--side", "3"], "whole numbers from 4 to 4096"),
        (["--ranks", "1,2"], "allowed are 3 whole numbers from 1 to 1024, as 4,1,4"),
        (["--ranks", "1,0,1"], "allowed are 3 whole numbers from 1 to 1024, as 4,1,4"),
        (["--nodes", "2"], "allowed are 3 and more, fewer with --data-parallel"),
        (["--source", "0.5"], "X from 0 to 2.5, Y from 0 to 1"),
        (["--source", "0.5,1.5"], "X from 0 to 2.5, Y from 0 to 1"),
        (["--strength", "0"], "numbers from 1e-6 to 1e6"),
        (["--tolerance", "2"], "numbers from 0 to 1"),
        (["--flop", "nan"], "numbers from 0 to 1000000000"),
        (["--die", "0:2"], "rank 0 runs the manager of the cluster"),
        (["--die", "2:0"], "allowed are RANK:NUMBER, both from 1"),
        (["--output", "/nowhere/at/all.png"], "a file in a folder that exists"),
        (["--npy", "/nowhere/at/all.npy"], "a file in a folder that exists"),
        (["--ranks=2,1,2", "--nodes=4"], "--ranks 2,1,2 with 4 nodes: allowed are 5"),
        (["--ranks=2,1,2", "--data-parallel"], "cannot be used with"),
    ]);
    let folder = Scratch::folder("multiblock-closed");
    let output = format!("--output={}", folder.join("closed.png").display());
    MULTIBLOCK.needs_standard_output(&["--side=8", "--nodes=3", &output]);
}

/// A launcher's number of processes that does not go with the options is told once.
#[test]
fn a_wrong_number_of_nodes_is_told_by_rank_0_alone() {
    let folder = Scratch::folder("multiblock-launched");
    let output = format!("--output={}", folder.join("none.png").display());
    let manager = free_address();
    let start = |rank: &str| {
        let mut command = MULTIBLOCK.command(&["--ranks=2,1,1", &output]);
        command.env("CHUNKCOMM_RANK", rank).env("CHUNKCOMM_SIZE", "2");
        command.env("CHUNKCOMM_MANAGER", &manager).stderr(Stdio::piped()).spawn().unwrap()
    };
    let [told, silent] = ["0", "1"].map(start).map(|child| child.wait_with_output().unwrap());
    assert_eq!((told.status.code(), silent.status.code()), (Some(1), Some(0)));
    let told = String::from_utf8(told.stderr).unwrap();
    assert_eq!(told, "multiblock: --ranks 2,1,1 with 2 nodes: allowed are 4\n");
    assert!(silent.stderr.is_empty(), "{}", String::from_utf8_lossy(&silent.stderr));
}
