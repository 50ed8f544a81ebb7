//! The word in front of each transfer of a line: a channel that carries one transfer after the other.
//!
//! ```text
//! offset  0     4       8     16
//!         LINE  number  call  length  frames of the transfer ...
//!               u32     u64   u64
//! ```
//!
//! All numbers are little-endian. The frames are those of a delta of one round, without its opening: the ranks have
//! agreed on the type of the elements in the call's statement.

use bytes::Buf;

const MAGIC: u32 = u32::from_le_bytes(*b"LINE");

/// Number of bytes of the word.
pub(crate) const HEAD_BYTES: usize = 24;

/// The transfer that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Number of the call in its group.
    pub(crate) call: u64,
    /// Number of the transfer among those of the two ranks in this call and direction, from 0.
    pub(crate) number: u32,
    /// Bytes of its elements.
    pub(crate) bytes: u64,
}

impl Head {
    /// Returns the bytes of the word.
    pub(crate) fn encode(self) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[..4].copy_from_slice(&MAGIC.to_le_bytes());
        head[4..8].copy_from_slice(&self.number.to_le_bytes());
        head[8..16].copy_from_slice(&self.call.to_le_bytes());
        head[16..].copy_from_slice(&self.bytes.to_le_bytes());
        head
    }

    /// Reads the word; `None` where these bytes are none.
    pub(crate) fn decode(head: &[u8; HEAD_BYTES]) -> Option<Head> {
        let mut fields = &head[..];
        let (magic, number) = (fields.get_u32_le(), fields.get_u32_le());
        let (call, bytes) = (fields.get_u64_le(), fields.get_u64_le());
        (magic == MAGIC).then_some(Head { call, number, bytes })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn goes_there_and_back(call: u64, number: u32, bytes: u64) {
            let head = Head { call, number, bytes };
            prop_assert_eq!(Head::decode(&head.encode()), Some(head));
        }

        #[test]
        fn any_bytes_are_a_word_or_none(bytes: [u8; HEAD_BYTES], starts: bool) {
            let mut bytes = bytes;
            if starts {
                bytes[..4].copy_from_slice(b"LINE");
            }
            match Head::decode(&bytes) {
                Some(head) => prop_assert_eq!(head.encode(), bytes),
                None => prop_assert_ne!(&bytes[..4], b"LINE"),
            }
        }
    }
}
