//! The line between two ranks: a channel, or a short queue where both are this node.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use chunkcomm::layer::{Hooks, Layer, Site};
use chunkcomm::{BytesDuplex, BytesReceiver, BytesSender, Loss, Node};
use tokio::sync::mpsc;

use super::shared::dropped;

/// Messages that wait between two ends of one node: 2, so that they stay in a cache.
const QUEUED_MAX: usize = 2;

/// One direction of a line, where messages go in.
pub(super) enum LineSender {
    Channel(BytesSender),
    Here(mpsc::Sender<Bytes>),
}

/// One direction of a line, where messages come out.
pub(super) enum LineReceiver {
    Channel(Box<BytesReceiver>),
    Here(mpsc::Receiver<Bytes>),
}

pub(super) type Line = (LineSender, LineReceiver);

/// Makes a line of a channel.
pub(super) fn of_channel(duplex: BytesDuplex) -> Line {
    let (sender, receiver, _) = duplex.split();
    (LineSender::Channel(sender), LineReceiver::Channel(Box::new(receiver)))
}

impl LineSender {
    /// Sends a message.
    pub(super) async fn stage(&mut self, message: Bytes) -> Result<(), Loss> {
        match self {
            LineSender::Channel(sender) => sender.send(message).await.map_err(Loss::from),
            LineSender::Here(sender) => sender.send(message).await.map_err(|_| dropped()),
        }
    }

    /// Sends a message, and waits until it has left.
    ///
    /// So a packed tile is still in a cache when the system copies it: with a window of tiles in the queue that copy
    /// took 2.3 times as long.
    pub(super) async fn send(&mut self, message: Bytes) -> Result<(), Loss> {
        self.stage(message).await?;
        match self {
            LineSender::Channel(sender) => sender.flush().await.map_err(Loss::from),
            LineSender::Here(_) => Ok(()),
        }
    }
}

impl LineReceiver {
    /// Waits for the next message and lets `look` see it: where it lies, if it is there already. Otherwise large ones
    /// come into `buffer`, which comes back with their length.
    pub(super) async fn next<R>(
        &mut self,
        buffer: &mut Vec<u8>,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, Loss> {
        match self {
            LineReceiver::Channel(receiver) => {
                let mut look = Some(look);
                let mut see = |message: &[u8]| look.take().expect("it sees one")(message);
                if let Ok(seen) = receiver.try_recv_with(&mut see) {
                    return Ok(seen);
                }
                receiver.recv_into_with(buffer, see).await?.ok_or_else(dropped)
            }
            LineReceiver::Here(receiver) => {
                let message = receiver.recv().await.ok_or_else(dropped)?;
                Ok(look(&message))
            }
        }
    }
}

/// Lines within a node whose second end is not there yet, by transfer.
#[derive(Default)]
pub(super) struct ArrayLayer(Mutex<BTreeMap<u64, Line>>);

impl ArrayLayer {
    /// Returns this node's end of a transfer's line to itself.
    pub(super) fn line(node: &Node, nonce: u64) -> Line {
        let layer = ArrayLayer::of(node);
        let mut waiting = layer.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = waiting.remove(&nonce) {
            return line;
        }
        // Ends whose other one has gone are of no use.
        waiting.retain(|_, (sender, _)| match sender {
            LineSender::Here(sender) => !sender.is_closed(),
            LineSender::Channel(_) => true,
        });
        let (to, from_here) = mpsc::channel(QUEUED_MAX);
        let (back, from_there) = mpsc::channel(QUEUED_MAX);
        waiting.insert(nonce, (LineSender::Here(back), LineReceiver::Here(from_here)));
        (LineSender::Here(to), LineReceiver::Here(from_there))
    }
}

impl Layer for ArrayLayer {
    type Settings = ();

    const NAME: &'static str = "chunkcomm.array";

    const VERSIONS: (u16, u16) = (1, 1);

    /// The channels of transfers have names of the program's kind.
    const NAMES: &'static [&'static str] = &[];

    fn start((): (), _site: Site) -> ArrayLayer {
        ArrayLayer::default()
    }
}

impl Hooks for ArrayLayer {}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 100_000;

    /// Waits for the next message with a buffer; returns its length, and that of the buffer after.
    async fn next(receiver: &mut LineReceiver, message: Bytes, to: &mut LineSender) -> [usize; 2] {
        let mut buffer = vec![0; ROOM];
        let (seen, sent) = tokio::join!(
            biased;
            receiver.next(&mut buffer, <[u8]>::len),
            to.send(message)
        );
        sent.unwrap();
        [seen.unwrap(), buffer.len()]
    }

    #[tokio::test]
    async fn a_small_message_leaves_the_memory_of_large_ones_as_it_is() {
        let address = "memory:array-line".parse().unwrap();
        let near = Node::builder().listen(address).build().await.unwrap();
        let far = Node::builder().build().await.unwrap();
        let peer = far.connect(&near.addresses()[0]).await.unwrap();
        let (mut to, _words) = of_channel(far.open_duplex_bytes(&peer, "line").await.unwrap());
        let (_, duplex) = near.accept_duplex_bytes("line").await.unwrap();
        let (_back, mut receiver) = of_channel(duplex);
        let small = Bytes::from_static(&[1; 24]);
        assert_eq!(next(&mut receiver, small, &mut to).await, [24, ROOM]);
        let large = Bytes::from(vec![2; ROOM - 1]);
        assert_eq!(next(&mut receiver, large, &mut to).await, [ROOM - 1; 2]);
    }
}
