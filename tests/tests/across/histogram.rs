//! The example program `histogram`, run as its user runs it: a cluster of copies on this machine.

use std::path::Path;

use chunkcomm_examples::picture;
use chunkcomm_testkit::Scratch;

use super::example::Example;

pub(crate) const HISTOGRAM: Example = Example { name: "histogram" };

/// Rows of the file below the picture.
const HISTOGRAM_ROWS: usize = 100;

type Rows = Vec<Vec<[u8; 3]>>;

/// Draws with these options; returns the report, and the file's rows: those of the picture, and the others.
fn drawn(folder: &Path, [width, height]: [usize; 2], options: &[&str]) -> (String, Rows, Rows) {
    let file = folder.join("drawn.png");
    let common = [
        format!("--width={width}"),
        format!("--height={height}"),
        format!("--output={}", file.display()),
        "--no-progress".to_owned(),
    ];
    let options: Vec<&str> =
        common.iter().map(String::as_str).chain(options.iter().copied()).collect();
    let report = HISTOGRAM.prints(&options);
    let (size, pixels) = picture::load(&file).unwrap();
    assert_eq!(size, (width as u32, (height + HISTOGRAM_ROWS) as u32));
    let mut rows: Rows = pixels.chunks(width).map(<[_]>::to_vec).collect();
    let below = rows.split_off(height);
    (report, rows, below)
}

/// Returns the value of the report's line with this name.
fn value<'a>(report: &'a str, name: &str) -> &'a str {
    report.lines().find_map(|line| line.strip_prefix(name)).expect(report).trim()
}

/// Returns the milliseconds until the last pixel, and from there until the histogram was complete.
pub(crate) fn times(report: &str) -> [f64; 2] {
    let words = |name: &str| value(report, name).split(' ').collect::<Vec<_>>();
    let (["after", pixel, "ms"], ["complete", behind, "ms", word, "the", "last", "pixel"]) =
        (&words("last pixel")[..], &words("histogram")[..])
    else {
        panic!("{report}");
    };
    let sign = if *word == "before" { -1.0 } else { 1.0 };
    [pixel.parse().unwrap(), sign * behind.parse::<f64>().unwrap()]
}

/// The steps of each pixel by the definition of the set, with complex numbers as pairs.
fn steps_of([width, height]: [usize; 2]) -> Vec<Vec<usize>> {
    let point = |column: usize, row: usize| {
        let c = (
            -2.2 + 3.0 * ((column as f64 + 0.5) / width as f64),
            -1.2 + 2.4 * ((row as f64 + 0.5) / height as f64),
        );
        let squared = |z: (f64, f64)| (z.0 * z.0 - z.1 * z.1 + c.0, 2.0 * z.0 * z.1 + c.1);
        let orbit = std::iter::successors(Some((0.0, 0.0)), |z| Some(squared(*z)));
        orbit.take(255).take_while(|z: &(f64, f64)| z.0.hypot(z.1) <= 2.0).count()
    };
    (0..height).map(|row| (0..width).map(|column| point(column, row)).collect()).collect()
}

/// Checks the report and the file of a picture of these sides.
fn check(size: [usize; 2], report: &str, picture: &Rows, below: &Rows) {
    let steps = steps_of(size);
    let mut counts = [0_usize; 256];
    steps.iter().flatten().for_each(|steps| counts[*steps] += 1);
    for (index, counts) in counts.chunks(32).enumerate() {
        let name = format!("{:>19}-{:>3}", index * 32, index * 32 + 31);
        let printed: usize = value(report, &name).parse().unwrap();
        assert_eq!(printed, counts.iter().sum::<usize>(), "{name}: {report}");
    }
    // The shade of a pixel is the share of those that took fewer steps, of all outside the set.
    let outside: usize = counts[..255].iter().sum();
    for (steps, pixels) in steps.iter().zip(picture) {
        for (steps, pixel) in steps.iter().zip(pixels) {
            let fewer: usize = counts[..*steps].iter().sum();
            let shade = if *steps == 255 { 0 } else { 255 * fewer / outside };
            assert_eq!(*pixel, [shade as u8; 3], "{steps} steps");
        }
    }
    // A bin is a bar, which is longer the more pixels it has.
    let column_of = |bin: usize| (0..size[0]).find(|column| column * 256 / size[0] == bin);
    let mut bars: Vec<(usize, usize)> = (0..256)
        .filter_map(|bin| Some((counts[bin], column_of(bin)?)))
        .map(|(count, column)| (count, below.iter().filter(|row| row[column][0] > 100).count()))
        .collect();
    bars.sort_unstable();
    assert!(bars.is_sorted_by_key(|(_, rows)| *rows), "{bars:?}");
    assert!(
        bars.iter().all(|(count, rows)| (*count == 0) == (*rows == 0) || *count == 1),
        "{bars:?}"
    );
    times(report);
}

#[test]
fn picture_and_histogram_are_those_of_the_definition() {
    let folder = Scratch::folder("histogram");
    for (size, nodes, options) in [
        ([120, 90], "4", &[][..]),
        ([256, 61], "3", &["--nodes=3", "--rows=2", "--check"]), // bands without a row of some rank
        ([97, 40], "1", &["--nodes=1", "--rows=64"]),
        ([33, 3], "5", &["--nodes=5"]), // more ranks than rows
    ] {
        let (report, picture, below) = drawn(&folder, size, options);
        assert_eq!(value(&report, "ranks"), nodes, "{report}");
        let is_checked = report.ends_with("equal those of one process\n");
        assert_eq!(is_checked, options.contains(&"--check"), "{report}");
        check(size, &report, &picture, &below);
    }
}

#[test]
fn what_makes_no_sense_is_named() {
    HISTOGRAM.refuses(&[
        (["--width", "0"], "whole numbers from 1 to 8192"),
        (["--height", "none"], "whole numbers from 1 to 8192"),
        (["--rows", "0"], "whole numbers from 1 to 8192"),
        (["--output", "/nowhere/at/all.png"], "a file in a folder that exists"),
    ]);
    let folder = Scratch::folder("histogram-closed");
    let output = format!("--output={}", folder.join("closed.png").display());
    HISTOGRAM.needs_standard_output(&["--width=20", "--height=20", &output]);
}
