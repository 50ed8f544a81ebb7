//! The sending half: is there a packet to leave, and what is in it.

use super::{Control, Link, Transmit, note_acknowledged};
use crate::proto::Time;
use crate::proto::flush::{FlushReason, Verdict};
use crate::proto::limits::TEXT_BYTES_MAX;
use crate::proto::outbox::{Filled, Staged};
use crate::proto::packet::{AppendRecords, FLAG_ACK_NOW, HEADER_BYTES, Header, RECORD_BYTES};
use bytes::Bytes;

impl Link {
    /// The next packet, if one is to leave: its bytes are appended to `head`,
    /// which is empty. Called when the transport can take one.
    pub fn poll_transmit(
        &mut self,
        staged: &mut impl Staged,
        now: Time,
        head: &mut Vec<u8>,
    ) -> Transmit {
        self.wait_until = None;
        let verdict = self.outbox.decide(staged, now);
        let reason = match verdict {
            Some(Verdict::Leave(reason)) => Some(reason),
            _ => None,
        };
        let sequenced_control = !self.control.is_empty();
        if let Some(Verdict::Yield(whom)) = verdict {
            // What is due besides leaves with the packet that is growing.
            return Transmit::Yield(whom);
        }
        if reason.is_none() && !sequenced_control && !self.totals_due(now) {
            if let Some(Verdict::WaitUntil(time)) = verdict {
                self.wait_until = Some(time);
            }
            return Transmit::Nothing;
        }
        self.fill(staged, now, head, reason)
    }

    fn totals_due(&self, now: Time) -> bool {
        !self.grants.is_empty()
            || self.probe
            || self.open_credit_told < self.budget.open_total()
            || self.session.ack_due(now)
    }

    fn fill(
        &mut self,
        staged: &mut impl Staged,
        now: Time,
        head: &mut Vec<u8>,
        reason: Option<FlushReason>,
    ) -> Transmit {
        head.extend_from_slice(&[0; HEADER_BYTES]);
        self.write_totals(head);
        let mut sequenced = self.write_control(head);
        let mut filled = Filled::default();
        if reason.is_some() {
            let bytes_max = self.packet_bytes_max;
            filled = self.outbox.fill(staged, &mut self.session, head, bytes_max, now);
            sequenced |= filled.entries > 0;
        }
        let empty = head.len() == HEADER_BYTES && filled.tail.is_none();
        if empty && !self.probe && !self.session.ack_due(now) {
            head.clear();
            return Transmit::Nothing;
        }
        let last = self.outbox.is_idle();
        let ack_now = self.sync_wanted && last;
        self.probe = false;
        let sequence = if sequenced { self.number(filled.entries) } else { 0 };
        let tail_bytes = filled.tail.as_ref().map_or(0, Bytes::len);
        let header = Header {
            body_bytes: (head.len() - HEADER_BYTES + tail_bytes) as u32,
            flags: if ack_now { FLAG_ACK_NOW } else { 0 },
            sequence,
            ack: self.session.ack(),
        };
        head[..HEADER_BYTES].copy_from_slice(&header.encode());
        self.count(&filled, reason, head.len() + tail_bytes, now);
        Transmit::Packet { tail: filled.tail }
    }

    /// The number of a packet that carries `entries` noted things.
    fn number(&mut self, entries: u32) -> u64 {
        let (acknowledged, outbox) = (&mut self.acknowledged, &mut self.outbox);
        self.session.sent(entries, |carried| note_acknowledged(carried, acknowledged, outbox))
    }

    fn write_totals(&mut self, head: &mut Vec<u8>) {
        if self.open_credit_told < self.budget.open_total() {
            self.open_credit_told = self.budget.open_total();
            head.open_credit(self.open_credit_told);
        }
        while head.len() + 2 * RECORD_BYTES <= self.packet_bytes_max / 2 {
            let Some(channel) = self.grants.pop_front() else { break };
            if let Some(incoming) = self.incoming.get(&channel) {
                head.credit(channel, incoming.window.granted());
            }
        }
    }

    /// True when a record was written that must not be repeated.
    fn write_control(&mut self, head: &mut Vec<u8>) -> bool {
        let mut wrote = false;
        while head.len() + RECORD_BYTES + TEXT_BYTES_MAX <= self.packet_bytes_max || !wrote {
            let Some(control) = self.control.pop_front() else { break };
            wrote = true;
            match control {
                Control::Terminate(channel) => head.terminate(channel),
                Control::Refuse(channel, refusal, text) => head.refuse(channel, refusal, &text),
                Control::Describe(channel, text) => head.describe(channel, &text),
                Control::Bye => head.bye(),
            }
        }
        wrote
    }

    fn count(&mut self, filled: &Filled, reason: Option<FlushReason>, bytes: usize, now: Time) {
        let counters = &mut self.counters;
        counters.packets_sent += 1;
        counters.bytes_sent += bytes as u64;
        let messages = u64::from(filled.messages);
        let Some(reason) = reason.filter(|_| filled.entries > 0 || filled.tail.is_some()) else {
            return;
        };
        counters.messages_sent += messages;
        counters.message_packets += 1;
        counters.messages_per_packet_max = counters.messages_per_packet_max.max(messages);
        let fit = reason == FlushReason::Full && filled.fit;
        let reason = if fit { FlushReason::Fit } else { reason };
        counters.flushes.add(reason);
        self.outbox.count_flush(reason);
        if let Some(oldest) = filled.oldest {
            let waited = now.micros_since(oldest);
            counters.queueing_us_total += waited;
            counters.queueing_us_max = counters.queueing_us_max.max(waited);
        }
    }
}
