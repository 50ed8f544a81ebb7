//! Lasting waits for credit, and the peers' reports of theirs: the driver's part in finding cycles.
//! The node's [`Board`] decides which of them form a cycle. A warning names each channel of which
//! the peer has never taken anything: perhaps nobody there accepts it.

use super::channels::Channels;
use super::mail::LinkShared;
use super::wakers::locked;
use super::writing::TxSlots;
use crate::error::Named;
use crate::proto::Time;
use crate::proto::cycle::{Blocked, Board, LOOK, Told, hops};
use crate::proto::limits::WINDOW_BYTES_INITIAL;
use crate::proto::link::Link;
use crate::proto::outbox;
use crate::proto::sorted::SortedMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Time from the first look that finds a channel untaken to its warning: 4 s. That look comes at
/// most [`LOOK`] after the channel began to wait: 5 s in all.
const UNTAKEN_FOR: Duration = Duration::from_secs(4);

/// The waits of a node, shared by its links. Only waits that last are entered.
pub(crate) type SharedBoard = Arc<Mutex<Board>>;

/// A link's place on the board.
pub(super) struct Looks {
    board: SharedBoard,
    link: u64,
    /// Time of the next look; `None` while nothing waits.
    due: Option<Time>,
    /// Channels of which the peer has taken nothing while a task waits, with the time of the first
    /// such look; `None` after their warning.
    untaken: SortedMap<u32, Option<Time>>,
}

impl Looks {
    pub(super) fn new(board: SharedBoard) -> Looks {
        let link = locked(&board).join();
        Looks { board, link, due: None, untaken: SortedMap::new() }
    }

    /// Enters the channels that wait for credit on the board, and sends on chains of waits.
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

    /// Returns the channels of which to warn now.
    fn untaken<'a>(&mut self, link: &Link, senders: &'a TxSlots, now: Time) -> Vec<&'a str> {
        let untaken = |id: u32| {
            let state = link.channel_state(id);
            state.blocked == outbox::Blocked::Credit
                && state.sent_bytes + state.credit_bytes <= WINDOW_BYTES_INITIAL
        };
        self.untaken.retain(|id, since| since.is_none() || untaken(*id));
        let mut names = Vec::new();
        for (id, slot) in senders.slots.iter() {
            if slot.shared.is_waited_for() && untaken(id) {
                let since = self.untaken.get_or_insert(id, Some(now));
                if since.is_some_and(|since| now >= since.after(UNTAKEN_FOR)) {
                    *since = None;
                    names.push(slot.shared.name.as_str());
                }
            }
        }
        names
    }

    /// Forgets the untaken channels, except those with a warning.
    fn forget_untaken(&mut self) {
        self.untaken.retain(|_, since| since.is_none());
    }

    /// Returns when to look next, if anything waits for credit.
    pub(super) fn deadline(&mut self, link: &Link, now: Time) -> Option<Time> {
        if self.due.is_none() && link.waits_for_credit() {
            self.due = Some(now.after(LOOK));
        }
        self.due
    }

    /// Leaves the board, since the link has ended.
    pub(super) fn leave(&mut self) {
        locked(&self.board).leave(self.link);
    }
}

/// Returns the name of a node in chains.
pub(crate) fn node_of(incarnation: u128) -> u64 {
    incarnation as u64
}

impl Channels {
    /// Looks at the channels that wait, if it is time. A peer that is cut off can take nothing: its
    /// time begins with the next connection.
    #[inline]
    pub(super) fn look_if_due(&mut self, link: &mut Link, is_connected: bool, now: Time) {
        if self.looks.due.is_some_and(|due| now >= due) {
            self.looks.look(link, &self.senders, &self.shared, now);
            if !is_connected {
                return self.looks.forget_untaken();
            }
            let untaken = self.looks.untaken(link, &self.senders, now);
            if let [name, more @ ..] = &untaken[..] {
                let others = match more.len() {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                self.acceptor.warn(&format!(
                    "{}{others} to {}: nobody there has taken anything of it for 5 s; does it \
                     accept a channel of this name?",
                    Named(name),
                    self.shared.peer.name
                ));
            }
        }
    }

    /// Handles the report that the peer waits for this node on the channel of the last hop. The
    /// report counts if no task here takes messages from that channel.
    pub(super) fn peer_waits(&mut self, number: u64, chain: &[u8], link: &mut Link, now: Time) {
        let Some(last) = hops(chain).last() else { return };
        let unread = self
            .receivers
            .get(last.channel)
            .is_some_and(|slot| slot.landing.is_none() && slot.shared.is_left_alone());
        if last.node != node_of(self.shared.peer.incarnation) || !unread {
            return;
        }
        let told = Told { number, chain: chain.to_vec() };
        if let Some(cycle) = locked(&self.looks.board).heard(told, now) {
            link.count_cycle();
            tracing::warn!(peer = %self.shared.peer.name, %cycle, "nodes wait in a cycle");
        }
    }
}
