//! [`Peer`]: another node, as this one sees it.

use super::{Node, NodeShared};
use crate::Address;
use crate::driver::mail::{Beginning, Command, LinkShared};
use crate::error::{LinkCause, LinkError, Loss};
use crate::explain::Way;
use crate::stats::PeerStats;
use std::fmt;
use std::future::poll_fn;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::task::{Context, Poll};

/// A peer as a node sees it: the session with it.
///
/// It outlives the connection, but not the session. After the session's end,
/// [`Node::open`] dials again if this node had dialled.
///
/// Two peers are equal when they are of the same session of the same node, whether they come
/// from [`Node::connect`], [`Node::accept`] or [`Node::events`]. A peer that was restarted,
/// or whose session was given up and begun anew, is another one. Its [`name`](Peer::name) may be
/// the same; after a restart its [`incarnation`](Peer::incarnation) differs, too.
///
/// A peer is sound as the key of a map, though clippy's `mutable_key_type` warns: the parts that
/// change are not compared.
#[derive(Clone)]
pub struct Peer {
    pub(crate) link: Arc<LinkShared>,
    /// Keeps the node alive.
    pub(super) node: Arc<NodeShared>,
}

impl PartialEq for Peer {
    fn eq(&self, other: &Peer) -> bool {
        Arc::ptr_eq(&self.link, &other.link)
    }
}

impl Eq for Peer {}

impl Hash for Peer {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.link.peer.incarnation, self.link.peer.session).hash(state);
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("name", &self.name())
            .field("address", &self.address())
            .finish_non_exhaustive()
    }
}

impl Peer {
    pub(crate) fn runtime(&self) -> &tokio::runtime::Handle {
        &self.node.runtime
    }

    /// Returns the node that has this peer.
    #[must_use]
    pub fn node(&self) -> Node {
        Node { shared: Arc::clone(&self.node) }
    }

    /// Returns the peer's name, or the beginning of its random incarnation. Characters that could
    /// begin a line or steer a terminal are escaped: the peer has chosen them.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.link.peer.name
    }

    /// Returns the random number that the peer drew when it started.
    #[must_use]
    pub fn incarnation(&self) -> u128 {
        self.link.peer.incarnation
    }

    /// Returns the address that this node dialled for the session.
    ///
    /// If the peer dialled, the address that its first connection came from, with a port that
    /// nobody listens at. `None` if that connection has no address (memory, Unix sockets, also the one by
    /// [`NodeBuilder::same_host`](crate::NodeBuilder::same_host)).
    #[must_use]
    pub fn address(&self) -> Option<&Address> {
        match &self.link.peer.beginning {
            Beginning::Dialled(address) => Some(address),
            Beginning::Accepted(from) => from.as_ref(),
            Beginning::Local => None,
        }
    }

    /// Returns the address where the peer can be dialled again, if this node dialled it.
    #[must_use]
    pub fn dialled(&self) -> Option<&Address> {
        match &self.link.peer.beginning {
            Beginning::Dialled(address) => Some(address),
            Beginning::Accepted(_) | Beginning::Local => None,
        }
    }

    /// Returns the way of the session's last connection: TCP, with the reason, or the Unix socket of a
    /// host that both nodes share.
    #[must_use]
    pub fn way(&self) -> Way {
        self.link.way()
    }

    /// Whether it is the node itself, over its local session.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self.link.peer.beginning, Beginning::Local)
    }

    /// Returns the certificates that the peer showed when the session began, with
    /// [`NodeBuilder::tls_config`](crate::NodeBuilder::tls_config). The first is the peer's own, which was
    /// verified and whose key the peer has; the others came with it. Empty over Unix sockets, memory, and with
    /// a credential alone, whose certificate is that of all members.
    ///
    /// No other certificate resumes the session after a lost connection: what a peer may do can be decided by
    /// it, and kept with the peer. Name, incarnation and rank are what the peer says of itself.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn certificates(&self) -> &[rustls::pki_types::CertificateDer<'static>] {
        self.link.peer.shown.chain()
    }

    /// Returns the version of the protocol between this node and the peer: the newest that both
    /// speak.
    #[must_use]
    pub fn protocol_version(&self) -> u16 {
        self.link.peer.version
    }

    /// Returns the largest message that the peer takes, in encoded bytes.
    #[must_use]
    pub fn message_bytes_max(&self) -> u64 {
        self.link.peer.message_bytes_max
    }

    /// Returns the counters of the session.
    #[must_use]
    pub fn stats(&self) -> PeerStats {
        self.link.stats()
    }

    /// Whether the session has not ended.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.link.ended().is_none()
    }

    /// Waits for the end of the session and returns its cause.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn closed(&self) -> LinkError {
        poll_fn(|context| self.link.poll_ended(context)).await
    }

    /// As [`Self::closed`], as a `poll` function.
    pub fn poll_closed(&self, context: &mut Context<'_>) -> Poll<LinkError> {
        self.link.poll_ended(context)
    }

    /// Waits until more than `seen` connections were lost or attempts at another one failed;
    /// returns their number.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn losses_beyond(&self, seen: u64) -> u64 {
        poll_fn(|context| self.link.poll_trouble(seen, context)).await
    }

    /// Ends the session now because the caller knows that the peer is gone: a parent of its child,
    /// a cluster of its member.
    ///
    /// `why` goes into the error of every call that waits for the peer. Otherwise only the peer's
    /// silence would end these waits.
    pub fn declare_dead(&self, why: impl Into<Loss>) {
        let error = LinkError::new(self.name(), LinkCause::Gone(why.into()));
        self.link.command(Command::Abort(error));
    }

    /// Ends the session now, without sending staged messages. The peer is informed, if
    /// that can be done at once.
    pub fn abort(&self) {
        let error = LinkError::new(self.name(), LinkCause::Closed);
        self.link.command(Command::Abort(error));
    }
}
