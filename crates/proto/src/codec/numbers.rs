//! A short way for messages that are a sequence of numbers, there and back.
//!
//! serde has a `Vec` built element by element: a check of the bytes and one of the capacity for
//! each, where the bytes of numbers could be converted at once. A deserializer cannot know
//! whether serde's own visitor asks for the numbers, or one that does something else with them.
//! But a whole message of type `Vec<u32>` is read by serde's own. Its result is known, and is
//! made here without it. Likewise the bytes that serde's own writes of a `Vec<u32>` are known.
//! Types of another layout are told apart while they are compiled, and nothing is compiled for
//! them. In a build without optimisation the other comparisons are made for each message; with it
//! none is left.

use std::mem;

use super::DecodeError;
use super::cast::{cast_mut, cast_ref};

/// A number of `N` bytes.
trait Number<const N: usize> {
    fn read(bytes: [u8; N]) -> Self;
    fn bytes(&self) -> [u8; N];
}

/// Reads the vector that fills `bytes` exactly; fails as the long way does.
fn vector<N: Number<BYTES>, const BYTES: usize>(bytes: &[u8]) -> Result<Vec<N>, DecodeError> {
    let (count, rest) = bytes.split_first_chunk().ok_or(DecodeError::Short)?;
    let (numbers, part) = rest.as_chunks();
    let count = u64::from_le_bytes(*count);
    if count > numbers.len() as u64 {
        return Err(DecodeError::Short);
    }
    if count < numbers.len() as u64 || !part.is_empty() {
        return Err(DecodeError::Trailing);
    }
    Ok(numbers.iter().map(|bytes| N::read(*bytes)).collect())
}

/// Writes `numbers` to `out`, which has exactly their length.
fn write<N: Number<BYTES>, const BYTES: usize>(numbers: &[N], out: &mut [u8]) {
    let Some((count, rest)) = out.split_first_chunk_mut() else { return };
    *count = (numbers.len() as u64).to_le_bytes();
    for (bytes, number) in rest.as_chunks_mut().0.iter_mut().zip(numbers) {
        *bytes = number.bytes();
    }
}

/// Appends `numbers` to `out`, part by part: so the new memory is not cleared first, and a part
/// lies in the cache.
fn append<N: Number<BYTES>, const BYTES: usize>(numbers: &[N], out: &mut Vec<u8>) {
    out.reserve(COUNT_BYTES + size_of_val(numbers));
    out.extend_from_slice(&(numbers.len() as u64).to_le_bytes());
    let mut part = [[0; BYTES]; PART_NUMBERS];
    for numbers in numbers.chunks(PART_NUMBERS) {
        for (bytes, number) in part.iter_mut().zip(numbers) {
            *bytes = number.bytes();
        }
        out.extend_from_slice(part[..numbers.len()].as_flattened());
    }
}

/// Number of numbers that are appended at once.
const PART_NUMBERS: usize = 512;

/// Bytes of the count before a sequence.
const COUNT_BYTES: usize = size_of::<u64>();

/// Whether `T` has the layout of a vector.
const fn may_be_vector<T>() -> bool {
    size_of::<T>() == size_of::<Vec<u8>>()
        && align_of::<T>() == align_of::<Vec<u8>>()
        && mem::needs_drop::<T>()
}

macro_rules! numbers {
    ($($number:ty)*) => {
        $(impl Number<{ size_of::<$number>() }> for $number {
            #[inline(always)]
            fn read(bytes: [u8; size_of::<$number>()]) -> Self {
                <$number>::from_le_bytes(bytes)
            }

            #[inline(always)]
            fn bytes(&self) -> [u8; size_of::<$number>()] {
                self.to_le_bytes()
            }
        })*

        /// Returns the bytes that `value` takes, if it is a vector of numbers.
        #[inline(always)]
        pub(super) fn encoded_bytes<T>(value: &T) -> Option<usize> {
            if const { may_be_vector::<T>() } {
                $(if let Some(numbers) = cast_ref::<T, Vec<$number>>(value) {
                    return Some(COUNT_BYTES + size_of_val(&numbers[..]));
                })*
            }
            None
        }

        /// Encodes `value`, a vector of numbers, to `out`, which has exactly its length.
        #[inline(always)]
        pub(super) fn encode<T>(value: &T, out: &mut [u8]) {
            if const { !may_be_vector::<T>() } {
                return;
            }
            $(if let Some(numbers) = cast_ref::<T, Vec<$number>>(value) {
                write(numbers, out);
            })*
        }

        /// Appends the encoded `value` to `out`, if it is a vector of numbers; returns the
        /// number of bytes used.
        #[inline(always)]
        pub(super) fn append_to<T>(value: &T, out: &mut Vec<u8>) -> Option<usize> {
            if const { !may_be_vector::<T>() } {
                return None;
            }
            let bytes = encoded_bytes(value)?;
            $(if let Some(numbers) = cast_ref::<T, Vec<$number>>(value) {
                append(numbers, out);
            })*
            Some(bytes)
        }

        /// Decodes the value that fills `bytes` exactly, if `T` is a vector of numbers.
        #[inline(always)]
        pub(super) fn decode<T>(bytes: &[u8]) -> Option<Result<T, DecodeError>> {
            if const { !may_be_vector::<T>() } {
                return None;
            }
            let mut value: Option<T> = None;
            $(if let Some(vector_of_numbers) = cast_mut::<_, Option<Vec<$number>>>(&mut value) {
                match vector(bytes) {
                    Ok(numbers) => *vector_of_numbers = Some(numbers),
                    Err(error) => return Some(Err(error)),
                }
            })*
            value.map(Ok)
        }
    };
}

numbers! { u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64 }
