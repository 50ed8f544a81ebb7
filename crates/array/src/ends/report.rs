//! Reports of a transfer: who exchanges how much, and where the time goes.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chunkcomm::report::{Cell, Section, State, Table};
use chunkcomm_group::{Op, Pair};

use super::error::ArrayError;
use super::opening::Link;
use super::shared::{Progress, Times};
use super::way::Way;
use crate::plan::Side;

/// Exchange of a rank with its peers, made by `explain` of an end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArrayReport {
    /// The end.
    pub side: Side,
    /// This rank in its group, and the size of the group.
    pub rank: usize,
    /// Number of ranks of the group.
    pub size: usize,
    /// Number of the round, from 1.
    pub round: u32,
    /// The ranks of the other group, in the order in which they are served.
    pub peers: Vec<PeerReport>,
}

/// Exchange of two ranks in a round.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerReport {
    /// The other rank, in its group.
    pub rank: usize,
    /// Number of elements.
    pub elements: usize,
    /// Number of bytes.
    pub bytes: usize,
    /// Number of contiguous runs at both ranks.
    pub runs: u64,
    /// Number of messages that take them.
    pub messages: usize,
    /// Whether this round has landed.
    pub has_landed: bool,
}

impl ArrayReport {
    pub(crate) fn new(
        (side, rank, size): (Side, usize, usize),
        element_bytes: usize,
        ways: &[(Way, Link)],
    ) -> ArrayReport {
        let peers = ways.iter().map(|(way, _)| PeerReport {
            rank: way.rank,
            elements: way.plan.elements(),
            bytes: way.plan.elements() * element_bytes,
            runs: way.runs,
            messages: way.tiles.len(),
            has_landed: false,
        });
        ArrayReport { side, rank, size, round: 0, peers: peers.collect() }
    }

    /// Returns the report of a round.
    pub(super) fn at(&self, round: u32, tasks: &[Progress]) -> ArrayReport {
        let mut report = ArrayReport { round, ..self.clone() };
        for (peer, task) in report.peers.iter_mut().zip(tasks) {
            peer.has_landed = task.landed >= round;
        }
        report
    }

    /// Returns the section of the node's report.
    pub(super) fn section(&self) -> Section {
        let ArrayReport { side, rank, size, round, peers } = self;
        let waits = self.waits_for().count();
        let state = match waits {
            0 => Cell::state(State::Idle, "all has landed"),
            _ => Cell::state(State::Busy, &format!("{waits} ranks have not all of round {round}")),
        };
        let mut table = Table::new("peers", &["rank", "round", "bytes", "messages"]);
        for peer in peers {
            let landed = match peer.has_landed {
                true => Cell::state(State::Idle, "landed"),
                false => Cell::state(State::Waits, "under way"),
            };
            let (bytes, messages) = (peer.bytes as u64, peer.messages as u64);
            table.row([
                Cell::Count(peer.rank as u64),
                landed,
                Cell::Bytes(bytes),
                Cell::Count(messages),
            ]);
        }
        Section::new("array", &format!("{side} group, rank {rank} of {size}"))
            .fact("state", state)
            .fact("round", Cell::Count(u64::from(*round)))
            .table(table)
    }

    /// Returns the ranks of the other group that this round waits for.
    pub fn waits_for(&self) -> impl Iterator<Item = usize> {
        self.peers.iter().filter(|peer| !peer.has_landed).map(|peer| peer.rank)
    }
}

impl fmt::Display for ArrayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ArrayReport { side, rank, size, round, peers } = self;
        let sum = |part: fn(&PeerReport) -> usize| peers.iter().map(part).sum::<usize>();
        let (bytes, messages) = (sum(|peer| peer.bytes), sum(|peer| peer.messages));
        write!(f, "rank {rank} of {size} of the {side} group, round {round}: {bytes} bytes in ")?;
        write!(f, "{messages} messages, {} ranks", peers.len())?;
        let waits: Vec<String> = self.waits_for().map(|rank| rank.to_string()).collect();
        match waits.len() {
            0 => f.write_str("; all has landed"),
            _ => write!(f, "; waits for rank {}", waits.join(", ")),
        }
    }
}

/// Where the time of a transfer went, as the largest of all ranks: the steps of Foster, Kohr, Krishnaiyer and
/// Choudhary ("Bringing Task Parallelism to HPF via the Message Passing Interface", 1996, section 4).
///
/// Their step 2 is the call from Fortran into the library; it has no counterpart here. Times are sums over all
/// rounds and all peers of a rank. Peers are served side by side and packing overlaps sending, so they may exceed the
/// time of the transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timings {
    /// Step 1: looking at the own layout.
    pub inquiry: Duration,
    /// Step 3: the exchange of layouts, waiting for late ranks included.
    pub exchange: Duration,
    /// Step 4: planning.
    pub schedule: Duration,
    /// Step 5: packing at senders, unpacking at receivers: the larger.
    pub packing: Duration,
    /// Step 6: waiting for room on the way to a peer, or for what it sends.
    pub transfer: Duration,
    /// Waiting of finished ranks for their peers' words.
    pub waiting: Duration,
}

impl Timings {
    /// Collects the largest times of all ranks.
    pub(crate) async fn of(times: &Times, pair: &mut Pair) -> Result<Timings, ArrayError> {
        let own = [
            &times.inquiry,
            &times.exchange,
            &times.schedule,
            &times.packing,
            &times.transfer,
            &times.waiting,
        ];
        let own: Vec<u64> = own.map(|time: &AtomicU64| time.load(Ordering::Relaxed)).to_vec();
        let all = pair.both().all_reduce(own, Op::max()).await;
        let all = all.map_err(|error| ArrayError::Group(error.cause))?;
        let time = |index: usize| Duration::from_nanos(all[index]);
        Ok(Timings {
            inquiry: time(0),
            exchange: time(1),
            schedule: time(2),
            packing: time(3),
            transfer: time(4),
            waiting: time(5),
        })
    }
}
