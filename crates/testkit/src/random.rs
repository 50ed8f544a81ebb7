//! Random numbers from a seed that is printed, so that a failure can be repeated.

pub use chunkcomm_proto::random::Random;

/// Returns the numbers that follow from `seed`, and prints the seed for a failing test.
pub fn seeded(seed: u64) -> Random {
    println!("seed {seed}");
    Random::new(seed)
}
