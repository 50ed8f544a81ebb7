//! When a packet leaves: the policies, the reasons, and the one decision.
//!
//! Source: J. Berthold, "Dynamic Chunking in Eden", section 3.2, whose criteria
//! are *urgent*, *fit*, *full*, *old* and *idle* here.

use super::Time;
use super::limits::{FULL_SLACK_DIVISOR, GROWTH_YIELDS_MAX};
use std::time::Duration;

/// How a node gathers messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Policy {
    /// Every message in a packet of its own, with a write of its own. The
    /// baseline that dynamic chunking is compared with.
    Unbuffered,
    /// A packet leaves when it is full, when nothing else is runnable, or when
    /// its oldest message reached the age bound.
    #[default]
    Chunked,
    /// As `Chunked`, but an idle node waits until the oldest message has waited
    /// this long. Tokio's timers step one millisecond. Messages of the express lane,
    /// requests and answers among them, are not waited with, nor what shares their
    /// packet.
    Linger(Duration),
}

/// Why a packet left: the first of these that held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FlushReason {
    /// It holds an urgent message.
    Urgent,
    /// The next message or fragment does not fit in the rest.
    Fit,
    /// The rest holds none worth waiting for (or the policy allows one only).
    Full,
    /// Its oldest message waited for the age bound.
    Old,
    /// Nothing else was runnable.
    Idle,
    /// The caller asked.
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

    /// The reason's name in lower case, as it appears in tables.
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

/// What waits to be sent, as the decision needs it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pending {
    /// Bytes that could leave now (credit allows them), without headers.
    pub bytes: usize,
    /// Bytes of such that one packet takes.
    pub room: usize,
    /// A large message waits: it fills packets by itself.
    pub large: bool,
    /// A message waits for room behind them.
    pub fit: bool,
    /// An urgent message is among them.
    pub urgent: bool,
    /// Messages of the express lane are among them.
    pub express: bool,
    /// The caller asked.
    pub explicit: bool,
    /// A channel or the node closes.
    pub closing: bool,
    /// When the oldest of them was staged.
    pub oldest: Time,
}

/// What to do about what waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A packet leaves now. `Full` may turn out as `Fit` when it is filled.
    Leave(FlushReason),
    /// Let others run once, then ask again. `Others` may be on other threads: a
    /// stream is under way, and its producer may need this core.
    Yield(Yield),
    /// Ask again at this time, or when something is staged.
    WaitUntil(Time),
}

/// Whom a yield is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Yield {
    /// Tasks of the same thread.
    Tasks,
    /// Whoever wants the core.
    Core,
}

/// A stream is under way when the last packet held this many messages ...
const STREAM_MESSAGES_MIN: u32 = 64;
/// ... and left within this time.
const STREAM_GAP: Duration = Duration::from_millis(1);

/// The decision and what it remembers between two questions: how much waited
/// last time. Order of calls: [`Gathering::decide`] at each turn of the writer
/// with something pending; [`Gathering::left`] after each packet.
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
    /// A decision by `policy`, with the age bound of `Chunked`.
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

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Should a packet leave? Called with at least one byte pending.
    pub fn decide(&mut self, pending: &Pending, now: Time) -> Verdict {
        if pending.urgent {
            return Verdict::Leave(FlushReason::Urgent);
        }
        let slack = pending.room / FULL_SLACK_DIVISOR;
        let filled = pending.large || pending.bytes + slack >= pending.room;
        if filled || self.policy == Policy::Unbuffered {
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

    /// Idle: a yield during which nothing was appended, or too many of them.
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

    /// The writer was woken because `bytes` were staged, and everything that was
    /// runnable then has run since: that was a yield.
    pub fn woken_for(&mut self, bytes: usize) {
        self.seen_bytes += bytes;
    }

    /// A packet with so many messages left: what waits now is new.
    pub fn left(&mut self, messages: u32, now: Time) {
        self.last_left = now;
        self.last_messages = messages;
        self.seen_bytes = 0;
        self.yields = 0;
    }
}

/// Packets by the reason why they left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlushCounts([u64; 7]);

impl FlushCounts {
    /// One more packet left for `reason`.
    pub fn add(&mut self, reason: FlushReason) {
        self.0[reason as usize] += 1;
    }

    /// Packets that left for `reason`.
    #[must_use]
    pub fn get(&self, reason: FlushReason) -> u64 {
        self.0[reason as usize]
    }

    /// Every reason with its count, in the order in which they are tried.
    pub fn iter(&self) -> impl Iterator<Item = (FlushReason, u64)> + '_ {
        FlushReason::ALL.into_iter().map(|reason| (reason, self.get(reason)))
    }

    /// The counts of both together.
    #[must_use]
    pub fn plus(&self, other: &FlushCounts) -> FlushCounts {
        let mut sum = *self;
        for (mine, theirs) in sum.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn pending(bytes: usize) -> Pending {
        Pending { bytes, room: 6400, oldest: Time(10 * MS), ..Pending::default() }
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
