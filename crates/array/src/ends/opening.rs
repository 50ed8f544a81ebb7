//! The opening of an end: agreement, plan, and the ways to the peers.

use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use chunkcomm::host::memory::Slices;
use chunkcomm::host::{self, Instant};
use chunkcomm::{BytesReceiver, BytesSender, Loss, LossKind, Node, Peer, channel};
use chunkcomm_cluster::Cluster;
use chunkcomm_cluster::cluster::NodeId;
use chunkcomm_group::{Element, Group, Pair};

use super::error::{ArrayError, refused};
use super::exchange::Messages;
use super::line::{ArrayLayer, Line, of_channel};
use super::shared::{Fault, Times, add};
use super::statement::{Agreed, Among, Parts, Statement, agree};
use super::wire::{self, HEAD_BYTES};
use crate::layout::Layout;
use crate::pack::{Storage, Tile, pack};
use crate::plan::Side;
use crate::plan::meeting::Meeting;
use crate::plan::tiles::Tiles;
use crate::plan::{PeerPlan, Plan};

/// An end that all ranks have agreed on.
pub(super) struct Opened {
    pub(super) node: Node,
    /// The exchange with each peer, and how the peer is reached.
    pub(super) ways: Vec<(Way, Link)>,
    /// Rows of this rank's storage.
    pub(super) rows: Rows,
    /// Whether the sender's and the receiver's fastest dimensions differ: a transposition.
    pub(super) is_across: bool,
}

/// Rows of a rank's storage: the indices of the dimension that is slowest in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    pub(super) count: usize,
    /// Number of elements of a row.
    pub(super) length: usize,
}

impl Rows {
    fn of(layout: &Layout, rank: usize) -> Rows {
        let slowest = layout.memory()[0];
        let elements = layout.local_len(rank);
        // Rows without elements are none.
        let count = if elements == 0 { 0 } else { layout.local_shape(rank)[slowest] };
        Rows { count, length: elements.checked_div(count).unwrap_or_default() }
    }

    /// Returns the elements of these rows.
    pub(super) fn elements(&self, rows: &Range<usize>) -> Range<usize> {
        rows.start * self.length..rows.end * self.length
    }
}

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
        let (side, rank) = us;
        let other = plan.peer;
        let (sender, receiver) = match side {
            Side::Sender => (rank, other),
            Side::Receiver => (other, rank),
        };
        Way {
            rank: other,
            side: match side {
                Side::Sender => Side::Receiver,
                Side::Receiver => Side::Sender,
            },
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

    /// Packs a tile of `storage`, the sender's, as the message of a round.
    pub(crate) fn message<T: Element>(&self, round: u32, index: usize, storage: &[T]) -> Bytes {
        let bytes = HEAD_BYTES + self.tiles.elements(index) * size_of::<T>();
        let mut message = Vec::with_capacity(bytes);
        message.extend_from_slice(&wire::head(round, index as u64, false));
        pack(&self.tile(&self.tiles.ranges(index)), storage, 0, &mut message);
        message.into()
    }

    /// Packs all tiles of `storage`; other tasks run in between.
    pub(crate) async fn messages<T: Element>(&self, round: u32, storage: &[T]) -> Messages {
        let (mut messages, mut slices) = (Messages::default(), Slices::default());
        for index in 0..self.tiles.len() {
            let message = self.message(round, index, storage);
            let bytes = message.len();
            messages.0.push_back(message);
            slices.worked(bytes).await;
        }
        messages
    }

    /// Checks a tile that came in `number`, and notes it as seen.
    pub(super) fn expected(
        &self,
        (round, tile): (u32, u64),
        (bytes, element_bytes): (usize, usize),
        number: u32,
        seen: &mut [bool],
    ) -> Result<usize, Loss> {
        let index = usize::try_from(tile).unwrap_or(usize::MAX);
        if round != number || seen.get(index).is_none_or(|seen| *seen) {
            let all = seen.len();
            return Err(refused(format!(
                "it sent tile {tile} of round {round}, one of {all} of round {number} was expected"
            )));
        }
        let expected = self.tiles.elements(index) * element_bytes;
        if bytes != expected {
            let why = format!("it sent {bytes} bytes as tile {tile}, which has {expected}");
            return Err(refused(why));
        }
        seen[index] = true;
        Ok(index)
    }

    /// Whether all elements have the same place in both storages.
    pub(super) fn stays_in_place(&self) -> bool {
        let same = |meeting: &Meeting| {
            meeting.pattern.iter().all(|it| it.at_sender == it.at_receiver)
                && (meeting.total <= meeting.window || meeting.sender_step == meeting.receiver_step)
        };
        self.sender.strides == self.receiver.strides && self.plan.meetings.iter().all(same)
    }

    /// Returns the error of a transfer that the other rank cannot go on with.
    pub(crate) fn fault(&self, loss: Loss, landed: usize) -> ArrayError {
        let (side, rank, elements) = (self.side, self.rank, self.plan.elements());
        ArrayError::Peer { side, rank, loss, landed, elements }
    }

    /// Returns the error of a transfer that the other rank cannot go on with, and what the other peers are told.
    pub(super) fn broken(&self, fault: Fault, landed: usize) -> (ArrayError, Fault) {
        let error = self.fault(fault.loss(), landed);
        let of = fault.of.or(Some((self.side, self.rank)));
        (error, Fault { of, ..fault })
    }
}

/// Time in which a peer that has agreed comes, after the death of any rank and after the program's end was
/// dropped: 10 s. The death may have kept it from agreeing.
pub(crate) const COMING: Duration = Duration::from_secs(10);

/// All ranks of a transfer.
#[derive(Clone)]
pub(crate) struct Ranks {
    cluster: Cluster,
    members: Arc<[NodeId]>,
}

impl Ranks {
    pub(crate) fn new(cluster: &Cluster, members: &[NodeId]) -> Ranks {
        Ranks { cluster: cluster.clone(), members: members.into() }
    }

    pub(crate) fn of(group: &Group) -> Ranks {
        let members = (0..group.size()).map(|rank| group.member(rank)).collect();
        Ranks { cluster: group.cluster().clone(), members }
    }

    /// Waits for the death of a rank, and as long as peers may still come after it. Returns what happened.
    pub(super) async fn lost(&self) -> Loss {
        let mut changes = self.cluster.changes();
        loop {
            let deaths = self.cluster.deaths();
            if let Some(death) = deaths.iter().find(|it| self.members.contains(&it.id)) {
                host::sleep(COMING).await;
                let why = format!("it did not come, and another rank died: {death}");
                return Loss::new(LossKind::Silent, why);
            }
            if changes.next().await.is_none() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// The way in which a peer is reached.
#[derive(Clone)]
pub(crate) struct Link {
    ranks: Ranks,
    member: NodeId,
    nonce: u64,
    name: Arc<str>,
}

impl Link {
    pub(crate) fn new(ranks: &Ranks, member: NodeId, nonce: u64) -> Link {
        let name = format!("chunkcomm-array.{nonce:016x}").into();
        Link { ranks: ranks.clone(), member, nonce, name }
    }

    /// Waits for something that the peer does when it comes.
    pub(super) async fn comes<F: Future>(&self, future: F) -> Result<F::Output, Loss> {
        tokio::select! {
            biased;
            outcome = future => Ok(outcome),
            loss = self.ranks.lost() => Err(loss),
        }
    }

    async fn peer(&self) -> Result<Peer, Loss> {
        self.ranks.cluster.peer_of(self.member).await
    }

    /// Opens a channel to a receiver that says nothing.
    pub(crate) async fn open_one_way(&self) -> Result<BytesSender, Loss> {
        let peer = self.peer().await?;
        let opened = self.ranks.cluster.node().open_bytes(&peer, &*self.name).await;
        opened.map_err(Loss::from)
    }

    /// Accepts the channel of a sender that hears nothing.
    pub(crate) async fn accept_one_way(&self) -> Result<BytesReceiver, Loss> {
        let peer = self.peer().await?;
        let channel = channel(&*self.name).from_peer(&peer);
        let accepted = self.comes(self.ranks.cluster.node().accept_bytes(channel)).await?;
        accepted.map(|(_, receiver)| receiver).map_err(Loss::from)
    }

    /// Returns the line of this node to itself, if the peer is this node.
    fn here(&self) -> Option<Line> {
        let node = self.ranks.cluster.node();
        (self.member == self.ranks.cluster.id()).then(|| ArrayLayer::line(node, self.nonce))
    }

    /// Opens the line to a receiver.
    pub(super) async fn open(&self) -> Result<Line, Loss> {
        if let Some(line) = self.here() {
            return Ok(line);
        }
        let peer = self.peer().await?;
        let opened = self.ranks.cluster.node().open_duplex_bytes(&peer, &*self.name).await;
        opened.map(of_channel).map_err(Loss::from)
    }

    /// Accepts the line of a sender.
    pub(super) async fn accept(&self) -> Result<Line, Loss> {
        if let Some(line) = self.here() {
            return Ok(line);
        }
        let peer = self.peer().await?;
        let channel = channel(&*self.name).from_peer(&peer);
        let accepted = self.comes(self.ranks.cluster.node().accept_duplex_bytes(channel)).await?;
        accepted.map(|(_, duplex)| of_channel(duplex)).map_err(Loss::from)
    }
}

/// Opens an end: agrees with all ranks of both groups, and plans.
pub(super) async fn open<T: Element>(
    pair: &mut Pair,
    (layout, length): (&Layout, usize),
    side: Side,
    times: &Times,
) -> Result<Opened, ArrayError> {
    let began = Instant::now();
    let rank = pair.rank();
    let statement = Statement::of::<T>(layout);
    let fault = fault(layout, rank, pair.size(), length);
    let parts = match side {
        Side::Sender => [Some(&statement), None],
        Side::Receiver => [None, Some(&statement)],
    };
    let asked = Instant::now();
    add(&times.inquiry, asked - began);
    let Agreed { from, to, nonce } = agree(Among::Pair(pair), Parts { parts, fault }).await?;
    let agreed = Instant::now();
    add(&times.exchange, agreed - asked);
    let plan = Plan::of(&from, &to, side, rank);
    let ranks = Ranks::of(pair.both());
    let way = |plan: PeerPlan| {
        let way = Way::new::<T>(&from, &to, (side, rank), plan);
        let link = Link::new(&ranks, pair.their_member(way.rank), nonce);
        (way, link)
    };
    let ways = plan.peers.into_iter().map(way).collect();
    let is_across = from.memory().last() != to.memory().last();
    let opened = Opened {
        node: ranks.cluster.node().clone(),
        ways,
        rows: Rows::of(layout, rank),
        is_across,
    };
    add(&times.schedule, agreed.elapsed());
    Ok(opened)
}

/// Returns the reason why a rank cannot take part in a transfer.
pub(crate) fn fault(layout: &Layout, rank: usize, size: usize, length: usize) -> Option<String> {
    let ranks = layout.ranks();
    if ranks != size {
        return Some(format!("the layout {layout} is one of {ranks} ranks, its group has {size}"));
    }
    let local = layout.local_len(rank);
    let shape = layout.local_shape(rank);
    (local != length).then(|| {
        format!(
            "it gives {length} elements, its part of {layout} has {local} in the shape {shape:?}"
        )
    })
}

/// Agrees within one group, whose ranks all send and receive.
pub(crate) async fn agree_within<T: Element>(
    group: &mut Group,
    from: &Layout,
    to: &Layout,
    fault: Option<String>,
) -> Result<Agreed, ArrayError> {
    let [from, to] = [from, to].map(Statement::of::<T>);
    let parts = Parts { parts: [Some(&from), Some(&to)], fault };
    agree(Among::Group(group), parts).await
}

/// Waits for all of these, at the same time.
pub(super) async fn all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        let mut is_over = true;
        for (future, outcome) in &mut futures {
            if outcome.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(ready) => *outcome = Some(ready),
                    Poll::Pending => is_over = false,
                }
            }
        }
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    futures.into_iter().filter_map(|(_, outcome)| outcome).collect()
}
