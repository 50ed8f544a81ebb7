//! Messages that channels have staged, as a driver's rings hold them.

use super::pattern;
use bytes::Bytes;
use chunkcomm_proto::message::{self, PREFIX_BYTES_MAX, TAG_LARGE};
use chunkcomm_proto::outbox::{Beside, Staged, View};
use std::collections::VecDeque;

#[derive(Debug, Default)]
struct Ring {
    bytes: VecDeque<u8>,
    messages: u32,
    large: VecDeque<Bytes>,
    /// Marks of large messages in `bytes`.
    marks: usize,
    large_bytes: usize,
    /// Whether the machine knows that something is staged.
    queued: bool,
}

/// The rings of one end, by channel number from 1.
#[derive(Debug, Default)]
pub(super) struct Rings {
    rings: Vec<Ring>,
    /// Channels with something left after a packet took from them.
    restaged: Vec<u32>,
    /// Channels that may have room again.
    pub(super) progress: Vec<u32>,
}

impl Rings {
    pub(super) fn open(&mut self) {
        self.rings.push(Ring::default());
    }

    fn ring(&mut self, channel: u32) -> &mut Ring {
        &mut self.rings[channel as usize - 1]
    }

    /// Stages the message of `size` bytes that begins at `start` of the pattern; returns whether
    /// the machine must be told.
    pub(super) fn stage(
        &mut self,
        channel: u32,
        start: usize,
        size: usize,
        inline_max: usize,
    ) -> bool {
        let ring = self.ring(channel);
        let payload = &pattern()[start..start + size];
        if size > inline_max {
            ring.large.push_back(Bytes::from_static(payload));
            ring.marks += 1;
            ring.large_bytes += size;
            ring.bytes.push_back(TAG_LARGE);
        } else {
            let mut prefix = [0; PREFIX_BYTES_MAX];
            message::write_prefix(size, &mut prefix);
            ring.bytes.extend(&prefix[..message::prefix_bytes(size)]);
            ring.bytes.extend(payload);
        }
        ring.messages += 1;
        !std::mem::replace(&mut ring.queued, true)
    }

    /// Returns the bytes of the ring, and of the large messages beside it.
    pub(super) fn bytes(&self, channel: u32) -> (usize, usize) {
        let ring = &self.rings[channel as usize - 1];
        (ring.bytes.len(), ring.large_bytes)
    }

    pub(super) fn messages(&self, channel: u32) -> u64 {
        u64::from(self.rings[channel as usize - 1].messages)
    }

    /// Empties the ring of `channel`, whose receiver is gone.
    pub(super) fn discard(&mut self, channel: u32) {
        *self.ring(channel) = Ring::default();
    }
}

impl Staged for Rings {
    fn view(&mut self, channel: u32) -> View<'_> {
        let ring = self.ring(channel);
        let (front, back) = ring.bytes.as_slices();
        View { front, back, messages: ring.messages, large: ring.marks > 0 }
    }

    fn consume(&mut self, channel: u32, bytes: usize, messages: u32) {
        let ring = self.ring(channel);
        ring.bytes.drain(..bytes);
        ring.messages -= messages;
        ring.queued = ring.messages > 0;
        if ring.queued {
            self.restaged.push(channel);
        }
        self.progress.push(channel);
    }

    fn take_beside(&mut self, channel: u32) -> Beside {
        let ring = self.ring(channel);
        ring.marks -= 1;
        let bytes = ring.large.pop_front().unwrap_or_default();
        ring.large_bytes -= bytes.len();
        self.consume(channel, 1, 1);
        Beside::Large(bytes)
    }

    fn restaged(&mut self) -> Option<u32> {
        self.restaged.pop()
    }
}
