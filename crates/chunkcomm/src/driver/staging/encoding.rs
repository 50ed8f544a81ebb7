//! Values on their way into a ring: encoded in place where there is room.

use super::{Staged, TxEnd};
use crate::driver::memory::free_vec;
use crate::error::SendError;
use crate::proto::codec::{self, EncodeError};
use crate::proto::limits::INLINE_BYTES_MAX;
use crate::proto::message;
use serde::Serialize;
use std::borrow::Borrow;
use std::sync::Arc;

/// Most messages that `send_all` commits at once: with more, the driver would learn late of the
/// first.
const COMMIT_MESSAGES_MAX: u32 = 64;

/// Largest scratch in bytes that a sender keeps. A larger one was made for a large message.
const SCRATCH_BYTES_MAX: usize = 4 * INLINE_BYTES_MAX;

impl TxEnd {
    /// Stages `value`, encoded in place. If there is no room, `value` is encoded in `scratch`.
    #[inline(always)]
    pub(crate) fn stage<T: Serialize>(
        &mut self,
        value: &T,
        scratch: &mut Vec<u8>,
    ) -> Result<Staged, SendError> {
        self.check_alive()?;
        let prefix = self.last_prefix;
        let out = self.producer.contiguous();
        if out.len() < prefix + self.last_bytes {
            return self.stage_slowly(value, scratch);
        }
        let end = out.len().min(prefix + INLINE_BYTES_MAX);
        match codec::encode_into_slice(value, &mut out[prefix..end]) {
            Ok(bytes) if message::prefix_bytes(bytes) == prefix => {
                message::write_prefix(bytes, out);
                self.last_bytes = bytes;
                self.producer.commit(prefix + bytes, 1);
                self.committed(prefix + bytes, 1)?;
                Ok(Staged::Done)
            }
            Ok(_) | Err(EncodeError::NoRoom) => self.stage_slowly(value, scratch),
            Err(error) => Err(SendError::Encode(Arc::new(error))),
        }
    }

    /// Stages values in place and commits them at once: as many as are like the last message and
    /// have room, at most [`COMMIT_MESSAGES_MAX`]. Returns their number, and a value that has to be
    /// staged with `stage`.
    #[inline]
    pub(crate) fn stage_many<T, V>(
        &mut self,
        values: &mut impl Iterator<Item = V>,
    ) -> Result<(u32, Option<V>), SendError>
    where
        T: Serialize,
        V: Borrow<T>,
    {
        let (prefix, last_bytes) = (self.last_prefix, self.last_bytes);
        let needed = prefix + last_bytes;
        let out = self.producer.contiguous();
        let (mut count, mut next) = (0, None);
        if prefix == 1 {
            // Short values of the same length as the last one, as all of a type may be.
            for slot in out.chunks_exact_mut(needed).take(COMMIT_MESSAGES_MAX as usize) {
                next = values.next();
                let (Some(value), Some((head, body))) = (&next, slot.split_first_mut()) else {
                    break;
                };
                let encoded = codec::encode_into_slice(value.borrow(), body);
                if !matches!(encoded, Ok(bytes) if bytes == last_bytes) {
                    break;
                }
                *head = last_bytes as u8;
                count += 1;
                next = None;
            }
        }
        let (mut at, mut last) = (count as usize * needed, last_bytes);
        while count < COMMIT_MESSAGES_MAX {
            next = next.or_else(|| values.next());
            let Some(value) = &next else { break };
            let end = out.len().min(at + prefix + INLINE_BYTES_MAX);
            if end < at + needed {
                break;
            }
            let room = &mut out[at..end];
            match codec::encode_into_slice(value.borrow(), &mut room[prefix..]) {
                Ok(bytes) if message::prefix_bytes(bytes) == prefix => {
                    message::write_prefix(bytes, room);
                    at += prefix + bytes;
                    last = bytes;
                    count += 1;
                    next = None;
                }
                _ => break,
            }
        }
        self.last_bytes = last;
        if count > 0 {
            self.producer.commit(at, count);
            self.committed(at, count)?;
        }
        Ok((count, next))
    }

    #[cold]
    #[inline(never)]
    fn stage_slowly<T: Serialize>(
        &mut self,
        value: &T,
        scratch: &mut Vec<u8>,
    ) -> Result<Staged, SendError> {
        // The ring may have been emptied since it was looked at last.
        let contiguous = self.producer.contiguous().len();
        self.look();
        let needed = self.last_prefix + self.last_bytes;
        if contiguous < needed && self.producer.contiguous().len() >= needed {
            return self.stage(value, scratch);
        }
        self.prepare(scratch);
        codec::encode_into_vec(value, scratch)
            .map_err(|error| SendError::Encode(Arc::new(error)))?;
        self.stage_scratch(scratch)
    }

    /// Empties `scratch` for the next message. After a large message it gets room for one as large.
    pub(crate) fn prepare(&mut self, scratch: &mut Vec<u8>) {
        if scratch.capacity() == 0 && self.last_large > 0 {
            *scratch = self.link.large_out.take(self.last_large);
        }
        scratch.clear();
    }

    /// Stages the encoded message in `scratch`. If the outcome is `Full`, the message stays there.
    pub(crate) fn stage_scratch(&mut self, scratch: &mut Vec<u8>) -> Result<Staged, SendError> {
        if scratch.len() <= self.inline_bytes_max {
            self.last_bytes = scratch.len();
            self.last_prefix = message::prefix_bytes(scratch.len());
            self.last_large = 0;
            let staged = self.stage_slice(scratch)?;
            if staged == Staged::Done && scratch.capacity() > SCRATCH_BYTES_MAX {
                free_vec(std::mem::take(scratch));
            }
            return Ok(staged);
        }
        self.last_bytes = 0;
        if self.takes_large(scratch.len())? == Staged::Full {
            return Ok(Staged::Full);
        }
        self.last_large = scratch.len();
        let message = self.link.large_out.lend(std::mem::take(scratch));
        self.push_large(message)
    }
}
