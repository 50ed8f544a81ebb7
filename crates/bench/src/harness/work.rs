//! Computation of a task: iterations of one loop, whose number is found for a time.
//!
//! A task that spins until a time has passed is done also by a worker that had no core meanwhile.
//! A fixed number of iterations needs the core.

use std::hint::black_box;
use std::time::{Duration, Instant};

use chunkcomm_proto::random::Random;

/// Iterations of one try: about 0.5 ms, longer than an interrupt and shorter than a time slice.
const TRY_ITERATIONS: u64 = 300_000;

/// Number of tries. The shortest counts: it had the core to itself, at full speed.
const TRIES: usize = 40;

/// Computation of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Iterations of the loop, on a real machine.
    Iterations(u64),
    /// Iterations by the number of the task, exponentially distributed with this mean.
    Exponential(u64),
    /// Time that the virtual host's core is busy.
    Virtual(Duration),
}

/// Prefix of an exponential distribution in the text of a work.
const EXPONENTIAL: &str = "exponential:";

impl Work {
    /// Returns the work as a text for worker processes; `None` for virtual time.
    pub fn to_text(self) -> Option<String> {
        match self {
            Self::Iterations(iterations) => Some(iterations.to_string()),
            Self::Exponential(mean) => Some(format!("{EXPONENTIAL}{mean}")),
            Self::Virtual(_) => None,
        }
    }

    /// Reads what [`Work::to_text`] returned.
    pub fn from_text(text: &str) -> Option<Self> {
        match text.strip_prefix(EXPONENTIAL) {
            Some(mean) => mean.parse().ok().map(Self::Exponential),
            None => text.parse().ok().map(Self::Iterations),
        }
    }
}

/// Returns the iterations of a task in an exponential mix with this mean; the same for the same
/// number, so that each run has the same tasks.
pub fn exponential(mean: u64, sequence: u64) -> u64 {
    let drawn = (Random::new(sequence).next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    (-(1.0 - drawn).ln() * mean as f64).round() as u64
}

/// Returns the iterations that take `time` on a core of this machine.
pub fn iterations_of(time: Duration) -> u64 {
    if time.is_zero() {
        return 0;
    }
    let shortest = (0..TRIES).map(|_| {
        let started = Instant::now();
        iterate(TRY_ITERATIONS);
        started.elapsed()
    });
    let shortest = shortest.min().unwrap_or_default().max(Duration::from_nanos(1));
    let iterations = time.as_secs_f64() / shortest.as_secs_f64() * TRY_ITERATIONS as f64;
    (iterations.round() as u64).max(1)
}

/// Runs the loop. Each iteration needs the one before (xorshift, Marsaglia 2003), so that neither a
/// compiler nor a core shortens it; `farm.c` has the same.
pub fn iterate(iterations: u64) {
    let mut state = black_box(0x9e37_79b9_7f4a_7c15_u64);
    for _ in 0..iterations {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    black_box(state);
}

/// Returns the answer of the task with this number.
pub fn answer(number: u64) -> u64 {
    number.rotate_left(19) ^ 0x6368_756e_6b70_6572
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_has_its_mean_and_many_short_tasks() {
        let mix: Vec<u64> = (0..10_000).map(|sequence| exponential(1_000, sequence)).collect();
        let mean = mix.iter().sum::<u64>() as f64 / mix.len() as f64;
        assert!((mean - 1_000.0).abs() < 50.0, "{mean}");
        // The median of the distribution is ln 2 of its mean.
        let short = mix.iter().filter(|&&iterations| iterations < 693).count();
        assert!((4_700..5_300).contains(&short), "{short} of 10,000");
    }

    #[test]
    fn a_work_is_read_as_it_was_written() {
        for work in [Work::Iterations(7), Work::Exponential(9)] {
            assert_eq!(work.to_text().and_then(|text| Work::from_text(&text)), Some(work));
        }
        assert_eq!(Work::from_text("exponential"), None);
    }

    #[test]
    fn iterations_grow_with_the_time() {
        assert_eq!(iterations_of(Duration::ZERO), 0);
        let (short, long) = (Duration::from_nanos(1), Duration::from_millis(10));
        assert!(iterations_of(short) >= 1);
        assert!(iterations_of(long) > iterations_of(long / 100));
    }
}
