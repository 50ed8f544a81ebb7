//! A feed to several subscribers, or a loop over as many channels.
//!
//! ```text
//! near: one node on a runtime of its own     far: a thread, a node for each subscriber
//!     messages                         -->     subscribers that read all of them
//!                                      -->     subscribers that read nothing
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use chunkcomm::feed::{Feed, Subscription};
use chunkcomm::{Node, Receiver, Sender, channel, feed};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::{ended, linked_node, listening_node, taken};
use crate::failure::{Doing, Failure};
use crate::harness::protocol::{NodeKind, Place};
use crate::harness::runtime::{self, run_task};
use crate::message::Message;
use crate::with_message_of;

const NAME: &str = "fed";

/// Bytes by which a sender that waits for nobody is ahead of the slowest reader: half of the backlog, so
/// that no reader misses a message.
const AHEAD_BYTES: u64 = BACKLOG_BYTES / 2;

const BACKLOG_BYTES: u64 = 256 * 1024;

/// Channel by which a reader makes itself known to the loop.
const READERS: &str = "readers";

/// Number of messages after which the sender looks at the readers.
const LOOK_MESSAGES: u64 = 16;

/// The way of a message to all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// A feed that waits for its slowest subscriber.
    Waits,
    /// A feed that leaves messages out for a slow one.
    Skips,
    /// A loop over a channel for each.
    Loop,
    /// A loop over a channel for each, with a backlog.
    LoopBacklog,
}

impl Way {
    fn is_loop(self) -> bool {
        matches!(self, Way::Loop | Way::LoopBacklog)
    }
}

/// Size of the messages, their readers and settings of the nodes.
#[derive(Debug, Clone, Copy)]
pub struct FeedKind {
    /// Encoded bytes of a message.
    pub bytes: usize,
    /// Subscribers that read.
    pub reading: usize,
    /// Subscribers that read nothing.
    pub stopped: usize,
    /// The way of a message to all.
    pub way: Way,
    /// Settings of all nodes.
    pub node: NodeKind,
}

/// A node that sends to all, and its subscribers.
pub trait Feeding {
    /// Sends `count` messages, and waits until all that read have them.
    ///
    /// # Errors
    /// If either side fails or a message is wrong.
    fn feed(&mut self, count: u64) -> Result<(), Failure>;
}

/// Starts both ends.
///
/// # Errors
/// If either side fails.
pub fn start(kind: FeedKind, place: &Place) -> Result<Box<dyn Feeding>, Failure> {
    with_message_of!(kind.bytes, M => Ok(Box::new(Near::<M>::start(kind, place)?)))
}

enum Source<M> {
    Feed(Feed<M>),
    Loop(Vec<Sender<M>>),
}

impl<M: Message> Source<M> {
    async fn send(&mut self, message: &M) -> Result<(), Failure> {
        match self {
            Source::Feed(feed) => feed.send(message).await.doing("feeding"),
            Source::Loop(senders) => {
                for sender in senders {
                    sender.send(message).await.doing("sending")?;
                }
                Ok(())
            }
        }
    }
}

enum Drain<M> {
    Subscription(Subscription<M>),
    Channel(Receiver<M>),
}

impl<M: Message> Drain<M> {
    async fn recv(&mut self) -> Result<M, Failure> {
        let message = match self {
            Drain::Subscription(subscription) => subscription.recv().await.doing("receiving")?,
            Drain::Channel(receiver) => receiver.recv().await.doing("receiving")?,
        };
        message.ok_or_else(ended)
    }
}

struct Near<M: Message> {
    _node: Node,
    source: Option<Source<M>>,
    readers: Vec<Reader>,
    /// Tells when a reader has read all.
    done: Vec<Done>,
    kind: FeedKind,
    next: u64,
    runtime: Runtime,
}

/// Tells when a reader has read what it was to.
type Done = UnboundedReceiver<Result<(), Failure>>;

/// The near end's side of a reader.
struct Reader {
    /// Takes the number behind the last message that it is to read.
    orders: UnboundedSender<u64>,
    came: Arc<AtomicU64>,
}

impl<M: Message> Near<M> {
    fn start(kind: FeedKind, place: &Place) -> Result<Self, Failure> {
        let runtime = runtime::start(place.threads)?;
        let there = place.clone();
        let near_place = place.clone();
        let listening = async move { listening_node(kind.node, &near_place, kind.bytes).await };
        let (node, address) = run_task(&runtime, listening)??;
        let options = feed(NAME).backlog(BACKLOG_BYTES);
        let options = if kind.way == Way::Skips { options.skip() } else { options };
        let feed = {
            let _entered = runtime.enter();
            node.feed::<M>(options).doing("making a feed")?
        };
        let (readers, ready) = oneshot::channel();
        thread::spawn(move || {
            if let Err(failure) = serve::<M>(kind, &there, &address, readers) {
                eprintln!("chunkperf: far end: {failure}");
            }
        });
        let source = match kind.way {
            Way::Waits | Way::Skips => Source::Feed(feed),
            Way::Loop | Way::LoopBacklog => {
                let node = node.clone();
                Source::Loop(run_task(&runtime, open_all(node, kind))??)
            }
        };
        let readers =
            run_task(&runtime, async { ready.await.doing("waiting for the subscribers") })??;
        let (readers, done) = readers.into_iter().unzip();
        Ok(Self { _node: node, source: Some(source), readers, done, kind, next: 0, runtime })
    }
}

async fn open_all<M: Message>(node: Node, kind: FeedKind) -> Result<Vec<Sender<M>>, Failure> {
    let mut senders = Vec::new();
    for _ in 0..kind.reading {
        let (peer, _) = node.accept::<u8>(READERS).await.doing("accepting")?;
        let options = match kind.way {
            Way::LoopBacklog => channel(NAME).backlog(BACKLOG_BYTES),
            _ => channel(NAME),
        };
        senders.push(node.open::<M>(&peer, options).await.doing("opening")?);
    }
    Ok(senders)
}

impl<M: Message> Feeding for Near<M> {
    fn feed(&mut self, count: u64) -> Result<(), Failure> {
        let (first, until) = (self.next, self.next + count);
        for reader in &self.readers {
            reader.orders.send(until).doing("ordering")?;
        }
        let mut source = taken(&mut self.source, "feeding")?;
        let mut done = std::mem::take(&mut self.done);
        let came: Vec<_> = self.readers.iter().map(|it| Arc::clone(&it.came)).collect();
        let kind = self.kind;
        let ahead = (AHEAD_BYTES / (kind.bytes as u64 + 8)).max(2 * LOOK_MESSAGES);
        let sent = async move {
            let mut message = M::with_size(kind.bytes);
            for sequence in first..until {
                message.stamp(sequence);
                source.send(&message).await?;
                while kind.way == Way::Skips
                    && sequence.is_multiple_of(LOOK_MESSAGES)
                    && came.iter().any(|came| came.load(Ordering::Relaxed) + ahead < sequence)
                {
                    tokio::task::yield_now().await;
                }
            }
            for done in &mut done {
                done.recv().await.ok_or_else(ended)??;
            }
            Ok::<_, Failure>((source, done))
        };
        let (source, done) = run_task(&self.runtime, sent)??;
        (self.source, self.done) = (Some(source), done);
        self.next = until;
        Ok(())
    }
}

/// Runs the subscribers until no more orders can come.
fn serve<M: Message>(
    kind: FeedKind,
    place: &Place,
    address: &str,
    ready: oneshot::Sender<Vec<(Reader, Done)>>,
) -> Result<(), Failure> {
    runtime::start(1)?.block_on(async {
        let (mut readers, mut tasks, mut stopped) = (Vec::new(), Vec::new(), Vec::new());
        for index in 0..kind.reading + kind.stopped {
            let (node, peer) = linked_node(kind.node, place, kind.bytes, address).await?;
            let drain = if kind.way.is_loop() {
                let _ready = node.open::<u8>(&peer, READERS).await.doing("opening")?;
                let (_, receiver) = node.accept::<M>(NAME).await.doing("accepting")?;
                Drain::Channel(receiver)
            } else {
                let subscribing = node.subscribe::<M>(NAME, &peer);
                Drain::Subscription(subscribing.await.doing("subscribing")?)
            };
            if index >= kind.reading {
                stopped.push(drain);
                continue;
            }
            let (orders, ordered) = unbounded_channel();
            let (tell, done) = unbounded_channel();
            let came = Arc::new(AtomicU64::new(0));
            let reading = read(drain, ordered, kind.bytes, Arc::clone(&came), tell);
            tasks.push(tokio::spawn(reading));
            readers.push((Reader { orders, came }, done));
        }
        ready.send(readers).map_err(|_| ended())?;
        for task in tasks {
            task.await.doing("reading")?;
        }
        Ok(())
    })
}

async fn read<M: Message>(
    mut drain: Drain<M>,
    mut orders: UnboundedReceiver<u64>,
    bytes: usize,
    came: Arc<AtomicU64>,
    done: UnboundedSender<Result<(), Failure>>,
) {
    let mut next = 0;
    while let Some(until) = orders.recv().await {
        let reading = async {
            while next < until {
                if !drain.recv().await?.verify(next, bytes) {
                    return Err(Failure::wrong_message(next));
                }
                next += 1;
                if next.is_multiple_of(LOOK_MESSAGES) {
                    came.store(next, Ordering::Relaxed);
                }
            }
            Ok(())
        };
        let read = reading.await;
        came.store(next, Ordering::Relaxed);
        if done.send(read).is_err() {
            return;
        }
    }
}
