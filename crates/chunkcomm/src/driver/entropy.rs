//! The source of randomness of nodes and links.

/// Fills `bytes` with unguessable ones; in a simulation, with bytes that follow from its seed.
///
/// # Errors
///
/// The system gave none.
pub fn fill(bytes: &mut [u8]) -> Result<(), getrandom::Error> {
    #[cfg(feature = "simulation")]
    if crate::transport::world::fill_random(bytes) {
        return Ok(());
    }
    getrandom::fill(bytes)
}
