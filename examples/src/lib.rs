//! Shared parts of the example programs.
//!
//! A program that a test of the workspace checks has all but its `main` here, so that
//! the test can run it: the binary of an example is not built for the tests of another
//! package.

pub mod by_policy;
pub mod cascade;
pub mod cluster_options;
pub mod command_line;
pub mod echo;
pub mod farm_options;
pub mod mandelbrot;
pub mod nodes;
pub mod parsort;
pub mod program;
pub mod telemetry;
pub mod wordcount;
