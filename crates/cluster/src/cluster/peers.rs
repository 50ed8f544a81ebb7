//! Links to other members.

use super::{Cluster, Member, PeerError, is_fatal};
use chunkcomm::{Address, ConnectError, Peer};
use std::time::Duration;

impl Cluster {
    /// Returns the link to the node of this rank; dials the node if there is no link.
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
        if let Some(peer) = state.link(member.id.incarnation) {
            return Ok(peer);
        }
        let peer = self.dial(&member).await?;
        state.keep_link(&peer);
        Ok(peer)
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

    async fn dial(&self, member: &Member) -> Result<Peer, PeerError> {
        let rank = member.id.rank;
        let mut cause = ConnectError::Closed;
        for address in &member.addresses {
            let Ok(address) = address.parse::<Address>() else { continue };
            match self.node().connect_within(&address, Duration::ZERO).await {
                Ok(peer) if peer.incarnation() == member.id.incarnation => return Ok(peer),
                Ok(_) => return Err(PeerError::Replaced { rank }),
                Err(error) => cause = error,
            }
        }
        Err(PeerError::Connect { rank, cause: cause.into() })
    }
}
