//! State and counters of a channel that sends.

use super::{Beside, Outbox};
use crate::Time;
use crate::packet::{ChannelKind, Lane, StreamStart};
use crate::tuning::constants::SYSTEM_AHEAD_BYTES;
use crate::tuning::flush::{FlushCounts, FlushReason};
use crate::tuning::shares::Queue;
use bytes::Bytes;

/// Properties with which a channel begins.
#[derive(Debug, Clone)]
pub struct OpenSpec {
    /// The channel's lane.
    pub lane: Lane,
    /// Whether the channel is one of the library's own, which goes before the others of its
    /// lane. Known at this end alone.
    pub system: bool,
    /// Typed values or bytes.
    pub kind: ChannelKind,
    /// Fingerprint of the type.
    pub fingerprint: u64,
    /// The channel's part of a stream that the receiver settles.
    pub stream: Option<StreamStart>,
    /// Most bytes of the channel that are accepted and not consumed, if that is bounded.
    pub backlog: Option<u64>,
    /// The channel's name, at most 255 bytes.
    pub name: String,
}

/// Counters of a channel; a plain value.
#[derive(Debug, Clone, Copy, Default)]
pub struct ChannelCounters {
    /// Bytes of the channel's messages on the wire, prefixes included.
    pub bytes: u64,
    /// Packets with messages of the channel.
    pub packets: u64,
    /// Writes that these packets took.
    pub writes: u64,
    /// Most of the channel's messages in one packet.
    pub messages_per_packet_max: u64,
    /// Sum, over these packets, of the wait of the channel's oldest message, in microseconds.
    pub queueing_us_total: u64,
    /// Longest of these waits, in microseconds.
    pub queueing_us_max: u64,
    /// Waits for credit.
    pub credit_waits: u64,
    /// Numbers of these packets by the reason why they left.
    pub flushes: FlushCounts,
}

/// Reason why a channel cannot send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Blocked {
    /// Nothing: the channel can send.
    #[default]
    No,
    /// The channel's credit is used up.
    Credit,
    /// The channel's open waits for credit.
    Open,
}

/// State of a channel.
#[derive(Debug, Clone, Copy, Default)]
pub struct ChannelState {
    /// Reason why the channel cannot send.
    pub blocked: Blocked,
    /// Bytes that the channel may still send.
    pub credit_bytes: u64,
    /// Bytes that the channel has sent.
    pub sent_bytes: u64,
    /// Time when the oldest of the waiting messages was staged.
    pub oldest: Time,
}

/// A channel that sends.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) counters: ChannelCounters,
    pub(super) spec: OpenSpec,
    pub(super) opened: bool,
    /// Whether there was open credit for it.
    pub(super) admitted: bool,
    pub(super) credit: u64,
    pub(super) sent_bytes: u64,
    pub(super) sent_messages: u64,
    pub(super) large: Option<Large>,
    /// Round of its lane that the channel has come to.
    pub(super) round: u64,
    /// Bytes by which the channel goes before the others of its lane.
    pub(super) ahead: u64,
    /// Whether the channel is in a lane's queue.
    pub(super) queued: bool,
    /// Whether something is staged without credit for it.
    pub(super) blocked: bool,
    pub(super) oldest: Time,
    pub(super) urgent_until: u64,
    pub(super) explicit_until: u64,
    /// Number of messages behind which a message waits for room.
    pub(super) fit_until: u64,
    pub(super) end: Option<u64>,
    /// Whether the channel ends when nothing is staged any more.
    pub(super) end_when_drained: bool,
    /// Whether its end was put in a packet.
    pub(super) ended: bool,
    /// Packet in which the channel had its last turn; below, the messages and bytes sent before
    /// that packet.
    pub(super) turn: u64,
    pub(super) before: (u64, u64),
}

/// Bytes beside the ring on their way.
#[derive(Debug)]
pub(super) struct Large {
    pub(super) bytes: Bytes,
    pub(super) offset: usize,
    /// For a run: the number of its messages behind `offset`.
    pub(super) run: Option<u32>,
}

impl From<Beside> for Large {
    fn from(beside: Beside) -> Large {
        match beside {
            Beside::Large(bytes) => Large { bytes, offset: 0, run: None },
            Beside::Run(bytes, messages) => Large { bytes, offset: 0, run: Some(messages) },
        }
    }
}

impl Channel {
    /// Creates a channel that begins at `now` and has no credit yet.
    pub(super) fn new(spec: OpenSpec, now: Time) -> Channel {
        let first = spec.stream.map_or(0, |stream| stream.first);
        Channel {
            counters: ChannelCounters::default(),
            ahead: if spec.system { SYSTEM_AHEAD_BYTES } else { 0 },
            spec,
            opened: false,
            admitted: false,
            credit: 0,
            sent_bytes: 0,
            sent_messages: first,
            large: None,
            round: 0,
            queued: false,
            blocked: false,
            oldest: now,
            urgent_until: 0,
            explicit_until: 0,
            fit_until: 0,
            end: None,
            end_when_drained: false,
            ended: false,
            turn: 0,
            before: (0, 0),
        }
    }

    /// Whether a message that is to leave at once was not sent yet.
    #[inline]
    pub(super) fn is_urgent(&self) -> bool {
        self.urgent_until > self.sent_messages
    }

    /// Sets whether something is staged without credit for it, and keeps the `count` of channels
    /// of which that is so.
    #[inline]
    pub(super) fn set_blocked(&mut self, blocked: bool, count: &mut usize) {
        *count = *count + usize::from(blocked) - usize::from(self.blocked);
        self.blocked = blocked;
    }

    /// Enters `queue` under its number `id`.
    #[inline]
    pub(super) fn enter(&mut self, id: u32, queue: &mut Queue) {
        self.queued = true;
        self.round = queue.push(id, self.round, self.ahead);
        queue.urgent += usize::from(self.is_urgent());
    }

    /// Leaves `queue`, from which it was popped, for a turn.
    #[inline]
    pub(super) fn leave(&mut self, queue: &mut Queue) {
        self.queued = false;
        queue.urgent -= usize::from(self.is_urgent());
    }

    /// Notes a turn in `packet`; true at the first one.
    #[inline]
    pub(super) fn begins(&mut self, packet: u64) -> bool {
        let begins = self.turn != packet;
        if begins {
            self.turn = packet;
            self.before = (self.sent_messages, self.sent_bytes);
        }
        begins
    }

    /// Counts the channel's turns in a packet; returns the bytes that they put in.
    #[inline]
    pub(super) fn count(&mut self, now: Time) -> u64 {
        let counters = &mut self.counters;
        let (messages, bytes) =
            (self.sent_messages - self.before.0, self.sent_bytes - self.before.1);
        if bytes == 0 {
            return 0;
        }
        let waited = now.micros_since(self.oldest);
        counters.bytes += bytes;
        counters.packets += 1;
        counters.messages_per_packet_max = counters.messages_per_packet_max.max(messages);
        counters.queueing_us_total += waited;
        counters.queueing_us_max = counters.queueing_us_max.max(waited);
        bytes
    }
}

impl Outbox {
    /// Counts that the packet that was filled last left for `reason`.
    #[inline]
    pub fn count_flush(&mut self, reason: FlushReason) {
        for channel in &self.turns {
            if let Some(channel) = self.channels.get_mut(*channel) {
                channel.counters.flushes.add(reason);
            }
        }
    }

    /// Counts the `writes` that the packet that was filled last took.
    #[inline]
    pub fn count_writes(&mut self, writes: u64) {
        for channel in &self.turns {
            if let Some(channel) = self.channels.get_mut(*channel) {
                channel.counters.writes += writes;
            }
        }
        self.turns.clear();
    }

    /// Returns the state of `channel`.
    #[must_use]
    pub fn state(&self, channel: u32) -> ChannelState {
        let Some(entry) = self.channels.get(channel) else { return ChannelState::default() };
        ChannelState {
            blocked: match (entry.admitted, entry.blocked) {
                (false, _) => Blocked::Open,
                (true, true) => Blocked::Credit,
                (true, false) => Blocked::No,
            },
            credit_bytes: entry.credit.saturating_sub(entry.sent_bytes),
            sent_bytes: entry.sent_bytes,
            oldest: entry.oldest,
        }
    }

    /// Returns the counters of `channel`, while it lasts.
    #[must_use]
    #[inline]
    pub fn counters(&self, channel: u32) -> Option<&ChannelCounters> {
        self.channels.get(channel).map(|entry| &entry.counters)
    }
}
