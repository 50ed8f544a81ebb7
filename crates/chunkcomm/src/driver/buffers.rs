//! Reading buffers of a node, used again. A link without traffic holds none.

use super::wakers::locked;
use crate::proto::tuning::buffers::BufferSize;
use crate::proto::tuning::constants::{BUFFERS_KEPT_MAX, READ_BYTES};
use crate::proto::tuning::without::Without;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// The buffers that a node keeps for its links.
#[derive(Default)]
pub(crate) struct Buffers {
    read: [Mutex<Vec<Vec<u8>>>; 3],
    without: Without,
}

impl Buffers {
    pub(crate) fn new(without: Without) -> Buffers {
        Buffers { read: Default::default(), without }
    }

    fn read(&self, class: usize) -> Vec<u8> {
        let kept = locked(&self.read[class]).pop();
        kept.unwrap_or_else(|| vec![0; READ_BYTES[class]])
    }

    fn give_read(&self, buffer: Vec<u8>) {
        let Some(class) = READ_BYTES.iter().position(|bytes| *bytes == buffer.len()) else {
            return;
        };
        let mut kept = locked(&self.read[class]);
        if kept.len() < BUFFERS_KEPT_MAX {
            kept.push(buffer);
        }
    }
}

/// The reading buffers of one link: the size that it needs, and the buffers whose slices lie in
/// inboxes.
pub(crate) struct ReadBuffers {
    node: Arc<Buffers>,
    size: BufferSize,
    lent: VecDeque<Bytes>,
}

impl ReadBuffers {
    /// Makes the buffers of one link. Slices in inboxes pin about `lent_bytes_max` bytes at most.
    pub(crate) fn new(node: Arc<Buffers>, lent_bytes_max: usize) -> ReadBuffers {
        let size = BufferSize::new(lent_bytes_max, node.without);
        ReadBuffers { node, size, lent: VecDeque::new() }
    }

    /// Returns a buffer of the size that reads need now.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.reclaim();
        self.node.read(self.size.class())
    }

    pub(crate) fn give(&mut self, buffer: Vec<u8>) {
        self.node.give_read(buffer);
    }

    /// Returns a buffer with room for `bytes` or more; `None` when no class is as large.
    pub(crate) fn take_for(&mut self, bytes: usize) -> Option<Vec<u8>> {
        self.reclaim();
        Some(self.node.read(self.size.class_for(bytes)?))
    }

    /// Learns from a read of `bytes` into a buffer with `room`.
    #[inline]
    pub(crate) fn learn(&mut self, bytes: usize, room: usize) {
        self.size.learn(bytes, room);
    }

    /// Whether slices of a buffer with `filled` bytes may stay in inboxes.
    #[inline]
    pub(crate) fn may_lend(&self, filled: usize, buffer_bytes: usize) -> bool {
        self.size.may_lend(filled, buffer_bytes)
    }

    /// Keeps `buffer` while its slices lie in inboxes; takes it back when all are dropped.
    pub(crate) fn lend(&mut self, buffer: Bytes) {
        self.size.lent(buffer.len());
        self.lent.push_back(buffer);
    }

    /// Takes back the lent buffers whose slices are all dropped.
    fn reclaim(&mut self) {
        for _ in 0..self.lent.len() {
            let Some(buffer) = self.lent.pop_front() else { return };
            if buffer.is_unique() {
                self.size.returned(buffer.len());
                self.node.give_read(Vec::from(buffer));
            } else {
                self.lent.push_back(buffer);
            }
        }
    }

    /// Gives back the buffers that are free again, when the link rests.
    pub(crate) fn rest(&mut self) {
        if !self.lent.is_empty() {
            self.reclaim();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_at_rest_gives_the_buffers_back_whose_slices_are_dropped() {
        let node = Arc::new(Buffers::default());
        let kept = |node: &Buffers| locked(&node.read[0]).len();
        let mut buffers = ReadBuffers::new(Arc::clone(&node), 1 << 20);
        let lent = Bytes::from(buffers.take());
        let slice = lent.slice(..1);
        buffers.lend(lent);
        buffers.rest();
        assert_eq!(kept(&node), 0, "a slice lies in an inbox");
        drop(slice);
        buffers.rest();
        assert_eq!(kept(&node), 1);
    }
}
