//! The words of calls. Each is a message of its channel:
//!
//! ```text
//!   kind u8 | slot u32 | the rest: a value, a text, or nothing
//!
//!   a call with a deadline or a context, in the place of the rest:
//!   milliseconds left u32, or u32::MAX | bytes of the context u8 | the context | the value
//!
//!   the methods that a client knows, its first word to a service of several, in the place of the rest:
//!   of each method its number u32 | the hash of its name and types u64
//! ```
//!
//! A value of a service of several methods begins with the method's number. The set of words depends on the version that the link agreed on.

use super::CONTEXT_BYTES_MAX;
use super::methods::{METHODS_MAX, MethodKey};

/// Bytes before the value of a request or an answer.
pub const HEAD_BYTES: usize = 5;

const CALL: u8 = 1;
const CANCEL: u8 = 2;
const CALL_WITH: u8 = 3;
const METHODS: u8 = 4;

/// Bytes of a method in a client's first word.
const KEY_BYTES: usize = 12;

/// Milliseconds of a call without a deadline.
const NO_DEADLINE: u32 = u32::MAX;

/// Milliseconds of the longest deadline, 49 days; a later one counts as this.
pub const LEFT_MS_MAX: u32 = NO_DEADLINE - 1;

/// Bytes between the head and the context of a call that has one of the two.
const WITH_BYTES: usize = 5;

/// Word of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// A call.
    Call {
        /// The client's number of the call.
        slot: u32,
        /// The deadline and the context of the call, if it has one of them.
        with: Option<With<'a>>,
        /// The encoded request.
        value: &'a [u8],
    },
    /// The caller does not wait any more.
    Cancel {
        /// The client's number of the call.
        slot: u32,
    },
    /// The methods that the client knows.
    Methods {
        /// The methods, as [`keys`] reads them.
        keys: &'a [u8],
    },
}

/// Deadline and context of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct With<'a> {
    /// Milliseconds from the sending of the call to its deadline; more than [`LEFT_MS_MAX`] travel as
    /// that.
    pub left_ms: Option<u32>,
    /// Bytes of the caller, at most [`CONTEXT_BYTES_MAX`].
    pub context: &'a [u8],
}

/// Appends the head of a call with a deadline or a context to `call`, which is empty.
pub fn put_call_with(call: &mut Vec<u8>, with: With<'_>) {
    let context = with.context.get(..CONTEXT_BYTES_MAX).unwrap_or(with.context);
    call.extend_from_slice(&head(CALL_WITH, 0));
    let left_ms = with.left_ms.map_or(NO_DEADLINE, |left_ms| left_ms.min(LEFT_MS_MAX));
    call.extend_from_slice(&left_ms.to_le_bytes());
    call.push(context.len() as u8);
    call.extend_from_slice(context);
}

/// Writes the milliseconds that are left into a call that was encoded earlier, if it has a deadline.
pub fn set_left(call: &mut [u8], left_ms: u32) {
    if let [CALL_WITH, _, _, _, _, left @ ..] = call
        && let Some(left) = left.first_chunk_mut::<4>()
        && u32::from_le_bytes(*left) != NO_DEADLINE
    {
        *left = left_ms.min(LEFT_MS_MAX).to_le_bytes();
    }
}

/// Returns the head of a call, before its value.
#[must_use]
pub fn call_head(slot: u32) -> (u8, u32) {
    (CALL, slot)
}

/// Returns the bytes of a cancellation.
#[must_use]
pub fn cancel(slot: u32) -> [u8; HEAD_BYTES] {
    head(CANCEL, slot)
}

/// Returns the word of a client that knows these methods.
#[must_use]
pub fn methods(known: impl Iterator<Item = MethodKey>) -> Vec<u8> {
    let mut bytes = head(METHODS, 0).to_vec();
    for MethodKey { id, hash } in known {
        bytes.extend_from_slice(&id.to_le_bytes());
        bytes.extend_from_slice(&hash.to_le_bytes());
    }
    bytes
}

/// Returns the methods in such a word.
pub fn keys(keys: &[u8]) -> impl Iterator<Item = MethodKey> {
    keys.chunks_exact(KEY_BYTES).filter_map(|key| {
        let (id, hash) = (key.first_chunk()?, key.last_chunk()?);
        Some(MethodKey { id: u32::from_le_bytes(*id), hash: u64::from_le_bytes(*hash) })
    })
}

fn head(kind: u8, slot: u32) -> [u8; HEAD_BYTES] {
    let mut bytes = [kind; HEAD_BYTES];
    bytes[1..].copy_from_slice(&slot.to_le_bytes());
    bytes
}

/// Writes the slot into a call that was encoded before it had one.
pub fn set_slot(call: &mut [u8], slot: u32) {
    if let Some(bytes) = call.get_mut(1..HEAD_BYTES) {
        bytes.copy_from_slice(&slot.to_le_bytes());
    }
}

/// Returns the kind, slot and the rest; `None` where the head is cut.
fn split(message: &[u8]) -> Option<(u8, u32, &[u8])> {
    let (head, rest) = message.split_first_chunk::<HEAD_BYTES>()?;
    let [kind, slot @ ..] = *head;
    Some((kind, u32::from_le_bytes(slot), rest))
}

impl<'a> Request<'a> {
    /// Parses a message; `None` when it is no word of a client.
    #[must_use]
    pub fn parse(message: &'a [u8]) -> Option<Request<'a>> {
        let (kind, slot, rest) = split(message)?;
        match (kind, rest) {
            (CALL, value) => Some(Request::Call { slot, with: None, value }),
            (CALL_WITH, rest) => {
                let (head, rest) = rest.split_first_chunk::<WITH_BYTES>()?;
                let [left_ms @ .., bytes] = *head;
                let bytes = usize::from(bytes);
                let left_ms = u32::from_le_bytes(left_ms);
                let left_ms = (left_ms != NO_DEADLINE).then_some(left_ms);
                let (context, value) = rest.split_at_checked(bytes)?;
                if bytes > CONTEXT_BYTES_MAX {
                    return None;
                }
                Some(Request::Call { slot, with: Some(With { left_ms, context }), value })
            }
            (CANCEL, []) => Some(Request::Cancel { slot }),
            (METHODS, keys)
                if keys.len() % KEY_BYTES == 0 && keys.len() / KEY_BYTES <= METHODS_MAX =>
            {
                Some(Request::Methods { keys })
            }
            _ => None,
        }
    }
}

/// Outcome of a call, in the words of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The answer's value follows.
    Value,
    /// The handler returned an error, whose text follows.
    Failed,
    /// The handler panicked; its message follows.
    Panicked,
    /// Too many requests wait; the request was not run.
    Overloaded,
    /// The call was cancelled.
    Cancelled,
    /// The service is closing; the request was not run.
    Closing,
    /// The request could not be decoded and was not run. The reason follows.
    Unreadable,
    /// The handler was done, but its answer cannot be sent. The reason follows.
    Unsendable,
    /// The deadline passed while the request waited; it was not run.
    Expired,
    /// The service has no such method, or has it with other types. Its own signature follows, if it has one
    /// of that number. The request was not run.
    NoMethod,
    /// A layer of the service refused the call, whose reason follows; the request was not run. Only services with
    /// layers say it.
    Refused,
}

const KINDS: [Kind; 11] = [
    Kind::Value,
    Kind::Failed,
    Kind::Panicked,
    Kind::Overloaded,
    Kind::Cancelled,
    Kind::Closing,
    Kind::Unreadable,
    Kind::Unsendable,
    Kind::Expired,
    Kind::NoMethod,
    Kind::Refused,
];

impl Kind {
    /// Returns the head of an answer, before its value or text.
    #[must_use]
    pub fn head(self, slot: u32) -> (u8, u32) {
        (self as u8, slot)
    }

    /// Returns the bytes of an answer with this text.
    #[must_use]
    pub fn with_text(self, slot: u32, text: &str) -> Vec<u8> {
        let mut bytes = head(self as u8, slot).to_vec();
        bytes.extend_from_slice(super::cut(text).as_bytes());
        bytes
    }
}

/// Parses an answer: the slot of its call, the outcome, and the value or text. `None` when it is no
/// word of a service.
#[must_use]
pub fn answer(message: &[u8]) -> Option<(u32, Kind, &[u8])> {
    let (kind, slot, rest) = split(message)?;
    let kind = KINDS.get(usize::from(kind))?;
    Some((slot, *kind, rest))
}
