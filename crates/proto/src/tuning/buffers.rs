//! Size of the reading buffers of a link, and whether slices of one may stay in inboxes.
//!
//! A buffer that a read filled gets a larger one behind it. Many reads in a row that would have
//! fitted a smaller buffer lead to a smaller one. A buffer is lent to inboxes only when it is well
//! filled: a few bytes must not pin all of it.

use super::constants::{LENT_FILL_DIVISOR, READ_BYTES, SMALL_READS_MAX};
use super::without::{Controller, Without};

/// The size that reads of one link need. Order of calls: [`BufferSize::learn`] after each read;
/// [`BufferSize::lent`] and [`BufferSize::returned`] for each buffer that stays in inboxes.
#[derive(Debug)]
pub struct BufferSize {
    /// Index in [`READ_BYTES`].
    class: usize,
    small_reads: u32,
    lent_bytes: usize,
    lent_bytes_max: usize,
    /// Whether the size is not tuned.
    fixed: bool,
}

impl BufferSize {
    /// Creates the size of a link that just woke up. Slices in inboxes pin about
    /// `lent_bytes_max` bytes at most.
    #[must_use]
    pub fn new(lent_bytes_max: usize, without: Without) -> BufferSize {
        let fixed = without.has(Controller::Buffers);
        let class = usize::from(fixed);
        BufferSize { class, small_reads: 0, lent_bytes: 0, lent_bytes_max, fixed }
    }

    /// Returns the size that reads need now, as an index in [`READ_BYTES`].
    #[must_use]
    #[inline]
    pub fn class(&self) -> usize {
        self.class
    }

    /// Returns a size of `bytes` or more, at least the one that reads need; `None` when none is as
    /// large. Later reads probably need it too.
    pub fn class_for(&mut self, bytes: usize) -> Option<usize> {
        let class = READ_BYTES.iter().position(|size| *size >= bytes)?.max(self.class);
        if !self.fixed {
            self.class = class;
        }
        Some(class)
    }

    /// Notes a read of `bytes` into a buffer with `room`.
    #[inline]
    pub fn learn(&mut self, bytes: usize, room: usize) {
        if self.fixed {
            return;
        }
        if bytes == room {
            self.class = (self.class + 1).min(READ_BYTES.len() - 1);
            self.small_reads = 0;
        } else if self.class > 0 && bytes <= READ_BYTES[self.class - 1] {
            self.small_reads += 1;
            if self.small_reads >= SMALL_READS_MAX {
                self.class -= 1;
                self.small_reads = 0;
            }
        } else {
            self.small_reads = 0;
        }
    }

    /// Whether slices of a buffer with `filled` bytes may stay in inboxes: a good part of it is
    /// filled, and not too much is pinned already.
    #[must_use]
    #[inline]
    pub fn may_lend(&self, filled: usize, buffer_bytes: usize) -> bool {
        buffer_bytes > READ_BYTES[0]
            && LENT_FILL_DIVISOR * filled >= buffer_bytes
            && self.lent_bytes + buffer_bytes <= self.lent_bytes_max
    }

    /// Notes that slices of a buffer of `bytes` stay in inboxes.
    pub fn lent(&mut self, bytes: usize) {
        self.lent_bytes += bytes;
    }

    /// Notes that the last slice of a buffer of `bytes` was dropped.
    pub fn returned(&mut self, bytes: usize) {
        self.lent_bytes -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGEST: usize = READ_BYTES.len() - 1;

    #[test]
    fn full_reads_need_more_and_many_small_ones_less() {
        let mut size = BufferSize::new(0, Without::default());
        for class in [1, 2, LARGEST] {
            size.learn(READ_BYTES[size.class()], READ_BYTES[size.class()]);
            assert_eq!(size.class(), class);
        }
        let mut reads = 0;
        while size.class() > 0 {
            size.learn(100, READ_BYTES[size.class()]);
            reads += 1;
        }
        assert_eq!(reads, 2 * SMALL_READS_MAX);
        size.learn(READ_BYTES[0], READ_BYTES[0]);
        for _ in 0..SMALL_READS_MAX {
            size.learn(READ_BYTES[0], READ_BYTES[1]);
            size.learn(READ_BYTES[0] + 1, READ_BYTES[1]);
        }
        assert_eq!(size.class(), 1, "reads that fit no smaller buffer");
    }

    #[test]
    fn what_is_wanted_is_had_and_remembered() {
        let mut size = BufferSize::new(0, Without::default());
        assert_eq!(size.class_for(READ_BYTES[1] + 1), Some(2));
        assert_eq!((size.class(), size.class_for(1)), (2, Some(2)));
        assert_eq!(size.class_for(READ_BYTES[LARGEST] + 1), None);
    }

    #[test]
    fn a_buffer_is_lent_when_it_is_filled_and_little_is_pinned() {
        let [small, bytes, _] = READ_BYTES;
        let mut size = BufferSize::new(2 * bytes, Without::default());
        assert!(!size.may_lend(small, small), "a copy of these is cheaper");
        assert!(!size.may_lend(bytes / LENT_FILL_DIVISOR - 1, bytes));
        for _ in 0..2 {
            assert!(size.may_lend(bytes / LENT_FILL_DIVISOR, bytes));
            size.lent(bytes);
        }
        assert!(!size.may_lend(bytes, bytes));
        size.returned(bytes);
        assert!(size.may_lend(bytes, bytes));
    }

    #[test]
    fn without_the_controller_the_size_stays() {
        let mut size = BufferSize::new(0, "buffers".parse().unwrap());
        assert_eq!(size.class_for(READ_BYTES[2]), Some(2), "for a record that needs it");
        for bytes in [1, READ_BYTES[1]] {
            (0..100).for_each(|_| size.learn(bytes, READ_BYTES[1]));
            assert_eq!(size.class(), 1);
        }
    }
}
