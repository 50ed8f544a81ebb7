//! Processes at members of a cluster.

use super::{Cluster, MemberInstantiateError, WeakCluster};
use crate::moving::moving;
use crate::process::{Process, ProcessContext, ProcessHandle, instantiate};
use crate::sync::locked;
use chunkcomm::layer::{self, Answer, Hooks, Layer, Opened, Site};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Mutex;

/// The cluster that a node is a member of, for the processes that it runs.
#[derive(Default)]
struct OwnCluster(Mutex<Option<WeakCluster>>);

impl Layer for OwnCluster {
    type Settings = ();

    const NAMES: &'static [&'static str] = &[];

    fn start((): (), _site: Site) -> OwnCluster {
        OwnCluster::default()
    }
}

impl Hooks for OwnCluster {
    fn opened(&self, opened: Opened) -> Answer {
        Answer::Refused(Box::new(opened))
    }
}

impl ProcessContext {
    /// The cluster of the node, if it is a member of one that has not ended.
    #[must_use]
    pub fn cluster(&self) -> Option<Cluster> {
        let own = layer::of::<OwnCluster>(self.node());
        let cluster = locked(&own.0).clone();
        cluster?.upgrade()
    }
}

/// Notes that the node is a member: processes that wait for that begin.
pub(super) fn set_member(cluster: &Cluster, weak: WeakCluster) {
    let node = cluster.node();
    *locked(&layer::of::<OwnCluster>(node).0) = Some(weak);
    moving(node).set_member();
}

impl Cluster {
    /// As [`NodeExt::instantiate`](crate::NodeExt::instantiate), at the node of this rank; a link is dialled if there is none.
    /// This node can be asked, too.
    ///
    /// # Errors
    ///
    /// Nobody has this rank, it died or cannot be reached; else as [`NodeExt::instantiate`](crate::NodeExt::instantiate).
    ///
    /// # Cancel safety
    ///
    /// As [`NodeExt::instantiate`](crate::NodeExt::instantiate).
    pub async fn instantiate<I>(
        &self,
        rank: u32,
        process: &Process<I>,
        input: I,
    ) -> Result<ProcessHandle, MemberInstantiateError>
    where
        I: Serialize + DeserializeOwned,
    {
        let peer = self.peer(rank).await.map_err(MemberInstantiateError::Member)?;
        let asked = instantiate(self.node(), &peer, process, input).await;
        asked.map_err(MemberInstantiateError::Instantiate)
    }

    /// As [`Cluster::instantiate`], at the next member after the last chosen one, in turn; at this
    /// one only when there is no other.
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
    ) -> Result<ProcessHandle, MemberInstantiateError>
    where
        I: Serialize + DeserializeOwned,
    {
        let others: Vec<u32> = self.members().iter().map(|member| member.id.rank).collect();
        let own = self.rank();
        let turn = moving(self.node()).processes.next_turn(&others, own);
        self.instantiate(turn.unwrap_or(own), process, input).await
    }
}
