//! The writing half of a turn: packets from the endpoint to the network.

use super::Turn;
use crate::pattern;
use crate::plan::Wrong;
use crate::world::{Event, World};
use crate::writing::{next_output, write_packet};
use chunkcomm_proto::endpoint::Output;
use chunkcomm_proto::limits::FRAGMENT_BYTES_MAX;
use chunkcomm_proto::packet::{
    ADDRESS_BYTES, FLAG_ELSEWHERE, FRAGMENT_HEAD_BYTES, HEADER_BYTES, Packet,
};
use std::time::Duration;

/// Puts the place in the pattern for the address of a fragment, which differs from process to process.
fn address_in_pattern(packet: &mut Packet) {
    if packet.head.get(4).is_none_or(|flags| flags & FLAG_ELSEWHERE == 0) {
        return;
    }
    if let Some(address) = packet.head.last_chunk_mut::<ADDRESS_BYTES>() {
        let place = u64::from_le_bytes(*address).wrapping_sub(pattern().as_ptr().addr() as u64);
        *address = place.to_le_bytes();
    }
}

impl World<'_> {
    pub(super) fn write(&mut self, id: usize) -> Turn {
        let now = self.local(self.ends[id].node);
        let end = &mut self.ends[id];
        let Some(connection) = end.connection.filter(|_| end.may_write) else { return Turn::Rest };
        let (begins, said_bye) = (!end.endpoint.is_writing(), end.endpoint.has_said_bye());
        let Some(output) = next_output(&mut end.endpoint, &mut end.rings, now) else {
            self.violate(&format!("end {id} yields without end"));
            return Turn::Rest;
        };
        self.wake_producers(id);
        if !said_bye && self.ends[id].endpoint.has_said_bye() {
            self.maybe_lose_bye(id);
        }
        match output {
            Output::Write if begins => self.packet_begins(id),
            Output::Write => {}
            Output::Shutdown => {
                let end = &mut self.ends[id];
                let way = self.connections[connection].end(end.side);
                self.network.finish(self.now, way);
                end.endpoint.stop_writing(now);
                return Turn::Rest;
            }
            Output::Nothing | Output::Yield(_) => {
                let end = &mut self.ends[id];
                if end.asked && !end.endpoint.is_unwritable() {
                    end.fail(|| "it was asked for an acknowledgement and says nothing".to_owned());
                }
                return Turn::Rest;
            }
        }
        let end = &mut self.ends[id];
        if !end.endpoint.is_writing() {
            // It departed from the protocol.
            return Turn::Progress;
        }
        let number = end.endpoint.packet_mut().1;
        let random = &mut end.random;
        let most = |left: usize| {
            if random.one_in(8) { 1 + random.below(left as u64) as usize } else { left }
        };
        let way = self.connections[connection].end(end.side);
        match write_packet(&mut end.endpoint, &mut self.network, way, self.now, most) {
            Ok((_, true)) => {
                end.written = end.written.max(number);
                end.note_acknowledged();
                self.check_acknowledged(id);
                Turn::Progress
            }
            Ok((_, false)) => {
                end.may_write = false;
                self.counts.full += 1;
                Turn::Rest
            }
            Err(_) => {
                end.endpoint.stop_writing(now);
                Turn::Progress
            }
        }
    }

    fn packet_begins(&mut self, id: usize) {
        let end = &mut self.ends[id];
        end.asked = false;
        let bytes = end.endpoint.packet_bytes();
        end.check_kept(bytes.max(FRAGMENT_HEAD_BYTES + FRAGMENT_BYTES_MAX));
        let (packet, number, again) = end.endpoint.packet_mut();
        address_in_pattern(packet);
        let field = |at: usize| packet.head[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        let (sequence, ack) = (field(8), field(16));
        if sequence != number || packet.head.len() < HEADER_BYTES {
            end.fail(|| format!("packet {number} says that it is {sequence}"));
        }
        if !again {
            end.said = end.said.max(ack);
        }
        self.depart(id);
        self.note(1, [id as u64 ^ number << 8, bytes as u64], || {
            let again = if again { " again" } else { "" };
            format!("end {id} packet {number}{again}, {bytes} bytes, ack {ack}")
        });
    }

    /// Falsifies the packet at hand, if this end is to depart from the protocol.
    fn depart(&mut self, id: usize) {
        let end = &mut self.ends[id];
        let received = end.endpoint.link.received();
        let (packet, number, again) = end.endpoint.packet_mut();
        match end.departs {
            Some(Wrong::Gap) if number > 0 && !again => {
                // The endpoint takes the packet for written.
                let bytes = packet.bytes();
                end.endpoint.wrote(bytes);
                end.written = end.written.max(number);
            }
            Some(Wrong::Ack) if number == 0 || again => {
                let far = (received + 1_000_000).to_le_bytes();
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

    /// Cuts the connection now and then when the bye is on its way.
    fn maybe_lose_bye(&mut self, id: usize) {
        if self.ends[id].random.one_in(12) {
            let (pair, at) = (self.pair_of(id), self.now);
            self.counts.faults[0][self.ends[id].state()] += 1;
            self.at(at, Event::Cut { pair });
        }
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
}
