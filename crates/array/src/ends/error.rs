//! Errors of transfers.

use std::fmt;

use chunkcomm::debug_with_causes;
use chunkcomm::error::Plain;
use chunkcomm::{Loss, LossKind};
use chunkcomm_group::{CollectiveError, GroupError, PartError};

use crate::layout::error::LayoutError;
use crate::npy::NpyError;
use crate::plan::Side;

/// Statements of two ranks that do not go together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StatementDifference {
    /// The two ranks: of one group, or of each group one. Ranks count among both groups, as errors of
    /// a [`Pair`](chunkcomm_group::Pair) do.
    pub ranks: [usize; 2],
    /// The statement of each: end, layout, element type.
    pub statements: [String; 2],
}

impl fmt::Display for StatementDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StatementDifference { ranks: [a, b], statements: [of_a, of_b] } = self;
        write!(f, "rank {a} {}, rank {b} {}", Plain(of_a), Plain(of_b))
    }
}

/// Reason why an array cannot be transferred.
///
/// After [`ArrayError::Uncommitted`], [`ArrayError::Rows`] and [`ArrayError::Part`] the transfer goes on. After the others it is over:
/// drop the end, or take the array back. The pair of groups is whole, unless its own calls fail.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ArrayError {
    /// A call of the groups failed while the transfer was opened, or timed.
    #[error("the groups could not agree")]
    Group(#[source] GroupError),
    /// A rank cannot take part. In a call all ranks get this error; where an array is made, this rank.
    #[error("rank {rank} cannot take part in the transfer: {loss:?}")]
    Rank {
        /// The rank, among both groups.
        rank: usize,
        /// The reason.
        loss: Loss,
    },
    /// The ranks of one group state different layouts or element types. All ranks get this error.
    #[error("the ranks of a group differ: {0}")]
    Differs(Box<StatementDifference>),
    /// The two groups state arrays of different shapes or element types, or the same end. All ranks get this
    /// error.
    #[error("the groups do not fit: {0}")]
    Mismatch(Box<StatementDifference>),
    /// There is no such layout, or one that came from a peer makes no sense.
    #[error("the layout makes no sense")]
    Layout(#[source] LayoutError),
    /// Two arrays have different layouts.
    #[error("the layouts {ours} and {theirs} differ{}", DisplayDim(*dim))]
    Layouts {
        /// Layout of the one array.
        ours: String,
        /// Layout of the other.
        theirs: String,
        /// The first dimension that differs; `None` where the numbers of dimensions do.
        dim: Option<usize>,
    },
    /// Two arrays are of different groups.
    #[error("the arrays are of different groups")]
    OtherGroup,
    /// This rank could not read or write its part of a file. The other ranks get [`ArrayError::Rank`].
    #[error("this rank could not read or write its part")]
    Npy(#[source] NpyError),
    /// A rank is gone, has dropped its end, or could not go on: one of the other group, within a group any.
    #[error(
        "rank {rank} of the {side} group: {loss:?}; {landed} of {elements} elements of this round had landed"
    )]
    Peer {
        /// The group of the rank.
        side: Side,
        /// Its rank there.
        rank: usize,
        /// The reason.
        loss: Loss,
        /// Number of elements between the two ranks that had landed in this round.
        landed: usize,
        /// Number of all elements between the two ranks.
        elements: usize,
    },
    /// Rows are not committed yet.
    #[error("{rows} of {all} rows are not committed")]
    Uncommitted {
        /// Number of rows that are not committed.
        rows: usize,
        /// Number of all rows.
        all: usize,
    },
    /// There are no such rows.
    #[error("rows {asked:?} are not within {length} rows")]
    Rows {
        /// The rows that were asked for.
        asked: std::ops::Range<usize>,
        /// Number of all rows.
        length: usize,
    },
    /// Rows are out or committed.
    #[error(transparent)]
    Part(PartError),
    /// The transfer was ended here, by an earlier error.
    #[error("the transfer has ended")]
    Ended,
}

impl ArrayError {
    /// Whether all ranks have this error before anything was opened, and may try again.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Rank { .. } | Self::Differs(_) | Self::Mismatch(_))
    }

    pub(crate) fn refused(rank: usize, why: impl Into<String>) -> ArrayError {
        ArrayError::Rank { rank, loss: refused(why) }
    }
}

/// Returns the loss of a rank that is there and cannot go on.
pub(crate) fn refused(why: impl Into<String>) -> Loss {
    Loss::new(LossKind::Refused, why)
}

struct DisplayDim(Option<usize>);

impl fmt::Display for DisplayDim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(dim) => write!(f, " in dimension {dim}"),
            None => f.write_str(" in the number of dimensions"),
        }
    }
}

impl<R> From<CollectiveError<R, ArrayError>> for ArrayError {
    fn from(error: CollectiveError<R, ArrayError>) -> ArrayError {
        error.cause
    }
}

debug_with_causes!(ArrayError);
debug_with_causes!(LayoutError);
