//! Memory of large messages, used again for the next ones.
//!
//! An allocator gives a block of megabytes back to the system when it is freed. The next block
//! then has new pages, and the system clears each when it is first touched. That takes longer than
//! to copy the message into it: on a virtual machine up to four times as long. A link that carries
//! large values therefore keeps some blocks of finished messages for each direction. It frees them
//! [`KEPT_FOR`] after the last such message.

use super::clock;
use super::memory::free_vec;
use super::wakers::locked;
use crate::proto::Time;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Time for which blocks are kept after the last large message: 1 s. To encode a value of some
/// gigabytes takes about as long.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// Most blocks kept for one direction. As many are in use at the same time: one message waits for
/// its acknowledgement, one leaves, one is staged and one is encoded.
const KEPT_MAX: usize = 4;

/// Largest ratio of a block to its message, which holds all of the block.
pub(crate) const WASTE_MAX: usize = 2;

/// Held while a block is lent to a message that may wait for ever.
pub(crate) type Turn = Arc<()>;

/// The blocks that a link keeps for one direction.
#[derive(Default)]
pub(crate) struct LargeMemory {
    turn: Turn,
    kept: Mutex<Kept>,
    /// Whether blocks are kept, read without the lock. After the first block the driver has to
    /// be woken.
    holds: AtomicBool,
}

#[derive(Default)]
struct Kept {
    /// The block given last is at the end. Of equal ones it is used first: some of it is in the cache.
    blocks: VecDeque<Vec<u8>>,
    since: Time,
    /// The session is over: the driver no longer calls `rest`.
    over: bool,
}

/// An encoded message whose memory goes back when it is acknowledged.
struct Lent {
    message: Vec<u8>,
    home: Arc<LargeMemory>,
}

impl LargeMemory {
    /// Takes memory for a message of about `bytes` bytes, with its old content. The memory is empty
    /// if no block fits.
    pub(crate) fn take(&self, bytes: usize) -> Vec<u8> {
        if !self.holds.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut kept = locked(&self.kept);
        let fits = |(_, block): &(usize, &Vec<u8>)| block.capacity() <= WASTE_MAX * bytes;
        let fitting = kept.blocks.iter().enumerate().filter(fits);
        let fitting = fitting.max_by_key(|(_, block)| block.capacity()).map(|(at, _)| at);
        let block = fitting.and_then(|at| kept.blocks.remove(at)).unwrap_or_default();
        self.holds.store(!kept.blocks.is_empty(), Ordering::Relaxed);
        block
    }

    /// As `take`, for a message whose end comes only when its receiver waits for it. One of them at a
    /// time gets a block: others may wait for ever, too.
    pub(crate) fn take_in_turn(&self, bytes: usize) -> (Vec<u8>, Option<Turn>) {
        if Arc::strong_count(&self.turn) > 1 {
            return (Vec::new(), None);
        }
        let block = self.take(bytes);
        let turn = (block.capacity() > 0).then(|| Arc::clone(&self.turn));
        (block, turn)
    }

    /// Takes back the memory of a finished message; beyond [`KEPT_MAX`] blocks the oldest is
    /// freed. True for the first block, which the driver does not know of.
    pub(crate) fn give(&self, block: Vec<u8>) -> bool {
        let mut kept = locked(&self.kept);
        if kept.over {
            drop(kept);
            free_vec(block);
            return false;
        }
        kept.since = clock::now();
        kept.blocks.push_back(block);
        let oldest = (kept.blocks.len() > KEPT_MAX).then(|| kept.blocks.pop_front());
        let is_first = !self.holds.swap(true, Ordering::Relaxed);
        drop(kept);
        // Not under the lock, and not beside the tasks of the runtime.
        free_blocks(oldest.flatten());
        is_first
    }

    /// Returns `message` in the form in which it is sent. Its memory comes back when the last slice
    /// is dropped.
    pub(crate) fn lend(self: &Arc<Self>, message: Vec<u8>) -> bytes::Bytes {
        bytes::Bytes::from_owner(Lent { message, home: Arc::clone(self) })
    }

    /// Frees the blocks if they were kept for long enough; called when the link has nothing to do.
    /// Returns the time to ask again.
    #[inline]
    pub(crate) fn rest(&self, now: Time) -> Option<Time> {
        if self.holds.load(Ordering::Relaxed) { self.rest_some(now) } else { None }
    }

    #[cold]
    fn rest_some(&self, now: Time) -> Option<Time> {
        let mut kept = locked(&self.kept);
        let until = kept.since.after(KEPT_FOR);
        if now < until {
            return Some(until);
        }
        self.holds.store(false, Ordering::Relaxed);
        let old = std::mem::take(&mut kept.blocks);
        drop(kept);
        free_blocks(old);
        None
    }

    /// Frees all blocks and keeps none any more: the session is over.
    pub(crate) fn end(&self) {
        locked(&self.kept).over = true;
        self.rest(Time(u64::MAX));
    }
}

fn free_blocks(blocks: impl IntoIterator<Item = Vec<u8>>) {
    blocks.into_iter().for_each(free_vec);
}

impl Drop for LargeMemory {
    fn drop(&mut self) {
        free_blocks(std::mem::take(&mut locked(&self.kept).blocks));
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.message
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.home.give(std::mem::take(&mut self.message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(block: &[u8]) -> *const u8 {
        block.as_ptr()
    }

    #[test]
    fn the_memory_of_a_message_that_is_done_with_serves_the_next() {
        let memory = Arc::<LargeMemory>::default();
        assert_eq!(memory.take(1 << 20).capacity(), 0);
        let message = vec![7; 1 << 20];
        let block = at(&message);
        let sent = memory.lend(message);
        let kept = sent.slice(100..200);
        drop(sent);
        assert_eq!(memory.take(1 << 20).capacity(), 0, "a fragment is kept to be sent again");
        drop(kept);
        let next = memory.take(1 << 20);
        assert_eq!((at(&next), next.len()), (block, 1 << 20));
        assert_eq!(memory.take(1 << 20).capacity(), 0, "given once");
    }

    #[test]
    fn few_blocks_are_kept_and_a_short_message_holds_none() {
        let memory = LargeMemory::default();
        let blocks: Vec<_> = (0..10).map(|_| Vec::with_capacity(1 << 20)).collect();
        let newest = at(&blocks[9]);
        for block in blocks {
            memory.give(block);
        }
        assert_eq!(memory.take((1 << 19) - 1).capacity(), 0);
        assert_eq!(at(&memory.take(1 << 19)), newest);
        for _ in 1..KEPT_MAX {
            assert_eq!(memory.take(1 << 20).capacity(), 1 << 20);
        }
        assert_eq!(memory.take(1 << 20).capacity(), 0);
    }

    #[test]
    fn a_message_gets_the_largest_block_that_fits() {
        let memory = LargeMemory::default();
        for kib in [16, 1024, 4096, 64] {
            memory.give(Vec::with_capacity(kib << 10));
        }
        assert_eq!(memory.take(1 << 20).capacity(), 1 << 20);
        assert_eq!(memory.take(16 << 20).capacity(), 4 << 20);
    }

    #[test]
    fn one_message_that_waits_has_a_block() {
        let memory = LargeMemory::default();
        assert!(memory.give(vec![0; 1 << 20]), "the driver learns of the first block");
        assert!(!memory.give(vec![0; 1 << 20]), "and of no other");
        let (first, turn) = memory.take_in_turn(1 << 20);
        let (second, none) = memory.take_in_turn(1 << 20);
        assert_eq!((first.capacity(), second.capacity(), none), (1 << 20, 0, None));
        drop(turn);
        assert_eq!(memory.take_in_turn(1 << 20).0.capacity(), 1 << 20);
    }

    #[test]
    fn a_link_at_rest_gives_it_up() {
        let memory = LargeMemory::default();
        assert_eq!(memory.rest(clock::now()), None);
        memory.give(vec![0; 1 << 20]);
        let until = memory.rest(clock::now()).expect("something is kept");
        assert_eq!(memory.rest(Time(until.0 - 1)), Some(until));
        assert_eq!(memory.rest(until), None);
        assert_eq!(memory.take(1 << 20).capacity(), 0);
    }

    #[test]
    fn a_link_whose_session_is_over_keeps_none() {
        let memory = LargeMemory::default();
        memory.give(vec![0; 1 << 20]);
        memory.end();
        assert_eq!(memory.take(1 << 20).capacity(), 0);
        memory.give(vec![0; 1 << 20]);
        assert_eq!(memory.take(1 << 20).capacity(), 0);
    }
}
