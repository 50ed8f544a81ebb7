//! Random numbers by seed.

use std::time::Duration;

/// A generator whose whole sequence follows from its seed (SplitMix64: Steele, Lea and Flood,
/// OOPSLA 2014).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Makes the generator of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Draws every byte of `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        let (words, rest) = bytes.as_chunks_mut();
        for word in words {
            *word = self.draw().to_le_bytes();
        }
        let last = self.draw().to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }

    /// Returns a number below `end`, which is at least 1.
    pub fn below(&mut self, end: u64) -> u64 {
        // The bias of a remainder is far below the effect that any scenario could show.
        self.draw() % end
    }

    /// Returns true once in `times` calls, on average.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Returns one of the choices.
    ///
    /// # Panics
    /// If there is no choice.
    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// Returns a time between zero and twice `mean`.
    pub fn about(&mut self, mean: Duration) -> Duration {
        Duration::from_nanos(self.below(2 * mean.as_nanos() as u64 + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_says_all() {
        let drawn = |seed| {
            let mut random = Random::new(seed);
            (0..10).map(|_| random.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
    }

    #[test]
    fn times_lie_about_their_mean() {
        let mut random = Random::new(1);
        let mean = Duration::from_millis(20);
        let times: Vec<_> = (0..1000).map(|_| random.about(mean)).collect();
        let sum: Duration = times.iter().sum();
        assert!(times.iter().all(|&time| time <= 2 * mean));
        assert!(sum > 900 * mean && sum < 1100 * mean);
    }
}
