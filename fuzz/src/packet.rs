//! The packets of a connection.

use std::ops::Range;

use chunkcomm::proto::cycle::{HOPS_MAX, Hop};
use chunkcomm::proto::error::ProtocolError;
use chunkcomm::proto::limits::FRAGMENT_BYTES_MAX;
use chunkcomm::proto::message::next_in_run;
use chunkcomm::proto::packet::{
    AppendRecords, ChannelKind, Decoder, Header, Item, Lane, Opening, Refusal, StreamStart,
};

use crate::deeds::Deeds;

const PACKET_BYTES_MAX: usize = 4096;
const EDGES: [u64; 5] = [1, 4096, FRAGMENT_BYTES_MAX as u64, u32::MAX as u64, u64::MAX];

/// Runs by the first byte, which says how the bytes are cut into pieces, and whether they are the
/// wire's bytes or deeds that write packets.
pub fn run(data: &[u8]) {
    let mut deeds = Deeds::new(data);
    let how = deeds.byte();
    let piece = 1 + usize::from(how & 127);
    if how < 128 {
        any_cut_is_the_same(deeds.bytes(usize::MAX), piece);
        return;
    }
    let packets = packets(&mut deeds);
    let wire = packets.concat();
    let found = any_cut_is_the_same(&wire, piece);
    assert_eq!(found.error, None);
    assert!(found.written == wire, "what was found is written as it was");
    lost_connections_change_nothing(&packets, &mut deeds);
    // One byte is turned behind a packet's front, where sizes stay as they are or lie a little.
    let mut turned = wire;
    let at = deeds.number(&EDGES) as usize;
    if let Some(byte) = turned.get_mut(at) {
        *byte ^= 1 << deeds.below(8);
        any_cut_is_the_same(&turned, piece);
    }
}

/// Checks that the decoder finds the same items, up to the same error, however the bytes are cut.
fn any_cut_is_the_same(wire: &[u8], piece: usize) -> Found {
    let whole = read(wire, wire.len().max(1));
    let pieces = read(wire, piece);
    assert_eq!(whole, pieces);
    whole
}

/// Items found in the bytes. As text it would show better where two differ, but writing that text
/// took three quarters of the time.
#[derive(Debug, Default, PartialEq)]
struct Found {
    /// Everything but payload.
    items: Vec<Note>,
    /// Bytes of fragments of numbered packets.
    payload: Vec<u8>,
    error: Option<ProtocolError>,
    /// The items, written again.
    written: Vec<u8>,
    /// Whether the current packet has a number.
    numbered: bool,
    received: u64,
}

/// An item that was found.
#[derive(Debug, PartialEq)]
struct Note {
    /// Number of bytes of `payload` before the item.
    payload_bytes: usize,
    /// Whether the item comes exactly once even when connections are lost.
    once: bool,
    /// Number and flag in a packet's front or end, which are not in `written`.
    says: Option<(u64, bool)>,
    /// Bytes of the item, as a part of `written`.
    written: Range<usize>,
}

/// Writes deeds as packets with the numbers 1, 2 and so on, and some without a number.
fn packets(deeds: &mut Deeds<'_>) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    let mut sequence = 0;
    while !deeds.is_empty() && packets.len() < 8 {
        let mut body = Vec::new();
        for _ in 0..=deeds.below(6) {
            record(&mut body, deeds);
        }
        let numbered = !deeds.one_in(4);
        sequence += u64::from(numbered);
        let header = Header {
            body_bytes: body.len() as u32,
            flags: deeds.byte() % 2,
            sequence: if numbered { sequence } else { 0 },
            ack: deeds.number(&EDGES),
        };
        packets.push([&header.encode()[..], &body].concat());
    }
    packets
}

fn record(body: &mut Vec<u8>, deeds: &mut Deeds<'_>) {
    let channel = u32::from(deeds.byte());
    let count = deeds.below(80);
    match deeds.byte() % 11 {
        0 | 1 => {
            let payload = deeds.bytes(count);
            body.run(channel, payload.len() as u32, deeds.number(&EDGES) as u32);
            body.extend_from_slice(payload);
        }
        2 | 3 => {
            let payload = [&[deeds.byte()], deeds.bytes(count)].concat();
            let whole = deeds.number(&EDGES).saturating_add(payload.len() as u64);
            body.fragment(channel, whole, payload.len() as u32);
            body.extend_from_slice(&payload);
        }
        4 => {
            let name = String::from_utf8_lossy(deeds.bytes(count));
            let lane = if deeds.one_in(2) { Lane::Express } else { Lane::Bulk };
            let kind = if deeds.one_in(2) { ChannelKind::Bytes } else { ChannelKind::Typed };
            body.open(channel, lane, kind, deeds.number(&EDGES), &name);
        }
        5 => body.end(channel, deeds.number(&EDGES)),
        6 => body.terminate(channel),
        7 => body.credit(channel, deeds.number(&EDGES)),
        8 => body.open_credit(deeds.number(&EDGES)),
        9 => {
            let refusals = [Refusal::TypeMismatch, Refusal::NotAccepted, Refusal::KindMismatch];
            let text = String::from_utf8_lossy(deeds.bytes(count));
            body.refuse(channel, refusals[deeds.below(3)], &text);
        }
        _ => match deeds.below(4) {
            0 => body.describe(channel, &String::from_utf8_lossy(deeds.bytes(count))),
            1 => body.bye(),
            2 => body.wait(deeds.number(&EDGES), &chain(channel, count, deeds)),
            _ => body.gone(),
        },
    }
}

/// Returns a chain of waits with `count + 1` hops, at most [`HOPS_MAX`].
fn chain(channel: u32, count: usize, deeds: &mut Deeds<'_>) -> Vec<u8> {
    let mut chain = Vec::new();
    for node in 0..=count.min(HOPS_MAX - 1) as u64 {
        let name = String::from_utf8_lossy(deeds.bytes(2));
        let (node_name, channel_name) = (&*name, &*name);
        Hop { node, channel, position: node, node_name, channel_name }.append_to(&mut chain);
    }
    chain
}

/// Checks that lost connections bring each numbered packet once and whole. Each connection is lost
/// anywhere, and the peer then begins again at the first missing packet or one before it.
fn lost_connections_change_nothing(packets: &[Vec<u8>], deeds: &mut Deeds<'_>) {
    let mut decoder = Decoder::new(PACKET_BYTES_MAX);
    let mut found = Found::default();
    for _ in 0..deeds.below(4) {
        let wire = from_packet(packets, (found.received + 1).saturating_sub(deeds.below(2) as u64));
        let end = (deeds.below(256) * 3).min(wire.len());
        // Bytes that wait for more are lost with the connection.
        feed(&mut decoder, &wire[..end], &mut found);
        decoder.cut(found.received);
    }
    let wire = from_packet(packets, found.received + 1);
    assert_eq!(feed(&mut decoder, &wire, &mut found), wire.len());
    let whole = read(&packets.concat(), usize::MAX);
    assert_eq!(found.numbered_items(), whole.numbered_items());
    assert_eq!(found.payload, whole.payload);
    assert_eq!(found.received, whole.received);
}

/// Returns the bytes from the packet with this number on.
fn from_packet(packets: &[Vec<u8>], number: u64) -> Vec<u8> {
    let sequence = |packet: &[u8]| u64::from_le_bytes(packet[8..16].try_into().expect("a header"));
    let first = packets.iter().position(|packet| sequence(packet) >= number.max(1));
    packets[first.unwrap_or(packets.len())..].concat()
}

fn read(wire: &[u8], piece: usize) -> Found {
    let mut decoder = Decoder::new(PACKET_BYTES_MAX);
    let mut found = Found::default();
    let mut buffer = Vec::new();
    for piece in wire.chunks(piece) {
        buffer.extend_from_slice(piece);
        let at = feed(&mut decoder, &buffer, &mut found);
        if found.error.is_some() {
            return found;
        }
        buffer.drain(..at);
        let wanted = decoder.wants(&buffer);
        assert!(buffer.len() < wanted, "{} bytes are there, {wanted} wanted", buffer.len());
    }
    found
}

/// Feeds the bytes to the decoder; returns the number of bytes used.
fn feed(decoder: &mut Decoder, buffer: &[u8], found: &mut Found) -> usize {
    let mut at = 0;
    loop {
        if let Some(part) = decoder.elsewhere() {
            assert_eq!(decoder.fragment_left(), None);
            decoder.skip_fragment(part.bytes.div_ceil(2));
            continue;
        }
        let before = at;
        let item = decoder.next(buffer, &mut at);
        assert!(before <= at && at <= buffer.len());
        match item {
            Ok(Some(item)) => found.note(&item),
            Ok(None) if decoder.elsewhere().is_some() => {}
            Ok(None) => return at,
            Err(error) => {
                found.error = Some(error);
                return at;
            }
        }
    }
}

impl Found {
    fn note(&mut self, item: &Item<'_>) {
        let start = self.written.len();
        self.write(item.clone());
        let mut says = None;
        match *item {
            Item::Packet(header) => self.numbered = header.sequence != 0,
            Item::Repeated(header) => says = Some((header.sequence, true)),
            Item::PacketEnd { sequence, ack_now } => {
                self.received = self.received.max(sequence);
                says = Some((sequence, ack_now));
            }
            Item::Run { bytes, .. } => {
                let mut at = 0;
                while let Some(message) = next_in_run(bytes, at) {
                    assert!(at < message.end && message.end <= bytes.len());
                    at = message.end;
                }
            }
            Item::FragmentBytes { bytes, .. } => {
                assert!(!bytes.is_empty());
                // Fragments of packets without a number may be lost.
                let kept = if self.numbered { bytes } else { &[] };
                return self.payload.extend_from_slice(kept);
            }
            _ => {}
        }
        let once = self.numbered && !matches!(item, Item::Packet(_) | Item::Repeated(_));
        let (payload_bytes, written) = (self.payload.len(), start..self.written.len());
        self.items.push(Note { payload_bytes, once, says, written });
    }

    /// Returns the items that come once even when connections are lost.
    fn numbered_items(&self) -> Vec<Once<'_>> {
        let once = self.items.iter().filter(|note| note.once);
        once.map(|note| (note.payload_bytes, note.says, &self.written[note.written.clone()]))
            .collect()
    }

    fn write(&mut self, item: Item<'_>) {
        let to = &mut self.written;
        match item {
            Item::Packet(header) | Item::Repeated(header) => {
                to.extend_from_slice(&header.encode());
            }
            Item::Run { channel, messages, bytes } => {
                to.run(channel, bytes.len() as u32, messages);
                to.extend_from_slice(bytes);
            }
            Item::Fragment { channel, message_bytes, bytes } => {
                to.fragment(channel, message_bytes, bytes);
            }
            Item::FragmentBytes { bytes, .. } => to.extend_from_slice(bytes),
            Item::Open(opening) => {
                let Opening { channel, lane, kind, fingerprint, stream, backlog, name } = *opening;
                to.open_for(channel, lane, kind, fingerprint, (stream, backlog), name);
            }
            Item::Settled { channel, total, last } => to.settled(channel, total, last),
            Item::Consumed { channel, total } => to.consumed(channel, total),
            Item::End { channel, messages } => to.end(channel, messages),
            Item::Terminate { channel } => to.terminate(channel),
            Item::Credit { channel, total } => to.credit(channel, total),
            Item::OpenCredit { total } => to.open_credit(total),
            Item::Refuse { channel, refusal, text } => to.refuse(channel, refusal, text),
            Item::Describe { channel, text } => to.describe(channel, text),
            Item::Bye => to.bye(),
            Item::Gone => to.gone(),
            Item::Wait { number, chain } => to.wait(number, chain),
            Item::Memory { address, word } => to.memory(address, word),
            Item::Reads => to.reads(),
            Item::PacketEnd { .. } => {}
        }
    }
}

/// An item that comes once: bytes of payload before it, its number and flag, its written bytes.
type Once<'a> = (usize, Option<(u64, bool)>, &'a [u8]);

/// Returns a packet with a record of each kind, three such packets in a row, and deeds.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let mut body = Vec::new();
    body.open(1, Lane::Bulk, ChannelKind::Typed, 7, "channel");
    let stream = StreamStart { id: 9, first: 5, sent_before: 8 };
    body.open_for(4, Lane::Express, ChannelKind::Bytes, 7, (Some(stream), None), "stream");
    body.settled(4, 6, true);
    body.open_for(5, Lane::Bulk, ChannelKind::Typed, 7, (None, Some(4096)), "feed");
    body.consumed(5, 512);
    body.run(1, 6, 2);
    body.extend_from_slice(&[2, 8, 9, 2, 8, 9]);
    body.end(1, 2);
    body.terminate(2);
    body.credit(2, 1 << 20);
    body.open_credit(1 << 21);
    body.refuse(3, Refusal::TypeMismatch, "u8");
    body.describe(3, "u16");
    body.wait(1, &chain(1, 3, &mut Deeds::new(b"names")));
    body.memory(1 << 40, 77);
    body.reads();
    body.bye();
    body.fragment(1, 100, 5);
    body.extend_from_slice(b"bytes");
    let header = Header { body_bytes: body.len() as u32, flags: 0, sequence: 1, ack: 0 };
    let packet = [&header.encode()[..], &body].concat();
    let behind = |piece: u8, packets: usize| [vec![piece], packet.repeat(packets)].concat();
    // Deeds of runs, fragments and all other records, with connections lost here and there.
    let deeds = |step: u8| (0..180u8).map(|byte| byte.wrapping_mul(step)).collect::<Vec<u8>>();
    let written = |piece: u8, step: u8| [vec![128 | piece], deeds(step)].concat();
    vec![behind(127, 1), behind(0, 1), behind(16, 3), written(0, 1), written(9, 7), written(60, 37)]
}
