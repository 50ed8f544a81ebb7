//! Round trips of one typed message, alone or beside a bulk transfer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chunkcomm::{BytesReceiver, ChannelOptions, Lane, Node, Peer, PeerStats, Receiver, Sender};
use tokio::runtime::Runtime;
use tokio::sync::Notify;

use super::{ended, far_node, linked_node, run_task, taken};
use crate::failure::{Doing, Failure};
use crate::harness::far::{FarEnd, Opening};
use crate::harness::machine::now_ns;
use crate::harness::near::{Bench, EndId};
use crate::harness::protocol::{End, LaneKind, NodeKind, Order, Place};
use crate::harness::slices::{Contender, Slice};
use crate::message::Message;
use crate::with_message_of;

const PING: &str = "ping";
const PONG: &str = "pong";
const LOAD: &str = "load";

/// Bytes of a message of the bulk transfer beside.
const LOAD_BYTES: usize = 16 * 1024;

/// What goes round.
#[derive(Debug, Clone, Copy)]
pub struct EchoKind {
    /// Encoded bytes of a message.
    pub bytes: usize,
    /// Whether a second channel carries bulk at the same time.
    pub load: bool,
    /// The lane of the echoed messages.
    pub lane: LaneKind,
    /// No slice has more round trips than this.
    pub count_max: u64,
    /// The node.
    pub node: NodeKind,
}

/// Connects near and far end.
///
/// # Errors
/// If either side fails.
pub fn near(bench: &mut Bench, kind: EchoKind) -> Result<Box<dyn Contender>, Failure> {
    with_message_of!(kind.bytes, M => Ok(Box::new(Near::<M>::open(bench, kind)?)))
}

struct Near<M: Message> {
    _node: Node,
    peer: Peer,
    ends: Option<(Sender<M>, Receiver<M>)>,
    load: Option<Arc<Load>>,
    kind: EchoKind,
    end: EndId,
    next: u64,
}

fn options(lane: LaneKind) -> ChannelOptions {
    match lane {
        LaneKind::Bulk => ChannelOptions::default(),
        LaneKind::Express => ChannelOptions::default().lane(Lane::Express),
    }
}

impl<M: Message> Near<M> {
    fn open(bench: &mut Bench, kind: EchoKind) -> Result<Self, Failure> {
        let EchoKind { bytes, load, lane, node, .. } = kind;
        let end = End::Echo { bytes, load, lane, node };
        let (end, (node, peer, ends, load)) = bench
            .open(end, |runtime, place, text| runtime.block_on(connect::<M>(kind, place, text)))?;
        Ok(Self { _node: node, peer, ends: Some(ends), load, kind, end, next: 0 })
    }
}

type Connected<M> = (Node, Peer, (Sender<M>, Receiver<M>), Option<Arc<Load>>);

async fn connect<M: Message>(
    kind: EchoKind,
    place: &Place,
    text: &str,
) -> Result<Connected<M>, Failure> {
    let (node, peer) = linked_node(kind.node, place, kind.bytes, text).await?;
    let ping = node.open_with::<M>(&peer, PING, options(kind.lane)).await.doing("opening")?;
    let (_, pong) = node.accept::<M>(PONG).await.doing("accepting the answers")?;
    let load = if kind.load { Some(Load::start(&node, &peer).await?) } else { None };
    Ok((node, peer, (ping, pong), load))
}

impl<M: Message> Contender for Near<M> {
    fn stats(&self) -> Option<PeerStats> {
        Some(self.peer.stats())
    }

    fn slice(&mut self, bench: &mut Bench, count: u64) -> Result<Slice, Failure> {
        let count = count.min(self.kind.count_max);
        let order = Order { first: self.next, messages: count, mark_every: 0 };
        let ends = taken(&mut self.ends, "sending")?;
        let bytes = self.kind.bytes;
        let load = self.load.clone();
        let ((ends, samples_ns), timing) = bench.timed(self.end, &order, |runtime| {
            let _loaded = load.as_deref().map(Load::on);
            run_task(runtime, go_round(ends, bytes, order.clone()))?
        })?;
        self.ends = Some(ends);
        self.next += count;
        Ok(Slice::new(count, &timing, samples_ns))
    }
}

async fn go_round<M: Message>(
    (mut ping, mut pong): (Sender<M>, Receiver<M>),
    bytes: usize,
    order: Order,
) -> Result<((Sender<M>, Receiver<M>), Vec<u64>), Failure> {
    let mut message = M::with_size(bytes);
    let mut samples_ns = Vec::with_capacity(order.messages as usize);
    for sequence in order.first..order.first + order.messages {
        message.stamp(sequence);
        let started_ns = now_ns();
        ping.send(&message).await.doing("sending")?;
        let answer = take(&mut pong).await?;
        samples_ns.push(now_ns() - started_ns);
        if !answer.verify(sequence + 1, bytes) {
            return Err(Failure::wrong_message(sequence + 1));
        }
    }
    Ok(((ping, pong), samples_ns))
}

async fn take<M: Message>(receiver: &mut Receiver<M>) -> Result<M, Failure> {
    let message = receiver.recv().await.doing("receiving")?;
    message.ok_or_else(ended)
}

/// A bulk transfer that runs while it is switched on.
struct Load {
    active: AtomicBool,
    changed: Notify,
}

impl Load {
    async fn start(node: &Node, peer: &Peer) -> Result<Arc<Self>, Failure> {
        let mut sender = node.open_bytes(peer, LOAD).await.doing("opening the load")?;
        let load = Arc::new(Self { active: AtomicBool::new(false), changed: Notify::new() });
        let shared = Arc::clone(&load);
        tokio::spawn(async move {
            let bytes = vec![0x5a; LOAD_BYTES];
            loop {
                while !shared.active.load(Ordering::Relaxed) {
                    shared.changed.notified().await;
                }
                if sender.send_slice(&bytes).await.is_err() {
                    // The far end has closed: the measured channel will say so.
                    return;
                }
            }
        });
        Ok(load)
    }

    /// Runs until what is returned is dropped.
    fn on(&self) -> Loaded<'_> {
        self.active.store(true, Ordering::Relaxed);
        self.changed.notify_one();
        Loaded(self)
    }
}

struct Loaded<'a>(&'a Load);

impl Drop for Loaded<'_> {
    fn drop(&mut self) {
        self.0.active.store(false, Ordering::Relaxed);
    }
}

struct Far<M> {
    _node: Node,
    ends: Option<(Receiver<M>, Sender<M>)>,
    bytes: usize,
}

/// The far end: verifies each message and answers with the next number.
///
/// # Errors
/// If the connection is not made.
pub fn far(
    bytes: usize,
    load: bool,
    lane: LaneKind,
    node: NodeKind,
    opening: Opening<'_>,
) -> Result<Box<dyn FarEnd>, Failure> {
    with_message_of!(bytes, M => open_far::<M>(bytes, load, lane, node, opening))
}

fn open_far<M: Message>(
    bytes: usize,
    load: bool,
    lane: LaneKind,
    node: NodeKind,
    mut opening: Opening<'_>,
) -> Result<Box<dyn FarEnd>, Failure> {
    let runtime = opening.runtime;
    let node = far_node(node, &mut opening, bytes)?;
    let ends = runtime.block_on(async {
        let (peer, ping) = node.accept::<M>(PING).await.doing("accepting")?;
        let pong = node.open_with::<M>(&peer, PONG, options(lane)).await.doing("opening")?;
        if load {
            let (_, receiver) = node.accept_bytes(LOAD).await.doing("accepting the load")?;
            tokio::spawn(discard(receiver));
        }
        Ok((ping, pong))
    })?;
    Ok(Box::new(Far { _node: node, ends: Some(ends), bytes }))
}

/// Takes the load for as long as it comes.
async fn discard(mut receiver: BytesReceiver) {
    while let Ok(Some(_)) = receiver.recv().await {}
}

impl<M: Message> FarEnd for Far<M> {
    fn slice(&mut self, runtime: &Runtime, order: &Order) -> Result<Vec<u64>, Failure> {
        let ends = taken(&mut self.ends, "echoing")?;
        self.ends = Some(run_task(runtime, echo(ends, self.bytes, order.clone()))??);
        Ok(Vec::new())
    }
}

async fn echo<M: Message>(
    (mut ping, mut pong): (Receiver<M>, Sender<M>),
    bytes: usize,
    order: Order,
) -> Result<(Receiver<M>, Sender<M>), Failure> {
    for sequence in order.first..order.first + order.messages {
        let mut message = take(&mut ping).await?;
        if !message.verify(sequence, bytes) {
            return Err(Failure::wrong_message(sequence));
        }
        message.stamp(sequence + 1);
        pong.send(&message).await.doing("answering")?;
    }
    Ok((ping, pong))
}
