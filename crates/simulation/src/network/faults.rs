//! Faults: partitions, stalls, cuts, hosts that stop.

use super::connection::{Item, Life};
use super::schedule::Step;
use super::{EndId, HostId, Network, NetworkError};
use chunkcomm_proto::Time;
use std::time::Duration;

/// Faults.
impl Network {
    /// Holds everything sent by `from` to `to` from now on, including acknowledgements for the
    /// other direction. It arrives after [`Network::heal`], as TCP would send it again. For both
    /// directions call this twice.
    pub fn partition(&mut self, now: Time, from: HostId, to: HostId) {
        self.advance(now);
        self.blocked.insert((from, to));
    }

    /// Ends a partition: items from `from` arrive at `to` again, the held ones after one latency.
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

    /// Holds everything that arrives at `end` for `duration`; then all of it arrives.
    /// [`Duration::MAX`] is for ever, and no event tells of it. An end that was just dialled can be
    /// stalled at once: it is accepted late.
    pub fn stall(&mut self, now: Time, end: EndId, duration: Duration) {
        self.advance(now);
        let until = now.after(duration);
        if let Some(this) = self.end_mut(end) {
            this.stalled_until = this.stalled_until.max(until);
            self.push_unless_never(until, Step::Resume(end));
        }
    }

    /// Lets only the first `kept` bytes on their way to `end` arrive, and behind them only the news
    /// that the connection is broken: a fault breaks a frame anywhere. Goes before [`Network::cut`]
    /// or [`Network::leave`].
    pub fn lose(&mut self, now: Time, end: EndId, kept: usize) {
        self.advance(now);
        if let Some(this) = self.end_mut(end) {
            this.lose(kept);
        }
    }

    /// Cuts the connection of `end`: nothing written from now on arrives. The end notices after
    /// `here`, its peer after `there` ([`Duration::MAX`]: never). Bytes on their way that would
    /// arrive before that still do.
    pub fn cut(&mut self, now: Time, end: EndId, here: Duration, there: Duration) {
        self.advance(now);
        let slot = self.connections.get_mut(end.connection as usize);
        let Some(Some(connection)) = slot else { return };
        connection.severed = true;
        self.push_unless_never(now.after(here), Step::Break(end));
        self.push_unless_never(now.after(there), Step::Break(end.peer()));
    }

    /// Lets the system of `end` give its connection up, since the peer's does not answer. The
    /// connection is broken here, and the peer learns it if that gets through.
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

    /// Closes the connections and listeners of a host, as its system does when a process ends.
    pub fn close(&mut self, now: Time, host: HostId) {
        self.advance(now);
        self.listening.retain(|(at, _)| *at != host);
        for end in self.ends_at(host) {
            self.leave(now, end);
        }
    }

    /// Stops the host without a word: its ends, listeners and jobs are gone, and peers hear nothing.
    pub fn crash(&mut self, now: Time, host: HostId) {
        self.advance(now);
        self.hosts[host.index()].up = false;
        self.listening.retain(|(at, _)| *at != host);
        self.drop_jobs(host);
        for end in self.ends_at(host) {
            if let Some(this) = self.end_mut(end) {
                this.vanish();
            }
            self.forget_if_over(end);
        }
    }

    /// Whether a host runs.
    #[must_use]
    pub fn is_up(&self, host: HostId) -> bool {
        self.hosts[host.index()].up
    }

    /// Lets the host run again, without its connections. A peer that still has one learns this when
    /// it sends, or had sent bytes that were not taken.
    pub fn restart(&mut self, now: Time, host: HostId) {
        self.advance(now);
        self.hosts[host.index()].up = true;
        for end in self.ends_at(host) {
            let gone = self.end_mut(end).is_some_and(|this| this.life == Life::Gone);
            let Some(peer) = self.end_mut(end.peer()) else { continue };
            if gone && peer.has_in_flight() {
                // Unacknowledged bytes come again, and get this answer.
                let after = peer.way.spec.latency * 2;
                self.scheduled.push(now.after(after), Step::Arrive(end.peer(), Item::Reset));
            }
        }
    }

    /// Returns the connections' ends that are in use at a host, oldest first.
    #[must_use]
    pub fn ends_of(&self, host: HostId) -> Vec<EndId> {
        let in_use = |end: &EndId| {
            let slot = self.connections[end.connection as usize].as_ref();
            slot.is_some_and(|it| it.ends[usize::from(end.accepted)].life == Life::Open)
        };
        self.ends_at(host).into_iter().filter(in_use).collect()
    }

    /// Returns the host of an end.
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

    /// Whether an item that arrives at `end` now is to be held.
    pub(super) fn is_held(&mut self, end: EndId) -> bool {
        let now = self.now;
        let Some(peer) = self.end_mut(end.peer()).map(|peer| peer.host) else { return false };
        let Some(this) = self.end_mut(end) else { return false };
        let (host, stalled) = (this.host, now < this.stalled_until);
        stalled || self.blocked.contains(&(peer, host))
    }

    /// Delivers the held items, unless something still holds them.
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
