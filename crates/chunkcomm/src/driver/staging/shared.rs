//! State that the sending end of a channel shares with the driver of its link.

use crate::driver::keeping::Stream;
use crate::driver::mail::LinkShared;
use crate::driver::ring::{Consumer, Tail};
use crate::driver::wakers::{Wakers, locked};
use crate::error::{
    Account, ChannelLost, ChannelName, ChannelRefused, LinkError, LogError, RefusalReason,
    SendError,
};
use crate::log::Counters as LogCounters;
use crate::proto::limits::LARGE_STAGED_BYTES_MAX;
use crate::proto::outbox::{Beside, ChannelCounters};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// The driver knows that something is staged.
pub(super) const QUEUED: u8 = 1;
/// Nothing can be sent any more.
pub(super) const FAILED: u8 = 2;
/// A task waits for room, for bytes written, or for an acknowledgement.
pub(super) const WAITING: u8 = 4;
/// The peer has received the channel's end.
pub(super) const ENDED: u8 = 8;
/// A task watches the channel's progress, and waits for nothing.
const WATCHED: u8 = 16;
/// No further message of the channel will be acknowledged.
const FINAL: u8 = 32;
/// A task has learnt that the channel failed, and how many of its messages arrived.
const TOLD: u8 = 64;
/// The stream goes on over another channel, which its sender has not looked up yet.
pub(super) const MOVED: u8 = 128;

/// Why nothing can be sent on a channel any more.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    Lost(LinkError),
    Terminated,
    Refused(RefusalReason),
    Log(Arc<LogError>),
}

#[derive(Default)]
pub(super) struct Slow {
    pub(super) beside: VecDeque<Beside>,
    pub(super) large_bytes: usize,
    /// In a stream with a log: the large messages that are not stored.
    pub(super) large_unstored: VecDeque<Bytes>,
    log_counters: LogCounters,
    /// A stream's next channel: its link and its number there.
    pub(super) moved: Option<(Arc<LinkShared>, u32)>,
    /// Number of messages in all, once the sender of a stream is done.
    ended: Option<u64>,
    failure: Option<Failure>,
    waiting: Wakers,
    watching: Wakers,
}

/// Treatment of messages that the receiver has not settled.
#[derive(Clone)]
pub(crate) enum Settling {
    /// The receiver settles nothing.
    No,
    /// Unsettled messages are counted.
    Counted,
    /// Unsettled messages are kept and sent again.
    Kept(Arc<Stream>),
}

impl Settling {
    /// Returns the stream whose messages are kept.
    pub(crate) fn stream(&self) -> Option<&Arc<Stream>> {
        match self {
            Settling::Kept(stream) => Some(stream),
            Settling::No | Settling::Counted => None,
        }
    }
}

/// State that the sending end of a channel shares with its link's driver.
pub(crate) struct TxShared {
    pub(crate) name: String,
    /// Description of the message type, for a refusal.
    pub(crate) description: String,
    pub(super) flags: AtomicU8,
    pub(super) large_pending: AtomicU32,
    pub(super) written: AtomicU64,
    acked: AtomicU64,
    settled: AtomicU64,
    /// In a stream with a log: number of messages that are stored.
    stored: AtomicU64,
    /// As `stored`, with the messages that are being stored or could not be.
    storing: AtomicU64,
    /// In a stream: bytes of the longest message that its last peer takes.
    message_bytes_max: AtomicU64,
    /// Treatment of messages that the receiver has not settled.
    pub(crate) settling: Settling,
    /// Most bytes that are accepted and not consumed, if that is bounded, and the consumed ones.
    pub(super) backlog: Option<(u64, Arc<AtomicU64>)>,
    counters: Mutex<ChannelCounters>,
    pub(super) slow: Mutex<Slow>,
}

impl TxShared {
    pub(crate) fn new(name: String, description: String, settling: Settling) -> Arc<TxShared> {
        TxShared::bounded(name, description, settling, None)
    }

    /// As `new`, for a channel whose backlog may be bounded.
    pub(crate) fn bounded(
        name: String,
        description: String,
        settling: Settling,
        backlog: Option<u64>,
    ) -> Arc<TxShared> {
        Arc::new(TxShared {
            settling,
            backlog: backlog.map(|bytes_max| (bytes_max, Arc::default())),
            settled: AtomicU64::new(0),
            stored: AtomicU64::new(0),
            storing: AtomicU64::new(0),
            message_bytes_max: AtomicU64::new(u64::MAX),
            name,
            description,
            flags: AtomicU8::new(0),
            large_pending: AtomicU32::new(0),
            written: AtomicU64::new(0),
            acked: AtomicU64::new(0),
            counters: Mutex::default(),
            slow: Mutex::default(),
        })
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.flags.load(Ordering::Acquire) & FAILED != 0
    }

    /// Whether the channel failed for another reason than that it was closed.
    pub(crate) fn is_lost(&self) -> bool {
        self.has_failed() && locked(&self.slow).failure.is_some()
    }

    /// Whether the peer refused the channel.
    pub(crate) fn is_refused(&self) -> bool {
        self.has_failed() && matches!(locked(&self.slow).failure, Some(Failure::Refused(_)))
    }

    /// Notes that the sender has ended the channel: staged messages still leave.
    pub(super) fn close(&self) {
        self.flags.fetch_or(FAILED, Ordering::SeqCst);
        self.wake_waiting();
    }

    /// Whether a task waits for room, for bytes written, or for an acknowledgement.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & WAITING != 0
    }

    /// Whether large messages are staged.
    #[inline]
    pub(crate) fn has_large(&self) -> bool {
        self.large_pending.load(Ordering::Acquire) > 0
    }

    /// Takes the oldest bytes beside the ring, whose mark was taken from it.
    pub(crate) fn take_beside(&self) -> Beside {
        let beside = locked(&self.slow).beside.pop_front();
        let beside = beside.unwrap_or(Beside::Large(Bytes::new()));
        self.large_pending.fetch_sub(1, Ordering::Release);
        if self.settling.stream().is_none() {
            let (Beside::Large(bytes) | Beside::Run(bytes, _)) = &beside;
            self.large_released(bytes.len());
        }
        beside
    }

    /// Notes that a large message of `bytes` is no longer kept.
    pub(crate) fn large_released(&self, bytes: usize) {
        let mut slow = locked(&self.slow);
        slow.large_bytes = slow.large_bytes.saturating_sub(bytes);
        drop(slow);
        self.progress();
    }

    /// Stages large messages again that were taken, in front of all others.
    pub(crate) fn stage_large_again(&self, larges: Vec<Bytes>) {
        let mut slow = locked(&self.slow);
        self.large_pending.fetch_add(larges.len() as u32, Ordering::Release);
        for large in larges.into_iter().rev() {
            slow.beside.push_front(Beside::Large(large));
        }
    }

    /// Returns the bytes of the longest large message that is staged.
    pub(crate) fn longest_large(&self) -> u64 {
        let slow = locked(&self.slow);
        let large = slow.beside.iter().filter_map(|it| match it {
            Beside::Large(bytes) => Some(bytes.len() as u64),
            Beside::Run(..) => None,
        });
        large.max().unwrap_or(0)
    }

    /// Returns whether there is room for a large message of `bytes` beside those that are staged or
    /// kept. If there are none, a message of any size has room.
    pub(super) fn admits_large(&self, bytes: usize) -> bool {
        let staged = locked(&self.slow).large_bytes;
        let stream = self.settling.stream();
        let bytes_max = stream.map_or(LARGE_STAGED_BYTES_MAX, |stream| stream.bytes_max);
        staged == 0 || staged + bytes <= bytes_max
    }

    /// Lets the stream go on over channel `id` of `link`. The sender looks that up before its next
    /// command to the driver.
    pub(crate) fn move_to(&self, link: &Arc<LinkShared>, id: u32) {
        locked(&self.slow).moved = Some((Arc::clone(link), id));
        if self.is_logged() {
            // The thread that stores messages looks for the new channel each time.
            self.flags.fetch_and(!ENDED, Ordering::SeqCst);
            return;
        }
        self.flags.fetch_or(MOVED, Ordering::SeqCst);
        // The driver must learn of the next message, and a received end is to be sent again.
        self.flags.fetch_and(!(QUEUED | ENDED), Ordering::SeqCst);
    }

    /// Notes that the driver knows that something may be staged.
    pub(crate) fn set_queued(&self) {
        self.flags.fetch_or(QUEUED, Ordering::SeqCst);
    }

    /// Notes that the sender is done after `messages`, whatever channel its stream then has.
    pub(super) fn set_ended(&self, messages: u64) {
        locked(&self.slow).ended = Some(messages);
    }

    /// Returns the number of messages in all, if the sender is done.
    pub(crate) fn ended(&self) -> Option<u64> {
        locked(&self.slow).ended
    }

    /// Returns the `sent` bytes that the receiver has not consumed, and their bound; `None` without a
    /// backlog, or when all are consumed.
    pub(crate) fn backlog_held(&self, sent: u64) -> Option<(u64, u64)> {
        let (bytes_max, consumed) = self.backlog.as_ref()?;
        let held = sent.saturating_sub(consumed.load(Ordering::Acquire));
        (held > 0).then_some((held, *bytes_max))
    }

    /// Notes that the receiver has consumed `bytes` in all, and wakes who waits for room.
    pub(crate) fn set_consumed(&self, bytes: u64) {
        if let Some((_, consumed)) = &self.backlog {
            consumed.fetch_max(bytes, Ordering::AcqRel);
            self.progress();
        }
    }

    pub(crate) fn set_settled(&self, messages: u64) {
        self.settled.fetch_max(messages, Ordering::AcqRel);
        self.progress();
    }

    /// Returns the number of messages that the receiver has settled.
    pub(crate) fn settled(&self) -> u64 {
        self.settled.load(Ordering::Acquire)
    }

    /// Returns whether messages are stored in a log before they leave.
    pub(crate) fn is_logged(&self) -> bool {
        self.settling.stream().is_some_and(|stream| stream.is_logged())
    }

    /// Returns whether the messages stay safe in a log when their channel ends.
    pub(crate) fn outlives_its_node(&self) -> bool {
        self.is_logged() && !self.has_log_failed()
    }

    /// Begins with the state that earlier processes left: `settled` and `stored` messages.
    pub(crate) fn begin_with(&self, settled: u64, stored: u64) {
        self.written.store(settled, Ordering::Release);
        self.acked.store(settled, Ordering::Release);
        self.settled.store(settled, Ordering::Release);
        self.stored.store(stored, Ordering::Release);
        self.storing.store(stored, Ordering::Release);
    }

    /// Notes the bytes of the longest message that the stream's peer takes.
    pub(crate) fn set_message_bytes_max(&self, bytes: u64) {
        self.message_bytes_max.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn message_bytes_max(&self) -> u64 {
        self.message_bytes_max.load(Ordering::Relaxed)
    }

    /// Notes that messages below this number are to be stored.
    pub(crate) fn set_storing(&self, messages: u64) {
        self.storing.store(messages, Ordering::Release);
    }

    /// Returns the number of messages that are or were to be stored.
    pub(crate) fn storing(&self) -> u64 {
        self.storing.load(Ordering::Acquire)
    }

    /// Returns whether the log failed.
    pub(crate) fn has_log_failed(&self) -> bool {
        matches!(locked(&self.slow).failure, Some(Failure::Log(_)))
    }

    pub(crate) fn set_stored(&self, messages: u64, counters: LogCounters) {
        locked(&self.slow).log_counters = counters;
        self.stored.store(messages, Ordering::Release);
        self.progress();
    }

    /// Returns the number of messages that are stored in the log.
    pub(crate) fn stored(&self) -> u64 {
        self.stored.load(Ordering::Acquire)
    }

    pub(crate) fn log_counters(&self) -> LogCounters {
        locked(&self.slow).log_counters
    }

    /// Returns whether large messages wait to be stored.
    pub(crate) fn has_large_unstored(&self) -> bool {
        !locked(&self.slow).large_unstored.is_empty()
    }

    /// Takes the `count` oldest large messages that are not stored.
    pub(crate) fn take_large_unstored(&self, count: usize) -> Vec<Bytes> {
        let unstored = &mut locked(&self.slow).large_unstored;
        let count = count.min(unstored.len());
        unstored.drain(..count).collect()
    }

    /// Takes the stream's newest channel, if it has moved: its link and its number there.
    pub(crate) fn take_moved(&self) -> Option<(Arc<LinkShared>, u32)> {
        locked(&self.slow).moved.take()
    }

    /// Notes that the ring was found empty. Returns whether something was staged meanwhile.
    #[inline]
    pub(crate) fn not_queued(&self, consumer: &mut Consumer) -> bool {
        // With a log, the sender wakes the thread that stores messages, and that thread the driver.
        !self.is_logged() && self.unqueue(|| consumer.is_empty())
    }

    /// As `not_queued`, when all messages were found stored.
    pub(crate) fn is_staged_again(&self, tail: &mut Tail) -> bool {
        self.unqueue(|| tail.is_empty())
    }

    #[inline]
    fn unqueue(&self, is_empty: impl FnOnce() -> bool) -> bool {
        self.flags.fetch_and(!QUEUED, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if is_empty() {
            return false;
        }
        // Both ends may find this out; the one that sets the flag wakes the driver.
        self.flags.fetch_or(QUEUED, Ordering::SeqCst) & QUEUED == 0
    }

    /// Notes the counters of the messages written so far.
    #[inline]
    pub(crate) fn set_counters(&self, counters: &ChannelCounters) {
        *locked(&self.counters) = *counters;
    }

    pub(crate) fn counters(&self) -> ChannelCounters {
        *locked(&self.counters)
    }

    /// Returns the number of messages that were handed to the transport.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn set_written(&self, messages: u64) {
        self.written.store(messages, Ordering::Release);
        self.progress();
    }

    /// As `set_written`, where more may be known to be written.
    pub(crate) fn set_written_at_least(&self, messages: u64) {
        self.written.fetch_max(messages, Ordering::AcqRel);
        self.progress();
    }

    #[inline]
    pub(crate) fn set_acked(&self, messages: u64) {
        // A stream may be sent again from an earlier message on.
        self.acked.fetch_max(messages, Ordering::AcqRel);
        self.progress();
    }

    /// Notes that the channel's end is in the peer's inbox.
    pub(crate) fn set_end_acked(&self) {
        self.flags.fetch_or(ENDED, Ordering::Release);
        self.progress();
    }

    pub(crate) fn end_acked(&self) -> bool {
        self.flags.load(Ordering::Acquire) & ENDED != 0
    }

    /// Whether no further message will be acknowledged.
    pub(crate) fn is_final(&self) -> bool {
        self.flags.load(Ordering::Acquire) & (ENDED | FINAL) != 0
    }

    /// Returns the account of `accepted` messages, as a loss or a close states it.
    pub(crate) fn account(&self, accepted: u64) -> Account {
        let settles = self.settling.stream().is_some();
        let done = if settles { self.settled() } else { self.acked() };
        Account { accepted, acknowledged: done.min(accepted), settles }
    }

    pub(crate) fn acked(&self) -> u64 {
        self.acked.load(Ordering::Acquire)
    }

    /// Wakes waiting tasks: there is new room, or bytes were written or acknowledged.
    #[inline]
    pub(crate) fn progress(&self) {
        fence(Ordering::SeqCst);
        if self.flags.load(Ordering::Relaxed) & (WAITING | WATCHED) != 0 {
            self.wake_waiting();
        }
    }

    fn wake_waiting(&self) {
        let mut slow = locked(&self.slow);
        self.flags.fetch_and(!(WAITING | WATCHED), Ordering::SeqCst);
        let (waiting, watching) = (slow.waiting.take(), slow.watching.take());
        drop(slow);
        waiting.wake();
        watching.wake();
    }

    /// Is ready when `done` returns true, which is asked at each progress. A task that watches does
    /// not count as one that waits for the peer.
    pub(crate) fn poll_watch(
        &self,
        context: &mut Context<'_>,
        done: impl Fn(&TxShared) -> bool,
    ) -> Poll<()> {
        if done(self) {
            return Poll::Ready(());
        }
        let mut slow = locked(&self.slow);
        slow.watching.add(context.waker());
        self.flags.fetch_or(WATCHED, Ordering::SeqCst);
        drop(slow);
        fence(Ordering::SeqCst);
        if done(self) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Accepts nothing more from now on; staged messages still leave.
    pub(crate) fn refuse_more(&self, failure: Failure) {
        locked(&self.slow).failure.get_or_insert(failure);
        self.flags.fetch_or(FAILED, Ordering::SeqCst);
        // A commit that did not see the flag is found by the next look at the ring.
        fence(Ordering::SeqCst);
        self.wake_waiting();
    }

    /// Makes every call fail from now on, and drops staged large messages. The first failure stays.
    pub(crate) fn fail(&self, failure: Failure) {
        // Messages written to a receiver that then went away are still acknowledged.
        if !matches!(failure, Failure::Terminated) {
            self.flags.fetch_or(FINAL, Ordering::Release);
        }
        self.refuse_more(failure);
        let mut slow = locked(&self.slow);
        slow.beside.clear();
        slow.large_bytes = 0;
    }

    /// Notes that a task has learnt what became of the messages.
    pub(crate) fn set_told(&self) {
        self.flags.fetch_or(TOLD, Ordering::Relaxed);
    }

    pub(crate) fn is_told(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & TOLD != 0
    }

    /// Wakes `waker` at the next progress; after this the caller looks again.
    pub(crate) fn wait(&self, waker: &Waker) {
        let mut slow = locked(&self.slow);
        slow.waiting.add(waker);
        self.flags.fetch_or(WAITING, Ordering::SeqCst);
        drop(slow);
        fence(Ordering::SeqCst);
    }

    /// Returns why nothing can be sent to `peer` any more, with the `account` at hand, and counts
    /// it as reported.
    pub(crate) fn error(&self, peer: &str, account: Account) -> SendError {
        let cause = self.cause(peer, account);
        if matches!(cause, SendError::Lost(_) | SendError::Refused(_)) {
            self.set_told();
        }
        cause
    }

    fn cause(&self, peer: &str, account: Account) -> SendError {
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
            Some(Failure::Log(error)) => SendError::Log(error),
            None => SendError::Closed,
        }
    }
}
