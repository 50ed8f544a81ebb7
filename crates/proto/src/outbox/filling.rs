//! One channel's turn in a packet: how much of its staged messages goes in.

use super::channel::{Channel, Large};
use super::longs::Longs;
use super::{Beside, Filled, Staged};
use crate::limits::{
    FRAGMENT_BYTES_MAX, FRAGMENT_BYTES_MIN, PACKET_BYTES_DEFAULT, PACKET_OVERHEAD_BYTES,
};
use crate::message;
use crate::packet::{AppendRecords, FRAGMENT_HEAD_BYTES, RECORD_BYTES, STREAM_BYTES};
use crate::session::{Carried, Session};
use bytes::Bytes;

/// Outcome of a turn.
pub(super) enum Put {
    /// Everything that the channel has is in, or its share is used up: the next channel's turn.
    Done { more: bool },
    /// The channel has no credit for what is next.
    Blocked,
    /// The channel's end is in.
    Ended,
    /// The rest of the packet holds no more of the channel.
    NoRoom,
    /// The packet ends with a slice of its own, of a run.
    Tail(Bytes),
    /// The packet ends with a fragment.
    Fragment(Bytes),
}

/// One channel's turn in a packet.
pub(super) struct Putting<'a, S> {
    pub(super) id: u32,
    pub(super) channel: &'a mut Channel,
    pub(super) staged: &'a mut S,
    pub(super) session: &'a mut Session,
    pub(super) carried: &'a mut Vec<Carried>,
    pub(super) longs: &'a mut Longs,
    /// Largest size of the packet with a fragment.
    pub(super) fragment_end: usize,
    /// Whether a packet holds only one message.
    pub(super) one: bool,
    pub(super) filled: &'a mut Filled,
}

impl<S: Staged> Putting<'_, S> {
    /// Puts in as much as fits of the channel's share of `share` bytes.
    #[inline]
    pub(super) fn put(&mut self, head: &mut Vec<u8>, bytes_max: usize, share: usize) -> Put {
        if !self.channel.opened && !self.put_open(head, bytes_max) {
            return Put::NoRoom;
        }
        let terminated = self.channel.end.is_some_and(|end| end <= self.channel.sent_messages);
        if terminated {
            return self.put_end(head, bytes_max);
        }
        let share_end = (head.len() + share).min(bytes_max);
        loop {
            match &self.channel.large {
                None => {}
                Some(Large { run: None, .. }) => return self.put_fragment(head, bytes_max),
                Some(Large { run: Some(_), .. }) => return self.put_shared(head, bytes_max),
            }
            if let Some(outcome) = self.put_run(head, bytes_max, share_end) {
                return outcome;
            }
        }
    }

    /// Puts the open in; false when it does not fit.
    #[cold]
    #[inline(never)]
    fn put_open(&mut self, head: &mut Vec<u8>, bytes_max: usize) -> bool {
        let spec = &self.channel.spec;
        let bytes = RECORD_BYTES + STREAM_BYTES + spec.name.len();
        if bytes_max.saturating_sub(head.len()) < bytes {
            return false;
        }
        let has = (spec.stream, spec.backlog);
        head.open_for(self.id, spec.lane, spec.kind, spec.fingerprint, has, &spec.name);
        self.channel.opened = true;
        self.carry(false);
        true
    }

    /// Puts a run in; `None` when a large message is next.
    #[inline]
    fn put_run(&mut self, head: &mut Vec<u8>, bytes_max: usize, share_end: usize) -> Option<Put> {
        let credit = (self.channel.credit - self.channel.sent_bytes) as usize;
        let view = self.staged.view(self.id);
        let total = view.front.len() + view.back.len();
        if total == 0 {
            // Reports that the channel was found empty.
            self.staged.consume(self.id, 0, 0);
            return Some(self.put_end(head, bytes_max));
        }
        let space = bytes_max.saturating_sub(head.len() + RECORD_BYTES);
        let share = share_end.saturating_sub(head.len() + RECORD_BYTES);
        let whole = !view.large && !self.one && total <= share.min(credit);
        let taken = if whole {
            message::Walk { bytes: total, messages: view.messages, at_large: false }
        } else {
            let messages_max = if self.one { 1 } else { u32::MAX };
            // At least one message, if the packet has room for it.
            let walk = message::walk(view.front, view.back, share.min(credit), messages_max);
            if walk.messages > 0 || walk.at_large {
                walk
            } else {
                message::walk(view.front, view.back, space.min(credit), 1)
            }
        };
        if taken.messages == 0 {
            return self.nothing_fits(taken, bytes_max, space, credit);
        }
        head.run(self.id, taken.bytes as u32, taken.messages);
        let front = view.front.len().min(taken.bytes);
        head.extend_from_slice(&view.front[..front]);
        head.extend_from_slice(&view.back[..taken.bytes - front]);
        self.staged.consume(self.id, taken.bytes, taken.messages);
        self.channel.sent_bytes += taken.bytes as u64;
        self.sent(taken.messages);
        if taken.at_large && !self.one {
            return None;
        }
        let more = taken.bytes < total;
        if more || self.one {
            Some(Put::Done { more: true })
        } else {
            Some(self.put_end(head, bytes_max))
        }
    }

    #[inline(never)]
    fn nothing_fits(
        &mut self,
        taken: message::Walk,
        bytes_max: usize,
        space: usize,
        credit: usize,
    ) -> Option<Put> {
        if taken.at_large {
            // A message counts when it is complete.
            self.channel.large = Some(self.staged.take_beside(self.id).into());
            return None;
        }
        let view = self.staged.view(self.id);
        if let Some((prefix, length)) = message::first(view.front, view.back)
            && PACKET_OVERHEAD_BYTES + prefix + length > bytes_max
        {
            // The message was staged before it was known that the peer takes small packets: it
            // leaves in fragments.
            let (front, back) = (view.front, view.back);
            let whole = front.iter().chain(back).skip(prefix).take(length).copied();
            let bytes = whole.collect();
            self.staged.consume(self.id, prefix + length, 1);
            self.channel.large = Some(Beside::Large(bytes).into());
            return None;
        }
        if credit < space {
            return Some(Put::Blocked);
        }
        Some(Put::NoRoom)
    }

    #[inline(never)]
    fn put_fragment(&mut self, head: &mut Vec<u8>, bytes_max: usize) -> Put {
        let Some(large) = &mut self.channel.large else { return Put::Done { more: true } };
        if bytes_max.saturating_sub(head.len()) < FRAGMENT_HEAD_BYTES {
            return Put::NoRoom;
        }
        let credit = (self.channel.credit - self.channel.sent_bytes) as usize;
        let left = large.bytes.len() - large.offset;
        let room = self.fragment_end - head.len() - FRAGMENT_HEAD_BYTES;
        if room < left.min(FRAGMENT_BYTES_MIN) {
            return Put::NoRoom;
        }
        let bytes = left.min(FRAGMENT_BYTES_MAX).min(credit).min(room);
        if bytes < left.min(FRAGMENT_BYTES_MIN) {
            return Put::Blocked;
        }
        head.fragment(self.id, large.bytes.len() as u64, bytes as u32);
        if large.offset == 0 {
            self.longs.begins(self.id, self.channel.sent_bytes, large.bytes.len() as u64);
        }
        let tail = large.bytes.slice(large.offset..large.offset + bytes);
        large.offset += bytes;
        self.channel.sent_bytes += bytes as u64;
        if bytes == left {
            self.channel.large = None;
            self.sent(1);
        }
        Put::Fragment(tail)
    }

    /// Puts messages of a shared run in, which end the packet: nothing is copied.
    #[inline(never)]
    fn put_shared(&mut self, head: &mut Vec<u8>, bytes_max: usize) -> Put {
        let Some(Large { bytes, offset, run: Some(left) }) = &mut self.channel.large else {
            return Put::Done { more: true };
        };
        let packet_end = bytes_max.max(PACKET_BYTES_DEFAULT).min(self.fragment_end);
        let space = packet_end.saturating_sub(head.len() + RECORD_BYTES);
        let credit = (self.channel.credit - self.channel.sent_bytes) as usize;
        let rest = &bytes[*offset..];
        let walk = if !self.one && rest.len() <= space.min(credit) {
            message::Walk { bytes: rest.len(), messages: *left, at_large: false }
        } else {
            let messages_max = if self.one { 1 } else { u32::MAX };
            message::walk(rest, &[], space.min(credit), messages_max)
        };
        if walk.messages == 0 {
            return if credit < space { Put::Blocked } else { Put::NoRoom };
        }
        head.run(self.id, walk.bytes as u32, walk.messages);
        let tail = bytes.slice(*offset..*offset + walk.bytes);
        *offset += walk.bytes;
        *left -= walk.messages;
        if *left == 0 {
            self.channel.large = None;
        }
        self.channel.sent_bytes += walk.bytes as u64;
        self.sent(walk.messages);
        Put::Tail(tail)
    }

    /// Puts the end in, if there is one. Called with nothing staged, or nothing that is to be
    /// sent.
    #[inline]
    fn put_end(&mut self, head: &mut Vec<u8>, bytes_max: usize) -> Put {
        if !self.channel.end_when_drained && self.channel.end.is_none() {
            return Put::Done { more: false };
        }
        self.put_end_if_due(head, bytes_max)
    }

    #[cold]
    #[inline(never)]
    fn put_end_if_due(&mut self, head: &mut Vec<u8>, bytes_max: usize) -> Put {
        if self.channel.end_when_drained {
            let view = self.staged.view(self.id);
            if !view.front.is_empty() || !view.back.is_empty() {
                // A ring that grew shows its next part when the one before is empty.
                return Put::Done { more: true };
            }
            self.channel.end_when_drained = false;
            self.channel.end = Some(self.channel.sent_messages);
        }
        if self.channel.end != Some(self.channel.sent_messages) {
            return Put::Done { more: false };
        }
        if bytes_max.saturating_sub(head.len()) < RECORD_BYTES {
            return Put::NoRoom;
        }
        head.end(self.id, self.channel.sent_messages);
        self.channel.end = None;
        self.channel.ended = true;
        self.carry(true);
        Put::Ended
    }

    #[inline]
    fn sent(&mut self, messages: u32) {
        self.channel.sent_messages += u64::from(messages);
        self.filled.messages += messages;
        let oldest = self.channel.oldest;
        self.filled.oldest = Some(self.filled.oldest.map_or(oldest, |seen| seen.min(oldest)));
        self.carry(false);
    }

    #[inline]
    fn carry(&mut self, end: bool) {
        let messages = self.channel.sent_messages;
        let carried = Carried { channel: self.id, messages, end };
        self.session.carry(carried);
        self.carried.push(carried);
        self.filled.entries += 1;
    }
}
