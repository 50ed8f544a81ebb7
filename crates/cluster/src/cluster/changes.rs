//! The changes in a cluster, for readers that follow them.

use super::Change;
use super::state::State;
use std::fmt;
use std::sync::Arc;

/// Reader of the changes in a cluster, in order; made by
/// [`Cluster::changes`](super::Cluster::changes).
pub struct Changes {
    pub(super) state: Arc<State>,
    pub(super) next: u64,
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").field("next", &self.next).finish_non_exhaustive()
    }
}

impl Changes {
    /// Waits for the next change; `None` when the cluster has ended and all were returned.
    ///
    /// The last 1024 changes are kept. A slower reader gets the number of those that it missed.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Change> {
        let number = self.next;
        let found = self.state.until(|it| match (it.change(number), it.end()) {
            (Some(found), _) => Some(Some(found)),
            (None, Some(_)) => Some(None),
            (None, None) => None,
        });
        let (change, next) = found.await?;
        self.next = next;
        Some(change)
    }
}
