//! The writing half of a driver: the rings of the channels as the machine sees
//! them, and the one packet that is being written.

use super::ring::Consumer;
use super::staging::TxShared;
use crate::proto::ids::IdMap;
use crate::proto::link::Link;
use crate::proto::outbox::{Staged, View};
use crate::proto::packet::Packet;
use crate::proto::session::Carried;
use crate::transport::Transport;
use bytes::Bytes;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// A channel that sends, as its driver has it.
pub(crate) struct TxSlot {
    pub(crate) shared: Arc<TxShared>,
    pub(crate) ring: Consumer,
    /// What is staged is not to be sent: the receiver is gone.
    pub(crate) discard: bool,
}

/// The channels that send.
#[derive(Default)]
pub(crate) struct TxSlots {
    pub(crate) slots: IdMap<TxSlot>,
    /// Channels in which something was staged while a packet was filled.
    pub(crate) restaged: Vec<u32>,
}

impl Staged for TxSlots {
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

    fn consume(&mut self, channel: u32, bytes: usize, messages: u32) {
        let Some(slot) = self.slots.get_mut(channel) else { return };
        slot.ring.consume(bytes, messages);
        if !slot.ring.is_empty() || slot.shared.not_queued(&mut slot.ring) {
            self.restaged.push(channel);
        }
        slot.shared.progress();
    }

    fn take_large(&mut self, channel: u32) -> Bytes {
        self.slots.get(channel).map_or_else(Bytes::new, |slot| slot.shared.take_large())
    }
}

impl TxSlots {
    /// The transport has taken what `carried` tells.
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

    /// The peer's inbox has what `carried` tells.
    pub(crate) fn acknowledged(&mut self, carried: Carried) {
        if let Some(slot) = self.slots.get(carried.channel) {
            slot.shared.set_acked(carried.messages);
            if carried.end {
                slot.shared.set_end_acked();
                self.slots.remove(carried.channel);
            }
        }
    }
}

/// The packet that is being written.
#[derive(Default)]
pub(crate) struct Writer {
    pub(crate) packet: Packet,
    /// Its number; 0 for one without.
    pub(crate) number: u64,
    /// What it carries for the first time.
    pub(crate) carried: Vec<Carried>,
    offset: usize,
    pub(crate) writes: u64,
    /// Of these, for the packet at hand.
    pub(crate) packet_writes: u64,
}

impl Writer {
    /// A packet is being written.
    pub(crate) fn is_busy(&self) -> bool {
        !self.packet.head.is_empty()
    }

    /// A part of a packet was written.
    pub(crate) fn is_within_packet(&self) -> bool {
        self.offset > 0
    }

    /// The connection is gone, with what was written of the packet.
    pub(crate) fn cut(&mut self, link: &mut Link) {
        self.offset = 0;
        if self.is_busy() {
            link.give_back(self.number, &mut self.packet);
        }
    }

    /// Writes the rest of the packet; ready when all of it is taken.
    pub(crate) fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        transport: &mut dyn Transport,
    ) -> Poll<io::Result<()>> {
        if self.offset == 0 {
            self.packet_writes = 0;
        }
        let head = &self.packet.head;
        let tail: &[u8] = self.packet.tail.as_deref().unwrap_or(&[]);
        let total = head.len() + tail.len();
        while self.offset < total {
            let written = if self.offset < head.len() {
                let head = IoSlice::new(&head[self.offset..]);
                if tail.is_empty() {
                    transport.poll_write(context, &[head])
                } else {
                    transport.poll_write(context, &[head, IoSlice::new(tail)])
                }
            } else {
                let rest = IoSlice::new(&tail[self.offset - head.len()..]);
                transport.poll_write(context, &[rest])
            };
            let written = ready!(written)?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.writes += 1;
            self.packet_writes += 1;
            self.offset += written;
        }
        self.offset = 0;
        Poll::Ready(Ok(()))
    }
}
