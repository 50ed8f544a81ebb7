//! The writing half of a turn: packets from the machine to the network.

use super::super::end::{Closing, Over};
use super::super::plan::Wrong;
use super::super::world::{Event, World};
use super::Turn;
use crate::network::NetworkError;
use chunkcomm_proto::Time;
use chunkcomm_proto::limits::FRAGMENT_BYTES_MAX;
use chunkcomm_proto::link::Transmit;
use chunkcomm_proto::packet::{FRAGMENT_HEAD_BYTES, HEADER_BYTES, Packet};
use std::time::Duration;

impl World<'_> {
    pub(super) fn write(&mut self, id: usize) -> Turn {
        let now = self.local(self.ends[id].node);
        let end = &mut self.ends[id];
        let Some(connection) = end.connection else { return Turn::Rest };
        if !end.may_write {
            return Turn::Rest;
        }
        if end.writer.packet.head.is_empty() && !self.next_packet(id, now) {
            return self.nothing_to_write(id);
        }
        match self.write_some(id, connection) {
            Ok(false) => {
                self.ends[id].may_write = false;
                self.counts.full += 1;
                Turn::Rest
            }
            Err(_) => {
                // The peer's last words may name the cause.
                while matches!(self.read(id), Turn::Progress) {}
                if self.ends[id].over.is_none() && self.ends[id].connection == Some(connection) {
                    self.disconnect(id);
                }
                Turn::Progress
            }
            Ok(true) => {
                self.packet_written(id);
                Turn::Progress
            }
        }
    }

    /// Takes the next packet from the machine; false when there is none.
    fn next_packet(&mut self, id: usize, now: Time) -> bool {
        for _ in 0..1000 {
            let end = &mut self.ends[id];
            let packet = &mut end.writer.packet;
            let transmit = end.link.poll_transmit(&mut end.rings, now, packet);
            for channel in std::mem::take(&mut end.rings.restaged) {
                end.link.staged(channel, now);
            }
            self.wake_producers(id);
            match transmit {
                Transmit::Nothing => return false,
                Transmit::Yield(_) => {}
                Transmit::Packet { number, again } => {
                    self.packet_begins(id, number, again);
                    return true;
                }
            }
        }
        self.violate(&format!("end {id} yields without end"));
        false
    }

    fn packet_begins(&mut self, id: usize, number: u64, again: bool) {
        let end = &mut self.ends[id];
        end.writer.number = number;
        end.asked = false;
        let bytes = end.writer.packet.bytes();
        end.check_kept(bytes.max(FRAGMENT_HEAD_BYTES + FRAGMENT_BYTES_MAX));
        let head = &end.writer.packet.head;
        let field = |at: usize| head[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        let (sequence, ack) = (field(8), field(16));
        if sequence != number || head.len() < HEADER_BYTES {
            end.fail(|| format!("packet {number} says that it is {sequence}"));
        }
        if !again {
            end.said = end.said.max(ack);
        }
        self.depart(id, number, again);
        self.note(1, [id as u64 ^ number << 8, bytes as u64], || {
            let again = if again { " again" } else { "" };
            format!("end {id} packet {number}{again}, {bytes} bytes, ack {ack}")
        });
    }

    /// Falsifies the packet at hand, if this end is to depart from the protocol.
    fn depart(&mut self, id: usize, number: u64, again: bool) {
        let end = &mut self.ends[id];
        let packet = &mut end.writer.packet;
        match end.departs {
            Some(Wrong::Gap) if number > 0 && !again => {
                // The machine takes the packet for written.
                end.link.written(number, packet);
                end.written = end.written.max(number);
            }
            Some(Wrong::Ack) if number == 0 || again => {
                let far = (end.link.received() + 1_000_000).to_le_bytes();
                packet.head[16..24].copy_from_slice(&far);
            }
            Some(Wrong::OtherPacket) if again => {
                packet.head[4] ^= 0x80;
            }
            _ => return,
        }
        end.departs = None;
        self.has_departed(id);
        self.note(2, [id as u64, number], || format!("end {id} departs at packet {number}"));
    }

    fn wake_producers(&mut self, id: usize) {
        let mut progress = std::mem::take(&mut self.ends[id].rings.progress);
        for channel in progress.drain(..) {
            let sent = &mut self.ends[id].sent[channel as usize - 1];
            if std::mem::take(&mut sent.waits) {
                self.after(Duration::from_micros(5), Event::Produce { end: id, channel });
            }
        }
        self.ends[id].rings.progress = progress;
    }

    /// Writes as much of the packet at hand as fits; true when the whole packet is written.
    fn write_some(&mut self, id: usize, connection: usize) -> Result<bool, NetworkError> {
        loop {
            let end = &mut self.ends[id];
            let Packet { head, tail } = &end.writer.packet;
            let offset = end.writer.offset;
            let rest = match tail {
                _ if offset < head.len() => &head[offset..],
                Some(tail) => &tail[offset - head.len()..],
                None => &[],
            };
            if rest.is_empty() {
                return Ok(true);
            }
            let mut count = rest.len();
            if end.random.one_in(8) {
                count = 1 + end.random.below(count as u64) as usize;
            }
            let way = self.connections[connection].end(end.side);
            let count = self.network.write(self.now, way, &rest[..count])?;
            end.writer.offset += count;
            if count == 0 {
                return Ok(false);
            }
        }
    }

    /// Notes that the transport has all of the packet at hand.
    fn packet_written(&mut self, id: usize) {
        let end = &mut self.ends[id];
        end.writer.offset = 0;
        if end.writer.packet.head.is_empty() {
            return;
        }
        end.written = end.written.max(end.writer.number);
        end.link.written(end.writer.number, &mut end.writer.packet);
        end.writer.packet = Packet::default();
        end.note_acknowledged();
        self.check_acknowledged(id);
    }

    /// Handles a machine with nothing to send: takes the next step of closing, if the end closes.
    fn nothing_to_write(&mut self, id: usize) -> Turn {
        let end = &mut self.ends[id];
        if end.asked {
            end.fail(|| "it was asked for an acknowledgement and says nothing".to_owned());
        }
        match end.closing {
            Closing::Draining if end.link.is_quiet() => {
                end.closing = Closing::Bye;
                end.link.bye();
                if end.random.one_in(12) {
                    // The bye may be lost.
                    let (pair, at) = (self.pair_of(id), self.now);
                    self.counts.faults[0][self.ends[id].state()] += 1;
                    self.at(at, Event::Cut { pair });
                }
                Turn::Progress
            }
            Closing::Bye | Closing::Shutdown => {
                end.closing = Closing::Shutdown;
                self.finish(id, Over::Closed);
                Turn::Rest
            }
            _ => Turn::Rest,
        }
    }
}
