//! Links to other members.

use super::{Cluster, Member, NodeId, PeerError, is_fatal};
use chunkcomm::layer::Link;
use chunkcomm::{Address, ConnectError, Loss, LossKind, Peer, host};
use std::time::Duration;

/// Time in which a node hears of a member that others know: 5 s.
const HEAR_WAIT: Duration = Duration::from_secs(5);

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
    /// No node has this rank, it died, or it cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn peer(&self, rank: u32) -> Result<Peer, PeerError> {
        let state = &self.shared.state;
        if let Some(end) = state.look(|it| it.end().filter(|end| is_fatal(end)).cloned()) {
            return Err(PeerError::Ended(end));
        }
        let member = self.member(rank).ok_or_else(|| self.nobody(rank))?;
        if member.id == self.shared.id {
            return state
                .node
                .local()
                .await
                .map_err(|cause| PeerError::Connect { rank, cause: cause.into() });
        }
        match state.link(member.id.incarnation) {
            Some(peer) => Ok(peer),
            None => self.meet(&member).await,
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
        let peer = self.peer(member.rank).await?;
        if peer.incarnation() != member.incarnation {
            let why = "another node has its rank in the cluster";
            return Err(Loss::new(LossKind::Replaced, why));
        }
        Ok(peer)
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

    fn nobody(&self, rank: u32) -> PeerError {
        let state = &self.shared.state;
        let death =
            state.look(|it| it.deaths().iter().rfind(|death| death.id.rank == rank).cloned());
        match death {
            Some(death) => PeerError::Dead(death),
            None => PeerError::Nobody { rank, size: self.size() },
        }
    }

    async fn meet(&self, member: &Member) -> Result<Peer, PeerError> {
        let (node, rank) = (self.node(), member.id.rank);
        let mut cause = ConnectError::Closed;
        for address in &member.addresses {
            let Ok(address) = address.parse::<Address>() else { continue };
            match Link::meet(node, member.id.incarnation, &address).await {
                Ok(Some(link)) => return Ok(link.peer(node)),
                Ok(None) => return Err(PeerError::Replaced { rank }),
                Err(error) => cause = error,
            }
        }
        Err(PeerError::Connect { rank, cause: cause.into() })
    }
}
