//! Waits for credit that last, and what peers say of theirs: the driver's part in
//! finding cycles. What is one, the node's [`Board`] decides.

use super::events::Others;
use super::link::Driver;
use super::mail::LinkShared;
use super::wakers::locked;
use super::writing::TxSlots;
use crate::proto::Time;
use crate::proto::cycle::{Blocked, Board, LOOK, Told, hops};
use crate::proto::link::Link;
use crate::proto::outbox;
use std::sync::{Arc, Mutex};

/// The waits of a node, which its links have in common. Nobody comes here whose
/// waits do not last.
pub(crate) type SharedBoard = Arc<Mutex<Board>>;

/// A link's place on the board.
pub(super) struct Looks {
    pub(super) board: SharedBoard,
    link: u64,
    /// The next look; `None` while nothing waits.
    due: Option<Time>,
}

impl Looks {
    pub(super) fn new(board: SharedBoard) -> Looks {
        let link = locked(&board).join();
        Looks { board, link, due: None }
    }

    /// Looks what waits.
    #[cold]
    #[inline(never)]
    fn look(&mut self, link: &mut Link, senders: &TxSlots, shared: &LinkShared, now: Time) {
        self.due = link.waits_for_credit().then(|| now.after(LOOK));
        let blocked = senders.slots.iter().filter_map(|(id, slot)| {
            let state = link.channel_state(id);
            let waits = state.blocked == outbox::Blocked::Credit && slot.shared.is_waited_for();
            let name = slot.shared.name.as_str();
            waits.then_some(Blocked { channel: id, position: state.sent_bytes, name })
        });
        let peer = node_of(shared.peer.incarnation);
        let told = locked(&self.board).look(self.link, peer, blocked, now);
        link.tell(told);
    }

    /// When to look next, if anything waits for credit.
    pub(super) fn deadline(&mut self, link: &Link, now: Time) -> Option<Time> {
        if self.due.is_none() && link.waits_for_credit() {
            self.due = Some(now.after(LOOK));
        }
        self.due
    }

    /// The link has ended.
    pub(super) fn leave(&mut self) {
        locked(&self.board).leave(self.link);
    }
}

/// What a node is called in chains.
pub(crate) fn node_of(incarnation: u128) -> u64 {
    incarnation as u64
}

impl Driver {
    #[inline]
    pub(super) fn look_if_due(&mut self, now: Time) {
        if self.looks.due.is_some_and(|due| now >= due) {
            self.looks.look(&mut self.link, &self.senders, &self.shared, now);
        }
    }
}

impl Others<'_> {
    /// The peer waits for this node on the channel of the last hop. That counts if
    /// nobody here takes what comes on it.
    pub(super) fn peer_waits(&mut self, number: u64, chain: &[u8], now: Time) {
        let Some(last) = hops(chain).last() else { return };
        let unread = self
            .receivers
            .get(last.channel)
            .is_some_and(|slot| slot.landing.is_none() && slot.shared.is_left_alone());
        if last.node != node_of(self.shared.peer.incarnation) || !unread {
            return;
        }
        let told = Told { number, chain: chain.to_vec() };
        if let Some(cycle) = locked(self.board).heard(told, now) {
            self.link.count_cycle();
            tracing::warn!(peer = %self.shared.peer.name, %cycle, "nodes wait in a cycle");
        }
    }
}
