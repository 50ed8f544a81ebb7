//! The source of randomness of nodes and links.

use std::io;

/// Fills `bytes` with unguessable ones; in a simulation, with bytes that follow from its seed.
///
/// # Errors
///
/// The system gave none.
pub(crate) fn fill(bytes: &mut [u8]) -> Result<(), getrandom::Error> {
    #[cfg(feature = "simulation")]
    if crate::transport::world::fill_random(bytes) {
        return Ok(());
    }
    getrandom::fill(bytes)
}

/// Returns `N` unguessable bytes; in a simulation, bytes that follow from its seed.
///
/// # Errors
///
/// The system gave none.
pub(crate) fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}
