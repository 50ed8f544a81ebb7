//! Empty buffers for packets, used again while a link is busy.

use super::limits::{SMALL_PACKET_BYTES, SPARE_LARGE_MAX, SPARE_SMALL_BYTES_MAX};

/// Empty buffers of one link: small ones and large ones. The buffer given back last is used
/// first: it lies in the cache.
#[derive(Debug, Default)]
pub struct Spares {
    small: Vec<Vec<u8>>,
    /// Capacity of the small ones.
    small_bytes: usize,
    large: Vec<Vec<u8>>,
}

impl Spares {
    /// Returns an empty buffer for a packet of at most about `bytes`: a small one, too, which may grow.
    #[must_use]
    #[inline]
    pub fn take(&mut self, bytes: usize) -> Vec<u8> {
        if bytes > SMALL_PACKET_BYTES
            && let Some(large) = self.large.pop()
        {
            return large;
        }
        let small = self.small.pop().unwrap_or_default();
        self.small_bytes -= small.capacity();
        small
    }

    /// Takes back a packet's buffer that is not needed any more.
    #[inline]
    pub fn give(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        let bytes = buffer.capacity();
        if bytes > SMALL_PACKET_BYTES {
            if self.large.len() < SPARE_LARGE_MAX {
                self.large.push(buffer);
            }
        } else if bytes > 0 && self.small_bytes + bytes <= SPARE_SMALL_BYTES_MAX {
            self.small_bytes += bytes;
            self.small.push(buffer);
        }
    }

    /// Frees the large buffers and all but one small one: the link rests.
    #[inline]
    pub fn rest(&mut self) {
        self.large = Vec::new();
        self.small.truncate(1);
        self.small.shrink_to(8);
        self.small_bytes = self.small.first().map_or(0, Vec::capacity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_buffers_are_kept_apart_up_to_a_bound() {
        let mut spares = Spares::default();
        spares.give(Vec::with_capacity(64 * 1024));
        spares.give(Vec::with_capacity(100));
        assert_eq!(spares.take(50).capacity(), 100);
        assert_eq!(spares.take(50).capacity(), 0);
        spares.give(Vec::with_capacity(100));
        assert!(spares.take(10_000).capacity() >= 64 * 1024);
        assert_eq!(spares.take(10_000).capacity(), 100);
        for _ in 0..1000 {
            spares.give(vec![1; 64 * 1024]);
        }
        assert_eq!(spares.large.len(), SPARE_LARGE_MAX);
        assert!(spares.take(10_000).is_empty());
        let each = SPARE_SMALL_BYTES_MAX / 16;
        (0..20).for_each(|_| spares.give(Vec::with_capacity(each)));
        assert_eq!((spares.small.len(), spares.small_bytes), (16, SPARE_SMALL_BYTES_MAX));
        assert_eq!((spares.take(0).capacity(), spares.small_bytes), (each, 15 * each));
        spares.rest();
        assert_eq!((spares.small.len(), spares.small_bytes), (1, each));
        assert!(spares.small.capacity() <= 8);
        assert_eq!(spares.take(50).capacity(), each);
        assert_eq!(spares.take(10_000).capacity(), 0);
    }
}
