//! A simulated network: one model, [`network`], which is pure, and what makes it a
//! transport for whole programs on tokio's paused clock, `lan` and `socket`.

#[cfg(feature = "simulation")]
pub(crate) mod lan;
pub(crate) mod network;
#[cfg(feature = "simulation")]
pub(crate) mod socket;
