//! Errors of groups and their calls.

use std::fmt;

use chunkcomm::error::Plain;
use chunkcomm::{Loss, LossKind};
use chunkcomm_cluster::cluster::{AgreeError, Death, End};

/// Two ranks that called different things where their group expects one call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallDifference {
    /// Number of the call in the group, from 1.
    pub call: u64,
    /// The two ranks.
    pub ranks: [usize; 2],
    /// The call of each.
    pub calls: [String; 2],
}

impl fmt::Display for CallDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CallDifference { call, ranks: [a, b], calls: [of_a, of_b] } = self;
        write!(f, "call {call} of the group differs: rank {a} calls {}", Plain(of_a))?;
        write!(f, ", rank {b} calls {}", Plain(of_b))
    }
}

/// Reason why a group cannot be made, or a call of it did not succeed.
///
/// After each of them but [`GroupError::Agree`], and two that [`Group::meet`](crate::Group::meet) lists, the
/// group is broken: every further call ends with the same error. [`Group::shrink`](crate::Group::shrink) makes a
/// new one of the ranks that are left.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// A rank is lost: it died, left the cluster, or dropped its group or the future that makes it; or it could
    /// not go on, since an operator panicked, a link failed, a channel to another rank had no room to open for
    /// 10 s.
    #[error("rank {rank} of the group {}: {loss:?}", state(.loss))]
    Lost {
        /// Its rank in the group.
        rank: usize,
        /// The way in which it was lost. Where the cluster has reported a death, that [`Death`] is its cause.
        loss: Loss,
    },
    /// Two ranks called different things.
    #[error("{0}")]
    Differs(Box<CallDifference>),
    /// The caller's arguments make no sense. The call took its number, and the other ranks get
    /// [`GroupError::Lost`].
    #[error("{why}")]
    Input {
        /// The fault.
        why: String,
    },
    /// A rank made a call while too many of its calls were under way: more than anybody awaits. Collectives
    /// that flow count only until they have given their ends.
    #[error("rank {rank} of the group made a call while {bound} of its calls were under way")]
    TooManyCalls {
        /// Number of calls that may be under way at a rank: 65,536.
        bound: usize,
        /// Its rank in the group.
        rank: usize,
    },
    /// The cluster could not agree.
    #[error(transparent)]
    Agree(AgreeError),
    /// The cluster has ended.
    #[error("{0}")]
    Ended(End),
    /// The group was dropped, or shrunk, before the call was finished.
    #[error("the group is gone")]
    Closed,
}

impl GroupError {
    pub(crate) fn refused(rank: usize, why: impl Into<String>) -> GroupError {
        GroupError::Lost { rank, loss: Loss::new(LossKind::Refused, why) }
    }

    pub(crate) fn left(rank: usize, why: &str) -> GroupError {
        GroupError::Lost { rank, loss: Loss::new(LossKind::Left, why) }
    }

    /// Returns the rank that died, if one did as the cluster reports.
    #[must_use]
    pub fn death(&self) -> Option<(usize, &Death)> {
        match self {
            GroupError::Lost { rank, loss } => Some((*rank, loss.cause()?)),
            _ => None,
        }
    }
}

/// Returns the state of a lost rank in words.
fn state(loss: &Loss) -> &'static str {
    match loss {
        loss if loss.cause::<Death>().is_some() => "died",
        loss if loss.is_gone() => "is gone",
        _ => "could not go on",
    }
}

impl From<GroupError> for Loss {
    fn from(error: GroupError) -> Loss {
        let kind = match &error {
            GroupError::Lost { loss, .. } => loss.kind(),
            GroupError::Ended(_) | GroupError::Closed => LossKind::Left,
            _ => LossKind::Refused,
        };
        Loss::of(kind, error)
    }
}

chunkcomm_proto::debug_with_causes!(GroupError);

/// Failure of a call: its reason, and the caller's data.
#[derive(Clone)]
#[non_exhaustive]
pub struct CollectiveError<R, E = GroupError> {
    /// The caller's data. Operands of a reduction or a scan, and elements to be sent, are as they were.
    /// Elements to be received may be there in part.
    pub data: R,
    /// The reason.
    pub cause: E,
}

impl<R, E> CollectiveError<R, E> {
    /// Makes the error of a call that another crate builds on those of a group.
    #[doc(hidden)]
    pub fn new(data: R, cause: E) -> Self {
        Self { data, cause }
    }
}

impl<R, E: fmt::Display> fmt::Display for CollectiveError<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

impl<R, E: fmt::Debug> fmt::Debug for CollectiveError<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

impl<R, E: std::error::Error> std::error::Error for CollectiveError<R, E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.source()
    }
}

impl<R> From<CollectiveError<R>> for GroupError {
    fn from(error: CollectiveError<R>) -> GroupError {
        error.cause
    }
}
