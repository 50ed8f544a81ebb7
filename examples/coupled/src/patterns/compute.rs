//! The computations that the nodes of a pattern apply, and their input.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use chunkcomm::host::{self, Instant};
use serde::{Deserialize, Serialize};

use super::Run;
use super::machine::block_until;

/// The work of every node on every element: a causal filter of three taps, followed by noise or by
/// sine and cosine; or no work.
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
    /// A wait of this time for the whole array, written `wait:21ms`: a computation that leaves the
    /// processor to others, so that many nodes of one machine compute at once.
    ///
    /// The thread sleeps until a part's share of the time has passed since the node began to compute.
    /// So the errors of short waits do not add up. A run that is verified copies the elements as well;
    /// in others the output stays as it was.
    Wait(Duration),
}

impl Compute {
    /// The computations that take processor time, by growing cost.
    pub const ALL: [Self; 3] = [Self::Empty, Self::Random, Self::Trig];

    /// Whether the result differs from the input's memory: [`Compute::Empty`] passes that on.
    pub(super) fn has_result(self) -> bool {
        self != Self::Empty
    }

    /// Computes the elements of `range` from `input` into `output`; waits for nothing.
    ///
    /// # Panics
    /// When `input` ends before `range`, or `output` is not as long as `range`.
    pub fn apply(self, input: &[f32], range: Range<usize>, output: &mut [f32]) {
        assert_eq!(range.len(), output.len(), "one output element for each of the range");
        host::spend(Duration::from_nanos(self.virtual_ns_per_element() * range.len() as u64));
        match self {
            Self::Empty | Self::Wait(_) => output.copy_from_slice(&input[range]),
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
            Self::Empty | Self::Wait(_) => 0,
            Self::Random => 2,
            Self::Trig => 20,
        }
    }

    /// Measures the cost of a byte of an array of `bytes` on this machine, in nanoseconds: the fastest
    /// of a few short runs (some milliseconds in all). 0 for [`Compute::Empty`], which touches nothing.
    /// A simulation has fixed costs, and measures nothing.
    #[must_use]
    pub fn measure_ns_per_byte(self, bytes: usize) -> f64 {
        const SAMPLE: usize = 16 * 1024;
        match self {
            Self::Empty => return 0.0,
            Self::Wait(time) => return time.as_nanos() as f64 / bytes as f64,
            Self::Random | Self::Trig => {}
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
        match self {
            Self::Empty => f.write_str("empty"),
            Self::Random => f.write_str("random"),
            Self::Trig => f.write_str("trig"),
            Self::Wait(time) => write!(f, "wait:{}us", time.as_micros()),
        }
    }
}

/// A name that is no [`Compute`]; its message lists the allowed names.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{:?} is none: allowed are {} and a wait such as wait:21ms",
    .0, Compute::ALL.map(|compute| compute.to_string()).join(", ")
)]
pub struct UnknownCompute(String);

chunkcomm::debug_with_causes!(UnknownCompute);

impl FromStr for Compute {
    type Err = UnknownCompute;

    fn from_str(name: &str) -> Result<Self, UnknownCompute> {
        let found = Self::ALL.into_iter().find(|compute| compute.to_string() == name);
        let wait = || name.strip_prefix("wait:").and_then(parse_time).map(Self::Wait);
        found.or_else(wait).ok_or_else(|| UnknownCompute(name.to_owned()))
    }
}

/// Parses a time of whole `us`, `ms` or `s`, at most a day.
fn parse_time(text: &str) -> Option<Duration> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit())?;
    let unit_us = match &text[digits..] {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        _ => return None,
    };
    let time = Duration::from_micros(text[..digits].parse::<u64>().ok()?.checked_mul(unit_us)?);
    (time <= Duration::from_secs(24 * 3600)).then_some(time)
}

/// One node's computing of one array, part by part.
#[derive(Debug)]
pub struct Pass {
    compute: Compute,
    elements: usize,
    /// Whether the output is written.
    writes: bool,
    /// Elements that were computed.
    done: usize,
    began: Option<Instant>,
}

impl Pass {
    /// Makes a pass over this many elements in which a wait leaves the output as it was.
    #[must_use]
    pub fn over(compute: Compute, elements: usize) -> Self {
        let writes = !matches!(compute, Compute::Wait(_));
        Self { compute, elements, writes, done: 0, began: None }
    }

    pub(super) fn new(run: &Run) -> Self {
        let pass = Self::over(run.compute, run.elements);
        Self { writes: run.verify || pass.writes, ..pass }
    }

    /// Computes as [`Compute::apply`] does, and waits where the computation is a wait.
    ///
    /// # Cancel safety
    /// When the future is dropped, the range may be computed already.
    ///
    /// # Panics
    /// As [`Compute::apply`], where the output is written.
    pub async fn apply(&mut self, input: &[f32], range: Range<usize>, output: &mut [f32]) {
        let began = *self.began.get_or_insert_with(Instant::now);
        let before = self.share();
        self.done += range.len();
        let share = self.share();
        let ((), work) = host::working(|| {
            host::spend(share - before);
            if self.writes {
                self.compute.apply(input, range, output);
            }
        });
        work.done().await;
        block_until(began + share);
    }

    /// Returns the part of the wait that belongs to the elements that are done.
    fn share(&self) -> Duration {
        match self.compute {
            Compute::Wait(time) => time.mul_f64(self.done as f64 / self.elements.max(1) as f64),
            _ => Duration::ZERO,
        }
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
    source_of(0, elements)
}

/// Returns the input of the node with `index` in a ring; that of the first one is [`source`].
#[must_use]
pub fn source_of(index: usize, elements: usize) -> Vec<f32> {
    let first = index.wrapping_mul(0x0123_4567_89ab);
    (0..elements).map(|at| noise(at.wrapping_mul(3).wrapping_add(first))).collect()
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
    }

    #[test]
    fn names_go_there_and_back() {
        let waits = [1, 100, 21_000].map(|us| Compute::Wait(Duration::from_micros(us)));
        for compute in Compute::ALL.into_iter().chain(waits) {
            assert_eq!(compute.to_string().parse(), Ok(compute));
        }
        assert_eq!("wait:21ms".parse(), Ok(Compute::Wait(Duration::from_millis(21))));
        for wrong in ["cosine", "wait:", "wait:1", "wait:ms", "wait:-1ms", "wait:99999999s"] {
            let error = wrong.parse::<Compute>().expect_err("no such compute").to_string();
            assert!(error.contains("allowed are empty, random, trig and a wait"), "{error}");
        }
    }

    #[tokio::test]
    async fn parts_of_a_wait_take_their_share_of_it() {
        let compute = Compute::Wait(Duration::from_millis(20));
        let mut pass = Pass { compute, elements: 4, writes: true, done: 0, began: None };
        let (input, mut output, began) = (source(4), vec![0.0; 4], Instant::now());
        for (at, share_ms) in [(0, 5), (1, 10), (2, 15), (3, 20)] {
            pass.apply(&input, at..at + 1, &mut output[at..=at]).await;
            assert!(began.elapsed() >= Duration::from_millis(share_ms));
            assert_eq!(pass.share(), Duration::from_millis(share_ms));
        }
        assert_eq!(output, input);
    }
}
