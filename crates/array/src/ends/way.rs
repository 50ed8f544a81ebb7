//! The exchange of two ranks: how its tiles are packed, checked, and unpacked.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use chunkcomm::host::memory::{self, Slices};
use chunkcomm_group::Element;

use super::error::{ArrayError, refused};
use super::pool::Pool;
use super::shared::Fault;
use super::wire::{self, HEAD_BYTES, Message};
use crate::layout::Layout;
use crate::pack::{Rows, Storage, Tile, pack, unpack};
use crate::plan::meeting::Meeting;
use crate::plan::tiles::Tiles;
use crate::plan::{PeerPlan, Plan, Side};

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
    pub(crate) side: Side,
    pub(crate) plan: PeerPlan,
    pub(crate) tiles: Tiles,
    /// Number of contiguous runs.
    pub(crate) runs: u64,
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

    /// Packs a tile, as the message of a round, into `message`, whatever that holds. `source` is the sender's storage from
    /// its element `first` on.
    pub(super) fn pack<T: Element>(
        &self,
        (round, index): (u32, usize),
        (source, first): (&[T], usize),
        message: &mut Vec<u8>,
    ) {
        message.resize(HEAD_BYTES + self.tiles.elements(index) * size_of::<T>(), 0);
        let (head, elements) = message.split_at_mut(HEAD_BYTES);
        head.copy_from_slice(&wire::head(round, index as u64, false));
        pack(&self.tile(&self.tiles.ranges(index)), source, first, elements);
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
            let mut message = messages.1.take();
            self.pack((round, index), (storage, 0), &mut message);
            let bytes = message.len();
            messages.0.push_back(messages.1.lend(message));
            slices.worked(bytes).await;
        }
    }

    /// Puts the elements of a tile into their places at the receiver.
    pub(crate) fn place<T: Element>(
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
    pub(crate) fn broken(&self, fault: Fault, landed: usize) -> Failure {
        let (side, rank, elements) = (self.side, self.rank, self.plan.elements());
        let error = ArrayError::Peer { side, rank, loss: fault.loss(), landed, elements };
        let of = fault.of.or(Some((side, rank)));
        (error, Fault { of, ..fault })
    }
}

/// Returns what packs and unpacks the elements that rank 0 of a layout sends to rank 0 of another one, for benches
/// alone; `None` if there are none.
pub fn packing_of<T: Element>(
    from: &Layout,
    to: &Layout,
) -> Option<impl FnMut(&[T], &mut [T]) + use<T>> {
    let mut peers = Plan::of(from, to, Side::Sender, 0).peers.into_iter();
    let way = Way::new::<T>(from, to, (Side::Sender, 0), peers.find(|plan| plan.peer == 0)?);
    let mut message = Vec::new();
    Some(move |source: &[T], target: &mut [T]| {
        for index in 0..way.tiles.len() {
            way.pack((1, index), (source, 0), &mut message);
            way.place(index, &message[HEAD_BYTES..], target);
        }
    })
}

/// Packed elements, and the memory of those that have left.
#[derive(Default)]
pub(crate) struct Messages(pub(crate) VecDeque<Bytes>, pub(super) Arc<Pool>);

impl Drop for Messages {
    fn drop(&mut self) {
        memory::free(self.0.iter().map(Bytes::len).sum(), std::mem::take(&mut self.0));
    }
}

/// Elements of one round that come from a peer: each tile once.
pub(crate) struct Intake {
    pub(crate) way: Way,
    element_bytes: usize,
    pub(super) round: u32,
    /// The tiles that have come.
    seen: Vec<bool>,
    /// Number of the others.
    pub(crate) missing: usize,
    /// Number of elements that are in their places.
    pub(crate) landed: usize,
    /// Round and number of the tile whose elements are the next message.
    apart: Option<(u32, u64)>,
}

impl Intake {
    /// Makes the intake of round 1.
    pub(crate) fn new<T>(way: Way) -> Intake {
        let (element_bytes, missing) = (size_of::<T>(), way.tiles.len());
        let seen = vec![false; missing];
        Intake { way, element_bytes, round: 1, seen, missing, landed: 0, apart: None }
    }

    pub(crate) fn begin(&mut self, round: u32) {
        self.seen.fill(false);
        (self.round, self.missing, self.landed) = (round, self.seen.len(), 0);
    }

    /// Whether all elements of the round are in their places.
    pub(super) fn is_whole(&self) -> bool {
        self.missing == 0 && self.landed == self.way.plan.elements()
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
            // The sender may stop between a head and its elements.
            if let Some(Message::Failed { fault, .. }) = Message::decode(message) {
                return Err(fault);
            }
            let why = format!("it sent {bytes} bytes as tile {tile}, which has {expected}");
            return Err(refused(why).into());
        }
        self.seen[index] = true;
        self.missing -= 1;
        Ok(Some((index, elements)))
    }

    /// Puts the elements of a tile into their places.
    pub(crate) fn place<T: Element>(
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

#[cfg(test)]
mod tests {
    use super::*;

    const ELEMENTS: usize = 1 << 20;

    /// Returns the intake of a rank that gets 8 tiles of one row, and the message of each.
    fn intake(round: u32) -> (Intake, Vec<Vec<u8>>) {
        let layout = Layout::parse("(*)@1", &[ELEMENTS]).expect("a layout");
        let [sender, receiver] = [Side::Sender, Side::Receiver].map(|side| {
            let plan = Plan::of(&layout, &layout, side, 0).peers.remove(0);
            Way::new::<u8>(&layout, &layout, (side, 0), plan)
        });
        let storage: Vec<u8> = (0..ELEMENTS).map(|element| (element % 251) as u8).collect();
        let pack = |index| {
            let mut message = Vec::new();
            sender.pack((round, index), (&storage[..], 0), &mut message);
            message
        };
        let messages: Vec<_> = (0..sender.tiles.len()).map(pack).collect();
        assert_eq!(messages.len(), 8);
        (Intake::new::<u8>(receiver), messages)
    }

    #[test]
    fn a_tile_is_taken_once_in_its_round_and_whole() {
        let (mut intake, messages) = intake(2);
        intake.begin(2);
        assert_eq!(intake.tile(&messages[3]), Ok(Some((3, &messages[3][HEAD_BYTES..]))));
        let (mut late, mut none) = (messages[4].clone(), messages[4].clone());
        late[..HEAD_BYTES].copy_from_slice(&wire::head(1, 4, false));
        none[..HEAD_BYTES].copy_from_slice(&wire::head(2, 8, false));
        let short = &messages[4][..messages[4].len() - 1];
        let wrong = [
            (&messages[3][..], "it sent tile 3 of round 2, one of 8 of round 2 was expected"),
            (&late, "it sent tile 4 of round 1, one of 8 of round 2 was expected"),
            (&none, "it sent tile 8 of round 2, one of 8 of round 2 was expected"),
            (short, "it sent 131071 bytes as tile 4, which has 131072"),
            (&wire::landed(2), "it says what no sender says"),
        ];
        for (message, why) in wrong {
            assert_eq!(intake.tile(message), Err(refused(why).into()));
        }
        assert_eq!(intake.missing, 7);
        assert!(matches!(intake.tile(&messages[4]), Ok(Some((4, _)))));
    }

    #[test]
    fn elements_that_come_apart_are_those_of_the_tile_before_them() {
        let (mut intake, messages) = intake(1);
        let mut storage = vec![0_u8; ELEMENTS];
        for (index, message) in messages.iter().enumerate().rev() {
            let elements = &message[HEAD_BYTES..];
            assert_eq!(intake.tile(&wire::head(1, index as u64, true)), Ok(None));
            assert_eq!(intake.tile(elements), Ok(Some((index, elements))));
            intake.place(index, elements, &mut storage[..]);
        }
        assert_eq!((intake.missing, intake.landed), (0, ELEMENTS));
        assert!((0..ELEMENTS).all(|element| storage[element] == (element % 251) as u8));
    }
}
