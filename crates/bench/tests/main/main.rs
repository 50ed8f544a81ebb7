//! The program `chunkperf`, run as its users run it.

mod collective;
mod contract;
mod coupled;
mod instructions;
mod model;
mod models;
#[cfg(feature = "virtual")]
mod papers;
mod peers;
mod program;
mod redistribute;
mod sweep;
