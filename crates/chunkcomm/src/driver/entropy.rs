//! Where nodes and links get their randomness from.

/// Fills `bytes` with what nobody can guess; in a simulation with what follows
/// from its seed.
pub(crate) fn fill(bytes: &mut [u8]) -> Result<(), getrandom::Error> {
    #[cfg(feature = "simulation")]
    if crate::transport::simulated::lan::fill_random(bytes) {
        return Ok(());
    }
    getrandom::fill(bytes)
}
