//! Typed messages one way.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use chunkcomm::stats::PeerStats;
use chunkcomm::{Fsync, Node, Peer, Receiver, Redelivery, Sender};
use chunkcomm_testkit::Scratch;
use clap::ValueEnum;
use tokio::runtime::Runtime;

use super::{Marks, channels, ended, far_node, linked_node, taken};
use crate::failure::{Doing, Failure};
use crate::harness::far::{FarEnd, Opening};
use crate::harness::machine::{self, now_ns};
use crate::harness::near::{Bench, EndId};
use crate::harness::protocol::{Api, End, NodeKind, Order, Pace, Place};
use crate::harness::runtime::run_task;
use crate::harness::slices::{Contender, Slice};
use crate::harness::ticks::Ticks;
use crate::message::Message;
use crate::with_message_of;

/// Name of the channel.
const CHANNEL: &str = "stream";

/// Most times of delivery noted in one slice.
const MARKS_PER_SLICE: u64 = 2_000;

/// Most messages asked for in one `recv_many`, and passed to one `send_all` when they are prepared.
const MANY: usize = 1024;

/// Most bytes of these messages, unless one message has more: what a core's cache holds.
const MANY_BYTES: usize = 1 << 20;

/// Largest messages that are made as `send_all` takes them. Larger ones are prepared and used
/// again, since a new one would be a new allocation.
const MADE_ON_THE_FLY_BYTES_MAX: usize = 16;

/// Messages of the stream, their rate and delivery, and settings of the nodes.
#[derive(Debug, Clone, Copy)]
pub struct StreamKind {
    /// Encoded bytes of a message.
    pub bytes: usize,
    /// Number of messages a call.
    pub api: Api,
    /// Messages a second; with `None` as many as the connection carries.
    pub rate: Option<u64>,
    /// Way of waiting for the next message of a rate.
    pub pace: Pace,
    /// Treatment of messages that their receiver has not settled.
    pub delivery: Delivery,
    /// Number of idle channels on the same link, opened before the stream.
    pub idle: usize,
    /// The node.
    pub node: NodeKind,
}

impl StreamKind {
    /// Returns messages of `bytes`, one a call, as many as the connection carries.
    pub fn of(bytes: usize, node: NodeKind) -> Self {
        let (pace, delivery) = (Pace::Spin, Delivery::Plain);
        Self { bytes, api: Api::One, rate: None, pace, delivery, idle: 0, node }
    }
}

/// Treatment of messages that their receiver has not settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Delivery {
    /// No message is ever settled.
    Plain,
    /// Messages are kept, and sent again to a peer that was restarted.
    Redelivered,
    /// As `Redelivered`, and stored on disk before they leave: `Fsync::Always`.
    Logged,
}

/// Numbers of a log that was written: bytes, and calls of `fsync`.
pub type Logged = Rc<Cell<(u64, u64)>>;

/// Connects near and far end.
///
/// # Errors
/// If either side fails.
pub fn near(bench: &mut Bench, kind: StreamKind) -> Result<Box<dyn Contender>, Failure> {
    near_logged(bench, kind, &Logged::default())
}

/// Connects as [`near`] does; the log's numbers of the last slice are left in `logged`.
///
/// # Errors
/// If either side fails.
pub fn near_logged(
    bench: &mut Bench,
    kind: StreamKind,
    logged: &Logged,
) -> Result<Box<dyn Contender>, Failure> {
    with_message_of!(kind.bytes, M => Ok(Box::new(Near::<M>::open(bench, kind, logged)?)))
}

struct Near<M: Message> {
    /// Holds the link open.
    _node: Node,
    peer: Peer,
    sender: Option<Sender<M>>,
    _idle: Vec<Sender<u64>>,
    kind: StreamKind,
    end: EndId,
    next: u64,
    logged: Logged,
    /// Folder of the log, removed after the sender is dropped.
    _log: Scratch,
}

impl<M: Message> Near<M> {
    fn open(bench: &mut Bench, kind: StreamKind, logged: &Logged) -> Result<Self, Failure> {
        let end =
            End::Stream { bytes: kind.bytes, api: kind.api, idle: kind.idle, node: kind.node };
        let log = Scratch::new("log");
        let (end, (node, peer, sender, idle)) = bench.open(end, |runtime, place, text| {
            runtime.block_on(connect::<M>(kind, &log, place, text))
        })?;
        let (sender, logged) = (Some(sender), Rc::clone(logged));
        Ok(Self { _node: node, peer, sender, _idle: idle, kind, end, next: 0, logged, _log: log })
    }
}

async fn connect<M: Message>(
    kind: StreamKind,
    log: &Scratch,
    place: &Place,
    text: &str,
) -> Result<(Node, Peer, Sender<M>, Vec<Sender<u64>>), Failure> {
    let (node, peer) = linked_node(kind.node, place, kind.bytes, text).await?;
    let idle = channels::open(&node, &peer, kind.idle).await?;
    let sender = match (kind.delivery, peer.address()) {
        (Delivery::Redelivered, Some(address)) => {
            node.open_redelivering::<M>(CHANNEL, Redelivery::to(address))
        }
        (Delivery::Logged, Some(address)) => {
            let redelivery = Redelivery::to(address).log(&**log, Fsync::Always);
            // The log's thread may use any core, as in a program that is not pinned.
            machine::unpin();
            let sender = node.open_redelivering::<M>(CHANNEL, redelivery);
            machine::pin(place.core);
            sender
        }
        _ => node.open::<M>(&peer, CHANNEL).await,
    };
    let sender = sender.doing("opening a channel")?;
    Ok((node, peer, sender, idle))
}

impl<M: Message> Contender for Near<M> {
    fn stats(&self) -> Option<PeerStats> {
        Some(self.peer.stats())
    }

    fn slice(&mut self, bench: &mut Bench, count: u64) -> Result<Slice, Failure> {
        let mark_every = (count / MARKS_PER_SLICE).max(1);
        let order = Order { first: self.next, messages: count, mark_every };
        let sender = taken(&mut self.sender, "sending")?;
        let before = sender.stats();
        let kind = self.kind;
        let ((sender, sent_ns), timing) = bench.timed(self.end, &order, |runtime| {
            run_task(runtime, produce(sender, kind, order.clone()))?
        })?;
        let after = sender.stats();
        self.logged.set((after.log_bytes - before.log_bytes, after.log_syncs - before.log_syncs));
        self.sender = Some(sender);
        self.next += count;
        let delivery_ns =
            sent_ns.iter().zip(&timing.marks_ns).map(|(sent, taken)| taken.saturating_sub(*sent));
        Ok(Slice::new(count, &timing, delivery_ns.collect()))
    }
}

/// Sends as a user's program would; returns the times of the marked messages.
async fn produce<M: Message>(
    mut sender: Sender<M>,
    kind: StreamKind,
    order: Order,
) -> Result<(Sender<M>, Vec<u64>), Failure> {
    let mut marks = Marks::new(&order);
    match (kind.rate, kind.api) {
        (Some(rate), _) => match kind.pace {
            Pace::Spin => paced(&mut sender, kind.bytes, &order, rate, &mut marks).await?,
            Pace::Sleep => ticking(&mut sender, kind.bytes, &order, rate, &mut marks).await?,
        },
        (None, Api::One) => one_by_one(&mut sender, kind.bytes, &order, &mut marks).await?,
        (None, Api::Many) => many(&mut sender, kind.bytes, &order, &mut marks).await?,
    }
    sender.flush().await.doing("flushing")?;
    Ok((sender, marks.times_ns))
}

async fn one_by_one<M: Message>(
    sender: &mut Sender<M>,
    bytes: usize,
    order: &Order,
    marks: &mut Marks,
) -> Result<(), Failure> {
    let mut message = M::with_size(bytes);
    for sequence in order.first..order.first + order.messages {
        message.stamp(sequence);
        marks.note(sequence);
        sender.send(&message).await.doing("sending")?;
    }
    Ok(())
}

async fn many<M: Message>(
    sender: &mut Sender<M>,
    bytes: usize,
    order: &Order,
    marks: &mut Marks,
) -> Result<(), Failure> {
    let end = order.first + order.messages;
    if bytes <= MADE_ON_THE_FLY_BYTES_MAX {
        let messages = (order.first..end).map(|sequence| {
            let mut message = M::with_size(bytes);
            message.stamp(sequence);
            marks.note(sequence);
            message
        });
        sender.send_all(messages).await.doing("sending many")?;
        return Ok(());
    }
    let many = many_of(bytes);
    let mut prepared: Vec<M> = (0..many).map(|_| M::with_size(bytes)).collect();
    let mut first = order.first;
    while first < end {
        let count = (end - first).min(many as u64);
        for (sequence, message) in (first..first + count).zip(&mut prepared) {
            message.stamp(sequence);
            marks.note(sequence);
        }
        sender.send_all(&prepared[..count as usize]).await.doing("sending many")?;
        first += count;
    }
    Ok(())
}

/// Sends `rate` messages a second by the clock. It yields instead of sleeping: tokio's timers step
/// in milliseconds.
async fn paced<M: Message>(
    sender: &mut Sender<M>,
    bytes: usize,
    order: &Order,
    rate: u64,
    marks: &mut Marks,
) -> Result<(), Failure> {
    let mut message = M::with_size(bytes);
    let gap = Duration::from_secs(1).as_nanos() as u64 / rate;
    let mut due_ns = now_ns();
    for sequence in order.first..order.first + order.messages {
        while now_ns() < due_ns {
            tokio::task::yield_now().await;
        }
        due_ns += gap;
        message.stamp(sequence);
        marks.note(sequence);
        sender.send(&message).await.doing("sending")?;
    }
    Ok(())
}

/// Sends at each tick of a timer the messages that came due since the last one. The processor time
/// is then that of a program that has nothing else to do. Above some 100,000 a second several
/// messages come due in the time of one wake-up.
async fn ticking<M: Message>(
    sender: &mut Sender<M>,
    bytes: usize,
    order: &Order,
    rate: u64,
    marks: &mut Marks,
) -> Result<(), Failure> {
    let mut message = M::with_size(bytes);
    let mut ticks = Ticks::start(rate)?;
    let end = order.first + order.messages;
    let mut sequence = order.first;
    while sequence < end {
        let due = ticks.due().await?;
        for sequence in sequence..end.min(sequence + due) {
            message.stamp(sequence);
            marks.note(sequence);
            sender.send(&message).await.doing("sending")?;
        }
        sequence += due;
    }
    Ok(())
}

/// Messages of this size in one call.
fn many_of(bytes: usize) -> usize {
    (MANY_BYTES / bytes).clamp(1, MANY)
}

struct Far<M> {
    _node: Node,
    receiver: Option<Receiver<M>>,
    _idle: Vec<Receiver<u64>>,
    bytes: usize,
    api: Api,
}

/// Opens the far end, which receives and verifies.
///
/// # Errors
/// If the connection is not made.
pub fn far(
    bytes: usize,
    api: Api,
    idle: usize,
    node: NodeKind,
    opening: Opening<'_>,
) -> Result<Box<dyn FarEnd>, Failure> {
    with_message_of!(bytes, M => open_far::<M>(bytes, api, idle, node, opening))
}

fn open_far<M: Message>(
    bytes: usize,
    api: Api,
    idle: usize,
    node: NodeKind,
    mut opening: Opening<'_>,
) -> Result<Box<dyn FarEnd>, Failure> {
    let runtime = opening.runtime;
    let node = far_node(node, &mut opening, bytes)?;
    let idle = runtime.block_on(channels::accept(&node, idle))?;
    let (_peer, receiver) =
        runtime.block_on(node.accept::<M>(CHANNEL)).doing("accepting a channel")?;
    Ok(Box::new(Far { _node: node, receiver: Some(receiver), _idle: idle, bytes, api }))
}

impl<M: Message> FarEnd for Far<M> {
    fn slice(&mut self, runtime: &Runtime, order: &Order) -> Result<Vec<u64>, Failure> {
        let receiver = taken(&mut self.receiver, "receiving")?;
        let (receiver, marks_ns) =
            run_task(runtime, consume(receiver, self.bytes, self.api, order.clone()))??;
        self.receiver = Some(receiver);
        Ok(marks_ns)
    }
}

async fn consume<M: Message>(
    mut receiver: Receiver<M>,
    bytes: usize,
    api: Api,
    order: Order,
) -> Result<(Receiver<M>, Vec<u64>), Failure> {
    let mut marks = Marks::new(&order);
    let end = order.first + order.messages;
    match api {
        Api::One => {
            for sequence in order.first..end {
                let message = receiver.recv().await.doing("receiving")?;
                let message = message.ok_or_else(ended)?;
                check(&message, sequence, bytes)?;
                marks.note(sequence);
            }
        }
        Api::Many => {
            let many = many_of(bytes);
            let mut messages = Vec::with_capacity(many);
            let mut sequence = order.first;
            while sequence < end {
                if receiver.recv_many(&mut messages, many).await.doing("receiving many")? == 0 {
                    return Err(ended());
                }
                for message in messages.drain(..) {
                    check(&message, sequence, bytes)?;
                    marks.note(sequence);
                    sequence += 1;
                }
            }
        }
    }
    Ok((receiver, marks.times_ns))
}

#[inline]
fn check<M: Message>(message: &M, sequence: u64, bytes: usize) -> Result<(), Failure> {
    if message.verify(sequence, bytes) { Ok(()) } else { Err(Failure::wrong_message(sequence)) }
}
