//! The methods of a service that has several, on one duplex.
//!
//! ```text
//!   client                                          service
//!     Methods(number and hash of each) ───────────▶ notes those that it has not, or has otherwise
//!     Call(slot, (number, arguments)) ────────────▶ refuses those, handles all others
//! ```
//!
//! The number of a method is a hash of its name. So both ends know it, whatever other methods they have, and
//! either may have more than the other. The types are compared once a duplex.

use chunkcomm_proto::describe::fnv1a;

/// Methods of a service, at most.
pub const METHODS_MAX: usize = 1024;

/// A method, as the two ends compare it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MethodKey {
    /// Hash of the name: the method's number on the wire.
    pub id: u32,
    /// Hash of the name and of the types of the arguments and of the result.
    pub hash: u64,
}

impl MethodKey {
    /// Returns the key of a method from the hashes of its types, the result's last.
    #[must_use]
    pub fn new(id: u32, name: &str, types: impl Iterator<Item = u64>) -> MethodKey {
        let mut bytes: Vec<u8> = types.flat_map(u64::to_le_bytes).collect();
        bytes.extend_from_slice(name.as_bytes());
        MethodKey { id, hash: fnv1a(&bytes) }
    }
}

/// Returns the number of the method that a value is of: its first bytes.
#[must_use]
pub fn id_of(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|id| u32::from_le_bytes(*id))
}

/// Returns the numbers of the methods of a client that are not among `ours`, or are with other types.
#[must_use]
pub fn differing(ours: &[MethodKey], theirs: impl Iterator<Item = MethodKey>) -> Vec<u32> {
    theirs.filter(|their| !ours.contains(their)).map(|their| their.id).collect()
}
