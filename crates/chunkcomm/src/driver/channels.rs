//! The channels of a link, in both directions.
//!
//! `events` has what the link's events do to them, [`commands`](super::commands) what their ends
//! ask for, [`cycles`](super::cycles) their lasting waits, [`opening`](super::opening)
//! opens that wait, [`ending`](super::ending) their end with
//! the session, [`report`](super::report) their states.

use super::cycles::{Looks, SharedBoard};
use super::events::Acceptor;
use super::mail::LinkShared;
use super::reading::RxSlot;
use super::writing::TxSlots;
use crate::proto::Time;
use crate::proto::ids::IdMap;
use crate::proto::link::Link;
use std::sync::Arc;

/// The channels of a link.
pub(crate) struct Channels {
    pub(crate) shared: Arc<LinkShared>,
    pub(super) acceptor: Arc<dyn Acceptor>,
    pub(crate) senders: TxSlots,
    pub(crate) receivers: IdMap<RxSlot>,
    pub(super) looks: Looks,
    /// Number of opens that are noted as waiting.
    pub(super) opens_waiting: usize,
}

impl Channels {
    pub(super) fn new(
        shared: Arc<LinkShared>,
        acceptor: Arc<dyn Acceptor>,
        board: SharedBoard,
    ) -> Channels {
        Channels {
            shared,
            acceptor,
            senders: TxSlots::default(),
            receivers: IdMap::default(),
            looks: Looks::new(board),
            opens_waiting: 0,
        }
    }

    /// Returns the memory of the large messages that are being put together, in bytes.
    pub(super) fn assembling_bytes(&self) -> u64 {
        self.receivers.values().map(RxSlot::assembling_bytes).sum()
    }

    /// Hands the acknowledgements that came to the channels.
    #[inline]
    pub(super) fn note_acknowledged(&mut self, link: &mut Link) {
        self.take_acknowledged(link);
        self.senders.forget_ended();
    }

    /// As `note_acknowledged`. Channels whose end is acknowledged stay for the records that follow
    /// in the same packet.
    #[inline]
    pub(super) fn take_acknowledged(&mut self, link: &mut Link) {
        for carried in link.poll_acknowledged() {
            self.senders.acknowledged(carried);
        }
    }

    /// Looks at every ring: the driver may not have been woken for what is staged there.
    #[cold]
    #[inline(never)]
    pub(super) fn recheck(&mut self, link: &mut Link, now: Time) {
        for (id, slot) in self.senders.slots.iter_mut() {
            if !slot.ring.is_empty() {
                link.staged(id, now);
            }
        }
    }
}
