//! Measured messages: typed serde values of exactly the size asked for.
//!
//! Each message carries its sequence number first and, as its last byte, a check byte computed from
//! that number. The baselines send the same bytes ([`stamp`], [`verify`]). A measurement leaves the
//! bytes between them unchanged; [`Message::fill`] gives each a value of its own.

use std::cell::Cell;
use std::fmt;

use chunkcomm_proto::random::Random;
use serde::de::{DeserializeOwned, Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Least bytes of a message: room for a sequence number with its check byte.
pub const MESSAGE_BYTES_MIN: usize = 8;

/// Mask of a number in a message of eight bytes: the check byte takes its top byte.
const NUMBER_MASK: u64 = (1 << 56) - 1;

/// Returns the check byte of a message: every byte of its number counts.
#[inline]
pub fn check_byte(sequence: u64) -> u8 {
    (sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Writes number and check byte into a message given as bytes.
///
/// # Panics
/// If the message is shorter than [`MESSAGE_BYTES_MIN`].
#[inline]
pub fn stamp(message: &mut [u8], sequence: u64) {
    message[..8].copy_from_slice(&sequence.to_le_bytes());
    let last = message.len() - 1;
    message[last] = check_byte(sequence);
}

/// Whether a message given as bytes carries this number and its check byte.
#[inline]
pub fn verify(message: &[u8], sequence: u64) -> bool {
    let (Some(first), Some(&last)) = (message.first_chunk::<8>(), message.last()) else {
        return false;
    };
    let mut number = u64::from_le_bytes(*first);
    if message.len() == 8 {
        number &= NUMBER_MASK;
    }
    number == sequence && last == check_byte(sequence)
}

/// A typed message of a size chosen at run time.
pub trait Message: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Makes a message of `bytes` encoded bytes, not yet stamped.
    fn with_size(bytes: usize) -> Self;
    /// Gives the message its number and check byte.
    fn stamp(&mut self, sequence: u64);
    /// As `stamp`, with all bytes between the two drawn from `random`.
    fn fill(&mut self, sequence: u64, random: Random);
    /// Returns the message's number; of a short message its lower half.
    fn sequence(&self) -> u64;
    /// Whether the message's check byte is that of this number.
    fn is_stamped(&self, sequence: u64) -> bool;
    /// Whether the message has this number, its check byte and `bytes` encoded bytes.
    fn verify(&self, sequence: u64, bytes: usize) -> bool;
}

/// Eight bytes: number and check byte in one word.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Word(u64);

impl Message for Word {
    fn with_size(_bytes: usize) -> Self {
        Self(0)
    }

    fn stamp(&mut self, sequence: u64) {
        self.0 = (sequence & NUMBER_MASK) | u64::from(check_byte(sequence)) << 56;
    }

    fn fill(&mut self, sequence: u64, _random: Random) {
        self.stamp(sequence);
    }

    fn sequence(&self) -> u64 {
        self.0 & NUMBER_MASK
    }

    fn is_stamped(&self, sequence: u64) -> bool {
        (self.0 >> 56) as u8 == check_byte(sequence)
    }

    fn verify(&self, sequence: u64, _bytes: usize) -> bool {
        self.sequence() == sequence && self.is_stamped(sequence)
    }
}

/// Nine to fifteen bytes: the variant's tag and half a number take eight of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // the variants' names are their sizes
pub enum Short {
    Nine(u32, [u8; 1]),
    Ten(u32, [u8; 2]),
    Eleven(u32, [u8; 3]),
    Twelve(u32, [u8; 4]),
    Thirteen(u32, [u8; 5]),
    Fourteen(u32, [u8; 6]),
    Fifteen(u32, [u8; 7]),
}

impl Short {
    fn parts(&self) -> (u32, &[u8]) {
        match self {
            Self::Nine(number, rest) => (*number, rest),
            Self::Ten(number, rest) => (*number, rest),
            Self::Eleven(number, rest) => (*number, rest),
            Self::Twelve(number, rest) => (*number, rest),
            Self::Thirteen(number, rest) => (*number, rest),
            Self::Fourteen(number, rest) => (*number, rest),
            Self::Fifteen(number, rest) => (*number, rest),
        }
    }

    fn parts_mut(&mut self) -> (&mut u32, &mut [u8]) {
        match self {
            Self::Nine(number, rest) => (number, rest),
            Self::Ten(number, rest) => (number, rest),
            Self::Eleven(number, rest) => (number, rest),
            Self::Twelve(number, rest) => (number, rest),
            Self::Thirteen(number, rest) => (number, rest),
            Self::Fourteen(number, rest) => (number, rest),
            Self::Fifteen(number, rest) => (number, rest),
        }
    }
}

impl Message for Short {
    fn with_size(bytes: usize) -> Self {
        match bytes {
            9 => Self::Nine(0, [0; 1]),
            10 => Self::Ten(0, [0; 2]),
            11 => Self::Eleven(0, [0; 3]),
            12 => Self::Twelve(0, [0; 4]),
            13 => Self::Thirteen(0, [0; 5]),
            14 => Self::Fourteen(0, [0; 6]),
            _ => Self::Fifteen(0, [0; 7]),
        }
    }

    fn stamp(&mut self, sequence: u64) {
        let (number, rest) = self.parts_mut();
        *number = sequence as u32;
        if let Some(last) = rest.last_mut() {
            *last = check_byte(sequence);
        }
    }

    fn fill(&mut self, sequence: u64, mut random: Random) {
        random.fill(self.parts_mut().1);
        self.stamp(sequence);
    }

    fn sequence(&self) -> u64 {
        u64::from(self.parts().0)
    }

    fn is_stamped(&self, sequence: u64) -> bool {
        self.parts().1.last() == Some(&check_byte(sequence))
    }

    fn verify(&self, sequence: u64, bytes: usize) -> bool {
        let (number, rest) = self.parts();
        number == sequence as u32 && self.is_stamped(sequence) && rest.len() + 8 == bytes
    }
}

/// Sixteen bytes, the size of most of the papers' messages: two words. The check byte is the last
/// byte of the second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    sequence: u64,
    value: u64,
}

/// Value of a record without its check byte.
const RECORD_VALUE: u64 = 0x5a_5a5a_5a5a_5a5a;

impl Message for Record {
    fn with_size(_bytes: usize) -> Self {
        Self { sequence: 0, value: RECORD_VALUE }
    }

    fn stamp(&mut self, sequence: u64) {
        self.sequence = sequence;
        self.value = RECORD_VALUE | u64::from(check_byte(sequence)) << 56;
    }

    fn fill(&mut self, sequence: u64, mut random: Random) {
        self.stamp(sequence);
        self.value ^= random.next_u64() & NUMBER_MASK;
    }

    fn sequence(&self) -> u64 {
        self.sequence
    }

    fn is_stamped(&self, sequence: u64) -> bool {
        (self.value >> 56) as u8 == check_byte(sequence)
    }

    fn verify(&self, sequence: u64, _bytes: usize) -> bool {
        self.sequence == sequence && self.is_stamped(sequence)
    }
}

/// Bytes of a [`Long`] beside its payload: the number and the payload's length.
const LONG_OVERHEAD_BYTES: usize = 16;

/// Seventeen bytes and more: a number and a payload of bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Long {
    sequence: u64,
    payload: Payload,
}

impl Message for Long {
    fn with_size(bytes: usize) -> Self {
        let payload = Payload::with_size(bytes.saturating_sub(LONG_OVERHEAD_BYTES).max(1));
        Self { sequence: 0, payload }
    }

    fn stamp(&mut self, sequence: u64) {
        self.sequence = sequence;
        if let Some(last) = self.payload.0.last_mut() {
            *last = check_byte(sequence);
        }
    }

    fn fill(&mut self, sequence: u64, mut random: Random) {
        random.fill(&mut self.payload.0);
        self.stamp(sequence);
    }

    fn sequence(&self) -> u64 {
        self.sequence
    }

    fn is_stamped(&self, sequence: u64) -> bool {
        self.payload.0.last() == Some(&check_byte(sequence))
    }

    fn verify(&self, sequence: u64, bytes: usize) -> bool {
        self.sequence == sequence
            && self.is_stamped(sequence)
            && self.payload.0.len() + LONG_OVERHEAD_BYTES == bytes
    }
}

/// Size in bytes above which a payload keeps its memory for the next one: 32 MiB. glibc gives a
/// larger block back to the system whenever it is freed, and the pages of the next take longer than
/// the message. A program with such large values uses their memory again, as both ends of
/// `bandwidth` do.
const KEPT_BYTES_MIN: usize = 32 << 20;

thread_local! {
    /// Memory of the last payload above `KEPT_BYTES_MIN` that was dropped on this thread.
    static KEPT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Bytes that serde handles as bytes, not as a sequence of numbers: one copy each way.
#[derive(Debug, Clone, PartialEq)]
struct Payload(Vec<u8>);

impl Payload {
    fn with_size(bytes: usize) -> Self {
        let mut kept = if bytes > KEPT_BYTES_MIN { KEPT.take() } else { Vec::new() };
        kept.resize(bytes, 0x5a);
        Self(kept)
    }

    fn of(bytes: &[u8]) -> Self {
        if bytes.len() <= KEPT_BYTES_MIN {
            return Self(bytes.to_vec());
        }
        let mut kept = KEPT.take();
        kept.clear();
        kept.extend_from_slice(bytes);
        Self(kept)
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        if self.0.len() > KEPT_BYTES_MIN {
            // A thread that is ending keeps nothing.
            let _ = KEPT.try_with(|kept| kept.set(std::mem::take(&mut self.0)));
        }
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(PayloadVisitor)
    }
}

struct PayloadVisitor;

impl<'de> Visitor<'de> for PayloadVisitor {
    type Value = Payload;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Payload, E> {
        Ok(Payload::of(bytes))
    }

    fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<Payload, E> {
        Ok(Payload(bytes))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Payload, A::Error> {
        let mut bytes = Vec::new();
        while let Some(byte) = seq.next_element()? {
            bytes.push(byte);
        }
        Ok(Payload(bytes))
    }
}

/// Runs an expression with `$type` standing for the message type of a size.
#[macro_export]
macro_rules! with_message_of {
    ($bytes:expr, $type:ident => $body:expr) => {
        match $bytes {
            0..=8 => {
                type $type = $crate::message::Word;
                $body
            }
            9..=15 => {
                type $type = $crate::message::Short;
                $body
            }
            16 => {
                type $type = $crate::message::Record;
                $body
            }
            _ => {
                type $type = $crate::message::Long;
                $body
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stamped_are_verified_and_changed_ones_are_not() {
        for bytes in [8, 9, 16, 1024] {
            let mut message = vec![0; bytes];
            stamp(&mut message, 0x0012_3456_789a_bcde);
            assert!(verify(&message, 0x0012_3456_789a_bcde), "{bytes}");
            assert!(!verify(&message, 0x0012_3456_789a_bcdf), "{bytes}");
            message[bytes - 1] ^= 1;
            assert!(!verify(&message, 0x0012_3456_789a_bcde), "{bytes}");
        }
        assert!(!verify(&[0; 7], 0));
    }

    #[test]
    fn messages_have_the_bytes_asked_for_and_come_back_verified() {
        fn check<M: Message>(bytes: usize) {
            let mut message = M::with_size(bytes);
            message.stamp(0x1234_5678);
            let mut encoded = Vec::new();
            chunkcomm::codec::encode_into_vec(&message, &mut encoded).unwrap();
            assert_eq!(encoded.len(), bytes);
            assert_eq!(encoded.last(), Some(&check_byte(0x1234_5678)), "{bytes}: check byte last");
            let decoded: M = chunkcomm::codec::decode(&encoded).unwrap();
            assert_eq!(decoded.sequence(), 0x1234_5678);
            assert!(decoded.verify(0x1234_5678, bytes) && !decoded.verify(0x1234_5679, bytes));
        }
        for bytes in (8..40).chain([1024, 65_536]) {
            with_message_of!(bytes, M => check::<M>(bytes));
        }
    }
}
