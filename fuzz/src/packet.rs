//! The packets of a connection.

use chunkcomm::proto::message::next_in_run;
use chunkcomm::proto::packet::{
    AppendRecords, ChannelKind, Decoder, Header, Item, Lane, Refusal, WireError,
};

const PACKET_BYTES_MAX: usize = 4096;

/// The decoder finds the same in the bytes, up to the same error, however they were cut: the first
/// byte says how.
pub fn run(data: &[u8]) {
    let Some((piece, wire)) = data.split_first() else { return };
    let whole = read(wire, wire.len().max(1));
    let pieces = read(wire, 1 + usize::from(*piece));
    assert_eq!(whole, pieces);
}

/// What was found, with the bytes of a fragment put together.
#[derive(Debug, Default, PartialEq)]
struct Found {
    items: Vec<String>,
    fragments: Vec<u8>,
    error: Option<WireError>,
}

fn read(wire: &[u8], piece: usize) -> Found {
    let mut decoder = Decoder::new(PACKET_BYTES_MAX);
    let mut found = Found::default();
    let mut buffer = Vec::new();
    for piece in wire.chunks(piece) {
        buffer.extend_from_slice(piece);
        let mut at = 0;
        loop {
            let before = at;
            let item = decoder.next(&buffer, &mut at);
            assert!(before <= at && at <= buffer.len());
            match item {
                Ok(Some(item)) => note(item, &mut found),
                Ok(None) => break,
                Err(error) => {
                    found.error = Some(error);
                    return found;
                }
            }
        }
        buffer.drain(..at);
        let wanted = decoder.wants(&buffer);
        assert!(buffer.len() < wanted, "{} bytes are there, {wanted} wanted", buffer.len());
    }
    found
}

fn note(item: Item<'_>, found: &mut Found) {
    if let Item::FragmentBytes { bytes, .. } = item {
        assert!(!bytes.is_empty());
        return found.fragments.extend_from_slice(bytes);
    }
    if let Item::Run { bytes, .. } = item {
        let mut at = 0;
        while let Some(message) = next_in_run(bytes, at) {
            assert!(at < message.end && message.end <= bytes.len());
            at = message.end;
        }
    }
    found.items.push(format!("{} {item:?}", found.fragments.len()));
}

/// A packet with a record of each kind, and three in a row.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let mut body = Vec::new();
    body.open(1, Lane::Bulk, ChannelKind::Typed, 7, "channel");
    body.run(1, 6, 2);
    body.extend_from_slice(&[2, 8, 9, 2, 8, 9]);
    body.end(1, 2);
    body.terminate(2);
    body.credit(2, 1 << 20);
    body.open_credit(1 << 21);
    body.refuse(3, Refusal::TypeMismatch, "u8");
    body.describe(3, "u16");
    body.bye();
    body.fragment(1, 100, 5);
    body.extend_from_slice(b"bytes");
    let header = Header { body_bytes: body.len() as u32, flags: 0, sequence: 1, ack: 0 };
    let packet = [&header.encode()[..], &body].concat();
    let behind = |piece: u8, packets: usize| [vec![piece], packet.repeat(packets)].concat();
    vec![behind(255, 1), behind(0, 1), behind(16, 3)]
}
