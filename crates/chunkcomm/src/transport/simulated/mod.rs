//! A simulated network: one model, [`network`], which is pure, and its face for
//! whole programs on tokio's paused clock, [`lan`] and [`socket`].

pub(crate) mod lan;
pub(crate) mod network;
pub(crate) mod socket;
