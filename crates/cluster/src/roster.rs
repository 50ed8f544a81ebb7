//! Nodes of a cluster that work together, and which of them are gone, for layers above: groups, arrays, farms.
//!
//! A [`Roster`] has a *seat* for each of the nodes. It tells in one stream who has left and who is lost, each once. The
//! rule by which it decides is that of [`proto::roster`](crate::proto::roster).

use crate::cluster::{Change, Changes, Cluster, End, NodeId};
use crate::proto::roster::{self, Verdict};
use chunkcomm::host::{Alarm, Instant};
use chunkcomm::layer::Link;
use chunkcomm::{Loss, Peer};
use chunkcomm_proto::sorted::SortedSet;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

#[doc(hidden)]
pub use crate::proto::roster::LAST_WORDS;

type NextChange = Pin<Box<dyn Future<Output = (Changes, Option<Change>)> + Send>>;

/// Event of a roster.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The node of this seat has left the cluster, or has ended what it had a part in; all that it said was read.
    Left(usize, Loss),
    /// The node of this seat is lost. Where the cluster has reported its death, that
    /// [`Death`](crate::cluster::Death) is the cause.
    Lost(usize, Loss),
    /// The cluster has ended: the last event.
    Ended(End),
}

/// Seats of some nodes of a cluster, by index, as one task sees them.
pub struct Roster {
    cluster: Cluster,
    seats: Arc<[NodeId]>,
    machine: roster::Roster,
    change: Option<NextChange>,
    /// Those of the nodes that this one has heard of.
    known: SortedSet<NodeId>,
    /// Sessions with nodes that leave.
    sessions: Vec<(NodeId, Peer)>,
    alarm: Alarm,
}

impl Roster {
    /// Seats these members of the cluster. Those that are dead by now are lost; of one that has left by now nothing is
    /// told.
    #[must_use]
    pub fn new(cluster: &Cluster, seats: Arc<[NodeId]>) -> Roster {
        // Changes are read from before the deaths are looked at, so that none is missed.
        let change = Some(next_change(cluster.changes()));
        let machine = roster::Roster::new(seats.iter().copied());
        let (cluster, sessions, alarm) = (cluster.clone(), Vec::new(), Alarm::default());
        let known = seats.iter().copied().filter(|id| is_member(&cluster, *id)).collect();
        let mut roster = Roster { cluster, seats, machine, change, known, sessions, alarm };
        roster.look_for_deaths();
        roster
    }

    /// Seats one more member; returns its seat. One that is dead by now is lost.
    pub fn add(&mut self, member: NodeId) -> usize {
        self.seats = self.seats.iter().copied().chain([member]).collect();
        let seat = self.machine.add(member);
        if is_member(&self.cluster, member) {
            self.known.insert(member);
        }
        self.look_for_deaths();
        seat
    }

    /// Returns the nodes, by seat.
    #[must_use]
    pub fn seats(&self) -> &Arc<[NodeId]> {
        &self.seats
    }

    /// Returns the cluster whose members these are.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Returns the way in which a seat was lost or has left, once that was decided.
    ///
    /// # Panics
    ///
    /// When there is no such seat.
    #[must_use]
    pub fn gone(&self, seat: usize) -> Option<&Loss> {
        self.machine.gone(seat)
    }

    /// Notes a channel of this seat that has come, for whose end its leave waits.
    pub fn note_channel(&mut self, seat: usize) {
        self.machine.handle_channel(seat);
    }

    /// Notes the break of such a channel, all of which was read.
    pub fn note_break(&mut self, seat: usize, loss: Loss) {
        self.machine.handle_break(seat, loss, Instant::now().time());
    }

    /// Notes the end of such a channel, all of which was read: the seat has ended it in its order, or has said on it
    /// what makes no sense.
    pub fn note_end(&mut self, seat: usize, loss: Loss) {
        self.machine.handle_end(seat, loss, Instant::now().time());
    }

    /// Notes that this node did not reach a seat, or that what it exchanged with it broke.
    pub fn note_failure(&mut self, seat: usize, loss: Loss) {
        self.machine.handle_failure(seat, loss, Instant::now().time());
    }

    /// Returns the next event; pending for ever after the last one.
    pub fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Event> {
        loop {
            match self.machine.poll_verdict() {
                Some(Verdict::Left(seat, loss)) => return Poll::Ready(Event::Left(seat, loss)),
                Some(Verdict::Lost(seat, loss)) => return Poll::Ready(Event::Lost(seat, loss)),
                None => {}
            }
            if let Some(change) = &mut self.change
                && let Poll::Ready((changes, change)) = change.as_mut().poll(context)
            {
                self.change = change.is_some().then(|| next_change(changes));
                match change {
                    Some(change) => self.take(change),
                    None => {
                        if let Some(end) = self.cluster.ended() {
                            return Poll::Ready(Event::Ended(end));
                        }
                    }
                }
                continue;
            }
            if self.poll_sessions(context).is_ready() {
                continue;
            }
            let Some(until) = self.machine.poll_timeout() else { return Poll::Pending };
            let now = Instant::now().time();
            if self.alarm.poll(context, Some(until), now).is_pending() {
                return Poll::Pending;
            }
            self.machine.handle_timeout(now);
        }
    }

    fn take(&mut self, change: Change) {
        match change {
            Change::Died(death) => self.machine.handle_death(death.id, &death.into()),
            Change::Left(id) => {
                let session = Link::with(self.cluster.node(), id.incarnation);
                let now = Instant::now().time();
                if self.machine.handle_left(id, session.is_some(), now)
                    && let Some(link) = session
                {
                    self.sessions.push((id, link.peer(self.cluster.node())));
                }
            }
            Change::Joined(member) => self.note_known(member.id),
            Change::Missed(_) => {
                self.look_for_deaths();
                let has_left = |id: &NodeId| !is_member(&self.cluster, *id);
                let left: Vec<NodeId> = self.known.iter().copied().filter(has_left).collect();
                left.into_iter().for_each(|id| self.take(Change::Left(id)));
            }
            _ => {}
        }
    }

    /// Notes a seat whose node this one has heard of: one that is no member later was.
    fn note_known(&mut self, id: NodeId) {
        if self.seats.contains(&id) {
            self.known.insert(id);
        }
    }

    fn look_for_deaths(&mut self) {
        for death in self.cluster.deaths() {
            self.machine.handle_death(death.id, &death.into());
        }
    }

    /// Ready when the session with a node that leaves has ended.
    fn poll_sessions(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let over = |it: &(NodeId, Peer)| it.1.poll_closed(context).is_ready();
        let Some(over) = self.sessions.iter().position(over) else { return Poll::Pending };
        let (id, _) = self.sessions.swap_remove(over);
        self.machine.handle_session_over(id, Instant::now().time());
        Poll::Ready(())
    }
}

impl fmt::Debug for Roster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Roster").field("seats", &self.seats.len()).finish_non_exhaustive()
    }
}

fn is_member(cluster: &Cluster, id: NodeId) -> bool {
    cluster.member(id.rank).is_some_and(|it| it.id == id)
}

fn next_change(mut changes: Changes) -> NextChange {
    Box::pin(async move {
        let change = changes.next().await;
        (changes, change)
    })
}
