//! The byte ring of a channel: one producer stages messages, the writer takes them. Neither takes a
//! lock.
//!
//! One word is published: the numbers of bytes and of messages that were ever committed (both
//! wrapping), so that the two are always seen together. A ring may grow and shrink: the producer
//! goes on in another one, and leaves a link to it in the old one, which it never touches again.
//!
//! A ring that *keeps* holds read bytes until the consumer releases them: a stream's messages
//! until their receiver has settled them. The consumer can go back and read them again. Its
//! producer may use all of the memory, and stays a bounded number of unread bytes ahead.
//!
//! A ring with a [`Backlog`] takes no more than its receiver lets it, whatever room it has.
//!
//! A ring that *logs* has a second reader, its [`Tail`]: the consumer sees committed bytes as soon
//! as the tail has *stored* them.
//!
//! # Why the unsafe code is sound
//!
//! The memory is a slice of `UnsafeCell<u8>`, valid and initialised for the
//! ring's whole life. `committed - taken` bytes from the reading position on
//! belong to the consumer, all others to the producer; the two never overlap:
//!
//! - There is one [`Producer`] and one [`Consumer`] a ring: only [`ring()`] makes
//!   them, neither can be cloned, and both work through `&mut self`.
//! - The producer writes only to bytes counted free, by a value of `taken` that it has read.
//!   `taken` only grows while the producer looks away, so bytes counted free stay free. The
//!   producer reads `taken` with acquire, which pairs with the consumer's release in
//!   [`Consumer::consume`]: the consumer's reads of the bytes are over.
//! - In a ring that keeps, the producer counts by `released` instead. `released` only grows, and
//!   never passes the place where the consumer may begin again: bytes are released in the order of
//!   reading ([`Kept::release`]). There, `taken` goes back with the consumer, and only shows how
//!   far ahead the producer is.
//! - The consumer reads only bytes counted committed. It reads `committed` with
//!   acquire, which pairs with the producer's release in [`Producer::commit`]:
//!   the bytes are written. `committed` only grows meanwhile.
//! - In a ring that logs, the tail reads committed bytes that are not stored, by the same rule. It
//!   only reads. The consumer takes only stored bytes, so none is free before the tail has passed
//!   it. The consumer reads `stored` with acquire, which pairs with the tail's release in
//!   [`Tail::store`].
//! - The slices handed out borrow the producer, consumer or tail mutably, so that
//!   positions cannot move while they live.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A value on a cache line of its own, so that the two ends do not slow each other.
#[repr(align(64))]
struct Line<T>(T);

struct Ring {
    memory: Box<[UnsafeCell<u8>]>,
    committed: Line<AtomicU64>,
    taken: Line<AtomicU32>,
    /// Bytes that the producer may overwrite, in a ring that keeps.
    released: AtomicU32,
    /// In a ring that logs: the part of `committed` that is stored.
    stored: Option<AtomicU64>,
    next: OnceLock<Arc<Ring>>,
}

// SAFETY: see the module's argument: the cells are shared between one producer
// and one consumer, who touch disjoint parts of them.
unsafe impl Sync for Ring {}
// SAFETY: bytes may be moved between threads.
unsafe impl Send for Ring {}

#[inline]
fn pack(bytes: u32, messages: u32) -> u64 {
    u64::from(bytes) | (u64::from(messages) << 32)
}

fn unpack(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

impl Ring {
    fn new(capacity: usize, logs: bool) -> Arc<Ring> {
        assert!(capacity > 0 && capacity <= u32::MAX as usize / 2, "capacity {capacity}");
        let memory = (0..capacity).map(|_| UnsafeCell::new(0)).collect();
        Arc::new(Ring {
            memory,
            committed: Line(AtomicU64::new(0)),
            taken: Line(AtomicU32::new(0)),
            released: AtomicU32::new(0),
            stored: logs.then(AtomicU64::default),
            next: OnceLock::new(),
        })
    }

    /// Returns the word of committed bytes and messages.
    fn committed(&self) -> u64 {
        self.committed.0.load(Ordering::Acquire)
    }

    /// Returns the word of bytes and messages that the consumer may read.
    fn readable(&self) -> u64 {
        match &self.stored {
            None => self.committed(),
            Some(stored) => stored.load(Ordering::Acquire),
        }
    }

    /// # Safety
    ///
    /// The caller is the only one to touch these bytes while the slice lives.
    #[allow(clippy::mut_from_ref)]
    #[inline]
    unsafe fn bytes_mut(&self, start: usize, count: usize) -> &mut [u8] {
        let cells = &self.memory[start..start + count];
        // SAFETY: the cells are in bounds and contiguous, `UnsafeCell<u8>` has the
        // layout of `u8`, and nobody else touches them, by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(cells.as_ptr().cast::<u8>().cast_mut(), count) }
    }

    /// # Safety
    ///
    /// Nobody writes to these bytes while the slice lives.
    unsafe fn bytes(&self, start: usize, count: usize) -> &[u8] {
        let cells = &self.memory[start..start + count];
        // SAFETY: as above, shared.
        unsafe { std::slice::from_raw_parts(cells.as_ptr().cast::<u8>(), count) }
    }
}

/// Makes a ring of `capacity` bytes; returns its two ends.
pub(crate) fn ring(capacity: usize) -> (Producer, Consumer) {
    ends(Ring::new(capacity, false))
}

/// Makes a ring that logs; returns its ends and its tail.
pub(crate) fn ring_that_logs(capacity: usize) -> (Producer, Consumer, Tail) {
    let ring = Ring::new(capacity, true);
    let tail = Tail(Cursor { ring: Arc::clone(&ring), position: 0, bytes: 0, messages: 0 });
    let (producer, consumer) = ends(ring);
    (producer, consumer, tail)
}

fn ends(ring: Arc<Ring>) -> (Producer, Consumer) {
    let capacity = ring.memory.len();
    let producer = Producer {
        ring: Arc::clone(&ring),
        position: 0,
        bytes: 0,
        messages: 0,
        free: capacity,
        unread_max: None,
        backlog: None,
    };
    (producer, Consumer(Cursor { ring, position: 0, bytes: 0, messages: 0 }))
}

/// Bound of the bytes that are accepted and that the receiver has not consumed.
///
/// Invariant: `accepted <= consumed + bytes_max`, except behind one longer message, which was accepted
/// with nothing before it, or one large item of a `Sink`.
pub(crate) struct Backlog {
    bytes_max: u64,
    /// Bytes that the receiver has consumed, as the driver was told.
    consumed: Arc<AtomicU64>,
    /// Bytes accepted in all, without those committed since `noted`.
    accepted: u64,
    /// Bytes committed in this ring when they were last noted.
    noted: u32,
}

impl Backlog {
    pub(crate) fn new(bytes_max: u64, consumed: Arc<AtomicU64>) -> Backlog {
        Backlog { bytes_max, consumed, accepted: 0, noted: 0 }
    }

    /// Returns the bytes that are accepted and not consumed; `committed`: bytes committed in this ring.
    fn held(&mut self, committed: u32) -> u64 {
        self.accepted += u64::from(committed.wrapping_sub(self.noted));
        self.noted = committed;
        // A receiver that tells more than it got harms its own bound alone.
        self.accepted.saturating_sub(self.consumed.load(Ordering::Acquire))
    }

    /// Returns the bytes that can still be accepted.
    fn room(&mut self, committed: u32) -> usize {
        let room = self.bytes_max.saturating_sub(self.held(committed));
        usize::try_from(room).unwrap_or(usize::MAX)
    }
}

/// The end that stages messages.
pub(crate) struct Producer {
    ring: Arc<Ring>,
    /// Place of the next byte.
    position: usize,
    bytes: u32,
    messages: u32,
    /// Free bytes, as last seen.
    free: usize,
    /// In a ring that keeps: most bytes that the consumer has not read.
    unread_max: Option<usize>,
    backlog: Option<Backlog>,
}

impl Producer {
    /// Returns the size of the ring in bytes.
    pub(crate) fn capacity(&self) -> usize {
        self.ring.memory.len()
    }

    /// Returns the free bytes as seen now.
    pub(crate) fn free(&mut self) -> usize {
        let taken = self.ring.taken.0.load(Ordering::Acquire);
        let unread = self.bytes.wrapping_sub(taken) as usize;
        self.free = match self.unread_max {
            None => self.capacity() - unread,
            Some(unread_max) => {
                let held = self.held() as usize;
                (self.capacity() - held).min(unread_max.saturating_sub(unread))
            }
        };
        self.free = self.free.min(self.backlog_room());
        self.free
    }

    /// Bounds the bytes that are accepted and not consumed. Called before anything is staged.
    pub(crate) fn bound(&mut self, backlog: Backlog) {
        self.backlog = Some(backlog);
        self.free();
    }

    /// Returns the bound of the backlog.
    pub(crate) fn backlog_bytes_max(&self) -> usize {
        let bytes_max = self.backlog.as_ref().map(|backlog| backlog.bytes_max);
        bytes_max.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX)
    }

    /// Returns the bytes that the backlog still has room for; without one there is no bound.
    pub(crate) fn backlog_room(&mut self) -> usize {
        self.backlog.as_mut().map_or(usize::MAX, |backlog| backlog.room(self.bytes))
    }

    /// Returns the bytes that are accepted and not consumed; 0 without a backlog.
    pub(crate) fn backlog_held(&mut self) -> u64 {
        self.backlog.as_mut().map_or(0, |backlog| backlog.held(self.bytes))
    }

    /// Whether the backlog has room for a large message: one above its bound has it with nothing
    /// before it.
    pub(crate) fn backlog_admits(&mut self, bytes: usize) -> bool {
        let Some(backlog) = &mut self.backlog else { return true };
        let held = backlog.held(self.bytes);
        // The mark of the message counts, too.
        held == 0 || held.saturating_add(bytes as u64 + 1) <= backlog.bytes_max
    }

    /// Counts the bytes of a large message, which do not lie in the ring, as accepted.
    pub(crate) fn count_large(&mut self, bytes: usize) {
        if let Some(backlog) = &mut self.backlog {
            backlog.accepted += bytes as u64;
            self.free();
        }
    }

    /// Returns the bytes that the consumer has, read or not, in a ring that keeps.
    fn held(&self) -> u32 {
        self.bytes.wrapping_sub(self.ring.released.load(Ordering::Acquire))
    }

    /// Returns whether a byte of this ring was released; all earlier rings are then released too.
    pub(crate) fn has_released(&self) -> bool {
        self.ring.released.load(Ordering::Relaxed) > 0
    }

    /// Returns whether, as last seen, only bytes that the consumer has not read hold the producer
    /// up.
    pub(crate) fn is_ahead(&self) -> bool {
        self.unread_max.is_some() && self.free < self.capacity() - self.held() as usize
    }

    /// Returns whether no byte in the ring is the consumer's.
    #[inline]
    pub(crate) fn is_empty(&mut self) -> bool {
        match self.unread_max {
            None => self.bytes == self.ring.taken.0.load(Ordering::Acquire),
            Some(_) => self.held() == 0,
        }
    }

    /// Keeps read bytes until they are released, and stages at most `unread_bytes_max` before they
    /// are read. The first call comes before anything is staged.
    pub(crate) fn keep(&mut self, unread_bytes_max: usize) {
        self.unread_max = Some(unread_bytes_max);
    }

    /// Returns the free bytes as last seen, without looking: at most [`Producer::free`].
    #[inline]
    pub(crate) fn free_seen(&self) -> usize {
        self.free
    }

    /// Returns the free bytes from the writing position to the ring's end or the first taken byte,
    /// as last seen.
    #[inline]
    pub(crate) fn contiguous(&mut self) -> &mut [u8] {
        let count = self.free.min(self.ring.memory.len() - self.position);
        // SAFETY: `count` bytes from `position` on are free, hence the producer's.
        unsafe { self.ring.bytes_mut(self.position, count) }
    }

    /// Commits the first `bytes` free bytes, which hold `messages` more messages (or marks).
    #[inline]
    pub(crate) fn commit(&mut self, bytes: usize, messages: u32) {
        debug_assert!(bytes <= self.free);
        self.position += bytes;
        if self.position >= self.ring.memory.len() {
            self.position -= self.ring.memory.len();
        }
        self.free -= bytes;
        self.bytes = self.bytes.wrapping_add(bytes as u32);
        self.messages = self.messages.wrapping_add(messages);
        self.ring.committed.0.store(pack(self.bytes, self.messages), Ordering::Release);
    }

    /// Copies one staged message in, cut where the ring wraps. The caller has seen that the message
    /// fits.
    pub(crate) fn push(&mut self, head: &[u8], payload: &[u8]) {
        self.push_parts([head, payload], 1);
    }

    /// As `push`, for whole messages with their prefixes.
    #[inline]
    pub(crate) fn push_run(&mut self, run: &[u8], messages: u32) {
        match self.contiguous().get_mut(..run.len()) {
            Some(room) => {
                room.copy_from_slice(run);
                self.commit(run.len(), messages);
            }
            None => self.push_parts([run], messages),
        }
    }

    fn push_parts<const N: usize>(&mut self, parts: [&[u8]; N], messages: u32) {
        let bytes = parts.iter().map(|part| part.len()).sum();
        assert!(bytes <= self.free, "the caller saw that it fits");
        let mut at = self.position;
        for part in parts {
            let front = part.len().min(self.ring.memory.len() - at);
            // SAFETY: all stretches lie in the free bytes, by the assertion above.
            unsafe { self.ring.bytes_mut(at, front) }.copy_from_slice(&part[..front]);
            let back = &part[front..];
            // SAFETY: as above.
            unsafe { self.ring.bytes_mut(0, back.len()) }.copy_from_slice(back);
            at += part.len();
            if at >= self.ring.memory.len() {
                at -= self.ring.memory.len();
            }
        }
        self.commit(bytes, messages);
    }

    /// Copies whole messages in as they were staged before. The ring is empty and large enough.
    pub(crate) fn push_many(&mut self, staged: &[u8], messages: u32) {
        self.contiguous()[..staged.len()].copy_from_slice(staged);
        self.commit(staged.len(), messages);
    }

    /// Goes on in another ring; the consumer follows when this one is empty.
    pub(crate) fn replace(&mut self, capacity: usize) {
        let next = Ring::new(capacity, self.ring.stored.is_some());
        let set = self.ring.next.set(Arc::clone(&next));
        assert!(set.is_ok(), "only the producer of the newest ring replaces it");
        let unread_max = self.unread_max;
        let mut backlog = self.backlog.take();
        if let Some(backlog) = &mut backlog {
            backlog.held(self.bytes);
            backlog.noted = 0;
        }
        let (position, bytes, messages) = (0, 0, 0);
        let free = capacity;
        *self = Producer { ring: next, position, bytes, messages, free, unread_max, backlog };
        self.free();
    }
}

/// A place in a ring up to which bytes were read.
#[derive(Clone)]
struct Cursor {
    ring: Arc<Ring>,
    position: usize,
    bytes: u32,
    messages: u32,
}

impl Cursor {
    /// Returns the bytes and messages from here on up to the word that `limit` reads. At the end of
    /// a replaced ring the cursor goes on in the next one.
    #[inline]
    fn ahead(&mut self, limit: impl Fn(&Ring) -> u64) -> (usize, u32) {
        loop {
            // `next` is read first: once it is set, nothing more is committed to this ring, so that
            // an empty one then stays empty.
            let replaced = self.ring.next.get().is_some();
            let (bytes, messages) = unpack(limit(&self.ring));
            let ahead = bytes.wrapping_sub(self.bytes) as usize;
            if !replaced || ahead > 0 || unpack(self.ring.committed()).0 != bytes {
                return (ahead, messages.wrapping_sub(self.messages));
            }
            self.go_on();
        }
    }

    /// Goes on in the next ring.
    #[cold]
    fn go_on(&mut self) {
        if let Some(ring) = self.ring.next.get().cloned() {
            *self = Cursor { ring, position: 0, bytes: 0, messages: 0 };
        }
    }

    /// Returns the number of committed messages from here on, in this ring and in all later ones.
    fn messages_ahead(&self) -> u32 {
        let (_, messages) = unpack(self.ring.committed());
        let mut sum = messages.wrapping_sub(self.messages);
        let mut next = self.ring.next.get();
        while let Some(ring) = next {
            sum += unpack(ring.committed()).1;
            next = ring.next.get();
        }
        sum
    }

    /// As [`Cursor::ahead`], with the bytes themselves: those before and after the place where the
    /// ring wraps.
    ///
    /// # Safety
    ///
    /// Bytes up to the word that `limit` reads are committed, and nobody writes to them while the
    /// slices live.
    unsafe fn peek(&mut self, limit: impl Fn(&Ring) -> u64) -> (&[u8], &[u8], u32) {
        let (bytes, messages) = self.ahead(limit);
        let front = bytes.min(self.ring.memory.len() - self.position);
        // SAFETY: by the caller's promise.
        unsafe {
            (self.ring.bytes(self.position, front), self.ring.bytes(0, bytes - front), messages)
        }
    }

    #[inline]
    fn advance(&mut self, bytes: usize, messages: u32) {
        self.position += bytes;
        if self.position >= self.ring.memory.len() {
            self.position -= self.ring.memory.len();
        }
        self.bytes = self.bytes.wrapping_add(bytes as u32);
        self.messages = self.messages.wrapping_add(messages);
    }
}

/// The end from which the writer takes messages.
pub(crate) struct Consumer(Cursor);

impl Consumer {
    /// Returns the staged bytes, before and after the place where the ring wraps, and the number of
    /// their messages.
    #[inline]
    pub(crate) fn peek(&mut self) -> (&[u8], &[u8], u32) {
        // SAFETY: readable bytes are committed, and from the cursor on they are the consumer's.
        unsafe { self.0.peek(Ring::readable) }
    }

    /// Returns the number of messages staged in this ring and in all later ones, stored or not.
    pub(crate) fn messages(&self) -> u32 {
        self.0.messages_ahead()
    }

    /// Whether nothing is staged.
    pub(crate) fn is_empty(&mut self) -> bool {
        self.0.ahead(Ring::readable).0 == 0
    }

    /// Takes the first `bytes` of the peeked ones, with `messages`.
    #[inline]
    pub(crate) fn consume(&mut self, bytes: usize, messages: u32) {
        self.0.advance(bytes, messages);
        self.0.ring.taken.0.store(self.0.bytes, Ordering::Release);
    }

    /// As `consume`, in a ring that keeps; returns the stretch that is to be released.
    pub(crate) fn consume_kept(&mut self, bytes: usize, messages: u32) -> Kept {
        let from = self.0.clone();
        self.consume(bytes, messages);
        Kept { from, until: self.0.bytes }
    }

    /// Gives all read bytes back to the producer.
    pub(crate) fn release(&mut self) {
        self.0.ring.released.store(self.0.bytes, Ordering::Release);
    }
}

/// The end that stores messages before the writer may take them.
pub(crate) struct Tail(Cursor);

impl Tail {
    /// Returns the messages that are not stored, as [`Consumer::peek`] does.
    pub(crate) fn peek(&mut self) -> (&[u8], &[u8], u32) {
        // SAFETY: the consumer has not reached the committed bytes from the cursor on, so they are
        // not the producer's.
        unsafe { self.0.peek(Ring::committed) }
    }

    /// Returns the number of messages that are not stored.
    pub(crate) fn messages(&self) -> u32 {
        self.0.messages_ahead()
    }

    /// Returns whether everything is stored.
    pub(crate) fn is_empty(&mut self) -> bool {
        self.0.ahead(Ring::committed).0 == 0
    }

    /// Lets the consumer read everything.
    pub(crate) fn store_all(&mut self) {
        while !self.is_empty() {
            let (front, back, messages) = self.peek();
            let bytes = front.len() + back.len();
            self.store(bytes, messages);
        }
    }

    /// Lets the consumer read the first `bytes` of the peeked ones, with `messages`.
    pub(crate) fn store(&mut self, bytes: usize, messages: u32) {
        self.0.advance(bytes, messages);
        if let Some(stored) = &self.0.ring.stored {
            stored.store(pack(self.0.bytes, self.0.messages), Ordering::Release);
        }
    }
}

/// A stretch of a ring that was read and is not released.
pub(crate) struct Kept {
    /// Beginning of the stretch.
    from: Cursor,
    until: u32,
}

impl Kept {
    /// Gives the bytes back to the producer. Bytes read before them were given back already.
    pub(crate) fn release(self) {
        self.from.ring.released.store(self.until, Ordering::Release);
    }

    /// Reads again from here on; bytes read before these were released.
    pub(crate) fn rewind(self) -> Consumer {
        self.from.ring.taken.0.store(self.from.bytes, Ordering::Release);
        Consumer(self.from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        /// Against a queue of bytes, with messages of any size, wraps, growth and shrinking.
        #[test]
        fn the_ring_is_a_queue(steps in prop::collection::vec((0usize..60, any::<u8>(), 0usize..100), 1..400)) {
            let (mut producer, mut consumer) = ring(64);
            let mut oracle: VecDeque<u8> = VecDeque::new();
            for (bytes, value, take) in steps {
                let message = vec![value; bytes + 1];
                if producer.free() >= message.len() {
                    if producer.contiguous().len() >= message.len() {
                        producer.contiguous()[..message.len()].copy_from_slice(&message);
                        producer.commit(message.len(), 1);
                    } else {
                        producer.push(&message[..1], &message[1..]);
                    }
                    oracle.extend(&message);
                } else if value < 60 {
                    producer.replace(64 + 16 * usize::from(value));
                }
                let (front, back, _) = consumer.peek();
                let staged: Vec<u8> = front.iter().chain(back).copied().collect();
                prop_assert_eq!(&staged[..], &oracle.iter().copied().take(staged.len()).collect::<Vec<_>>()[..]);
                let take = take.min(staged.len());
                consumer.consume(take, 0);
                oracle.drain(..take);
            }
            while !consumer.is_empty() {
                let (front, back, _) = consumer.peek();
                let count = front.len() + back.len();
                consumer.consume(count, 0);
                oracle.drain(..count);
            }
            prop_assert!(oracle.is_empty());
        }
    }

    proptest! {
        /// Against a queue: bytes that were read are read again after a rewind, and released in
        /// order.
        #[test]
        fn a_ring_that_keeps_reads_again(steps in prop::collection::vec((0usize..40, any::<u8>(), 0usize..3), 1..400)) {
            let (mut producer, mut consumer) = ring(64);
            producer.keep(48);
            // Bytes that are not released, and the number of those that were read.
            let (mut oracle, mut read) = (VecDeque::<u8>::new(), 0);
            let mut kept: VecDeque<(Kept, usize)> = VecDeque::new();
            for (bytes, value, release) in steps {
                if producer.free() > bytes {
                    producer.push(&[value], &vec![value; bytes]);
                    oracle.extend(std::iter::repeat_n(value, bytes + 1));
                    prop_assert!(oracle.len() - read <= 48 + 40 || producer.capacity() > 64);
                } else if value < 20 && producer.capacity() < 1000 {
                    let capacity = producer.capacity() + 64;
                    producer.replace(capacity);
                }
                let (front, back, _) = consumer.peek();
                let staged: Vec<u8> = front.iter().chain(back).copied().collect();
                let expected = oracle.iter().skip(read).take(staged.len()).copied();
                prop_assert!(expected.eq(staged.iter().copied()));
                let take = staged.len().min(usize::from(value));
                if take > 0 {
                    kept.push_back((consumer.consume_kept(take, 0), take));
                    read += take;
                }
                for _ in 0..release.min(kept.len()) {
                    let Some((piece, bytes)) = kept.pop_front() else { break };
                    piece.release();
                    oracle.drain(..bytes);
                    read -= bytes;
                }
                if value > 240 && let Some((first, _)) = kept.pop_front() {
                    consumer = first.rewind();
                    kept.clear();
                    read = 0;
                }
            }
        }
    }

    proptest! {
        /// Against a queue: the consumer sees the bytes that the tail has stored, and goes back
        /// within them.
        #[test]
        fn a_ring_that_logs_shows_what_is_stored(steps in prop::collection::vec((0usize..40, any::<u8>(), 0u8..3), 1..400)) {
            let (mut producer, mut consumer, mut tail) = ring_that_logs(64);
            producer.keep(usize::MAX);
            let (mut unstored, mut unread) = (VecDeque::<u8>::new(), VecDeque::<u8>::new());
            let mut kept: VecDeque<(Kept, Vec<u8>)> = VecDeque::new();
            for (bytes, value, which) in steps {
                if producer.free() > bytes {
                    producer.push(&[value], &vec![value; bytes]);
                    unstored.extend(std::iter::repeat_n(value, bytes + 1));
                } else if value < 30 && producer.capacity() < 1000 {
                    let capacity = producer.capacity() + 64;
                    producer.replace(capacity);
                }
                let (front, back, messages) = tail.peek();
                let seen: Vec<u8> = front.iter().chain(back).copied().collect();
                prop_assert!(unstored.iter().copied().take(seen.len()).eq(seen.iter().copied()));
                if which == 0 {
                    tail.store(seen.len(), messages);
                    unread.extend(unstored.drain(..seen.len()));
                }
                let (front, back, _) = consumer.peek();
                let seen: Vec<u8> = front.iter().chain(back).copied().collect();
                prop_assert!(unread.iter().copied().take(seen.len()).eq(seen.iter().copied()));
                let take = seen.len().min(usize::from(value));
                if take > 0 {
                    kept.push_back((consumer.consume_kept(take, 0), unread.drain(..take).collect()));
                }
                if which == 1 && let Some((piece, _)) = kept.pop_front() {
                    piece.release();
                }
                if value > 240 && !kept.is_empty() {
                    let again: Vec<u8> = kept.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
                    again.iter().rev().for_each(|byte| unread.push_front(*byte));
                    consumer = kept.pop_front().unwrap().0.rewind();
                    kept.clear();
                }
            }
            tail.store_all();
            unread.append(&mut unstored);
            while !consumer.is_empty() {
                let bytes = consumer.peek().0.len() + consumer.peek().1.len();
                consumer.consume(bytes, 0);
                unread.drain(..bytes);
            }
            prop_assert!(unread.is_empty());
        }
    }

    #[test]
    fn two_threads_pass_a_million_bytes_in_order() {
        let (mut producer, mut consumer) = ring(97);
        let count = 200_000u32;
        let thread = std::thread::spawn(move || {
            let mut next = 0u32;
            while next < count {
                if producer.free() < 5 {
                    if next.is_multiple_of(1000) && producer.capacity() < 4000 {
                        let capacity = producer.capacity();
                        producer.replace(capacity * 3);
                    }
                    std::thread::yield_now();
                    continue;
                }
                producer.push(&[4], &next.to_le_bytes());
                next += 1;
            }
        });
        let mut expected = 0u32;
        while expected < count {
            let (front, back, messages) = consumer.peek();
            let bytes: Vec<u8> = front.iter().chain(back).copied().collect();
            assert_eq!(bytes.len(), messages as usize * 5);
            for message in bytes.chunks(5) {
                assert_eq!(message[0], 4);
                assert_eq!(message[1..], expected.to_le_bytes());
                expected += 1;
            }
            let taken = bytes.len();
            consumer.consume(taken, messages);
        }
        thread.join().unwrap();
    }
}
