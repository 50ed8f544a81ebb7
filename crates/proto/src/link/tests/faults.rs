//! Faults of a peer, and their errors.

use super::*;

/// Returns a link's error for a packet with this body, after an open of channel 1.
fn refused(body: impl FnOnce(&mut Vec<u8>)) -> ProtocolError {
    let mut end = End::new(&config(64 * 1024, 1 << 20, 1 << 20));
    let mut bytes = Vec::new();
    bytes.open(1, Lane::Bulk, ChannelKind::Typed, 1, "name");
    body(&mut bytes);
    let header = Header { body_bytes: bytes.len() as u32, sequence: 1, ..Header::default() };
    bytes.splice(..0, header.encode());
    let mut at = 0;
    while let Some(item) = end.decoder.next(&bytes, &mut at).unwrap() {
        match end.link.handle(item, Time(0)) {
            Ok(Event::LargeBegins { channel, .. }) => {
                end.link.admit_large(channel, false);
            }
            Ok(_) => {}
            Err(error) => return error,
        }
    }
    panic!("it was taken")
}

#[test]
fn what_a_peer_must_not_do_ends_the_session() {
    let run = |body: &mut Vec<u8>, channel, bytes: u32| {
        body.run(channel, bytes, 1);
        body.resize(body.len() + bytes as usize, 0);
    };
    assert_eq!(refused(|body| run(body, 2, 1)), ProtocolError::UnknownChannel(2));
    let above = WINDOW_BYTES_INITIAL as u32 + 1;
    let error =
        ProtocolError::OverWindow { received: u64::from(above), granted: WINDOW_BYTES_INITIAL };
    assert_eq!(refused(|body| run(body, 1, above)), error);
    let again = refused(|body| body.open(1, Lane::Bulk, ChannelKind::Typed, 1, "name"));
    assert_eq!(again, ProtocolError::OpenedTwice(1));
    let error = ProtocolError::EndCount { declared: 3, received: 0 };
    assert_eq!(refused(|body| body.end(1, 3)), error);
    for bytes in [MESSAGE_BYTES_MAX + 1, 1 << 63, u64::MAX] {
        let bytes_max = MESSAGE_BYTES_MAX;
        let error = refused(|body| {
            body.fragment(1, bytes, 1);
            body.push(0);
        });
        assert_eq!(error, ProtocolError::MessageTooLarge { bytes, bytes_max });
    }
}

#[test]
fn a_peer_that_does_not_read_the_answers_it_causes_ends_its_session() {
    let mut end = End::new(&config(64 * 1024, 1 << 20, 1 << 20));
    let mut refused = 0;
    for number in 1..=20_000u32 {
        let mut bytes = Vec::new();
        bytes.open(number, Lane::Bulk, ChannelKind::Typed, 1, "name");
        bytes.end(number, 0);
        let body_bytes = bytes.len() as u32;
        let header = Header { body_bytes, sequence: u64::from(number), ..Header::default() };
        bytes.splice(..0, header.encode());
        let mut at = 0;
        while let Some(item) = end.decoder.next(&bytes, &mut at).unwrap() {
            match end.link.handle(item, Time(0)) {
                Ok(Event::Opened(opening)) => {
                    end.link.refuse(opening.channel, Refusal::NotAccepted, "");
                    refused += 1;
                }
                Ok(_) => {}
                Err(error) => {
                    assert!(matches!(error, ProtocolError::Answers { .. }), "{error}");
                    assert!(refused < 5000, "{refused}");
                    return;
                }
            }
        }
    }
    panic!("it answers without end");
}

#[test]
fn a_channel_is_once_among_the_grants_that_a_peer_does_not_read() {
    let mut end = End::new(&config(64 * 1024, 1 << 20, 1 << 20));
    let taken = |end: &mut End, sequence, body: &mut dyn FnMut(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        body(&mut bytes);
        let header = Header { body_bytes: bytes.len() as u32, sequence, ..Header::default() };
        bytes.splice(..0, header.encode());
        let mut at = 0;
        while let Some(item) = end.decoder.next(&bytes, &mut at).unwrap() {
            end.link.handle(item, Time(0)).unwrap();
        }
    };
    taken(&mut end, 1, &mut |body| body.open(1, Lane::Bulk, ChannelKind::Typed, 1, "name"));
    let bytes = WINDOW_BYTES_INITIAL as u32 / 2;
    for sequence in 2..1000 {
        taken(&mut end, sequence, &mut |body| {
            body.run(1, bytes, 1);
            body.resize(body.len() + bytes as usize, 0);
        });
        end.link.consumed(1, u64::from(bytes));
        assert!(end.link.grants.len() <= 1, "{} grants of one channel", end.link.grants.len());
    }
    // The last total is sent, again on a new connection, and then no more.
    let mut packet = Packet::default();
    for _ in 0..2 {
        let transmit = end.link.poll_transmit(&mut end.rings, Time(0), &mut packet);
        assert!(matches!(transmit, Transmit::Packet { number: 0, .. }));
        let (mut decoder, mut at, mut said) = (Decoder::new(PACKET_BYTES_DEFAULT), 0, Vec::new());
        while let Some(item) = decoder.next(&packet.head, &mut at).unwrap() {
            if let Item::Credit { channel, total } = item {
                said.push((channel, total));
            }
        }
        assert_eq!(said, [(1, end.link.incoming.get(1).unwrap().window.granted())]);
        assert!(end.link.grants.is_empty());
        end.link.written(0, &mut packet);
        end.link.cut(Time(0));
        end.link.resume(0, Time(0)).unwrap();
    }
}

#[test]
fn channels_that_came_and_went_do_not_fill_the_grants_of_a_peer_that_does_not_read() {
    let mut end = End::new(&config(64 * 1024, 1 << 20, 1 << 20));
    let bytes = WINDOW_BYTES_INITIAL as u32 / 2;
    for number in 1..=20_000u32 {
        let mut packet = Vec::new();
        packet.open(number, Lane::Bulk, ChannelKind::Typed, 1, "name");
        packet.run(number, bytes, 1);
        packet.resize(packet.len() + bytes as usize, 0);
        packet.end(number, 1);
        let body_bytes = packet.len() as u32;
        let header = Header { body_bytes, sequence: u64::from(number), ..Header::default() };
        packet.splice(..0, header.encode());
        let mut at = 0;
        while let Some(item) = end.decoder.next(&packet, &mut at).unwrap() {
            if let Err(error) = end.link.handle(item, Time(0)) {
                assert!(matches!(error, ProtocolError::Answers { .. }), "{error}");
                assert!(number < 5000, "{number}");
                return;
            }
        }
        end.link.consumed(number, u64::from(bytes));
        end.link.finished(number);
    }
    panic!("it owes without end");
}

#[test]
fn a_packet_out_of_turn_is_refused_before_anything_of_it_is_handled() {
    let mut end = End::new(&config(64 * 1024, 1 << 20, 1 << 20));
    let packet = |sequence| {
        let mut bytes = Vec::new();
        bytes.open(sequence as u32, Lane::Bulk, ChannelKind::Typed, 1, "name");
        let header = Header { body_bytes: bytes.len() as u32, sequence, ..Header::default() };
        bytes.splice(..0, header.encode());
        bytes
    };
    for (sequence, good) in [(1, true), (3, false), (1, false), (2, true)] {
        let (bytes, mut at) = (packet(sequence), 0);
        let item = end.decoder.next(&bytes, &mut at).unwrap().unwrap();
        assert_eq!(end.link.handle(item, Time(0)).is_ok(), good, "packet {sequence}");
        if !good {
            end.decoder = Decoder::new(PACKET_BYTES_DEFAULT);
            continue;
        }
        while let Some(item) = end.decoder.next(&bytes, &mut at).unwrap() {
            end.link.handle(item, Time(0)).unwrap();
        }
    }
}
