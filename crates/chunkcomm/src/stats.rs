//! Counters by value, of a peer and of a channel.

use crate::proto::link::LinkCounters;
pub use crate::proto::tuning::flush::FlushCounts;

/// Traffic between this node and one peer since their session began.
///
/// The counts are taken when the link's driver rests: while it runs they may be some packets
/// behind.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct PeerStats {
    /// Messages that were put in packets.
    pub messages_sent: u64,
    /// Packets sent, those of acknowledgements and credit included.
    pub packets_sent: u64,
    /// Packets that carried messages, opens or ends; each has one flush reason.
    pub message_packets_sent: u64,
    /// Bytes of all packets sent.
    pub packet_bytes_sent: u64,
    /// System calls that wrote.
    pub writes: u64,
    /// System calls that read.
    pub reads: u64,
    /// Most messages in one packet.
    pub messages_per_packet_max: u64,
    /// Packets with messages, by the reason why they left.
    pub flushes: FlushCounts,
    /// Sum over packets of the wait of the oldest message, in microseconds.
    pub queueing_delay_us_total: u64,
    /// Longest wait of a packet's oldest message, in microseconds.
    pub queueing_delay_us_max: u64,
    /// Number of times that a channel had something to send and no credit for it.
    pub credit_waits: u64,
    /// Packets received.
    pub packets_received: u64,
    /// Bytes of all packets received.
    pub packet_bytes_received: u64,
    /// Messages received.
    pub messages_received: u64,
    /// Connections that replaced a lost one.
    pub resumes: u64,
    /// Packets that were written again on such a connection.
    pub packets_resent: u64,
    /// Packets that were received again and skipped.
    pub packets_duplicate: u64,
    /// Cycles of waits that a report of the peer brought to light, as in
    /// [`Node::explain`](crate::Node::explain).
    pub cycles: u64,
}

impl PeerStats {
    pub(crate) fn from_counters(
        counters: &LinkCounters,
        writes: u64,
        reads: u64,
        duplicates: u64,
    ) -> PeerStats {
        PeerStats {
            resumes: counters.resumes,
            packets_resent: counters.packets_resent,
            packets_duplicate: duplicates,
            cycles: counters.cycles,
            messages_sent: counters.messages_sent,
            packets_sent: counters.packets_sent,
            message_packets_sent: counters.message_packets,
            packet_bytes_sent: counters.bytes_sent,
            writes,
            reads,
            messages_per_packet_max: counters.messages_per_packet_max,
            flushes: counters.flushes,
            queueing_delay_us_total: counters.queueing_us_total,
            queueing_delay_us_max: counters.queueing_us_max,
            credit_waits: counters.credit_waits,
            packets_received: counters.packets_received,
            packet_bytes_received: counters.bytes_received,
            messages_received: counters.messages_received,
        }
    }

    /// Returns the average number of messages in a packet that carried messages.
    #[must_use]
    pub fn messages_per_packet_mean(&self) -> f64 {
        ratio(self.messages_sent, self.message_packets_sent)
    }

    /// Returns the average wait of a packet's oldest message, in microseconds.
    #[must_use]
    pub fn queueing_delay_us_mean(&self) -> f64 {
        ratio(self.queueing_delay_us_total, self.message_packets_sent)
    }

    /// Returns the sums of both counts; of the maxima, the larger one.
    #[must_use]
    pub fn plus(&self, other: &PeerStats) -> PeerStats {
        PeerStats {
            messages_sent: self.messages_sent + other.messages_sent,
            packets_sent: self.packets_sent + other.packets_sent,
            message_packets_sent: self.message_packets_sent + other.message_packets_sent,
            packet_bytes_sent: self.packet_bytes_sent + other.packet_bytes_sent,
            writes: self.writes + other.writes,
            reads: self.reads + other.reads,
            messages_per_packet_max: self
                .messages_per_packet_max
                .max(other.messages_per_packet_max),
            flushes: self.flushes.plus(&other.flushes),
            queueing_delay_us_total: self.queueing_delay_us_total + other.queueing_delay_us_total,
            queueing_delay_us_max: self.queueing_delay_us_max.max(other.queueing_delay_us_max),
            credit_waits: self.credit_waits + other.credit_waits,
            packets_received: self.packets_received + other.packets_received,
            packet_bytes_received: self.packet_bytes_received + other.packet_bytes_received,
            messages_received: self.messages_received + other.messages_received,
            resumes: self.resumes + other.resumes,
            packets_resent: self.packets_resent + other.packets_resent,
            packets_duplicate: self.packets_duplicate + other.packets_duplicate,
            cycles: self.cycles + other.cycles,
        }
    }
}

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
