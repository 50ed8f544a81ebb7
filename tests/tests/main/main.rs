//! The tests that cross the crates, in one binary.
#![allow(clippy::unwrap_used)] // the helpers are tests too

mod cancel;
mod cascade;
mod example;
mod farm;
mod mandelbrot;
mod nodes;
mod pipeline;
mod proc;
mod pure;
mod types;
#[path = "../../../crates/chunkcomm/tests/main/support/waiting.rs"]
mod waiting;
