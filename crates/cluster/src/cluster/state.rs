//! State that the tasks of a node share with its cluster.

use super::lines;
use crate::proto::cluster::membership::Membership;
use crate::sync::locked;
use crate::tasks::spawn_among;
use chunkcomm::layer::{Bell, Link};
use chunkcomm::{Address, CloseError, Node, Peer};
use std::sync::Mutex;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// State that the tasks of a node share with its cluster.
pub(super) struct State {
    pub(super) node: Node,
    pub(super) membership: Mutex<Membership>,
    /// Signal that the membership may have changed, or has words to send.
    pub(super) changed: watch::Sender<()>,
    /// The same for all waits in `until`.
    bell: Bell,
    /// Whether the last word with the manager was spoken.
    pub(super) over: watch::Sender<bool>,
}

impl State {
    pub(super) fn new(node: Node, membership: Membership) -> State {
        let (changed, _) = watch::channel(());
        let (over, _) = watch::channel(false);
        State { node, membership: Mutex::new(membership), changed, bell: Bell::default(), over }
    }

    /// Changes the membership by `what`, and wakes all waits for a change.
    pub(super) fn change<R>(&self, what: impl FnOnce(&mut Membership) -> R) -> R {
        let result = what(&mut locked(&self.membership));
        self.changed.send_modify(|()| {});
        self.bell.ring();
        result
    }

    pub(super) fn look<R>(&self, what: impl FnOnce(&Membership) -> R) -> R {
        what(&locked(&self.membership))
    }

    /// Waits until `found` finds something in the membership.
    pub(super) async fn until<R>(&self, mut found: impl FnMut(&Membership) -> Option<R>) -> R {
        self.bell.until(|| self.look(&mut found)).await
    }

    /// Returns the live session with this incarnation, if there is one.
    pub(super) fn link(&self, incarnation: u128) -> Option<Peer> {
        Link::with(&self.node, incarnation).map(|link| link.peer(&self.node))
    }

    /// Closes the node. While all nodes end, the manager reports no more deaths. So this node looks
    /// meanwhile for each peer of this machine, which may be killed.
    pub(super) async fn close(&self, deadline: Duration) -> Result<(), CloseError> {
        let mut looking = JoinSet::new();
        for link in Link::all_of(&self.node) {
            let peer = link.peer(&self.node);
            let Some(address) = self.look(|it| address_here(it, &peer)) else { continue };
            spawn_among(
                &mut looking,
                Box::pin(async move {
                    if let Some(loss) = lines::desertion(&peer, &address).await {
                        peer.declare_dead(loss);
                    }
                }),
            );
        }
        self.node.close(deadline).await
    }
}

/// Returns the address at which a member listens, if that is on this machine.
fn address_here(membership: &Membership, peer: &Peer) -> Option<Address> {
    let mut members = membership.members().values();
    let member = members.find(|member| member.id.incarnation == peer.incarnation())?;
    let mut addresses = member.addresses.iter().filter_map(|it| it.parse::<Address>().ok());
    addresses.find(Address::is_loopback_only)
}
