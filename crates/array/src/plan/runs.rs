//! The runs of storage that hold some positions of a meeting.

use super::meeting::Meeting;
use std::ops::Range;

/// Elements of one dimension that follow each other in the storage of both ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Index of the first one in the sender's storage.
    pub(crate) at_sender: usize,
    /// Index of the first one in the receiver's storage.
    pub(crate) at_receiver: usize,
    /// Number of elements, at least 1.
    pub(crate) length: usize,
}

/// Iterator over the runs of a range of positions, ascending; a step takes constant time.
#[derive(Clone, Debug)]
pub(crate) struct Runs<'a> {
    meeting: &'a Meeting,
    /// The next position.
    position: usize,
    /// End of the positions.
    end: usize,
    /// Number of the next position's segment in the pattern.
    segment: usize,
    /// Number of positions of that segment that are behind.
    done: usize,
    /// Distance of the next position's window from window 0, in the sender's storage.
    sender_base: usize,
    /// The same in the receiver's storage.
    receiver_base: usize,
    /// Whether a run goes on over the end of a window.
    wraps: bool,
}

impl<'a> Runs<'a> {
    /// Begins at the first of some positions, which are found by division and binary search.
    pub(super) fn new(meeting: &'a Meeting, positions: Range<usize>) -> Runs<'a> {
        debug_assert!(positions.end <= meeting.total, "positions are those of the meeting");
        let window = positions.start / meeting.window;
        let within = positions.start % meeting.window;
        let segment = meeting.pattern.partition_point(|segment| segment.before <= within) - 1;
        Runs {
            meeting,
            position: positions.start,
            end: positions.end,
            segment,
            done: within - meeting.pattern[segment].before,
            sender_base: window * meeting.sender_step,
            receiver_base: window * meeting.receiver_step,
            wraps: meeting.wraps(),
        }
    }

    /// Takes what is left of the current segment.
    fn piece(&mut self) -> Run {
        let segment = &self.meeting.pattern[self.segment];
        let length = (segment.length - self.done).min(self.end - self.position);
        let run = Run {
            at_sender: self.sender_base + segment.at_sender + self.done,
            at_receiver: self.receiver_base + segment.at_receiver + self.done,
            length,
        };
        self.position += length;
        self.done = 0;
        self.segment += 1;
        if self.segment == self.meeting.pattern.len() {
            self.segment = 0;
            self.sender_base += self.meeting.sender_step;
            self.receiver_base += self.meeting.receiver_step;
        }
        run
    }
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        if self.position >= self.end {
            return None;
        }
        let mut run = self.piece();
        if self.segment == 0 && self.wraps && self.position < self.end {
            run.length += self.piece().length;
        }
        Some(run)
    }
}
