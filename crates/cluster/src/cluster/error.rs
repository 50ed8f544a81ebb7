//! Errors of a cluster.

use super::{Death, End, NodeId, Objection, Refusal};
use crate::call::ServeError;
use crate::launch::LaunchError;
use chunkcomm::error::CredentialError;
use chunkcomm::{CloseError, ConnectError, NodeError};
use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Reason why a process did not become a member.
#[derive(Clone)]
#[non_exhaustive]
pub enum JoinError {
    /// The launcher started another number of nodes than the program asked for.
    Nodes {
        /// Number asked for.
        asked: u32,
        /// Number started.
        started: u32,
        /// The launcher.
        by: String,
    },
    /// The nodes are on several machines, and have no credential to know each other by.
    NeedsCredential {
        /// The launcher.
        by: String,
    },
    /// The credential cannot be read or made.
    Credential(CredentialError),
    /// The node cannot be built.
    Node(NodeError),
    /// No port of the range is free.
    Ports {
        /// First port of the range.
        first: u16,
        /// Last port of the range.
        last: u16,
    },
    /// The environment makes no sense, the launcher breaks the rules of PMI-1, or the other nodes were
    /// not started: copies of this program, or nodes on the hosts of a file.
    Launch(LaunchError),
    /// The file by which nodes of one machine meet cannot be used.
    Meeting {
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        error: Arc<io::Error>,
    },
    /// Rank 0 was not reached in time.
    NoManager {
        /// Time spent on attempts.
        waited: Duration,
        /// The error of the last attempt.
        last: String,
    },
    /// The place of rank 0 that this node was given makes no sense.
    Told {
        /// The fault of that place.
        why: String,
    },
    /// Rank 0 and this node do not accept each other; another attempt would fail the same way.
    Admission(ConnectError),
    /// The manager does not take this node, or the cluster did not start.
    Refused(Refusal),
    /// On rank 0: nodes were not ready in time, and connections had been refused that may have been
    /// theirs.
    TurnedAway {
        /// The nodes that were not ready.
        missing: Refusal,
        /// Reasons for which the last connections were refused, each once.
        refusals: Vec<String>,
    },
    /// The membership ended before it began.
    Ended(End),
    /// The system refused something.
    System {
        /// The action that failed.
        what: &'static str,
        /// The system's error.
        error: Arc<io::Error>,
    },
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinError::Nodes { asked, started, by } => {
                write!(f, "{asked} nodes were asked for, and {by} started {started}")
            }
            JoinError::NeedsCredential { by } => write!(
                f,
                "the nodes that {by} started are on several machines, and anybody there could \
                 join: make a credential (chunkcomm-credential new FILE), copy it to each \
                 machine, and set CHUNKCOMM_CREDENTIAL_FILE"
            ),
            JoinError::Credential(error) => error.fmt(f),
            JoinError::Node(error) => error.fmt(f),
            JoinError::Ports { first, last } => {
                write!(f, "no port from {first} to {last} (CHUNKCOMM_PORTS) is free")
            }
            JoinError::Launch(error) => error.fmt(f),
            JoinError::Meeting { path, .. } => {
                write!(f, "nodes of this machine cannot meet by {}", path.display())
            }
            JoinError::NoManager { waited, last } => {
                write!(f, "rank 0 was not reached within {waited:?}: {last}")
            }
            JoinError::Told { why } => write!(f, "where rank 0 is makes no sense: {why}"),
            JoinError::Admission(error) => write!(f, "rank 0 cannot be joined: {error}"),
            JoinError::Refused(why) => why.fmt(f),
            JoinError::TurnedAway { missing, refusals } => {
                write!(f, "{missing}; rank 0 refused connections: {}", refusals.join("; "))
            }
            JoinError::Ended(end) => end.fmt(f),
            JoinError::System { what, .. } => write!(f, "the system does not {what}"),
        }
    }
}

chunkcomm_proto::debug_with_causes!(JoinError);

impl Error for JoinError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            JoinError::Meeting { error, .. } | JoinError::System { error, .. } => {
                Some(error.as_ref())
            }
            JoinError::Credential(error) => error.source(),
            JoinError::Node(error) => error.source(),
            JoinError::Launch(error) => error.source(),
            JoinError::Admission(error) => error.source(),
            _ => None,
        }
    }
}

impl From<LaunchError> for JoinError {
    fn from(error: LaunchError) -> JoinError {
        JoinError::Launch(error)
    }
}

/// Reason why a barrier was not passed by all members.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BarrierError {
    /// These members died since the last barrier.
    ///
    /// All members that came get the same error. The next barrier is one of the remaining members.
    #[error("at the barrier are missing, by death: {}", listed(.0))]
    Died(Vec<NodeId>),
    /// The cluster has ended.
    #[error("{0}")]
    Ended(End),
}

chunkcomm_proto::debug_with_causes!(BarrierError);

/// Reason why some members did not agree.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AgreeError {
    /// The proposal is refused. An open agreement of that name is not affected.
    #[error("no agreement on {name:?}: {why}")]
    Refused {
        /// Name of the agreement.
        name: String,
        /// The reason.
        why: Objection,
    },
    /// The members that are to agree have named different members. Those that proposed first still
    /// wait.
    #[error(
        "no agreement on {name:?}: this node names {count} members, and {first} has named \
         {first_count}, not the same ones"
    )]
    Differs {
        /// Name of the agreement.
        name: String,
        /// Number of members that this node names.
        count: u32,
        /// A member that proposed earlier.
        first: NodeId,
        /// Number of members that it named.
        first_count: u32,
    },
    /// The cluster has ended.
    #[error("{0}")]
    Ended(End),
}

chunkcomm_proto::debug_with_causes!(AgreeError);

/// Reason why a name is not provided, has no provider, or is not that of one member.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name is empty or longer than 255 bytes, or this node provides 1024 already.
    #[error("{name:?} is not provided: a name has 1 to 255 bytes, a node at most 1024 names")]
    Refused {
        /// The name.
        name: String,
    },
    /// The cluster has ended.
    #[error("{0}")]
    Ended(End),
    /// This node provides the name, and it or the asking one is to be the only one.
    #[error("{name:?} is not provided: {by} provides it")]
    Held {
        /// The name.
        name: String,
        /// The node that provides it.
        by: NodeId,
    },
    /// This node has withdrawn the name before it was provided.
    #[error("{name:?} is not provided: it was withdrawn meanwhile")]
    Withdrawn {
        /// The name.
        name: String,
    },
    /// This node cannot serve calls under the name.
    #[error(transparent)]
    Serve(ServeError),
    /// No node of that name is known.
    #[error("no node of the cluster is called {name:?}")]
    Nobody {
        /// The name.
        name: String,
    },
    /// The last node of that name died, and no other has taken the name.
    #[error("{name:?}, {death}")]
    Dead {
        /// The name.
        name: String,
        /// Its death.
        death: Death,
    },
    /// Several nodes have the name.
    #[error("{} nodes are called {name:?}: ranks {ranks:?}", .ranks.len())]
    Several {
        /// The name.
        name: String,
        /// Their ranks.
        ranks: Vec<u32>,
    },
}

chunkcomm_proto::debug_with_causes!(NameError);

/// Fault at the end of a membership. The node is closed all the same.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum EndError {
    /// Rank 0 cannot leave: the manager runs there. It can end the cluster.
    #[error("rank 0 cannot leave the cluster, whose manager it runs; it can end it")]
    Manager,
    /// Other nodes were not at their end in time.
    #[error("other nodes were not at their end in time")]
    NotAllDone,
    /// The membership ended otherwise.
    #[error("{0}")]
    Ended(End),
    /// Messages were not acknowledged in time.
    #[error(transparent)]
    Close(CloseError),
    /// Processes that this node started had not ended in time and were killed.
    #[error("{count} processes had not ended in time and were killed")]
    Killed {
        /// Number of killed processes.
        count: usize,
    },
    /// Processes that this node started ended badly after the common end: rank and status of each.
    #[error("{}", .0.join("; "))]
    Failed(Vec<String>),
}

impl EndError {
    /// Converts the end of a membership that was to end in order; `None` means not in time.
    pub(super) fn of(end: Option<End>) -> Result<(), EndError> {
        match end {
            None => Err(EndError::NotAllDone),
            Some(End::Finished { .. } | End::Left) => Ok(()),
            Some(end) => Err(EndError::Ended(end)),
        }
    }
}

chunkcomm_proto::debug_with_causes!(EndError);

fn listed(ids: &[NodeId]) -> String {
    ids.iter().map(NodeId::to_string).collect::<Vec<_>>().join(", ")
}
