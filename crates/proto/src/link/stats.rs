//! Counters of a link by value.

use crate::tuning::flush::FlushCounts;

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
    /// Cycles of waits that a report of the peer brought to light, as in a node's `explain`.
    pub cycles: u64,
}

impl PeerStats {
    /// Returns the average number of messages in a packet that carried messages.
    #[must_use]
    pub fn messages_per_packet_mean(&self) -> f64 {
        self.messages_sent as f64 / self.message_packets_sent.max(1) as f64
    }

    /// Returns the average wait of a packet's oldest message, in microseconds.
    #[must_use]
    pub fn queueing_delay_us_mean(&self) -> f64 {
        self.queueing_delay_us_total as f64 / self.message_packets_sent.max(1) as f64
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
