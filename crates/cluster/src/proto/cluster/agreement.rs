//! Agreements: each of some members proposes a value, and the manager decides once for all.
//!
//! ```text
//!   rank 0 ── Agree(1, "x", [0, 1, 2], a) ──▶ manager
//!   rank 1 ── Agree(5, "x", [0, 1, 2], b) ──▶   waits for rank 2
//!   rank 2 dies                                 decides: 0: a, 1: b, gone: 2
//!   ranks 0, 1 ◀── Agreed("x", ..) ───────────  the name is free
//!   ranks 0, 1 ── Heard(1), Heard(5) ───────▶
//! ```
//!
//! A name means one agreement at a time. Members number their proposals, so a decision answers
//! exactly those that it names: a proposal that is sent twice, on another line or to another manager,
//! gets the decision that was made of it, and not the next one of that name.
//!
//! # Which decisions are kept
//!
//! A manager that returns knows nothing; the members tell it the decisions that they have heard. So a
//! member keeps each one as long as another present member may still ask for it: until the manager says
//! that it is *settled*, since all have heard it. A decision of which a member is gone is never settled,
//! for that one may come back; the last of these are kept. Of the last settled ones the manager keeps a
//! digest: a member that was taken for dead may bring another decision of the same proposals.
//!
//! # Meetings
//!
//! A proposal to meet is decided together with the next other one of its name, of any member. One that
//! waits for nobody any more is proposed again, with its number, and decided alone. So the manager decides
//! once whether two have met:
//!
//! ```text
//!   rank 0 ── Agree(1, "x", another, a) ──▶ manager     waits for another
//!   rank 4 ── Agree(7, "x", another, b) ──▶             decides: 0: a, 4: b
//!   rank 0 ── Agree(1, "x", nobody, a) ───▶             too late, it was decided
//! ```

use super::{NodeId, manager};
use chunkcomm_proto::describe::fnv1a;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;

/// Longest value of a proposal to an agreement, in bytes: all its members get all of them.
pub const VALUE_BYTES_MAX: usize = 1024;
/// Longest value of a proposal to meet, in bytes, and of all with which a member waits.
pub const MEETING_BYTES_MAX: usize = 4 << 20;
/// Most proposals of one member whose outcome it has not heard.
pub const AGREEMENTS_A_MEMBER_MAX: usize = 1024;
/// Number of the last decisions that a member keeps of those of which a member is gone.
pub const DECISIONS_MAX: usize = 16;
/// Bytes of these decisions at a member, and at the manager: 16 MiB, half of the longest message.
pub const DECISION_BYTES_MAX: usize = 16 << 20;

/// Members whose proposals are waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Among {
    /// These, in order and each once.
    All(Vec<NodeId>),
    /// The next one that wants to meet.
    Another,
    /// None any more.
    Nobody,
}

impl Among {
    /// Whether the decision was made among these members.
    pub(super) fn is_of(&self, decision: &Decision) -> bool {
        let Among::All(ids) = self else { return false };
        let in_it = |id: &NodeId| {
            decision.gone.binary_search(id).is_ok() || decision.numbers_of(*id).next().is_some()
        };
        ids.len() == decision.gone.len() + decision.values.len() && ids.iter().all(in_it)
    }
}

/// Value that a member proposes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// Number among the member's proposals.
    pub number: u64,
    /// Name of the agreement.
    pub name: String,
    /// Members that are to agree.
    pub among: Among,
    /// The value.
    pub value: Vec<u8>,
}

impl Proposal {
    /// Returns the fault of the proposal by itself, when this member makes it.
    #[must_use]
    pub fn objection(&self, by: NodeId) -> Option<Objection> {
        let max = match self.among {
            Among::All(_) => VALUE_BYTES_MAX,
            Among::Another | Among::Nobody => MEETING_BYTES_MAX,
        };
        if !manager::is_name(&self.name) {
            Some(Objection::Name)
        } else if self.value.len() > max {
            Some(Objection::Value { bytes: self.value.len() as u64, max: max as u64 })
        } else if matches!(&self.among, Among::All(ids) if !ids.contains(&by)) {
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
    /// Values of the members that were there, by id and number.
    pub values: Vec<Proposed>,
    /// The other members that were to agree, by id.
    pub gone: Vec<NodeId>,
}

/// First proposal of a decision, by which members name it.
pub type DecisionKey = (NodeId, u64);

impl Decision {
    /// Returns the name of the decision among all.
    pub(super) fn key(&self) -> Option<DecisionKey> {
        self.values.first().map(|it| (it.by, it.number))
    }

    /// Returns the numbers of this member's proposals of which the decision was made.
    pub(super) fn numbers_of(&self, id: NodeId) -> impl Iterator<Item = u64> {
        let from = self.values.partition_point(|it| it.by < id);
        self.values[from..].iter().take_while(move |it| it.by == id).map(|it| it.number)
    }

    /// Whether the decision was made of this proposal.
    pub(super) fn is_of(&self, by: NodeId, number: u64) -> bool {
        self.numbers_of(by).any(|its| its == number)
    }

    /// Returns the bytes of its values.
    pub(super) fn bytes(&self) -> usize {
        self.values.iter().map(|it| it.value.len()).sum()
    }

    /// Returns the decision with the hashes of its values in their places.
    pub(super) fn digest(&self) -> Decision {
        let hashed = self
            .values
            .iter()
            .map(|it| Proposed { value: fnv1a(&it.value).to_le_bytes().to_vec(), ..it.clone() });
        Decision { values: hashed.collect(), ..self.clone() }
    }

    /// Whether all its members are here.
    pub(super) fn is_whole(&self, is_here: impl Fn(&NodeId) -> bool) -> bool {
        self.gone.is_empty() && self.values.iter().all(|it| is_here(&it.by))
    }
}

/// Forgets the first decisions of which there are too many, in number or bytes, among those that `counts` names.
pub(super) fn forget_first<K>(
    kept: &mut VecDeque<K>,
    count_max: usize,
    decision: impl Fn(&K) -> &Decision,
    counts: impl Fn(&K) -> bool,
) {
    let (mut count, mut bytes) = (0, 0);
    for it in kept.iter().filter(|it| counts(it)) {
        (count, bytes) = (count + 1, bytes + decision(it).bytes());
    }
    kept.retain(|it| {
        let goes = (count > count_max || bytes > DECISION_BYTES_MAX) && counts(it);
        if goes {
            (count, bytes) = (count - 1, bytes - decision(it).bytes());
        }
        !goes
    });
}

/// Reason why a proposal is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Objection {
    /// The name is empty or longer than 255 bytes.
    Name,
    /// The value is longer than 1 KiB, or 4 MiB in a meeting.
    Value {
        /// Length of the value.
        bytes: u64,
        /// Length that it may have.
        max: u64,
    },
    /// The member is not one of those that are to agree.
    NotAmong,
    /// The member waits for 1024 other agreements and meetings, or with 4 MiB of values for meetings.
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
            Objection::Value { bytes, max } => {
                write!(f, "a value has at most {max} bytes, and this one {bytes}")
            }
            Objection::NotAmong => {
                f.write_str("this node is not among the members that are to agree")
            }
            Objection::TooMany => write!(
                f,
                "this node waits for {AGREEMENTS_A_MEMBER_MAX} other agreements or with \
                 {MEETING_BYTES_MAX} bytes for meetings, and more are not allowed"
            ),
            Objection::Differs { count, first, first_count } => write!(
                f,
                "this node names {count} members, and {first} named {first_count}, not the same ones"
            ),
        }
    }
}
