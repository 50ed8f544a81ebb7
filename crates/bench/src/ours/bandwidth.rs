//! Large raw messages one way, from reused or new buffers.

use bytes::{Bytes, BytesMut};
use chunkcomm::stats::PeerStats;
use chunkcomm::{BytesReceiver, BytesSender, Node, Peer};
use tokio::runtime::Runtime;

use super::{ended, far_node, linked_node, taken};
use crate::failure::{Doing, Failure};
use crate::harness::far::{FarEnd, Opening};
use crate::harness::near::{Bench, EndId};
use crate::harness::protocol::{End, NodeKind, Order, Place};
use crate::harness::runtime::run_task;
use crate::harness::slices::{Contender, Slice};
use crate::message::{stamp, verify};

const CHANNEL: &str = "bandwidth";

/// Bytes of all reused buffers of a sender together: 4 MiB, but at least two buffers, so that one
/// is filled while the other is on its way.
const REUSED_BYTES: usize = 4 << 20;

/// Bytes of a page: each page of a new buffer is touched.
const PAGE_BYTES: usize = 4096;

/// Number of attempts to get an acknowledged buffer back before a new one is taken.
const RECLAIM_TRIES: usize = 64;

/// Size and buffers of the messages, and settings of the nodes.
#[derive(Debug, Clone, Copy)]
pub struct BandwidthKind {
    /// Bytes of a message.
    pub bytes: usize,
    /// Whether each message gets a new buffer, at both ends.
    pub fresh: bool,
    /// The node.
    pub node: NodeKind,
}

/// Large messages from the near end.
pub struct Near {
    _node: Node,
    peer: Peer,
    sending: Option<Sending>,
    end: EndId,
    next: u64,
}

struct Sending {
    sender: BytesSender,
    kind: BandwidthKind,
    reused: Vec<Bytes>,
}

impl Near {
    /// Connects near and far end.
    ///
    /// # Errors
    /// If either side fails.
    pub fn open(bench: &mut Bench, kind: BandwidthKind) -> Result<Self, Failure> {
        let end = End::Bandwidth { bytes: kind.bytes, fresh: kind.fresh, node: kind.node };
        let (end, (node, peer, sender)) =
            bench.open(end, |runtime, place, text| runtime.block_on(connect(kind, place, text)))?;
        let count = if kind.fresh { 0 } else { (REUSED_BYTES / kind.bytes).max(2) };
        let reused = (0..count).map(|_| Bytes::from(vec![0x5a; kind.bytes])).collect();
        let sending = Some(Sending { sender, kind, reused });
        Ok(Self { _node: node, peer, sending, end, next: 0 })
    }
}

async fn connect(
    kind: BandwidthKind,
    place: &Place,
    text: &str,
) -> Result<(Node, Peer, BytesSender), Failure> {
    let (node, peer) = linked_node(kind.node, place, kind.bytes, text).await?;
    let sender = node.open_bytes(&peer, CHANNEL).await.doing("opening a channel")?;
    Ok((node, peer, sender))
}

impl Contender for Near {
    fn stats(&self) -> Option<PeerStats> {
        Some(self.peer.stats())
    }

    fn slice(&mut self, bench: &mut Bench, count: u64) -> Result<Slice, Failure> {
        let order = Order { first: self.next, messages: count, mark_every: 0 };
        let sending = taken(&mut self.sending, "sending")?;
        let (sending, timing) = bench.timed(self.end, &order, |runtime| {
            run_task(runtime, sending.produce(order.clone()))?
        })?;
        self.sending = Some(sending);
        self.next += count;
        Ok(Slice::new(count, &timing, Vec::new()))
    }
}

impl Sending {
    async fn produce(mut self, order: Order) -> Result<Self, Failure> {
        for sequence in order.first..order.first + order.messages {
            if self.kind.fresh {
                let mut buffer = touched(self.kind.bytes);
                stamp(&mut buffer, sequence);
                self.sender.send(Bytes::from(buffer)).await.doing("sending")?;
            } else {
                self.send_reused(sequence).await?;
            }
        }
        self.sender.flush().await.doing("flushing")?;
        Ok(self)
    }

    async fn send_reused(&mut self, sequence: u64) -> Result<(), Failure> {
        let index = sequence as usize % self.reused.len();
        let shared = std::mem::take(&mut self.reused[index]);
        let mut buffer = self.reclaim(shared).await?;
        stamp(&mut buffer, sequence);
        let bytes = buffer.freeze();
        self.reused[index] = bytes.clone();
        self.sender.send(bytes).await.doing("sending")
    }

    /// Waits until the library has let go of the buffer, and returns it; after `RECLAIM_TRIES`
    /// attempts returns a copy.
    async fn reclaim(&mut self, mut shared: Bytes) -> Result<BytesMut, Failure> {
        for attempt in 0..RECLAIM_TRIES {
            match shared.try_into_mut() {
                Ok(buffer) => return Ok(buffer),
                Err(still_shared) => shared = still_shared,
            }
            // Without a session nothing is acknowledged: `sync` would never return.
            if attempt == 0 && self.kind.node.session {
                self.sender.sync().await.doing("waiting for acknowledgement")?;
            } else {
                self.sender.flush().await.doing("flushing")?;
                tokio::task::yield_now().await;
            }
        }
        Ok(BytesMut::from(shared.as_ref()))
    }
}

/// Returns a new buffer with every page present.
fn touched(bytes: usize) -> Vec<u8> {
    let mut buffer = vec![0; bytes];
    for byte in buffer.iter_mut().step_by(PAGE_BYTES) {
        *byte = 0x5a;
    }
    buffer
}

struct Far {
    _node: Node,
    receiving: Option<(BytesReceiver, Vec<u8>)>,
    bytes: usize,
    fresh: bool,
}

/// Opens the far end, which receives into one buffer, or a new one each time.
///
/// # Errors
/// If the connection is not made.
pub fn far(
    bytes: usize,
    fresh: bool,
    node: NodeKind,
    mut opening: Opening<'_>,
) -> Result<Box<dyn FarEnd>, Failure> {
    let runtime = opening.runtime;
    let node = far_node(node, &mut opening, bytes)?;
    let (_peer, receiver) =
        runtime.block_on(node.accept_bytes(CHANNEL)).doing("accepting a channel")?;
    let buffer = if fresh { Vec::new() } else { vec![0; bytes] };
    Ok(Box::new(Far { _node: node, receiving: Some((receiver, buffer)), bytes, fresh }))
}

impl FarEnd for Far {
    fn slice(&mut self, runtime: &Runtime, order: &Order) -> Result<Vec<u64>, Failure> {
        let receiving = taken(&mut self.receiving, "receiving")?;
        let task = consume(receiving, self.bytes, self.fresh, order.clone());
        self.receiving = Some(run_task(runtime, task)??);
        Ok(Vec::new())
    }
}

async fn consume(
    (mut receiver, mut buffer): (BytesReceiver, Vec<u8>),
    bytes: usize,
    fresh: bool,
    order: Order,
) -> Result<(BytesReceiver, Vec<u8>), Failure> {
    for sequence in order.first..order.first + order.messages {
        let right = if fresh {
            let message = receiver.recv().await.doing("receiving")?.ok_or_else(ended)?;
            message.len() == bytes && verify(&message, sequence)
        } else {
            buffer.resize(bytes, 0);
            buffer = receiver.recv_into(buffer).await.doing("receiving")?.ok_or_else(ended)?;
            buffer.len() == bytes && verify(&buffer, sequence)
        };
        if !right {
            return Err(Failure::wrong_message(sequence));
        }
    }
    Ok((receiver, buffer))
}
