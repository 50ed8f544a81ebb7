//! The exchange of two ranks: how its tiles are packed, checked, and unpacked.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use chunkcomm::host::memory::{self, Slices};
use chunkcomm_group::Element;

use super::error::{ArrayError, refused};
use super::shared::Fault;
use super::wire::{self, HEAD_BYTES, Message};
use crate::layout::Layout;
use crate::pack::{Rows, Storage, Tile, pack, unpack};
use crate::plan::meeting::Meeting;
use crate::plan::tiles::Tiles;
use crate::plan::{PeerPlan, Side};

/// The error of a transfer that a peer cannot go on with, and what the other peers are told.
pub(crate) type Failure = (ArrayError, Fault);

/// Order and strides of a rank's storage.
#[derive(Debug)]
struct Store {
    order: Arc<[usize]>,
    strides: Vec<usize>,
}

impl Store {
    fn of(layout: &Layout, rank: usize) -> Store {
        Store { order: layout.memory().into(), strides: layout.strides(rank) }
    }

    fn storage(&self) -> Storage<'_> {
        Storage { order: &self.order, strides: &self.strides }
    }
}

/// The exchange of two ranks.
#[derive(Debug)]
pub(crate) struct Way {
    /// The other one's rank in its group, and that group's end.
    pub(crate) rank: usize,
    pub(super) side: Side,
    pub(crate) plan: PeerPlan,
    pub(crate) tiles: Tiles,
    /// Number of contiguous runs.
    pub(super) runs: u64,
    sender: Store,
    receiver: Store,
}

impl Way {
    /// Plans the way between two ranks, from the one of `us`.
    pub(crate) fn new<T>(from: &Layout, to: &Layout, us: (Side, usize), plan: PeerPlan) -> Way {
        let other = plan.peer;
        let (side, sender, receiver) = match us {
            (Side::Sender, rank) => (Side::Receiver, rank, other),
            (Side::Receiver, rank) => (Side::Sender, other, rank),
        };
        Way {
            rank: other,
            side,
            tiles: plan.tiles(from, to, size_of::<T>()),
            runs: plan.runs((from, sender), (to, receiver)),
            plan,
            sender: Store::of(from, sender),
            receiver: Store::of(to, receiver),
        }
    }

    /// Returns the tile with these positions.
    pub(super) fn tile<'a>(&'a self, ranges: &'a [Range<usize>]) -> Tile<'a> {
        Tile {
            meetings: &self.plan.meetings,
            ranges,
            sender: self.sender.storage(),
            receiver: self.receiver.storage(),
        }
    }

    /// Packs a tile, as the message of a round, into `message`. `source` is the sender's storage from its element `first`
    /// on.
    pub(super) fn pack<T: Element>(
        &self,
        (round, index): (u32, usize),
        (source, first): (&[T], usize),
        message: &mut Vec<u8>,
    ) {
        message.reserve(HEAD_BYTES + self.tiles.elements(index) * size_of::<T>());
        message.extend_from_slice(&wire::head(round, index as u64, false));
        pack(&self.tile(&self.tiles.ranges(index)), source, first, message);
    }

    /// Packs the tiles of `storage` that `messages` has not yet; other tasks run in between.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, a further call goes on.
    pub(crate) async fn pack_all<T: Element>(
        &self,
        round: u32,
        storage: &[T],
        (messages, slices): (&mut Messages, &mut Slices),
    ) {
        for index in messages.0.len()..self.tiles.len() {
            let mut message = Vec::new();
            self.pack((round, index), (storage, 0), &mut message);
            let bytes = message.len();
            messages.0.push_back(message.into());
            slices.worked(bytes).await;
        }
    }

    /// Puts the elements of a tile into their places at the receiver.
    pub(super) fn place<T: Element>(
        &self,
        index: usize,
        elements: &[u8],
        storage: &mut (impl Rows<T> + ?Sized),
    ) {
        unpack(&self.tile(&self.tiles.ranges(index)), elements, storage);
    }

    /// Whether all elements have the same place in both storages.
    pub(super) fn stays_in_place(&self) -> bool {
        let same = |meeting: &Meeting| {
            meeting.pattern.iter().all(|it| it.at_sender == it.at_receiver)
                && (meeting.total <= meeting.window || meeting.sender_step == meeting.receiver_step)
        };
        self.sender.strides == self.receiver.strides && self.plan.meetings.iter().all(same)
    }

    /// Returns the error of a transfer that the other rank cannot go on with, and what the other peers are told.
    pub(super) fn broken(&self, fault: Fault, landed: usize) -> Failure {
        let (side, rank, elements) = (self.side, self.rank, self.plan.elements());
        let error = ArrayError::Peer { side, rank, loss: fault.loss(), landed, elements };
        let of = fault.of.or(Some((side, rank)));
        (error, Fault { of, ..fault })
    }
}

/// Packed elements.
#[derive(Default)]
pub(crate) struct Messages(pub(crate) VecDeque<Bytes>);

impl Drop for Messages {
    fn drop(&mut self) {
        memory::free(self.0.iter().map(Bytes::len).sum(), std::mem::take(&mut self.0));
    }
}

/// Elements of one round that come from a peer: each tile once.
pub(crate) struct Intake {
    pub(super) way: Way,
    element_bytes: usize,
    round: u32,
    /// The tiles that have come.
    seen: Vec<bool>,
    /// Number of the others.
    pub(crate) missing: usize,
    /// Number of elements that are in their places.
    pub(super) landed: usize,
    /// Round and number of the tile whose elements are the next message.
    apart: Option<(u32, u64)>,
}

impl Intake {
    /// Makes the intake of round 1.
    pub(super) fn new<T>(way: Way) -> Intake {
        let (element_bytes, missing) = (size_of::<T>(), way.tiles.len());
        let seen = vec![false; missing];
        Intake { way, element_bytes, round: 1, seen, missing, landed: 0, apart: None }
    }

    pub(super) fn begin(&mut self, round: u32) {
        self.seen.fill(false);
        (self.round, self.missing, self.landed) = (round, self.seen.len(), 0);
    }

    /// Checks a message; returns its tile and the elements, if it has them.
    pub(super) fn tile<'a>(
        &mut self,
        message: &'a [u8],
    ) -> Result<Option<(usize, &'a [u8])>, Fault> {
        let (round, tile, elements) = match self.apart.take() {
            Some((round, tile)) => (round, tile, message),
            None => match Message::decode(message) {
                Some(Message::Tile { round, tile, elements }) => (round, tile, elements),
                Some(Message::Apart { round, tile }) => {
                    self.apart = Some((round, tile));
                    return Ok(None);
                }
                Some(Message::Failed { fault, .. }) => return Err(fault),
                _ => return Err(refused("it says what no sender says").into()),
            },
        };
        let (index, number) = (usize::try_from(tile).unwrap_or(usize::MAX), self.round);
        if round != number || self.seen.get(index).is_none_or(|seen| *seen) {
            let all = self.seen.len();
            let why = format!(
                "it sent tile {tile} of round {round}, one of {all} of round {number} was expected"
            );
            return Err(refused(why).into());
        }
        let (bytes, expected) =
            (elements.len(), self.way.tiles.elements(index) * self.element_bytes);
        if bytes != expected {
            let why = format!("it sent {bytes} bytes as tile {tile}, which has {expected}");
            return Err(refused(why).into());
        }
        self.seen[index] = true;
        self.missing -= 1;
        Ok(Some((index, elements)))
    }

    /// Puts the elements of a tile into their places.
    pub(super) fn place<T: Element>(
        &mut self,
        index: usize,
        elements: &[u8],
        storage: &mut (impl Rows<T> + ?Sized),
    ) {
        self.way.place(index, elements, storage);
        self.landed += elements.len() / self.element_bytes;
    }

    /// Returns the error of a peer that cannot go on, and what the other peers are told.
    pub(crate) fn broken(&self, fault: Fault) -> Failure {
        self.way.broken(fault, self.landed)
    }
}
