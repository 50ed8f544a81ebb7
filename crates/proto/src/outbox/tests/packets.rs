//! Content of a packet, and its counters.

use super::*;

#[test]
fn a_packet_counts_once_for_a_channel_with_several_turns_in_it() {
    let mut scene = Scene::new(Policy::Chunked, 12 * 1024);
    let (busy, calm) = (scene.open(Lane::Bulk), scene.open(Lane::Bulk));
    let idle = scene.open(Lane::Bulk);
    for _ in 0..90 {
        scene.stage(busy, 99);
    }
    scene.stage(calm, 99);
    let mut head = vec![0; HEADER_BYTES];
    let (rings, session) = (&mut scene.rings, &mut scene.session);
    scene.outbox.fill(rings, session, &mut head, 12 * 1024, scene.now);
    scene.outbox.count_writes(3);
    // Writes of a packet without messages, or of one that comes again.
    scene.outbox.count_writes(5);
    for (channel, messages) in [(busy, 90), (calm, 1), (idle, 0)] {
        let counters = scene.outbox.counters(channel).unwrap();
        let any = u64::from(messages > 0);
        assert_eq!((counters.packets, counters.writes), (any, 3 * any));
        assert_eq!(counters.messages_per_packet_max, messages);
        assert_eq!(counters.bytes, messages * 100);
    }
}

#[test]
fn a_fragment_head_and_its_payload_are_one_packet() {
    let mut scene = Scene::new(Policy::Chunked, 4096);
    let channel = scene.open(Lane::Bulk);
    scene.stage(channel, 20_000);
    let mut head = vec![0; HEADER_BYTES];
    let (rings, session) = (&mut scene.rings, &mut scene.session);
    let filled = scene.outbox.fill(rings, session, &mut head, 4096, scene.now);
    // As much as the first window allows, behind the open and the fragment's head.
    assert_eq!(filled.tail.as_ref().unwrap().len() as u64, WINDOW_BYTES_INITIAL);
    let name = "channel 0".len();
    assert_eq!(head.len(), HEADER_BYTES + RECORD_BYTES + name + FRAGMENT_HEAD_BYTES);
    assert_eq!(filled.messages, 0);
}

/// A stream stages before it knows that its peer takes small packets.
#[test]
fn messages_that_no_packet_holds_leave_in_fragments() {
    for size in [900, 1000, 1024, 2000, INLINE_BYTES_MAX] {
        let mut scene = Scene::new(Policy::Chunked, PACKET_BYTES_MIN);
        scene.inline_bytes_max = INLINE_BYTES_MAX;
        let channel = scene.open(Lane::Bulk);
        for size in [10, size, 20, size] {
            scene.stage(channel, size);
        }
        scene.finish();
    }
}

#[test]
fn both_parts_of_a_ring_that_wraps_count_for_a_full_packet() {
    let mut scene = Scene::new(Policy::Chunked, 16 * 1024);
    let channel = scene.open(Lane::Bulk);
    scene.transmit();
    for staged in 0..100 {
        scene.stage(channel, 1_000);
        if staged < 20 {
            continue;
        }
        let verdict = scene.outbox.decide(&mut scene.rings, scene.now);
        assert_eq!(verdict, Some(Verdict::Leave(FlushReason::Full)), "{staged} staged");
        scene.rings.consume(channel, message::prefix_bytes(1_000) + 1_000, 1);
    }
}
