//! Messages, and the identifiers of tasks.

use std::fmt;

use chunkcomm::Sender;
use chunkcomm_cluster::Cluster;
use chunkcomm_cluster::cluster::NodeId;
use chunkcomm_cluster::process::Failure;
use serde::{Deserialize, Serialize};

use crate::models::packed::Packed;

/// Identifier of a task: its node, and a number that the node draws at random from 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Tid {
    /// Node of the task.
    pub host: NodeId,
    pub(super) number: u64,
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task {:x} of {}", self.number, self.host)
    }
}

impl Tid {
    /// Opens a channel, which fails when the task ends.
    pub(super) async fn open(self, cluster: &Cluster) -> Result<Sender<Message>, Failure> {
        let peer = cluster.peer_of(self.host).await?;
        Ok(cluster.node().open(&peer, self.to_string()).await?)
    }
}

/// A message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Message {
    /// Its sender.
    pub from: Tid,
    /// Its tag. Negative ones are those of groups, and no wildcard finds them.
    pub tag: i32,
    /// Its value.
    pub value: Packed,
    /// Whether it tells of an event, to the task that asked for that.
    #[serde(skip)]
    pub(super) is_notice: bool,
}

impl Message {
    pub(super) fn fits(&self, from: Option<Tid>, tag: Option<i32>) -> bool {
        from.is_none_or(|it| it == self.from) && tag.map_or(self.tag >= 0, |it| it == self.tag)
    }
}

/// Event to be notified of. The message holds the task's [`Tid`], or the rank of the node.
#[derive(Clone, Copy, Debug)]
pub enum What {
    /// The task ends or has ended, or its node is gone.
    TaskExit(Tid),
    /// A node leaves or dies.
    HostDelete,
    /// A node joins.
    HostAdd,
}
