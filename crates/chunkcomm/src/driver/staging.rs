//! The sending end of a channel: messages go into its ring, and the driver is woken when it has to
//! know of them.
//!
//! ```text
//!   message ──▶ encode into the ring's room ──▶ commit ──▶ queued? ──yes──▶ done
//!      │              │ no room                               │ no
//!      │              ▼                                       ▼
//!      │        Staged::Full: the encoded message        mark as queued, tell the driver
//!      │        lies in the scratch until there is room
//!      ▼
//!   longer than `inline_bytes_max`: beside the ring as a large message, with a mark in the ring
//! ```
//!
//! # When the driver is woken
//!
//! A channel whose driver knows that it has something staged is *queued*.
//!
//! | step | producer | driver |
//! |---|---|---|
//! | 1 | commits a message | takes the staged messages, marks the channel as not queued |
//! | | full fence | full fence |
//! | 2 | looks whether the channel is queued | looks whether something was staged meanwhile |
//!
//! On two threads, each side could miss the other's first step without its fence. On the thread of
//! the driver's runtime program order is enough. The fence is left out there: it costs as much as
//! all the rest of a message.

mod encoding;
mod runs;
mod shared;

pub(crate) use runs::SHARED_RUN_BYTES_MIN;
pub(crate) use shared::{Failure, Settling, TxShared};

use super::clock;
use super::mail::{Command, LinkShared, Notice};
use super::memory::freed_apart;
use super::ring::{Backlog, Consumer, Producer, Tail, ring, ring_that_logs};
use super::wakers::locked;
use crate::error::{Account, SendError};
use crate::log::Recovered;
use crate::proto::limits::{INLINE_BYTES_MAX, RING_BYTES_LARGEST};
use crate::proto::message::{self, PREFIX_BYTES_MAX, TAG_LARGE};
use crate::proto::outbox::Beside;
use crate::proto::tuning::constants::RING_BYTES_INITIAL;
use crate::proto::tuning::rings::RingSize;
use bytes::Bytes;
use shared::{FAILED, MOVED, QUEUED};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// The sending end of a channel.
pub(crate) struct TxEnd {
    producer: Producer,
    ring_size: RingSize,
    /// Bytes of the longest message that goes through the ring. Longer ones travel in fragments,
    /// among them those that a ring never has room for.
    inline_bytes_max: usize,
    id: u32,
    accepted: u64,
    /// Number of messages accepted when the driver last learnt that there is no room for more.
    no_room_told: u64,
    /// Bytes staged since the last time the driver was woken.
    since_wake: usize,
    /// Bytes of the last message and of its prefix: the next one probably needs as many.
    last_bytes: usize,
    last_prefix: usize,
    /// Bytes of the last message, if it was a large one.
    last_large: usize,
    pub(crate) send_waits: u64,
    /// A large message may be beyond the backlog.
    passes_backlog: bool,
    /// The driver knows that nothing more comes.
    ended: bool,
    pub(crate) shared: Arc<TxShared>,
    pub(crate) link: Arc<LinkShared>,
}

/// Whether a message was staged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Staged {
    /// It was.
    Done,
    /// The ring has no room: a message that was encoded lies in the scratch.
    Full,
}

impl TxEnd {
    /// Makes an end, and the consumer of its ring for the driver.
    pub(crate) fn new(
        link: &Arc<LinkShared>,
        shared: &Arc<TxShared>,
        id: u32,
    ) -> (TxEnd, Consumer) {
        let ring_size = RingSize::new(link.ring_bytes(), link.without);
        let (producer, consumer) = ring(ring_size.initial());
        (TxEnd::with(producer, ring_size, link, shared, id), consumer)
    }

    /// As `new`, for a stream with a log, which may have messages already. The end sends its
    /// commands to `link`, whose driver is the thread that stores the stream's messages.
    pub(crate) fn logged(
        link: &Arc<LinkShared>,
        shared: &Arc<TxShared>,
        recovered: &Recovered,
    ) -> (TxEnd, Consumer, Tail) {
        // In one ring as far as it may be that large, so that the stream's bound counts them.
        let mut left: usize = recovered.staged.iter().map(|(staged, _)| staged.len()).sum();
        let room = |left: usize| left.clamp(RING_BYTES_INITIAL, RING_BYTES_LARGEST);
        let (producer, consumer, mut tail) = ring_that_logs(room(left));
        let ring_size = RingSize::new(link.ring_bytes(), link.without);
        let mut end = TxEnd::with(producer, ring_size, link, shared, 0);
        for (staged, messages) in &recovered.staged {
            if end.producer.free() < staged.len() {
                end.producer.replace(room(left));
            }
            end.producer.push_many(staged, *messages);
            left -= staged.len();
        }
        locked(&shared.slow).large_bytes = recovered.large.iter().map(Bytes::len).sum();
        shared.stage_large_again(recovered.large.iter().cloned().collect());
        tail.store_all();
        end.accepted = recovered.next();
        (end, consumer, tail)
    }

    fn with(
        mut producer: Producer,
        ring_size: RingSize,
        link: &Arc<LinkShared>,
        shared: &Arc<TxShared>,
        id: u32,
    ) -> TxEnd {
        let ring_bytes_max = ring_size.bytes_max();
        if let Some(stream) = shared.settling.stream() {
            producer.keep(stream.unread_bytes_max(ring_bytes_max));
        }
        let mut inline_bytes_max = INLINE_BYTES_MAX.min(ring_bytes_max - PREFIX_BYTES_MAX);
        if let Some((bytes_max, consumed)) = &shared.backlog {
            producer.bound(Backlog::new(*bytes_max, Arc::clone(consumed)));
            let bytes_max = usize::try_from(*bytes_max).unwrap_or(usize::MAX);
            inline_bytes_max = inline_bytes_max.min(bytes_max - PREFIX_BYTES_MAX);
        }
        TxEnd {
            producer,
            ring_size,
            inline_bytes_max,
            id,
            accepted: 0,
            no_room_told: 0,
            since_wake: 0,
            last_bytes: 0,
            last_prefix: 1,
            last_large: 0,
            send_waits: 0,
            passes_backlog: false,
            ended: false,
            shared: Arc::clone(shared),
            link: Arc::clone(link),
        }
    }

    /// Returns the number of messages accepted so far.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted
    }

    pub(crate) fn ring_bytes(&self) -> usize {
        self.producer.capacity()
    }

    pub(crate) fn written(&self) -> u64 {
        self.shared.written()
    }

    /// Returns the encoded bytes that can be staged without waiting, in messages that go through
    /// the ring.
    pub(crate) fn capacity(&mut self) -> usize {
        // A ring may be larger than its bound for a while.
        let grown = self.ring_size.bytes_max().saturating_sub(self.producer.capacity());
        (self.producer.free() + grown).min(self.producer.backlog_room())
    }

    /// Returns the number of bytes of the longest message that goes through the ring.
    pub(crate) fn inline_bytes_max(&self) -> usize {
        self.inline_bytes_max
    }

    /// Whether a message of `bytes` with its prefix would be staged without waiting, if it goes
    /// through the ring.
    pub(crate) fn has_room(&mut self, bytes: usize) -> bool {
        let bytes = bytes.min(self.ring_size.bytes_max()).min(self.producer.backlog_bytes_max());
        // A ring that keeps its messages grows further.
        let keeps = self.shared.settling.stream().is_some();
        let has = self.capacity() >= bytes || keeps && self.make_room(bytes);
        if !has {
            self.tell_no_room();
        }
        has
    }

    /// Whether a large message of any size would be staged without waiting, if it may pass the backlog.
    pub(crate) fn has_room_for_large(&mut self) -> bool {
        self.make_room(1) && locked(&self.shared.slow).large_bytes == 0
    }

    /// Stages by `stage`, whatever the backlog is: an item of a `Sink` that was ready, whose size
    /// nobody knew then.
    pub(crate) fn beyond_backlog<R>(&mut self, stage: impl FnOnce(&mut TxEnd) -> R) -> R {
        self.passes_backlog = true;
        let staged = stage(self);
        self.passes_backlog = false;
        staged
    }

    /// Stages the user's own bytes: a small message is copied in.
    pub(crate) fn stage_bytes(&mut self, payload: &Bytes) -> Result<Staged, SendError> {
        if payload.len() > self.inline_bytes_max {
            self.stage_large(payload)
        } else {
            self.stage_slice(payload)
        }
    }

    /// Stages a small message by copying it in.
    pub(crate) fn stage_slice(&mut self, payload: &[u8]) -> Result<Staged, SendError> {
        self.check_alive()?;
        if payload.len() > self.inline_bytes_max {
            return self.stage_large(&Bytes::copy_from_slice(payload));
        }
        let bytes = message::prefix_bytes(payload.len());
        if !self.make_room(bytes + payload.len()) {
            return Ok(Staged::Full);
        }
        let mut prefix = [0; 5];
        message::write_prefix(payload.len(), &mut prefix);
        self.producer.push(&prefix[..bytes], payload);
        self.committed(bytes + payload.len(), 1)?;
        Ok(Staged::Done)
    }

    /// Stages a message that travels as its own slice, without copy.
    pub(crate) fn stage_large(&mut self, payload: &Bytes) -> Result<Staged, SendError> {
        if self.takes_large(payload.len())? == Staged::Full {
            return Ok(Staged::Full);
        }
        self.push_large(freed_apart(payload.clone()))
    }

    /// Whether a large message of `bytes` can be staged now.
    fn takes_large(&mut self, bytes: usize) -> Result<Staged, SendError> {
        self.check_alive()?;
        let bytes_max = self.link.peer.message_bytes_max.min(self.shared.message_bytes_max());
        if bytes as u64 > bytes_max {
            return Err(SendError::TooLarge { bytes: bytes as u64, bytes_max });
        }
        if !self.make_room(1) {
            return Ok(Staged::Full);
        }
        // The driver only lowers the bytes of large messages, so the answer stays true.
        if !self.passes_backlog && !self.producer.backlog_admits(bytes) {
            self.tell_no_room();
            return Ok(Staged::Full);
        }
        Ok(if self.shared.admits_large(bytes) { Staged::Done } else { Staged::Full })
    }

    /// Stages a large message, for which there is room.
    fn push_large(&mut self, payload: Bytes) -> Result<Staged, SendError> {
        let bytes = payload.len();
        let mut slow = locked(&self.shared.slow);
        slow.large_bytes += payload.len();
        if self.shared.is_logged() {
            slow.large_unstored.push_back(payload.clone());
        }
        slow.beside.push_back(Beside::Large(payload));
        self.shared.large_pending.fetch_add(1, Ordering::Release);
        drop(slow);
        self.producer.push(&[TAG_LARGE], &[]);
        self.producer.count_large(bytes);
        self.committed(self.ring_size.wake_step(), 1)?;
        Ok(Staged::Done)
    }

    /// Whether `bytes` can be staged; grows the ring for that if allowed.
    fn make_room(&mut self, bytes: usize) -> bool {
        if self.producer.free_seen() >= bytes || self.look() >= bytes {
            return true;
        }
        if self.producer.has_released() {
            self.ring_size.released();
        }
        if self.producer.backlog_room() < bytes {
            // A larger ring would not help.
            self.tell_no_room();
            return false;
        }
        while let Some(grown) = self.grown() {
            self.producer.replace(grown);
            if self.producer.free() >= bytes {
                return true;
            }
        }
        self.tell_no_room();
        false
    }

    /// Returns the free bytes as seen now. Replaces a ring larger than its bound once it is empty.
    fn look(&mut self) -> usize {
        self.note_ring_bytes();
        self.producer.free();
        let bytes_max = self.ring_size.bytes_max();
        if self.producer.capacity() > bytes_max && self.producer.is_empty() {
            self.producer.replace(bytes_max);
        }
        self.producer.free_seen()
    }

    /// Returns the size of the next ring, if the ring may grow now. A ring that keeps its messages
    /// grows for the kept ones, not for those that the driver has not taken.
    fn grown(&mut self) -> Option<usize> {
        let capacity = self.producer.capacity();
        match self.shared.settling.stream() {
            None => self.ring_size.grown(capacity),
            Some(_) if self.producer.is_ahead() => None,
            Some(stream) => self.ring_size.grown_to_keep(capacity, stream.bytes_max),
        }
    }

    /// Reads the ring's bound.
    fn note_ring_bytes(&mut self) {
        self.ring_size.set_packet_bytes(self.link.ring_bytes());
        if let Some(stream) = self.shared.settling.stream() {
            self.producer.keep(stream.unread_bytes_max(self.ring_size.bytes_max()));
        }
    }

    /// Lets the staged messages leave: no more can be staged before they do.
    fn tell_no_room(&mut self) {
        if self.no_room_told != self.accepted {
            self.no_room_told = self.accepted;
            let until = self.accepted;
            let keeps = self.shared.settling.stream().is_some() && !self.producer.is_ahead();
            let (link, id) = self.channel();
            let at = clock::now();
            link.command(if keeps {
                // The peer reports at once which of the kept messages are settled.
                Command::Flush { id, until, at, sync: true }
            } else {
                Command::NoRoom { id, until, at }
            });
        }
    }

    #[inline(always)]
    pub(crate) fn check_alive(&self) -> Result<(), SendError> {
        if self.shared.flags.load(Ordering::Relaxed) & FAILED != 0 {
            return Err(self.error());
        }
        Ok(())
    }

    #[inline(always)]
    fn committed(&mut self, bytes: usize, messages: u32) -> Result<(), SendError> {
        self.accepted += u64::from(messages);
        self.since_wake += bytes;
        if !self.link.is_home() {
            fence(Ordering::SeqCst);
        }
        let flags = self.shared.flags.load(Ordering::Relaxed);
        if flags & (QUEUED | FAILED) != QUEUED || self.since_wake >= self.ring_size.wake_step() {
            return self.tell_driver(flags);
        }
        Ok(())
    }

    /// Returns the link, and the channel's number there: a stream may have moved to another
    /// channel.
    fn channel(&mut self) -> (&LinkShared, u32) {
        if self.shared.flags.load(Ordering::SeqCst) & MOVED != 0 {
            let mut slow = locked(&self.shared.slow);
            self.shared.flags.fetch_and(!MOVED, Ordering::SeqCst);
            if let Some((link, id)) = slow.moved.take() {
                self.link = link;
                self.id = id;
            }
        }
        (&self.link, self.id)
    }

    #[cold]
    fn tell_driver(&mut self, flags: u8) -> Result<(), SendError> {
        if flags & FAILED != 0 {
            // The driver may have looked at the ring for the last time before this message.
            return Err(self.error());
        }
        let bytes = std::mem::take(&mut self.since_wake);
        self.channel();
        if self.shared.flags.fetch_or(QUEUED, Ordering::SeqCst) & QUEUED == 0 {
            // A runtime of one thread runs its tasks in the order they were woken.
            let bytes = if self.link.is_home() { bytes } else { 0 };
            self.link.staged(Notice { id: self.id, at: clock::now(), bytes });
        } else {
            self.link.wake();
        }
        Ok(())
    }

    /// Lets everything accepted so far leave at once.
    pub(crate) fn urgent(&mut self) {
        let until = self.accepted;
        let (link, id) = self.channel();
        link.command(Command::Urgent { id, until, at: clock::now() });
    }

    /// Lets everything accepted so far leave; if `sync`, the peer acknowledges it at once.
    pub(crate) fn flush(&mut self, sync: bool) {
        let until = self.accepted;
        let (link, id) = self.channel();
        link.command(Command::Flush { id, until, at: clock::now(), sync });
    }

    /// Returns the number of acknowledged messages.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.shared.acked().min(self.accepted)
    }

    /// Returns the account of the accepted messages.
    pub(crate) fn account(&self) -> Account {
        self.shared.account(self.accepted)
    }

    /// Returns why nothing can be sent, if that is so.
    pub(crate) fn failed(&self) -> Option<SendError> {
        self.shared.has_failed().then(|| self.error())
    }

    /// Returns why accepted messages will not be written or acknowledged, if that is so. A closed
    /// channel is no reason: its messages still are.
    pub(crate) fn lost(&self) -> Option<SendError> {
        self.shared.is_lost().then(|| self.error())
    }

    /// Ends the channel behind the accepted messages. Every later call reports that the channel is
    /// closed.
    pub(crate) fn close(&mut self) {
        self.end();
        self.shared.close();
    }

    fn end(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            let messages = self.accepted;
            // First, because the task that opens the stream's next channel looks for it.
            self.shared.set_ended(messages);
            let (link, id) = self.channel();
            link.command(Command::End { id, messages, at: clock::now() });
        }
    }

    #[cold]
    fn error(&self) -> SendError {
        self.shared.error(&self.link.peer.name, self.account())
    }
}

impl Drop for TxEnd {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests;
