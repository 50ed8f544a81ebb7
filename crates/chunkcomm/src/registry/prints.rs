//! Prints of functions, which processes exchange before they call them.

use crate::proto::describe::Description;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The fingerprint of a type and, for errors, the start of its description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypePrint {
    /// Hash of the type; two types with the same hash are taken to be the same.
    pub hash: u64,
    /// The description, cut when it is long.
    pub text: String,
}

impl TypePrint {
    pub(crate) fn of(description: &Description) -> TypePrint {
        TypePrint { hash: description.hash, text: description.short() }
    }
}

/// Name and types of a registered function, to be sent to another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionPrint {
    /// The name it was registered under.
    pub name: String,
    /// The type of its input.
    pub input: TypePrint,
    /// The type of its result.
    pub output: TypePrint,
}

impl FunctionPrint {
    pub(super) fn same_types(&self, other: &FunctionPrint) -> bool {
        self.input.hash == other.input.hash && self.output.hash == other.output.hash
    }
}

impl fmt::Display for FunctionPrint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {} -> {}", self.name, self.input.text, self.output.text)
    }
}

/// A function that two processes do not both have with the same types.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The function as the other process has it.
    pub theirs: FunctionPrint,
    /// The function of that name as this process has it.
    pub ours: Option<FunctionPrint>,
}
