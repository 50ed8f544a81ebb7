//! When a packet leaves: the policies, the reasons, and the one decision.
//!
//! Source: J. Berthold, "Dynamic Chunking in Eden", section 3.2, whose criteria
//! are *urgent*, *fit*, *full*, *old* and *idle* here.

use super::constants::{FULL_SLACK_DIVISOR, GROWTH_YIELDS_MAX, STREAM_GAP, STREAM_MESSAGES_MIN};
use crate::Time;
use std::fmt;
use std::time::Duration;

/// Way in which a node gathers messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Policy {
    /// Every message leaves in a packet of its own, with a write of its own. The baseline that
    /// dynamic chunking is compared with.
    Unbuffered,
    /// A packet leaves when it is full, when nothing else is runnable, or when its oldest
    /// message reaches the age bound.
    #[default]
    Chunked,
    /// As `Chunked`, but an idle node waits until the oldest message has waited this long.
    /// Tokio's timers step one millisecond. A packet that holds a message of the express lane,
    /// such as a request or an answer, leaves once the node is idle.
    Linger(Duration),
}

/// Reason why a packet left: the first of these that held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FlushReason {
    /// The packet holds an urgent message.
    Urgent,
    /// The next message or fragment does not fit in the rest of the packet.
    Fit,
    /// The rest of the packet is too small to be worth waiting for, or the policy allows one
    /// message only.
    Full,
    /// The packet's oldest message waited for the age bound.
    Old,
    /// Nothing else was runnable.
    Idle,
    /// The caller asked for a flush.
    Explicit,
    /// The channel or the node closes.
    Close,
}

impl FlushReason {
    /// All reasons, in the order in which they are tried.
    pub const ALL: [FlushReason; 7] = [
        FlushReason::Urgent,
        FlushReason::Fit,
        FlushReason::Full,
        FlushReason::Old,
        FlushReason::Idle,
        FlushReason::Explicit,
        FlushReason::Close,
    ];

    /// Returns the reason's name in lower case, as it appears in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FlushReason::Urgent => "urgent",
            FlushReason::Fit => "fit",
            FlushReason::Full => "full",
            FlushReason::Old => "old",
            FlushReason::Idle => "idle",
            FlushReason::Explicit => "explicit",
            FlushReason::Close => "close",
        }
    }
}

/// Input of the decision: the messages that wait to be sent.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pending {
    /// Bytes that could leave now (credit allows them), without headers.
    pub bytes: usize,
    /// Bytes of the records in which they leave, one a channel.
    pub records: usize,
    /// Most bytes that one packet takes, records included.
    pub room: usize,
    /// Whether a large message waits: it fills packets by itself.
    pub large: bool,
    /// Whether a message waits for room behind them.
    pub fit: bool,
    /// Whether an urgent message is among them.
    pub urgent: bool,
    /// Whether messages of the express lane are among them.
    pub express: bool,
    /// Whether the caller asked for a flush.
    pub explicit: bool,
    /// Whether a channel or the node closes.
    pub closing: bool,
    /// Time when the oldest of them was staged.
    pub oldest: Time,
}

impl Pending {
    /// Whether the rest of a packet is too small to be worth waiting for.
    #[inline]
    fn is_full(&self) -> bool {
        self.bytes + self.records + self.room / FULL_SLACK_DIVISOR >= self.room
    }
}

/// The decision about the messages that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A packet leaves now. `Full` may turn out as `Fit` when the packet is filled.
    Leave(FlushReason),
    /// Others run once, then the writer asks again. With `Yield::Core` they may be on other
    /// threads: a stream is under way, and its producer may need this core.
    Yield(Yield),
    /// The writer asks again at this time, or when something is staged.
    WaitUntil(Time),
}

/// The parties that a yield lets run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Yield {
    /// Tasks of the same thread.
    Tasks,
    /// Every thread that wants the core.
    Core,
}

/// The decision, and how much waited at the last question. Order of calls:
/// [`Gathering::decide`] at each turn of the writer with something pending; [`Gathering::left`]
/// after each packet.
#[derive(Debug)]
pub struct Gathering {
    policy: Policy,
    age_bound: Duration,
    seen_bytes: usize,
    yields: u32,
    last_left: Time,
    last_messages: u32,
}

impl Gathering {
    /// Creates the decision by `policy`, with the age bound of `Chunked`.
    #[must_use]
    pub fn new(policy: Policy, age_bound: Duration) -> Gathering {
        Gathering {
            policy,
            age_bound,
            seen_bytes: 0,
            yields: 0,
            last_left: Time(0),
            last_messages: 0,
        }
    }

    /// Returns the policy in force.
    #[must_use]
    #[inline]
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Whether further messages would change nothing about the decision, once it is known whether
    /// an urgent one is among them.
    #[must_use]
    #[inline]
    pub fn is_settled(&self, pending: &Pending) -> bool {
        self.policy == Policy::Unbuffered || pending.is_full()
    }

    /// Decides whether a packet leaves. Called with at least one byte pending.
    #[inline]
    pub fn decide(&mut self, pending: &Pending, now: Time) -> Verdict {
        if pending.urgent {
            return Verdict::Leave(FlushReason::Urgent);
        }
        if pending.large || self.is_settled(pending) {
            return Verdict::Leave(FlushReason::Full);
        }
        if pending.fit {
            return Verdict::Leave(FlushReason::Fit);
        }
        let wait = match self.policy {
            Policy::Linger(linger) => linger,
            _ => self.age_bound,
        };
        let due = pending.oldest.after(wait);
        if now >= due {
            return Verdict::Leave(FlushReason::Old);
        }
        if pending.explicit {
            return Verdict::Leave(FlushReason::Explicit);
        }
        if pending.closing {
            return Verdict::Leave(FlushReason::Close);
        }
        if matches!(self.policy, Policy::Linger(_)) && !pending.express {
            return Verdict::WaitUntil(due);
        }
        self.idle_or_yield(pending.bytes, now)
    }

    /// Decides on idleness: a yield during which nothing was appended, or too many yields.
    #[inline]
    fn idle_or_yield(&mut self, bytes: usize, now: Time) -> Verdict {
        let grew = bytes > self.seen_bytes;
        self.seen_bytes = bytes;
        if grew && self.yields < GROWTH_YIELDS_MAX {
            self.yields += 1;
            let streams =
                self.last_messages >= STREAM_MESSAGES_MIN && now < self.last_left.after(STREAM_GAP);
            return Verdict::Yield(if streams { Yield::Core } else { Yield::Tasks });
        }
        Verdict::Leave(FlushReason::Idle)
    }

    /// Notes that the writer was woken because `bytes` were staged. Everything that was
    /// runnable then has run since: that counts as a yield.
    #[inline]
    pub fn woken_for(&mut self, bytes: usize) {
        self.seen_bytes += bytes;
    }

    /// Notes that a packet of `messages` left: later messages are new.
    #[inline]
    pub fn left(&mut self, messages: u32, now: Time) {
        self.last_left = now;
        self.last_messages = messages;
        self.seen_bytes = 0;
        self.yields = 0;
    }
}

/// Numbers of packets by the reason why they left. `{:?}` names the reasons that occurred.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct FlushCounts([u64; 7]);

impl FlushCounts {
    /// Counts one more packet that left for `reason`.
    #[inline]
    pub fn add(&mut self, reason: FlushReason) {
        self.0[reason as usize] += 1;
    }

    /// Returns the number of packets that left for `reason`.
    #[must_use]
    pub fn get(&self, reason: FlushReason) -> u64 {
        self.0[reason as usize]
    }

    /// Returns every reason with its count, in the order in which they are tried.
    pub fn iter(&self) -> impl Iterator<Item = (FlushReason, u64)> + '_ {
        FlushReason::ALL.into_iter().map(|reason| (reason, self.get(reason)))
    }

    pub(crate) fn combined(
        mut self,
        other: &FlushCounts,
        combine: fn(u64, u64) -> u64,
    ) -> FlushCounts {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine = combine(*mine, theirs);
        }
        self
    }
}

impl fmt::Debug for FlushCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut counts = f.debug_struct("FlushCounts");
        for (reason, count) in self.iter().filter(|(_, count)| *count > 0) {
            counts.field(reason.name(), &count);
        }
        counts.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn pending(bytes: usize) -> Pending {
        Pending { bytes, room: 6400, oldest: Time(10 * MS), ..Pending::default() }
    }

    #[test]
    fn counts_name_the_reasons_that_occurred() {
        let mut counts = FlushCounts::default();
        counts.add(FlushReason::Idle);
        counts.add(FlushReason::Full);
        counts.add(FlushReason::Idle);
        assert_eq!(format!("{counts:?}"), "FlushCounts { full: 1, idle: 2 }");
    }

    fn chunked() -> Gathering {
        Gathering::new(Policy::Chunked, Duration::from_millis(1))
    }

    #[test]
    fn the_first_reason_that_holds_is_the_one() {
        let all = Pending { urgent: true, explicit: true, closing: true, ..pending(6400) };
        let late = Time(50 * MS);
        let ask = |p: Pending| chunked().decide(&p, late);
        assert_eq!(ask(all), Verdict::Leave(FlushReason::Urgent));
        assert_eq!(ask(Pending { urgent: false, ..all }), Verdict::Leave(FlushReason::Full));
        let small = Pending { urgent: false, ..Pending { bytes: 10, ..all } };
        assert_eq!(ask(small), Verdict::Leave(FlushReason::Old));
        let mut young = chunked();
        assert_eq!(young.decide(&small, Time(10 * MS)), Verdict::Leave(FlushReason::Explicit));
        let closing = Pending { explicit: false, ..small };
        assert_eq!(young.decide(&closing, Time(10 * MS)), Verdict::Leave(FlushReason::Close));
    }

    #[test]
    fn records_fill_a_packet_too() {
        let now = Time(10 * MS);
        let (few, many) = (pending(2000), Pending { records: 4400, ..pending(2000) });
        assert_eq!(chunked().decide(&few, now), Verdict::Yield(Yield::Tasks));
        assert_eq!(chunked().decide(&many, now), Verdict::Leave(FlushReason::Full));
    }

    #[test]
    fn chunked_yields_while_the_packet_grows_and_leaves_when_it_does_not() {
        let mut gathering = chunked();
        let now = Time(10 * MS);
        assert_eq!(gathering.decide(&pending(17), now), Verdict::Yield(Yield::Tasks));
        assert_eq!(gathering.decide(&pending(34), now), Verdict::Yield(Yield::Tasks));
        assert_eq!(gathering.decide(&pending(34), now), Verdict::Leave(FlushReason::Idle));
    }

    #[test]
    fn a_wake_up_behind_everything_runnable_was_the_yield() {
        let mut gathering = chunked();
        gathering.woken_for(17);
        let now = Time(10 * MS);
        assert_eq!(gathering.decide(&pending(17), now), Verdict::Leave(FlushReason::Idle));
        gathering.left(1, now);
        gathering.woken_for(17);
        assert_eq!(gathering.decide(&pending(34), now), Verdict::Yield(Yield::Tasks));
    }

    #[test]
    fn who_waits_for_room_makes_the_packet_leave() {
        let fit = Pending { fit: true, ..pending(4000) };
        assert_eq!(chunked().decide(&fit, Time(10 * MS)), Verdict::Leave(FlushReason::Fit));
    }

    #[test]
    fn a_stream_gives_its_core_to_the_producer() {
        let mut gathering = chunked();
        gathering.left(1000, Time(10 * MS));
        let soon = Pending { oldest: Time(10 * MS), ..pending(17) };
        assert_eq!(gathering.decide(&soon, Time(10 * MS)), Verdict::Yield(Yield::Core));
        let later = Pending { oldest: Time(20 * MS), ..pending(34) };
        assert_eq!(gathering.decide(&later, Time(20 * MS)), Verdict::Yield(Yield::Tasks));
    }

    #[test]
    fn growth_alone_does_not_hold_a_packet_for_ever() {
        let mut gathering = chunked();
        let mut turns = 0;
        while gathering.decide(&pending(turns + 1), Time(10 * MS)) == Verdict::Yield(Yield::Tasks) {
            turns += 1;
        }
        assert_eq!(turns as u32, GROWTH_YIELDS_MAX);
    }

    #[test]
    fn linger_waits_for_its_time_but_with_express_and_unbuffered_for_nothing() {
        let mut linger = Gathering::new(Policy::Linger(Duration::from_millis(5)), Duration::ZERO);
        assert_eq!(linger.decide(&pending(17), Time(10 * MS)), Verdict::WaitUntil(Time(15 * MS)));
        assert_eq!(linger.decide(&pending(17), Time(15 * MS)), Verdict::Leave(FlushReason::Old));
        let express = Pending { express: true, ..pending(17) };
        assert_eq!(linger.decide(&express, Time(10 * MS)), Verdict::Yield(Yield::Tasks));
        assert_eq!(linger.decide(&express, Time(10 * MS)), Verdict::Leave(FlushReason::Idle));
        let mut unbuffered = Gathering::new(Policy::Unbuffered, Duration::ZERO);
        let leave = Verdict::Leave(FlushReason::Full);
        assert_eq!(unbuffered.decide(&pending(1), Time(10 * MS)), leave);
    }
}
