//! The system manager of a cluster and what its members know: two pure machines
//! and the messages between them. After the Eden runtime's `SysMan` (J. Berthold,
//! "Dynamic Chunking in Eden", section 3.1: Ready, Task-Ids, Finish) and the
//! dynamic hosts of PVM.
//!
//! ```text
//!   member                                      manager (in the process of rank 0)
//!     Ready(rank, size, addresses) ───────────▶ gathers until all are there
//!     ◀─────────── TaskIds(members, names, ..)  or Refused(why)
//!     Barrier, Provide, Finish, Done, Leave ──▶
//!     ◀──── Joined, Gone, Released, Provided ─  told to everybody
//!     ◀──── Finish ──────────────────────────── asked for, or everybody is done
//! ```
//!
//! Who somebody is, is a rank *and* an incarnation: a process that takes the rank
//! of a dead one is somebody else.
//!
//! Reading order: this file, [`manager`], [`membership`].

pub mod manager;
pub mod membership;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use std::fmt;

/// More members than this are not admitted.
pub const MEMBER_COUNT_MAX: u32 = 65_536;
/// The longest name that something can be provided under, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// So many names one member may provide.
pub const NAMES_A_MEMBER_MAX: usize = 1024;
/// Of so many deaths the last ones are remembered.
pub const DEATHS_MAX: usize = 4096;

/// One life of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeId {
    /// The index in the cluster.
    pub rank: u32,
    /// The random number that this process drew when it started.
    pub incarnation: u128,
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.rank)
    }
}

/// A member as everybody knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Who it is.
    pub id: NodeId,
    /// The machine that it runs on.
    pub host: String,
    /// Its process there.
    pub pid: u32,
    /// Where it listens, the best first.
    pub addresses: Vec<String>,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {} on {})", self.id, self.pid, self.host)
    }
}

/// A member is gone that had not said so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Death {
    /// Who.
    pub id: NodeId,
    /// How that was noticed.
    pub why: String,
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is gone: {}", self.id, self.why)
    }
}

/// Somebody announces itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// The rank that it was started with; `None`: the next free one, in a cluster
    /// that runs.
    pub rank: Option<u32>,
    /// How large it was told the cluster is at its start.
    pub size: Option<u32>,
    /// The random number of its node.
    pub incarnation: u128,
    /// The machine that it runs on.
    pub host: String,
    /// Its process there.
    pub pid: u32,
    /// Where it listens.
    pub addresses: Vec<String>,
    /// It was a member already, and its manager is gone.
    pub again: Option<Before>,
}

/// What a member brings along that announces itself again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    /// The last barrier that it passed.
    pub passed: u64,
    /// It waits at this one.
    pub at: Option<u64>,
    /// What it provides.
    pub names: Vec<String>,
    /// It has no more to do.
    pub done: bool,
    /// Who was there, as far as it knew.
    pub members: Vec<NodeId>,
}

/// What a member says to the manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Up {
    /// It is there: the first word, and once.
    Ready(Ready),
    /// It waits at the barrier of this number.
    Barrier(u64),
    /// It provides something under a name from now on.
    Provide(String),
    /// It no longer does.
    Withdraw(String),
    /// All are to stop.
    Finish,
    /// It has no more to do; when nobody has, all stop.
    Done,
    /// It goes, and the others stay.
    Leave,
}

/// What the manager says to a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Down {
    /// All are there: the first word, unless it is `Refused`.
    TaskIds(TaskIds),
    /// It is not taken; the last word.
    Refused(Refusal),
    /// Somebody came later.
    Joined(Member),
    /// A member said that it goes.
    Left(NodeId),
    /// A member is gone that did not say so.
    Died(Death),
    /// Everybody came to the barrier of this number, but for these, who died.
    Released {
        /// Its number.
        number: u64,
        /// Who died since the barrier before it.
        died: Vec<NodeId>,
    },
    /// Somebody provides something.
    Provided(String, NodeId),
    /// Somebody no longer does.
    Withdrawn(String, NodeId),
    /// Too many names, or one that is empty or too long.
    NameRefused(String),
    /// All stop: somebody asked for it, or everybody is done.
    Finish {
        /// Who asked.
        by: Option<NodeId>,
    },
}

/// The cluster as it is when somebody becomes a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskIds {
    /// The manager's incarnation.
    pub manager: u128,
    /// The rank of the one who reads this.
    pub rank: u32,
    /// How many started it.
    pub size: u32,
    /// Everybody, the reader too.
    pub members: Vec<Member>,
    /// What is provided, and by whom.
    pub names: Vec<(String, NodeId)>,
    /// Who died before.
    pub deaths: Vec<Death>,
    /// The last barrier that was passed.
    pub barrier: u64,
}

/// Why somebody is no member, or the cluster did not start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Refusal {
    /// It was told another size.
    Size {
        /// Whose size differs; `None`: one that comes later, without a rank.
        rank: Option<u32>,
        /// What it was told.
        theirs: u32,
        /// What the manager was told.
        ours: u32,
    },
    /// The rank is not below the size, and the cluster has not started.
    Rank {
        /// The rank.
        rank: u32,
        /// The size.
        size: u32,
    },
    /// Another living process has this rank.
    Taken(Member),
    /// These ranks were not there in time.
    Missing {
        /// Which.
        ranks: Vec<u32>,
        /// How long they were waited for, in milliseconds.
        waited_ms: u64,
    },
    /// This one ended before all were there.
    DiedEarly {
        /// Its rank.
        rank: u32,
        /// How that was noticed.
        why: String,
    },
    /// It announced itself before, over the same channel.
    Twice,
    /// The cluster has stopped.
    Over,
    /// There are [`MEMBER_COUNT_MAX`] members.
    Full,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Size { rank: Some(rank), theirs, ours } => write!(
                f,
                "rank {rank} was told that the cluster has {theirs} nodes, rank 0 that it has {ours}"
            ),
            Refusal::Size { rank: None, theirs, ours } => write!(
                f,
                "a node that comes later was told that the cluster has {theirs} nodes, rank 0 that \
                 it has {ours}"
            ),
            Refusal::Rank { rank, size } => {
                write!(f, "there is no rank {rank} in a cluster of {size} nodes")
            }
            Refusal::Taken(member) => {
                write!(f, "{member} lives, and nobody else can have its rank")
            }
            Refusal::Missing { ranks, waited_ms } => {
                f.write_str("not ready within ")?;
                match waited_ms % 1000 {
                    0 => write!(f, "{} s: ", waited_ms / 1000)?,
                    _ => write!(f, "{waited_ms} ms: ")?,
                }
                write!(f, "{}", Ranks(ranks))
            }
            Refusal::DiedEarly { rank, why } => {
                write!(f, "rank {rank} ended before all were ready: {why}")
            }
            Refusal::Twice => f.write_str("it announced itself before"),
            Refusal::Over => f.write_str("the cluster has stopped"),
            Refusal::Full => write!(f, "a cluster has at most {MEMBER_COUNT_MAX} members"),
        }
    }
}

/// Ranks as people write them, the first of many.
struct Ranks<'a>(&'a [u32]);

impl fmt::Display for Ranks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// More are only counted.
        const SHOWN_MAX: usize = 16;
        f.write_str(if self.0.len() == 1 { "rank " } else { "ranks " })?;
        for (index, rank) in self.0.iter().take(SHOWN_MAX).enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{rank}")?;
        }
        match self.0.len().saturating_sub(SHOWN_MAX) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}
