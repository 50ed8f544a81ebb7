//! Empty buffers for packets, used again while a link is busy.

use super::limits::{SMALL_PACKET_BYTES, SPARE_PACKETS_MAX};

/// Empty buffers of one link: small ones and large ones. The buffer given back last is used
/// first: it lies in the cache.
#[derive(Debug, Default)]
pub struct Spares([Vec<Vec<u8>>; 2]);

impl Spares {
    /// Returns an empty buffer for a packet of about `bytes`.
    #[must_use]
    #[inline]
    pub fn take(&mut self, bytes: usize) -> Vec<u8> {
        self.0[class(bytes)].pop().unwrap_or_default()
    }

    /// Takes back a packet's buffer that is not needed any more.
    #[inline]
    pub fn give(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() == 0 {
            return;
        }
        let class = class(buffer.capacity());
        if self.0[class].len() < SPARE_PACKETS_MAX[class] {
            buffer.clear();
            self.0[class].push(buffer);
        }
    }

    /// Frees the large buffers and all but one small one: the link rests.
    #[inline]
    pub fn rest(&mut self) {
        self.0[1] = Vec::new();
        self.0[0].truncate(1);
    }
}

#[inline]
fn class(bytes: usize) -> usize {
    usize::from(bytes > SMALL_PACKET_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_buffers_are_kept_apart_up_to_a_number() {
        let mut spares = Spares::default();
        spares.give(Vec::with_capacity(64 * 1024));
        spares.give(Vec::with_capacity(100));
        assert_eq!(spares.take(50).capacity(), 100);
        assert_eq!(spares.take(50).capacity(), 0);
        assert!(spares.take(10_000).capacity() >= 64 * 1024);
        for _ in 0..1000 {
            spares.give(vec![1; 64 * 1024]);
        }
        assert_eq!(spares.0[1].len(), SPARE_PACKETS_MAX[1]);
        assert!(spares.take(10_000).is_empty());
        spares.rest();
        assert_eq!(spares.take(10_000).capacity(), 0);
    }
}
