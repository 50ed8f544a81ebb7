//! Round trips of one typed message, alone or beside a bulk transfer.

use std::sync::Arc;

use bytes::Bytes;
use chunkcomm::channel::Landing;
use chunkcomm::stats::PeerStats;
use chunkcomm::{
    BytesSender, ChannelOptions, Lane, Node, Peer, Receiver, RecvError, Sender, channel,
};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::{ended, far_node, linked_node, taken};
use crate::failure::{Doing, Failure};
use crate::harness::far::{FarEnd, Opening};
use crate::harness::machine::now_ns;
use crate::harness::near::{Bench, EndId};
use crate::harness::protocol::{End, LaneKind, NodeKind, Order, Place};
use crate::harness::runtime::run_task;
use crate::harness::slices::{Contender, Slice};
use crate::message::Message;
use crate::with_message_of;

const PING: &str = "ping";
const PONG: &str = "pong";
const LOAD: &str = "load";

/// Bytes of the far end's buffer for the load: 1 MiB, used again and again.
const LANDING_BYTES: usize = 1024 * 1024;

/// Message of the round trips, the load, and settings of the nodes.
#[derive(Debug, Clone, Copy)]
pub struct EchoKind {
    /// Encoded bytes of a message.
    pub bytes: usize,
    /// Bytes of a message of the bulk load on a second channel; `None` without a load.
    pub load: Option<usize>,
    /// The lane of the echoed messages.
    pub lane: LaneKind,
    /// Most round trips of a slice.
    pub count_max: u64,
    /// The node.
    pub node: NodeKind,
}

impl EchoKind {
    /// Returns round trips of messages of `bytes` in the usual lane, without a load.
    pub fn of(bytes: usize, node: NodeKind) -> Self {
        Self { bytes, load: None, lane: LaneKind::Bulk, count_max: u64::MAX, node }
    }
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

fn on(name: &str, lane: LaneKind) -> ChannelOptions {
    channel(name).lane(match lane {
        LaneKind::Bulk => Lane::Bulk,
        LaneKind::Express => Lane::Express,
    })
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
    let bytes = kind.bytes.max(kind.load.unwrap_or(0));
    let (node, peer) = linked_node(kind.node, place, bytes, text).await?;
    let ping = node.open::<M>(&peer, on(PING, kind.lane)).await.doing("opening")?;
    let (_, pong) = node.accept::<M>(PONG).await.doing("accepting the answers")?;
    let load = match kind.load {
        Some(bytes) => Some(Load::start(&node, &peer, bytes).await?),
        None => None,
    };
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
            if let Some(load) = &load {
                load.on();
            }
            let gone_round = run_task(runtime, go_round(ends, bytes, order.clone()))?;
            if let Some(load) = &load {
                // The next slice is not to be measured beside the rest of a message.
                runtime.block_on(load.off());
            }
            gone_round
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
    on: watch::Sender<bool>,
    at_rest: watch::Receiver<bool>,
}

impl Load {
    async fn start(node: &Node, peer: &Peer, bytes: usize) -> Result<Arc<Self>, Failure> {
        let sender = node.open_bytes(peer, LOAD).await.doing("opening the load")?;
        let (on, switched) = watch::channel(false);
        let (rests, at_rest) = watch::channel(true);
        tokio::spawn(load(sender, Bytes::from(vec![0x5a; bytes]), switched, rests));
        Ok(Arc::new(Self { on, at_rest }))
    }

    fn on(&self) {
        self.on.send_replace(true);
    }

    /// Switches the transfer off; returns when its last message has arrived.
    async fn off(&self) {
        self.on.send_replace(false);
        // The wait fails when the far end is gone, which the measured channel reports.
        let _ = self.at_rest.clone().wait_for(|at_rest| *at_rest).await;
    }
}

/// Sends `message` again and again while it is switched on.
async fn load(
    mut sender: BytesSender,
    message: Bytes,
    mut on: watch::Receiver<bool>,
    rests: watch::Sender<bool>,
) {
    while on.wait_for(|on| *on).await.is_ok() {
        rests.send_replace(false);
        while *on.borrow() {
            if sender.send(message.clone()).await.is_err() {
                return;
            }
        }
        if sender.sync().await.is_err() {
            return;
        }
        rests.send_replace(true);
    }
}

struct Far<M> {
    _node: Node,
    ends: Option<(Receiver<M>, Sender<M>)>,
    bytes: usize,
}

/// Opens the far end, which verifies each message and answers with the next number.
///
/// # Errors
/// If the connection is not made.
pub fn far(
    bytes: usize,
    load: Option<usize>,
    lane: LaneKind,
    node: NodeKind,
    opening: Opening<'_>,
) -> Result<Box<dyn FarEnd>, Failure> {
    with_message_of!(bytes, M => open_far::<M>(bytes, load, lane, node, opening))
}

fn open_far<M: Message>(
    bytes: usize,
    load: Option<usize>,
    lane: LaneKind,
    node: NodeKind,
    mut opening: Opening<'_>,
) -> Result<Box<dyn FarEnd>, Failure> {
    let runtime = opening.runtime;
    let node = far_node(node, &mut opening, bytes.max(load.unwrap_or(0)))?;
    let ends = runtime.block_on(async {
        let (peer, ping) = node.accept::<M>(PING).await.doing("accepting")?;
        let pong = node.open::<M>(&peer, on(PONG, lane)).await.doing("opening")?;
        if load.is_some() {
            let (_, receiver) = node.accept_bytes(LOAD).await.doing("accepting the load")?;
            receiver.land(Box::new(Discard(vec![0; LANDING_BYTES])));
        }
        Ok((ping, pong))
    })?;
    Ok(Box::new(Far { _node: node, ends: Some(ends), bytes }))
}

/// Landing of the load: all of its bytes go into the same memory.
struct Discard(Vec<u8>);

impl Landing for Discard {
    fn room(&mut self) -> &mut [u8] {
        &mut self.0
    }

    fn advance(&mut self, _bytes: usize) {}

    fn end(self: Box<Self>, _outcome: Result<(), RecvError>) {}
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
