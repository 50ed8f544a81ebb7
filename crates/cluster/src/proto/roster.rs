//! Nodes that work together, and which of them are gone: the one rule that decides between what a link, a channel and the
//! manager say.
//!
//! | what is heard | the verdict | why |
//! |---|---|---|
//! | the manager reports a death | lost, at once | it has asked, or has seen the process end; all that came before is still read |
//! | the manager reports a leave | left, once all its channels are read to their end; where none has come, [`LAST_WORDS`] after its session is over | its last words may be under way, and a channel not be taken yet |
//! | the seat ends a channel, or says what makes no sense | left or lost, after [`LAST_WORDS`] | a death may be why, whose report is on its way |
//! | a link or a channel breaks, or an exchange with the seat | lost, after [`VERDICT`] | a lost link is not a death, and the manager learns of one later than the link; or the seat has stopped because another one died |
//!
//! A seat has one verdict, after which nothing that is heard of it counts.

#[cfg(test)]
mod tests;

use super::cluster::NodeId;
use chunkcomm_proto::Time;
use chunkcomm_proto::loss::{Loss, LossKind};
use std::collections::VecDeque;
use std::time::Duration;

/// Time in which the manager's report of a death comes that may be why a seat has ended a channel: 1 s.
pub const LAST_WORDS: Duration = Duration::from_secs(1);

/// Time in which the manager reports the death of a seat whose link is lost: 45 s. It knows the end of a process
/// on another machine after 10 s, that of a machine of which it expects nothing only by its next question, every
/// 30 s.
pub const VERDICT: Duration = Duration::from_secs(45);

/// Verdict about a seat.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It left in order, and all that it said was read.
    Left(usize, Loss),
    /// It is lost.
    Lost(usize, Loss),
}

#[derive(Debug)]
enum State {
    Here,
    /// It is gone, unless the manager says otherwise until then.
    Doubted {
        loss: Loss,
        until: Time,
    },
    Gone(Loss),
}

#[derive(Debug)]
struct Seat {
    id: NodeId,
    state: State,
    /// Number of its channels that have come and are not read to their end.
    channels: usize,
    /// Whether one of its channels has ended.
    has_ended: bool,
    /// Whether the manager has reported its leave.
    leaves: bool,
}

/// Seats of nodes, by index.
///
/// Order of calls: `handle_*` as things happen, then [`Roster::poll_verdict`] until it returns nothing;
/// [`Roster::handle_timeout`] when [`Roster::poll_timeout`] has come.
#[derive(Debug)]
pub struct Roster {
    seats: Vec<Seat>,
    verdicts: VecDeque<Verdict>,
}

impl Roster {
    /// Seats these nodes. A node may have several seats.
    #[must_use]
    pub fn new(seats: impl IntoIterator<Item = NodeId>) -> Roster {
        let mut roster = Roster { seats: Vec::new(), verdicts: VecDeque::new() };
        for id in seats {
            roster.add(id);
        }
        roster
    }

    /// Seats one more node; returns its seat.
    pub fn add(&mut self, id: NodeId) -> usize {
        let (channels, has_ended, leaves) = (0, false, false);
        self.seats.push(Seat { id, state: State::Here, channels, has_ended, leaves });
        self.seats.len() - 1
    }

    /// Returns the way in which a seat was lost or has left, once there is the verdict.
    #[must_use]
    pub fn gone(&self, seat: usize) -> Option<&Loss> {
        match &self.seats[seat].state {
            State::Gone(loss) => Some(loss),
            _ => None,
        }
    }

    /// Returns the next verdict.
    pub fn poll_verdict(&mut self) -> Option<Verdict> {
        self.verdicts.pop_front()
    }

    /// Returns the time for the next [`Roster::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let until = |seat: &Seat| match seat.state {
            State::Doubted { until, .. } => Some(until),
            _ => None,
        };
        self.seats.iter().filter_map(until).min()
    }

    /// Handles the passing of time: seats of which the manager has said nothing in time are gone.
    pub fn handle_timeout(&mut self, now: Time) {
        for seat in 0..self.seats.len() {
            match &self.seats[seat].state {
                State::Doubted { loss, until } if *until <= now => self.go(seat, loss.clone()),
                _ => {}
            }
        }
    }

    /// Handles the manager's report of a death.
    pub fn handle_death(&mut self, id: NodeId, loss: &Loss) {
        for seat in self.seats_of(id) {
            self.go(seat, loss.clone());
        }
    }

    /// Handles the manager's report of a leave; `has_session` says whether the session with the node lives. Returns
    /// whether its end is to be [reported](Self::handle_session_over).
    pub fn handle_left(&mut self, id: NodeId, has_session: bool, now: Time) -> bool {
        let mut waits = false;
        for seat in self.seats_of(id) {
            let it = &mut self.seats[seat];
            it.leaves = true;
            match it.channels {
                0 if it.has_ended => self.go(seat, left()),
                0 if !has_session => self.leave(seat, now),
                _ => waits |= has_session && self.gone(seat).is_none(),
            }
        }
        waits
    }

    /// Handles the end of the session with a node that leaves.
    pub fn handle_session_over(&mut self, id: NodeId, now: Time) {
        for seat in self.seats_of(id) {
            if matches!(self.seats[seat], Seat { leaves: true, channels: 0, .. }) {
                self.leave(seat, now);
            }
        }
    }

    /// Handles a channel of a seat that has come.
    pub fn handle_channel(&mut self, seat: usize) {
        let it = &mut self.seats[seat];
        it.channels += 1;
        if it.leaves && matches!(it.state, State::Doubted { .. }) {
            // It was under way when the session ended: its words are read first.
            it.state = State::Here;
        }
    }

    /// Handles the end of such a channel, all of which was read: the seat has ended it in its order, or has said on it
    /// what makes no sense.
    pub fn handle_end(&mut self, seat: usize, loss: Loss, now: Time) {
        self.end(seat, loss, now.after(LAST_WORDS));
    }

    /// Handles the break of such a channel, all of which was read.
    pub fn handle_break(&mut self, seat: usize, loss: Loss, now: Time) {
        self.end(seat, loss, now.after(VERDICT));
    }

    fn end(&mut self, seat: usize, loss: Loss, until: Time) {
        let it = &mut self.seats[seat];
        it.channels = it.channels.checked_sub(1).expect("a channel that has come ends once");
        it.has_ended = true;
        if it.leaves && it.channels == 0 {
            self.go(seat, left());
        } else {
            self.doubt(seat, loss, until);
        }
    }

    /// Handles that this node did not reach a seat, or that what it exchanged with it broke.
    pub fn handle_failure(&mut self, seat: usize, loss: Loss, now: Time) {
        self.doubt(seat, loss, now.after(VERDICT));
    }

    /// Of several reasons the first is told, after the longest time. No death is reported of one that leaves.
    fn doubt(&mut self, seat: usize, loss: Loss, until: Time) {
        let Seat { state, leaves, .. } = &mut self.seats[seat];
        match state {
            State::Here => *state = State::Doubted { loss, until },
            State::Doubted { until: earlier, .. } if !*leaves => *earlier = until.max(*earlier),
            State::Doubted { .. } | State::Gone(_) => {}
        }
    }

    /// A seat has left, unless a channel of it is still to be read.
    fn leave(&mut self, seat: usize, now: Time) {
        let state = &mut self.seats[seat].state;
        if !matches!(state, State::Gone(_)) {
            *state = State::Doubted { loss: left(), until: now.after(LAST_WORDS) };
        }
    }

    fn go(&mut self, seat: usize, loss: Loss) {
        let state = &mut self.seats[seat].state;
        if matches!(state, State::Gone(_)) {
            return;
        }
        *state = State::Gone(loss.clone());
        self.verdicts.push_back(match loss.kind() {
            LossKind::Left => Verdict::Left(seat, loss),
            _ => Verdict::Lost(seat, loss),
        });
    }

    fn seats_of(&self, id: NodeId) -> Vec<usize> {
        (0..self.seats.len()).filter(|seat| self.seats[*seat].id == id).collect()
    }
}

fn left() -> Loss {
    Loss::new(LossKind::Left, "it has left the cluster")
}
