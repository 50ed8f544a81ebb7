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
        self.combined(other, u64::saturating_add, u64::max)
    }

    /// Returns the counts since `earlier`; the maxima are still those since the session began.
    #[must_use]
    pub fn since(&self, earlier: &PeerStats) -> PeerStats {
        self.combined(earlier, u64::saturating_sub, |now, _| now)
    }

    fn combined(
        &self,
        other: &PeerStats,
        count: fn(u64, u64) -> u64,
        maximum: fn(u64, u64) -> u64,
    ) -> PeerStats {
        let of = |combine: fn(u64, u64) -> u64, field: fn(&PeerStats) -> u64| {
            combine(field(self), field(other))
        };
        PeerStats {
            messages_sent: of(count, |it| it.messages_sent),
            packets_sent: of(count, |it| it.packets_sent),
            message_packets_sent: of(count, |it| it.message_packets_sent),
            packet_bytes_sent: of(count, |it| it.packet_bytes_sent),
            writes: of(count, |it| it.writes),
            reads: of(count, |it| it.reads),
            messages_per_packet_max: of(maximum, |it| it.messages_per_packet_max),
            flushes: self.flushes.combined(&other.flushes, count),
            queueing_delay_us_total: of(count, |it| it.queueing_delay_us_total),
            queueing_delay_us_max: of(maximum, |it| it.queueing_delay_us_max),
            credit_waits: of(count, |it| it.credit_waits),
            packets_received: of(count, |it| it.packets_received),
            packet_bytes_received: of(count, |it| it.packet_bytes_received),
            messages_received: of(count, |it| it.messages_received),
            resumes: of(count, |it| it.resumes),
            packets_resent: of(count, |it| it.packets_resent),
            packets_duplicate: of(count, |it| it.packets_duplicate),
            cycles: of(count, |it| it.cycles),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::flush::FlushReason;

    #[test]
    fn counts_are_summed_and_subtracted_and_maxima_kept() {
        let mut one =
            PeerStats { messages_sent: 10, message_packets_sent: 4, ..Default::default() };
        one.messages_per_packet_max = 3;
        one.flushes.add(FlushReason::Full);
        let more = PeerStats { messages_sent: 5, messages_per_packet_max: 2, ..one };
        let both = one.plus(&more);
        assert_eq!((both.messages_sent, both.message_packets_sent), (15, 8));
        assert_eq!((both.flushes.get(FlushReason::Full), both.messages_per_packet_max), (2, 3));
        let since = both.since(&one);
        assert_eq!((since.messages_sent, since.message_packets_sent), (5, 4));
        assert_eq!((since.flushes.get(FlushReason::Full), since.messages_per_packet_max), (1, 3));
        assert_eq!(since.messages_per_packet_mean(), 1.25);
        assert_eq!(PeerStats::default().messages_per_packet_mean(), 0.0);
    }
}
