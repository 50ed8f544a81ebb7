//! A simulated network. The model, [`network`], is pure; `lan` and `socket` make it a transport for
//! whole programs on tokio's paused clock.

#[cfg(feature = "simulation")]
pub(crate) mod lan;
pub(crate) mod network;
#[cfg(feature = "simulation")]
pub(crate) mod socket;
