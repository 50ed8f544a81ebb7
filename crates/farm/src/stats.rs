//! What a run did, in numbers.

use std::time::Duration;

use chunkcomm::{FlushReason, PeerStats};

use crate::name::WorkerName;

/// What one worker did in a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkerStats {
    /// Which worker.
    pub worker: WorkerName,
    /// Tasks whose results it gave.
    pub tasks: u64,
    /// Assignments it answered.
    pub assignments: u64,
    /// Time spent in the tasks themselves; for tasks of a few microseconds, the
    /// sending of their results included.
    pub busy: Duration,
}

/// Messages and packets between the farmer and its workers in a run, counted at
/// the farmer and summed over the workers. A run ends when its last result is
/// accepted, so a few packets of acknowledgements may count for the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Messages to the workers.
    pub messages_sent: u64,
    /// Packets to the workers that carried messages.
    pub packets_sent: u64,
    /// Bytes of these packets.
    pub packet_bytes_sent: u64,
    /// Messages from the workers.
    pub messages_received: u64,
    /// Packets from the workers.
    pub packets_received: u64,
    /// Why packets to the workers left, in the order of [`FlushReason::ALL`].
    pub flushes: [u64; FlushReason::ALL.len()],
}

impl Traffic {
    pub(crate) fn of(stats: &PeerStats) -> Traffic {
        Traffic {
            messages_sent: stats.messages_sent,
            packets_sent: stats.message_packets_sent,
            packet_bytes_sent: stats.packet_bytes_sent,
            messages_received: stats.messages_received,
            packets_received: stats.packets_received,
            flushes: FlushReason::ALL.map(|reason| stats.flushes.get(reason)),
        }
    }

    /// Each number combined with the other's: `+` to sum over workers, `-` for
    /// the time between two readings.
    pub(crate) fn with(&self, other: &Traffic, combine: impl Fn(u64, u64) -> u64) -> Traffic {
        let mut flushes = self.flushes;
        for (count, other) in flushes.iter_mut().zip(other.flushes) {
            *count = combine(*count, other);
        }
        Traffic {
            messages_sent: combine(self.messages_sent, other.messages_sent),
            packets_sent: combine(self.packets_sent, other.packets_sent),
            packet_bytes_sent: combine(self.packet_bytes_sent, other.packet_bytes_sent),
            messages_received: combine(self.messages_received, other.messages_received),
            packets_received: combine(self.packets_received, other.packets_received),
            flushes,
        }
    }

    /// Mean messages a packet to the workers; 0 when none was sent.
    #[must_use]
    pub fn messages_per_packet_sent(&self) -> f64 {
        ratio(self.messages_sent, self.packets_sent)
    }

    /// Mean messages a packet from the workers; 0 when none came.
    #[must_use]
    pub fn messages_per_packet_received(&self) -> f64 {
        ratio(self.messages_received, self.packets_received)
    }

    /// How many packets to the workers left for this reason.
    #[must_use]
    pub fn flushes(&self, reason: FlushReason) -> u64 {
        let at = FlushReason::ALL.iter().position(|other| *other == reason);
        at.map_or(0, |at| self.flushes[at])
    }
}

fn ratio(above: u64, below: u64) -> f64 {
    if below == 0 { 0.0 } else { above as f64 / below as f64 }
}

/// What a run did: tasks, time, workers, packets.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunStats {
    /// Tasks whose results were accepted.
    pub tasks: u64,
    /// From the first assignment to the last result. The start of the workers
    /// is not in it.
    pub elapsed: Duration,
    /// By worker.
    pub workers: Vec<WorkerStats>,
    /// Between the farmer and all its workers.
    pub traffic: Traffic,
}

impl RunStats {
    /// Tasks a second; 0 for an empty run.
    #[must_use]
    pub fn tasks_per_second(&self) -> f64 {
        if self.tasks == 0 { 0.0 } else { self.tasks as f64 / self.elapsed.as_secs_f64() }
    }

    /// Time spent in tasks, summed over the workers.
    #[must_use]
    pub fn busy(&self) -> Duration {
        self.workers.iter().map(|worker| worker.busy).sum()
    }
}

/// The results of a run in the order of its tasks, and its numbers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome<O> {
    /// One result a task, in the order of the tasks.
    pub results: Vec<O>,
    /// What the run did.
    pub stats: RunStats,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_is_summed_and_subtracted_field_by_field() {
        let mut one = Traffic { messages_sent: 10, packets_sent: 4, ..Traffic::default() };
        one.flushes[4] = 4;
        let two = one.with(&one, |a, b| a + b);
        assert_eq!((two.messages_sent, two.packets_sent), (20, 8));
        assert_eq!(two.flushes(FlushReason::ALL[4]), 8);
        assert_eq!(two.with(&one, |a, b| a - b), one);
        assert!((two.messages_per_packet_sent() - 2.5).abs() < 1e-9);
        assert_eq!(two.messages_per_packet_received(), 0.0);
    }
}
