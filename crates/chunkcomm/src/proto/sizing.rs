//! How large a full packet is: as large as its write deserves.
//!
//! A packet costs `lambda + beta * bytes`: the system call and the wake-up of the
//! peer, whatever is in it, and the encoding and copying of its bytes (the model of
//! the paper on dynamic chunking, section 3.2, equation 5). While a stream saturates
//! the link, the time between two full packets is that sum. Both are measured:
//! lambda by the writes of small packets, the sum by the rate at which full ones
//! leave. While lambda is more than a twelfth of the time between two, a full packet
//! of twice the size is tried. Where bytes are dear (tiny messages, a slow wire, a
//! slow receiver) it stays at the size that a saturated link begins with, which costs the
//! least memory, cache and delay of others.
//!
//! The model takes beta for a constant. It is not: bytes that the packets on their way
//! drive out of a core's cache are dearer, by half and more. So a size that was tried
//! stays only if a byte was cheaper by it, and from time to time twice the size and the
//! first one are tried again.
//!
//! When packets leave because a link is idle, none is full and their size is what
//! waited. Where full ones come in bursts, and the link has done with each before the next,
//! they have the first size. What waits for longer than usual, behind a process that had
//! no processor for a while, does not leave at once: while a link is not saturated a full
//! packet is small, so that the peer takes the first while the next is written. What
//! several channels have on their way is bounded besides by the time that it takes
//! ([`pace`](super::pace)).

use super::Time;

/// The cost of a write is to be such a part of the time between two full packets at
/// most.
const SHARE_DIVISOR: u64 = 12;

/// So many full packets in a row show what a byte costs.
const FULL_IN_ROW: u32 = 16;

/// The least of so many rows is what it costs at a size: others may have been on the
/// machine.
const ROWS: u32 = 8;

/// A larger packet stays if a byte costs less by such a part of it.
const CHEAPER_DIVISOR: u64 = 24;

/// A size that is not to be changed rests for so many times [`ROWS`]: at 64 KiB a
/// quarter of a gigabyte, against which what a try takes is little.
const RESTS: u32 = 32;

/// After so many packets in a row that are less than half full, or leave nothing waiting
/// behind them, the size is small again.
const PART_IN_ROW: u32 = 256;

/// A packet behind which nothing waited counts against saturation as much as so many full
/// ones count for it ...
const DRAINED_WEIGHT: u32 = 16;
/// ... and at this sum a larger size than the first is given up: full packets in bursts,
/// each of which the link has done with before the next, arrive the later the larger they
/// are.
const DRAINED_MAX: u32 = 16 * DRAINED_WEIGHT;

/// A packet up to this many bytes tells the cost of a write.
pub const SMALL_WRITE_BYTES: usize = 2 * 1024;

/// One small write in so many is timed: to ask the clock twice costs a hundredth of
/// it.
const TIMED_EVERY: u32 = 16;

/// What a write costs as long as none was timed, in nanoseconds: about what it does
/// over loopback.
const WRITE_NS: u64 = 4_000;

/// A write that took longer was interrupted.
const WRITE_NS_MAX: u64 = 50_000;

/// Why no more went into a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// It was full, in its bytes or by what may be on its way ([`pace`](super::pace)), or
    /// held the one message that it was asked to hold.
    Full,
    /// The next message did not fit, in it or in the ring.
    Fit,
    /// It left before, as an urgent one does, and more waits.
    Early,
    /// Nothing more waits that has credit.
    Drained,
}

/// The size of a full packet. Order of calls: [`Sizing::left`] for every packet with
/// messages but those that the end of a large one closes before they are full;
/// [`Sizing::times`] before a write and, if it says so, [`Sizing::wrote`] after it.
#[derive(Debug)]
pub struct Sizing {
    /// Before there was a row of full ones.
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
    /// The size is tried: the one before it, and what a KiB cost by that.
    tried: Option<(usize, u64)>,
    /// The next to be tried is a larger one.
    upward: bool,
    /// How often it rests before the next try.
    rests: u32,
}

/// What bytes cost, by the rows that were seen last.
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

impl Sizing {
    /// Packets that have the first of these sizes, none less than the one before it, until a
    /// stream saturates the link, then the second, and grow to the third. If all are the same
    /// it is the size.
    #[must_use]
    pub fn new([small, first, largest]: [usize; 3]) -> Sizing {
        debug_assert!(small <= first && first <= largest, "{small}, {first}, {largest}");
        Sizing {
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

    /// Size of a full packet, header included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What a channel stages at most: a full packet, and not less than the first size, so
    /// that senders seldom wait for the driver.
    #[must_use]
    pub fn ring_bytes(&self) -> usize {
        self.bytes.max(self.first)
    }

    /// The largest that a packet gets.
    #[must_use]
    pub fn largest(&self) -> usize {
        self.largest
    }

    /// Is the next write, of `bytes`, to be timed?
    pub fn times(&mut self, bytes: usize) -> bool {
        if bytes > SMALL_WRITE_BYTES || self.largest == self.first {
            return false;
        }
        self.writes = self.writes.wrapping_add(1);
        self.writes % TIMED_EVERY == 1
    }

    /// A small write took so long.
    pub fn wrote(&mut self, nanos: u64) {
        if nanos <= WRITE_NS_MAX {
            self.write_ns = (7 * self.write_ns + nanos) / 8;
        }
    }

    /// A packet of `bytes` with messages left at `now`.
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
        // One message a packet is what it was asked to be, not full.
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

    /// Full packets have `bytes`, and nothing is known of what they cost.
    fn begin_with(&mut self, bytes: usize) {
        self.bytes = bytes;
        self.shown = Shown::NOTHING;
        (self.tried, self.upward, self.rests) = (None, true, 0);
    }

    /// While packets are small: a row of them behind which more waited shows a stream that
    /// saturates the link.
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

    /// [`FULL_IN_ROW`] full packets took so long.
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

    /// By the size that is tried a KiB costs `cost`.
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

    /// A KiB costs `cost`: by another size it may cost less.
    fn try_next(&mut self, cost: u64) {
        let between = cost.saturating_mul(self.bytes as u64) / (1024 * 1000);
        let writes_cost = between < SHARE_DIVISOR * self.write_ns;
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

    /// So many packets of a stream at saturation from `now` on, in a model of `write_ns` a
    /// packet and `ns_a_kib` in a packet of so many bytes; the size of the last one.
    fn streams(
        sizing: &mut Sizing,
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

    fn settles(sizing: &mut Sizing, write_ns: u64, ns_a_kib: u64) -> usize {
        streams(sizing, &mut Time(1), 1_000, write_ns, |_| ns_a_kib)
    }

    #[test]
    fn a_packet_grows_until_its_write_is_a_small_part_of_its_cost() {
        for (ns_a_kib, size) in [(1_200, 64), (500, 128), (300, 256), (20, 256)] {
            let mut sizing = Sizing::new(SIZES);
            assert_eq!(settles(&mut sizing, 4_000, ns_a_kib), size * KIB, "{ns_a_kib} ns a KiB");
        }
        let mut fixed = Sizing::new([64 * KIB; 3]);
        assert_eq!(settles(&mut fixed, 4_000, 20), 64 * KIB);
    }

    #[test]
    fn a_size_stays_only_if_bytes_are_cheaper_by_it() {
        let dear_above = |limit: usize| move |bytes| if bytes > limit * KIB { 300 } else { 200 };
        let mut sizing = Sizing::new(SIZES);
        let mut now = Time(1);
        for limit in [64, 128, 256, 128, 64] {
            // Long enough for rests and tries of both others.
            let packets = 4 * (RESTS + 4) * ROWS * (FULL_IN_ROW + 1);
            streams(&mut sizing, &mut now, packets, 4_000, dear_above(limit));
            // Of many packets nearly all have that size.
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
        let mut cheap = Sizing::new(SIZES);
        for _ in 0..100 {
            cheap.wrote(500);
            cheap.wrote(1_000_000);
        }
        assert_eq!(settles(&mut cheap, 500, 300), 64 * KIB);
        let timed = (0..320).filter(|_| cheap.times(100)).count();
        assert_eq!(timed, 20);
        assert!(!cheap.times(SMALL_WRITE_BYTES + 1));
    }

    #[test]
    fn a_stream_that_saturates_no_more_gives_its_size_back() {
        let mut sizing = Sizing::new(SIZES);
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
        // Bursts of so many full packets and a rest.
        for (burst, bytes) in [(4, 64 * KIB), (200, 256 * KIB)] {
            let mut sizing = Sizing::new(SIZES);
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
        let mut sizing = Sizing::new([16 * KIB, 64 * KIB, 64 * KIB]);
        for _ in 0..=FULL_IN_ROW {
            assert_eq!(sizing.bytes(), 16 * KIB);
            sizing.left(16 * KIB, Closed::Full, Time(1));
        }
        assert_eq!(settles(&mut sizing, 4_000, 20), 64 * KIB);
    }

    /// One of 40 KiB now and then, which is gone before the next, fills nothing.
    #[test]
    fn what_leaves_nothing_behind_lets_packets_be_small_again() {
        let mut sizing = Sizing::new(SIZES);
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
        let mut sizing = Sizing::new(SIZES);
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
        // What may be on its way leaves room for one and a half.
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
        let mut sizing = Sizing::new(SIZES);
        for _ in 0..1_000 {
            sizing.left(50, Closed::Full, Time(1));
        }
        assert_eq!(sizing.bytes(), 16 * KIB);
    }
}
