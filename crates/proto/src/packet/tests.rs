use super::*;
use crate::cycle::{CHAIN_BYTES_MAX, HOPS_MAX, Hop, hops};
use crate::error::ProtocolError;
use crate::limits::FRAGMENT_BYTES_MAX;
use proptest::prelude::*;

#[derive(Debug, Clone, PartialEq)]
enum Record {
    Run(u32, u32, Vec<u8>),
    Fragment(u32, u64, Vec<u8>),
    Open(u32, bool, bool, u64, (Option<StreamStart>, Option<u64>), String),
    Consumed(u32, u64),
    Settled(u32, u64, bool),
    End(u32, u64),
    Terminate(u32),
    Credit(u32, u64),
    OpenCredit(u64),
    Refuse(u32, String),
    Describe(u32, String),
    Bye,
    Gone,
    Wait(u64, Vec<u8>),
    Memory(u64, u128),
    Reads,
}

fn any_stream() -> impl Strategy<Value = Option<StreamStart>> {
    let numbers = || 0..=STREAM_NUMBER_MAX;
    let stream = (any::<u128>(), numbers(), numbers());
    prop::option::of(stream.prop_map(|(id, first, sent_before)| StreamStart {
        id,
        first,
        sent_before,
    }))
}

fn any_record() -> impl Strategy<Value = Record> {
    let bytes = || prop::collection::vec(any::<u8>(), 1..200);
    prop_oneof![
        (any::<u32>(), any::<u32>(), bytes()).prop_map(|(c, m, b)| Record::Run(c, m, b)),
        (any::<u32>(), 0u64..1000, bytes()).prop_map(|(c, more, b)| Record::Fragment(
            c,
            b.len() as u64 + more,
            b
        )),
        (
            any::<u32>(),
            any::<bool>(),
            any::<bool>(),
            any::<u64>(),
            (any_stream(), any::<Option<u64>>()),
            "[a-zä]{0,40}"
        )
            .prop_map(|(c, l, k, f, s, n)| Record::Open(c, l, k, f, s, n)),
        (any::<u32>(), any::<u64>(), any::<bool>()).prop_map(|(c, t, l)| Record::Settled(c, t, l)),
        (any::<u32>(), any::<u64>()).prop_map(|(c, t)| Record::Consumed(c, t)),
        (any::<u32>(), any::<u64>()).prop_map(|(c, m)| Record::End(c, m)),
        any::<u32>().prop_map(Record::Terminate),
        (any::<u32>(), any::<u64>()).prop_map(|(c, t)| Record::Credit(c, t)),
        any::<u64>().prop_map(Record::OpenCredit),
        (any::<u32>(), "[a-z]{0,40}").prop_map(|(c, t)| Record::Refuse(c, t)),
        (any::<u32>(), "[a-z]{0,40}").prop_map(|(c, t)| Record::Describe(c, t)),
        Just(Record::Bye),
        Just(Record::Gone),
        (any::<u64>(), any_chain()).prop_map(|(n, c)| Record::Wait(n, c)),
        (any::<u64>(), any::<u128>()).prop_map(|(a, w)| Record::Memory(a, w)),
        Just(Record::Reads),
    ]
}

fn any_chain() -> impl Strategy<Value = Vec<u8>> {
    let hop = (any::<u64>(), any::<u32>(), any::<u64>(), "[a-zä]{0,40}", "[a-zä]{0,40}");
    prop::collection::vec(hop, 1..=HOPS_MAX).prop_map(|hops| {
        let mut chain = Vec::new();
        for (node, channel, position, node_name, channel_name) in &hops {
            let (node, channel, position) = (*node, *channel, *position);
            Hop { node, channel, position, node_name, channel_name }.append_to(&mut chain);
        }
        chain
    })
}

fn write(records: &[Record], sequence: u64, ack: u64) -> Vec<u8> {
    let mut body = Vec::new();
    for record in records {
        match record {
            Record::Run(c, m, b) => {
                body.run(*c, b.len() as u32, *m);
                body.extend_from_slice(b);
            }
            Record::Fragment(c, total, b) => {
                body.fragment(*c, *total, b.len() as u32);
                body.extend_from_slice(b);
            }
            Record::Settled(c, t, last) => body.settled(*c, *t, *last),
            Record::Consumed(c, t) => body.consumed(*c, *t),
            Record::Open(c, express, bytes, f, s, n) => {
                let lane = if *express { Lane::Express } else { Lane::Bulk };
                let kind = if *bytes { ChannelKind::Bytes } else { ChannelKind::Typed };
                body.open_for(*c, lane, kind, *f, *s, n);
            }
            Record::End(c, m) => body.end(*c, *m),
            Record::Terminate(c) => body.terminate(*c),
            Record::Credit(c, t) => body.credit(*c, *t),
            Record::OpenCredit(t) => body.open_credit(*t),
            Record::Refuse(c, t) => body.refuse(*c, Refusal::TypeMismatch, t),
            Record::Describe(c, t) => body.describe(*c, t),
            Record::Bye => body.bye(),
            Record::Gone => body.gone(),
            Record::Wait(n, c) => body.wait(*n, c),
            Record::Memory(a, w) => body.memory(*a, *w),
            Record::Reads => body.reads(),
        }
    }
    let header = Header { body_bytes: body.len() as u32, flags: 0, sequence, ack };
    let mut packet = header.encode().to_vec();
    packet.extend_from_slice(&body);
    packet
}

/// Feeds `wire` in pieces of the given sizes, as a driver does.
fn read(wire: &[u8], pieces: &[usize]) -> Result<Vec<Vec<Record>>, ProtocolError> {
    let mut decoder = Decoder::new(64 * 1024);
    let mut buffer = Vec::new();
    let mut packets: Vec<Vec<Record>> = Vec::new();
    let mut left = wire;
    let mut sizes = pieces.iter().copied().cycle();
    while !left.is_empty() {
        let size = sizes.next().unwrap_or(1).clamp(1, left.len());
        buffer.extend_from_slice(&left[..size]);
        left = &left[size..];
        let mut at = 0;
        while let Some(item) = decoder.next(&buffer, &mut at)? {
            note(item, &mut packets);
        }
        buffer.drain(..at);
    }
    assert!(buffer.is_empty());
    Ok(packets)
}

fn note(item: Item<'_>, packets: &mut Vec<Vec<Record>>) {
    let record = match item {
        Item::Packet(_) => return packets.push(Vec::new()),
        Item::Repeated(_) | Item::PacketEnd { .. } => return,
        Item::FragmentBytes { bytes, .. } => {
            if let Some(Record::Fragment(_, _, so_far)) =
                packets.last_mut().and_then(|p| p.last_mut())
            {
                so_far.extend_from_slice(bytes);
            }
            return;
        }
        Item::Run { channel, messages, bytes } => Record::Run(channel, messages, bytes.to_vec()),
        Item::Fragment { channel, message_bytes, .. } => {
            Record::Fragment(channel, message_bytes, Vec::new())
        }
        Item::Consumed { channel, total } => Record::Consumed(channel, total),
        Item::Settled { channel, total, last } => Record::Settled(channel, total, last),
        Item::Open(opening) => Record::Open(
            opening.channel,
            opening.lane == Lane::Express,
            opening.kind == ChannelKind::Bytes,
            opening.fingerprint,
            (opening.stream, opening.backlog),
            opening.name.to_owned(),
        ),
        Item::End { channel, messages } => Record::End(channel, messages),
        Item::Terminate { channel } => Record::Terminate(channel),
        Item::Credit { channel, total } => Record::Credit(channel, total),
        Item::OpenCredit { total } => Record::OpenCredit(total),
        Item::Refuse { channel, text, .. } => Record::Refuse(channel, text.to_owned()),
        Item::Describe { channel, text } => Record::Describe(channel, text.to_owned()),
        Item::Bye => Record::Bye,
        Item::Gone => Record::Gone,
        Item::Wait { number, chain } => Record::Wait(number, chain.to_vec()),
        Item::Memory { address, word } => Record::Memory(address, word),
        Item::Reads => Record::Reads,
    };
    packets.last_mut().expect("a header comes first").push(record);
}

proptest! {
    #[test]
    fn any_split_of_the_bytes_gives_the_same_records(
        packets in prop::collection::vec(prop::collection::vec(any_record(), 0..8), 1..6),
        pieces in prop::collection::vec(1usize..300, 1..20),
    ) {
        let mut wire = Vec::new();
        for (index, records) in packets.iter().enumerate() {
            wire.extend(write(records, index as u64, 7));
        }
        prop_assert_eq!(read(&wire, &pieces).unwrap(), packets);
    }

    #[test]
    fn random_bytes_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        pieces in prop::collection::vec(1usize..64, 1..4),
    ) {
        let mut decoder = Decoder::new(1024);
        let mut buffer = Vec::new();
        for piece in bytes.chunks(pieces[0]) {
            buffer.extend_from_slice(piece);
            let mut at = 0;
            while let Ok(Some(_)) = decoder.next(&buffer, &mut at) {}
            buffer.drain(..at);
        }
    }

    #[test]
    fn a_changed_byte_never_panics_nor_passes_the_packet(
        records in prop::collection::vec(any_record(), 1..6), at in 0usize..200, to in any::<u8>(),
    ) {
        let mut wire = write(&records, 1, 0);
        let index = at % wire.len();
        wire[index] = to;
        let mut decoder = Decoder::new(1024);
        let mut position = 0;
        while let Ok(Some(_)) = decoder.next(&wire, &mut position) {
            prop_assert!(position <= wire.len());
        }
    }
}

#[test]
fn a_packet_that_lies_about_its_lengths_is_refused() {
    let too_large = Header { body_bytes: u32::MAX, ..Header::default() }.encode();
    let mut at = 0;
    let error = Decoder::new(1024).next(&too_large, &mut at).unwrap_err();
    assert!(matches!(error, ProtocolError::PacketTooLarge { .. }));

    let mut wire = write(&[Record::Run(1, 1, vec![0; 50])], 1, 0);
    wire[HEADER_BYTES + 8] = 200; // the run says it is longer than its packet
    let mut decoder = Decoder::new(1024);
    let mut at = 0;
    assert!(decoder.next(&wire, &mut at).unwrap().is_some());
    assert_eq!(decoder.next(&wire, &mut at), Err(ProtocolError::RecordPassesPacket));
}

#[test]
fn a_packet_behind_a_repeated_one_is_found_in_the_same_bytes() {
    let mut wire = write(&[Record::Bye], 1, 0);
    wire.extend(write(&[Record::Credit(1, 2)], 2, 0));
    let (mut decoder, mut at, mut packets) = (Decoder::new(1024), 0, Vec::new());
    decoder.cut(1);
    while let Some(item) = decoder.next(&wire, &mut at).unwrap() {
        note(item, &mut packets);
    }
    assert_eq!((at, packets), (wire.len(), vec![vec![Record::Credit(1, 2)]]));
}

#[test]
fn the_largest_packet_is_accepted_and_a_larger_one_is_not() {
    let largest = 1024 + FRAGMENT_HEAD_BYTES + FRAGMENT_BYTES_MAX;
    for (bytes, fits) in [(largest, true), (largest + 1, false)] {
        let header = Header { body_bytes: bytes as u32, sequence: 1, ..Header::default() };
        let found = Decoder::new(1024).next(&header.encode(), &mut 0).is_ok();
        assert_eq!(found, fits, "{bytes} bytes");
    }
}

#[test]
fn a_chain_of_waits_that_is_none_is_refused() {
    let text = "n".repeat(100);
    let hop = Hop { node: 1, channel: 2, position: 3, node_name: &text, channel_name: &text };
    let mut longest = Vec::new();
    for _ in 0..HOPS_MAX {
        hop.append_to(&mut longest);
    }
    assert_eq!(longest.len(), CHAIN_BYTES_MAX);
    assert!(hops(&longest).all(|it| it.node_name == &text[..32]));
    let of = |chain: &[u8]| read(&write(&[Record::Wait(1, chain.to_vec())], 0, 0), &[1000]);
    assert!(of(&longest).is_ok());
    let hop_bytes = CHAIN_BYTES_MAX / HOPS_MAX;
    let mut one_more = longest.clone();
    hop.append_to(&mut one_more);
    let mut long_name = longest[..hop_bytes].to_vec();
    long_name[20] = 33;
    let mut no_text = longest[..hop_bytes].to_vec();
    no_text[21] = 0xff;
    for wrong in [&[][..], &longest[..hop_bytes - 1], &one_more, &long_name, &no_text] {
        assert_eq!(of(wrong), Err(ProtocolError::BadChain));
    }
}

#[test]
fn a_stream_with_numbers_out_of_range_is_refused() {
    let start = |first, sent_before| StreamStart { id: 1, first, sent_before };
    let beyond = STREAM_NUMBER_MAX + 1;
    for (stream, fits) in [
        (start(STREAM_NUMBER_MAX, STREAM_NUMBER_MAX), true),
        (start(beyond, 0), false),
        (start(0, beyond), false),
    ] {
        let mut body = Vec::new();
        body.open_for(1, Lane::Bulk, ChannelKind::Bytes, 7, (Some(stream), None), "name");
        let header = Header { body_bytes: body.len() as u32, sequence: 1, ..Header::default() };
        let packet = [&header.encode()[..], &body].concat();
        let (mut decoder, mut at) = (Decoder::new(1 << 16), 0);
        assert!(matches!(decoder.next(&packet, &mut at), Ok(Some(Item::Packet(_)))));
        let opened = decoder.next(&packet, &mut at);
        match opened {
            Ok(Some(Item::Open(opening))) => {
                assert!(fits && opening.stream == Some(stream) && opening.name == "name");
            }
            other => assert!(!fits && other == Err(ProtocolError::BadStream), "{other:?}"),
        }
    }
}

/// Returns a packet whose fragment of `bytes` is elsewhere, with a credit before it.
fn elsewhere(sequence: u64, bytes: u32, address: u64) -> Vec<u8> {
    let mut body = Vec::new();
    body.credit(3, 4);
    body.fragment(9, 1000, bytes);
    let body_bytes = body.len() as u32 + bytes;
    let header = Header { body_bytes, flags: FLAG_ELSEWHERE, sequence, ack: 0 };
    [&header.encode()[..], &body, &address.to_le_bytes()].concat()
}

#[test]
fn bytes_that_are_elsewhere_are_asked_for_before_anything_behind_them() {
    let mut wire = elsewhere(1, 600, 1 << 40);
    wire.extend(write(&[Record::Credit(1, 2)], 2, 0));
    for piece in 1..wire.len() {
        let (mut decoder, mut buffer, mut items) = (Decoder::new(1024), Vec::new(), Vec::new());
        let mut parts = Vec::new();
        for bytes in wire.chunks(piece) {
            buffer.extend_from_slice(bytes);
            let mut at = 0;
            loop {
                if let Some(part) = decoder.elsewhere() {
                    assert_eq!(decoder.fragment_left(), None);
                    parts.push(part);
                    decoder.skip_fragment(400);
                } else if let Some(item) = decoder.next(&buffer, &mut at).unwrap() {
                    items.push(format!("{item:?}"));
                } else {
                    break;
                }
            }
            assert!(decoder.wants(&buffer[at..]) > 0);
            buffer.drain(..at);
        }
        let part = |address, bytes| Elsewhere { channel: 9, address, bytes };
        assert_eq!(parts, [part(1 << 40, 600), part((1 << 40) + 400, 200)]);
        assert_eq!((items.len(), buffer.len()), (7, 0), "{items:?}");
        assert!(items[3].starts_with("PacketEnd") && items[5].starts_with("Credit"), "{items:?}");
    }
}

#[test]
fn a_packet_that_broke_off_or_came_before_has_no_bytes_elsewhere() {
    let first = elsewhere(1, 600, 1 << 40);
    let again = Err(ProtocolError::ElsewhereAgain { sequence: 1 });
    let (mut decoder, mut at) = (Decoder::new(1024), 0);
    while decoder.next(&first, &mut at).unwrap().is_some() {}
    decoder.skip_fragment(400);
    decoder.cut(0);
    assert_eq!((decoder.elsewhere(), decoder.next(&first, &mut 0)), (None, again.clone()));
    // It comes with all its bytes, of which those that were read are skipped.
    let mut decoder = Decoder::new(1024);
    at = 0;
    while decoder.next(&first, &mut at).unwrap().is_some() {}
    decoder.skip_fragment(400);
    decoder.cut(0);
    let mut whole = first[..first.len() - ADDRESS_BYTES].to_vec();
    whole[HEADER_FLAGS_AT] = 0;
    whole.extend((0..600_u32).map(|it| it as u8));
    let (mut at, mut came) = (0, Vec::new());
    while let Some(item) = decoder.next(&whole, &mut at).unwrap() {
        if let Item::FragmentBytes { channel: 9, bytes } = item {
            came.extend_from_slice(bytes);
        }
    }
    assert_eq!((at, came.len(), &came[..]), (whole.len(), 200, &whole[whole.len() - 200..]));
    decoder.cut(1);
    assert_eq!(decoder.next(&first, &mut 0), again);
}

#[test]
fn bytes_elsewhere_end_their_packet() {
    let mut wire = elsewhere(1, 600, 8);
    wire[0] += 1;
    let (mut decoder, mut at) = (Decoder::new(1024), 0);
    let outcome =
        std::iter::repeat_with(|| decoder.next(&wire, &mut at).map(|item| item.is_some()));
    let outcome: Vec<_> = outcome.take(3).collect();
    assert_eq!(outcome, [Ok(true), Ok(true), Err(ProtocolError::RecordPassesPacket)]);
}
