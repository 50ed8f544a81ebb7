//! Later values of bytes that were done, kept apart until nobody reads the earlier ones.
//!
//! ```text
//!  noted ─────▶ pending ─────▶ applied       at both ends, each once
//!                  '─────────▶ sent          at the sender and at forwards
//! ```
//!
//! They come before the last byte of their round, so that a round that has landed has all of them.

use std::ops::Range;

use bytes::Bytes;

use super::ranges::Ranges;

/// The corrections of one round, all of them disjoint.
#[derive(Debug, Default)]
pub struct Corrections {
    /// Offset and bytes of each, in the order of arrival.
    parts: Vec<(usize, Bytes)>,
    ranges: Ranges,
    /// Number of parts that are in the buffer.
    applied: usize,
}

impl Corrections {
    /// Returns the first bytes of `range` that are corrected already.
    pub(crate) fn overlap(&self, range: &Range<usize>) -> Option<Range<usize>> {
        self.ranges.overlap(range)
    }

    /// Notes later bytes from `offset` on.
    ///
    /// # Panics
    /// When some of them are corrected already.
    pub fn note(&mut self, offset: usize, bytes: Bytes) {
        self.ranges.insert(offset..offset + bytes.len());
        self.parts.push((offset, bytes));
    }

    /// Returns the correction with this number, counted from 0 in the order of arrival.
    pub(crate) fn get(&self, index: usize) -> Option<(usize, Bytes)> {
        self.parts.get(index).cloned()
    }

    /// Returns the corrected ranges in the order of their starts.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        self.ranges.runs()
    }

    /// Whether a correction is not in the buffer.
    pub fn is_pending(&self) -> bool {
        self.applied < self.parts.len()
    }

    /// Returns at most `most` corrections that are not in the buffer, to be put there now.
    pub(crate) fn apply(&mut self, most: usize) -> &[(usize, Bytes)] {
        let first = self.applied;
        self.applied = self.parts.len().min(first + most);
        &self.parts[first..self.applied]
    }

    /// Begins the next round.
    pub(crate) fn reset(&mut self) {
        self.parts.clear();
        self.ranges.clear();
        self.applied = 0;
    }
}
