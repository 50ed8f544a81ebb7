//! Encoded inputs and results, each after its length.

use std::convert::Infallible;

use bytes::Buf;
use chunkcomm::codec::{EncodeError, encode_into_vec};
use chunkcomm_proto::plain::cut;
use serde::Serialize;

use super::Malformed;

/// Bytes before a value: its length.
pub(crate) const LENGTH_BYTES: usize = 4;

/// Marks the text of a failure in the place of a result.
const FAILED: u32 = 1 << 31;

/// Result, or the text of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    Value(&'a [u8]),
    Failure(&'a str),
}

impl Item<'_> {
    /// Returns the number of its bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Item::Value(value) => value.len(),
            Item::Failure(text) => text.len(),
        }
    }
}

/// Encoded values, each preceded by its length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Items<'a> {
    rest: &'a [u8],
    left: u32,
}

impl<'a> Items<'a> {
    /// Reads this number of items.
    pub(crate) fn new(items: &'a [u8], count: u32) -> Items<'a> {
        Items { rest: items, left: count }
    }

    /// Returns the next input's bytes; `None` after the last.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        Ok(self.take(u32::MAX)?.map(|(_, value)| value))
    }

    /// Returns the next result or failure; `None` after the last.
    #[inline]
    pub(crate) fn next_result(&mut self) -> Result<Option<Item<'a>>, Malformed> {
        let Some((length, value)) = self.take(!FAILED)? else { return Ok(None) };
        if length & FAILED == 0 {
            return Ok(Some(Item::Value(value)));
        }
        let text = std::str::from_utf8(value).map_err(|_| Malformed)?;
        Ok(Some(Item::Failure(text)))
    }

    /// Returns the next length and its bytes; `None` after the last. The bits of `mask` in the
    /// length count the bytes.
    #[inline]
    fn take(&mut self, mask: u32) -> Result<Option<(u32, &'a [u8])>, Malformed> {
        if self.left == 0 {
            return if self.rest.is_empty() { Ok(None) } else { Err(Malformed) };
        }
        self.left -= 1;
        let length = self.rest.try_get_u32_le()?;
        let value = self.rest.split_off(..(length & mask) as usize).ok_or(Malformed)?;
        Ok(Some((length, value)))
    }
}

/// Returns the bytes that the first `count` items take up; `None` if there are fewer.
pub(crate) fn items_bytes(items: &[u8], count: u32) -> Option<usize> {
    let mut at = 0usize;
    for _ in 0..count {
        let length = items.get(at..)?.first_chunk::<LENGTH_BYTES>()?;
        at = at.checked_add(LENGTH_BYTES + u32::from_le_bytes(*length) as usize)?;
    }
    (at <= items.len()).then_some(at)
}

/// Appends a length and its value.
///
/// `write` appends the value; when `write` fails, `out` is as before.
#[inline]
pub(crate) fn put_item<E>(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    let at = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    if let Err(error) = write(out) {
        out.truncate(at);
        return Err(error);
    }
    // A message has less than 2 GiB. So the cut length of a longer value is never seen: sending it
    // fails.
    let bytes = (out.len() - at - LENGTH_BYTES) as u32 & !FAILED;
    out[at..at + LENGTH_BYTES].copy_from_slice(&bytes.to_le_bytes());
    Ok(())
}

/// Appends a length and the value as the codec encodes it; see [`put_item`].
#[inline]
pub(crate) fn put_value<T: Serialize>(out: &mut Vec<u8>, value: &T) -> Result<(), EncodeError> {
    put_item(out, |out| encode_into_vec(value, out).map(drop))
}

/// Appends a length and these bytes; see [`put_item`].
pub(crate) fn put_bytes(out: &mut Vec<u8>, value: &[u8]) {
    let Ok(()) = put_item(out, |out| {
        out.extend_from_slice(value);
        Ok::<_, Infallible>(())
    });
}

/// Longest text of a failure, in bytes: it must always fit in a message.
const FAILURE_TEXT_BYTES_MAX: usize = 4096;

/// Appends the text of a failure, cut to [`FAILURE_TEXT_BYTES_MAX`], in the place of a result.
pub(crate) fn put_failure(out: &mut Vec<u8>, text: &str) {
    let text = cut(text, FAILURE_TEXT_BYTES_MAX);
    out.extend_from_slice(&(text.len() as u32 | FAILED).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}
