//! The sending half: whether a packet leaves, and its content.

use super::{Control, Link, Says, Transmit, note_acknowledged};
use crate::Time;
use crate::cycle::CHAIN_BYTES_MAX;
use crate::limits::{ELSEWHERE_BYTES_MIN, SETTLED_GAP_MS, TEXT_BYTES_MAX};
use crate::outbox::{Filled, Staged, packet_room};
use crate::packet::{AppendRecords, FLAG_ACK_NOW, HEADER_BYTES, Header, Packet, RECORD_BYTES};
use crate::tuning::flush::{FlushReason, Verdict};
use crate::tuning::packet_size::Closed;

use std::time::Duration;

/// Most receivers that a packet looks at for settled messages when no look is due. Each costs two
/// searches and a read of the receiver's memory; the others wait for the next packet or the due
/// look.
const LOOKS_UNDUE_MAX: usize = 8;

impl Link {
    /// Fills the empty `packet` with the next one, if one leaves now. Called when the transport
    /// can take a packet.
    #[inline]
    pub(crate) fn poll_transmit(
        &mut self,
        staged: &mut impl Staged,
        now: Time,
        packet: &mut Packet,
    ) -> Transmit {
        self.wait_until = None;
        if self.has_nothing(now) {
            if !self.session.is_full() {
                self.pace.starved();
            }
            return Transmit::Nothing;
        }
        self.transmit(staged, now, packet)
    }

    #[inline(never)]
    fn transmit(&mut self, staged: &mut impl Staged, now: Time, packet: &mut Packet) -> Transmit {
        if !self.told.is_empty() || !self.says.is_empty() {
            return self.fill_told(packet);
        }
        let full = self.session.is_full();
        if (full || self.session.is_behind()) && self.totals_due(now) {
            // Totals do not wait for numbered packets.
            let transmit = self.fill(staged, now, packet, None);
            if !matches!(transmit, Transmit::Nothing) {
                return transmit;
            }
        }
        if self.session.is_behind()
            && let Some(transmit) = self.again(packet)
        {
            return transmit;
        }
        if full {
            return Transmit::Nothing;
        }
        let paced = self.session.is_enabled();
        self.pace.set_sharing(self.outbox.sharing(now));
        let room = if paced { self.pace.room(self.session.kept_bytes()) } else { usize::MAX };
        self.outbox.set_bulk_room(room);
        let [_, acknowledged, _] = self.session.numbers();
        if self.outbox.bulk_waits() && self.pace.is_unasked(acknowledged) {
            self.ask();
        }
        let verdict = self.outbox.decide(staged, now);
        if !matches!(verdict, Some(Verdict::Leave(_))) && !self.outbox.bulk_waits() {
            self.pace.starved();
        }
        let reason = match verdict {
            Some(Verdict::Leave(reason)) => Some(reason),
            _ => None,
        };
        if let Some(Verdict::Yield(whom)) = verdict {
            // Totals and controls leave with the packet that is growing.
            return Transmit::Yield(whom);
        }
        if let Some(Verdict::WaitUntil(time)) = verdict {
            self.wait_until = Some(time);
        }
        if reason.is_none() && self.control.is_empty() && !self.totals_due(now) {
            return Transmit::Nothing;
        }
        // A look at settled messages is due, and yet may find nothing to report.
        let transmit = self.fill(staged, now, packet, reason);
        // Only now: they are no part of the decisions about this packet.
        while let Some(channel) = staged.restaged() {
            self.outbox.staged(channel, now);
        }
        transmit
    }

    /// Takes the next packet to be written again, if the writer does not have it.
    #[cold]
    #[inline(never)]
    fn again(&mut self, packet: &mut Packet) -> Option<Transmit> {
        let number = self.session.again(packet)?;
        self.counters.packets_sent += 1;
        self.counters.packets_resent += 1;
        self.counters.packet_bytes_sent += packet.bytes() as u64;
        Some(Transmit::Packet { number, again: true })
    }

    /// Whether nothing is staged, kept to be written again, or to be reported.
    #[inline]
    pub(crate) fn has_nothing(&self, now: Time) -> bool {
        self.outbox.is_idle()
            && self.control.is_empty()
            && self.told.is_empty()
            && self.says.is_empty()
            && !self.session.is_behind()
            && !self.totals_due(now)
    }

    /// Fills a packet without number with what this connection needs and chains of waits, which go before
    /// everything else.
    #[cold]
    #[inline(never)]
    fn fill_told(&mut self, packet: &mut Packet) -> Transmit {
        packet.head = self.spares.take(0);
        let head = &mut packet.head;
        head.extend_from_slice(&[0; HEADER_BYTES]);
        let Says { memory, reads } = std::mem::take(&mut self.says);
        if let Some((address, word)) = memory {
            head.memory(address, word);
        }
        if reads {
            head.reads();
        }
        while let Some(told) = self.told.pop() {
            head.wait(told.number, &told.chain);
            if head.len() + RECORD_BYTES + CHAIN_BYTES_MAX > self.sizing.bytes() {
                break;
            }
        }
        let body_bytes = (head.len() - HEADER_BYTES) as u32;
        let header = Header { body_bytes, ack: self.session.ack(), ..Header::default() };
        head[..HEADER_BYTES].copy_from_slice(&header.encode());
        self.counters.packets_sent += 1;
        self.counters.packet_bytes_sent += head.len() as u64;
        Transmit::Packet { number: 0, again: false }
    }

    /// Notes that the transport has taken all of packet `number`.
    #[inline]
    pub(crate) fn written(&mut self, number: u64, packet: &mut Packet) {
        self.session.written(number, packet);
        self.reuse(packet);
    }

    /// Returns the most bytes that a channel stages, in a packet's bytes with the header.
    #[must_use]
    #[inline]
    pub fn ring_bytes(&self) -> usize {
        self.sizing.ring_bytes()
    }

    /// Whether the write of a packet of `bytes` must be timed, for [`Link::wrote`].
    #[inline]
    pub fn times_write(&mut self, bytes: usize) -> bool {
        self.sizing.times(bytes)
    }

    /// Notes that the write took `nanos`.
    pub fn wrote(&mut self, nanos: u64) {
        self.sizing.wrote(nanos);
    }

    /// Notes that the packet took `writes`.
    #[inline]
    pub(crate) fn count_writes(&mut self, writes: u64) {
        self.outbox.count_writes(writes);
    }

    /// Takes back packet `number`: the connection was lost before all of it was written.
    pub(crate) fn give_back(&mut self, number: u64, packet: &mut Packet) {
        self.session.give_back(number, packet);
        self.outbox.count_writes(0);
        self.reuse(packet);
    }

    /// Keeps the buffer of a packet that is not needed for the next one.
    #[inline]
    fn reuse(&mut self, packet: &mut Packet) {
        let Packet { head, .. } = std::mem::take(packet);
        self.spares.give(head);
    }

    /// Returns a packet which reports that the session was given up here.
    #[must_use]
    pub(crate) fn farewell(&mut self) -> Vec<u8> {
        let mut packet = vec![0; HEADER_BYTES];
        packet.gone();
        let body_bytes = (packet.len() - HEADER_BYTES) as u32;
        let header = Header { body_bytes, ack: self.session.ack(), ..Header::default() };
        packet[..HEADER_BYTES].copy_from_slice(&header.encode());
        packet
    }

    #[inline]
    fn totals_due(&self, now: Time) -> bool {
        !self.grants.is_empty()
            || self.probe
            || self.open_credit_told < self.budget.open_total()
            || self.settles_due.is_some_and(|due| due <= now)
            || self.session.ack_due(now)
    }

    fn fill(
        &mut self,
        staged: &mut impl Staged,
        now: Time,
        packet: &mut Packet,
        reason: Option<FlushReason>,
    ) -> Transmit {
        packet.head = self.spares.take(reason.map_or(0, |_| self.outbox.pending_bytes()));
        let head = &mut packet.head;
        head.extend_from_slice(&[0; HEADER_BYTES]);
        if !self.grants.is_empty() || self.open_credit_told < self.budget.open_total() {
            self.write_totals(head);
        }
        if self.settles_due.is_some() {
            self.write_settled(head, staged, now);
        }
        let mut filled = Filled::default();
        let mut sequenced = false;
        if !self.session.is_full() && !self.session.is_behind() {
            sequenced = !self.control.is_empty() && self.write_control(head);
            // A refusal goes before what the channel's layer says next, also where not all controls fit.
            if reason.is_some() && self.control.is_empty() {
                let bytes_max = self.sizing.bytes();
                filled = self.outbox.fill(staged, &mut self.session, head, bytes_max, now);
                // A fragment alone completes no message, and yet must not get lost.
                sequenced |= filled.entries > 0 || filled.tail.is_some();
            }
        }
        let empty = head.len() == HEADER_BYTES && filled.tail.is_none();
        if empty && !self.probe && !self.session.ack_due(now) {
            self.reuse(packet);
            return Transmit::Nothing;
        }
        // Asked once, and only for packets on their way. Otherwise two ends that close would
        // answer each other's requests with requests, without end.
        let open = self.probe || sequenced || self.session.in_flight();
        let ack_now = self.asking || (self.sync_wanted && open && self.outbox.is_idle());
        self.probe = false;
        self.asking = false;
        packet.tail = filled.tail.take();
        packet.is_fragment = filled.is_fragment;
        let bytes = packet.bytes();
        let ack_now = ack_now || (sequenced && self.wants_ack(bytes));
        // Memory that the peer reads is let go when it has; whoever lent it may wait for that.
        let ends = filled.is_fragment && filled.messages > 0 && self.pace.reads();
        let tail = packet.tail.as_ref().map_or(0, bytes::Bytes::len);
        let ack_now = ack_now || ends && tail >= ELSEWHERE_BYTES_MIN;
        let in_flight = self.session.kept_bytes();
        let number = if sequenced { self.number(filled.entries, bytes) } else { 0 };
        // The packets that must be written again come behind this one.
        if ack_now && !self.session.is_behind() {
            self.pace.asked_to(self.session.numbers()[0]);
        }
        if sequenced && ack_now {
            self.pace.asked(number, in_flight, self.session.acknowledged_bytes(), now);
        }
        let header = Header {
            body_bytes: (bytes - HEADER_BYTES) as u32,
            flags: if ack_now { FLAG_ACK_NOW } else { 0 },
            sequence: number,
            ack: self.session.ack(),
        };
        packet.head[..HEADER_BYTES].copy_from_slice(&header.encode());
        self.count(&filled, packet.tail.is_some(), reason, bytes, now);
        Transmit::Packet { number, again: false }
    }

    /// Whether the peer must acknowledge a numbered packet of `bytes` at once.
    #[inline]
    fn wants_ack(&mut self, bytes: usize) -> bool {
        let paced = self.session.is_enabled() && self.pace.asks(bytes, self.session.kept_bytes());
        self.session.wants_ack(bytes) || paced
    }

    /// Numbers a packet of `bytes` with the last `entries` that were noted; returns the number.
    #[inline]
    fn number(&mut self, entries: u32, bytes: usize) -> u64 {
        let (acknowledged, outbox) = (&mut self.acknowledged, &mut self.outbox);
        let note = |carried| note_acknowledged(carried, acknowledged, outbox);
        self.session.sent(entries, bytes, note)
    }

    #[inline(never)]
    fn write_totals(&mut self, head: &mut Vec<u8>) {
        if self.open_credit_told < self.budget.open_total() {
            self.open_credit_told = self.budget.open_total();
            head.open_credit(self.open_credit_told);
        }
        while head.len() + 2 * RECORD_BYTES <= self.sizing.bytes() / 2 {
            let Some(channel) = self.grants.pop_front() else { break };
            if let Some(incoming) = self.incoming.get_mut(channel) {
                incoming.grant_owed = false;
                head.credit(channel, incoming.window.granted());
                if let Some(consumed) = incoming.consumed {
                    head.consumed(channel, consumed);
                }
            }
        }
    }

    #[inline(never)]
    fn write_settled(&mut self, head: &mut Vec<u8>, staged: &mut impl Staged, now: Time) {
        let due = self.settles_due.is_some_and(|due| due <= now);
        let next = now.after(Duration::from_millis(SETTLED_GAP_MS));
        let all = due || self.settles.len() <= LOOKS_UNDUE_MAX;
        let looks = if all { self.settles.len() } else { LOOKS_UNDUE_MAX };
        let mut is_news = false;
        for _ in 0..looks {
            if head.len() + 2 * RECORD_BYTES > self.sizing.bytes() / 2 {
                self.settles_due = Some(now);
                return;
            }
            let Some(channel) = self.settles.pop_front() else { break };
            if let Some(total) = self.seen_settled(staged, channel, due) {
                head.settled(channel, total, false);
                self.settles_said = now;
                is_news = true;
            }
        }
        if due || all && is_news {
            self.settles_due = Some(next);
        }
        self.settles_due = self.settles_due.filter(|_| !self.settles.is_empty());
    }

    /// Writes controls; true when a record was written that must not be repeated.
    #[inline(never)]
    fn write_control(&mut self, head: &mut Vec<u8>) -> bool {
        let mut wrote = false;
        while head.len() + RECORD_BYTES + TEXT_BYTES_MAX <= self.sizing.bytes() || !wrote {
            let Some(control) = self.control.pop_front() else { break };
            wrote = true;
            match control {
                Control::Settled(channel, total) => head.settled(channel, total, true),
                Control::Terminate(channel) => head.terminate(channel),
                Control::Refuse(channel, refusal, text) => head.refuse(channel, refusal, &text),
                Control::Describe(channel, text) => head.describe(channel, &text),
                Control::Bye => head.bye(),
            }
        }
        wrote
    }

    #[inline]
    fn count(
        &mut self,
        filled: &Filled,
        tail: bool,
        reason: Option<FlushReason>,
        bytes: usize,
        now: Time,
    ) {
        let counters = &mut self.counters;
        counters.packets_sent += 1;
        counters.packet_bytes_sent += bytes as u64;
        let messages = u64::from(filled.messages);
        let Some(reason) = reason.filter(|_| filled.entries > 0 || tail) else {
            return;
        };
        counters.messages_sent += messages;
        counters.message_packets_sent += 1;
        counters.messages_per_packet_max = counters.messages_per_packet_max.max(messages);
        let fit = reason == FlushReason::Full && filled.fit;
        let reason = if fit { FlushReason::Fit } else { reason };
        counters.flushes.add(reason);
        self.outbox.count_flush(reason);
        // The end of a large message closes its packet; one that is not full shows nothing
        // about saturation.
        if !tail || bytes >= self.sizing.bytes() / 32 * 31 {
            let closed = match reason {
                FlushReason::Full => Closed::Full,
                FlushReason::Fit => Closed::Fit,
                _ if self.outbox.is_idle() => Closed::Drained,
                _ => Closed::Early,
            };
            self.sizing.left(bytes, closed, now);
        }
        self.outbox.set_packet_room(packet_room(self.sizing.bytes()));
        if let Some(oldest) = filled.oldest {
            let waited = now.micros_since(oldest);
            counters.queueing_delay_us_total += waited;
            counters.queueing_delay_us_max = counters.queueing_delay_us_max.max(waited);
        }
    }
}
