//! Exchanges of one group with itself, in place.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use chunkcomm::host::memory::{self, FreedVec, Slices};
use chunkcomm::{BytesReceiver, BytesSender, Loss};
use chunkcomm_group::{Element, Group};

use super::error::{ArrayError, refused};
use super::opening::{Link, Ranks, Way, agree_within, all};
use super::shared::{Fault, dropped};
use super::statement::Agreed;
use super::wire::{self, HEAD_BYTES, Message};
use crate::layout::Layout;
use crate::pack::unpack;
use crate::plan::Plan;
use crate::plan::Side;

/// Brings the array of one group into another layout, or its margins up to date, in the same storage.
///
/// All that leaves is packed before anything lands: it takes as much further memory as leaves this rank. Elements
/// that stay in their places are not touched.
///
/// A *halo exchange* is that of a layout with a margin with itself: each rank owns the inner elements and gets
/// those of its margin from their owners.
///
/// ```no_run
/// use chunkcomm_array::{ArrayExchange, Layout};
/// use chunkcomm_group::Group;
///
/// # async fn example(group: &mut Group) -> Result<(), Box<dyn std::error::Error>> {
/// let layout = Layout::parse("(block,block)@2x2", &[1000, 1000])?.margin(1)?;
/// let storage = vec![0.0_f64; layout.local_len(group.rank())];
/// let mut halo = ArrayExchange::halo(group, &layout, storage).await?;
/// for _ in 0..100 {
///     halo.run().await?;
///     let storage = halo.storage_mut(); // its margins are those of the neighbours
///     # let _ = storage;
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "an exchange does nothing until it runs"]
pub struct ArrayExchange<T: Element> {
    storage: Vec<T>,
    leaving: Vec<Leaving>,
    arriving: Vec<Arriving>,
    /// Elements that stay at this rank but change their places.
    own: Option<(Way, Way)>,
    kept: Messages,
    packing: Packing,
    slices: Slices,
    ranks: Ranks,
    /// Number of the run, from 1; 0 before the first.
    round: u32,
    is_under_way: bool,
    fault: Option<ArrayError>,
}

/// Progress of the packing, before anything lands.
enum Packing {
    /// The next tile of one of the peers, the rank's own behind them.
    Tile {
        peer: usize,
        index: usize,
    },
    /// The number of own tiles that are in their new places.
    Own(usize),
    Done,
}

/// Packed elements.
#[derive(Default)]
pub(crate) struct Messages(pub(crate) VecDeque<Bytes>);

impl Drop for Messages {
    fn drop(&mut self) {
        memory::free(self.0.iter().map(Bytes::len).sum(), std::mem::take(&mut self.0));
    }
}

/// Elements of one round that leave to a peer, packed.
pub(crate) struct Leaving {
    pub(crate) way: Way,
    pub(crate) channel: BytesSender,
    pub(crate) messages: Messages,
}

/// Elements of one round that come from a peer.
pub(crate) struct Arriving {
    pub(crate) way: Way,
    pub(crate) channel: BytesReceiver,
    /// The tiles that have come.
    pub(crate) seen: Vec<bool>,
    /// Number of the others.
    pub(crate) missing: usize,
    slices: Slices,
}

impl<T: Element> ArrayExchange<T> {
    /// Opens an exchange from one layout of an array to another. All ranks of the group open it.
    ///
    /// `storage` is this rank's part, in the order of the memory of `from`; after a run it is that of `to`. It has
    /// as many elements as the larger of both.
    ///
    /// # Errors
    ///
    /// As [`ArraySender::open`](crate::ArraySender::open); `storage` is dropped.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the other ranks get an error or wait for this one.
    pub async fn open(
        group: &mut Group,
        from: &Layout,
        to: &Layout,
        storage: Vec<T>,
    ) -> Result<Self, ArrayError> {
        let storage = FreedVec(storage);
        let fault = fault(from, to, group, storage.0.len());
        let Agreed { nonce, .. } = agree_within::<T>(group, from, to, fault).await?;
        let (rank, ranks) = (group.rank(), Ranks::of(group));
        let ways = |side| {
            let plan = Plan::of(from, to, side, rank);
            let ways = plan.peers.into_iter();
            ways.map(|plan| Way::new::<T>(from, to, (side, rank), plan)).collect::<Vec<_>>()
        };
        let link = |way: &Way| Link::new(&ranks, group.member(way.rank), nonce);
        let others = |side| {
            let (own, others): (Vec<Way>, _) =
                ways(side).into_iter().partition(|way| way.rank == rank);
            (own.into_iter().next(), others)
        };
        let (own_leaving, to): (_, Vec<Way>) = others(Side::Sender);
        let (own_arriving, from): (_, Vec<Way>) = others(Side::Receiver);
        // After a fault, too: no peer waits for a channel that does not come.
        let opened = to.into_iter().map(|way| {
            let link = link(&way);
            async move { (link.open_one_way().await, way) }
        });
        let opened = all(opened).await;
        let accepted = from.into_iter().map(|way| {
            let link = link(&way);
            async move { (link.accept_one_way().await, way) }
        });
        let accepted = all(accepted).await;
        let mut exchange = Self {
            storage: storage.into_inner(),
            leaving: Vec::new(),
            arriving: Vec::new(),
            own: own_leaving.zip(own_arriving).filter(|(way, _)| !way.stays_in_place()),
            kept: Messages::default(),
            packing: Packing::Done,
            slices: Slices::default(),
            ranks,
            round: 0,
            is_under_way: false,
            fault: None,
        };
        let mut fault = None;
        for (channel, way) in opened {
            match channel {
                Ok(channel) => {
                    let messages = Messages::default();
                    exchange.leaving.push(Leaving { way, channel, messages });
                }
                Err(loss) => fault = Some(way.broken(loss.into(), 0)),
            }
        }
        for (channel, way) in accepted {
            match channel {
                Ok(channel) => {
                    exchange.arriving.push(Arriving::new(way, channel));
                }
                Err(loss) => fault = Some(way.broken(loss.into(), 0)),
            }
        }
        match fault {
            Some(fault) => Err(exchange.ended(fault)),
            None => Ok(exchange),
        }
    }

    /// Ends the exchange: the peers hear of the fault, and what this rank does not send comes from nobody.
    fn ended(&mut self, (error, told): (ArrayError, Fault)) -> ArrayError {
        let word = Bytes::from(wire::failed(0, &told));
        for mut leaving in self.leaving.drain(..) {
            // A peer that takes nothing sees the end of the channel.
            let _ = leaving.channel.try_send(&word);
        }
        self.arriving.clear();
        self.fault = Some(error.clone());
        error
    }

    /// Opens a halo exchange: that of `layout`, which has margins, with itself.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    ///
    /// # Cancel safety
    ///
    /// As `open`.
    pub async fn halo(
        group: &mut Group,
        layout: &Layout,
        storage: Vec<T>,
    ) -> Result<Self, ArrayError> {
        Self::open(group, layout, layout, storage).await
    }

    /// Exchanges once. Returns when all that comes to this rank has landed and all that leaves is accepted.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Peer`] when a rank is gone or has dropped its exchange: the storage is partly in the new
    /// layout.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the exchange stays under way; call it again to go on.
    pub async fn run(&mut self) -> Result<(), ArrayError> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        if !self.is_under_way {
            self.begin();
        }
        let ranks = self.ranks.clone();
        let outcome = tokio::select! {
            biased;
            outcome = poll_fn(|context| self.poll(context)) => outcome,
            loss = ranks.lost() => match self.waits_for(loss) {
                Some(fault) => Err(fault),
                None => return Err(ArrayError::Ended),
            },
        };
        match outcome {
            Ok(()) => {
                self.is_under_way = false;
                Ok(())
            }
            Err(fault) => Err(self.ended(fault)),
        }
    }

    /// Returns the error with a rank that this one waits for.
    fn waits_for(&self, loss: Loss) -> Option<(ArrayError, Fault)> {
        let arriving = self.arriving.iter().find(|arriving| arriving.missing > 0);
        let arriving = arriving.map(|it| (&it.way, it.landed()));
        let leaving = || self.leaving.first().map(|leaving| (&leaving.way, 0));
        let waited = arriving.or_else(leaving);
        waited.map(|(way, landed)| way.broken(loss.into(), landed))
    }

    fn begin(&mut self) {
        self.is_under_way = true;
        self.round += 1;
        self.packing = Packing::Tile { peer: 0, index: 0 };
        for Arriving { way, seen, missing, .. } in &mut self.arriving {
            seen.fill(false);
            *missing = way.tiles.len();
        }
    }

    /// Packs all that leaves, and then brings the rank's own elements to their new places.
    fn poll_packed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let bytes = match self.packing {
                Packing::Tile { peer, index } => self.pack_tile(peer, index),
                Packing::Own(index) => self.place_own(index),
                Packing::Done => return Poll::Ready(()),
            };
            ready!(self.slices.poll_worked(context, bytes));
        }
    }

    /// Packs a tile, and returns its bytes.
    fn pack_tile(&mut self, peer: usize, index: usize) -> usize {
        let peers = self.leaving.len();
        let (way, messages) = match (self.leaving.get_mut(peer), &self.own) {
            (Some(Leaving { way, messages, .. }), _) => (&*way, messages),
            (None, Some((way, _))) if peer == peers => (way, &mut self.kept),
            _ => {
                self.packing = Packing::Own(0);
                return 0;
            }
        };
        if index == way.tiles.len() {
            self.packing = Packing::Tile { peer: peer + 1, index: 0 };
            return 0;
        }
        let message = way.message(self.round, index, &self.storage);
        let bytes = message.len();
        messages.0.push_back(message);
        self.packing = Packing::Tile { peer, index: index + 1 };
        bytes
    }

    /// Brings an own tile to its new place, and returns its bytes.
    fn place_own(&mut self, index: usize) -> usize {
        let (Some(message), Some((_, way))) = (self.kept.0.pop_front(), &self.own) else {
            self.packing = Packing::Done;
            return 0;
        };
        let elements = &message[HEAD_BYTES..];
        unpack(&way.tile(&way.tiles.ranges(index)), elements, &mut self.storage[..]);
        self.packing = Packing::Own(index + 1);
        message.len()
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), (ArrayError, Fault)>> {
        ready!(self.poll_packed(context));
        let mut is_over = true;
        // A peer that ends says why before it closes its channels.
        for arriving in &mut self.arriving {
            match arriving.poll(self.round, &mut self.storage, context) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(fault)) => {
                    let landed = arriving.landed();
                    return Poll::Ready(Err(arriving.way.broken(fault, landed)));
                }
                Poll::Pending => is_over = false,
            }
        }
        for leaving in &mut self.leaving {
            match leaving.poll(context) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(loss)) => {
                    return Poll::Ready(Err(leaving.way.broken(loss.into(), 0)));
                }
                Poll::Pending => is_over = false,
            }
        }
        if is_over { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Returns the storage, to read.
    #[must_use]
    pub fn storage(&self) -> &[T] {
        &self.storage
    }

    /// Returns the storage, to write.
    pub fn storage_mut(&mut self) -> &mut [T] {
        &mut self.storage
    }

    /// Ends the exchange and returns the storage.
    #[must_use]
    pub fn into_buffer(mut self) -> Vec<T> {
        std::mem::take(&mut self.storage)
    }
}

impl<T: Element> Drop for ArrayExchange<T> {
    fn drop(&mut self) {
        memory::free_vec(std::mem::take(&mut self.storage));
    }
}

impl Leaving {
    /// Sends what is left; ready when all of it is accepted.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Loss>> {
        while !self.messages.0.is_empty() {
            match self.channel.poll_ready(context) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Pending => return Poll::Pending,
            }
            let message = self.messages.0.pop_front().expect("there is one");
            if let Err(error) = self.channel.start_send(message) {
                return Poll::Ready(Err(error.into()));
            }
        }
        self.channel.poll_flush(context).map_err(Loss::from)
    }
}

impl Arriving {
    pub(crate) fn new(way: Way, channel: BytesReceiver) -> Self {
        let (seen, missing) = (vec![false; way.tiles.len()], way.tiles.len());
        Self { way, channel, seen, missing, slices: Slices::default() }
    }

    /// Takes what comes; ready when all of it is in the storage.
    pub(crate) fn poll<T: Element>(
        &mut self,
        round: u32,
        storage: &mut [T],
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Fault>> {
        while self.missing > 0 {
            let message = match self.channel.poll_recv(context) {
                Poll::Ready(Ok(Some(message))) => message,
                Poll::Ready(Ok(None)) => return Poll::Ready(Err(dropped().into())),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(Loss::from(error).into())),
                Poll::Pending => return Poll::Pending,
            };
            let (number, tile, elements) = match Message::decode(&message) {
                Some(Message::Tile { round, tile, elements }) => (round, tile, elements),
                Some(Message::Failed { fault, .. }) => return Poll::Ready(Err(fault)),
                _ => return Poll::Ready(Err(refused("it says what no sender says").into())),
            };
            let index = self.way.expected(
                (number, tile),
                (elements.len(), size_of::<T>()),
                round,
                &mut self.seen,
            );
            let index = match index {
                Ok(index) => index,
                Err(loss) => return Poll::Ready(Err(loss.into())),
            };
            unpack(&self.way.tile(&self.way.tiles.ranges(index)), elements, storage);
            self.missing -= 1;
            if self.slices.poll_worked(context, elements.len()).is_pending() {
                return Poll::Pending;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Returns the number of elements that have landed.
    pub(crate) fn landed(&self) -> usize {
        let landed = self.seen.iter().enumerate().filter(|(_, seen)| **seen);
        landed.map(|(index, _)| self.way.tiles.elements(index)).sum()
    }
}

/// Returns the reason why this rank cannot take part.
fn fault(from: &Layout, to: &Layout, group: &Group, length: usize) -> Option<String> {
    let (rank, size) = (group.rank(), group.size());
    for layout in [from, to] {
        if layout.ranks() != size {
            let ranks = layout.ranks();
            return Some(format!(
                "the layout {layout} is one of {ranks} ranks, the group has {size}"
            ));
        }
    }
    let longest = from.local_len(rank).max(to.local_len(rank));
    (longest != length).then(|| {
        format!("it gives {length} elements, its larger part of {from} and {to} has {longest}")
    })
}

impl<T: Element> fmt::Debug for ArrayExchange<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArrayExchange")
            .field("round", &self.round)
            .field("elements", &self.storage.len())
            .finish_non_exhaustive()
    }
}
