//! Agreements: each of some members proposes a value, and the manager decides once for all.
//!
//! ```text
//!   rank 0 ── Agree(1, "x", [0, 1, 2], a) ──▶ manager
//!   rank 1 ── Agree(5, "x", [0, 1, 2], b) ──▶   waits for rank 2
//!   rank 2 dies                                 decides: 0: a, 1: b, gone: 2
//!   ranks 0, 1 ◀── Agreed("x", ..) ───────────  and forgets the name
//! ```
//!
//! A name means one agreement at a time. Members number their proposals, so a decision answers
//! exactly those that it names: a proposal that is sent twice, on another line or to another manager,
//! gets the decision that was made of it, and not the next one of that name.
//!
//! A proposal that names no members is one of a *meeting*: it is decided together with that of the next
//! member which does the same. A member that waits for nobody any more proposes anew, with the same number
//! and among itself alone. So the manager decides once whether two have met:
//!
//! ```text
//!   rank 0 ── Agree(1, "x", [], a) ───▶ manager     waits for another
//!   rank 4 ── Agree(7, "x", [], b) ───▶             decides: 0: a, 4: b
//!   rank 0 ── Agree(1, "x", [0], a) ──▶             too late, it was decided
//! ```

use super::{NodeId, manager};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Longest value of a proposal, in bytes.
pub const VALUE_BYTES_MAX: usize = 1024;
/// Most open agreements that one member may have proposed to.
pub const AGREEMENTS_A_MEMBER_MAX: usize = 1024;
/// Number of the last decisions that a member tells a new manager.
pub const DECISIONS_MAX: usize = 16;

/// Value that a member proposes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// Number among the member's proposals.
    pub number: u64,
    /// Name of the agreement.
    pub name: String,
    /// Members that are to agree, in order and each once; none: the member and another that names none.
    pub among: Vec<NodeId>,
    /// The value.
    pub value: Vec<u8>,
}

impl Proposal {
    /// Returns the fault of the proposal by itself, when this member makes it.
    #[must_use]
    pub fn objection(&self, by: NodeId) -> Option<Objection> {
        if !manager::is_name(&self.name) {
            Some(Objection::Name)
        } else if self.value.len() > VALUE_BYTES_MAX {
            Some(Objection::Value { bytes: self.value.len() as u64 })
        } else if !self.among.is_empty() && !self.among.contains(&by) {
            Some(Objection::NotAmong)
        } else {
            None
        }
    }
}

/// Value of a member in a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposed {
    /// The member.
    pub by: NodeId,
    /// Number among the member's proposals.
    pub number: u64,
    /// The value.
    pub value: Vec<u8>,
}

/// Decision of the manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// Name of the agreement.
    pub name: String,
    /// Values of the members that were there, by id.
    pub values: Vec<Proposed>,
    /// The other members that were to agree, by id.
    pub gone: Vec<NodeId>,
}

impl Decision {
    /// Whether this is the same agreement as `other`.
    pub(super) fn is(&self, other: &Decision) -> bool {
        let first = |of: &Decision| of.values.first().map(|it| (it.by, it.number));
        self.name == other.name && first(self) == first(other)
    }

    /// Returns the number of this member's proposal, if the decision was made of one.
    pub(super) fn number_of(&self, id: NodeId) -> Option<u64> {
        let index = self.values.binary_search_by_key(&id, |it| it.by).ok()?;
        Some(self.values[index].number)
    }

    /// Whether the decision was made among these members.
    pub(super) fn is_among(&self, among: &[NodeId]) -> bool {
        let in_it =
            |id: &NodeId| self.gone.binary_search(id).is_ok() || self.number_of(*id).is_some();
        among.len() == self.gone.len() + self.values.len() && among.iter().all(in_it)
    }
}

/// Reason why a proposal is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Objection {
    /// The name is empty or longer than 255 bytes.
    Name,
    /// The value is longer than 1024 bytes.
    Value {
        /// Length of the value.
        bytes: u64,
    },
    /// The member is not one of those that are to agree.
    NotAmong,
    /// The member has proposed to 1024 open agreements already.
    TooMany,
    /// An open agreement of that name is among other members.
    Differs {
        /// Number of members that the proposal names.
        count: u32,
        /// A member that has proposed to the open agreement.
        first: NodeId,
        /// Number of members that it named.
        first_count: u32,
    },
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Objection::Name => write!(f, "a name has 1 to {} bytes", super::NAME_BYTES_MAX),
            Objection::Value { bytes } => {
                write!(f, "a value has at most {VALUE_BYTES_MAX} bytes, and this one {bytes}")
            }
            Objection::NotAmong => {
                f.write_str("this node is not among the members that are to agree")
            }
            Objection::TooMany => write!(
                f,
                "this node waits for {AGREEMENTS_A_MEMBER_MAX} other agreements, and more are not \
                 allowed"
            ),
            Objection::Differs { count, first, first_count } => write!(
                f,
                "this node names {count} members, and {first} named {first_count}, not the same ones"
            ),
        }
    }
}
