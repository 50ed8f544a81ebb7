//! Reasons why a node is no member.

use super::{MEMBER_COUNT_MAX, Member};
use crate::proto::signature::Difference;
use chunkcomm_proto::loss::Loss;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Reason why a node is no member, or the cluster did not start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Refusal {
    /// The node was given another size.
    Size {
        /// Rank of the node; `None` for a later node without a rank.
        rank: Option<u32>,
        /// Size given to the node.
        theirs: u32,
        /// Size given to the manager.
        ours: u32,
    },
    /// The functions of the node differ from those of another node of its program, in names or
    /// types.
    Functions {
        /// Rank of the node; `None` for a later node without a rank.
        rank: Option<u32>,
        /// Rank of the other node.
        other: u32,
        /// The first function that differs.
        difference: Box<Difference>,
    },
    /// The rank is not below the size.
    ///
    /// Only a node that was a member before, or that joins a running cluster without a size, may
    /// have such a rank.
    Rank {
        /// The rank.
        rank: u32,
        /// The size.
        size: u32,
    },
    /// Another living process has this rank.
    Taken(Box<Member>),
    /// These ranks were not there in time.
    Missing {
        /// The ranks.
        ranks: Vec<u32>,
        /// Length of the wait, in milliseconds.
        waited_ms: u64,
    },
    /// This rank ended before all were there.
    DiedEarly {
        /// The rank.
        rank: u32,
        /// Way in which the end was noticed.
        loss: Loss,
    },
    /// The node announced itself before, over the same channel.
    Twice,
    /// The cluster has stopped.
    Over,
    /// The cluster has [`MEMBER_COUNT_MAX`] members.
    Full,
    /// The node, a member of an earlier manager, has heard another decision than the members of this one,
    /// who took it for dead.
    Decided {
        /// Name of the agreement.
        name: String,
    },
}

impl Refusal {
    /// Returns the ranks to blame, as far as they are known.
    #[must_use]
    pub fn ranks(&self) -> Vec<u32> {
        match self {
            Refusal::Size { rank, .. } | Refusal::Functions { rank, .. } => {
                rank.iter().copied().collect()
            }
            Refusal::Rank { rank, .. } | Refusal::DiedEarly { rank, .. } => vec![*rank],
            Refusal::Taken(member) => vec![member.id.rank],
            Refusal::Missing { ranks, .. } => ranks.clone(),
            Refusal::Twice | Refusal::Over | Refusal::Full | Refusal::Decided { .. } => Vec::new(),
        }
    }
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
            Refusal::Functions { rank, other, difference } => {
                let theirs = match rank {
                    Some(rank) => format!("rank {rank}"),
                    None => "a node that comes later".to_owned(),
                };
                f.write_str(&difference.between(&theirs, &format!("rank {other}")))
            }
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
            Refusal::DiedEarly { rank, loss } => {
                write!(f, "rank {rank} ended before all were ready: {loss:?}")
            }
            Refusal::Twice => f.write_str("it announced itself before"),
            Refusal::Over => f.write_str("the cluster has stopped"),
            Refusal::Full => write!(f, "a cluster has at most {MEMBER_COUNT_MAX} members"),
            Refusal::Decided { name } => {
                write!(f, "the others took it for dead, and have decided {name:?} anew without it")
            }
        }
    }
}

/// Ranks in words for people: the first ones, and the number of the others.
struct Ranks<'a>(&'a [u32]);

impl fmt::Display for Ranks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Most ranks that are named; more are only counted.
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
