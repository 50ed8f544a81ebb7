//! The filters that the nodes of a pattern apply, and the expected result of a whole chain.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use chunkcomm::host::{self, Instant};
use serde::{Deserialize, Serialize};

/// The work of every node on every element: a causal filter of three taps, followed by nothing,
/// by noise or by sine and cosine.
///
/// Element `i` of the result depends on the elements `i-2..=i` of the input, so that a node can
/// compute on the elements that have landed. The result for one input is the same, element by
/// element, however the range is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Compute {
    /// Nothing: the elements are passed on unchanged.
    Empty,
    /// The filter and a pseudo-random number; one or two ns an element.
    Random,
    /// The filter and a sine and a cosine in double precision; some 20 ns an element.
    Trig,
}

impl Compute {
    /// All variants, by growing cost.
    pub const ALL: [Self; 3] = [Self::Empty, Self::Random, Self::Trig];

    /// Returns the name on a command line: `empty`, `random` or `trig`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Random => "random",
            Self::Trig => "trig",
        }
    }

    /// Computes the elements of `range` from `input` into `output`.
    ///
    /// # Panics
    /// When `input` ends before `range`, or `output` is not as long as `range`.
    pub fn apply(self, input: &[f32], range: Range<usize>, output: &mut [f32]) {
        assert_eq!(range.len(), output.len(), "one output element for each of the range");
        host::spend(Duration::from_nanos(self.virtual_ns_per_element() * range.len() as u64));
        match self {
            Self::Empty => output.copy_from_slice(&input[range]),
            Self::Random => {
                each(input, range, output, |index, tap| 0.75 * tap + 0.25 * noise(index));
            }
            Self::Trig => each(input, range, output, |_, tap| {
                let (sine, cosine) = f64::from(tap).sin_cos();
                // A slope below 1: a last bit that another machine's sine rounds differently does not
                // grow along the chain.
                (0.5 * f64::from(tap) + 0.2 * sine + 0.1 * cosine) as f32
            }),
        }
    }

    /// Returns the work of an element in a simulation: that of one of the machines on which this was
    /// measured, rounded.
    fn virtual_ns_per_element(self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Random => 2,
            Self::Trig => 20,
        }
    }

    /// Measures the cost of a byte on this machine, in nanoseconds: the fastest of a few short runs
    /// (some milliseconds in all). 0 for [`Compute::Empty`], which touches nothing. A simulation
    /// has fixed costs, and measures nothing.
    #[must_use]
    pub fn measure_ns_per_byte(self) -> f64 {
        const SAMPLE: usize = 16 * 1024;
        if self == Self::Empty {
            return 0.0;
        }
        if host::is_virtual() {
            return self.virtual_ns_per_element() as f64 / size_of::<f32>() as f64;
        }
        let input = source(SAMPLE);
        let mut output = vec![0.0; SAMPLE];
        (0..5)
            .map(|_| {
                let start = Instant::now();
                self.apply(&input, 0..SAMPLE, std::hint::black_box(&mut output));
                start.elapsed().as_nanos() as f64 / size_of_val(&input[..]) as f64
            })
            .fold(f64::INFINITY, f64::min)
    }
}

impl fmt::Display for Compute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no [`Compute`]; its message lists the allowed names.
#[derive(Clone, PartialEq, Eq)]
pub struct UnknownCompute(String);

impl fmt::Display for UnknownCompute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is none: allowed are {}",
            self.0,
            Compute::ALL.map(Compute::name).join(", ")
        )
    }
}

chunkcomm::debug_with_causes!(UnknownCompute);

impl std::error::Error for UnknownCompute {}

impl FromStr for Compute {
    type Err = UnknownCompute;

    fn from_str(name: &str) -> Result<Self, UnknownCompute> {
        let found = Self::ALL.into_iter().find(|compute| compute.name() == name);
        found.ok_or_else(|| UnknownCompute(name.to_owned()))
    }
}

/// Applies `element(index, filtered)` to the elements of `range`.
fn each(
    input: &[f32],
    range: Range<usize>,
    output: &mut [f32],
    element: impl Fn(usize, f32) -> f32,
) {
    let start = range.start;
    let before = |back: usize| start.checked_sub(back).map_or(0.0, |index| input[index]);
    let (mut last, mut last_but_one) = (before(1), before(2));
    for (index, (out, x)) in output.iter_mut().zip(&input[range]).enumerate() {
        let tap = 0.5 * x + 0.3 * last + 0.2 * last_but_one;
        *out = element(start + index, tap);
        (last_but_one, last) = (last, *x);
    }
}

/// Returns a pseudo-random number in -1..1 from the index alone (the finalizer of splitmix64).
fn noise(index: usize) -> f32 {
    let mut z = (index as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (((z ^ (z >> 31)) >> 40) as f32) / ((1_u32 << 23) as f32) - 1.0
}

/// Returns the input of the first node: `elements` numbers in -1..1.
#[must_use]
pub fn source(elements: usize) -> Vec<f32> {
    (0..elements).map(|index| noise(index.wrapping_mul(3))).collect()
}

/// Computes the expected result of the last of `nodes` nodes, one node's work after the other's.
#[must_use]
pub fn sequential(compute: Compute, nodes: usize, elements: usize) -> Vec<f32> {
    let mut input = source(elements);
    if compute != Compute::Empty {
        let mut output = vec![0.0; elements];
        for _ in 0..nodes {
            compute.apply(&input, 0..elements, &mut output);
            std::mem::swap(&mut input, &mut output);
        }
    }
    input
}

/// An element that differs from the expected one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Difference {
    /// Index of the first differing element.
    pub index: usize,
    /// Value found.
    pub found: f32,
    /// Value expected.
    pub expected: f32,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "element {} is {}, not {}", self.index, self.found, self.expected)
    }
}

/// Returns the first element of `found` that differs from that of `expected`.
///
/// Elements may differ by a millionth: another machine's sine may round the last bit differently.
/// On one machine they are equal.
#[must_use]
pub fn compare(found: &[f32], expected: &[f32]) -> Option<Difference> {
    const TOLERANCE: f32 = 1e-6;
    assert_eq!(found.len(), expected.len(), "results of the same problem");
    let differs = |(found, expected): (&f32, &f32)| {
        // Written with `<=` and negated, since a NaN is never within the tolerance.
        let close = (found - expected).abs() <= TOLERANCE;
        !close
    };
    let index = found.iter().zip(expected).position(differs)?;
    Some(Difference { index, found: found[index], expected: expected[index] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_does_not_depend_on_the_cut() {
        let input = source(1000);
        for compute in Compute::ALL {
            let mut whole = vec![0.0; 1000];
            compute.apply(&input, 0..1000, &mut whole);
            for cut in [1, 2, 3, 7, 500, 999] {
                let mut parts = vec![f32::NAN; 1000];
                for start in (0..1000).step_by(cut) {
                    let end = (start + cut).min(1000);
                    compute.apply(&input[..end], start..end, &mut parts[start..end]);
                }
                assert_eq!(parts, whole, "{compute} cut by {cut}");
            }
        }
    }

    #[test]
    fn the_filter_is_the_one_that_is_promised() {
        let mut output = [0.0; 4];
        each(&[1.0, 2.0, 4.0, 8.0], 0..4, &mut output, |_, tap| tap);
        assert_eq!(output, [0.5, 1.3, 2.8, 5.6].map(|x: f32| x));
        assert_ne!(sequential(Compute::Random, 1, 50), sequential(Compute::Random, 2, 50));
        assert_eq!(sequential(Compute::Empty, 5, 50), source(50));
    }

    #[test]
    fn differences_are_found() {
        let right = sequential(Compute::Trig, 3, 100);
        assert_eq!(compare(&right, &right), None);
        let mut wrong = right.clone();
        wrong[40] += 0.001;
        assert_eq!(compare(&wrong, &right).map(|difference| difference.index), Some(40));
        wrong[7] = f32::NAN;
        assert_eq!(compare(&wrong, &right).map(|difference| difference.index), Some(7));
    }

    #[test]
    fn names_go_there_and_back() {
        for compute in Compute::ALL {
            assert_eq!(compute.name().parse(), Ok(compute));
        }
        let error = "cosine".parse::<Compute>().expect_err("no such compute");
        assert_eq!(error.to_string(), "\"cosine\" is none: allowed are empty, random, trig");
    }
}
