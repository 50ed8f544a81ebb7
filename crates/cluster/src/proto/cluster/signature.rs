//! The functions and processes that members run for each other: a name must mean the same on all
//! members.

use chunkcomm_proto::plain::Plain;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A function or process by its name and types.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    /// The name of the function or process.
    pub name: String,
    /// Fingerprints of its types, the only parts compared: the input, then the result, which a
    /// process does not have.
    pub hashes: Vec<u64>,
    /// The types, as text for people.
    pub types: String,
}

impl Signature {
    /// Returns the kind. Functions and processes have separate names.
    fn kind(&self) -> &'static str {
        if self.hashes.len() == 1 { "process" } else { "function" }
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} ({})", self.kind(), self.name, Plain(&self.types))
    }
}

/// A function or process that differs between two nodes; at least one of them has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mismatch {
    /// As the announced node has it.
    pub theirs: Option<Signature>,
    /// As rank 0 has it.
    pub ours: Option<Signature>,
}

impl Mismatch {
    /// Finds the first difference by name; `None` when both have the same functions, in whatever
    /// order.
    #[must_use]
    pub fn find(ours: &[Signature], theirs: &[Signature]) -> Option<Mismatch> {
        let by_name = |all: &[Signature]| -> BTreeMap<(&'static str, String), Signature> {
            all.iter().map(|one| ((one.kind(), one.name.clone()), one.clone())).collect()
        };
        let (ours, theirs) = (by_name(ours), by_name(theirs));
        let names: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
        names.into_iter().find_map(|name| {
            let (our, their) = (ours.get(name), theirs.get(name));
            let same =
                matches!((our, their), (Some(our), Some(their)) if our.hashes == their.hashes);
            (!same).then(|| Mismatch { theirs: their.cloned(), ours: our.cloned() })
        })
    }

    /// Describes the difference for people.
    pub(super) fn between(&self, theirs: &str, ours: &str) -> String {
        match (&self.theirs, &self.ours) {
            (Some(a), Some(b)) => format!(
                "{} {:?} is {} on {theirs}, and {} on {ours}",
                a.kind(),
                a.name,
                Plain(&a.types),
                Plain(&b.types)
            ),
            (Some(one), None) => format!("{theirs} has {one}, which {ours} lacks"),
            (None, Some(one)) => format!("{ours} has {one}, which {theirs} lacks"),
            (None, None) => format!("{theirs} and {ours} have the same functions"),
        }
    }
}
