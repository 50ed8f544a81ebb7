//! Intervals of a buffer's bytes: those that may be written, sent and read. Each grows from the
//! buffer's start and lies within the one before.
//!
//! ```text
//! sender    0 ==== sent ==== committed ---- handed ........ len
//! receiver  0 ==== taken === landed ....................... len
//!
//! ==== published: readable for ever    ---- being computed    .... free
//! ```
//!
//! Each end of an interval has one owner: the writer moves `handed` and `committed`, the pump
//! moves `sent`, the reader moves `taken`. Another owner's end comes in as an argument, so that
//! each is a plain struct without a lock.

use std::ops::Range;

/// Most bytes that leave as one message: 1 MiB.
///
/// Large enough that the cost of a message disappears in that of its bytes. Small enough that a
/// link admits it under the default bounds and releases its memory early.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1024 * 1024;

/// Bytes until which whole increments wait for more: 256 KiB, from which on a link over loopback
/// TCP is at its fastest. They wait no longer than [`GATHER_NS_MAX`].
pub(crate) const GATHER_BYTES: usize = 256 * 1024;

/// Time after a message, in nanoseconds, in which a whole increment may wait for further ones: 50 us,
/// a few times the cost of a message. Increments that come slower leave at once. Those that come
/// faster keep the link busy, and their overhead below a fifth.
pub(crate) const GATHER_NS_MAX: u64 = 50_000;

const _: () = assert!(GATHER_BYTES <= MESSAGE_BYTES_MAX);

/// The writer's side: elements handed out and committed, in elements.
///
/// Order of calls: `take` any number of times, then `commit`; and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Writing {
    len: usize,
    handed: usize,
    committed: usize,
}

impl Writing {
    /// Begins a buffer of `len` elements, none of them handed out.
    pub(crate) fn new(len: usize) -> Self {
        Self { len, handed: 0, committed: 0 }
    }

    /// Hands out the next `count` elements, fewer at the end; `None` after the end.
    pub(crate) fn take(&mut self, count: usize) -> Option<Range<usize>> {
        let start = self.handed;
        self.handed = start.saturating_add(count).min(self.len);
        self.check();
        (start < self.len).then_some(start..self.handed)
    }

    /// Commits everything handed out; returns the number of committed elements from the start.
    pub(crate) fn commit(&mut self) -> usize {
        self.committed = self.handed;
        self.check();
        self.committed
    }

    /// Returns the number of elements that were handed out.
    pub(crate) fn handed(&self) -> usize {
        self.handed
    }

    /// Returns the number of elements that were committed.
    pub(crate) fn committed(&self) -> usize {
        self.committed
    }

    fn check(&self) {
        assert!(self.committed <= self.handed && self.handed <= self.len);
    }
}

/// Next action of the pump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Send these bytes as one message.
    Send(Range<usize>),
    /// Wait: nothing may leave before more is published.
    Wait,
    /// Look again as soon as others have run: something may leave, but more is coming fast.
    Gather,
    /// End: all that will ever be published is sent.
    Done,
}

/// The pump's side: bytes that left.
///
/// - All whole increments leave together, so that those committed while the link was busy go as one
///   message.
/// - Increments that come faster than the link takes messages are gathered for a moment.
/// - The rest of an increment leaves only when nothing follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sending {
    len_bytes: usize,
    increment_bytes: usize,
    sent_bytes: usize,
}

impl Sending {
    /// Begins a buffer of `len_bytes`, none of them sent.
    pub(crate) fn new(len_bytes: usize, increment_bytes: usize) -> Self {
        Self { len_bytes, increment_bytes: increment_bytes.max(1), sent_bytes: 0 }
    }

    /// Returns the next message when `published_bytes` are published. `last` means that no more will
    /// be; `since_sent_ns` is the time since the channel took the message before, in nanoseconds.
    pub(crate) fn poll_send(
        &mut self,
        published_bytes: usize,
        last: bool,
        since_sent_ns: u64,
    ) -> Step {
        let last = last || published_bytes == self.len_bytes;
        let may_leave = self.may_leave(published_bytes, last);
        if may_leave == self.sent_bytes {
            return if last { Step::Done } else { Step::Wait };
        }
        let start = self.sent_bytes;
        if !last && may_leave - start < GATHER_BYTES && since_sent_ns < GATHER_NS_MAX {
            return Step::Gather;
        }
        self.sent_bytes = may_leave.min(start + MESSAGE_BYTES_MAX);
        assert!(start < self.sent_bytes && self.sent_bytes <= published_bytes);
        Step::Send(start..self.sent_bytes)
    }

    /// Returns the number of bytes from the start that may leave. Increments are counted from the
    /// buffer's start and may be larger than a message.
    fn may_leave(&self, published_bytes: usize, last: bool) -> usize {
        if last {
            published_bytes
        } else {
            let whole = published_bytes - published_bytes % self.increment_bytes;
            whole.max(self.sent_bytes)
        }
    }
}

/// The reader's side: elements that `next` has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    len: usize,
    taken: usize,
}

impl Reading {
    /// Begins a buffer of `len` elements, none of them shown.
    pub(crate) fn new(len: usize) -> Self {
        Self { len, taken: 0 }
    }

    /// Whether everything was shown.
    pub(crate) fn is_done(&self) -> bool {
        self.taken == self.len
    }

    /// Whether there is something new when `landed` elements have landed.
    pub(crate) fn has_fresh(&self, landed: usize) -> bool {
        landed > self.taken
    }

    /// Returns the elements that landed since the last call, when `landed` have landed in all.
    pub(crate) fn take_landed(&mut self, landed: usize) -> Option<Range<usize>> {
        assert!(self.taken <= landed && landed <= self.len);
        let fresh = self.taken..landed;
        self.taken = landed;
        (!fresh.is_empty()).then_some(fresh)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A time long after the message before.
    const LONG: u64 = GATHER_NS_MAX;

    #[test]
    fn increments_that_come_fast_are_gathered_for_a_moment() {
        let mut sending = Sending::new(10 * GATHER_BYTES, 10);
        assert_eq!(sending.poll_send(9, false, 0), Step::Wait);
        assert_eq!(sending.poll_send(10, false, LONG - 1), Step::Gather);
        assert_eq!(sending.poll_send(25, false, LONG), Step::Send(0..20));
        assert_eq!(sending.poll_send(25, false, 0), Step::Wait);
        assert_eq!(sending.poll_send(30, false, 0), Step::Gather);
        let full = 20 + GATHER_BYTES + 13;
        assert_eq!(sending.poll_send(full, false, 0), Step::Send(20..full - full % 10));
        assert_eq!(sending.poll_send(full, true, 0), Step::Send(full - full % 10..full));
        assert_eq!(sending.poll_send(full, true, 0), Step::Done);
    }

    #[test]
    fn an_empty_buffer_is_done_at_once() {
        assert_eq!(Writing::new(0).take(5), None);
        assert_eq!(Sending::new(0, 4096).poll_send(0, false, LONG), Step::Done);
        let mut reading = Reading::new(0);
        assert!(reading.is_done());
        assert_eq!(reading.take_landed(0), None);
    }

    #[test]
    fn a_part_of_an_increment_waits_for_the_rest() {
        let mut sending = Sending::new(100, 40);
        assert_eq!(sending.poll_send(39, false, LONG), Step::Wait);
        assert_eq!(sending.poll_send(41, false, LONG), Step::Send(0..40));
        assert_eq!(sending.poll_send(79, false, LONG), Step::Wait);
        assert_eq!(sending.poll_send(100, false, LONG), Step::Send(40..100));
        assert_eq!(sending.poll_send(100, false, LONG), Step::Done);
    }

    #[test]
    fn what_was_published_meanwhile_leaves_as_one() {
        let mut sending = Sending::new(1000, 10);
        assert_eq!(sending.poll_send(10, false, LONG), Step::Send(0..10));
        assert_eq!(sending.poll_send(357, false, LONG), Step::Send(10..350));
        assert_eq!(sending.poll_send(357, true, LONG), Step::Send(350..357));
        assert_eq!(sending.poll_send(357, true, LONG), Step::Done);
    }

    #[test]
    fn a_message_has_a_limit() {
        let len = 2 * MESSAGE_BYTES_MAX + 5;
        let mut sending = Sending::new(len, len);
        assert_eq!(sending.poll_send(len - 1, false, LONG), Step::Wait);
        let mut ends = Vec::new();
        while let Step::Send(range) = sending.poll_send(len, false, LONG) {
            ends.push(range.end);
        }
        assert_eq!(ends, [MESSAGE_BYTES_MAX, 2 * MESSAGE_BYTES_MAX, len]);
    }

    /// State of a byte in the simple oracle.
    #[derive(Clone, Copy, PartialEq)]
    enum Fate {
        Free,
        Handed,
        Committed,
        Sent,
    }

    proptest! {
        /// Every byte goes Free, Handed, Committed, Sent, each once and in order, and messages
        /// hold whole increments.
        #[test]
        fn follows_a_byte_by_byte_oracle(
            len in 0_usize..2_000,
            increment in 1_usize..300,
            steps in prop::collection::vec((0_u8..3, 1_usize..200), 1..80),
        ) {
            let mut oracle = vec![Fate::Free; len];
            let mut writing = Writing::new(len);
            let mut sending = Sending::new(len, increment);
            for (what, count) in steps {
                match what {
                    0 => if let Some(range) = writing.take(count) {
                        for fate in &mut oracle[range] {
                            prop_assert!(*fate == Fate::Free);
                            *fate = Fate::Handed;
                        }
                    },
                    1 => {
                        writing.commit();
                        oracle.iter_mut().filter(|fate| **fate == Fate::Handed)
                            .for_each(|fate| *fate = Fate::Committed);
                    }
                    _ => if let Step::Send(range) = sending.poll_send(writing.committed(), false, LONG) {
                        prop_assert!(range.end % increment == 0 || range.end == len);
                        for fate in &mut oracle[range] {
                            prop_assert!(*fate == Fate::Committed);
                            *fate = Fate::Sent;
                        }
                    },
                }
                prop_assert_eq!(writing.handed(), oracle.iter().filter(|f| **f != Fate::Free).count());
                prop_assert_eq!(sending.sent_bytes, oracle.iter().filter(|f| **f == Fate::Sent).count());
            }
            while let Step::Send(range) = sending.poll_send(writing.committed(), true, LONG) {
                oracle[range].fill(Fate::Sent);
            }
            prop_assert_eq!(
                oracle.iter().filter(|f| **f == Fate::Sent).count(), writing.committed());
        }

        /// However the bytes land, the reader is shown every element once and in order.
        #[test]
        fn shows_every_element_once(
            len in 0_usize..5_000, parts in prop::collection::vec(0_usize..700, 0..30),
        ) {
            let mut reading = Reading::new(len);
            let (mut landed, mut shown) = (0, Vec::new());
            for part in parts {
                landed = (landed + part).min(len);
                shown.extend(reading.take_landed(landed).into_iter().flatten());
            }
            shown.extend(reading.take_landed(len).into_iter().flatten());
            prop_assert!(reading.is_done());
            prop_assert!(shown.into_iter().eq(0..len));
        }
    }
}
