//! The functions and processes that nodes run for each other: a name must mean the same on both
//! sides.

use chunkcomm_proto::describe::Description;
use chunkcomm_proto::plain::Plain;
use chunkcomm_proto::sorted::{SortedMap, SortedSet};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The fingerprint of a type and, for errors, the start of its description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypeFingerprint {
    /// Hash of the type; two types with the same hash are taken to be the same.
    pub hash: u64,
    /// The description, cut when it is long.
    pub text: String,
}

impl TypeFingerprint {
    pub(crate) fn of(description: &Description) -> TypeFingerprint {
        TypeFingerprint { hash: description.hash, text: description.short() }
    }
}

/// A registered function or process by its name and types, as other nodes are told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    /// The name it was registered under.
    pub name: String,
    /// The type of its input.
    pub input: TypeFingerprint,
    /// The type of its result, which a process does not have.
    pub output: Option<TypeFingerprint>,
}

impl Signature {
    /// Returns the kind. Functions and processes have separate names.
    fn kind(&self) -> &'static str {
        if self.output.is_none() { "process" } else { "function" }
    }

    /// Describes the types for people.
    fn types(&self) -> String {
        let input = Plain(&self.input.text);
        match &self.output {
            None => format!("of {input}"),
            Some(output) => format!("{input} -> {}", Plain(&output.text)),
        }
    }

    /// Whether the types are those of `other`.
    pub(crate) fn same_types(&self, other: &Signature) -> bool {
        let hashes = |of: &Signature| (of.input.hash, of.output.as_ref().map(|it| it.hash));
        hashes(self) == hashes(other)
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.name, self.types())
    }
}

/// A function or process that two nodes do not both have with the same types.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// As the other node has it; `None` if it has none of that name.
    pub theirs: Option<Signature>,
    /// As the node that compares has it; `None` if it has none of that name.
    pub ours: Option<Signature>,
}

impl Difference {
    /// Finds the first difference by name; `None` when both have the same functions and processes,
    /// in whatever order.
    #[must_use]
    pub fn find(ours: &[Signature], theirs: &[Signature]) -> Option<Difference> {
        let by_name = |all: &[Signature]| -> SortedMap<(&'static str, String), Signature> {
            all.iter().map(|one| ((one.kind(), one.name.clone()), one.clone())).collect()
        };
        let (ours, theirs) = (by_name(ours), by_name(theirs));
        let names: SortedSet<_> = ours.keys().chain(theirs.keys()).collect();
        names.iter().find_map(|&name| {
            let (our, their) = (ours.get(name), theirs.get(name));
            let same = matches!((our, their), (Some(our), Some(their)) if our.same_types(their));
            (!same).then(|| Difference { theirs: their.cloned(), ours: our.cloned() })
        })
    }

    /// Describes the difference for people, between nodes of these names.
    pub(super) fn between(&self, theirs: &str, ours: &str) -> String {
        let named = |one: &Signature| format!("{} {:?}", one.kind(), one.name);
        let lacks = |has: &str, one: &Signature, lacks: &str| {
            format!("{has} has {} ({}), which {lacks} lacks", named(one), one.types())
        };
        match (&self.theirs, &self.ours) {
            (Some(a), Some(b)) => {
                let (name, a, b) = (named(a), a.types(), b.types());
                format!("{name} is {a} on {theirs}, and {b} on {ours}")
            }
            (Some(one), None) => lacks(theirs, one, ours),
            (None, Some(one)) => lacks(ours, one, theirs),
            (None, None) => format!("{theirs} and {ours} have the same functions"),
        }
    }
}
