//! The points: read from a file, or generated.

use std::fmt::Write as _;
use std::path::Path;

use super::lloyd::{COORDINATE_MAX, Point};

/// Side of the square in which the heaps of generated points lie.
const SIDE: u64 = 1_000_000;

/// Largest distance of a point from its heap's middle, in x and in y.
const SPREAD: u64 = 150_000;

/// Reads a file of points: a line each, two whole numbers.
///
/// # Errors
/// The file cannot be read, or a line is wrong; the text names it.
pub(crate) fn read(file: &Path) -> Result<Vec<Point>, String> {
    let name = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| format!("{name}: {error}"))?;
    let point = |(number, line)| {
        parsed(line).ok_or_else(|| {
            format!(
                "{name}, line {number}: {line:?}: allowed are two whole numbers from \
                 -{COORDINATE_MAX} to {COORDINATE_MAX}"
            )
        })
    };
    (1..).zip(text.lines()).map(point).collect()
}

fn parsed(line: &str) -> Option<Point> {
    let mut words = line.split_whitespace();
    let mut number = || {
        let number = words.next()?.parse().ok()?;
        (-COORDINATE_MAX..=COORDINATE_MAX).contains(&number).then_some(number)
    };
    let point = [number()?, number()?];
    words.next().is_none().then_some(point)
}

/// Writes points into a file that [`read`] reads.
///
/// # Errors
/// The file cannot be written; the text names it.
pub(crate) fn write(file: &Path, points: &[Point]) -> Result<(), String> {
    let mut text = String::new();
    for [x, y] in points {
        let _ = writeln!(text, "{x} {y}"); // a string takes it
    }
    std::fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

/// Returns this number of points in heaps, which follow from the seed.
pub(crate) fn generated(count: u32, heaps: u32, seed: u64) -> Vec<Point> {
    let mut below = random(seed);
    let middles: Vec<Point> =
        (0..heaps).map(|_| [below(SIDE) as i64, below(SIDE) as i64]).collect();
    let point = |_| {
        let [x, y] = middles[below(heaps.into()) as usize];
        // The sum of four numbers is near its mean more often than far from it.
        let mut near = |at: i64| {
            let sum: u64 = (0..4).map(|_| below(SPREAD / 2)).sum();
            at + sum as i64 - SPREAD as i64
        };
        [near(x), near(y)]
    };
    (0..count).map(point).collect()
}

/// Returns a source of numbers below a bound (`SplitMix64`, of Steele, Lea and Flood, 2014).
fn random(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |bound| {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }
}
