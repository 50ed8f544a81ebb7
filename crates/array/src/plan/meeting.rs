//! Meetings: the indices that two ranks have in common in one dimension, in closed form.

use super::common::{Common, Periods};
use super::runs::Runs;
use crate::layout::held::Held;
use std::ops::Range;
use std::sync::Arc;

/// Indices that follow each other at both ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Number of indices of the pattern before this one.
    pub(crate) before: usize,
    /// Number of indices.
    pub(crate) length: usize,
    /// Index of the first one in the sender's storage, in window 0.
    pub(crate) at_sender: usize,
    /// Index of the first one in the receiver's storage, in window 0.
    pub(crate) at_receiver: usize,
}

/// The indices of one dimension that a sender has and a receiver wants, in ascending order.
///
/// A pattern of segments that repeats: window `w` is that of window 0, farther by `w` steps at each rank. The
/// last window may be cut: `total` is the number of all indices. The *position* of an index is its number
/// among them, from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meeting {
    /// Segments of a window, ascending; shared by all peers at the same coordinate.
    pub(crate) pattern: Arc<[Segment]>,
    /// Number of indices of a whole window: the sum of all lengths.
    pub(crate) window: usize,
    /// Distance of two windows in the sender's storage.
    pub(crate) sender_step: usize,
    /// Distance of two windows in the receiver's storage.
    pub(crate) receiver_step: usize,
    /// Number of indices in all windows.
    pub(crate) total: usize,
}

impl Meeting {
    /// Returns what a sender has and a receiver wants, or `None` if they have nothing in common.
    ///
    /// The work, which is added to `steps`, does not grow with the extent of the array.
    #[cfg(test)]
    pub(crate) fn of(sender: &Held, receiver: &Held, steps: &mut u64) -> Option<Meeting> {
        Meeting::with(sender, receiver, &mut Periods::default(), steps)
    }

    /// Does the same, and keeps in `periods` what the next pair with the same periods shares with this one.
    pub(crate) fn with(
        sender: &Held,
        receiver: &Held,
        periods: &mut Periods,
        steps: &mut u64,
    ) -> Option<Meeting> {
        let common = Common::of(sender, receiver, periods, steps)?;
        let mut pattern = common.pattern(periods, steps);
        let mut count = 0;
        let mut tail = 0;
        let tail_end = common.tail();
        for segment in &mut pattern {
            tail += tail_end.saturating_sub(segment.before).min(segment.length);
            segment.before = count;
            count += segment.length;
        }
        let total = common.whole_windows() * count + tail;
        pattern.dedup_by(|next, last| {
            let touch = touches(last, next, 0, 0);
            last.length += if touch { next.length } else { 0 };
            touch
        });
        let (sender_step, receiver_step) = common.distances();
        let mut window = count;
        if let [only] = &mut pattern[..]
            && (total <= window || touches(only, only, sender_step, receiver_step))
        {
            // Windows that are a single run are one window.
            only.length = total;
            window = total;
        }
        let pattern = pattern.into();
        (total > 0).then_some(Meeting { pattern, window, sender_step, receiver_step, total })
    }

    /// Returns the number of segments of a window.
    pub(crate) fn families(&self) -> usize {
        self.pattern.len()
    }

    /// Returns the runs of storage that hold some positions, in ascending order.
    pub(crate) fn runs(&self, positions: Range<usize>) -> Runs<'_> {
        Runs::new(self, positions)
    }

    /// Returns the number of runs of all positions.
    pub(crate) fn run_count(&self) -> u64 {
        let (windows, tail) = (self.total / self.window, self.total % self.window);
        let in_tail = self.pattern.partition_point(|segment| segment.before < tail);
        let ends = (windows + usize::from(tail > 0)).saturating_sub(1);
        let joints = if self.wraps() { ends } else { 0 };
        (windows * self.pattern.len() + in_tail - joints) as u64
    }

    /// Whether the last segment of a window and the first one of the next window are one run.
    pub(crate) fn wraps(&self) -> bool {
        let (Some(last), Some(first)) = (self.pattern.last(), self.pattern.first()) else {
            return false;
        };
        touches(last, first, self.sender_step, self.receiver_step)
    }
}

/// Whether a segment, moved by a distance at each rank, begins where another one ends.
fn touches(last: &Segment, next: &Segment, sender_step: usize, receiver_step: usize) -> bool {
    last.at_sender + last.length == next.at_sender + sender_step
        && last.at_receiver + last.length == next.at_receiver + receiver_step
}

#[cfg(test)]
mod tests;
