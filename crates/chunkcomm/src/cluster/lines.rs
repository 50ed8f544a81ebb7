//! The channels between members and manager: system messages go by the express lane,
//! each at once.

use crate::channel::ChannelOptions;
use crate::error::{AcceptError, OpenError};
use crate::proto::cluster::{Down, Up};
use crate::proto::packet::Lane;
use crate::{Address, Node, Peer, Receiver, Sender};
use std::io;

/// To the manager.
const UP: &str = "chunkcomm.cluster.up";
/// From the manager.
const DOWN: &str = "chunkcomm.cluster.down";

/// Raised when the messages change. The two ends of a line compare it: where it differs, the
/// line is refused, by an error that has both.
const WORDS_VERSION: u32 = 3;

fn options(name: &str) -> ChannelOptions {
    ChannelOptions::default().lane(Lane::Express).schema(format!("{name}/{WORDS_VERSION}"))
}

/// A line to the manager.
pub(super) async fn open_up(node: &Node, manager: &Peer) -> Result<Sender<Up>, OpenError> {
    node.open_with(manager, UP, options(UP)).await
}

/// The manager's side of it.
pub(super) async fn accept_up(node: &Node) -> Result<(Peer, Receiver<Up>), AcceptError> {
    node.accept_with(UP, options(UP)).await
}

/// A line from the manager to a member.
pub(super) async fn open_down(node: &Node, member: &Peer) -> Result<Sender<Down>, OpenError> {
    node.open_with(member, DOWN, options(DOWN)).await
}

/// The member's side of it. Lines of earlier managers are dropped.
pub(super) async fn accept_down(
    node: &Node,
    manager: &Peer,
) -> Result<Receiver<Down>, AcceptError> {
    loop {
        let (peer, receiver) = node.accept_with(DOWN, options(DOWN)).await?;
        if peer.incarnation() == manager.incarnation() {
            return Ok(receiver);
        }
    }
}

/// Waits until nobody listens any more where the node listened, for all its life, that
/// the link is with: so its end is known at once, rather than by a long silence. Looked
/// at whenever the link's connection is lost; `seen` of these losses were.
pub(super) async fn deserted(peer: &Peer, address: &Address, seen: &mut u64) {
    loop {
        let now = peer.troubled(*seen).await;
        if nobody_listens(address).await {
            return;
        }
        *seen = now;
    }
}

async fn nobody_listens(address: &Address) -> bool {
    let fault = match address {
        Address::Tcp { host, port } => {
            tokio::net::TcpStream::connect((host.as_str(), *port)).await.err()
        }
        #[cfg(unix)]
        Address::Unix(path) => tokio::net::UnixStream::connect(path).await.err(),
        _ => None,
    };
    let gone = [io::ErrorKind::ConnectionRefused, io::ErrorKind::NotFound];
    fault.is_some_and(|fault| gone.contains(&fault.kind()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_pass_bulk_data_and_have_a_version() {
        for name in [UP, DOWN] {
            let options = options(name);
            assert_eq!(options.lane, Lane::Express);
            assert_eq!(options.schema, Some(format!("{name}/{WORDS_VERSION}")));
        }
    }
}
