//! Commands of the program, a module each.

pub mod bandwidth;
pub mod budgets;
pub mod calls;
pub mod cluster;
pub mod collective;
mod counts;
pub mod coupled;
pub mod delta;
pub mod farm;
pub mod feed;
pub mod idle;
pub mod instructions;
pub mod latency;
pub mod model;
mod opposite;
#[cfg(feature = "virtual")]
pub mod papers;
pub mod peers;
pub mod redistribute;
#[cfg(feature = "virtual")]
pub mod reproduce;
pub mod serve;
pub mod starve;
pub mod stream;
pub mod tracked;

use crate::stats::Ratio;
use crate::table::Row;

/// End of a command that ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The command did its work.
    Fine,
    /// A budget was missed, or a promise broken.
    Missed,
}

/// Adds the baseline's name and the paired ratios, keys that only `--against` gives.
pub fn set_ratio(row: &mut Row, baseline: &str, ratio: Ratio) {
    row.set("baseline", baseline)
        .set("ratio", ratio.median)
        .set("ratio_low", ratio.low)
        .set("ratio_high", ratio.high);
}
