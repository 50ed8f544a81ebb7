//! The writing half of a driver: the rings of the channels as the link's machine sees them, and
//! their packets on the way to the transport.

use super::backs::Backs;
use super::inbox::RxShared;
use super::keeping::{Keeping, Returned};
use super::ring::{Consumer, ring};
use super::staging::{Settling, TxShared};
use crate::proto::endpoint::Endpoint;
use crate::proto::ids::IdMap;
use crate::proto::link::Link;
use crate::proto::outbox::{Beside, Staged, View};
use crate::proto::session::Carried;
use crate::transport::Transport;
use bytes::Bytes;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// The driver's side of a sending channel.
pub(crate) struct TxSlot {
    pub(crate) shared: Arc<TxShared>,
    pub(crate) ring: Consumer,
    /// For a stream: the messages that were sent and are not settled.
    pub(crate) keeping: Option<Keeping>,
    /// Staged messages are not to be sent: the receiver is gone.
    pub(crate) discard: bool,
}

impl TxSlot {
    /// Returns a channel whose messages no longer matter.
    fn over() -> TxSlot {
        let shared = TxShared::new(String::new(), String::new(), Settling::No);
        TxSlot { shared, ring: ring(1).1, keeping: None, discard: true }
    }
}

/// The sending channels.
#[derive(Default)]
pub(crate) struct TxSlots {
    pub(crate) slots: IdMap<TxSlot>,
    /// Ways back of duplexes that the peer has not opened yet.
    pub(crate) backs: Backs,
    /// Inboxes of the peer's channels whose receivers have settled messages.
    pub(crate) settling: IdMap<Arc<RxShared>>,
    /// Channels in which something was staged while a packet was filled.
    restaged: Vec<u32>,
    /// Streams that were given back though they are over, since their node closes.
    pub(crate) given_up: Vec<Returned>,
    /// Channels whose end is acknowledged. They stay until all records of that packet are handled:
    /// a refusal may be among them.
    ended: Vec<u32>,
}

impl Staged for TxSlots {
    #[inline]
    fn view(&mut self, channel: u32) -> View<'_> {
        match self.slots.get_mut(channel) {
            Some(slot) if !slot.discard => {
                let (front, back, messages) = slot.ring.peek();
                // After the peek: a mark that was seen has its message.
                let large = slot.shared.has_large();
                View { front, back, messages, large }
            }
            _ => View { front: &[], back: &[], messages: 0, large: false },
        }
    }

    #[inline]
    fn consume(&mut self, channel: u32, bytes: usize, messages: u32) {
        let Some(slot) = self.slots.get_mut(channel) else { return };
        match &mut slot.keeping {
            None => slot.ring.consume(bytes, messages),
            Some(keeping) => keeping.consume(&mut slot.ring, bytes, messages),
        }
        if !slot.ring.is_empty() || slot.shared.not_queued(&mut slot.ring) {
            self.restaged.push(channel);
        }
        slot.shared.progress();
    }

    fn take_beside(&mut self, channel: u32) -> Beside {
        let Some(slot) = self.slots.get(channel) else { return Beside::Large(Bytes::new()) };
        let beside = slot.shared.take_beside();
        let messages = if let Beside::Run(_, messages) = &beside { *messages } else { 1 };
        self.consume(channel, 1, messages);
        let Some(slot) = self.slots.get_mut(channel) else { return beside };
        if let (Some(keeping), Beside::Large(bytes)) = (&mut slot.keeping, &beside) {
            keeping.keep_large(bytes.clone());
        }
        beside
    }

    #[inline]
    fn restaged(&mut self) -> Option<u32> {
        self.restaged.pop()
    }

    fn settled(&mut self, channel: u32, ask: bool) -> Option<u64> {
        let receiver = self.settling.get(channel)?;
        if ask {
            receiver.ask_settled();
        }
        Some(receiver.settled())
    }
}

impl TxSlots {
    /// Notes that the transport has taken the messages of `carried`.
    #[inline]
    pub(crate) fn written(&mut self, carried: &[Carried], link: &Link) {
        for it in carried {
            if let Some(slot) = self.slots.get(it.channel) {
                if let Some(counters) = link.channel_counters(it.channel) {
                    slot.shared.set_counters(counters);
                }
                slot.shared.set_written(it.messages);
            }
        }
    }

    /// Notes that nothing that was written before the messages of `carried` is left in memory.
    #[cold]
    pub(crate) fn written_at_last(&mut self, carried: Carried, link: &Link) {
        if let Some(slot) = self.slots.get(carried.channel) {
            if let Some(counters) = link.channel_counters(carried.channel) {
                slot.shared.set_counters(counters);
            }
            slot.shared.set_written_at_least(carried.messages);
        }
    }

    /// Notes that the peer's inbox has the messages of `carried`.
    #[inline]
    pub(crate) fn acknowledged(&mut self, carried: Carried) {
        if let Some(slot) = self.slots.get(carried.channel) {
            slot.shared.set_acked(carried.messages);
            if carried.end {
                slot.shared.set_end_acked();
                self.ended.push(carried.channel);
            }
        }
    }

    /// Forgets the channels whose end is acknowledged.
    #[inline]
    pub(crate) fn forget_ended(&mut self) {
        while let Some(channel) = self.ended.pop() {
            self.remove_if_done(channel);
        }
    }

    /// Notes that the receiver has settled `total` messages. Nothing follows if this report is the
    /// `last`.
    pub(crate) fn settled(&mut self, channel: u32, total: u64, last: bool) {
        let Some(slot) = self.slots.get_mut(channel) else { return };
        match &mut slot.keeping {
            None => slot.shared.set_settled(total),
            Some(keeping) => keeping.settle(total, &slot.shared),
        }
        if !self.remove_if_done(channel) && last {
            self.give_back(channel);
        }
    }

    /// Removes `channel` if the peer has its end and nothing of it is left to settle.
    fn remove_if_done(&mut self, channel: u32) -> bool {
        let Some(slot) = self.slots.get(channel) else { return false };
        let is_settled = |keeping: &Keeping| keeping.is_done(&slot.shared);
        if !slot.shared.end_acked() || !slot.keeping.as_ref().is_none_or(is_settled) {
            return false;
        }
        if let Some(keeping) = self.slots.remove(channel).and_then(|slot| slot.keeping) {
            keeping.end();
        }
        true
    }

    /// Gives the unsettled messages back to the stream, when its channel has ended before the
    /// stream. Returns false for a channel without a stream.
    pub(crate) fn give_back(&mut self, channel: u32) -> bool {
        let Some(slot) = self.slots.get_mut(channel) else { return false };
        let Some(keeping) = slot.keeping.take() else { return false };
        // Records that still arrive for this channel no longer concern the stream.
        let over = TxSlot::over();
        let TxSlot { shared, ring, .. } = std::mem::replace(slot, over);
        self.given_up.extend(keeping.give_back(ring, &shared));
        true
    }
}

/// Writes the rest of the packet; ready when the transport has taken all of it.
#[inline]
pub(super) fn poll_write(
    context: &mut Context<'_>,
    transport: &mut dyn Transport,
    endpoint: &mut Endpoint,
) -> Poll<io::Result<()>> {
    loop {
        let written = match endpoint.unwritten() {
            [head, []] => transport.poll_write(context, &[IoSlice::new(head)]),
            [[], tail] => transport.poll_write(context, &[IoSlice::new(tail)]),
            both => transport.poll_write(context, &both.map(IoSlice::new)),
        };
        let written = ready!(written)?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        if endpoint.wrote(written) {
            return Poll::Ready(Ok(()));
        }
    }
}
