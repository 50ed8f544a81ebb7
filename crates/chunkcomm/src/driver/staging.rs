//! The sending end of a channel: messages go into its ring, the driver is told
//! when it has to know.
//!
//! # When the driver is woken
//!
//! A channel whose driver knows that it has something staged is *queued*. The
//! producer commits, then looks whether the channel is queued; the driver takes
//! what is staged, says that the channel is not queued, then looks whether
//! something was staged meanwhile. On two threads that needs a full fence
//! between the two steps on both sides, or each could miss the other's. On the
//! thread of the driver's runtime itself program order is enough, and the fence,
//! which costs as much as all the rest of a message, is left out.

use super::clock;
use super::mail::{Command, LinkShared};
use super::ring::{Consumer, Producer, ring};
use super::wakers::{Wakers, locked};
use crate::error::{
    Account, ChannelLost, ChannelName, ChannelRefused, LinkError, RefusalReason, SendError,
};
use crate::proto::codec::{self, EncodeError};
use crate::proto::limits::{
    INLINE_BYTES_MAX, LARGE_STAGED_BYTES_MAX, PACKET_OVERHEAD_BYTES, RING_BYTES_INITIAL,
    RING_GROWTH,
};
use crate::proto::message::{self, TAG_LARGE};
use bytes::Bytes;
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::task::Waker;

/// The driver knows that something is staged.
const QUEUED: u8 = 1;
/// Nothing can be sent any more.
const FAILED: u8 = 2;
/// Somebody waits for room, for bytes written, or for an acknowledgement.
const WAITING: u8 = 4;
/// The peer has the channel's end.
const ENDED: u8 = 8;

/// Why nothing can be sent on a channel any more.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    Lost(LinkError),
    Terminated,
    Refused(RefusalReason),
}

#[derive(Default)]
struct Slow {
    large: VecDeque<Bytes>,
    large_bytes: usize,
    failure: Option<Failure>,
    waiting: Wakers,
}

/// What the sending end of a channel and its link's driver share.
pub(crate) struct TxShared {
    pub(crate) name: String,
    /// The type, for a refusal.
    pub(crate) description: String,
    flags: AtomicU8,
    large_pending: AtomicU32,
    written: AtomicU64,
    acked: AtomicU64,
    slow: Mutex<Slow>,
}

impl TxShared {
    pub(crate) fn new(name: String, description: String) -> Arc<TxShared> {
        Arc::new(TxShared {
            name,
            description,
            flags: AtomicU8::new(0),
            large_pending: AtomicU32::new(0),
            written: AtomicU64::new(0),
            acked: AtomicU64::new(0),
            slow: Mutex::default(),
        })
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.flags.load(Ordering::Acquire) & FAILED != 0
    }

    /// There are large messages staged.
    pub(crate) fn has_large(&self) -> bool {
        self.large_pending.load(Ordering::Acquire) > 0
    }

    /// The oldest large message; its mark was taken from the ring.
    pub(crate) fn take_large(&self) -> Bytes {
        let mut slow = locked(&self.slow);
        let bytes = slow.large.pop_front().unwrap_or_default();
        slow.large_bytes -= bytes.len();
        drop(slow);
        self.large_pending.fetch_sub(1, Ordering::Release);
        self.progress();
        bytes
    }

    /// The ring was found empty. True when something was staged meanwhile.
    pub(crate) fn not_queued(&self, consumer: &mut Consumer) -> bool {
        self.flags.fetch_and(!QUEUED, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if consumer.is_empty() {
            return false;
        }
        // Either end may find this out; who sets the flag tells the driver.
        self.flags.fetch_or(QUEUED, Ordering::SeqCst) & QUEUED == 0
    }

    pub(crate) fn set_written(&self, messages: u64) {
        self.written.store(messages, Ordering::Release);
        self.progress();
    }

    pub(crate) fn set_acked(&self, messages: u64) {
        self.acked.store(messages, Ordering::Release);
        self.progress();
    }

    /// The channel's end is in the peer's inbox.
    pub(crate) fn set_end_acked(&self) {
        self.flags.fetch_or(ENDED, Ordering::Release);
        self.progress();
    }

    pub(crate) fn end_acked(&self) -> bool {
        self.flags.load(Ordering::Acquire) & ENDED != 0
    }

    pub(crate) fn acked(&self) -> u64 {
        self.acked.load(Ordering::Acquire)
    }

    /// Room came, or bytes were written or acknowledged: who waits looks again.
    pub(crate) fn progress(&self) {
        fence(Ordering::SeqCst);
        if self.flags.load(Ordering::Relaxed) & WAITING != 0 {
            self.wake_waiting();
        }
    }

    fn wake_waiting(&self) {
        let mut slow = locked(&self.slow);
        self.flags.fetch_and(!WAITING, Ordering::SeqCst);
        let waiting = slow.waiting.take();
        drop(slow);
        waiting.wake();
    }

    /// From now on nothing more is accepted; what is staged still leaves.
    pub(crate) fn refuse_more(&self, failure: Failure) {
        locked(&self.slow).failure.get_or_insert(failure);
        self.flags.fetch_or(FAILED, Ordering::SeqCst);
        self.wake_waiting();
    }

    /// From now on every call fails with this, and what is staged is dropped;
    /// the first failure stays.
    pub(crate) fn fail(&self, failure: Failure) {
        self.refuse_more(failure);
        let mut slow = locked(&self.slow);
        slow.large.clear();
        slow.large_bytes = 0;
    }

    /// Wakes `waker` at the next progress; after this the caller looks again.
    pub(crate) fn wait(&self, waker: &Waker) {
        let mut slow = locked(&self.slow);
        slow.waiting.add(waker);
        self.flags.fetch_or(WAITING, Ordering::SeqCst);
        drop(slow);
        fence(Ordering::SeqCst);
    }

    /// Why nothing can be sent to `peer` any more, with the account at hand.
    pub(crate) fn error(&self, peer: &str, account: Account) -> SendError {
        let channel = self.name.clone();
        let peer = peer.to_owned();
        match locked(&self.slow).failure.clone() {
            Some(Failure::Lost(link)) => {
                SendError::Lost(Arc::new(ChannelLost { channel, link, account }))
            }
            Some(Failure::Terminated) => {
                SendError::Terminated(Arc::new(ChannelName { channel, peer }))
            }
            Some(Failure::Refused(reason)) => {
                SendError::Refused(Arc::new(ChannelRefused { channel, peer, reason }))
            }
            None => SendError::Closed,
        }
    }
}

/// The sending end of a channel.
pub(crate) struct TxEnd {
    producer: Producer,
    ring_bytes_max: usize,
    id: u32,
    accepted: u64,
    /// Bytes staged since the driver was woken last.
    since_wake: usize,
    wake_step: usize,
    /// Bytes of the last message and of its prefix: what the next probably needs.
    last_bytes: usize,
    last_prefix: usize,
    pub(crate) send_waits: u64,
    pub(crate) shared: Arc<TxShared>,
    pub(crate) link: Arc<LinkShared>,
}

/// Whether a message was staged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Staged {
    Done,
    /// The ring has no room: it lies encoded in the scratch.
    Full,
}

impl TxEnd {
    /// An end and the consumer of its ring, for the driver.
    pub(crate) fn new(
        link: &Arc<LinkShared>,
        shared: &Arc<TxShared>,
        id: u32,
        packet_bytes_max: usize,
    ) -> (TxEnd, Consumer) {
        let ring_bytes_max = packet_bytes_max - PACKET_OVERHEAD_BYTES;
        let (producer, consumer) = ring(RING_BYTES_INITIAL.min(ring_bytes_max));
        let end = TxEnd {
            producer,
            ring_bytes_max,
            id,
            accepted: 0,
            since_wake: 0,
            wake_step: packet_bytes_max / 4,
            last_bytes: 0,
            last_prefix: 1,
            send_waits: 0,
            shared: Arc::clone(shared),
            link: Arc::clone(link),
        };
        (end, consumer)
    }

    /// Messages accepted so far.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted
    }

    pub(crate) fn ring_bytes(&self) -> usize {
        self.producer.capacity()
    }

    pub(crate) fn written(&self) -> u64 {
        self.shared.written.load(Ordering::Acquire)
    }

    /// Encoded bytes that can be staged without waiting, at least for a message
    /// that goes through the ring.
    pub(crate) fn capacity(&mut self) -> usize {
        let grown = self.ring_bytes_max - self.producer.capacity();
        self.producer.free() + grown
    }

    /// A large message of any size would be staged without waiting.
    pub(crate) fn has_room_for_large(&mut self) -> bool {
        self.make_room(1) && locked(&self.shared.slow).large_bytes == 0
    }

    /// Stages `value`, encoded in place; if there is no room, encoded in
    /// `scratch`.
    #[inline(always)]
    pub(crate) fn stage<T: Serialize>(
        &mut self,
        value: &T,
        scratch: &mut Vec<u8>,
    ) -> Result<Staged, SendError> {
        self.check_alive()?;
        let prefix = self.last_prefix;
        let out = self.producer.contiguous();
        if out.len() < prefix + self.last_bytes {
            return self.stage_slowly(value, scratch);
        }
        let end = out.len().min(prefix + INLINE_BYTES_MAX);
        match codec::encode_into_slice(value, &mut out[prefix..end]) {
            Ok(bytes) if message::prefix_bytes(bytes) == prefix => {
                message::write_prefix(bytes, out);
                self.last_bytes = bytes;
                self.producer.commit(prefix + bytes);
                self.committed(prefix + bytes);
                Ok(Staged::Done)
            }
            Ok(_) | Err(EncodeError::NoRoom) => self.stage_slowly(value, scratch),
            Err(error) => Err(SendError::Encode(Arc::new(error))),
        }
    }

    #[cold]
    #[inline(never)]
    fn stage_slowly<T: Serialize>(
        &mut self,
        value: &T,
        scratch: &mut Vec<u8>,
    ) -> Result<Staged, SendError> {
        // The ring may have been emptied since it was looked at last.
        let contiguous = self.producer.contiguous().len();
        self.producer.free();
        let needed = self.last_prefix + self.last_bytes;
        if contiguous < needed && self.producer.contiguous().len() >= needed {
            return self.stage(value, scratch);
        }
        scratch.clear();
        codec::encode_into_vec(value, scratch).map_err(|error| SendError::Encode(Arc::new(error)))?;
        self.stage_scratch(scratch)
    }

    /// Stages the encoded message in `scratch`. `Full` leaves it there.
    pub(crate) fn stage_scratch(&mut self, scratch: &mut Vec<u8>) -> Result<Staged, SendError> {
        if scratch.len() <= INLINE_BYTES_MAX {
            self.last_bytes = scratch.len();
            self.last_prefix = message::prefix_bytes(scratch.len());
            return self.stage_slice(scratch);
        }
        self.last_bytes = 0;
        let bytes = Bytes::from(std::mem::take(scratch));
        match self.stage_large(&bytes) {
            Ok(Staged::Done) => Ok(Staged::Done),
            other => {
                // Nobody else holds it, so that this does not copy.
                *scratch = Vec::from(bytes);
                other
            }
        }
    }

    /// Stages a small message by copying it in.
    pub(crate) fn stage_slice(&mut self, payload: &[u8]) -> Result<Staged, SendError> {
        self.check_alive()?;
        if payload.len() > INLINE_BYTES_MAX {
            return self.stage_large(&Bytes::copy_from_slice(payload));
        }
        let bytes = message::prefix_bytes(payload.len());
        if !self.make_room(bytes + payload.len()) {
            return Ok(Staged::Full);
        }
        let mut prefix = [0; 5];
        message::write_prefix(payload.len(), &mut prefix);
        self.producer.push(&prefix[..bytes], payload);
        self.committed(bytes + payload.len());
        Ok(Staged::Done)
    }

    /// Stages a message that travels as its own slice, without copy.
    pub(crate) fn stage_large(&mut self, payload: &Bytes) -> Result<Staged, SendError> {
        self.check_alive()?;
        let bytes_max = self.link.peer.message_bytes_max;
        if payload.len() as u64 > bytes_max {
            return Err(SendError::TooLarge { bytes: payload.len() as u64, bytes_max });
        }
        if !self.make_room(1) {
            return Ok(Staged::Full);
        }
        let mut slow = locked(&self.shared.slow);
        let fits = slow.large_bytes + payload.len() <= LARGE_STAGED_BYTES_MAX;
        if slow.large_bytes > 0 && !fits {
            return Ok(Staged::Full);
        }
        slow.large_bytes += payload.len();
        slow.large.push_back(payload.clone());
        self.shared.large_pending.fetch_add(1, Ordering::Release);
        drop(slow);
        self.producer.push(&[TAG_LARGE], &[]);
        self.committed(self.wake_step);
        Ok(Staged::Done)
    }

    /// True when `bytes` can be staged; grows the ring for it if that is allowed.
    fn make_room(&mut self, bytes: usize) -> bool {
        if self.producer.free_seen() >= bytes || self.producer.free() >= bytes {
            return true;
        }
        while self.producer.capacity() < self.ring_bytes_max {
            let capacity = (self.producer.capacity() * RING_GROWTH).min(self.ring_bytes_max);
            self.producer.grow(capacity);
            if self.producer.free() >= bytes {
                return true;
            }
        }
        false
    }

    #[inline(always)]
    fn check_alive(&self) -> Result<(), SendError> {
        if self.shared.flags.load(Ordering::Relaxed) & FAILED != 0 {
            return Err(self.error());
        }
        Ok(())
    }

    #[inline(always)]
    fn committed(&mut self, bytes: usize) {
        self.accepted += 1;
        self.since_wake += bytes;
        if !self.link.is_home() {
            fence(Ordering::SeqCst);
        }
        let queued = self.shared.flags.load(Ordering::Relaxed) & QUEUED != 0;
        if !queued || self.since_wake >= self.wake_step {
            self.tell_driver();
        }
    }

    #[cold]
    fn tell_driver(&mut self) {
        self.since_wake = 0;
        if self.shared.flags.fetch_or(QUEUED, Ordering::SeqCst) & QUEUED == 0 {
            self.link.staged(self.id, clock::now());
        } else {
            self.link.wake();
        }
    }

    /// Everything accepted so far leaves at once.
    pub(crate) fn urgent(&self) {
        let (id, until) = (self.id, self.accepted);
        self.link.command(Command::Urgent { id, until, at: clock::now() });
    }

    /// Everything accepted so far leaves, and is acknowledged at once if `sync`.
    pub(crate) fn flush(&self, sync: bool) {
        let (id, until) = (self.id, self.accepted);
        self.link.command(Command::Flush { id, until, at: clock::now(), sync });
    }

    /// Messages accepted and acknowledged.
    pub(crate) fn account(&self) -> Account {
        let acknowledged = self.shared.acked().min(self.accepted);
        Account { accepted: self.accepted, acknowledged }
    }

    /// Why nothing can be sent, if that is so.
    pub(crate) fn failed(&self) -> Option<SendError> {
        self.shared.has_failed().then(|| self.error())
    }

    #[cold]
    fn error(&self) -> SendError {
        self.shared.error(&self.link.peer.name, self.account())
    }
}

impl Drop for TxEnd {
    fn drop(&mut self) {
        let (id, messages) = (self.id, self.accepted);
        self.link.command(Command::End { id, messages, at: clock::now() });
    }
}
