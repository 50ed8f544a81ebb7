//! Precedence on the wire.

use super::*;
use crate::packet::FLAG_ACK_NOW;

/// Returns the records that `end` has on the wire behind `from` bytes, without headers.
fn records(end: &End, from: usize) -> Vec<String> {
    let wire: Vec<u8> = end.wire.iter().copied().skip(from).collect();
    let (mut at, mut records) = (0, Vec::new());
    let mut decoder = Decoder::new(PACKET_BYTES_DEFAULT);
    while let Some(item) = decoder.next(&wire, &mut at).unwrap() {
        match item {
            Item::Packet(_) | Item::PacketEnd { .. } => {}
            Item::Terminate { channel } => records.push(format!("terminate {channel}")),
            Item::Run { channel, .. } => records.push(format!("run {channel}")),
            other => panic!("{other:?}"),
        }
    }
    records
}

/// Returns a link with much staged on bulk channels 1 to 8, a little on express channel 9, a
/// channel from the other end, and everything on the wire that may leave.
fn busy(resend_bytes_max: usize) -> Pair {
    let mut pair = Pair::new([64 * 1024; 2], [1 << 20; 2]);
    let now = pair.now;
    let config = LinkConfig { resend_bytes_max, ..config(64 * 1024, 1 << 20, 1 << 20) };
    pair.ends[0] = End::new(&config);
    let theirs = pair.ends[1].open(false, "theirs", now);
    pair.ends[1].stage(theirs, 10, now);
    for _ in 0..8 {
        pair.ends[0].open(false, "bulk", now);
    }
    let express = pair.ends[0].open(true, "express", now);
    pair.ends[0].stage(express, 10, now);
    exchange(&mut pair);
    for channel in 1..=8 {
        for _ in 0..15 {
            pair.ends[0].stage(channel, 1000, now);
        }
    }
    pair.ends[0].transmit(100, now);
    pair
}

#[test]
fn express_and_control_pass_bulk_that_waits() {
    let mut pair = busy(1 << 20);
    let now = pair.now;
    assert_eq!(pair.ends[0].link.bulk_waits(), Some(BOUND_BYTES_MIN));
    assert!(pair.ends[0].link.kept_bytes() <= BOUND_BYTES_MIN);
    let before = pair.ends[0].wire.len();
    pair.ends[0].stage(9, 16, now);
    pair.ends[0].drop_receiver(1);
    assert_eq!(pair.ends[0].transmit(100, now), 1);
    assert_eq!(records(&pair.ends[0], before), ["terminate 1", "run 9"]);
    pair.finish();
}

#[test]
fn express_leaves_bulk_its_part_also_when_all_that_is_on_its_way_is_express() {
    let mut pair = busy(1 << 30);
    let now = pair.now;
    let before = pair.ends[0].wire.len();
    pair.ends[0].link.outbox.handle_credit(9, 1 << 30);
    for _ in 0..200 {
        pair.ends[0].stage(9, 4000, now);
        pair.ends[0].transmit(100, now);
    }
    let records = records(&pair.ends[0], before);
    let express = records.iter().filter(|it| *it == "run 9").count();
    assert!(express >= 150 && records.len() > express, "{records:?}");
}

/// The record of a terminate is numbered, since it must not get lost.
#[test]
fn a_terminate_waits_for_room_among_what_is_kept_and_for_nothing_else() {
    let mut pair = busy(16 * 1024);
    let now = pair.now;
    assert!(pair.ends[0].link.is_full());
    pair.ends[0].drop_receiver(1);
    assert_eq!(pair.ends[0].transmit(100, now), 0);
    pair.deliver(1, usize::MAX, false);
    pair.ends[1].transmit(100, now);
    pair.deliver(0, usize::MAX, false);
    assert!(pair.ends[0].transmit(1, now) == 1);
    assert_eq!(records(&pair.ends[0], 0)[0], "terminate 1");
    pair.finish();
}

/// The bound may fall below what is on its way, here to that of a new connection.
#[test]
fn bulk_that_waits_asks_once_if_nothing_on_its_way_does() {
    let mut pair = busy(1 << 20);
    let now = pair.now;
    assert_eq!(pair.ends[0].transmit(100, now), 0, "the last packet asks");
    pair.ends[0].link.pace.restart(now);
    let before = pair.ends[0].wire.len();
    assert_eq!(pair.ends[0].transmit(100, now), 1);
    let asks: Vec<u8> = pair.ends[0].wire.iter().copied().skip(before).collect();
    let item = Decoder::new(PACKET_BYTES_DEFAULT).next(&asks, &mut 0).unwrap();
    let Some(Item::Packet(header)) = item else { panic!("{item:?}") };
    assert_eq!((asks.len(), header.sequence, header.flags), (HEADER_BYTES, 0, FLAG_ACK_NOW));
    assert_eq!(pair.ends[0].transmit(100, now), 0, "once");
    pair.deliver(1, usize::MAX, false);
    assert_eq!(pair.ends[1].transmit(1, now), 1, "the answer leaves at once");
    pair.deliver(0, usize::MAX, false);
    assert!(pair.ends[0].transmit(100, now) > 0, "bulk goes on");
    pair.finish();
}
