//! Computation of a task: iterations of one loop, whose number is found for a time.
//!
//! A task that spins until a time has passed is done also by a worker that had no core meanwhile.
//! A fixed number of iterations needs the core.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Iterations of one try: about 0.5 ms, longer than an interrupt and shorter than a time slice.
const TRY_ITERATIONS: u64 = 300_000;

/// Number of tries. The shortest counts: it had the core to itself, at full speed.
const TRIES: usize = 40;

/// Computation of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Iterations of the loop, on a real machine.
    Iterations(u64),
    /// Time that the virtual host's core is busy.
    Virtual(Duration),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iterations_grow_with_the_time() {
        assert_eq!(iterations_of(Duration::ZERO), 0);
        let (short, long) = (Duration::from_nanos(1), Duration::from_millis(10));
        assert!(iterations_of(short) >= 1);
        assert!(iterations_of(long) > iterations_of(long / 100));
    }
}
