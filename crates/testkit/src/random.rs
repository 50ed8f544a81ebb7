//! Random numbers from a seed that is printed, so that a failure can be repeated.

/// The numbers of Marsaglia's xorshift.
pub struct Random(u64);

impl Random {
    /// Returns the numbers that follow from `seed`, and prints the seed for a failing test.
    pub fn seeded(seed: u64) -> Random {
        println!("seed {seed}");
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Returns the next number.
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        (self.draw() >> 11) % bound
    }
}
