//! Words of two nodes about processes.

use crate::registry::processes::End;
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Word about a process, named by its creator's number.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ProcessWord {
    Create(Create),
    /// The creator asks the process to end.
    Stop(u64),
    /// The process goes on without its creator.
    Detach(u64),
    /// The process has ended, with this outcome.
    Ended(u64, End),
}

/// Request to run a process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Create {
    pub(crate) id: u64,
    pub(crate) name: String,
    /// Hash of the input's type.
    pub(crate) print: u64,
    /// Hops of the ends in the input, for a node that does not decode it.
    pub(crate) hops: Vec<u64>,
    pub(crate) input: Encoded,
}

/// Bytes that cross at the cost of a copy.
pub(crate) struct Encoded(pub(crate) Vec<u8>);

impl fmt::Debug for Encoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Serialize for Encoded {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Encoded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Encoded, D::Error> {
        struct Taken;
        impl Visitor<'_> for Taken {
            type Value = Encoded;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Encoded, E> {
                Ok(Encoded(bytes.to_vec()))
            }

            fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Encoded, E> {
                Ok(Encoded(bytes))
            }
        }
        deserializer.deserialize_byte_buf(Taken)
    }
}
