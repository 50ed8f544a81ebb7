//! Reading buffers of a node, used again. A link without traffic holds none.

use super::wakers::locked;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// Sizes of reading buffers: the first for a link that just woke up, the last
/// for one that streams. A larger one saves system calls; beyond 256 KiB that is
/// below one percent, and the buffer leaves the cache.
const READ_BYTES: [usize; 3] = [4 * 1024, 64 * 1024, 256 * 1024];

/// Buffers of one size that a node keeps.
const KEPT_MAX: usize = 8;

/// The buffers that a node keeps for its links.
#[derive(Default)]
pub(crate) struct Buffers {
    read: [Mutex<Vec<Vec<u8>>>; 3],
}

impl Buffers {
    fn read(&self, class: usize) -> Vec<u8> {
        let kept = locked(&self.read[class]).pop();
        kept.unwrap_or_else(|| vec![0; READ_BYTES[class]])
    }

    fn give_read(&self, buffer: Vec<u8>) {
        let Some(class) = READ_BYTES.iter().position(|bytes| *bytes == buffer.len()) else {
            return;
        };
        let mut kept = locked(&self.read[class]);
        if kept.len() < KEPT_MAX {
            kept.push(buffer);
        }
    }
}

/// The reading buffers of one link: the size that it needs, and the buffers whose slices lie in
/// inboxes.
pub(crate) struct ReadBuffers {
    node: Arc<Buffers>,
    class: usize,
    small_reads: u32,
    lent: VecDeque<Bytes>,
    lent_bytes: usize,
    lent_bytes_max: usize,
}

/// Reads in a row that would have fitted a smaller buffer before a smaller one is used.
const SMALL_READS_MAX: u32 = 64;

impl ReadBuffers {
    /// Makes the buffers of one link. Slices in inboxes pin about `lent_bytes_max` bytes at most.
    pub(crate) fn new(node: Arc<Buffers>, lent_bytes_max: usize) -> ReadBuffers {
        ReadBuffers {
            node,
            class: 0,
            small_reads: 0,
            lent: VecDeque::new(),
            lent_bytes: 0,
            lent_bytes_max,
        }
    }

    /// Returns a buffer of the size that reads need now.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.reclaim();
        self.node.read(self.class)
    }

    pub(crate) fn give(&mut self, buffer: Vec<u8>) {
        self.node.give_read(buffer);
    }

    /// Returns a buffer with room for `bytes` or more; `None` when no class is as large.
    pub(crate) fn take_for(&mut self, bytes: usize) -> Option<Vec<u8>> {
        self.reclaim();
        let class = READ_BYTES.iter().position(|size| *size >= bytes)?;
        self.class = self.class.max(class);
        Some(self.node.read(self.class))
    }

    /// Learns from a read of `bytes` into a buffer with `room`.
    pub(crate) fn learn(&mut self, bytes: usize, room: usize) {
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

    /// Whether slices of a buffer with `filled` bytes may stay in inboxes: the buffer is at least a
    /// quarter full, and not too much is pinned already.
    pub(crate) fn may_lend(&self, filled: usize, buffer_bytes: usize) -> bool {
        buffer_bytes > READ_BYTES[0]
            && 4 * filled >= buffer_bytes
            && self.lent_bytes + buffer_bytes <= self.lent_bytes_max
    }

    /// Keeps `buffer` while its slices lie in inboxes; takes it back when all are dropped.
    pub(crate) fn lend(&mut self, buffer: Bytes) {
        self.lent_bytes += buffer.len();
        self.lent.push_back(buffer);
    }

    /// Takes back the lent buffers whose slices are all dropped.
    fn reclaim(&mut self) {
        for _ in 0..self.lent.len() {
            let Some(buffer) = self.lent.pop_front() else { return };
            if buffer.is_unique() {
                self.lent_bytes -= buffer.len();
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
