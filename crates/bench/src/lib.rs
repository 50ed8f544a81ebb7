//! Measures the chunkcomm workspace: the program `chunkperf` and the code shared with its benches.
//!
//! Every figure is taken between two processes, one a core. A baseline beside it does the same by
//! hand, over the same transport in the same run. A ratio against a baseline is the median of the
//! paired ratios. The program's help lists commands and keys.
//!
//! Reading order: [`message`] (the bytes sent), [`harness`] (two processes and slices), [`flight`]
//! (calls in flight), [`ours`] (with the library), [`baseline`] (by hand), [`pair`] (starts the two
//! processes), [`peers`] (other systems beside ours), [`ranks`] (starts a process a rank), [`options`],
//! [`lan`] (virtual time), [`commands`] (rows, and statements of papers), [`cli`]. [`table`] prints
//! rows, [`fit`] puts lines through figures, [`stats`] has medians and ratios.

pub mod baseline;
pub mod cli;
pub mod commands;
pub mod failure;
pub mod fit;
pub mod flight;
pub mod harness;
pub mod lan;
pub mod message;
pub mod options;
pub mod ours;
pub mod pair;
pub mod peers;
pub mod ranks;
pub mod stats;
pub mod table;
