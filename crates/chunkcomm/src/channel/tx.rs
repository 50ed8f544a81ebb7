//! The part that all senders have in common: the end of the channel, alone or shared
//! with clones, and the waits.

mod sink;

use crate::driver::clock;
use crate::driver::mail::LinkShared;
use crate::driver::staging::{Settling, Staged, TxEnd, TxShared};
use crate::driver::wakers::locked;
use crate::error::{CloseError, SendError, TrySendError, Unacknowledged};
use crate::node::Peer;
use crate::proto::codec;
use crate::proto::message::PREFIX_BYTES_MAX;
use crate::stats::ChannelStats;
use ::bytes::Bytes;
use serde::Serialize;
use sink::{stage_behind, stage_held};
use std::borrow::Borrow;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// The end of the channel: this sender's alone until it is cloned, then behind a lock, taken
/// once a message.
enum Slot {
    /// `None` only while [`Slot::share`] moves it.
    Own(Option<Box<TxEnd>>),
    Shared(Arc<Mutex<TxEnd>>),
}

impl Slot {
    #[inline]
    fn with<R>(&mut self, act: impl FnOnce(&mut TxEnd) -> R) -> R {
        match self {
            Slot::Own(end) => act(end.as_mut().expect("it is moved under the lock only")),
            Slot::Shared(end) => act(&mut locked(end)),
        }
    }

    /// Puts the end behind a lock that clones share.
    fn share(&mut self) -> Arc<Mutex<TxEnd>> {
        let shared = match self {
            Slot::Own(end) => {
                let end = end.take().expect("it is moved under the lock only");
                Arc::new(Mutex::new(*end))
            }
            Slot::Shared(end) => Arc::clone(end),
        };
        *self = Slot::Shared(Arc::clone(&shared));
        shared
    }

    /// Whether no clone has the end as well.
    fn is_last(&self) -> bool {
        match self {
            Slot::Own(_) => true,
            // Only this sender could clone it now.
            Slot::Shared(end) => Arc::strong_count(end) == 1,
        }
    }
}

/// A message that waits for room.
#[derive(Debug)]
pub enum Waiting<'a> {
    /// Encoded in the scratch.
    Scratch,
    /// The user's own bytes; large ones are not copied.
    Bytes(&'a Bytes),
    /// The user's own bytes, to be copied.
    Slice(&'a [u8]),
    /// The item of a `Sink` that is held; all others wait behind it.
    Held,
}

/// The sending end under every public sender.
///
/// Messages are *staged*: encoded into the channel's ring. A message that finds no room is in the
/// scratch or with the caller, and is staged again when there is room.
pub struct Tx {
    slot: Mutex<Slot>,
    scratch: Vec<u8>,
    /// Whether it was ready as a `Sink`, and no item has come since.
    ready: bool,
    /// An item of the `Sink` whose room a clone took; see [`sink`].
    held: Option<Bytes>,
    shared: Arc<TxShared>,
    pub(crate) peer: Peer,
}

impl Tx {
    pub(crate) fn new(end: TxEnd, peer: Peer) -> Tx {
        let shared = Arc::clone(&end.shared);
        Tx::from_slot(Slot::Own(Some(Box::new(end))), shared, peer)
    }

    fn from_slot(slot: Slot, shared: Arc<TxShared>, peer: Peer) -> Tx {
        let (slot, scratch) = (Mutex::new(slot), Vec::new());
        Tx { slot, scratch, ready: false, held: None, shared, peer }
    }

    /// Does something with the end.
    #[inline]
    pub(crate) fn with<R>(&mut self, act: impl FnOnce(&mut TxEnd) -> R) -> R {
        self.slot.get_mut().unwrap_or_else(PoisonError::into_inner).with(act)
    }

    /// Returns the state of the channel that its ends and the driver share.
    pub(crate) fn shared(&self) -> Arc<TxShared> {
        Arc::clone(&self.shared)
    }

    pub(crate) fn link(&self) -> Arc<LinkShared> {
        locked(&self.slot).with(|end: &mut TxEnd| Arc::clone(&end.link))
    }

    /// Returns whether a message of `bytes` bytes can be staged now; `None` when the channel has
    /// ended.
    pub fn has_room(&mut self, bytes: usize) -> Option<bool> {
        self.with(|end| match end.failed() {
            Some(_) => None,
            None => Some(end.has_room(bytes + PREFIX_BYTES_MAX)),
        })
    }

    /// Whether this thread is the driver's.
    pub(crate) fn is_home(&mut self) -> bool {
        self.with(|end| end.link.is_home())
    }

    /// Stages `value`. After `Full` it lies encoded in the scratch.
    ///
    /// # Errors
    ///
    /// The value cannot be sent, or the channel has ended.
    #[inline(always)]
    pub fn stage<T: Serialize>(&mut self, value: &T) -> Result<Staged, SendError> {
        match self.slot.get_mut().unwrap_or_else(PoisonError::into_inner) {
            Slot::Own(end) => {
                let end = end.as_mut().expect("it is moved under the lock only");
                end.stage(value, &mut self.scratch)
            }
            Slot::Shared(end) => stage_shared(end, value, &mut self.scratch, &mut self.held),
        }
    }

    /// Stages values of `values` and commits them together, if this sender has
    /// the end alone; see [`TxEnd::stage_many`].
    #[inline]
    pub(crate) fn stage_many<T, V>(
        &mut self,
        values: &mut impl Iterator<Item = V>,
    ) -> Result<(u32, Option<V>), SendError>
    where
        T: Serialize,
        V: Borrow<T>,
    {
        match self.slot.get_mut().unwrap_or_else(PoisonError::into_inner) {
            Slot::Own(Some(end)) => {
                end.check_alive()?;
                end.stage_many(values)
            }
            _ => Ok((0, values.next())),
        }
    }

    /// Stages `waiting`, behind an item that is held.
    ///
    /// # Errors
    ///
    /// As [`Self::stage`].
    pub fn stage_waiting(&mut self, waiting: &Waiting<'_>) -> Result<Staged, SendError> {
        let (scratch, held) = (&mut self.scratch, &mut self.held);
        let slot = self.slot.get_mut().unwrap_or_else(PoisonError::into_inner);
        slot.with(|end| stage_behind(end, held, scratch, waiting))
    }

    /// Waits until `waiting` is staged.
    ///
    /// # Errors
    ///
    /// As [`Self::stage`].
    pub fn poll_stage(
        &mut self,
        context: &mut Context<'_>,
        waiting: &Waiting<'_>,
    ) -> Poll<Result<(), SendError>> {
        if self.stage_waiting(waiting)? == Staged::Done {
            return Poll::Ready(Ok(()));
        }
        self.with(|end| end.send_waits += 1);
        self.shared.wait(context.waker());
        match self.stage_waiting(waiting)? {
            Staged::Done => Poll::Ready(Ok(())),
            Staged::Full => Poll::Pending,
        }
    }

    /// Waits until the message is staged.
    ///
    /// # Errors
    ///
    /// As [`Self::stage`].
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it has staged nothing.
    pub async fn stage_later(&mut self, waiting: Waiting<'_>) -> Result<(), SendError> {
        poll_fn(|context| self.poll_stage(context, &waiting)).await
    }

    pub(crate) fn try_send<T: Serialize>(&mut self, value: &T) -> Result<(), TrySendError> {
        match self.stage(value) {
            Ok(Staged::Done) => Ok(()),
            Ok(Staged::Full) => Err(TrySendError::Full),
            Err(error) => Err(TrySendError::Failed(error)),
        }
    }

    /// Waits until a message of `bytes` bytes can be staged; fails if it never can.
    pub(crate) async fn reserve(&mut self, bytes: usize) -> Result<(), SendError> {
        let bytes_max = self.with(|end| end.inline_bytes_max());
        if bytes > bytes_max {
            return Err(SendError::TooLargeToReserve { bytes, bytes_max });
        }
        poll_fn(|context| self.poll_reserve(context, bytes)).await
    }

    /// Waits until a message of `bytes` bytes can be staged.
    ///
    /// # Errors
    ///
    /// The channel has ended.
    pub fn poll_reserve(
        &mut self,
        context: &mut Context<'_>,
        bytes: usize,
    ) -> Poll<Result<(), SendError>> {
        self.poll_capacity(context, bytes + PREFIX_BYTES_MAX)
    }

    /// Waits until `bytes` bytes can be staged, prefixes included.
    fn poll_capacity(
        &mut self,
        context: &mut Context<'_>,
        bytes: usize,
    ) -> Poll<Result<(), SendError>> {
        ready!(self.poll_held(context))?;
        for last in [false, true] {
            if let Some(error) = self.with(|end| end.failed()) {
                return Poll::Ready(Err(error));
            }
            if self.with(|end| end.has_room(bytes)) {
                return Poll::Ready(Ok(()));
            }
            if !last {
                self.shared.wait(context.waker());
            }
        }
        Poll::Pending
    }

    /// Waits until nothing can be sent any more; returns the reason.
    pub fn poll_failed(&mut self, context: &mut Context<'_>) -> Poll<SendError> {
        if let Some(error) = self.with(|end| end.failed()) {
            return Poll::Ready(error);
        }
        self.shared.wait(context.waker());
        match self.with(|end| end.failed()) {
            Some(error) => Poll::Ready(error),
            None => Poll::Pending,
        }
    }

    /// Waits until what was accepted so far is written.
    pub(crate) async fn flush(&mut self) -> Result<(), SendError> {
        poll_fn(|context| self.poll_held(context)).await?;
        let until = self.with(|end| {
            end.flush(false);
            end.accepted()
        });
        self.reached(until, TxEnd::written).await
    }

    /// Waits until what was accepted so far is acknowledged.
    pub(crate) async fn sync(&mut self) -> Result<(), SendError> {
        poll_fn(|context| self.poll_held(context)).await?;
        let until = self.with(|end| {
            end.flush(true);
            end.accepted()
        });
        self.reached(until, TxEnd::acknowledged).await
    }

    /// Waits until the receiver has settled what was accepted so far.
    pub(crate) async fn sync_settled(&mut self) -> Result<(), SendError> {
        if matches!(self.shared.settling, Settling::No) {
            return Err(SendError::NotSettled);
        }
        poll_fn(|context| self.poll_held(context)).await?;
        let until = self.with(|end| {
            end.flush(false);
            end.accepted()
        });
        self.reached(until, |end| end.shared.settled()).await
    }

    /// Waits until what was accepted so far is in the log.
    pub(crate) async fn sync_stored(&mut self) -> Result<(), SendError> {
        if !self.shared.is_logged() {
            return Err(SendError::NotLogged);
        }
        poll_fn(|context| self.poll_held(context)).await?;
        let until = self.with(|end| end.accepted());
        self.reached(until, |end| end.shared.stored()).await
    }

    async fn reached(
        &mut self,
        until: u64,
        count: impl Fn(&TxEnd) -> u64,
    ) -> Result<(), SendError> {
        poll_fn(|context| {
            if self.with(|end| count(end) >= until) {
                return Poll::Ready(self.not_refused());
            }
            self.shared.wait(context.waker());
            if self.with(|end| count(end) >= until) {
                return Poll::Ready(self.not_refused());
            }
            match self.with(|end| end.lost()) {
                Some(error) => Poll::Ready(Err(error)),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Returns the error of a refused channel: nobody takes its messages, even those that are
    /// written or in the peer's inbox.
    fn not_refused(&mut self) -> Result<(), SendError> {
        match self.shared.is_refused().then(|| self.with(|end| end.failed())) {
            Some(Some(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Ends the channel and waits until that is acknowledged, for `deadline` at most. With
    /// clones alive it waits only for the accepted messages.
    ///
    /// # Errors
    ///
    /// Some message was not acknowledged; the error has the account.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the channel ends as if the sender had been dropped.
    pub async fn close(mut self, deadline: Duration) -> Result<(), CloseError> {
        let deadline = self.stage_held_within(deadline).await;
        let accepted = self.with(|end| {
            end.flush(true);
            end.accepted()
        });
        let Tx { slot, shared, peer, held, .. } = self;
        // An item that found no room is not waited for: it counts as unknown.
        let accepted = accepted + u64::from(held.is_some());
        let last = match slot.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Slot::Own(_) => true,
            Slot::Shared(end) => Arc::into_inner(end).is_some(),
        };
        // With the last end the channel's end is on its way now.
        let done = poll_fn(|context| poll_closed(&shared, accepted, last, context));
        let in_time = clock::within(peer.runtime(), deadline, done).await;
        let account = shared.account(accepted);
        let arrived = account.unknown() == 0 && !shared.is_refused();
        if in_time.is_some() && arrived && held.is_none() {
            return Ok(());
        }
        let cause = shared.is_lost().then(|| shared.error(peer.name(), account));
        let (channel, peer) = (shared.name.clone(), peer.name().to_owned());
        if last {
            // Otherwise clones may send on, and get the error themselves.
            shared.set_told();
        }
        let channels = vec![Unacknowledged { channel, peer, account, cause }];
        Err(CloseError { channels, forgotten: 0, unsaid: Vec::new() })
    }

    /// Waits until nothing is held; returns the time that is left of `deadline`.
    async fn stage_held_within(&mut self, deadline: Duration) -> Duration {
        if self.held.is_none() {
            return deadline;
        }
        let (since, peer) = (clock::now(), self.peer.clone());
        let staged = poll_fn(|context| self.poll_held(context));
        let _ = clock::within(peer.runtime(), deadline, staged).await;
        deadline.saturating_sub(Duration::from_micros(clock::now().micros_since(since)))
    }

    pub(crate) fn waits_to_open(&self) -> Option<Duration> {
        self.link().opens().waits(&self.shared)
    }

    pub(crate) fn stats(&self) -> ChannelStats {
        let counters = self.shared.counters();
        let log = self.shared.log_counters();
        let look = |end: &mut TxEnd| ChannelStats {
            bytes: counters.bytes,
            packets: counters.packets,
            writes: counters.writes,
            messages_per_packet_max: counters.messages_per_packet_max,
            flushes: counters.flushes,
            queueing_delay_us_total: counters.queueing_us_total,
            queueing_delay_us_max: counters.queueing_us_max,
            credit_waits: counters.credit_waits,
            accepted: end.accepted(),
            written: end.written(),
            acknowledged: end.acknowledged(),
            settled: self.shared.settled(),
            stored: self.shared.stored(),
            log_bytes: log.bytes,
            log_syncs: log.syncs,
            ring_bytes: end.ring_bytes(),
            send_waits: end.send_waits,
        };
        locked(&self.slot).with(look)
    }

    /// Returns the channel's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }
}

/// Stages `value` on an end that clones share. The value is encoded outside the lock,
/// so that its `Serialize` cannot harm a clone.
fn stage_shared<T: Serialize>(
    end: &Mutex<TxEnd>,
    value: &T,
    scratch: &mut Vec<u8>,
    held: &mut Option<Bytes>,
) -> Result<Staged, SendError> {
    locked(end).prepare(scratch);
    codec::encode_into_vec(value, scratch).map_err(|error| SendError::Encode(Arc::new(error)))?;
    let mut end = locked(end);
    match stage_held(&mut end, held)? {
        Staged::Done => end.stage_scratch(scratch),
        Staged::Full => Ok(Staged::Full),
    }
}

/// Waits until the channel's end (if `last`) or its messages are acknowledged, or never can be.
/// Of a stream it waits until its messages are settled and, if `last`, its log is closed.
fn poll_closed(
    shared: &TxShared,
    accepted: u64,
    last: bool,
    context: &mut Context<'_>,
) -> Poll<()> {
    shared.wait(context.waker());
    if let Some(stream) = shared.settling.stream().filter(|_| !shared.is_lost()) {
        let done = shared.settled() >= accepted && (!last || stream.is_log_closed());
        return if done { Poll::Ready(()) } else { Poll::Pending };
    }
    // A log that cannot be written any more still has its stored messages delivered.
    if shared.has_log_failed() && shared.settled() >= shared.stored() {
        return Poll::Ready(());
    }
    // The end of a channel whose receiver is gone matters to nobody.
    let enough = !last || shared.is_lost();
    if shared.is_final() || enough && shared.acked() >= accepted {
        Poll::Ready(())
    } else {
        Poll::Pending
    }
}

impl Clone for Tx {
    fn clone(&self) -> Tx {
        let mut slot = locked(&self.slot);
        let end = match &*slot {
            Slot::Shared(end) => Some(Arc::clone(end)),
            Slot::Own(_) => None,
        };
        let end = end.unwrap_or_else(|| slot.share());
        drop(slot);
        Tx::from_slot(Slot::Shared(end), Arc::clone(&self.shared), self.peer.clone())
    }
}
