//! Measures the chunkcomm workspace: the program `chunkperf` and what its benches share.
//!
//! Every figure is taken between two processes, one a core, beside a baseline that does the same
//! by hand over the same transport in the same run; what is reported against a baseline is the
//! median of the paired ratios. The table of commands and keys is in the program's help and in
//! the README.
//!
//! Reading order: [`message`] (what is sent), [`harness`] (two processes and slices),
//! [`baseline`] (by hand), [`ours`] (with the library), [`flight`] (calls of either), [`fit`] (lines through figures), [`lab`]
//! (faults), [`commands`] (rows), [`cli`].

pub mod baseline;
pub mod cli;
pub mod commands;
pub mod failure;
pub mod fit;
pub mod flight;
pub mod harness;
pub mod lab;
pub mod message;
pub mod ours;
pub mod stats;
pub mod table;
