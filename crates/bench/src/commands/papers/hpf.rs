//! I. Foster, D. R. Kohr, R. Krishnaiyer, A. Choudhary, "Double Standards: Bringing Task Parallelism to HPF via the
//! Message Passing Interface" (1996), in virtual time on the world `sp2`.
//!
//! Its figures are curves without numbers. The programs are the built examples. The assumed numbers of the world
//! were fixed before the first run.

mod fft2d;
mod ping_pong;
mod programs;
mod steering;
mod transfers;

use super::Run;
use crate::failure::Failure;
use crate::harness::transfers::{Transfer, TransferKind};

/// Runs that decide the statements.
pub(super) const RUNS: &[Run] = &[
    Run::virtually("fft2d", fft2d::run),
    Run::virtually("convolution", programs::convolution),
    Run::virtually("multiblock", programs::multiblock),
    Run::virtually("summary", programs::summary),
    Run::virtually("ping-pong", ping_pong::run),
    Run::virtually("transfers", transfers::run),
    Run::really("steering", steering::run),
];

/// The world of all runs.
const WORLD: &str = "sp2";

/// Difference from a number of the paper that counts as none: 15 %.
const NEAR: f64 = 0.15;

/// Gain that counts as significant. *Assumed*.
const SIGNIFICANT: f64 = 1.1;

/// Whether a figure is a number of the paper.
fn is_near(ours: f64, paper: f64) -> bool {
    (ours / paper - 1.0).abs() <= NEAR
}

/// Returns the transfer of a matrix between two groups, or within one.
fn transfer(
    shape: [usize; 2],
    from: String,
    to: String,
    within: bool,
) -> Result<Transfer, Failure> {
    let (transposed, there_and_back) = (false, false);
    TransferKind { shape, from, to, within, transposed, there_and_back }.parse()
}

/// Returns the number of pairs of ranks that a transfer connects, by the plans of its senders.
fn pairs(transfer: &Transfer) -> usize {
    let to_all = |rank| chunkcomm_array::plan_of(&transfer.from, &transfer.to, true, rank).0;
    let ranks = transfer.from.ranks();
    let all: usize = (0..ranks).map(to_all).sum();
    // Each rank of one group keeps a part.
    all - if transfer.kind.within { ranks } else { 0 }
}
