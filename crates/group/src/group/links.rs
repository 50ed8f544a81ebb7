//! The channels of a group: one a direction between each pair of ranks that talk.

use std::collections::{BTreeSet, VecDeque};
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use chunkcomm::layer::{Layer, Owed, Written};
use chunkcomm::{AcceptError, BytesReceiver, BytesSender, Loss, LossKind, Node, Peer};
use chunkcomm_cluster::Cluster;
use chunkcomm_cluster::cluster::{NodeId, WeakCluster};
use chunkcomm_cluster::roster::{Event, Roster};

use super::forming::GroupLayer;
use super::io::Heard;
use super::shared::Shared;
use super::source::Source;
use crate::proto::talk::{Kind, Word};
use crate::region::Lines;

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The way to one rank.
enum Way {
    Closed,
    Opening(Boxed<Result<BytesSender, Loss>>),
    Open(BytesSender),
    Failed,
}

/// The way to one rank, and the words that wait for room.
struct Outgoing {
    way: Way,
    waiting: VecDeque<Bytes>,
    waiting_bytes: usize,
    /// Words that the channel has taken and may not have sent.
    unsent: bool,
}

/// A channel that a peer has opened.
struct Incoming {
    peer: Peer,
    /// The rank at its other end, once it has said so.
    from: Option<usize>,
    receiver: BytesReceiver,
    source: Source,
    /// It may have words.
    is_ready: bool,
    /// Memory of its words that no run has taken.
    held_bytes: usize,
    /// It was not heard, for the words that are held.
    is_held_up: bool,
}

/// Memory of a rank's words that are held for later calls, at which the rank is heard only as long as a
/// call waits for it: 4 MiB. The channel then holds the rank up.
const HELD_BYTES_MAX: usize = 4 << 20;

/// Bytes of words that wait for room on the way to a rank, at which no further call begins: 4 MiB.
const WAITING_BYTES_MAX: usize = 4 << 20;

/// The channels of a group.
pub(crate) struct Links {
    shared: Arc<Shared>,
    /// All sources of events but the channels of words.
    pub(super) rest: Source,
    /// The ranks, each a seat.
    pub(super) roster: Roster,
    pub(crate) rank: usize,
    /// The group's name in those of channels.
    pub(crate) name: Arc<str>,
    /// The lines of large calls, beside the channels of words.
    pub(super) lines: Arc<Lines>,
    outgoing: Vec<Outgoing>,
    accepting: Option<Boxed<Result<(Peer, BytesReceiver), AcceptError>>>,
    incoming: Vec<Incoming>,
    /// Whether the channel of each rank has come.
    has_come: Vec<bool>,
    /// Calls whose runs wait until some rank takes words again.
    awaiting_room: BTreeSet<u64>,
    /// Index of the channel that is heard first, so that all have their turn.
    next: usize,
    /// Memory for the next word.
    word: Vec<u8>,
    /// Memory of words that were taken, for the next ones.
    spare: Vec<Vec<u8>>,
}

/// Most words whose memory is kept, and the longest of these.
const SPARE_COUNT_MAX: usize = 16;
const SPARE_BYTES_MAX: usize = 16 * 1024;

impl Links {
    pub(crate) fn new(shared: Arc<Shared>, roster: Roster, rank: usize, name: Arc<str>) -> Links {
        let size = roster.seats().len();
        let outgoing = (0..size)
            .map(|_| Outgoing {
                way: Way::Closed,
                waiting: VecDeque::new(),
                waiting_bytes: 0,
                unsent: false,
            })
            .collect();
        Links {
            rest: Source::new(&shared, false),
            shared,
            roster,
            rank,
            name,
            lines: Arc::default(),
            outgoing,
            accepting: None,
            incoming: Vec::new(),
            has_come: vec![false; size],
            awaiting_room: BTreeSet::new(),
            next: 0,
            word: Vec::new(),
            spare: Vec::new(),
        }
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        self.roster.cluster()
    }

    pub(crate) fn members(&self) -> &Arc<[NodeId]> {
        self.roster.seats()
    }

    /// Sends a word, at once where there is room, and opens the way to the rank where there is none.
    pub(crate) fn send(&mut self, to: usize, word: &Word<'_>, payload: &[&[u8]]) {
        self.word.clear();
        word.encode(&mut self.word);
        for part in payload {
            self.word.extend_from_slice(part);
        }
        let outgoing = &mut self.outgoing[to];
        if matches!(outgoing.way, Way::Failed) {
            return;
        }
        if let (Way::Open(sender), true) = (&mut outgoing.way, outgoing.waiting.is_empty()) {
            let mut context = Context::from_waker(Waker::noop());
            let sent = pin!(sender.send_slice_now(&self.word)).poll(&mut context);
            match sent {
                Poll::Ready(Ok(())) => {
                    self.shared.has_said.store(true, Ordering::Relaxed);
                    return;
                }
                Poll::Ready(Err(error)) => {
                    outgoing.fail();
                    self.note_failure(to, error.into());
                    return;
                }
                Poll::Pending => {}
            }
        }
        outgoing.waiting.push_back(Bytes::copy_from_slice(&self.word));
        outgoing.waiting_bytes += self.word.len();
        if matches!(outgoing.way, Way::Closed) {
            outgoing.way = Way::Opening(open(
                self.roster.cluster().clone(),
                self.roster.seats()[to],
                format!("{}/{to}", self.name),
                self.rank,
            ));
        }
    }

    /// Moves words to the ranks.
    pub(crate) fn poll_send(&mut self) {
        for (to, outgoing) in self.outgoing.iter_mut().enumerate() {
            if outgoing.waiting.is_empty() && !outgoing.unsent {
                continue;
            }
            if let Err(loss) = outgoing.poll(&mut self.rest.context()) {
                outgoing.fail();
                self.roster.note_failure(to, loss);
                self.rest.note();
            }
        }
    }

    /// Returns the next event of the ranks.
    pub(super) fn poll_event(&mut self) -> Poll<Event> {
        self.roster.poll_event(&mut self.rest.context())
    }

    /// Notes that this node did not reach a rank.
    pub(super) fn note_failure(&mut self, rank: usize, loss: Loss) {
        self.roster.note_failure(rank, loss);
        self.rest.note();
    }

    /// Returns a rank to which words wait since the channel there has no room to open, and for how long there was
    /// none for others either.
    pub(crate) fn waits_to_open(&mut self) -> Option<(usize, Duration)> {
        let ranks = self.outgoing.iter_mut().enumerate();
        ranks.filter(|(_, it)| it.unsent).find_map(|(rank, it)| match &mut it.way {
            Way::Open(sender) => Some((rank, Written::of(sender).waits_in_vain()?)),
            _ => None,
        })
    }

    /// Whether a rank has said or heard something, or is about to.
    pub(crate) fn has_talked(&self, rank: usize) -> bool {
        let has_said = self.incoming.iter().any(|it| it.from == Some(rank));
        has_said || !matches!(self.outgoing[rank].way, Way::Closed)
    }

    /// Lets all words leave: until then [`is_idle`](Self::is_idle) is false.
    pub(crate) fn flush(&mut self) {
        for outgoing in &mut self.outgoing {
            outgoing.unsent |= matches!(outgoing.way, Way::Open(_));
        }
    }

    /// Whether all words have left.
    pub(crate) fn is_idle(&self) -> bool {
        self.outgoing.iter().all(|it| it.waiting.is_empty() && !it.unsent)
    }

    /// Returns a rank that takes words more slowly than calls make them.
    pub(crate) fn full_to(&self) -> Option<usize> {
        (0..self.outgoing.len()).find(|to| self.is_full(*to))
    }

    /// Whether this rank takes words more slowly than calls make them.
    pub(crate) fn is_full(&self, to: usize) -> bool {
        self.outgoing[to].waiting_bytes >= WAITING_BYTES_MAX
    }

    /// Returns the number of such ranks.
    pub(crate) fn full_count(&self) -> usize {
        (0..self.outgoing.len()).filter(|to| self.is_full(*to)).count()
    }

    /// Notes that a call waits until some rank takes words again.
    pub(crate) fn await_room(&mut self, call: u64) {
        self.awaiting_room.insert(call);
    }

    /// Returns the calls that waited for room.
    pub(crate) fn take_awaiting_room(&mut self) -> BTreeSet<u64> {
        mem::take(&mut self.awaiting_room)
    }

    /// Whether a channel that was held up may be heard again.
    pub(crate) fn hears_more(&self, is_wanted: impl Fn(usize) -> bool) -> bool {
        self.incoming.iter().any(|it| it.is_held_up && it.is_heard(&is_wanted))
    }

    /// Returns the next word that has come. A rank of which much is held is heard where it `is_wanted`.
    pub(crate) fn poll_hear(&mut self, is_wanted: impl Fn(usize) -> bool) -> Poll<Heard> {
        let mut looked = 0;
        while looked < self.incoming.len() {
            let index = self.next % self.incoming.len();
            let incoming = &mut self.incoming[index];
            incoming.is_ready |= incoming.source.take_news();
            incoming.is_held_up = incoming.is_ready && !incoming.is_heard(&is_wanted);
            if !incoming.is_ready || incoming.is_held_up {
                self.next = index + 1;
                looked += 1;
                continue;
            }
            // A small word is copied, since its `Bytes` would be an allocation.
            let mut bytes = self.spare.pop().unwrap_or_default();
            let context = &mut incoming.source.context();
            let copy = |word: &[u8]| bytes.extend_from_slice(word);
            let polled = incoming.receiver.poll_recv_with(context, copy);
            match polled {
                Poll::Ready(Ok(Some(()))) => match self.hear(index, bytes) {
                    Ok(Some(heard)) => return Poll::Ready(heard),
                    Ok(None) => {}
                    Err(loss) => self.end(index, loss),
                },
                Poll::Ready(Ok(None)) => {
                    let loss = Loss::new(LossKind::Left, "it has dropped the group");
                    self.end(index, loss);
                }
                Poll::Ready(Err(error)) => {
                    let ended = self.incoming.swap_remove(index);
                    self.rest.note();
                    if let Some(rank) = ended.from {
                        self.roster.note_break(rank, error.into());
                    }
                }
                Poll::Pending => {
                    incoming.is_ready = false;
                    self.spare.push(bytes);
                }
            }
        }
        Poll::Pending
    }

    /// Notes that nothing more comes on a channel, and why.
    fn end(&mut self, index: usize, loss: Loss) {
        let ended = self.incoming.swap_remove(index);
        self.rest.note();
        if let Some(rank) = ended.from {
            self.roster.note_end(rank, loss);
        }
    }

    /// Reads a word; none where it only says who speaks. An error is a word that no rank of this version says.
    fn hear(&mut self, index: usize, bytes: Vec<u8>) -> Result<Option<Heard>, Loss> {
        let none = || Loss::new(LossKind::Refused, "it does not speak as a rank");
        let (word, payload_at) = Word::decode(&bytes).ok_or_else(none)?;
        let incoming = &mut self.incoming[index];
        let Some(from) = incoming.from else {
            let rank = usize::try_from(word.call).ok().filter(|_| word.kind == Kind::Hello);
            let is_it = |rank: &usize| {
                let member = self.roster.seats().get(*rank);
                member.is_some_and(|it| it.incarnation == incoming.peer.incarnation())
            };
            let rank = rank.filter(is_it).filter(|rank| !self.has_come[*rank]).ok_or_else(none)?;
            self.has_come[rank] = true;
            self.roster.note_channel(rank);
            self.rest.note();
            incoming.from = Some(rank);
            let (theirs, ours) = (word.left, GroupLayer::VERSIONS.1);
            if theirs != u64::from(ours) {
                let why = format!("its groups speak version {theirs}, those of this node {ours}");
                return Err(Loss::new(LossKind::Refused, why));
            }
            return Ok(None);
        };
        let (kind, call, left) = (word.kind, word.call, word.left);
        let statement_at = payload_at - word.statement.len();
        let heard = Heard { call, from, kind, left, bytes, statement_at, payload_at };
        incoming.held_bytes += heard.held_bytes();
        Ok(Some(heard))
    }

    /// Notes that a word of a rank was taken.
    pub(crate) fn taken(&mut self, heard: &Heard) {
        let from = Some(heard.from);
        if let Some(incoming) = self.incoming.iter_mut().find(|it| it.from == from) {
            incoming.held_bytes = incoming.held_bytes.saturating_sub(heard.held_bytes());
        }
    }

    /// Keeps the memory of a word that was taken.
    pub(crate) fn give_back(&mut self, heard: Heard) {
        let mut bytes = heard.bytes;
        if self.spare.len() < SPARE_COUNT_MAX && bytes.capacity() <= SPARE_BYTES_MAX {
            bytes.clear();
            self.spare.push(bytes);
        }
    }

    /// Takes in the channels that ranks have opened.
    pub(crate) fn poll_accept(&mut self) {
        while self.has_come.iter().filter(|it| **it).count() < self.has_come.len() - 1 {
            let (node, name) =
                (self.roster.cluster().node(), format_args!("{}/{}", self.name, self.rank));
            let accepting =
                self.accepting.get_or_insert_with(|| accept(node.clone(), name.to_string()));
            let polled = accepting.as_mut().poll(&mut self.rest.context());
            let Poll::Ready(accepted) = polled else { return };
            self.accepting = None;
            // Without it the node is closed, and so are all its channels.
            let Ok((peer, receiver)) = accepted else { return };
            let source = Source::new(&self.shared, true);
            self.incoming.push(Incoming {
                peer,
                from: None,
                receiver,
                source,
                is_ready: true,
                held_bytes: 0,
                is_held_up: false,
            });
        }
    }
}

impl Incoming {
    fn is_heard(&self, is_wanted: impl Fn(usize) -> bool) -> bool {
        self.held_bytes < HELD_BYTES_MAX || self.from.is_some_and(is_wanted)
    }
}

impl Links {
    /// Returns what this rank still says once it has dropped its group.
    pub(crate) fn farewell(&self) -> Farewell {
        let has_heard = |rank: usize| self.incoming.iter().any(|it| it.from == Some(rank));
        let is_silent = |rank: usize| matches!(self.outgoing[rank].way, Way::Closed);
        // Not those whose channels have ended, nor those that cannot be reached.
        let is_there = |rank: &usize| {
            let has_ended = self.has_come[*rank] && !has_heard(*rank);
            let is_open = !has_ended && !matches!(self.outgoing[*rank].way, Way::Failed);
            *rank != self.rank && is_open && self.roster.gone(*rank).is_none()
        };
        let others = (0..self.outgoing.len()).filter(is_there);
        Farewell {
            node: self.cluster().node().clone(),
            cluster: self.cluster().downgrade(),
            dropped: Box::pin(self.cluster().dropped()),
            members: Arc::clone(self.members()),
            rank: self.rank,
            name: Arc::clone(&self.name),
            owed: others.clone().filter(|rank| is_silent(*rank) && has_heard(*rank)).collect(),
            unheard: others
                .filter(|rank| !has_heard(*rank))
                .map(|rank| (rank, is_silent(rank)))
                .collect(),
        }
    }
}

/// The end of a rank that has dropped its group, for ranks to which it has no channel that ends: they may
/// wait for it. It does not keep the cluster alive, whose end they hear as well.
pub(crate) struct Farewell {
    node: Node,
    cluster: WeakCluster,
    /// The end of the cluster's last handle.
    dropped: Boxed<()>,
    members: Arc<[NodeId]>,
    rank: usize,
    name: Arc<str>,
    /// Ranks that have spoken to this one, and to which it has said nothing.
    owed: Vec<usize>,
    /// Ranks that have not spoken to this one and still may, and whether it has said nothing to them.
    unheard: Vec<(usize, bool)>,
}

impl Farewell {
    /// Opens a channel that ends at once to each rank that has spoken, or speaks yet. The node waits for the
    /// former when it closes.
    pub(crate) async fn say(mut self, owed: Option<Owed>) {
        for rank in mem::take(&mut self.owed) {
            self.end(rank).await;
        }
        drop(owed);
        if self.unheard.is_empty() {
            return;
        }
        let node = self.node.clone();
        let mut outlived = pin!(GroupLayer::outlive(&node));
        while !self.unheard.is_empty() {
            let name = format!("{}/{}", self.name, self.rank);
            let accepted = tokio::select! {
                biased;
                () = outlived.as_mut() => return,
                () = self.dropped.as_mut() => return,
                accepted = accept(node.clone(), name) => accepted,
            };
            // Without it the node is closed.
            let Ok((peer, _)) = accepted else { return };
            let is_it = |it: &(usize, bool)| self.members[it.0].incarnation == peer.incarnation();
            let Some(at) = self.unheard.iter().position(is_it) else { continue };
            let (rank, is_owed) = self.unheard.swap_remove(at);
            if is_owed {
                self.end(rank).await;
            }
        }
    }

    async fn end(&mut self, rank: usize) {
        let Some(cluster) = self.cluster.upgrade() else { return };
        let name = format!("{}/{rank}", self.name);
        // Nobody there waits for a rank that cannot be reached.
        let _ = open(cluster, self.members[rank], name, self.rank).await;
    }
}

impl Outgoing {
    fn fail(&mut self) {
        self.way = Way::Failed;
        self.waiting.clear();
        self.waiting_bytes = 0;
        self.unsent = false;
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Result<(), Loss> {
        loop {
            match &mut self.way {
                Way::Closed | Way::Failed => return Ok(()),
                Way::Opening(opening) => match opening.as_mut().poll(context) {
                    Poll::Ready(opened) => self.way = Way::Open(opened?),
                    Poll::Pending => return Ok(()),
                },
                Way::Open(sender) => {
                    while !self.waiting.is_empty() {
                        match sender.poll_ready(context) {
                            Poll::Ready(Ok(())) => {
                                let word = self.waiting.pop_front().expect("it is not empty");
                                self.waiting_bytes -= word.len();
                                sender.start_send(word)?;
                                self.unsent = true;
                            }
                            Poll::Ready(Err(error)) => return Err(error.into()),
                            Poll::Pending => return Ok(()),
                        }
                    }
                    return match sender.poll_flush(context) {
                        Poll::Ready(Ok(())) => {
                            self.unsent = false;
                            Ok(())
                        }
                        Poll::Ready(Err(error)) => Err(error.into()),
                        Poll::Pending => Ok(()),
                    };
                }
            }
        }
    }
}

/// Opens the channel to a member, and says which rank speaks.
fn open(
    cluster: Cluster,
    member: NodeId,
    name: String,
    rank: usize,
) -> Boxed<Result<BytesSender, Loss>> {
    Box::pin(async move {
        let peer = cluster.peer_of(member).await?;
        let mut sender = cluster.node().open_bytes(&peer, name.as_str()).await?;
        let mut hello = Vec::new();
        let left = u64::from(GroupLayer::VERSIONS.1);
        Word { kind: Kind::Hello, call: rank as u64, left, statement: &[] }.encode(&mut hello);
        sender.send_slice(&hello).await?;
        Ok(sender)
    })
}

fn accept(node: Node, name: String) -> Boxed<Result<(Peer, BytesReceiver), AcceptError>> {
    Box::pin(async move { node.accept_bytes(name.as_str()).await })
}
