//! Plans: what two ranks exchange, and in which pieces.
//!
//! A plan stands on `meeting`, what two ranks have in common in one dimension (its closed form is in `common`, the
//! way over it in `runs`): what they exchange is the product of a meeting for each dimension. It travels in
//! `tiles`.

mod common;
pub(crate) mod meeting;
pub(crate) mod runs;
#[cfg(test)]
mod tests;
pub(crate) mod tiles;

use std::fmt;

use crate::layout::{DIMS_MAX, Layout};
use common::Periods;
use meeting::Meeting;
use tiles::Tiles;

/// End of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The group that has the elements.
    Sender,
    /// The group that gets them.
    Receiver,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Sender => "sending",
            Side::Receiver => "receiving",
        })
    }
}

/// All that a rank sends, or receives, in a transfer from one layout to another.
///
/// Each rank computes its own plan alone, from both layouts. Sender and receiver come to equal meetings and tiles.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The ranks with which something is exchanged: upwards from the own rank's successor, then from 0.
    ///
    /// So ranks do not all begin with the same peer.
    pub(crate) peers: Vec<PeerPlan>,
    /// Number of steps that the computation took.
    pub(crate) steps: u64,
}

/// The elements that are exchanged with one rank of the other layout.
#[derive(Clone, Debug)]
pub(crate) struct PeerPlan {
    /// The peer's rank in the other layout.
    pub(crate) peer: usize,
    /// The indices that both have in common, in each dimension of the transfer.
    pub(crate) meetings: Vec<Meeting>,
}

impl Plan {
    /// Returns the plan of a rank: of `from` as a sender, of `to` as a receiver.
    ///
    /// An element that several ranks of `from` own is sent by one of them: which one depends on the receiver, so
    /// that the work is spread.
    pub(crate) fn of(from: &Layout, to: &Layout, side: Side, rank: usize) -> Plan {
        let (mine, others) = match side {
            Side::Sender => (from, to),
            Side::Receiver => (to, from),
        };
        let mut steps = 0;
        let coordinates = mine.coordinates(rank);
        let choices: Vec<Choice> = (0..coordinates.len())
            .map(|dim| Choice::of(from, to, (side, rank), dim, coordinates[dim], &mut steps))
            .collect();
        let is_chosen = |receiver| {
            let mut each = chosen_replicas((from, to), receiver).into_iter().zip(&coordinates);
            each.all(|(chosen, own)| chosen.is_none_or(|chosen| chosen == *own))
        };
        let ranks = others.ranks();
        let mut found = Vec::new();
        for_each_product(&choices, |picked, peer_coordinates| {
            steps += 1;
            let peer = others.rank_of(peer_coordinates);
            // A receiver has chosen its senders among the coordinates.
            if side == Side::Receiver || is_chosen(peer) {
                let turn = (peer + ranks - (rank + 1) % ranks) % ranks;
                found.push((turn, peer, *picked));
            }
        });
        found.sort_unstable();
        let peers = found.into_iter().map(|(_, peer, picked)| {
            let meetings = choices.iter().zip(picked);
            PeerPlan {
                peer,
                meetings: meetings.map(|(choice, at)| choice.meetings[at].clone()).collect(),
            }
        });
        Plan { peers: peers.collect(), steps }
    }
}

impl PeerPlan {
    /// Returns the number of elements.
    pub(crate) fn elements(&self) -> usize {
        self.meetings.iter().map(|meeting| meeting.total).product()
    }

    /// Returns the number of runs that are contiguous in the storage of both ranks: layout and rank of the sender,
    /// and of the receiver.
    pub(crate) fn runs(&self, sender: (&Layout, usize), receiver: (&Layout, usize)) -> u64 {
        let strides = (sender.0.strides(sender.1), receiver.0.strides(receiver.1));
        let orders = sender.0.memory().iter().rev().zip(receiver.0.memory().iter().rev());
        let mut contiguous = Some(1);
        let mut runs = 1;
        for (&dim, &other) in orders {
            let meeting = &self.meetings[dim];
            // Neighbours in this dimension follow each other only if all before it is one run.
            let joins = dim == other
                && contiguous == Some(strides.0[dim])
                && contiguous == Some(strides.1[dim]);
            let count = if joins { meeting.run_count() } else { meeting.total as u64 };
            contiguous =
                contiguous.filter(|_| joins && count == 1).map(|elements| elements * meeting.total);
            runs *= count;
        }
        runs
    }

    /// Returns the pieces in which the elements travel, the same ones at both ends.
    pub(crate) fn tiles(&self, from: &Layout, to: &Layout, element_bytes: usize) -> Tiles {
        let totals = self.meetings.iter().map(|meeting| meeting.total).collect();
        Tiles::new(totals, from.memory(), to.memory(), element_bytes)
    }
}

/// The coordinates of the other grid, in one dimension, with which a rank has something in common.
#[derive(Debug)]
struct Choice {
    coordinates: Vec<usize>,
    /// The indices in common with each of them.
    meetings: Vec<Meeting>,
}

impl Choice {
    fn of(
        from: &Layout,
        to: &Layout,
        (side, rank): (Side, usize),
        dim: usize,
        coordinate: usize,
        steps: &mut u64,
    ) -> Choice {
        let mut choice = Choice { coordinates: Vec::new(), meetings: Vec::new() };
        let mut periods = Periods::default();
        let mut meet = |other: usize, meeting: Option<Meeting>| {
            choice.coordinates.extend(meeting.is_some().then_some(other));
            choice.meetings.extend(meeting);
        };
        match side {
            Side::Sender => {
                let sender = from.owned(dim, coordinate);
                for other in 0..to.grid_extent(dim) {
                    let receiver = to.stored(dim, other);
                    meet(other, Meeting::with(&sender, &receiver, &mut periods, steps));
                }
            }
            Side::Receiver => {
                let receiver = to.stored(dim, coordinate);
                let chosen = chosen_replicas((from, to), rank)[dim];
                for other in chosen.map_or(0..from.grid_extent(dim), |at| at..at + 1) {
                    let sender = from.owned(dim, other);
                    meet(other, Meeting::with(&sender, &receiver, &mut periods, steps));
                }
            }
        }
        choice
    }
}

/// Calls `visit` with each combination of choices: their numbers, and their coordinates.
fn for_each_product(choices: &[Choice], mut visit: impl FnMut(&[usize; DIMS_MAX], &[usize])) {
    if choices.iter().any(|choice| choice.coordinates.is_empty()) {
        return;
    }
    let mut picked = [0; DIMS_MAX];
    let mut coordinates = [0; DIMS_MAX];
    let dims = choices.len();
    loop {
        for (dim, choice) in choices.iter().enumerate() {
            coordinates[dim] = choice.coordinates[picked[dim]];
        }
        visit(&picked, &coordinates[..dims]);
        let Some(dim) =
            (0..dims).rev().find(|&dim| picked[dim] + 1 < choices[dim].coordinates.len())
        else {
            return;
        };
        picked[dim] += 1;
        picked[dim + 1..].fill(0);
    }
}

/// Returns the coordinate whose replica sends to a receiver, in each dimension that `from` replicates.
///
/// On equal grids it is the receiver's own, so that an exchange of a layout with itself moves margins alone. Else they are
/// the digits of the receiver's rank as a number whose bases are the numbers of replicas.
fn chosen_replicas((from, to): (&Layout, &Layout), receiver: usize) -> [Option<usize>; DIMS_MAX] {
    let mut chosen = [None; DIMS_MAX];
    let own = from.has_grid_of(to).then(|| to.coordinates(receiver));
    let mut rest = receiver;
    for (dim, chosen) in chosen.iter_mut().enumerate().take(from.memory().len()) {
        let replicas = from.replicas(dim);
        let digit = rest % replicas;
        *chosen = (replicas > 1).then(|| own.as_ref().map_or(digit, |own| own[dim]));
        rest /= replicas;
    }
    chosen
}
