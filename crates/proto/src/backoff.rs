//! Waits before dialling again: exponential backoff with full jitter, so that peers that were
//! cut off together do not come back together.
//!
//! Source: M. Brooker, "Exponential Backoff and Jitter", 2015.

use std::time::Duration;

/// Bound of the first wait.
const FIRST: Duration = Duration::from_millis(10);

/// Bound of every wait.
const LONGEST: Duration = Duration::from_secs(1);

/// Waits in a row, each drawn from 0 to its bound. The bound doubles from one wait to the next.
#[derive(Debug, Clone)]
pub struct Backoff {
    random: u64,
    up_to: Duration,
}

impl Backoff {
    /// Begins with a short wait. Another `seed` gives other waits.
    #[must_use]
    pub fn new(seed: u64) -> Backoff {
        Backoff { random: seed, up_to: FIRST }
    }

    /// Draws the next wait.
    pub fn wait(&mut self) -> Duration {
        // SplitMix64 (G. Steele, D. Lea, C. Flood, 2014).
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let nanos = u64::try_from(self.up_to.as_nanos()).unwrap_or(u64::MAX);
        self.up_to = (self.up_to * 2).min(LONGEST);
        Duration::from_nanos(mixed % nanos.max(1))
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
