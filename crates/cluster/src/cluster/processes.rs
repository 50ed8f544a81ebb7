//! Processes at members of a cluster.

use super::layer::{cluster_of, set_cluster};
use super::{Cluster, WeakCluster};
use crate::moving::moving;
use crate::process::{Process, ProcessContext, ProcessError, ProcessHandle, instantiate};
use serde::Serialize;
use serde::de::DeserializeOwned;

impl ProcessContext {
    /// Returns the cluster of the node, if it is a member of one that has not ended.
    #[must_use]
    pub fn cluster(&self) -> Option<Cluster> {
        cluster_of(self.node())
    }
}

/// Notes that the node is a member, so that waiting processes begin.
pub(super) fn set_member(cluster: &Cluster, weak: WeakCluster) {
    set_cluster(cluster.node(), weak);
    moving(cluster.node()).set_member();
}

impl Cluster {
    /// Runs a process at the node of this rank, as
    /// [`NodeExt::instantiate`](crate::NodeExt::instantiate).
    ///
    /// The node is dialled if there is no link. This node can be asked, too.
    ///
    /// # Errors
    ///
    /// As [`NodeExt::instantiate`](crate::NodeExt::instantiate). [`ProcessError::Unreachable`] also where no
    /// node has this rank, or it died.
    ///
    /// # Cancel safety
    ///
    /// As [`NodeExt::instantiate`](crate::NodeExt::instantiate).
    pub async fn instantiate<I>(
        &self,
        rank: u32,
        process: &Process<I>,
        input: I,
    ) -> Result<ProcessHandle, ProcessError>
    where
        I: Serialize + DeserializeOwned,
    {
        let peer = self.peer(rank).await.map_err(ProcessError::Unreachable)?;
        instantiate(self.node(), &peer, process, input).await
    }

    /// Runs a process at the members in turn, as [`Cluster::instantiate`].
    ///
    /// It goes to the next member after the last chosen one, and to this one only when there is no
    /// other.
    ///
    /// # Errors
    ///
    /// As [`Cluster::instantiate`].
    ///
    /// # Cancel safety
    ///
    /// As [`NodeExt::instantiate`](crate::NodeExt::instantiate).
    pub async fn instantiate_somewhere<I>(
        &self,
        process: &Process<I>,
        input: I,
    ) -> Result<ProcessHandle, ProcessError>
    where
        I: Serialize + DeserializeOwned,
    {
        let others: Vec<u32> = self.members().iter().map(|member| member.id.rank).collect();
        let own = self.rank();
        let turn = moving(self.node()).processes.next_turn(&others, own);
        self.instantiate(turn.unwrap_or(own), process, input).await
    }
}
