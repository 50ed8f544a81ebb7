//! Why somebody is no member.

use super::{MEMBER_COUNT_MAX, Member, Mismatch};
use serde::{Deserialize, Serialize};
use std::fmt;

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
    /// It runs another function under a name than rank 0 does, or not the same ones.
    Functions {
        /// Who; `None`: one that comes later, without a rank.
        rank: Option<u32>,
        /// The first function that is not the same.
        mismatch: Box<Mismatch>,
    },
    /// The rank is not below the size, and the cluster has not started.
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

impl Refusal {
    /// The ranks that are to blame, as far as they are known.
    #[must_use]
    pub fn ranks(&self) -> Vec<u32> {
        match self {
            Refusal::Size { rank, .. } | Refusal::Functions { rank, .. } => {
                rank.iter().copied().collect()
            }
            Refusal::Rank { rank, .. } | Refusal::DiedEarly { rank, .. } => vec![*rank],
            Refusal::Taken(member) => vec![member.id.rank],
            Refusal::Missing { ranks, .. } => ranks.clone(),
            Refusal::Twice | Refusal::Over | Refusal::Full => Vec::new(),
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
            Refusal::Functions { rank, mismatch } => {
                let theirs = match rank {
                    Some(rank) => format!("rank {rank}"),
                    None => "a node that comes later".to_owned(),
                };
                f.write_str(&mismatch.between(&theirs, "rank 0"))
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
