//! Acceptance of a delta: its first message is read before its channel is accepted for good.

use std::sync::Arc;
use std::time::Duration;

use chunkcomm::channel::{ChannelOptions, UnansweredDuplex, channel};
use chunkcomm::host::timeout;
use chunkcomm::{BytesDuplex, BytesReceiver, Node, Peer};

use super::WayBack;
use crate::error::{DeltaRecvError, Mismatch};
use crate::proto::fault::DeltaFault;
use crate::proto::frame::Reply;
use crate::proto::opening::{Opening, Shape};

/// Time in which a sender must state its shape, in its first message. A peer that opens the channel
/// and does not is no sender and must not keep others waiting.
const OPENING_WAIT: Duration = Duration::from_secs(10);

/// A delta whose sender has stated the shape that was asked for.
pub struct Accepted {
    /// The node that sends.
    pub peer: Peer,
    pub(crate) channel: BytesReceiver,
    pub(crate) back: Arc<WayBack>,
    pub(crate) opening: Opening,
}

impl Accepted {
    /// Returns the number of bytes that the sender sends together, as it stated.
    pub fn increment_bytes(&self) -> u64 {
        self.opening.increment_bytes
    }
}

/// Waits for a delta of shape `ours`, of any peer or of `from`.
pub async fn accept(
    node: &Node,
    from: Option<&Peer>,
    name: &str,
    ours: Shape,
) -> Result<Accepted, DeltaRecvError> {
    let options = match from {
        Some(peer) => channel(name).from_peer(peer),
        None => ChannelOptions::from(name),
    };
    let accepted = node.accept_unanswered_bytes(options).await;
    let (peer, duplex) = accepted.map_err(DeltaRecvError::Accept)?;
    let (duplex, opening) = read_opening(duplex, &peer, name).await;
    let (back, channel, _) = duplex.split();
    let back = Arc::new(WayBack::new(back));
    let opening = opening?;
    if opening.shape != ours {
        back.say(&Reply::Refused(Opening { shape: ours.clone(), ..opening.clone() }).encode());
        return Err(DeltaRecvError::Mismatch(Box::new(Mismatch {
            peer: peer.name().to_owned(),
            channel: name.to_owned(),
            ours,
            theirs: opening.shape,
        })));
    }
    Ok(Accepted { peer, channel, back, opening })
}

/// A channel whose opening was not read. Dropping it gives the channel back to the node, for the next
/// call that accepts its name.
struct Unread(Option<UnansweredDuplex>);

impl Unread {
    fn channel(&mut self) -> &mut BytesReceiver {
        self.0.as_mut().expect("it is answered once, at the end").receiver()
    }

    fn answer(mut self) -> BytesDuplex {
        self.0.take().expect("it is answered once, at the end").answer()
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        if let Some(duplex) = self.0.take() {
            duplex.give_back();
        }
    }
}

/// Reads the opening of an accepted channel, and answers it. When the future is dropped, the channel waits for
/// the next call that accepts its name.
async fn read_opening(
    duplex: UnansweredDuplex,
    peer: &Peer,
    name: &str,
) -> (BytesDuplex, Result<Opening, DeltaRecvError>) {
    let mut unread = Unread(Some(duplex));
    let opening = match timeout(OPENING_WAIT, unread.channel().recv()).await {
        Ok(first) => first
            .map_err(DeltaRecvError::Channel)
            .map(|first| Opening::decode(&first.unwrap_or_default())),
        Err(_) => Ok(Err(DeltaFault::Late)),
    };
    let fault = |fault| DeltaRecvError::Opening {
        peer: peer.name().to_owned(),
        channel: name.to_owned(),
        fault,
    };
    (unread.answer(), opening.and_then(|opening| opening.map_err(fault)))
}

#[cfg(test)]
mod tests {
    use chunkcomm::Node;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_sender_that_states_nothing_is_given_up() {
        let address = "memory:recv-late".parse().expect("an address");
        let near = Node::builder().name("near").listen(address).build().await.expect("a node");
        let far = Node::builder().name("far").build().await.expect("a node");
        let peer = far.connect(&near.addresses()[0]).await.expect("a link");
        let silent = far.open_duplex_bytes(&peer, "numbers").await.expect("a channel");
        let accepted = accept(&near, None, "numbers", Shape::of::<u8>(9)).await;
        let error = accepted.map(drop).expect_err("nothing was stated");
        assert!(matches!(error, DeltaRecvError::Opening { fault: DeltaFault::Late, .. }));
        assert!(error.to_string().contains("far"), "{error}");
        drop(silent);
    }
}
