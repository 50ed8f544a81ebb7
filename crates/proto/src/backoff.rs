//! Waits before dialling again: exponential backoff with full jitter, so that peers that were
//! cut off together do not come back together.
//!
//! Source: M. Brooker, "Exponential Backoff and Jitter", 2015.

use crate::random::Random;
use std::time::Duration;

/// Bound of the first wait.
const FIRST: Duration = Duration::from_millis(10);

/// Bound of every wait.
const LONGEST: Duration = Duration::from_secs(1);

/// Waits in a row, each drawn from 0 to its bound. The bound doubles from one wait to the next.
#[derive(Debug, Clone)]
pub struct Backoff {
    random: Random,
    up_to: Duration,
}

impl Backoff {
    /// Begins with a short wait. Another `seed` gives other waits.
    #[must_use]
    pub fn new(seed: u64) -> Backoff {
        Backoff { random: Random::new(seed), up_to: FIRST }
    }

    /// Draws the next wait.
    pub fn wait(&mut self) -> Duration {
        let nanos = u64::try_from(self.up_to.as_nanos()).unwrap_or(u64::MAX);
        self.up_to = (self.up_to * 2).min(LONGEST);
        Duration::from_nanos(self.random.next_u64() % nanos.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_a_limit_and_differ_by_seed() {
        let mut backoff = Backoff::new(1);
        let waits: Vec<Duration> = (0..1000).map(|_| backoff.wait()).collect();
        assert!(waits[0] < FIRST && waits.iter().all(|wait| *wait < LONGEST));
        let late = &waits[20..];
        let mean = late.iter().sum::<Duration>() / late.len() as u32;
        assert!(mean > LONGEST * 4 / 10 && mean < LONGEST * 6 / 10, "{mean:?}");
        assert_ne!(Backoff::new(2).wait(), waits[0]);
    }
}
