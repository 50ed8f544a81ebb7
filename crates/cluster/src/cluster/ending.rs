//! The end: of the whole cluster, or of one membership.

use super::{Cluster, End, EndError};
use crate::proto::cluster::membership::Membership;
use crate::sync::locked;
use chunkcomm::host::{self, Instant};
use chunkcomm::layer::Wait;
use std::time::Duration;

impl Cluster {
    /// Asks for the stop of the whole cluster: [`Cluster::finished`] returns on every node.
    pub fn finish(&self) {
        self.shared.state.change(Membership::finish);
    }

    /// Waits until a member asks for the stop of the cluster, all are done, or the membership ends
    /// otherwise.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn finished(&self) -> End {
        let state = &self.shared.state;
        let _wait = Wait::begin(&state.node, "the end of the cluster".to_owned());
        state.until(|it| it.end().cloned()).await
    }

    /// Returns the end of the membership, if it has ended.
    ///
    /// It is often the cause of other errors, since all links are cut when the manager is gone.
    #[must_use]
    pub fn ended(&self) -> Option<End> {
        self.shared.state.look(|it| it.end().cloned())
    }

    /// Ends the cluster in order.
    ///
    /// Waits until every node has called this or is gone, or until a member has asked for the stop.
    /// Then closes this node, which sends all accepted messages. Processes that this node started
    /// have ended when it returns.
    ///
    /// # Errors
    ///
    /// The manager is gone, or something was not done within `deadline`. Other nodes were not at
    /// their end, messages were not acknowledged, or processes had to be killed. The node is closed
    /// all the same.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, this node still counts as done; call it again.
    pub async fn end(&self, deadline: Duration) -> Result<(), EndError> {
        let state = &self.shared.state;
        let until = Instant::now() + deadline;
        state.change(Membership::done);
        let end = host::timeout(deadline, self.finished()).await.ok();
        let keeper = locked(&self.shared.keeper).take();
        if let Some(keeper) = keeper {
            return keeper.end(state, end, until).await;
        }
        let closed = state.close(until - Instant::now()).await;
        EndError::of(end)?;
        closed.map_err(EndError::Close)
    }

    /// Removes this node from the cluster; the others stay.
    ///
    /// Its links are closed, which sends all accepted messages. Rank 0 cannot leave: the manager
    /// runs there.
    ///
    /// # Errors
    ///
    /// This is rank 0, or accepted messages were not acknowledged within `deadline`.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the node leaves all the same, without waiting.
    pub async fn leave(&self, deadline: Duration) -> Result<(), EndError> {
        if self.rank() == 0 {
            return Err(EndError::Manager);
        }
        let state = &self.shared.state;
        let until = Instant::now() + deadline;
        state.change(Membership::leave);
        let mut over = state.over.subscribe();
        // Words that are not sent by then are lost; the others learn of the leave from the end of
        // the line.
        let _ = host::timeout(deadline, over.wait_for(|over| *over)).await;
        state.close(until - Instant::now()).await.map_err(EndError::Close)
    }
}
