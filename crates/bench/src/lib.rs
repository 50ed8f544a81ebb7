//! Measures the chunkcomm workspace: the program `chunkperf` and the code shared with its benches.
//!
//! Every figure is taken between two processes, one a core. A baseline beside it does the same by
//! hand, over the same transport in the same run. A ratio against a baseline is the median of the
//! paired ratios. The program's help lists commands and keys.
//!
//! Reading order: [`message`] (the bytes sent), [`harness`] (two processes and slices),
//! [`baseline`] (by hand), [`ours`] (with the library), [`flight`] (calls of either), [`fit`]
//! (lines through figures), [`lab`] (faults), [`lan`] (virtual time), `study` (a
//! paper's farms in virtual time), [`commands`] (rows), [`cli`].

pub mod baseline;
pub mod cli;
pub mod commands;
pub mod failure;
pub mod fit;
pub mod flight;
pub mod harness;
pub mod lab;
pub mod lan;
pub mod message;
pub mod ours;
pub mod stats;
#[cfg(feature = "virtual")]
pub mod study;
pub mod table;
