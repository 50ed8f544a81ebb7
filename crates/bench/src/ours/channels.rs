//! Channels that are open and carry nothing, on the link of a measured one.

use chunkcomm::{Node, Peer, Receiver, Sender};

use crate::failure::{Doing, Failure};

/// Name of the channels.
const IDLE: &str = "idle";

/// Name of the channels that report an accepted batch.
const ACCEPTED: &str = "accepted";

/// Channels that are opened before the far end has accepted them: 256. A node holds a few hundred
/// that nobody has accepted.
const BATCH: usize = 256;

/// Opens `count` channels; returns when the far end has accepted them.
///
/// # Errors
/// If the link breaks.
pub(super) async fn open(
    node: &Node,
    peer: &Peer,
    count: usize,
) -> Result<Vec<Sender<u64>>, Failure> {
    let mut senders = Vec::with_capacity(count);
    while senders.len() < count {
        for _ in 0..BATCH.min(count - senders.len()) {
            senders.push(node.open(peer, IDLE).await.doing("opening an idle channel")?);
        }
        drop(node.accept::<u64>(ACCEPTED).await.doing("waiting for idle channels to be accepted")?);
    }
    Ok(senders)
}

/// Accepts the `count` channels that the near end opens.
///
/// # Errors
/// If the link breaks.
pub(super) async fn accept(node: &Node, count: usize) -> Result<Vec<Receiver<u64>>, Failure> {
    let mut receivers = Vec::with_capacity(count);
    while receivers.len() < count {
        let (peer, receiver) = node.accept(IDLE).await.doing("accepting an idle channel")?;
        receivers.push(receiver);
        if receivers.len().is_multiple_of(BATCH) || receivers.len() == count {
            drop(node.open::<u64>(&peer, ACCEPTED).await.doing("reporting accepted channels")?);
        }
    }
    Ok(receivers)
}
