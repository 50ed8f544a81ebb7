//! Sequence, acknowledgement and kept packets of one link.
//!
//! Packets with runs, fragments, opens or ends are numbered from 1. The receiver acknowledges
//! cumulatively, on its own packets or alone, at the latest after a bounded number of packets,
//! of bytes, or a bounded time. Until then a packet's very bytes are kept
//! ([`Session::written`]), and its content is remembered by channel. So a later connection goes
//! on where the last one broke off ([`Session::resume`]), and both ends know at any time what
//! arrived.

mod owed;

use super::Time;
use super::error::ProtocolError;
use super::packet::Packet;
use super::spares::Spares;
use owed::Owed;
use std::collections::VecDeque;

/// State of a channel after a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Carried {
    /// Our number of the channel.
    pub channel: u32,
    /// Messages of the channel in all, with those of this packet.
    pub messages: u64,
    /// Whether the packet holds the channel's end.
    pub end: bool,
}

/// A packet that is not acknowledged.
#[derive(Debug)]
struct Kept {
    /// Number of this packet's entries in `carried`.
    entries: u32,
    bytes: usize,
    /// `None` while the writer has it.
    packet: Option<Packet>,
}

/// Packet numbers of one end. Order of calls:
///
/// - [`Session::sent`] for each numbered packet, [`Session::written`] once the transport has
///   all of it;
/// - [`Session::handle_packet`] and [`Session::handle_ack`] for what arrives;
/// - [`Session::ack`] when a packet is stamped;
/// - between two connections [`Session::give_back`], then [`Session::resume`]; after that
///   [`Session::again`] returns the packets to write first.
#[derive(Debug)]
pub struct Session {
    enabled: bool,
    sent: u64,
    /// Number of the last packet that a transport took as a whole.
    written: u64,
    acked: u64,
    /// Number of the packet to be written next; `sent + 1` when none comes again.
    next: u64,
    kept: VecDeque<Kept>,
    kept_bytes: usize,
    kept_bytes_max: usize,
    acknowledged_bytes: u64,
    carried: VecDeque<Carried>,
    received: u64,
    owed: Owed,
    resent: u64,
    /// Bytes numbered since the peer was asked to acknowledge.
    unasked_bytes: usize,
}

impl Session {
    /// Starts a session that keeps about `kept_bytes_max` until they are acknowledged.
    /// `enabled` is false only for measuring: then nothing is acknowledged or kept.
    #[must_use]
    pub fn new(enabled: bool, kept_bytes_max: usize) -> Session {
        Session {
            enabled,
            sent: 0,
            written: 0,
            acked: 0,
            next: 1,
            kept: VecDeque::new(),
            kept_bytes: 0,
            kept_bytes_max,
            acknowledged_bytes: 0,
            carried: VecDeque::new(),
            received: 0,
            owed: Owed::default(),
            resent: 0,
            unasked_bytes: 0,
        }
    }

    /// Whether some packet is not acknowledged yet.
    #[must_use]
    #[inline]
    pub fn in_flight(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Whether no further packet may be numbered, because of the bytes that are kept.
    #[must_use]
    #[inline]
    pub fn is_full(&self) -> bool {
        self.kept_bytes >= self.kept_bytes_max
    }

    /// Returns the bytes of the packets that are not acknowledged.
    #[must_use]
    #[inline]
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Returns the bytes of all packets that were acknowledged.
    #[must_use]
    #[inline]
    pub fn acknowledged_bytes(&self) -> u64 {
        self.acknowledged_bytes
    }

    /// Whether packets are acknowledged, and kept until then.
    #[must_use]
    #[inline]
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Returns the last number sent, the last number acknowledged, the last number received.
    #[must_use]
    #[inline]
    pub fn numbers(&self) -> [u64; 3] {
        [self.sent, self.acked, self.received]
    }

    /// Returns the number of the last packet that is in the inbox as a whole.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Whether the peer must acknowledge this packet of `bytes` at once: half of the bytes that
    /// may be kept were numbered since the last such request.
    #[inline]
    pub fn wants_ack(&mut self, bytes: usize) -> bool {
        self.unasked_bytes = self.unasked_bytes.saturating_add(bytes);
        let wants = self.enabled && self.unasked_bytes >= self.kept_bytes_max / 2;
        if wants {
            self.unasked_bytes = 0;
        }
        wants
    }

    /// Returns the number of packets that were written again.
    #[must_use]
    pub fn resent(&self) -> u64 {
        self.resent
    }

    /// Notes one entry of the packet being filled.
    #[inline]
    pub fn carry(&mut self, carried: Carried) {
        self.carried.push_back(carried);
    }

    /// Numbers a packet of `bytes` that is about to be written; returns the number. The packet
    /// holds the last `entries` that were noted. Without acknowledgements they count as
    /// arrived, and `acknowledged` is called with them.
    #[inline]
    pub fn sent(&mut self, entries: u32, bytes: usize, acknowledged: impl FnMut(Carried)) -> u64 {
        self.sent += 1;
        self.next = self.sent + 1;
        if self.enabled {
            self.kept.push_back(Kept { entries, bytes, packet: None });
            self.kept_bytes += bytes;
        } else {
            self.carried.drain(..).for_each(acknowledged);
        }
        self.sent
    }

    /// Notes that the transport has taken all of packet `number`. The packet is kept until it
    /// is acknowledged.
    #[inline]
    pub fn written(&mut self, number: u64, packet: &mut Packet) {
        self.written = self.written.max(number);
        self.give_back(number, packet);
    }

    /// Takes back packet `number` from the writer.
    #[inline]
    pub fn give_back(&mut self, number: u64, packet: &mut Packet) {
        let at = number.wrapping_sub(self.acked + 1);
        let kept = usize::try_from(at).ok().and_then(|at| self.kept.get_mut(at));
        if let Some(kept) = kept {
            kept.packet = Some(std::mem::take(packet));
        }
    }

    /// Handles the peer's acknowledgement of the packets up to `ack`. Calls `acknowledged` with
    /// their entries; their memory goes to `spares`.
    ///
    /// # Errors
    ///
    /// A packet up to `ack` was never written.
    #[inline]
    pub fn handle_ack(
        &mut self,
        ack: u64,
        spares: &mut Spares,
        mut acknowledged: impl FnMut(Carried),
    ) -> Result<(), ProtocolError> {
        if ack > self.written {
            return Err(ProtocolError::Ack { got: ack, sent: self.written });
        }
        while self.acked < ack {
            self.acked += 1;
            let Some(kept) = self.kept.pop_front() else { continue };
            self.kept_bytes -= kept.bytes;
            self.acknowledged_bytes += kept.bytes as u64;
            if let Some(packet) = kept.packet {
                spares.give(packet.head);
            }
            for _ in 0..kept.entries {
                self.carried.pop_front().map(&mut acknowledged);
            }
        }
        self.next = self.next.max(self.acked + 1);
        Ok(())
    }

    /// Starts on a new connection, on which the peer reports that it has the packets up to
    /// `received`. The others come again.
    ///
    /// # Errors
    ///
    /// `received` is above the last packet written, or below the last one acknowledged.
    pub fn resume(
        &mut self,
        received: u64,
        spares: &mut Spares,
        acknowledged: impl FnMut(Carried),
    ) -> Result<(), ProtocolError> {
        if received < self.acked {
            let acknowledged = self.acked;
            return Err(ProtocolError::Forgotten { got: received, acknowledged });
        }
        self.handle_ack(received, spares, acknowledged)?;
        self.next = received + 1;
        // The owed acknowledgement was sent, and the time of later packets begins anew.
        self.owed.at_once = false;
        Ok(())
    }

    /// Whether packets of a lost connection must still be written again.
    #[must_use]
    #[inline]
    pub fn is_behind(&self) -> bool {
        self.next <= self.sent
    }

    /// Takes the next packet to be written again, if any; returns its number.
    pub fn again(&mut self, packet: &mut Packet) -> Option<u64> {
        if self.next > self.sent {
            return None;
        }
        let at = usize::try_from(self.next - self.acked - 1).ok()?;
        *packet = self.kept.get_mut(at)?.packet.take()?;
        let number = self.next;
        self.next += 1;
        self.resent += 1;
        Some(number)
    }

    /// Checks that a packet with number `sequence` (0: none) may begin.
    ///
    /// # Errors
    ///
    /// The number is not the next one.
    #[inline]
    pub fn check_next(&self, sequence: u64) -> Result<(), ProtocolError> {
        if sequence != 0 && sequence != self.received + 1 {
            return Err(ProtocolError::Sequence { got: sequence, due: self.received + 1 });
        }
        Ok(())
    }

    /// Notes that a packet with number `sequence` (0: none) and `bytes` bytes is in the inbox
    /// as a whole.
    ///
    /// # Errors
    ///
    /// The number was not the next one.
    #[inline]
    pub fn handle_packet(
        &mut self,
        sequence: u64,
        bytes: u64,
        ack_now: bool,
        now: Time,
    ) -> Result<(), ProtocolError> {
        self.owed.at_once |= ack_now && self.enabled;
        if sequence == 0 {
            return Ok(());
        }
        self.check_next(sequence)?;
        self.received = sequence;
        if self.enabled {
            self.owed.packet(bytes, now);
        }
        Ok(())
    }

    /// Returns the ack for a packet that leaves now.
    #[inline]
    pub fn ack(&mut self) -> u64 {
        self.owed = Owed::default();
        if self.enabled { self.received } else { 0 }
    }

    /// Whether an acknowledgement must leave now, alone if need be.
    #[must_use]
    #[inline]
    pub fn ack_due(&self, now: Time) -> bool {
        self.owed.is_due() || self.ack_deadline().is_some_and(|deadline| now >= deadline)
    }

    /// Returns the time when the owed acknowledgement must leave.
    #[must_use]
    #[inline]
    pub fn ack_deadline(&self) -> Option<Time> {
        self.owed.deadline()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{ACK_BYTES_MAX, ACK_PACKETS_MAX};

    fn numbered(number: u64) -> Packet {
        Packet { head: vec![number as u8; 100], ..Packet::default() }
    }

    #[test]
    fn what_was_not_acknowledged_comes_again_byte_for_byte() {
        let mut spares = Spares::default();
        let mut session = Session::new(true, 450);
        for number in 1..=5 {
            assert!(!session.is_full());
            assert_eq!(session.sent(0, 100, |_| ()), number);
            if number < 5 {
                session.written(number, &mut numbered(number));
            }
        }
        assert!(session.is_full() && !session.is_behind());
        let early = session.handle_ack(5, &mut spares, |_| ()).unwrap_err();
        assert_eq!(early, ProtocolError::Ack { got: 5, sent: 4 });
        session.handle_ack(1, &mut spares, |_| ()).unwrap();
        assert_eq!(session.kept_bytes(), 400);
        // The fifth was being written when the connection was lost.
        session.give_back(5, &mut numbered(5));
        let mut packet = Packet::default();
        for peer_has in [3, 3, 4] {
            session.resume(peer_has, &mut spares, |_| ()).unwrap();
            for number in peer_has + 1..=5 {
                assert!(session.is_behind());
                assert_eq!(session.again(&mut packet), Some(number));
                assert_eq!(packet.head, numbered(number).head);
                session.written(number, &mut packet);
            }
            assert_eq!(session.again(&mut packet), None);
        }
        let forgot = session.resume(3, &mut spares, |_| ()).unwrap_err();
        assert_eq!(forgot, ProtocolError::Forgotten { got: 3, acknowledged: 4 });
        assert!(session.resume(6, &mut spares, |_| ()).is_err());
        session.resume(5, &mut spares, |_| ()).unwrap();
        assert!(!session.in_flight() && session.kept_bytes() == 0 && !session.is_behind());
    }

    #[test]
    fn acks_release_what_their_packets_carried_in_order() {
        let mut spares = Spares::default();
        let mut session = Session::new(true, 1 << 20);
        for packet in 1..=3u64 {
            session.carry(Carried { channel: 1, messages: 10 * packet, end: false });
            session.carry(Carried { channel: 2, messages: packet, end: packet == 3 });
            assert_eq!(session.sent(2, 100, |_| panic!("not yet")), packet);
            session.written(packet, &mut numbered(packet));
        }
        let mut seen = Vec::new();
        session
            .handle_ack(2, &mut spares, |carried| seen.push((carried.channel, carried.messages)))
            .unwrap();
        assert_eq!(seen, [(1, 10), (2, 1), (1, 20), (2, 2)]);
        assert!(session.in_flight());
        session.handle_ack(1, &mut spares, |_| panic!("a stale ack releases nothing")).unwrap();
        session.handle_ack(3, &mut spares, |_| ()).unwrap();
        assert!(!session.in_flight());
        let error = session.handle_ack(4, &mut spares, |_| ()).unwrap_err();
        assert_eq!(error, ProtocolError::Ack { got: 4, sent: 3 });
    }

    #[test]
    fn an_ack_is_due_at_once_when_asked_else_after_bounded_packets_bytes_or_time() {
        let now = Time(1_000_000_000);
        let mut session = Session::new(true, 1 << 20);
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
        let mut session = Session::new(true, 1 << 20);
        session.handle_packet(1, 1, false, Time(0)).unwrap();
        let repeated = session.handle_packet(1, 1, false, Time(0)).unwrap_err();
        assert_eq!(repeated, ProtocolError::Sequence { got: 1, due: 2 });
        assert!(session.handle_packet(3, 1, false, Time(0)).is_err());
    }
}
