//! Appending records to a packet.

use super::{
    ChannelKind, KIND_BYE, KIND_CONSUMED, KIND_CREDIT, KIND_DESCRIBE, KIND_END, KIND_FRAGMENT,
    KIND_GONE, KIND_MEMORY, KIND_OPEN, KIND_OPEN_CREDIT, KIND_READS, KIND_REFUSE, KIND_RUN,
    KIND_SETTLED, KIND_TERMINATE, KIND_WAIT, Lane, OPEN_BACKLOG, OPEN_BYTES, OPEN_EXPRESS,
    OPEN_STREAM, RECORD_BYTES, Refusal, SETTLED_LAST, StreamStart,
};
use crate::limits::TEXT_BYTES_MAX;
use crate::plain::cut;

/// Appends records to a packet's body.
pub trait AppendRecords {
    /// Appends the header of a run; its messages follow.
    fn run(&mut self, channel: u32, bytes: u32, messages: u32);
    /// Appends the head of a fragment of a message; `bytes` of the message follow.
    fn fragment(&mut self, channel: u32, message_bytes: u64, bytes: u32);
    /// Appends the open of a channel.
    fn open(&mut self, channel: u32, lane: Lane, kind: ChannelKind, fingerprint: u64, name: &str) {
        self.open_for(channel, lane, kind, fingerprint, (None, None), name);
    }
    /// Appends the open of a channel, with its part of a stream and its backlog, if it has them.
    fn open_for(
        &mut self,
        channel: u32,
        lane: Lane,
        kind: ChannelKind,
        fingerprint: u64,
        has: (Option<StreamStart>, Option<u64>),
        name: &str,
    );
    /// Appends the end of a channel after `messages` in all: its sender is done.
    fn end(&mut self, channel: u32, messages: u64);
    /// Appends that a channel's receiver is gone.
    fn terminate(&mut self, channel: u32);
    /// Appends the number of bytes that a channel may send in all.
    fn credit(&mut self, channel: u32, total: u64);
    /// Appends the bytes of initial windows that may be opened in all.
    fn open_credit(&mut self, total: u64);
    /// Appends the refusal of an open.
    fn refuse(&mut self, channel: u32, refusal: Refusal, text: &str);
    /// Appends the type of a refused channel's sender.
    fn describe(&mut self, channel: u32, text: &str);
    /// Appends the clean end of the session.
    fn bye(&mut self);
    /// Appends that the session was given up.
    fn gone(&mut self);
    /// Appends a chain of waits, the last of them for the peer.
    fn wait(&mut self, number: u64, chain: &[u8]);
    /// Appends that a channel's receiver has settled `total` messages of its stream in all.
    fn settled(&mut self, channel: u32, total: u64, last: bool);
    /// Appends that the receiver of a channel with a backlog has consumed `total` bytes in all.
    fn consumed(&mut self, channel: u32, total: u64);
    /// Appends where in our memory there is which word.
    fn memory(&mut self, address: u64, word: u128);
    /// Appends that the peer's word was read.
    fn reads(&mut self);
}

impl AppendRecords for Vec<u8> {
    #[inline]
    fn run(&mut self, channel: u32, bytes: u32, messages: u32) {
        record(self, KIND_RUN, 0, 0, channel, u64::from(bytes) | (u64::from(messages) << 32));
    }

    fn fragment(&mut self, channel: u32, message_bytes: u64, bytes: u32) {
        record(self, KIND_FRAGMENT, 0, 0, channel, message_bytes);
        self.extend_from_slice(&u64::from(bytes).to_le_bytes());
    }

    fn open_for(
        &mut self,
        channel: u32,
        lane: Lane,
        kind: ChannelKind,
        fingerprint: u64,
        (stream, backlog): (Option<StreamStart>, Option<u64>),
        name: &str,
    ) {
        let express = if lane == Lane::Express { OPEN_EXPRESS } else { 0 };
        let bytes = if kind == ChannelKind::Bytes { OPEN_BYTES } else { 0 };
        let settled = if stream.is_some() { OPEN_STREAM } else { 0 };
        let bounded = if backlog.is_some() { OPEN_BACKLOG } else { 0 };
        let flags = express | bytes | settled | bounded;
        record(self, KIND_OPEN, flags, name.len() as u16, channel, fingerprint);
        if let Some(StreamStart { id, first, sent_before }) = stream {
            self.extend_from_slice(&id.to_le_bytes());
            self.extend_from_slice(&first.to_le_bytes());
            self.extend_from_slice(&sent_before.to_le_bytes());
        }
        if let Some(backlog) = backlog {
            self.extend_from_slice(&backlog.to_le_bytes());
        }
        self.extend_from_slice(name.as_bytes());
    }

    fn end(&mut self, channel: u32, messages: u64) {
        record(self, KIND_END, 0, 0, channel, messages);
    }

    fn terminate(&mut self, channel: u32) {
        record(self, KIND_TERMINATE, 0, 0, channel, 0);
    }

    fn credit(&mut self, channel: u32, total: u64) {
        record(self, KIND_CREDIT, 0, 0, channel, total);
    }

    fn open_credit(&mut self, total: u64) {
        record(self, KIND_OPEN_CREDIT, 0, 0, 0, total);
    }

    fn refuse(&mut self, channel: u32, refusal: Refusal, text: &str) {
        let reason = match refusal {
            Refusal::TypeMismatch => 1,
            Refusal::NotAccepted => 2,
            Refusal::KindMismatch => 3,
        };
        let text = cut(text, TEXT_BYTES_MAX);
        record(self, KIND_REFUSE, 0, text.len() as u16, channel, reason);
        self.extend_from_slice(text.as_bytes());
    }

    fn describe(&mut self, channel: u32, text: &str) {
        let text = cut(text, TEXT_BYTES_MAX);
        record(self, KIND_DESCRIBE, 0, text.len() as u16, channel, 0);
        self.extend_from_slice(text.as_bytes());
    }

    fn bye(&mut self) {
        record(self, KIND_BYE, 0, 0, 0, 0);
    }

    fn gone(&mut self) {
        record(self, KIND_GONE, 0, 0, 0, 0);
    }

    fn wait(&mut self, number: u64, chain: &[u8]) {
        record(self, KIND_WAIT, 0, chain.len() as u16, 0, number);
        self.extend_from_slice(chain);
    }

    fn settled(&mut self, channel: u32, total: u64, last: bool) {
        record(self, KIND_SETTLED, if last { SETTLED_LAST } else { 0 }, 0, channel, total);
    }

    fn consumed(&mut self, channel: u32, total: u64) {
        record(self, KIND_CONSUMED, 0, 0, channel, total);
    }

    fn memory(&mut self, address: u64, word: u128) {
        record(self, KIND_MEMORY, 0, 0, 0, address);
        self.extend_from_slice(&word.to_le_bytes());
    }

    fn reads(&mut self) {
        record(self, KIND_READS, 0, 0, 0, 0);
    }
}

fn record(out: &mut Vec<u8>, kind: u8, flags: u8, aux: u16, channel: u32, value: u64) {
    let mut bytes = [0; RECORD_BYTES];
    bytes[0] = kind;
    bytes[1] = flags;
    bytes[2..4].copy_from_slice(&aux.to_le_bytes());
    bytes[4..8].copy_from_slice(&channel.to_le_bytes());
    bytes[8..16].copy_from_slice(&value.to_le_bytes());
    out.extend_from_slice(&bytes);
}
