//! Counters by value, of a peer and of a channel.

pub use crate::proto::link::PeerStats;
pub use crate::proto::trace;
pub use crate::proto::tuning::flush::{FlushCounts, FlushReason};

fn ratio(sum: u64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { sum as f64 / count as f64 }
}

/// Counts of a sending channel so far. Packets count once they were written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChannelStats {
    /// Messages accepted by `send`.
    pub accepted: u64,
    /// Messages of these that were handed to the transport.
    pub written: u64,
    /// Messages of these that are known to be in the peer's inbox.
    pub acknowledged: u64,
    /// Messages of these that the receiver has settled; 0 on a channel without settling.
    pub settled: u64,
    /// Accepted messages that are or were in the log of a redelivering sender; 0 without a log.
    /// With a log, this and the four counts before it begin with the first message of the stream,
    /// which an earlier process may have sent.
    pub stored: u64,
    /// Bytes that were written to the log since it was opened.
    pub log_bytes: u64,
    /// Calls of `fsync` for messages in the log since it was opened.
    pub log_syncs: u64,
    /// Bytes of the channel's messages that were put in packets.
    pub bytes: u64,
    /// Packets with messages of the channel.
    pub packets: u64,
    /// Writes of these packets, without those written again on a later connection. A packet with
    /// messages of several channels counts for each.
    pub writes: u64,
    /// Most messages of the channel in one packet.
    pub messages_per_packet_max: u64,
    /// These packets by the reason why they left.
    pub flushes: FlushCounts,
    /// Sum over these packets of the wait of the channel's oldest message, in microseconds.
    pub queueing_delay_us_total: u64,
    /// Longest of these waits, in microseconds.
    pub queueing_delay_us_max: u64,
    /// Number of times that something was staged and there was no credit for it.
    pub credit_waits: u64,
    /// Bytes of the ring that stages the channel's messages.
    pub ring_bytes: usize,
    /// Number of times that `send` had to wait for room.
    pub send_waits: u64,
}

impl ChannelStats {
    /// Returns the average number of the channel's messages in a packet.
    #[must_use]
    pub fn messages_per_packet_mean(&self) -> f64 {
        ratio(self.written, self.packets)
    }
}

/// Counts of a receiver, for the messages taken from its channel so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceivingStats {
    /// Messages taken.
    pub messages: u64,
    /// Bytes of these messages, with the prefixes of small ones.
    pub bytes: u64,
    /// Runs in which the small messages arrived, the current one included. Runs that waited may be
    /// joined to one.
    pub runs: u64,
    /// Messages of these that arrived by themselves, in fragments.
    pub large_messages: u64,
}

impl ReceivingStats {
    /// Returns the average number of small messages in a run.
    #[must_use]
    pub fn messages_per_run_mean(&self) -> f64 {
        ratio(self.messages - self.large_messages, self.runs)
    }
}
