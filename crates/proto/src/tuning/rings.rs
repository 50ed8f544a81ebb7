//! Size of a channel's ring: little for a channel that says little, and a full packet for a
//! stream.
//!
//! A ring that has no room for a message is replaced by a larger one, up to a full packet. A ring
//! that is larger than a full packet is replaced once it is empty: writing through all of it takes
//! more of the cache than a message is worth. It must be empty for that. Otherwise, while a channel
//! waits for credit and the size of packets rises and falls, each change would fill another ring.
//!
//! A ring that keeps its messages until they are settled grows for these, up to a bound of its
//! own. A replaced one lasts until all of it is settled, so it counts.

use super::constants::{RING_BYTES_INITIAL, RING_GROWTH, RING_WAKES};
use super::without::{Controller, Without};
use crate::limits::PACKET_OVERHEAD_BYTES;

/// The size that a ring may have. Order of calls: [`RingSize::set_packet_bytes`] before a
/// decision; [`RingSize::grown`] while there is no room.
#[derive(Debug)]
pub struct RingSize {
    bytes_max: usize,
    wake_step: usize,
    /// Bytes of the earlier rings that may still be kept.
    kept_before: usize,
    /// Whether the size is not tuned.
    fixed: bool,
}

impl RingSize {
    /// Creates the size of a new ring on a link whose rings hold `packet_bytes`, counted as a
    /// packet with its header.
    #[must_use]
    pub fn new(packet_bytes: usize, without: Without) -> RingSize {
        let mut size = RingSize { bytes_max: 0, wake_step: 0, kept_before: 0, fixed: false };
        size.set_packet_bytes(packet_bytes);
        size.fixed = without.has(Controller::Rings);
        size
    }

    /// Returns the size of a new ring.
    #[must_use]
    pub fn initial(&self) -> usize {
        if self.fixed { self.bytes_max } else { RING_BYTES_INITIAL.min(self.bytes_max) }
    }

    /// Notes that rings of the link hold `packet_bytes` now: a full packet, or several while
    /// packets are small.
    pub fn set_packet_bytes(&mut self, packet_bytes: usize) {
        if !self.fixed {
            self.bytes_max = packet_bytes - PACKET_OVERHEAD_BYTES;
            self.wake_step = packet_bytes / RING_WAKES;
        }
    }

    /// Returns the bytes that a ring may hold; one that is larger waits until it is empty.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Returns the staged bytes after which the driver is woken again.
    #[must_use]
    #[inline(always)]
    pub fn wake_step(&self) -> usize {
        self.wake_step
    }

    /// Returns the size of the ring that replaces a full one of `capacity` bytes; `None` when that
    /// has its largest size.
    pub fn grown(&self, capacity: usize) -> Option<usize> {
        let wanted = if self.fixed { self.bytes_max } else { capacity * RING_GROWTH };
        Some(wanted.min(self.bytes_max)).filter(|grown| *grown > capacity)
    }

    /// As `grown`, for a ring that keeps its messages, up to `kept_bytes_max` in all its rings. A
    /// ring that is replaced still exists.
    pub fn grown_to_keep(&mut self, capacity: usize, kept_bytes_max: usize) -> Option<usize> {
        let kept = self.kept_before + capacity;
        let left = kept_bytes_max.max(self.bytes_max).saturating_sub(kept);
        let grown = Some((capacity * RING_GROWTH).min(left)).filter(|grown| *grown > capacity);
        if grown.is_some() {
            self.kept_before = kept;
        }
        grown
    }

    /// Notes that the earlier rings keep nothing any more.
    pub fn released(&mut self) {
        self.kept_before = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET_BYTES: usize = 64 * 1024;
    const BYTES_MAX: usize = PACKET_BYTES - PACKET_OVERHEAD_BYTES;

    fn sizes(size: &RingSize) -> Vec<usize> {
        std::iter::successors(Some(size.initial()), |bytes| size.grown(*bytes)).collect()
    }

    #[test]
    fn a_ring_grows_to_a_full_packet() {
        let mut size = RingSize::new(PACKET_BYTES, Without::default());
        assert_eq!(sizes(&size), [1024, 4096, 16 * 1024, BYTES_MAX]);
        assert_eq!((size.bytes_max(), size.wake_step()), (BYTES_MAX, PACKET_BYTES / 4));
        size.set_packet_bytes(1024);
        assert_eq!(sizes(&size), [1024 - PACKET_OVERHEAD_BYTES]);
    }

    #[test]
    fn rings_that_keep_never_hold_more_than_their_bound() {
        let bound = 1 << 20;
        let mut size = RingSize::new(PACKET_BYTES, Without::default());
        let mut rings = vec![size.initial()];
        while let Some(grown) = size.grown_to_keep(*rings.last().unwrap(), bound) {
            rings.push(grown);
            assert!(rings.iter().sum::<usize>() <= bound, "{rings:?}");
        }
        assert!(rings.iter().sum::<usize>() > bound / 2, "{rings:?}");
        size.released();
        let last = *rings.last().unwrap();
        assert!(size.grown_to_keep(last, 2 * bound).is_some(), "only the last ring counts");
    }

    #[test]
    fn without_the_controller_the_size_stays() {
        let mut size = RingSize::new(PACKET_BYTES, "rings".parse().unwrap());
        size.set_packet_bytes(4 * PACKET_BYTES);
        assert_eq!(sizes(&size), [BYTES_MAX]);
        assert_eq!(size.grown(1024), Some(BYTES_MAX), "the ring of a log begins small");
    }
}
