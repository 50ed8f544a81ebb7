//! Links to other members.

use super::{Cluster, Death, Member, NodeId, is_fatal};
use crate::proto::cluster::membership::Membership;
use chunkcomm::layer::Link;
use chunkcomm::{Address, ConnectError, Loss, LossKind, Peer, host};
use std::time::Duration;

/// Time in which a node hears of a member that others know: 5 s.
const HEAR_WAIT: Duration = Duration::from_secs(5);

/// A member that could not be reached.
#[derive(thiserror::Error)]
#[error("rank {rank} cannot be reached")]
struct Unreached {
    rank: u32,
    #[source]
    cause: ConnectError,
}

chunkcomm_proto::debug_with_causes!(Unreached);

impl Cluster {
    /// Returns the session with the node of this rank, whichever of the two began it; dials the node
    /// if there is none.
    ///
    /// Two members have one session: the calls at both ends return it, also when both dial at the
    /// same time. Where a program's own [`Node::connect`](chunkcomm::Node::connect) has begun
    /// others, both prefer one that the node with the smaller incarnation began. Open channels stay
    /// where they are. After the session's end the next call at either end dials anew;
    /// [`Node::open`](chunkcomm::Node::open) does so only at the end that had dialled.
    ///
    /// This node itself is reached through memory.
    ///
    /// # Errors
    ///
    /// The loss of the node: no node has this rank, it died ([`Death`] is the cause), another one is where
    /// it was, or it cannot be reached ([`ConnectError`]); or the cluster has ended ([`End`](super::End)).
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn peer(&self, rank: u32) -> Result<Peer, Loss> {
        let state = &self.shared.state;
        if let Some(end) = state.look(|it| it.end().filter(|end| is_fatal(end)).cloned()) {
            return Err(Loss::of(LossKind::Left, end));
        }
        let member = self.member(rank).ok_or_else(|| self.nobody(rank))?;
        if member.id == self.shared.id {
            return Ok(state.node.local().await?);
        }
        match state.link(member.id.incarnation) {
            Some(peer) => Ok(peer),
            None => self.link_to(&member).await,
        }
    }

    /// Returns the session with this member, as [`peer`](Self::peer) does.
    ///
    /// # Errors
    ///
    /// As `peer`; [`LossKind::Replaced`] when another node has its rank.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn peer_of(&self, member: NodeId) -> Result<Peer, Loss> {
        let is_dead = |it: &Membership| it.deaths().iter().rfind(|it| it.id == member).cloned();
        if let Some(death) = self.shared.state.look(is_dead) {
            return Err(death.into());
        }
        let replaced = || {
            let why = "another node has its rank in the cluster";
            Loss::new(LossKind::Replaced, why)
        };
        match self.peer(member.rank).await {
            Ok(peer) if peer.incarnation() == member.incarnation => Ok(peer),
            Ok(_) => Err(replaced()),
            // The death of another one that had its rank.
            Err(loss) if loss.cause::<Death>().is_some_and(|it| it.id != member) => Err(replaced()),
            Err(loss) => Err(loss),
        }
    }

    /// Waits until this node has heard of members that others know: 5 s at most, in which all words of the manager
    /// come. One that has left again by then is never heard of.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn heard_of(&self, members: &[NodeId]) {
        let state = &self.shared.state;
        let heard = state.until(|it| {
            let is_known = |id: &NodeId| {
                it.members().get(&id.rank).is_some_and(|member| member.id == *id)
                    || it.deaths().iter().any(|death| death.id == *id)
            };
            (it.end().is_some() || members.iter().all(is_known)).then_some(())
        });
        let _ = host::timeout(HEAR_WAIT, heard).await;
    }

    fn nobody(&self, rank: u32) -> Loss {
        let state = &self.shared.state;
        let death =
            state.look(|it| it.deaths().iter().rfind(|death| death.id.rank == rank).cloned());
        match death {
            Some(death) => death.into(),
            None => {
                let size = self.size();
                let why =
                    format!("there is no rank {rank} in the cluster, which {size} nodes started");
                Loss::new(LossKind::Left, why)
            }
        }
    }

    async fn link_to(&self, member: &Member) -> Result<Peer, Loss> {
        let (node, rank) = (self.node(), member.id.rank);
        let mut cause = ConnectError::Closed;
        for address in &member.addresses {
            let Ok(address) = address.parse::<Address>() else { continue };
            match Link::meet(node, member.id.incarnation, &address).await {
                Ok(Some(link)) => return Ok(link.peer(node)),
                Ok(None) => {
                    let why = format!("another process answers where rank {rank} was");
                    return Err(Loss::new(LossKind::Replaced, why));
                }
                Err(error) => cause = error,
            }
        }
        let kind = Loss::from(cause.clone()).kind();
        Err(Loss::of(kind, Unreached { rank, cause }))
    }
}
