//! How a member stands to its manager, and what it tells of the cluster.

use crate::proto::Time;
use crate::proto::cluster::{Death, Member, NodeId, Refusal};
use std::fmt;

/// How a membership ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// All stop: somebody asked for it, or everybody is done.
    Finished {
        /// Who asked.
        by: Option<NodeId>,
    },
    /// This node left.
    Left,
    /// The manager does not take it, or the cluster did not start.
    Refused(Refusal),
    /// The manager is gone, and did not come back in time.
    ManagerLost {
        /// How that was noticed.
        why: String,
    },
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Finished { by: None } => f.write_str("all nodes are done"),
            End::Finished { by: Some(by) } => write!(f, "{by} asked for the stop of the cluster"),
            End::Left => f.write_str("this node has left the cluster"),
            End::Refused(why) => why.fmt(f),
            End::ManagerLost { why } => write!(f, "the manager (rank 0) is gone: {why}"),
        }
    }
}

/// How this node stands to the manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It announces itself, for the first time or to a new manager.
    Announced,
    /// It is a member.
    Member,
    /// The manager is gone; another is waited for.
    Cut {
        /// Until then.
        until: Time,
        /// How the loss was noticed.
        why: String,
    },
    /// Nothing more comes.
    Ended(End),
}

/// What changed in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// Somebody came.
    Joined(Member),
    /// Somebody left that had said so.
    Left(NodeId),
    /// Somebody is gone that had not.
    Died(Death),
    /// The manager is gone, and a new one is waited for.
    ManagerLost,
    /// A new manager knows this node.
    ManagerBack,
    /// So many changes were too long ago to be known still.
    Missed(u64),
}

/// What a manager said that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordError {
    /// Something before it said who is there, or after its last word.
    OutOfTurn,
    /// This node is not among the members that it named.
    NotNamed,
}

impl fmt::Display for WordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WordError::OutOfTurn => "the manager spoke out of turn",
            WordError::NotNamed => "the manager does not name this node among the members",
        })
    }
}
