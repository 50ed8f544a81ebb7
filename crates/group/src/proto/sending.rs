//! The bytes of a buffer that leave next.
//!
//! - A run of committed bytes leaves in whole increments, counted from the run's start. All that are
//!   whole leave together, so that those committed while the link was busy go as one message.
//! - The rest of a run leaves when it cannot grow: between bytes that have left or the buffer's ends.
//! - When the link is idle and no increment has left for a while, everything leaves, unless the
//!   increment is fixed. Everything also leaves when nothing more will be committed.
//! - Runs leave in the order in which they became ready.

use std::collections::VecDeque;
use std::ops::Range;

use super::ranges::Ranges;

/// Most bytes that leave as one message: 1 MiB.
///
/// Large enough that the cost of a message disappears in that of its bytes. Small enough that a
/// link admits it under the default bounds and releases its memory early.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1024 * 1024;

/// Longest time, in nanoseconds, that less than an increment waits by looking again and again: 50 us, a
/// few times the cost of a message. Timers are too coarse for less.
pub(crate) const GATHER_NS_MAX: u64 = 50_000;

/// Next action of the pump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Send these bytes as one message.
    Send(Range<usize>),
    /// Wait: nothing may leave before more is committed.
    Wait,
    /// Wait until more is committed or the link is idle: less than an increment may leave then.
    WaitIdle,
    /// Wait until more is committed or this time has passed, in nanoseconds: less than an increment
    /// may leave then.
    WaitFor(u64),
    /// Look again as soon as others have run: something may leave, but more is coming fast.
    Gather,
    /// End: all that was committed is sent, and nothing more will be.
    Done,
}

/// The world as the pump sees it when it asks for the next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Now {
    /// Nothing more will be committed in this round.
    pub(crate) last: bool,
    /// The link has written all that it was given.
    pub(crate) idle: bool,
    /// Time since the channel took the message before, in nanoseconds.
    pub(crate) since_sent_ns: u64,
}

/// The bytes of one round at the pump.
///
/// Order of calls: `handle_committed` for what was committed, then `poll_send`; and again.
#[derive(Debug)]
pub(crate) struct Sending {
    len: usize,
    /// Size of an element: messages are whole elements.
    element_bytes: usize,
    increment_bytes: usize,
    /// Time after a message, in nanoseconds, from which less than an increment leaves when the link is
    /// idle; `None` for never.
    patience_ns: Option<u64>,
    /// A message has one increment at most.
    is_single: bool,
    unsent: Ranges,
    sent: Ranges,
    /// Rest of what may leave but did not fit in the last message.
    promised: Range<usize>,
    /// A byte of each run that may have become ready, in that order.
    ready: VecDeque<usize>,
}

impl Sending {
    /// Begins a buffer of `len` bytes, none of them committed.
    pub(crate) fn new(len: usize, element_bytes: usize, increment_bytes: usize) -> Self {
        Self {
            len,
            element_bytes: element_bytes.max(1),
            increment_bytes: increment_bytes.max(1),
            patience_ns: None,
            is_single: false,
            unsent: Ranges::default(),
            sent: Ranges::default(),
            promised: 0..0,
            ready: VecDeque::new(),
        }
    }

    /// Lets less than an increment leave when the link is idle and this time has passed since the
    /// message before.
    pub(crate) fn set_patience(&mut self, ns: u64) {
        self.patience_ns = Some(ns);
    }

    /// Lets each message have one increment at most: what passes several nodes leaves the first of them early.
    pub(crate) fn send_singly(&mut self) {
        self.is_single = true;
    }

    /// Returns the number of bytes that were committed.
    pub(crate) fn committed_bytes(&self) -> usize {
        self.sent.bytes() + self.unsent.bytes()
    }

    /// Sets the size of the increments from now on.
    pub(crate) fn set_increment(&mut self, bytes: usize) {
        self.increment_bytes = bytes.max(1);
    }

    /// Begins the next round.
    pub(crate) fn reset(&mut self) {
        self.unsent.clear();
        self.sent.clear();
        self.promised = 0..0;
        self.ready.clear();
    }

    /// Takes in bytes that were committed.
    pub(crate) fn handle_committed(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        assert!(self.sent.overlap(&range).is_none(), "{range:?} was sent");
        let run = self.unsent.insert(range);
        if self.may_leave(&run, false) > 0 && self.ready.back() != Some(&run.start) {
            self.ready.push_back(run.start);
        }
    }

    /// Whether all bytes of the buffer are sent.
    pub(crate) fn is_done(&self) -> bool {
        self.sent.bytes() == self.len
    }

    /// Returns the next message.
    pub(crate) fn poll_send(&mut self, now: Now) -> Step {
        let patient = self.patience_ns.is_some_and(|ns| now.since_sent_ns >= ns);
        let all = now.last || (patient && now.idle);
        let Some((run, leaving)) = self.next_run(all) else {
            return if self.is_done() || (now.last && self.unsent.is_empty()) {
                Step::Done
            } else {
                self.rest(now)
            };
        };
        let range = run.start..run.start + leaving.min(self.message_bytes_max());
        self.unsent.remove(&range);
        self.sent.insert(range.clone());
        self.promised = range.end..run.start + leaving;
        if self.unsent.run_at(range.end).is_some_and(|rest| self.may_leave(&rest, false) > 0) {
            self.ready.push_front(range.end);
        }
        Step::Send(range)
    }

    /// Returns the total of committed bytes at which `poll_send` may next change its answer.
    pub(crate) fn next_bytes(&self, idle: bool) -> usize {
        let committed = self.committed_bytes();
        let in_order = self.sent.run_at(0).map_or(0, |run| run.end) == self.sent.bytes()
            && self.unsent.first().is_none_or(|run| {
                run.start == self.sent.bytes() && run.len() == self.unsent.bytes()
            });
        let any_may_leave = self.patience_ns.is_some() && (idle || self.unsent.is_empty());
        // A gap that is filled may leave, however small it is.
        if !in_order || any_may_leave {
            return committed + self.element_bytes;
        }
        let whole = self.increment_bytes - self.unsent.bytes() % self.increment_bytes;
        (committed + whole).min(self.len)
    }

    /// Returns the next action when no whole increment may leave.
    fn rest(&self, now: Now) -> Step {
        match self.patience_ns {
            Some(patience_ns) if !self.unsent.is_empty() => {
                let left_ns = patience_ns.saturating_sub(now.since_sent_ns);
                match left_ns {
                    0 => Step::WaitIdle,
                    1..=GATHER_NS_MAX => Step::Gather,
                    _ => Step::WaitFor(left_ns),
                }
            }
            _ => Step::Wait,
        }
    }

    /// Returns the run to send next and the number of its bytes that may leave.
    fn next_run(&mut self, all: bool) -> Option<(Range<usize>, usize)> {
        if !self.promised.is_empty() {
            return Some((self.promised.clone(), self.promised.len()));
        }
        while let Some(at) = self.ready.front() {
            // The run may have grown downwards since, or have left with another one.
            if let Some(run) = self.unsent.run_at(*at) {
                let leaving = self.may_leave(&run, all);
                if leaving > 0 {
                    return Some((run, leaving));
                }
            }
            self.ready.pop_front();
        }
        let run = self.unsent.first().filter(|_| all)?;
        let leaving = run.len();
        Some((run, leaving))
    }

    /// Returns the number of bytes from the start of a run of `unsent` that may leave.
    fn may_leave(&self, run: &Range<usize>, all: bool) -> usize {
        let touches = |at: usize| self.sent.run_at(at).is_some();
        let cannot_grow =
            (run.start == 0 || touches(run.start - 1)) && (run.end == self.len || touches(run.end));
        if all || cannot_grow { run.len() } else { run.len() - run.len() % self.increment_bytes }
    }

    fn message_bytes_max(&self) -> usize {
        let most = if self.is_single {
            self.increment_bytes.min(MESSAGE_BYTES_MAX)
        } else {
            MESSAGE_BYTES_MAX
        };
        let whole = most - most % self.element_bytes;
        whole.max(self.element_bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A link that is busy, long after the message before.
    const LATER: Now = Now { last: false, idle: false, since_sent_ns: GATHER_NS_MAX };
    const SOON: Now = Now { since_sent_ns: 0, ..LATER };
    const IDLE: Now = Now { idle: true, ..LATER };
    const LAST: Now = Now { last: true, ..SOON };

    #[test]
    fn all_increments_that_are_whole_leave_together() {
        let mut sending = Sending::new(100, 1, 10);
        sending.handle_committed(0..9);
        assert_eq!(sending.poll_send(SOON), Step::Wait);
        sending.handle_committed(9..25);
        assert_eq!(sending.poll_send(SOON), Step::Send(0..20));
        assert_eq!(sending.poll_send(IDLE), Step::Wait);
        sending.handle_committed(25..29);
        assert_eq!(sending.poll_send(LAST), Step::Send(20..29));
        assert_eq!(sending.poll_send(LAST), Step::Done);
    }

    #[test]
    fn an_idle_link_takes_less_than_an_increment_after_a_while() {
        let mut sending = Sending::new(100, 1, 10);
        sending.set_patience(GATHER_NS_MAX);
        sending.handle_committed(50..53);
        assert_eq!(sending.poll_send(LATER), Step::WaitIdle);
        assert_eq!(sending.poll_send(Now { idle: true, ..SOON }), Step::Gather, "it may grow");
        assert_eq!(sending.poll_send(IDLE), Step::Send(50..53));
        assert_eq!(sending.poll_send(IDLE), Step::Wait);
        // The rest of that increment is one of its own.
        sending.handle_committed(53..63);
        assert_eq!(sending.poll_send(LATER), Step::Send(53..63));
        // A longer while is left to a timer.
        sending.set_patience(3 * GATHER_NS_MAX);
        sending.handle_committed(70..71);
        assert_eq!(sending.poll_send(IDLE), Step::WaitFor(2 * GATHER_NS_MAX));
    }

    #[test]
    fn runs_leave_in_the_order_of_their_commits_and_small_ones_when_they_cannot_grow() {
        let mut sending = Sending::new(40, 1, 10);
        sending.handle_committed(30..40);
        sending.handle_committed(10..20);
        sending.handle_committed(5..8);
        assert_eq!(sending.poll_send(LATER), Step::Send(30..40));
        assert_eq!(sending.poll_send(LATER), Step::Send(10..20));
        assert_eq!(sending.poll_send(LATER), Step::Wait);
        sending.handle_committed(8..10);
        assert_eq!(sending.poll_send(LATER), Step::Wait, "it may grow downwards");
        sending.handle_committed(0..5);
        assert_eq!(sending.poll_send(LATER), Step::Send(0..10));
        sending.handle_committed(21..30);
        assert_eq!(sending.poll_send(LATER), Step::Wait);
        sending.handle_committed(20..21);
        assert_eq!(sending.poll_send(LATER), Step::Send(20..30));
        assert_eq!(sending.poll_send(LATER), Step::Done);
    }

    #[test]
    fn less_than_an_increment_leaves_between_sent_ones() {
        let mut sending = Sending::new(40, 1, 16);
        sending.handle_committed(24..40);
        sending.handle_committed(0..16);
        assert_eq!(sending.poll_send(LATER), Step::Send(24..40));
        assert_eq!(sending.poll_send(LATER), Step::Send(0..16));
        sending.handle_committed(16..20);
        assert_eq!(sending.poll_send(LATER), Step::Wait);
        sending.handle_committed(20..24);
        assert_eq!(sending.poll_send(LATER), Step::Send(16..24));
    }

    #[test]
    fn an_increment_larger_than_a_message_leaves_in_parts_once_it_is_whole() {
        let len = 3 * MESSAGE_BYTES_MAX;
        let mut sending = Sending::new(len, 1, 2 * MESSAGE_BYTES_MAX);
        sending.handle_committed(0..2 * MESSAGE_BYTES_MAX - 1);
        assert_eq!(sending.poll_send(LATER), Step::Wait);
        sending.handle_committed(2 * MESSAGE_BYTES_MAX - 1..2 * MESSAGE_BYTES_MAX + 1);
        let m = MESSAGE_BYTES_MAX;
        assert_eq!(sending.poll_send(LATER), Step::Send(0..m));
        assert_eq!(sending.poll_send(LATER), Step::Send(m..2 * m));
        assert_eq!(sending.poll_send(LATER), Step::Wait);
    }

    #[test]
    fn single_increments_leave_one_by_one() {
        let mut sending = Sending::new(100, 4, 8);
        sending.send_singly();
        sending.handle_committed(0..20);
        assert_eq!(sending.poll_send(LATER), Step::Send(0..8));
        assert_eq!(sending.poll_send(LATER), Step::Send(8..16));
        assert_eq!(sending.poll_send(LATER), Step::Wait);
    }

    #[test]
    fn an_empty_buffer_is_done_at_once() {
        assert_eq!(Sending::new(0, 8, 8).poll_send(LATER), Step::Done);
    }

    proptest! {
        /// Commits in any order, polls between: each committed element leaves once, and all of them.
        #[test]
        fn sends_each_committed_element_once(
            cuts in prop::collection::vec(0_usize..500, 0..40),
            order in prop::collection::vec(any::<usize>(), 40),
            polls in prop::collection::vec((0_usize..4, any::<bool>(), any::<bool>()), 40),
            element in 1_usize..9, increment in 1_usize..60,
            patience_ns: Option<u64>, left_out in 0_usize..3, shuffled: bool,
        ) {
            let len = 500 * element;
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut * element).collect();
            cuts.extend([0, len]);
            cuts.sort_unstable();
            let mut parts: Vec<_> = cuts.windows(2).map(|pair| pair[0]..pair[1]).collect();
            for (index, other) in order.iter().enumerate().take(parts.len()).filter(|_| shuffled) {
                let other = other % parts.len();
                parts.swap(index, other);
            }
            let mut committed = vec![false; len];
            let mut sent = vec![false; len];
            let mut sending = Sending::new(len, element, increment * element);
            if let Some(ns) = patience_ns {
                sending.set_patience(ns);
            }
            let mut poll = |sending: &mut Sending, now, committed: &[bool]| {
                let step = sending.poll_send(now);
                if let Step::Send(range) = &step {
                    assert!(!range.is_empty() && range.start % element + range.end % element == 0);
                    assert!(committed[range.clone()].iter().all(|bit| *bit), "not committed");
                    let part = &mut sent[range.clone()];
                    assert!(part.iter().all(|bit| !*bit), "sent twice");
                    part.fill(true);
                }
                step
            };
            let mut silent = None;
            for (index, part) in parts.into_iter().enumerate().skip(left_out) {
                committed[part.clone()].fill(true);
                sending.handle_committed(part);
                if let Some((from, now, step)) = silent.take()
                    && committed.iter().filter(|bit| **bit).count() < from
                {
                    prop_assert_eq!(poll(&mut sending, now, &committed), step);
                }
                let (times, idle, soon) = polls[index % polls.len()];
                let now = Now { last: false, idle, since_sent_ns: if soon { 0 } else { u64::MAX } };
                for _ in 0..times {
                    let step = poll(&mut sending, now, &committed);
                    let sleeps = matches!(step, Step::Wait | Step::WaitIdle | Step::WaitFor(_));
                    silent = sleeps.then(|| (sending.next_bytes(idle), now, step));
                }
            }
            while poll(&mut sending, LAST, &committed) != Step::Done {}
            prop_assert_eq!(sending.is_done(), committed.iter().all(|bit| *bit));
            prop_assert_eq!(sent, committed);
        }
    }
}
