//! Size of a full packet: as large as its write deserves.
//!
//! A packet costs `lambda + beta * bytes`. Lambda is the system call and the wake-up of the
//! peer, whatever the packet holds; beta is the encoding and copying of a byte (the model of
//! the paper on dynamic chunking, section 3.2, equation 5). While a stream saturates the link,
//! the time between two full packets is that sum. Both are measured: lambda by the writes of
//! small packets, the sum by the rate at which full ones leave.
//!
//! While lambda is more than a twelfth of the time between two, a full packet of twice the size
//! is tried. Where bytes are dear (tiny messages, a slow wire, a slow receiver), the packet
//! keeps the size that a saturated link begins with. That size costs the least memory, cache
//! and delay of others.
//!
//! The model takes beta for a constant. It is not: bytes that the packets on their way drive
//! out of a core's cache are dearer, by half and more. So a size that was tried stays only if
//! it made a byte cheaper. From time to time twice the size and the first one are tried again.
//!
//! When packets leave because a link is idle, none is full: each holds the messages that
//! waited. Full packets have the first size where they come in bursts and the link has done
//! with each burst before the next. Messages that waited longer than usual, behind a process
//! that had no processor for a while, do not leave at once. While a link is not saturated a
//! full packet is small, so that the peer takes the first while the next is written. The data
//! that several channels have on their way is also bounded by the time that it takes
//! ([`pace`](super::pace)).

use super::constants::{
    CHEAPER_DIVISOR, DRAINED_MAX, DRAINED_WEIGHT, FULL_IN_ROW, PART_IN_ROW, RESTS, ROWS,
    SMALL_WRITE_BYTES, TIMED_EVERY, WRITE_NS, WRITE_NS_MAX, WRITE_SHARE_DIVISOR,
};
use crate::Time;

/// Reason why no more went into a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// The packet was full, in its bytes or by the bound on data on its way
    /// ([`pace`](super::pace)), or held the one message that it was asked to hold.
    Full,
    /// The next message did not fit, in the packet or in the ring.
    Fit,
    /// The packet left before, as an urgent one does, and more waits.
    Early,
    /// Nothing more with credit waits.
    Drained,
}

/// Size of a full packet. Order of calls: [`PacketSize::left`] for every packet with messages,
/// except those that the end of a large one closes before they are full; [`PacketSize::times`]
/// before a write and, if that returns true, [`PacketSize::wrote`] after it.
#[derive(Debug)]
pub struct PacketSize {
    /// Size before a row of full packets.
    small: usize,
    first: usize,
    largest: usize,
    bytes: usize,
    write_ns: u64,
    writes: u32,
    full: u32,
    since: Time,
    since_bytes: u64,
    part: u32,
    drained: u32,
    shown: Shown,
    /// The size before the one that is being tried, and the cost of a KiB with it.
    tried: Option<(usize, u64)>,
    /// Whether the next size to be tried is a larger one.
    upward: bool,
    /// Number of rests before the next try.
    rests: u32,
}

/// Cost of bytes in the latest rows.
#[derive(Debug)]
struct Shown {
    rows: u32,
    /// Least time for a KiB, in picoseconds.
    ps_a_kib: u64,
}

impl Shown {
    const NOTHING: Shown = Shown { rows: 0, ps_a_kib: u64::MAX };

    fn see(&mut self, nanos: u64, bytes: u64) {
        self.rows += 1;
        let ps_a_kib = nanos.saturating_mul(1024 * 1000) / bytes.max(1);
        self.ps_a_kib = self.ps_a_kib.min(ps_a_kib);
    }
}

impl PacketSize {
    /// Creates the size from three, none less than the one before it: that of packets until a
    /// stream saturates the link, that of packets then, and the one that they may grow to.
    /// Three equal ones fix the size.
    #[must_use]
    pub fn new([small, first, largest]: [usize; 3]) -> PacketSize {
        debug_assert!(small <= first && first <= largest, "{small}, {first}, {largest}");
        PacketSize {
            small,
            first,
            largest,
            bytes: small,
            write_ns: WRITE_NS,
            writes: 0,
            full: 0,
            since: Time(0),
            since_bytes: 0,
            part: 0,
            drained: 0,
            shown: Shown::NOTHING,
            tried: None,
            upward: true,
            rests: 0,
        }
    }

    /// Returns the size of a full packet, header included.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the most bytes that a channel stages: a full packet, and not less than the first
    /// size, so that senders seldom wait for the driver.
    #[must_use]
    #[inline]
    pub fn ring_bytes(&self) -> usize {
        self.bytes.max(self.first)
    }

    /// Returns the largest size that a packet gets.
    #[must_use]
    pub fn largest(&self) -> usize {
        self.largest
    }

    /// Whether the next write, of `bytes`, must be timed.
    #[inline]
    pub fn times(&mut self, bytes: usize) -> bool {
        if bytes > SMALL_WRITE_BYTES || self.largest == self.first {
            return false;
        }
        self.writes = self.writes.wrapping_add(1);
        self.writes % TIMED_EVERY == 1
    }

    /// Notes that a small write took `nanos`.
    pub fn wrote(&mut self, nanos: u64) {
        if nanos <= WRITE_NS_MAX {
            self.write_ns = (7 * self.write_ns + nanos) / 8;
        }
    }

    /// Notes that a packet of `bytes` with messages left at `now`.
    #[inline]
    pub fn left(&mut self, bytes: usize, closed: Closed, now: Time) {
        if self.largest == self.small {
            return;
        }
        let part = bytes < self.bytes / 2;
        if self.bytes < self.first {
            self.left_small(part, closed);
            return;
        }
        self.part = if part || closed == Closed::Drained { self.part + 1 } else { 0 };
        if self.part >= PART_IN_ROW {
            self.part = 0;
            self.begin_with(self.small);
        }
        match closed {
            Closed::Drained => self.drained += DRAINED_WEIGHT,
            _ => self.drained = self.drained.saturating_sub(1),
        }
        if self.drained >= DRAINED_MAX {
            self.drained = DRAINED_MAX;
            self.begin_with(self.bytes.min(self.first));
        }
        // A packet that was asked to hold one message is not full.
        if part || !matches!(closed, Closed::Full | Closed::Fit) {
            self.full = 0;
            return;
        }
        if self.full == 0 {
            (self.since, self.since_bytes) = (now, 0);
        } else {
            self.since_bytes += bytes as u64;
        }
        self.full += 1;
        if self.full > FULL_IN_ROW {
            self.full = 0;
            self.row(now.0.saturating_sub(self.since.0));
        }
    }

    /// Sets the size of full packets to `bytes` and forgets their cost.
    fn begin_with(&mut self, bytes: usize) {
        self.bytes = bytes;
        self.shown = Shown::NOTHING;
        (self.tried, self.upward, self.rests) = (None, true, 0);
    }

    /// Counts packets while they are small. A row of them behind which more waited shows a
    /// stream that saturates the link.
    fn left_small(&mut self, part: bool, closed: Closed) {
        let behind = match closed {
            Closed::Full => !part,
            Closed::Fit | Closed::Early => true,
            Closed::Drained => false,
        };
        self.full = if behind { self.full + 1 } else { 0 };
        if self.full > FULL_IN_ROW {
            self.full = 0;
            self.bytes = self.first;
        }
    }

    /// Notes that [`FULL_IN_ROW`] full packets took `nanos`.
    fn row(&mut self, nanos: u64) {
        self.shown.see(nanos, self.since_bytes);
        if self.shown.rows < ROWS {
            return;
        }
        let cost = std::mem::replace(&mut self.shown, Shown::NOTHING).ps_a_kib;
        match self.tried.take() {
            Some((before, cost_before)) => self.judge(before, cost_before, cost),
            None if self.rests > 0 => self.rests -= 1,
            None => self.try_next(cost),
        }
    }

    /// Judges the size that is being tried, by which a KiB costs `cost`.
    fn judge(&mut self, before: usize, cost_before: u64, cost: u64) {
        let cheaper = |larger: u64, smaller: u64| larger < smaller - smaller / CHEAPER_DIVISOR;
        let stays = match self.bytes > before {
            true => cheaper(cost, cost_before),
            false => !cheaper(cost_before, cost),
        };
        if !stays {
            self.bytes = before;
            self.upward = !self.upward;
            self.rests = RESTS;
        }
    }

    /// Tries another size, by which a KiB may cost less than `cost`.
    fn try_next(&mut self, cost: u64) {
        let between = cost.saturating_mul(self.bytes as u64) / (1024 * 1000);
        let writes_cost = between < WRITE_SHARE_DIVISOR * self.write_ns;
        let larger = if writes_cost { (2 * self.bytes).min(self.largest) } else { self.bytes };
        self.upward = if self.upward { larger > self.bytes } else { self.first == self.bytes };
        let next = if self.upward { larger } else { self.first };
        if next != self.bytes {
            self.tried = Some((self.bytes, cost));
            self.bytes = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1024;
    const SIZES: [usize; 3] = [16 * KIB, 64 * KIB, 256 * KIB];

    /// Leaves `packets` of a stream at saturation from `now` on; returns the size of the last
    /// one. In the model a packet costs `write_ns`, and a KiB `ns_a_kib` of the packet's size.
    fn streams(
        sizing: &mut PacketSize,
        now: &mut Time,
        packets: u32,
        write_ns: u64,
        ns_a_kib: impl Fn(usize) -> u64,
    ) -> usize {
        for packet in 0..packets {
            let bytes = sizing.bytes();
            sizing.left(bytes, Closed::Full, *now);
            now.0 += write_ns + ns_a_kib(bytes) * (bytes / KIB) as u64;
            // Every second row something else has the machine for a while.
            now.0 += if packet % (2 * FULL_IN_ROW) == 3 { 1_000_000 } else { 0 };
        }
        sizing.bytes()
    }

    fn settles(sizing: &mut PacketSize, write_ns: u64, ns_a_kib: u64) -> usize {
        streams(sizing, &mut Time(1), 1_000, write_ns, |_| ns_a_kib)
    }

    #[test]
    fn a_packet_grows_until_its_write_is_a_small_part_of_its_cost() {
        for (ns_a_kib, size) in [(1_200, 64), (500, 128), (300, 256), (20, 256)] {
            let mut sizing = PacketSize::new(SIZES);
            assert_eq!(settles(&mut sizing, 4_000, ns_a_kib), size * KIB, "{ns_a_kib} ns a KiB");
        }
        let mut fixed = PacketSize::new([64 * KIB; 3]);
        assert_eq!(settles(&mut fixed, 4_000, 20), 64 * KIB);
    }

    #[test]
    fn a_size_stays_only_if_bytes_are_cheaper_by_it() {
        let dear_above = |limit: usize| move |bytes| if bytes > limit * KIB { 300 } else { 200 };
        let mut sizing = PacketSize::new(SIZES);
        let mut now = Time(1);
        for limit in [64, 128, 256, 128, 64] {
            // Long enough for rests and for tries of both other sizes.
            let packets = 4 * (RESTS + 4) * ROWS * (FULL_IN_ROW + 1);
            streams(&mut sizing, &mut now, packets, 4_000, dear_above(limit));
            // Of many packets nearly all must have that size.
            let mut of_that_size = 0;
            for _ in 0..100 {
                let bytes = streams(&mut sizing, &mut now, 97, 4_000, dear_above(limit));
                of_that_size += u32::from(bytes == limit * KIB);
            }
            assert!(of_that_size > 90, "{of_that_size} times {limit} KiB");
        }
    }

    #[test]
    fn what_writes_cost_is_measured_and_an_interruption_is_not_believed() {
        for (write_ns, ns_a_kib, size) in [(500, 300, 64), (4_000, 300, 256), (16_000, 1_200, 256)]
        {
            let mut sizing = PacketSize::new(SIZES);
            for _ in 0..100 {
                sizing.wrote(write_ns);
                sizing.wrote(1_000_000);
            }
            assert_eq!(settles(&mut sizing, write_ns, ns_a_kib), size * KIB, "{write_ns} ns");
            let timed = (0..320).filter(|_| sizing.times(100)).count();
            assert_eq!(timed, 20);
            assert!(!sizing.times(SMALL_WRITE_BYTES + 1));
        }
    }

    #[test]
    fn a_stream_that_saturates_no_more_gives_its_size_back() {
        let mut sizing = PacketSize::new(SIZES);
        settles(&mut sizing, 4_000, 20);
        for packet in 1..=PART_IN_ROW {
            sizing.left(1_000, Closed::Drained, Time(1));
            let kib = match packet {
                1..16 => 256,
                16..PART_IN_ROW => 64,
                _ => 16,
            };
            assert_eq!(sizing.bytes(), kib * KIB, "after {packet} packets");
        }
        // Full packets with others between them are no stream at saturation.
        for _ in 0..10 * FULL_IN_ROW {
            sizing.left(16 * KIB, Closed::Full, Time(1));
            sizing.left(1_000, Closed::Drained, Time(1));
        }
        assert_eq!(sizing.bytes(), 16 * KIB);
    }

    #[test]
    fn bursts_that_the_link_has_done_with_have_the_first_size() {
        // Bursts of `burst` full packets and a rest.
        for (burst, bytes) in [(4, 64 * KIB), (200, 256 * KIB)] {
            let mut sizing = PacketSize::new(SIZES);
            let mut now = Time(1);
            streams(&mut sizing, &mut now, 1_000, 4_000, |_| 20);
            assert_eq!(sizing.bytes(), 256 * KIB);
            let mut of_that_size = 0;
            for _ in 0..200 {
                streams(&mut sizing, &mut now, burst, 4_000, |_| 20);
                sizing.left(sizing.bytes() * 3 / 4, Closed::Drained, now);
                of_that_size += u32::from(sizing.bytes() == bytes);
            }
            assert!(of_that_size > 150, "bursts of {burst}: {of_that_size} times {bytes} bytes");
        }
    }

    #[test]
    fn a_peer_that_takes_no_more_than_the_first_size_gets_small_packets_too() {
        let mut sizing = PacketSize::new([16 * KIB, 64 * KIB, 64 * KIB]);
        for _ in 0..=FULL_IN_ROW {
            assert_eq!(sizing.bytes(), 16 * KIB);
            sizing.left(16 * KIB, Closed::Full, Time(1));
        }
        assert_eq!(settles(&mut sizing, 4_000, 20), 64 * KIB);
    }

    /// A packet of 40 KiB now and then, gone before the next, fills nothing.
    #[test]
    fn what_leaves_nothing_behind_lets_packets_be_small_again() {
        let mut sizing = PacketSize::new(SIZES);
        settles(&mut sizing, 4_000, 2_000);
        assert_eq!(sizing.bytes(), 64 * KIB);
        for packet in 0..PART_IN_ROW {
            let bytes = if packet % 100 == 50 { 40 * KIB } else { 100 };
            sizing.left(bytes, Closed::Drained, Time(1));
        }
        assert_eq!(sizing.bytes(), 16 * KIB);
    }

    #[test]
    fn a_packet_is_small_until_more_waited_behind_a_row_of_them() {
        let mut sizing = PacketSize::new(SIZES);
        for _ in 0..FULL_IN_ROW {
            sizing.left(16 * KIB, Closed::Full, Time(1));
        }
        sizing.left(16 * KIB, Closed::Drained, Time(1));
        // A ring of 64 KiB has a rest behind four of them.
        for _ in 0..FULL_IN_ROW / 4 {
            sizing.left(2 * KIB, Closed::Fit, Time(1));
            for _ in 0..3 {
                assert_eq!(sizing.bytes(), 16 * KIB);
                sizing.left(15 * KIB, Closed::Fit, Time(1));
            }
        }
        sizing.left(KIB, Closed::Drained, Time(1));
        // The bound on data on its way leaves room for one and a half packets.
        for _ in 0..FULL_IN_ROW / 2 {
            assert_eq!(sizing.bytes(), 16 * KIB);
            sizing.left(16 * KIB, Closed::Full, Time(1));
            sizing.left(7 * KIB, Closed::Early, Time(1));
        }
        sizing.left(16 * KIB, Closed::Full, Time(1));
        assert_eq!(sizing.bytes(), 64 * KIB);
    }

    #[test]
    fn a_message_a_packet_grows_nothing() {
        let mut sizing = PacketSize::new(SIZES);
        for _ in 0..1_000 {
            sizing.left(50, Closed::Full, Time(1));
        }
        assert_eq!(sizing.bytes(), 16 * KIB);
    }
}
