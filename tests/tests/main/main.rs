//! The tests that cross the crates, in one binary.
#![allow(clippy::unwrap_used)] // the helpers are tests too

mod cancel;
mod cascade;
mod farm;
mod mandelbrot;
mod pipeline;
mod proc;
mod types;
