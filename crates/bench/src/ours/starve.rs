//! Deliveries to a runtime whose other workers compute.
//!
//! ```text
//! far: a thread, a runtime of its own     near: one runtime of several workers
//!     delivery every millisecond   -->      a task that notes when it came
//!     orders, two ahead            -->      tasks that compute for each order,
//!     results                      <--      and send the result just before the next
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use chunkcomm::{Node, Peer, Receiver, Sender};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{ended, linked_node, listening_node, taken};
use crate::failure::{Doing, Failure};
use crate::harness::machine::now_ns;
use crate::harness::protocol::{NodeKind, Place};
use crate::harness::runtime::{self, run_task};
use crate::message::Message;
use crate::with_message_of;

/// Pause between two deliveries: 1 ms, the step of tokio's timers.
pub const PAUSE: Duration = Duration::from_millis(1);

/// Number of orders ahead of their results: 2, so that the next computation follows without a
/// wait.
const ORDERS_AHEAD: u64 = 2;

const READY: &str = "ready";
const DELIVERIES: &str = "deliveries";

/// Size of the deliveries, load of the runtime and settings of the nodes.
#[derive(Debug, Clone, Copy)]
pub struct StarveKind {
    /// Encoded bytes of a delivery.
    pub bytes: usize,
    /// Tasks that compute.
    pub computing: usize,
    /// Time that each task computes for one order.
    pub work: Duration,
    /// Settings of both nodes.
    pub node: NodeKind,
}

/// Returns the nanoseconds from each sending to its arrival.
pub(crate) fn samples(sent_ns: &[u64], came_ns: &[u64]) -> Vec<u64> {
    sent_ns.iter().zip(came_ns).map(|(sent, came)| came.saturating_sub(*sent)).collect()
}

/// A node whose runtime computes, and a node that sends to it.
pub trait Starving {
    /// Delivers `count` messages; returns the nanoseconds of each delivery.
    ///
    /// # Errors
    /// If either side fails or a message is wrong.
    fn deliveries(&mut self, count: u64) -> Result<Vec<u64>, Failure>;
}

/// Starts both ends and the tasks that compute.
///
/// # Errors
/// If either side fails.
pub fn start(kind: StarveKind, place: &Place) -> Result<Box<dyn Starving>, Failure> {
    with_message_of!(kind.bytes, M => Ok(Box::new(Near::<M>::start(kind, place)?)))
}

struct Near<M: Message> {
    _node: Node,
    receiver: Option<Receiver<M>>,
    orders: UnboundedSender<Order>,
    kind: StarveKind,
    next: u64,
    over: Arc<AtomicBool>,
    /// Dropped last: its workers first finish their computations.
    runtime: Runtime,
}

/// Order of `count` deliveries from number `first` on; the answer is the times of their sending.
struct Order {
    first: u64,
    count: u64,
    sent_ns: mpsc::Sender<Vec<u64>>,
}

impl<M: Message> Near<M> {
    fn start(kind: StarveKind, place: &Place) -> Result<Self, Failure> {
        let (orders, ordered) = unbounded_channel();
        let (listening, listens) = mpsc::channel();
        let there = place.clone();
        thread::spawn(move || {
            if let Err(failure) = serve::<M>(kind, &there, &listening, ordered) {
                eprintln!("chunkperf: far end: {failure}");
            }
        });
        let address = listens.recv().doing("waiting for the far end")?;
        let runtime = runtime::start(place.threads)?;
        let over = Arc::new(AtomicBool::new(false));
        let started = connect::<M>(kind, place.clone(), address, Arc::clone(&over));
        let (node, receiver) = run_task(&runtime, started)??;
        let receiver = Some(receiver);
        Ok(Self { _node: node, receiver, orders, kind, next: 1, over, runtime })
    }
}

impl<M: Message> Starving for Near<M> {
    fn deliveries(&mut self, count: u64) -> Result<Vec<u64>, Failure> {
        let receiver = taken(&mut self.receiver, "receiving")?;
        let (sent_ns, was_sent_ns) = mpsc::channel();
        let order = Order { first: self.next, count, sent_ns };
        self.orders.send(order).doing("ordering deliveries")?;
        let received = receive(receiver, self.next, count, self.kind.bytes);
        let (receiver, came_ns) = run_task(&self.runtime, received)??;
        self.receiver = Some(receiver);
        self.next += count;
        Ok(samples(&was_sent_ns.recv().doing("asking for the times")?, &came_ns))
    }
}

impl<M: Message> Drop for Near<M> {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

async fn connect<M: Message>(
    kind: StarveKind,
    place: Place,
    address: String,
    over: Arc<AtomicBool>,
) -> Result<(Node, Receiver<M>), Failure> {
    let (node, peer) = linked_node(kind.node, &place, kind.bytes, &address).await?;
    let mut ready = node.open::<u8>(&peer, READY).await.doing("opening")?;
    ready.send(&0).await.doing("sending")?;
    let (_, receiver) = node.accept::<M>(DELIVERIES).await.doing("accepting")?;
    let (receiver, _) = receive(receiver, 0, 1, kind.bytes).await?;
    for index in 0..kind.computing {
        let results = node.open::<u64>(&peer, &results(index)).await.doing("opening")?;
        let (_, orders) = node.accept::<u64>(&orders(index)).await.doing("accepting")?;
        tokio::spawn(compute(orders, results, kind.work, Arc::clone(&over)));
    }
    Ok((node, receiver))
}

fn orders(index: usize) -> String {
    format!("orders {index}")
}

fn results(index: usize) -> String {
    format!("results {index}")
}

/// Computes for each order without yielding; ends when its channels do.
async fn compute(
    mut orders: Receiver<u64>,
    mut results: Sender<u64>,
    work: Duration,
    over: Arc<AtomicBool>,
) {
    while !over.load(Ordering::Relaxed) {
        let Ok(Some(order)) = orders.recv().await else { return };
        let started = Instant::now();
        while started.elapsed() < work {
            std::hint::spin_loop();
        }
        if results.send_now(&order).await.is_err() {
            return;
        }
    }
}

async fn receive<M: Message>(
    mut receiver: Receiver<M>,
    first: u64,
    count: u64,
    bytes: usize,
) -> Result<(Receiver<M>, Vec<u64>), Failure> {
    let mut came_ns = Vec::with_capacity(count as usize);
    for sequence in first..first + count {
        let message = receiver.recv().await.doing("receiving")?.ok_or_else(ended)?;
        came_ns.push(now_ns());
        if !message.verify(sequence, bytes) {
            return Err(Failure::wrong_message(sequence));
        }
    }
    Ok((receiver, came_ns))
}

/// Runs the far end until no more orders can come.
fn serve<M: Message>(
    kind: StarveKind,
    place: &Place,
    listening: &mpsc::Sender<String>,
    mut ordered: UnboundedReceiver<Order>,
) -> Result<(), Failure> {
    runtime::start(1)?.block_on(async {
        let (node, address) = listening_node(kind.node, place, kind.bytes).await?;
        listening.send(address).doing("telling the address")?;
        let (peer, _ready) = node.accept::<u8>(READY).await.doing("accepting")?;
        let mut sender = node.open::<M>(&peer, DELIVERIES).await.doing("opening")?;
        let mut message = M::with_size(kind.bytes);
        // The channel opens with its first message.
        message.stamp(0);
        sender.send(&message).await.doing("sending")?;
        for index in 0..kind.computing {
            tokio::spawn(give_orders(node.clone(), peer.clone(), index));
        }
        while let Some(Order { first, count, sent_ns }) = ordered.recv().await {
            let mut times_ns = Vec::with_capacity(count as usize);
            for sequence in first..first + count {
                tokio::time::sleep(PAUSE).await;
                message.stamp(sequence);
                times_ns.push(now_ns());
                sender.send(&message).await.doing("sending")?;
            }
            let _ = sent_ns.send(times_ns);
        }
        Ok(())
    })
}

/// Orders one computation after the other, until the near end is gone.
async fn give_orders(node: Node, peer: Peer, index: usize) -> Option<()> {
    let mut orders = node.open::<u64>(&peer, &orders(index)).await.ok()?;
    for order in 0..ORDERS_AHEAD {
        orders.send_now(&order).await.ok()?;
    }
    let (_, mut results) = node.accept::<u64>(&results(index)).await.ok()?;
    while let Some(order) = results.recv().await.ok()? {
        orders.send_now(&(order + ORDERS_AHEAD)).await.ok()?;
    }
    Some(())
}
