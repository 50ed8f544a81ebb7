//! What goes wrong: partitions, stalls, cuts, hosts that stop.

use super::connection::{Item, Life};
use super::schedule::Step;
use super::{EndId, HostId, Network, NetworkError};
use crate::proto::Time;
use std::time::Duration;

/// Faults.
impl Network {
    /// From now on nothing sent by `from` arrives at `to`, acknowledgements of
    /// what came the other way included. It is held, as TCP would send it again:
    /// after [`Network::heal`] it arrives. For both directions call it twice.
    pub fn partition(&mut self, now: Time, from: HostId, to: HostId) {
        self.advance(now);
        self.blocked.insert((from, to));
    }

    /// What `from` sends arrives at `to` again, what was held after one latency.
    pub fn heal(&mut self, now: Time, from: HostId, to: HostId) {
        self.advance(now);
        if !self.blocked.remove(&(from, to)) {
            return;
        }
        for end in self.ends_at(to) {
            let Some(peer) = self.end_mut(end.peer()).map(|peer| peer.host) else { continue };
            let Some(this) = self.end_mut(end) else { continue };
            if peer == from && !this.held.is_empty() {
                let latency = this.way.spec.latency;
                self.scheduled.push(self.now.after(latency), Step::Resume(end));
            }
        }
    }

    /// Nothing arrives at `end` for so long; then all of it does. [`Duration::MAX`]
    /// is for ever: nobody is told. An end that was just dialled can be stalled at
    /// once: it is accepted late.
    pub fn stall(&mut self, now: Time, end: EndId, duration: Duration) {
        self.advance(now);
        let until = now.after(duration);
        if let Some(this) = self.end_mut(end) {
            this.stalled_until = this.stalled_until.max(until);
            self.push_unless_never(until, Step::Resume(end));
        }
    }

    /// Of what is on its way to `end` only the first `kept` bytes arrive, and nothing
    /// behind them but the news that the connection is broken: a fault breaks a
    /// frame anywhere. Goes before [`Network::cut`] or [`Network::leave`].
    pub fn lose(&mut self, now: Time, end: EndId, kept: usize) {
        self.advance(now);
        if let Some(this) = self.end_mut(end) {
            this.lose(kept);
        }
    }

    /// Cuts the connection of `end`: nothing written from now on arrives. The end
    /// notices after `here`, its peer after `there`; what was on its way and would
    /// arrive before that does. [`Duration::MAX`]: it never notices.
    pub fn cut(&mut self, now: Time, end: EndId, here: Duration, there: Duration) {
        self.advance(now);
        let slot = self.connections.get_mut(end.connection as usize);
        let Some(Some(connection)) = slot else { return };
        connection.severed = true;
        self.push_unless_never(now.after(here), Step::Break(end));
        self.push_unless_never(now.after(there), Step::Break(end.peer()));
    }

    /// The system of `end` gives its connection up, since nobody answers: it is broken
    /// here, and the peer is told if that gets through.
    pub fn give_up(&mut self, now: Time, end: EndId) {
        self.advance(now);
        self.dispatch(end, Item::Reset);
        self.handle_break(end);
    }

    fn push_unless_never(&mut self, at: Time, step: Step) {
        if at < Time(u64::MAX) {
            self.scheduled.push(at, step);
        }
    }

    /// The host stops without a word: its ends and listeners are gone, and peers
    /// hear nothing.
    pub fn crash(&mut self, now: Time, host: HostId) {
        self.advance(now);
        self.hosts[host.index()].up = false;
        self.listening.retain(|(at, _)| *at != host);
        for end in self.ends_at(host) {
            if let Some(this) = self.end_mut(end) {
                this.vanish();
            }
            self.forget_if_over(end);
        }
    }

    /// The host runs again and knows no connection: who still has one with it is
    /// told when it sends, or had sent something that was not taken.
    pub fn restart(&mut self, now: Time, host: HostId) {
        self.advance(now);
        self.hosts[host.index()].up = true;
        for end in self.ends_at(host) {
            let gone = self.end_mut(end).is_some_and(|this| this.life == Life::Gone);
            let Some(peer) = self.end_mut(end.peer()) else { continue };
            if gone && peer.has_in_flight() {
                // What was not acknowledged comes again, and is answered so.
                let after = peer.way.spec.latency * 2;
                self.scheduled.push(now.after(after), Step::Arrive(end.peer(), Item::Reset));
            }
        }
    }

    /// The connections' ends that are in use at a host, oldest first.
    #[must_use]
    pub fn ends_of(&self, host: HostId) -> Vec<EndId> {
        let in_use = |end: &EndId| {
            let slot = self.connections[end.connection as usize].as_ref();
            slot.is_some_and(|it| it.ends[usize::from(end.accepted)].life == Life::Open)
        };
        self.ends_at(host).into_iter().filter(in_use).collect()
    }

    /// The host of an end.
    ///
    /// # Errors
    ///
    /// [`NetworkError::Broken`]: both ends were let go.
    pub fn host_of(&self, end: EndId) -> Result<HostId, NetworkError> {
        let slot = self.connections.get(end.connection as usize).and_then(Option::as_ref);
        let connection = slot.ok_or(NetworkError::Broken)?;
        Ok(connection.ends[usize::from(end.accepted)].host)
    }

    fn ends_at(&self, host: HostId) -> Vec<EndId> {
        let mut ends = Vec::new();
        for (connection, slot) in (0..).zip(&self.connections) {
            let Some(slot) = slot else { continue };
            for (end, accepted) in slot.ends.iter().zip([false, true]) {
                if end.host == host {
                    ends.push(EndId { connection, accepted });
                }
            }
        }
        ends
    }

    /// Whether what arrives at `end` now is to be held.
    pub(super) fn is_held(&mut self, end: EndId) -> bool {
        let now = self.now;
        let Some(peer) = self.end_mut(end.peer()).map(|peer| peer.host) else { return false };
        let Some(this) = self.end_mut(end) else { return false };
        let (host, stalled) = (this.host, now < this.stalled_until);
        stalled || self.blocked.contains(&(peer, host))
    }

    /// What was held arrives, unless something still holds it.
    pub(super) fn handle_resume(&mut self, end: EndId) {
        if self.is_held(end) {
            return;
        }
        let Some(this) = self.end_mut(end) else { return };
        for item in std::mem::take(&mut this.held) {
            self.deliver(end, item);
        }
    }
}
