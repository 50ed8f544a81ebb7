//! Relation of a member to its manager, and its reports about the cluster.

use crate::proto::cluster::{Death, Member, NodeId, Refusal};
use chunkcomm_proto::Time;
use chunkcomm_proto::loss::Loss;
use std::error::Error;
use std::fmt;

/// End of a membership.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// All members stop: one asked for it, or all are done.
    Finished {
        /// The member that asked; `None` when all were done.
        by: Option<NodeId>,
    },
    /// This node left.
    Left,
    /// The manager does not admit this node, or the cluster did not start.
    Refused(Refusal),
    /// The manager is gone, and did not come back in time.
    ManagerLost {
        /// How the loss was noticed.
        loss: Loss,
    },
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Finished { by: None } => f.write_str("all nodes are done"),
            End::Finished { by: Some(by) } => write!(f, "{by} asked for the stop of the cluster"),
            End::Left => f.write_str("this node has left the cluster"),
            End::Refused(why) => why.fmt(f),
            End::ManagerLost { loss } => write!(f, "the manager (rank 0) is gone: {loss:?}"),
        }
    }
}

chunkcomm_proto::debug_with_causes!(End);

impl Error for End {}

/// Relation of this node to the manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The node announces itself, for the first time or to a new manager.
    Announced,
    /// The node is a member.
    Member,
    /// The manager is gone; the node waits for another.
    Cut {
        /// End of the wait.
        until: Time,
        /// How the loss was noticed.
        loss: Loss,
    },
    /// The membership has ended.
    Ended(End),
}

/// Change in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// A member came.
    Joined(Member),
    /// A member left, as it had announced.
    Left(NodeId),
    /// A member is gone without an announcement.
    Died(Death),
    /// The manager is gone; the node waits for a new one.
    ManagerLost,
    /// A new manager knows this node.
    ManagerBack,
    /// This number of changes were dropped before they were read.
    Missed(u64),
}
