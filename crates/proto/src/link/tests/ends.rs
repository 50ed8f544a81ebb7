//! Acknowledgements, counters, and the time when an end has no more to send.

use super::*;
use crate::cycle::Hop;
use crate::outbox::{Beside, Staged, View};
use crate::packet::FLAG_ACK_NOW;

#[test]
fn an_ack_travels_alone_when_nothing_else_does() {
    let mut pair = two();
    let now = pair.now;
    let channel = pair.ends[0].open(false, "name", now);
    pair.ends[0].stage(channel, 10, now);
    assert_eq!(pair.ends[0].transmit(10, now), 1);
    pair.deliver(1, usize::MAX, false);
    assert_eq!(pair.ends[1].transmit(10, now), 0, "not at once");
    let deadline = pair.ends[1].link.next_deadline().unwrap();
    assert_eq!(deadline, now.after(Duration::from_millis(ACK_DELAY_MS)));
    assert_eq!(pair.ends[1].transmit(10, deadline), 1);
    pair.deliver(0, usize::MAX, false);
    assert_eq!(pair.ends[0].sent[&channel].acknowledged, 1);
    assert_eq!(pair.ends[1].link.next_deadline(), None);
}

#[test]
fn a_sync_is_answered_at_once_also_after_everything_left() {
    let mut pair = two();
    let now = pair.now;
    let channel = pair.ends[0].open(false, "name", now);
    pair.ends[0].stage(channel, 10, now);
    for _ in 0..2 {
        pair.ends[0].transmit(10, now);
        pair.ends[0].link.flush(channel, 1, now, true);
        pair.ends[0].transmit(10, now);
        pair.deliver(1, usize::MAX, false);
        assert_eq!(pair.ends[1].transmit(10, now), 1);
        pair.deliver(0, usize::MAX, false);
        assert_eq!(pair.ends[0].sent[&channel].acknowledged, 1);
    }
}

#[test]
fn packets_of_totals_alone_carry_no_number() {
    let mut pair = two();
    let now = pair.now;
    let channel = pair.ends[0].open(false, "name", now);
    for _ in 0..100 {
        pair.ends[0].stage(channel, 150, now);
    }
    pair.ends[0].transmit(10, now);
    pair.deliver(1, usize::MAX, false);
    pair.ends[1].take(channel, usize::MAX);
    assert_eq!(pair.ends[1].transmit(10, now), 1, "credit leaves at once");
    let wire: Vec<u8> = pair.ends[1].wire.iter().copied().collect();
    let (mut at, mut credit) = (0, 0);
    let mut decoder = Decoder::new(PACKET_BYTES_DEFAULT);
    while let Some(item) = decoder.next(&wire, &mut at).unwrap() {
        match item {
            Item::Packet(header) => assert_eq!((header.sequence, header.ack), (0, 1)),
            Item::Credit { total, .. } => credit = total,
            Item::PacketEnd { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(credit > 2 * WINDOW_BYTES_INITIAL, "the window doubled: {credit}");
}

#[test]
fn what_waits_for_credit_or_to_be_opened_keeps_a_closing_link_from_being_quiet() {
    let mut pair = Pair::new([4096; 2], [32 * 1024; 2]);
    let now = pair.now;
    // Each end may open one channel.
    for _ in 0..2 {
        let channel = pair.ends[0].open(false, "name", now);
        for _ in 0..40 {
            pair.ends[0].stage(channel, 1000, now);
        }
    }
    pair.ends[0].link.close(now);
    for _ in 0..20 {
        pair.ends[0].transmit(100, now);
        pair.deliver(1, usize::MAX, false);
        pair.ends[1].transmit(100, now);
        pair.deliver(0, usize::MAX, false);
    }
    assert!(!pair.ends[0].link.is_quiet());
    assert_eq!(pair.ends[1].inboxes.len(), 1);
    for sent in pair.ends[0].sent.values_mut() {
        sent.ended = true;
    }
    pair.finish();
}

fn header_of(packet: &[u8]) -> Header {
    let item = Decoder::new(PACKET_BYTES_DEFAULT).next(packet, &mut 0).unwrap();
    let Some(Item::Packet(header)) = item else { panic!("{item:?}") };
    header
}

/// Rings of which one is filled while a packet is filled.
struct Filled<'a> {
    rings: &'a mut Rings,
    restaged: Option<u32>,
}

impl Staged for Filled<'_> {
    fn view(&mut self, channel: u32) -> View<'_> {
        self.rings.view(channel)
    }

    fn consume(&mut self, channel: u32, bytes: usize, messages: u32) {
        self.rings.consume(channel, bytes, messages);
    }

    fn take_beside(&mut self, channel: u32) -> Beside {
        self.rings.take_beside(channel)
    }

    fn restaged(&mut self) -> Option<u32> {
        self.restaged.take()
    }
}

#[test]
fn what_is_staged_while_a_packet_is_filled_is_no_part_of_its_decisions() {
    let mut pair = two();
    let now = pair.now;
    let [asks, other] = [(); 2].map(|()| pair.ends[0].open(false, "name", now));
    exchange(&mut pair);
    pair.ends[0].stage(asks, 10, now);
    pair.ends[0].link.flush(asks, 1, now, true);
    let End { link, rings, .. } = &mut pair.ends[0];
    rings.stage(other, b"later", usize::MAX);
    let mut filled = Filled { rings, restaged: Some(other) };
    for number in [2, 3] {
        let mut packet = Packet::default();
        while matches!(link.poll_transmit(&mut filled, now, &mut packet), Transmit::Yield(_)) {}
        let header = header_of(&packet.head);
        assert_eq!((header.sequence, header.flags), (number, FLAG_ACK_NOW));
        link.written(number, &mut packet);
    }
}

#[test]
fn a_sync_is_asked_for_with_its_last_packet_although_the_first_was_acknowledged() {
    let mut pair = Pair::new([4096; 2], [256 * 1024; 2]);
    let channel = pair.ends[0].open(false, "name", pair.now);
    for _ in 0..6 {
        pair.ends[0].stage(channel, 1000, pair.now);
    }
    pair.ends[0].link.flush(channel, 6, pair.now, true);
    assert_eq!(pair.ends[0].transmit(1, pair.now), 1);
    pair.deliver(1, usize::MAX, false);
    pair.now = pair.now.after(Duration::from_millis(ACK_DELAY_MS));
    assert_eq!(pair.ends[1].transmit(1, pair.now), 1);
    pair.deliver(0, usize::MAX, false);
    let [sent, acknowledged, _] = pair.ends[0].link.numbers();
    assert_eq!((sent, acknowledged), (1, 1));
    assert_eq!(pair.ends[0].transmit(1, pair.now), 1);
    assert_eq!(header_of(pair.ends[0].wire.make_contiguous()).flags, FLAG_ACK_NOW);
}

#[test]
fn an_idle_packet_is_counted_once_with_its_reason() {
    let mut pair = two();
    let now = pair.now;
    let channel = pair.ends[0].open(false, "name", now);
    for _ in 0..5 {
        pair.ends[0].stage(channel, 10, now);
    }
    pair.ends[0].transmit(10, now);
    let counters = pair.ends[0].link.counters();
    assert_eq!((counters.packets_sent, counters.message_packets_sent), (1, 1));
    assert_eq!((counters.messages_sent, counters.messages_per_packet_max), (5, 5));
    assert_eq!(counters.flushes.get(FlushReason::Idle), 1);
}

#[test]
fn the_wait_of_the_oldest_message_is_counted_for_each_packet() {
    let mut pair = two();
    let channel = pair.ends[0].open(false, "name", pair.now);
    for waited_us in [30, 50, 20] {
        pair.ends[0].stage(channel, 10, pair.now);
        pair.now = pair.now.after(Duration::from_micros(waited_us));
        assert_eq!(pair.ends[0].transmit(10, pair.now), 1);
        exchange(&mut pair);
    }
    let counters = pair.ends[0].link.counters();
    assert_eq!((counters.queueing_delay_us_total, counters.queueing_delay_us_max), (100, 50));
}

#[test]
fn a_packet_that_found_no_message_is_not_counted_with_those_of_messages() {
    let mut pair = two();
    let now = pair.now;
    let channel = pair.ends[0].open(false, "name", now);
    pair.ends[0].stage(channel, 10, now);
    exchange(&mut pair);
    let before = pair.ends[0].link.counters();
    // The receiver has dropped the channel after its sender staged the message.
    pair.ends[0].stage(channel, 10, now);
    pair.ends[0].rings.discard(channel);
    pair.ends[0].link.describe(channel, "text");
    assert_eq!(pair.ends[0].transmit(10, now), 1);
    let counters = pair.ends[0].link.counters();
    assert_eq!(counters.packets_sent, before.packets_sent + 1);
    assert_eq!(counters.message_packets_sent, before.message_packets_sent);
    assert_eq!(counters.flushes, before.flushes);
}

/// Returns the records that `end` has put on the wire, as text.
fn records_of(end: &mut End) -> Vec<String> {
    let wire: Vec<u8> = end.wire.drain(..).collect();
    let (mut decoder, mut at, mut records) = (Decoder::new(PACKET_BYTES_DEFAULT), 0, Vec::new());
    let mut whole = true;
    while let Some(item) = decoder.next(&wire, &mut at).unwrap() {
        whole = matches!(item, Item::PacketEnd { .. });
        if !whole && !matches!(item, Item::Packet(_)) {
            records.push(format!("{item:?}"));
        }
    }
    assert!(whole && at == wire.len(), "part of a packet");
    records
}

#[test]
fn chains_of_waits_leave_in_a_packet_of_their_own() {
    let mut pair = two();
    let mut chain = Vec::new();
    Hop { node: 1, channel: 2, position: 3, node_name: "node", channel_name: "name" }
        .append_to(&mut chain);
    let end = &mut pair.ends[0];
    end.link.tell((1..=2).map(|number| Told { number, chain: chain.clone() }).collect());
    assert_eq!(end.transmit(10, pair.now), 1);
    let records = records_of(end);
    assert_eq!(records.len(), 2);
    assert!(records.iter().all(|record| record.starts_with("Wait")), "{records:?}");
    end.link.count_cycle();
    end.link.count_cycle();
    assert_eq!(end.link.counters().cycles, 2);
}

#[test]
fn a_channel_is_stopped_once_and_one_less_may_be_opened() {
    let mut pair = two();
    let channel = pair.ends[0].open(false, "name", pair.now);
    pair.ends[0].stage(channel, 10, pair.now);
    let before = pair.ends[1].link.opens_left();
    exchange(&mut pair);
    let end = &mut pair.ends[1];
    assert_eq!(end.link.opens_left(), before - 1);
    for _ in 0..2 {
        end.link.stop(channel);
    }
    end.transmit(10, pair.now);
    let records = records_of(end);
    assert_eq!(
        records.iter().filter(|record| record.starts_with("Terminate")).count(),
        1,
        "{records:?}"
    );
}

#[test]
fn an_urgent_message_does_not_wait_for_more() {
    let mut pair = two();
    let now = pair.now;
    let channel = pair.ends[0].open(false, "name", now);
    exchange(&mut pair);
    for urgent in [false, true] {
        let end = &mut pair.ends[0];
        end.stage(channel, 10, now);
        if urgent {
            end.link.urgent(channel, 2, now);
        }
        let transmit = end.link.poll_transmit(&mut end.rings, now, &mut Packet::default());
        assert_eq!(matches!(transmit, Transmit::Packet { .. }), urgent, "{transmit:?}");
        assert_eq!(end.link.counters().flushes.get(FlushReason::Urgent), u64::from(urgent));
        exchange(&mut pair);
    }
}

#[test]
fn a_peer_is_asked_soon_while_something_waits_for_it() {
    for waits in [false, true] {
        let mut end = End::new(&config(PACKET_BYTES_DEFAULT, 1 << 20, 1 << 20));
        if waits {
            let channel = end.open(false, "name", Time(0));
            end.stage(channel, 10, Time(0));
        }
        let (alive, until) = end.link.poll_alive(Time(0));
        let after = if waits { Duration::from_secs(1) } else { Duration::from_secs(30) };
        assert_eq!((alive, until), (Alive::Fine, Time(0).after(after)));
    }
}

#[test]
fn two_ends_that_close_do_not_ask_each_other_for_ever() {
    let mut pair = Pair::new([4096; 2], [256 * 1024; 2]);
    let now = pair.now;
    for end in &mut pair.ends {
        let channel = end.open(false, "name", now);
        end.stage(channel, 10, now);
        end.end(channel, now);
        end.link.close(now);
    }
    // In turns: each end answers before it checks whether there is nothing more to send.
    let mut packets = 0;
    for _ in 0..100 {
        packets = 0;
        for side in [0, 1] {
            packets += pair.ends[side].transmit(1, now);
            pair.deliver(1 - side, usize::MAX, false);
        }
    }
    assert_eq!(packets, 0, "after all was acknowledged");
    assert!(pair.ends.iter().all(|end| end.link.is_quiet()));
}

/// Transmits all; returns the number of packets, and the totals of settled messages in them.
fn settled_of(end: &mut End, now: Time) -> (usize, Vec<u64>) {
    let packets = end.transmit(10, now);
    let wire: Vec<u8> = end.wire.drain(..).collect();
    let (mut decoder, mut at, mut totals) = (Decoder::new(PACKET_BYTES_DEFAULT), 0, Vec::new());
    while let Some(item) = decoder.next(&wire, &mut at).unwrap() {
        if let Item::Settled { total, last, .. } = item {
            assert!(!last);
            totals.push(total);
        }
    }
    (packets, totals)
}

/// Returns the end of a link to which a stream was opened.
fn with_stream() -> End {
    with_streams(1, &config(PACKET_BYTES_DEFAULT, 1 << 20, 1 << 20))
}

fn with_streams(count: u32, config: &LinkConfig) -> End {
    let mut end = End::new(config);
    let mut bytes = Vec::new();
    for channel in 1..=count {
        let start = StreamStart { id: channel.into(), first: 0, sent_before: 0 };
        bytes.open_for(channel, Lane::Bulk, ChannelKind::Typed, 1, (Some(start), None), "stream");
    }
    let header = Header { body_bytes: bytes.len() as u32, sequence: 1, ..Header::default() };
    bytes.splice(..0, header.encode());
    end.deliver(&mut bytes.into(), usize::MAX, false, Time(0));
    end
}

#[test]
fn a_receiver_that_told_of_settled_messages_is_looked_at_until_it_settles_no_more() {
    let mut end = with_stream();
    let mut now = Time(0).after(Duration::from_secs(1));
    let gap = Duration::from_millis(SETTLED_GAP_MS);
    end.rings.settled = Some(1);
    end.link.settle(1, 1, now);
    assert_eq!(settled_of(&mut end, now), (1, vec![1]));
    for total in [5, 6, 900] {
        end.rings.settled = Some(total);
        now = now.after(gap);
        assert_eq!(end.link.next_deadline(), Some(now));
        assert_eq!(settled_of(&mut end, now), (1, vec![total]));
    }
    // Any packet takes the latest number along, and asks for nothing.
    end.rings.settled = Some(901);
    let own = end.open(false, "own", now);
    end.stage(own, 10, now);
    assert_eq!(settled_of(&mut end, now), (1, vec![901]));
    assert!(!end.rings.asked);
    // After a look in vain it tells; what it settled while it was asked is seen by one more look.
    now = now.after(gap);
    assert_eq!(settled_of(&mut end, now), (0, vec![]));
    assert!(std::mem::take(&mut end.rings.asked));
    end.rings.settled = Some(902);
    now = now.after(gap);
    assert_eq!(settled_of(&mut end, now), (1, vec![902]));
    for _ in 0..2 {
        now = now.after(gap);
        assert_eq!(end.link.next_deadline(), Some(now));
        assert_eq!(settled_of(&mut end, now), (0, vec![]));
    }
    assert!(end.rings.asked && end.link.next_deadline() != Some(now.after(gap)));
    // A word of a number that was seen already begins the looks again.
    end.link.settle(1, 902, now);
    now = now.after(gap);
    assert_eq!(settled_of(&mut end, now), (0, vec![]));
    assert_eq!(end.link.next_deadline(), Some(now.after(gap)));
}

#[test]
fn settled_messages_are_reported_by_one_total_that_rides_on_a_packet() {
    let mut end = with_stream();
    let now = Time(0).after(Duration::from_secs(1));
    end.link.settle(1, 1, now);
    assert_eq!(settled_of(&mut end, now), (1, vec![1]));
    // Those of a while are reported together, and no number is reported that is not larger.
    for total in [2, 500, 1000, 3] {
        end.link.settle(1, total, now);
        assert_eq!(settled_of(&mut end, now), (0, vec![]));
    }
    let due = now.after(Duration::from_millis(SETTLED_GAP_MS));
    assert_eq!(end.link.next_deadline(), Some(due));
    assert_eq!(settled_of(&mut end, due), (1, vec![1000]));
    // A packet that leaves before takes the total along.
    let own = end.open(false, "own", due);
    end.link.settle(1, 1001, due);
    end.stage(own, 10, due);
    assert_eq!(settled_of(&mut end, due), (1, vec![1001]));
    // Repeated on the next connection, where the last report may be lost.
    end.cut(due);
    end.link.resume(1, due).unwrap();
    assert_eq!(settled_of(&mut end, due.after(Duration::from_secs(1))), (1, vec![1001]));
}

#[test]
fn a_look_that_finds_no_settled_messages_leaves_the_time_of_a_waiting_packet() {
    let linger = Duration::from_millis(5);
    let policy = Policy::Linger(linger);
    let config = config(PACKET_BYTES_DEFAULT, 1 << 20, 1 << 20);
    let mut end = with_streams(1, &LinkConfig { policy, ..config });
    let mut now = Time(0).after(Duration::from_secs(1));
    end.rings.settled = Some(1);
    end.link.settle(1, 1, now);
    assert_eq!(settled_of(&mut end, now), (1, vec![1]));
    let own = end.open(false, "own", now);
    end.stage(own, 10, now);
    let leaves = now.after(linger);
    for _ in 0..2 {
        now = now.after(Duration::from_millis(SETTLED_GAP_MS));
        assert_eq!(end.link.next_deadline(), Some(now));
        assert_eq!(settled_of(&mut end, now), (0, vec![]));
    }
    assert_eq!(end.link.next_deadline(), Some(leaves), "no further look, and the message waits");
    assert_eq!(settled_of(&mut end, leaves), (1, vec![]));
}

#[test]
fn a_look_that_finds_no_settled_messages_does_not_end_the_writing_of_kept_packets() {
    let mut end = with_stream();
    let mut now = Time(0).after(Duration::from_secs(1));
    end.rings.settled = Some(1);
    end.link.settle(1, 1, now);
    let own = end.open(false, "own", now);
    for _ in 0..3 {
        end.stage(own, 10, now);
        assert_eq!(end.transmit(1, now), 1);
    }
    end.cut(now);
    end.link.resume(0, now).unwrap();
    // The report of the new connection leaves first, and the next look comes between the packets.
    now = now.after(Duration::from_millis(SETTLED_GAP_MS));
    assert_eq!(end.transmit(2, now), 2);
    now = now.after(Duration::from_millis(SETTLED_GAP_MS));
    assert_eq!(end.link.next_deadline(), Some(now));
    assert_eq!(end.transmit(10, now), 2, "all that are left");
    assert_eq!(end.link.counters().packets_resent, 3);
}

#[test]
fn a_packet_looks_at_few_of_many_streams_until_a_look_is_due() {
    let mut end = with_streams(20, &config(PACKET_BYTES_DEFAULT, 1 << 20, 1 << 20));
    let now = Time(0).after(Duration::from_secs(1));
    end.rings.settled = Some(1);
    (1..=20).for_each(|channel| end.link.settle(channel, 1, now));
    assert_eq!(settled_of(&mut end, now), (1, vec![1; 20]));
    end.rings.settled = Some(2);
    let due = now.after(Duration::from_millis(SETTLED_GAP_MS));
    let own = end.open(false, "own", now);
    let soon = now.after(Duration::from_millis(SETTLED_GAP_MS) / 2);
    for now in [now, soon] {
        end.stage(own, 10, now);
        assert_eq!(settled_of(&mut end, now), (1, vec![2; 8]));
    }
    assert_eq!(end.link.next_deadline(), Some(due), "the others wait no longer for it");
    assert_eq!(settled_of(&mut end, due), (1, vec![2; 4]));
}

/// Controls that do not fit in a packet go before what is opened after them.
#[test]
fn a_refusal_is_heard_before_what_its_sender_opens_next() {
    let mut pair = Pair::new([1024; 2], [1 << 20; 2]);
    let now = pair.now;
    // The first control leaves room for an open, and none for the text of a refusal.
    let dropped = pair.ends[0].open(true, "dropped", now);
    exchange(&mut pair);
    pair.ends[1].drop_receiver(dropped);
    let refused = pair.ends[0].open(true, "refuse me", now);
    pair.ends[0].transmit(usize::MAX, now);
    let mut wire = std::mem::take(&mut pair.ends[0].wire);
    pair.ends[1].deliver(&mut wire, usize::MAX, false, now);
    let own = pair.ends[1].open(true, "own", now);
    pair.ends[1].stage(own, 10, now);
    pair.ends[1].transmit(usize::MAX, now);
    let mut wire = std::mem::take(&mut pair.ends[1].wire);
    while !pair.ends[0].inboxes.contains_key(&own) {
        assert!(!wire.is_empty(), "nothing is opened");
        pair.ends[0].deliver(&mut wire, 1, false, now);
    }
    assert!(pair.ends[0].sent[&refused].refused);
}
