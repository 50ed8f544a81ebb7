//! System manager of a cluster and its members' view: two pure machines and the messages between
//! them. After the Eden runtime's `SysMan` (J. Berthold, "Dynamic Chunking in Eden", section 3.1:
//! Ready, Task-Ids, Finish) and the dynamic hosts of PVM.
//!
//! ```text
//!   member                                      manager (in the process of rank 0)
//!     Ready(rank, size, name, ..) ────────────▶ gathers until all are there
//!     ◀──── TaskIds(members, names, ..)  or Refused(why)
//!     Barrier, Agree, Provide, ProvideSole, Finish, Done, Leave ──▶
//!     ◀──── Joined, Left, Died, Provided ..  ── sent to all
//!     ◀──── Released ────────────────────────── all have come to the barrier
//!     ◀──── Agreed ──────────────────────────── all have proposed, or are gone
//!     Heard ─────────────────────────────────▶
//!     ◀──── Settled ─────────────────────────── all have heard what was agreed
//!     ◀──── Finish ──────────────────────────── asked for, or all are done
//! ```
//!
//! A member is identified by a rank *and* an incarnation: a process that takes the rank of a dead
//! one is another member.
//!
//! All members must agree on the size at the start. Those of one program must agree on the functions
//! that they run for each other ([`Signature`]). Everything else is a range of versions, or is
//! compared where it is used. So several programs, and several versions of one, can be members of one
//! cluster.
//!
//! Reading order: this file, [`agreement`], [`manager`], [`membership`], `signature`, `refusal`.

pub mod agreement;
pub mod manager;
pub mod membership;
mod refusal;
#[cfg(test)]
mod tests;

pub use refusal::Refusal;

use crate::proto::signature::Signature;
use agreement::{Decision, DecisionKey, Objection, Proposal};
use chunkcomm_proto::loss::Loss;
use chunkcomm_proto::plain::Plain;
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::fmt;

/// Most members of a cluster; further nodes are refused.
pub const MEMBER_COUNT_MAX: u32 = 65_536;
/// Longest name under which something is provided, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Most names that one member may provide.
pub const NAMES_A_MEMBER_MAX: usize = 1024;
/// Number of the last deaths that are remembered.
pub const DEATHS_MAX: usize = 4096;

/// Id of a node: one life of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeId {
    /// Index in the cluster.
    pub rank: u32,
    /// Random number that the process drew when it started.
    pub incarnation: u128,
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.rank)
    }
}

/// A member as all members know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Rank and incarnation.
    pub id: NodeId,
    /// Machine that the member runs on.
    pub host: String,
    /// Process id on that machine.
    pub pid: u32,
    /// Addresses at which the member listens, the best first.
    pub addresses: Vec<String>,
    /// Name of the member's node, if it has one.
    pub name: Option<String>,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id)?;
        if let Some(name) = &self.name {
            write!(f, " {name:?}")?;
        }
        write!(f, " (process {} on {})", self.pid, Plain(&self.host))
    }
}

/// End of a member that had not announced it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Death {
    /// Dead member.
    pub id: NodeId,
    /// Way in which the death was noticed; it [is a death](Loss::is_death).
    pub loss: Loss,
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is gone: {}", self.id, self.loss)
    }
}

chunkcomm_proto::debug_with_causes!(Death);

impl Error for Death {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.loss.source()
    }
}

impl From<Death> for Loss {
    fn from(death: Death) -> Loss {
        Loss::of(death.loss.kind(), death)
    }
}

/// Announcement of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Rank that the node was started with; `None` asks for the next free one, in a running
    /// cluster.
    pub rank: Option<u32>,
    /// Size of the cluster at its start, as given to the node.
    pub size: Option<u32>,
    /// Random number of the node.
    pub incarnation: u128,
    /// Name of the node, if it has one.
    pub name: Option<String>,
    /// Machine that the node runs on.
    pub host: String,
    /// Process id on that machine.
    pub pid: u32,
    /// Addresses at which the node listens.
    pub addresses: Vec<String>,
    /// Name of the node's program. Functions are compared among nodes of one program.
    pub program: String,
    /// Functions that the node runs for others; `None`: it runs none, and they are not compared.
    pub functions: Option<Vec<Signature>>,
    /// State of a member that lost its manager; `None` for a new node.
    pub again: Option<Box<Before>>,
}

/// State that a member brings along when it announces itself again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    /// Last barrier that the member passed.
    pub passed: u64,
    /// Barrier that the member waits at.
    pub at: Option<u64>,
    /// Names that the member provides.
    pub names: Vec<String>,
    /// Whether the member has no more to do.
    pub done: bool,
    /// Members that the member knew.
    pub members: Vec<NodeId>,
    /// Deaths that the member knew.
    pub deaths: Vec<Death>,
    /// Dead members that no barrier has named yet.
    pub unnamed: Vec<NodeId>,
    /// Decisions that the member has heard and that are not settled.
    pub decisions: Vec<Decision>,
    /// Nodes that started the cluster, by rank.
    pub founders: Vec<NodeId>,
    /// Names that the member alone provides, each with the number of its question.
    pub sole: Vec<(u64, String)>,
    /// Numbers of the member's proposals whose outcome it has not heard.
    pub open: Vec<u64>,
}

/// Word of a member to the manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Up {
    /// The node is there: sent once, before all other words.
    Ready(Ready),
    /// The member waits at the barrier of this number.
    Barrier(u64),
    /// The member provides something under this name from now on.
    Provide(String),
    /// The member provides nothing under this name from now on.
    Withdraw(String),
    /// All members are to stop.
    Finish,
    /// The member has no more to do. When this holds for all, all stop.
    Done,
    /// The member goes, and the others stay.
    Leave,
    /// The member proposes a value, and waits for the decision.
    Agree(Proposal),
    /// The member asks to be the only one that provides something under this name.
    ProvideSole {
        /// Number among the member's questions of this kind.
        number: u64,
        /// The name.
        name: String,
    },
    /// The member has heard the decision on its proposal of this number.
    Heard(u64),
}

/// Decision of the manager about a name that a member wants to provide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum NameAnswer {
    /// The member provides the name.
    Granted,
    /// This other member provides it.
    Held(NodeId),
    /// The member has too many names, or the name is empty or too long.
    Refused,
}

/// Word of the manager to a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Down {
    /// All nodes are there: the first word, unless `Refused` comes instead.
    TaskIds(TaskIds),
    /// The node is not admitted: the last word.
    Refused(Refusal),
    /// A later member came.
    Joined(Member),
    /// A member left, as it had announced.
    Left(NodeId),
    /// A member is gone without an announcement.
    Died(Death),
    /// All members came to this barrier, except the dead.
    Released {
        /// Number of the barrier.
        number: u64,
        /// Members that died since the previous barrier.
        died: Vec<NodeId>,
    },
    /// A member provides something under this name.
    Provided(String, NodeId),
    /// A member provides nothing under this name from now on.
    Withdrawn(String, NodeId),
    /// The name is refused: the member has too many, or the name is empty or too long.
    NameRefused(String),
    /// All members stop: one asked for it, or all are done.
    Finish {
        /// The member that asked; `None` when all were done.
        by: Option<NodeId>,
    },
    /// The manager has decided.
    Agreed(Decision),
    /// The manager refuses the member's proposal of this number.
    NotAgreed {
        /// Number of the proposal.
        number: u64,
        /// The reason.
        why: Objection,
    },
    /// Answers a question of [`Up::ProvideSole`]. A later answer to the same question takes a granted
    /// name away: the member was taken for dead, and another got the name.
    Sole {
        /// Number of the question.
        number: u64,
        /// The decision.
        answer: NameAnswer,
    },
    /// The name of an [`Up::Provide`] is refused: this member alone provides it.
    NameHeld(String, NodeId),
    /// All members of this decision have heard it.
    Settled(DecisionKey),
}

/// State of the cluster when a node becomes a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskIds {
    /// The manager's incarnation.
    pub manager: u128,
    /// The rank of the receiver.
    pub rank: u32,
    /// Number of nodes that started the cluster.
    pub size: u32,
    /// All members, the receiver included.
    pub members: Vec<Member>,
    /// Provided names, each with its provider.
    pub names: Vec<(String, NodeId)>,
    /// Deaths until then.
    pub deaths: Vec<Death>,
    /// Last barrier that was passed.
    pub barrier: u64,
    /// Nodes that started the cluster, by rank: ranks 0 to `size` - 1.
    pub founders: Vec<NodeId>,
}
