//! From values to bytes and back: the only module that knows the format.
//!
//! The format is bincode's with fixed-width little-endian integers: 64-bit lengths, 32-bit
//! variant indices, one byte before an optional value, nothing between fields and no names.
//! Values are encoded by bincode's encoder. They are decoded by a reader of the same format
//! ([`decode`]), because the bytes come from elsewhere. bincode allocates as much as a string
//! claims to hold, up to a limit that has to be a constant, and lets nested values use up the
//! stack. Here a length is only believed if the remaining bytes cover it.
//!
//! The format does not describe itself, so a few things that serde offers do not survive it:
//!
//! - `#[serde(flatten)]`, `#[serde(untagged)]`, `#[serde(tag = "..")]` and types like
//!   `serde_json::Value` ask the bytes for their type, and [`decode`] refuses
//!   ([`DecodeError::NotSelfDescribing`]).
//! - `#[serde(skip_serializing_if)]` leaves out bytes that the reader counts on. A value that
//!   skips a named field is refused ([`EncodeError::Refused`]). Fields without names are skipped
//!   unseen: [`describe`](super::describe) finds types that do so with the values it makes up.
//! - `#[serde(skip)]` on a field is left out on both sides, and the reader has the field's
//!   default. [`describe`](super::describe) refuses the type if one side alone leaves it out, or if
//!   variants are counted differently by the two sides, as behind a skipped one.
//! - A sequence or map of elements that take no bytes, as `Vec<()>`, costs its sender nothing
//!   and its reader one turn per element. More than one such element is refused
//!   ([`DecodeError::ZeroSized`]). [`describe`](super::describe) finds such types beforehand.
//! - A value with more than [`DEPTH_MAX`] optional values, sequences, maps and enums within
//!   each other is refused at both ends ([`EncodeError::Refused`], [`DecodeError::TooDeep`]). A
//!   long linked list travels as a `Vec`.
//!
//! A vector of numbers is a sequence to serde, each number taken by itself. Where it is the
//! whole message (`Sender<Vec<f32>>`), it is encoded and decoded at once, at the speed of a
//! copy. Within another value it takes about a nanosecond for each number. Bytes that are only
//! carried within other values are faster as `bytes::Bytes` or through `serde_bytes`, and
//! fastest of all in a channel of bytes.
//!
//! The memory of a decoded value is its program's. glibc gives a block of more than 32 MiB back
//! to the system each time it is freed, and the new pages of the next one take longer than
//! sending it. Programs with such values gain by an allocator that keeps its memory, or by
//! using the memory again.

mod cast;
mod decoder;
mod encoder;
mod numbers;

use std::fmt;

use bincode::config::{Configuration, Fixint, LittleEndian, standard};
use bincode::enc::EncoderImpl;
use bincode::enc::write::{SliceWriter, Writer};
use serde::Serialize;
use serde::de::DeserializeOwned;

use decoder::Decoder;
use encoder::{Levels, TOO_DEEP};

/// Number of the format in the handshake: nodes whose codecs differ do not talk.
pub const CODEC_ID: u16 = 1;

/// Most optional values, sequences, maps and enums of a value that may lie within each other: 128.
///
/// A level takes up to about 2 KiB of stack in an unoptimised build, and the threads of a
/// runtime have 2 MiB. Structs and tuples do not count: they can contain themselves only
/// through one of the others.
pub const DEPTH_MAX: u32 = 128;

/// The format as bincode's configuration.
const FORMAT: Configuration<LittleEndian, Fixint> =
    standard().with_little_endian().with_fixed_int_encoding();

/// Reason why a value was not encoded.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The value needs more bytes than there is room for.
    #[error("the value needs more bytes than there is room")]
    NoRoom,
    /// The value's `Serialize` failed with this cause, or needs something that the format
    /// cannot express: a sequence whose length is not known beforehand, or more than
    /// [`DEPTH_MAX`] values within each other, which no peer would decode.
    #[error("the value cannot be encoded: {0}")]
    Refused(Box<str>),
}

crate::debug_with_causes!(EncodeError);

impl EncodeError {
    #[cold]
    fn of(error: bincode::error::EncodeError) -> Self {
        use bincode::error::EncodeError as Error;
        match error {
            Error::UnexpectedEnd => EncodeError::NoRoom,
            Error::Other(cause) => EncodeError::Refused(cause.into()),
            Error::OtherString(cause) => EncodeError::Refused(cause.into()),
            Error::Serde(bincode::serde::EncodeError::SequenceMustHaveLength) => {
                EncodeError::Refused("the length of a sequence or map is not known".into())
            }
            error => EncodeError::Refused(error.to_string().into()),
        }
    }
}

/// Reason why bytes are not a value of the requested type.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end before the value does, or a length in them covers more bytes than are
    /// left.
    #[error("the bytes end before the value does")]
    Short,
    /// The value ends before the bytes do.
    #[error("there are bytes after the end of the value")]
    Trailing,
    /// A truth value is neither 0 nor 1.
    #[error("a truth value is neither 0 nor 1")]
    Bool,
    /// A character is not UTF-8.
    #[error("a character is not UTF-8")]
    Char,
    /// A string is not UTF-8.
    #[error("a string is not UTF-8")]
    Text,
    /// The mark before an optional value is neither 0 nor 1.
    #[error("the mark before an optional value is neither 0 nor 1")]
    Optional,
    /// The type has no variant of this index.
    #[error("the type has no variant of this index")]
    Variant,
    /// More than [`DEPTH_MAX`] values within each other.
    #[error("{TOO_DEEP}")]
    TooDeep,
    /// A sequence or map of several elements that take no bytes.
    #[error("a sequence has several elements that take no bytes")]
    ZeroSized,
    /// The type asks the bytes for their type.
    #[error("the type needs a format that describes itself")]
    NotSelfDescribing,
    /// The type's own `Deserialize` refused the decoded values.
    #[error("the type turned down the value that was read")]
    Refused,
}

crate::debug_with_causes!(DecodeError);

impl serde::de::Error for DecodeError {
    #[cold]
    fn custom<T: fmt::Display>(_cause: T) -> Self {
        DecodeError::Refused
    }

    #[cold]
    fn unknown_variant(_variant: &str, _expected: &'static [&'static str]) -> Self {
        DecodeError::Variant
    }
}

/// Encodes `value` at the start of `out` and returns the number of bytes used.
///
/// Allocates nothing, unless the value itself does or refuses.
///
/// # Errors
/// [`EncodeError::NoRoom`] when `out` is too small, which costs no more than the bytes written
/// so far. [`EncodeError::Refused`] when the value's `Serialize` fails or the value lies too
/// deep in itself. Either way the contents of `out` mean nothing.
#[inline(always)]
pub fn encode_into_slice<T: Serialize>(value: &T, out: &mut [u8]) -> Result<usize, EncodeError> {
    if let Some(bytes) = numbers::encoded_bytes(value) {
        numbers::encode(value, out.get_mut(..bytes).ok_or(EncodeError::NoRoom)?);
        return Ok(bytes);
    }
    let mut encoder = EncoderImpl::new(SliceWriter::new(out), FORMAT);
    match value.serialize(Levels::new(&mut encoder)) {
        Ok(()) => Ok(encoder.into_writer().bytes_written()),
        Err(error) => Err(EncodeError::of(error)),
    }
}

/// Appends the encoded `value` to `out` and returns the number of bytes used.
///
/// # Errors
/// [`EncodeError::Refused`] when the value's `Serialize` fails or the value lies too deep in
/// itself; `out` is then as it was before.
#[inline]
pub fn encode_into_vec<T: Serialize>(value: &T, out: &mut Vec<u8>) -> Result<usize, EncodeError> {
    let before = out.len();
    if let Some(bytes) = numbers::append_to(value, out) {
        return Ok(bytes);
    }
    let mut encoder = EncoderImpl::new(Append(out), FORMAT);
    match value.serialize(Levels::new(&mut encoder)) {
        Ok(()) => Ok(out.len() - before),
        Err(error) => {
            out.truncate(before);
            Err(EncodeError::of(error))
        }
    }
}

/// Writer at the end of a vector.
struct Append<'a>(&'a mut Vec<u8>);

impl Writer for Append<'_> {
    #[inline(always)]
    fn write(&mut self, bytes: &[u8]) -> Result<(), bincode::error::EncodeError> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

/// Decodes the value that fills `bytes` exactly.
///
/// Any bytes may be given. Memory for text and bytes is allocated only when their bytes are
/// there. The size hint of a sequence is at most the number of bytes left.
///
/// # Errors
/// See [`DecodeError`].
#[inline(always)]
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    if let Some(numbers) = numbers::decode(bytes) {
        return numbers;
    }
    let mut decoder = Decoder::new(bytes);
    let value = T::deserialize(&mut decoder)?;
    if decoder.is_at_end() { Ok(value) } else { Err(DecodeError::Trailing) }
}

#[cfg(test)]
mod tests;
