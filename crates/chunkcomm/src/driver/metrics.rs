//! The counters of a link through the `metrics` facade, from time to time.

use super::link::Driver;
use crate::proto::Time;
use crate::proto::tuning::flush::FlushReason;
use crate::stats::PeerStats;
use std::time::Duration;

/// Shortest time between two publications.
const EVERY: Duration = Duration::from_millis(100);

impl Driver {
    /// Publishes the counters. If the last publication is too recent, returns when to come back.
    pub(super) fn publish_metrics(&mut self, now: Time) -> Option<Time> {
        let stats = self.channels.shared.stats();
        if stats.packets_sent + stats.packets_received == self.metrics.1 {
            return None;
        }
        if now < self.metrics.0 {
            return Some(self.metrics.0);
        }
        self.metrics = (now.after(EVERY), stats.packets_sent + stats.packets_received);
        publish(&self.channels.shared.peer.name, &stats);
        None
    }

    /// Publishes the final counters.
    pub(super) fn publish_last_metrics(&self) {
        publish(&self.channels.shared.peer.name, &self.channels.shared.stats());
    }
}

fn publish(peer: &str, stats: &PeerStats) {
    let counters = [
        ("chunkcomm_messages_sent_total", stats.messages_sent),
        ("chunkcomm_messages_received_total", stats.messages_received),
        ("chunkcomm_packets_sent_total", stats.packets_sent),
        ("chunkcomm_packets_received_total", stats.packets_received),
        ("chunkcomm_bytes_sent_total", stats.packet_bytes_sent),
        ("chunkcomm_bytes_received_total", stats.packet_bytes_received),
        ("chunkcomm_writes_total", stats.writes),
        ("chunkcomm_reads_total", stats.reads),
        ("chunkcomm_credit_waits_total", stats.credit_waits),
        ("chunkcomm_resumes_total", stats.resumes),
        ("chunkcomm_packets_resent_total", stats.packets_resent),
        ("chunkcomm_cycles_total", stats.cycles),
        ("chunkcomm_queueing_delay_microseconds_total", stats.queueing_delay_us_total),
    ];
    for (name, value) in counters {
        metrics::counter!(name, "peer" => peer.to_owned()).absolute(value);
    }
    for reason in FlushReason::ALL {
        let labels = [("peer", peer.to_owned()), ("reason", reason.name().to_owned())];
        metrics::counter!("chunkcomm_flushes_total", &labels).absolute(stats.flushes.get(reason));
    }
}
