//! Prints of functions, which processes exchange before they call them.

use chunkcomm_proto::describe::Description;
use chunkcomm_proto::plain::Plain;
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

/// Name and types of a registered function, to be sent to another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionFingerprint {
    /// The name it was registered under.
    pub name: String,
    /// The type of its input.
    pub input: TypeFingerprint,
    /// The type of its result.
    pub output: TypeFingerprint,
}

impl FunctionFingerprint {
    pub(super) fn same_types(&self, other: &FunctionFingerprint) -> bool {
        self.input.hash == other.input.hash && self.output.hash == other.output.hash
    }
}

impl fmt::Display for FunctionFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (input, output) = (Plain(&self.input.text), Plain(&self.output.text));
        write!(f, "{:?}: {input} -> {output}", self.name)
    }
}

/// A function that two processes do not both have with the same types.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The function as the other process has it.
    pub theirs: FunctionFingerprint,
    /// The function of that name as this process has it.
    pub ours: Option<FunctionFingerprint>,
}
