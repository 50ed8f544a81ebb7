//! Amount of a link's data that may be on its way, so that urgent messages do not wait behind
//! it.
//!
//! Everything written and not acknowledged lies in buffers of the two kernels, on the wire, or
//! in front of the peer's driver. A message of the express lane that is written now arrives
//! behind all of it. So bulk data may have on its way as much as the connection holds, and a
//! queue of a target time beside. The rest waits in its channels' rings, where express passes
//! it:
//!
//! ```text
//! alone = 2 x shortest round trip + QUEUE_MAX
//! shared = 2.5 x shortest round trip, at least one + QUEUE_SHARED, at most alone
//! talks = 2.5 x shortest round trip, at least one + QUEUE_MIN, at most alone
//! bound = rate x (alone, shared or talks), at least BOUND_BYTES_MIN;
//!         alone or shared with a peer that reads memory: at least ELSEWHERE_BOUND_BYTES_MIN
//! ```
//!
//! So an express message of a conversation beside bulk takes two and a half round trips, or one and
//! QUEUE_MIN, or the time of BOUND_BYTES_MIN: the longest of these ([`sharing`](super::sharing)). One
//! now and then may wait for QUEUE_SHARED, as long as a large write takes, or for QUEUE_MAX when the link
//! was one channel's alone. Such a channel delays nobody: it may have more on its way, and the peer is
//! asked for fewer acknowledgements.
//!
//! Rate and round trip are measured as BBR does (N. Cardwell et al., "BBR: Congestion-Based
//! Congestion Control", ACM Queue 14(5), 2016). The rate is the most that was recently
//! delivered in a round trip. The round trip is the shortest recent one. A factor of two of
//! their product leaves room to see whether the rate is higher. That the target of a queue is a
//! time and not a length is from CoDel (K. Nichols, V. Jacobson, "Controlling Queue Delay", ACM
//! Queue 10(5), 2012).
//!
//! The round trip of a queue that never runs empty is not the connection's. So in every
//! [`ROUND_TRIP_WINDOW`] in which no packet was alone on its way, the bulk lane waits once until
//! almost nothing is on its way, and one small packet is timed. That costs one round trip.
//!
//! A sample tells little when the sender itself had nothing to send in between: it may raise
//! the rate but not lower it.
//!
//! States: *measuring* (a packet that asks for its acknowledgement is on its way) <-> *resting*
//! (none is); either, with `drain` while the queue is to run empty first.

use super::constants::{
    BOUND_BYTES_MIN, BOUND_PACKETS, ELSEWHERE_BOUND_BYTES_MIN, QUEUE_MAX, QUEUE_MIN, QUEUE_SHARED,
    RATE_ROUNDS, ROOM_BYTES_MIN, ROOM_DIVISOR, ROUND_TRIP_MIN, ROUND_TRIP_WINDOW,
};
use super::sharing::Sharing;
use super::without::{Controller, Without};
use crate::Time;
use std::time::Duration;

/// A packet that the peer was asked to acknowledge at once.
#[derive(Debug, Clone, Copy)]
struct Sample {
    number: u64,
    at: Time,
    /// Bytes acknowledged when the packet was written.
    delivered: u64,
    /// Whether there was nothing to send in between.
    starved: bool,
    /// Whether almost nothing was on its way before it.
    alone: bool,
}

/// Measurements of a connection, and the bound that follows. Order of calls:
///
/// - [`Pace::room`] before bulk goes into a packet, [`Pace::starved`] when there was none;
/// - [`Pace::asks`] for every numbered packet, and [`Pace::asked`] when that returns true;
/// - [`Pace::asked_to`] for every packet that asks, numbered or not;
/// - [`Pace::acknowledged`] for every acknowledgement;
/// - [`Pace::is_unasked`] while bulk waits.
#[derive(Debug)]
pub struct Pace {
    /// Bound for each [`Sharing`].
    bounds: [usize; 3],
    sharing: Sharing,
    /// Rates in bytes a second: the highest before, the highest of the last rounds.
    rate: [u64; 2],
    rounds: u32,
    /// Round trips: the shortest before, the shortest of this window.
    round_trip: [Option<Duration>; 2],
    window_ends: Time,
    drain: bool,
    /// Whether a packet that was alone on its way was timed in this window.
    timed_alone: bool,
    sample: Option<Sample>,
    unasked_bytes: usize,
    /// The last packet that the peer was asked to acknowledge.
    asked_to: u64,
    /// Whether there is no bound, and nothing is measured.
    unbounded: bool,
    /// Whether the peer reads fragments from the memory of this end.
    is_read: bool,
}

impl Pace {
    /// Creates the pace of a connection that begins at `now`, without measurements.
    #[must_use]
    pub fn new(now: Time, without: Without) -> Pace {
        let unbounded = without.has(Controller::Pace);
        Pace {
            bounds: [if unbounded { usize::MAX } else { BOUND_BYTES_MIN }; 3],
            sharing: Sharing::Alone,
            rate: [0; 2],
            rounds: 0,
            round_trip: [None; 2],
            window_ends: now.after(ROUND_TRIP_WINDOW),
            drain: false,
            timed_alone: false,
            sample: None,
            unasked_bytes: 0,
            asked_to: 0,
            unbounded,
            is_read: false,
        }
    }

    /// Notes that the peer reads fragments from the memory of this end. They do not lie in front of a message
    /// that is written behind them, but the time to read them does.
    pub fn is_read(&mut self) {
        self.is_read = true;
        if !self.unbounded {
            self.set_bound();
        }
    }

    /// Whether the peer does.
    #[inline]
    pub fn reads(&self) -> bool {
        self.is_read
    }

    /// Returns the part of the bound that one packet may have.
    #[inline]
    fn packet(&self) -> usize {
        let is_read = self.is_read && self.sharing != Sharing::Talks;
        self.bound() / if is_read { 2 } else { BOUND_PACKETS }
    }

    /// Forgets all measurements: another connection begins at `now`.
    pub fn restart(&mut self, now: Time) {
        let without =
            if self.unbounded { Without::of(Controller::Pace) } else { Without::default() };
        *self = Pace::new(now, without);
    }

    /// Returns the bytes that may be on their way.
    #[must_use]
    #[inline]
    pub fn bound(&self) -> usize {
        self.bounds[self.sharing as usize]
    }

    /// Returns the shortest round trip of the last window with one.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        let [before, now] = self.round_trip;
        now.or(before)
    }

    /// Sets how the channels share the link.
    #[inline]
    pub fn set_sharing(&mut self, sharing: Sharing) {
        self.sharing = sharing;
    }

    /// Returns the bytes that bulk may send while `in_flight` are on their way; 0 when it
    /// waits.
    #[must_use]
    #[inline]
    pub fn room(&self, in_flight: usize) -> usize {
        if self.drain {
            return if in_flight <= ROOM_BYTES_MIN { ROOM_BYTES_MIN } else { 0 };
        }
        let room = self.bound().saturating_sub(in_flight);
        if room < ROOM_BYTES_MIN.max(self.bound() / ROOM_DIVISOR) {
            return 0;
        }
        room.min(self.packet())
    }

    /// Notes that there was nothing to send though there was room.
    #[inline]
    pub fn starved(&mut self) {
        if let Some(sample) = &mut self.sample {
            sample.starved = true;
        }
    }

    /// Whether the peer must acknowledge a packet of `bytes` at once, with `in_flight` bytes
    /// before it. A packet with little on its way does not ask: its acknowledgement rides on
    /// answers. A packet that makes bulk wait always asks.
    #[inline]
    pub fn asks(&mut self, bytes: usize, in_flight: usize) -> bool {
        self.unasked_bytes += bytes;
        let in_flight = in_flight + bytes;
        let few = in_flight < ROOM_BYTES_MIN;
        let many = self.unasked_bytes >= self.packet() || self.room(in_flight) == 0;
        let asks = !few && (self.drain || many);
        if asks {
            self.unasked_bytes = 0;
        }
        asks
    }

    /// Notes that the peer is asked to acknowledge the packets up to `number` at once.
    #[inline]
    pub fn asked_to(&mut self, number: u64) {
        self.asked_to = number;
    }

    /// Whether no packet behind `acknowledged`, the last acknowledged one, asks. The
    /// acknowledgement then comes by the peer's clock, and bulk must not wait for that. The bound
    /// has fallen below what is on its way: another channel joins in, the queue is to run empty, or
    /// the connection is new.
    #[must_use]
    #[inline]
    pub fn is_unasked(&self, acknowledged: u64) -> bool {
        self.asked_to <= acknowledged
    }

    /// Notes that packet `number`, which asks for its acknowledgement at once, is about to be
    /// written. `in_flight` bytes are before it, and `delivered` in all were acknowledged.
    #[inline]
    pub fn asked(&mut self, number: u64, in_flight: usize, delivered: u64, now: Time) {
        if self.unbounded {
            return;
        }
        if self.sample.is_none() || self.drain {
            self.drain = false;
            let alone = in_flight <= 2 * ROOM_BYTES_MIN;
            self.sample = Some(Sample { number, at: now, delivered, starved: false, alone });
        }
    }

    /// Notes that the packets up to `number`, `delivered` bytes in all, are acknowledged.
    #[inline]
    pub fn acknowledged(&mut self, number: u64, delivered: u64, now: Time) {
        let Some(sample) = self.sample.take_if(|sample| sample.number <= number) else { return };
        let took = Duration::from_nanos(now.0.saturating_sub(sample.at.0)).max(ROUND_TRIP_MIN);
        let rate = per_second(delivered - sample.delivered, took);
        self.rate[1] = self.rate[1].max(rate);
        if !sample.starved {
            self.rounds += 1;
            if self.rounds >= RATE_ROUNDS {
                self.rounds = 0;
                self.rate = [self.rate[1], 0];
            }
        }
        let shortest = self.round_trip[1].map_or(took, |shortest| shortest.min(took));
        self.round_trip[1] = Some(shortest);
        self.timed_alone |= sample.alone;
        self.set_bound();
        if now >= self.window_ends {
            self.window_ends = now.after(ROUND_TRIP_WINDOW);
            self.round_trip = [self.round_trip[1], None];
            self.drain = !std::mem::take(&mut self.timed_alone);
        }
    }

    fn set_bound(&mut self) {
        let [before, now] = self.round_trip;
        let shortest = before.into_iter().chain(now).min().unwrap_or_default();
        let rate = u128::from(self.rate[0].max(self.rate[1]));
        let alone = 2 * shortest + QUEUE_MAX;
        let beside = |queue| (shortest * 5 / 2).max(shortest + queue).min(alone);
        let least = if self.is_read { ELSEWHERE_BOUND_BYTES_MIN } else { BOUND_BYTES_MIN };
        let bounds =
            [(alone, least), (beside(QUEUE_SHARED), least), (beside(QUEUE_MIN), BOUND_BYTES_MIN)];
        self.bounds = bounds.map(|(time, least)| {
            let bytes = rate * time.as_nanos() / 1_000_000_000;
            usize::try_from(bytes).unwrap_or(usize::MAX).max(least)
        });
    }
}

fn per_second(bytes: u64, time: Duration) -> u64 {
    let nanos = time.as_nanos().max(1);
    u64::try_from(u128::from(bytes) * 1_000_000_000 / nanos).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::ACK_DELAY_MS;
    use std::collections::VecDeque;

    const MS: u64 = 1_000_000;

    /// A connection with a queue in front of it.
    struct Way {
        pace: Pace,
        now: u64,
        bytes_per_ms: u64,
        latency: u64,
        /// Time when the wire is free again.
        free: u64,
        /// Packets on their way: number, bytes, arrival time of their acknowledgement, whether
        /// it was asked for.
        packets: VecDeque<(u64, u64, u64, bool)>,
        sent: u64,
        acknowledged: u64,
    }

    impl Way {
        fn new(bytes_per_ms: u64, latency: u64) -> Way {
            Way {
                pace: Pace { sharing: Sharing::Talks, ..Pace::new(Time(MS), Without::default()) },
                now: MS,
                bytes_per_ms,
                latency,
                free: 0,
                packets: VecDeque::new(),
                sent: 0,
                acknowledged: 0,
            }
        }

        fn in_flight(&self) -> usize {
            self.packets.iter().map(|packet| packet.1 as usize).sum()
        }

        fn send(&mut self, bytes: usize) {
            let in_flight = self.in_flight();
            let asked = self.pace.asks(bytes, in_flight);
            self.sent += 1;
            if asked {
                self.pace.asked(self.sent, in_flight, self.acknowledged, Time(self.now));
            }
            self.free = self.free.max(self.now) + bytes as u64 * MS / self.bytes_per_ms;
            let acked = self.free + 2 * self.latency;
            self.packets.push_back((self.sent, bytes as u64, acked, asked));
        }

        /// Waits for the next acknowledgement, one that was asked for or one by the peer's
        /// clock. False when nothing is on its way.
        fn wait(&mut self) -> bool {
            let asked = self.packets.iter().position(|packet| packet.3);
            let last = self.packets.len().saturating_sub(1);
            let Some(packet) = self.packets.get(asked.unwrap_or(last)) else { return false };
            let (number, _, at, asked_for) = *packet;
            self.now = self.now.max(at + if asked_for { 0 } else { ACK_DELAY_MS * MS });
            let asked = asked.unwrap_or(last);
            self.acknowledged += self.packets.drain(..=asked).map(|packet| packet.1).sum::<u64>();
            self.pace.acknowledged(number, self.acknowledged, Time(self.now));
            true
        }

        /// Sends as much as it may for a time. Returns the longest queue.
        fn stream(&mut self, millis: u64) -> u64 {
            let (until, mut longest) = (self.now + millis * MS, 0);
            while self.now < until {
                loop {
                    let room = self.pace.room(self.in_flight()).min(64 * 1024);
                    if room == 0 {
                        break;
                    }
                    self.send(room);
                }
                longest = longest.max(self.free.saturating_sub(self.now));
                assert!(self.wait(), "nothing is on its way, and nothing may leave");
            }
            longest
        }
    }

    #[test]
    fn the_queue_comes_to_its_target_and_the_link_stays_busy() {
        for (bytes_per_ms, latency) in
            [(125_000, 50_000), (12_500, 100_000), (12_500, 5 * MS), (1_250_000, 20_000)]
        {
            let mut way = Way::new(bytes_per_ms, latency);
            way.stream(500);
            let (before, start) = (way.acknowledged, way.now);
            let queue = way.stream(500);
            let rate = (way.acknowledged - before) * MS / (way.now - start);
            assert!(rate * 100 > bytes_per_ms * 97, "{rate} of {bytes_per_ms}");
            let bytes_min = BOUND_BYTES_MIN as u64 * MS / bytes_per_ms;
            let (least, most) = (QUEUE_MIN.as_nanos() as u64, QUEUE_MAX.as_nanos() as u64);
            let target = (2 * latency).clamp(least, most) + 2 * latency;
            // The round trip measured of a short way includes the packet's own time.
            assert!(queue <= 3 * target.max(bytes_min), "{queue} ns at {bytes_per_ms}");
        }
    }

    #[test]
    fn the_shortest_way_has_the_least_queue_where_a_channel_talks() {
        let mut pace = Pace::new(Time(0), Without::default());
        pace.round_trip = [None, Some(Duration::from_micros(2))];
        pace.rate = [0, 1_000_000_000_000];
        pace.set_bound();
        assert_eq!(pace.bounds, [5_004_000_000, 102_000_000, 12_000_000]);
    }

    #[test]
    fn a_link_that_became_slow_gets_a_short_queue_too() {
        let mut way = Way::new(1_000_000, 50_000);
        way.stream(100);
        assert!(way.pace.bound() > 250_000, "{}", way.pace.bound());
        way.bytes_per_ms = 12_500;
        way.stream(4000);
        assert!(way.stream(500) < 12 * MS);
    }

    #[test]
    fn a_round_trip_that_became_long_is_noticed_and_so_is_a_queue() {
        let mut way = Way::new(125_000, 50_000);
        way.stream(25_000);
        let bound = way.pace.bound();
        // With a queue in every round trip, the bound would have grown with each window.
        assert!(bound < 1_500_000, "{bound}");
        way.latency = 20 * MS;
        way.stream(25_000);
        let (before, start) = (way.acknowledged, way.now);
        way.stream(2000);
        let rate = (way.acknowledged - before) * MS / (way.now - start);
        assert!(rate > 110_000, "{rate}");
    }

    #[test]
    fn who_has_little_to_send_learns_no_lower_rate() {
        let mut way = Way::new(125_000, 50_000);
        way.stream(500);
        let bound = way.pace.bound();
        for _ in 0..100 {
            way.now += 10 * MS;
            way.send(20_000);
            way.pace.starved();
            while way.wait() {}
        }
        assert!(way.pace.bound() >= bound, "{} of {bound}", way.pace.bound());
    }

    #[test]
    fn small_packets_that_are_answered_ask_for_nothing() {
        let mut pace = Pace::new(Time(0), Without::default());
        assert!((1..1000).all(|_| !pace.asks(100, 200)));
    }

    #[test]
    fn there_is_always_room_for_a_message_when_nothing_is_on_its_way() {
        let mut pace = Pace::new(Time(0), Without::default());
        assert!(pace.room(0) >= ROOM_BYTES_MIN);
        pace.drain = true;
        assert!(pace.room(0) >= ROOM_BYTES_MIN && pace.room(BOUND_BYTES_MIN) == 0);
    }

    #[test]
    fn what_is_on_its_way_is_asked_for_until_the_last_request_is_answered() {
        let mut pace = Pace::new(Time(0), Without::default());
        assert!(pace.is_unasked(0));
        pace.asked_to(3);
        assert_eq!(
            [2, 3, 4].map(|acknowledged| pace.is_unasked(acknowledged)),
            [false, true, true]
        );
        pace.restart(Time(0));
        assert!(pace.is_unasked(2), "what comes again may not ask");
    }

    #[test]
    fn without_the_controller_all_may_leave_and_no_packet_asks() {
        let mut pace = Pace::new(Time(0), "pace".parse().unwrap());
        for number in 1..100 {
            assert!(pace.room(1 << 30) > 1 << 30 && !pace.asks(1 << 20, 1 << 30));
            pace.asked(number, 1 << 30, number << 20, Time(number * 20 * MS));
            pace.acknowledged(number, number << 20, Time((number + 1) * 20 * MS));
        }
        pace.restart(Time(0));
        assert!(pace.room(1 << 30) > 1 << 30);
    }
}
