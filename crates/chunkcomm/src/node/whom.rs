//! The peer of a connection that lasts: found anew whenever its session has ended.

use super::{Node, Peer};
use crate::Address;
use crate::driver::clock;
use crate::proto::plain::Plain;
use std::future::poll_fn;
use std::time::Duration;

/// Longest single wait for a session with a peer of a given name: 500 ms.
const NAMED_WAIT: Duration = Duration::from_millis(500);

/// A peer by its address or its name.
#[derive(Debug, Clone)]
pub(crate) struct Whom {
    /// The address to dial; without one the peer dials.
    pub(crate) address: Option<Address>,
    /// The peer's name, as [`Peer::name`] returns it.
    peer_name: Option<String>,
    /// The peer's incarnation, which goes before other nodes of its name while it has a session.
    incarnation: Option<u128>,
    /// Whether it is this node itself.
    is_own: bool,
}

impl Whom {
    pub(crate) fn at(address: &Address) -> Whom {
        Whom { address: Some(address.clone()), peer_name: None, incarnation: None, is_own: false }
    }

    pub(crate) fn named(name: &str) -> Whom {
        Whom {
            address: None,
            peer_name: Some(Plain(name).to_string()),
            incarnation: None,
            is_own: false,
        }
    }

    /// The node of this peer, which dials, or after its end one of its name.
    pub(crate) fn dialler(peer: &Peer) -> Whom {
        Whom { incarnation: Some(peer.incarnation()), ..Whom::named(peer.name()) }
    }

    /// The node itself, over its local session.
    pub(crate) fn own() -> Whom {
        Whom { address: None, peer_name: None, incarnation: None, is_own: true }
    }

    pub(crate) fn only_named(self, name: &str) -> Whom {
        Whom { peer_name: Some(Plain(name).to_string()), ..self }
    }

    /// Returns the peer's name, or its address.
    pub(crate) fn text(&self) -> String {
        let name = self.peer_name.clone();
        name.or_else(|| self.address.as_ref().map(Address::to_string)).unwrap_or_default()
    }

    /// Returns the peer if it is there. Tries once, for a short time: between attempts the caller does
    /// not keep the node alive.
    pub(crate) async fn find(&self, node: &Node) -> Option<Peer> {
        let Whom { address, peer_name, incarnation, is_own } = self;
        if *is_own {
            return node.local().await.ok();
        }
        let Some(address) = address else {
            let table = node.table();
            let its = incarnation.and_then(|it| table.preferred(node.incarnation(), it));
            if let Some(link) = its {
                return Some(node.peer(link));
            }
            let name = peer_name.as_deref().unwrap_or_default();
            let named = poll_fn(|context| table.poll_named(name, context));
            return clock::within(node.runtime(), NAMED_WAIT, named).await.map(|it| node.peer(it));
        };
        let peer = node.connect_within(address, Duration::ZERO).await.ok()?;
        if let Some(name) = peer_name.as_ref().filter(|name| *name != peer.name()) {
            tracing::debug!(%address, wanted = %name, found = %peer.name(), "another node is there");
            return None;
        }
        Some(peer)
    }
}
