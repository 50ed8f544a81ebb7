//! The system manager of a cluster and what its members know: two pure machines
//! and the messages between them. After the Eden runtime's `SysMan` (J. Berthold,
//! "Dynamic Chunking in Eden", section 3.1: Ready, Task-Ids, Finish) and the
//! dynamic hosts of PVM.
//!
//! ```text
//!   member                                      manager (in the process of rank 0)
//!     Called(name), Ready(rank, size, ..) ────▶ gathers until all are there
//!     ◀──── Called(who, name) .., TaskIds(members, names, ..)  or Refused(why)
//!     Barrier, Provide, Finish, Done, Leave ──▶
//!     ◀──── Joined, Gone, Released, Provided ─  told to everybody
//!     ◀──── Finish ──────────────────────────── asked for, or everybody is done
//! ```
//!
//! Who somebody is, is a rank *and* an incarnation: a process that takes the rank
//! of a dead one is somebody else.
//!
//! What must agree is the size at the start, and the functions that members run for each
//! other ([`Signature`]); everything else is a range of versions or is compared where it is
//! used, so that programs of several versions are members of one cluster.
//!
//! Who speaks an older version is not told what that does not have: each word knows since when
//! it is said ([`Up::since`], [`Down::since`]), and is left out by the driver.
//!
//! Reading order: this file, [`manager`], [`membership`].

pub mod manager;
pub mod membership;
mod refusal;
mod signature;
#[cfg(test)]
mod tests;

pub use refusal::Refusal;
pub use signature::{Mismatch, Signature};

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

/// Names of members that are remembered, those of ranks that there may be.
pub const CALLED_MAX: usize = 65_536;

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
    /// What its node is called, if it was given a name. Told by a word of its own, since the
    /// first version did not have it.
    #[serde(skip)]
    pub name: Option<String>,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id)?;
        if let Some(name) = &self.name {
            write!(f, " {name:?}")?;
        }
        write!(f, " (process {} on {})", self.pid, self.host)
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
    /// The functions that it runs for others; `None`: it runs none, and they are not
    /// compared.
    pub functions: Option<Vec<Signature>>,
    /// It was a member already, and its manager is gone.
    pub again: Option<Box<Before>>,
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
    /// Who had died, as far as it knew.
    pub deaths: Vec<Death>,
    /// Whom of these no barrier has named yet.
    pub unnamed: Vec<NodeId>,
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
    /// What its node is called; said before `Ready`.
    Called(String),
}

impl Up {
    /// The version of the protocol that brought the word.
    #[must_use]
    pub fn since(&self) -> u16 {
        match self {
            Up::Ready(_)
            | Up::Barrier(_)
            | Up::Provide(_)
            | Up::Withdraw(_)
            | Up::Finish
            | Up::Done
            | Up::Leave => 1,
            Up::Called(_) => 2,
        }
    }
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
    /// What nodes are called; said before the first word that makes them known.
    Called(Vec<(NodeId, String)>),
}

impl Down {
    /// The version of the protocol that brought the word.
    #[must_use]
    pub fn since(&self) -> u16 {
        match self {
            Down::TaskIds(_)
            | Down::Refused(_)
            | Down::Joined(_)
            | Down::Left(_)
            | Down::Died(_)
            | Down::Released { .. }
            | Down::Provided(..)
            | Down::Withdrawn(..)
            | Down::NameRefused(_)
            | Down::Finish { .. } => 1,
            Down::Called(_) => 2,
        }
    }
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
