//! The indices of one dimension that a rank has.

use std::ops::Range;

/// The indices of one dimension that a rank has, in indices of the transfer (which count from 0).
///
/// ```text
///   first          first + period
///   |== block ==|.......|== block ==|.......|== block ==|        cut to `bounds`
///   local                local + block       local + 2 block
/// ```
///
/// Block number `i >= 0` begins at `first + i * period`. An index counts if it is in a block and in `bounds`. One
/// interval is a single block: its period is that of no second one (`i64::MAX`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// Start of block 0, below 0 where the transfer begins behind it.
    pub(crate) first: i64,
    /// Number of indices of a block, at least 1.
    pub(crate) block: i64,
    /// Distance of the starts of blocks, at least `block`.
    pub(crate) period: i64,
    /// Where blocks are cut: within `0..extent of the transfer`; empty when the rank has nothing.
    pub(crate) bounds: Range<i64>,
    /// Index in the rank's storage of the start of block 0; may lie outside, since only indices within
    /// `bounds` are stored.
    pub(crate) local: i64,
}

impl Held {
    /// Returns the index in the rank's storage of an index of the transfer, if the rank has it.
    #[cfg(test)]
    pub(crate) fn local_of(&self, index: i64) -> Option<usize> {
        if !self.bounds.contains(&index) || index < self.first {
            return None;
        }
        let (number, offset) =
            ((index - self.first) / self.period, (index - self.first) % self.period);
        let is_held = offset < self.block;
        is_held
            .then(|| usize::try_from(self.local + number * self.block + offset))
            .and_then(Result::ok)
    }
}
