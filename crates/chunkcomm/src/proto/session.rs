//! Sequence and acknowledgement of the packets of one link.
//!
//! Packets with runs, fragments, opens or ends are numbered from 1. The
//! receiver acknowledges cumulatively, on its own packets or alone, at the
//! latest after a bounded number of packets, of bytes, or a bounded time. What
//! a packet carried is remembered by channel until it is acknowledged, so that
//! both ends know at any time what arrived.

use super::Time;
use super::limits::{ACK_BYTES_MAX, ACK_DELAY_MS, ACK_PACKETS_MAX};
use std::collections::VecDeque;
use std::time::Duration;

/// What a packet brought a channel to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Carried {
    /// Our number of the channel.
    pub channel: u32,
    /// Its messages in all, with those of this packet.
    pub messages: u64,
    /// The channel's end was in it.
    pub end: bool,
}

/// A sequence or ack that cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SequenceError {
    /// A packet was left out or repeated.
    Sequence {
        /// The number that came.
        got: u64,
        /// The number that was due.
        due: u64,
    },
    /// More was acknowledged than was sent.
    Ack {
        /// As acknowledged.
        got: u64,
        /// The last number sent.
        sent: u64,
    },
}

impl std::fmt::Display for SequenceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SequenceError::Sequence { got, due } => {
                write!(f, "packet {got} came where {due} was due")
            }
            SequenceError::Ack { got, sent } => {
                write!(f, "packet {got} was acknowledged where {sent} was the last one sent")
            }
        }
    }
}

/// One end's numbers. Order of calls: [`Session::sent`] for each numbered
/// packet, [`Session::handle_packet`] and [`Session::handle_ack`] for what
/// comes; [`Session::ack`] when a packet is stamped.
#[derive(Debug)]
pub struct Session {
    enabled: bool,
    sent: u64,
    acked: u64,
    /// Packets in flight: how many entries of `carried` are theirs.
    in_flight: VecDeque<u32>,
    carried: VecDeque<Carried>,
    received: u64,
    owed_packets: u64,
    owed_bytes: u64,
    owed_since: Option<Time>,
    owed_now: bool,
}

impl Session {
    /// Numbers at the start of a session; `enabled` is off for measuring only:
    /// then nothing is acknowledged.
    #[must_use]
    pub fn new(enabled: bool) -> Session {
        Session {
            enabled,
            sent: 0,
            acked: 0,
            in_flight: VecDeque::new(),
            carried: VecDeque::new(),
            received: 0,
            owed_packets: 0,
            owed_bytes: 0,
            owed_since: None,
            owed_now: false,
        }
    }

    /// Something is not acknowledged yet.
    #[must_use]
    pub fn in_flight(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Notes one thing that the packet being filled carries.
    pub fn carry(&mut self, carried: Carried) {
        self.carried.push_back(carried);
    }

    /// A numbered packet with the last `entries` things noted is written; says
    /// its number. Without acknowledgements these count as arrived, and
    /// `acknowledged` is called with them.
    pub fn sent(&mut self, entries: u32, acknowledged: impl FnMut(Carried)) -> u64 {
        self.sent += 1;
        if self.enabled {
            self.in_flight.push_back(entries);
        } else {
            self.carried.drain(..).for_each(acknowledged);
        }
        self.sent
    }

    /// The peer's packets up to `ack` arrived: `acknowledged` is called with
    /// what they carried.
    ///
    /// # Errors
    ///
    /// So many packets were never sent.
    pub fn handle_ack(
        &mut self,
        ack: u64,
        mut acknowledged: impl FnMut(Carried),
    ) -> Result<(), SequenceError> {
        if ack > self.sent {
            return Err(SequenceError::Ack { got: ack, sent: self.sent });
        }
        while self.acked < ack {
            self.acked += 1;
            let entries = self.in_flight.pop_front().unwrap_or(0);
            for _ in 0..entries {
                if let Some(carried) = self.carried.pop_front() {
                    acknowledged(carried);
                }
            }
        }
        Ok(())
    }

    /// A packet with number `sequence` (0: none) and `bytes` bytes is in the
    /// inbox as a whole.
    ///
    /// # Errors
    ///
    /// It was not its turn.
    pub fn handle_packet(
        &mut self,
        sequence: u64,
        bytes: u64,
        ack_now: bool,
        now: Time,
    ) -> Result<(), SequenceError> {
        self.owed_now |= ack_now && self.enabled;
        if sequence == 0 {
            return Ok(());
        }
        if sequence != self.received + 1 {
            return Err(SequenceError::Sequence { got: sequence, due: self.received + 1 });
        }
        self.received = sequence;
        if self.enabled {
            self.owed_packets += 1;
            self.owed_bytes += bytes;
            self.owed_since.get_or_insert(now);
        }
        Ok(())
    }

    /// The ack for a packet that leaves now.
    pub fn ack(&mut self) -> u64 {
        self.owed_packets = 0;
        self.owed_bytes = 0;
        self.owed_since = None;
        self.owed_now = false;
        if self.enabled { self.received } else { 0 }
    }

    /// An acknowledgement must leave now, alone if need be.
    #[must_use]
    pub fn ack_due(&self, now: Time) -> bool {
        self.owed_now
            || self.owed_packets >= ACK_PACKETS_MAX
            || self.owed_bytes >= ACK_BYTES_MAX
            || self.ack_deadline().is_some_and(|deadline| now >= deadline)
    }

    /// When the acknowledgement that is owed must leave.
    #[must_use]
    pub fn ack_deadline(&self) -> Option<Time> {
        self.owed_since.map(|since| since.after(Duration::from_millis(ACK_DELAY_MS)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acks_release_what_their_packets_carried_in_order() {
        let mut session = Session::new(true);
        for packet in 1..=3u64 {
            session.carry(Carried { channel: 1, messages: 10 * packet, end: false });
            session.carry(Carried { channel: 2, messages: packet, end: packet == 3 });
            assert_eq!(session.sent(2, |_| panic!("not yet")), packet);
        }
        let mut seen = Vec::new();
        session.handle_ack(2, |carried| seen.push((carried.channel, carried.messages))).unwrap();
        assert_eq!(seen, [(1, 10), (2, 1), (1, 20), (2, 2)]);
        assert!(session.in_flight());
        session.handle_ack(1, |_| panic!("a stale ack releases nothing")).unwrap();
        session.handle_ack(3, |_| ()).unwrap();
        assert!(!session.in_flight());
        let error = session.handle_ack(4, |_| ()).unwrap_err();
        assert_eq!(error, SequenceError::Ack { got: 4, sent: 3 });
    }

    #[test]
    fn an_ack_is_due_at_once_when_asked_else_after_bounded_packets_bytes_or_time() {
        let now = Time(1_000_000_000);
        let mut session = Session::new(true);
        session.handle_packet(1, 100, false, now).unwrap();
        assert!(!session.ack_due(now));
        assert!(session.ack_due(session.ack_deadline().unwrap()));
        session.handle_packet(2, 100, true, now).unwrap();
        assert!(session.ack_due(now));
        assert_eq!(session.ack(), 2);
        assert!(!session.ack_due(now));
        session.handle_packet(3, ACK_BYTES_MAX, false, now).unwrap();
        assert!(session.ack_due(now));
        session.ack();
        for sequence in 4..4 + ACK_PACKETS_MAX {
            assert!(!session.ack_due(now));
            session.handle_packet(sequence, 1, false, now).unwrap();
        }
        assert!(session.ack_due(now));
    }

    #[test]
    fn a_gap_or_repetition_is_an_error() {
        let mut session = Session::new(true);
        session.handle_packet(1, 1, false, Time(0)).unwrap();
        let repeated = session.handle_packet(1, 1, false, Time(0)).unwrap_err();
        assert_eq!(repeated, SequenceError::Sequence { got: 1, due: 2 });
        assert!(session.handle_packet(3, 1, false, Time(0)).is_err());
    }
}
