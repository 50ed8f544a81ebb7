use super::*;
use crate::driver::keeping::{Keeping, Stream};
use crate::driver::mail::Taken;
use crate::proto::limits::{INLINE_BYTES_MAX, PACKET_OVERHEAD_BYTES};
use crate::proto::packet::StreamStart;

const KIB: usize = 1024;

/// A channel's end, the consumer of its ring, and the numbers of messages staged and taken.
struct Rig {
    end: TxEnd,
    consumer: Consumer,
    staged: u32,
    taken: u32,
}

impl Rig {
    fn new() -> Rig {
        let link = LinkShared::undriven(1 << 18);
        let shared = TxShared::new("numbers".into(), "bytes".into(), Settling::No);
        let (end, consumer) = TxEnd::new(&link, &shared, 1);
        Rig { end, consumer, staged: 0, taken: 0 }
    }

    /// Stages numbers until there is no room, for packets of `packet_bytes`; returns how many.
    fn fill(&mut self, packet_bytes: usize) -> u32 {
        self.end.link.set_ring_bytes(packet_bytes);
        let before = self.staged;
        while self.end.stage_slice(&self.staged.to_le_bytes()).unwrap() == Staged::Done {
            self.staged += 1;
        }
        self.staged - before
    }

    /// Takes up to `messages` numbers of the oldest ring, and checks their order.
    fn take(&mut self, messages: u32) {
        let (front, back, staged) = self.consumer.peek();
        let messages = messages.min(staged);
        let bytes: Vec<u8> =
            front.iter().chain(back).copied().take(5 * messages as usize).collect();
        for message in bytes.chunks(5) {
            assert_eq!(message[0], 4, "the length goes before");
            assert_eq!(message[1..], self.taken.to_le_bytes());
            self.taken += 1;
        }
        self.consumer.consume(bytes.len(), messages);
    }

    fn take_all(&mut self) {
        while self.taken < self.staged {
            self.take(u32::MAX);
        }
    }
}

#[test]
fn a_ring_is_as_large_as_a_packet_when_packets_get_smaller_again() {
    let mut rig = Rig::new();
    for packet_kib in [64, 256, 128, 256, 64] {
        rig.fill(packet_kib * KIB);
        rig.take_all();
        assert!(rig.fill(packet_kib * KIB) > 0);
        assert_eq!(rig.end.ring_bytes(), packet_kib * KIB - PACKET_OVERHEAD_BYTES);
        rig.take_all();
    }
}

#[test]
fn values_that_never_fill_a_ring_leave_a_large_one_too() {
    let mut rig = Rig::new();
    rig.fill(256 * KIB);
    rig.take_all();
    rig.end.link.set_ring_bytes(64 * KIB);
    let mut scratch = Vec::new();
    for _ in 0..100_000 {
        assert_eq!(rig.end.stage(&7u32, &mut scratch).unwrap(), Staged::Done);
        let (front, back, messages) = rig.consumer.peek();
        let bytes = front.len() + back.len();
        rig.consumer.consume(bytes, messages);
    }
    assert_eq!(rig.end.ring_bytes(), 64 * KIB - PACKET_OVERHEAD_BYTES);
}

#[test]
fn a_channel_that_waits_for_credit_holds_no_more_when_packets_grow_and_shrink() {
    let mut rig = Rig::new();
    rig.fill(256 * KIB);
    for _ in 0..10 {
        assert_eq!(rig.fill(64 * KIB), 0);
        assert_eq!(rig.fill(256 * KIB), 0);
    }
    // Each number taken makes room for one; no ring is replaced while something is staged.
    rig.take(1_000);
    rig.take_all();
    rig.fill(256 * KIB);
    for _ in 0..100 {
        rig.take(100);
        assert_eq!(rig.fill(64 * KIB), 100);
        assert_eq!(rig.fill(256 * KIB), 0);
    }
    rig.take_all();
}

#[test]
fn rings_that_keep_messages_count_in_the_bound_until_they_are_settled() {
    // The second ring and three more.
    let bytes_max = (4 + 16 + 64 + 256) * KIB;
    for (settled, last) in [(true, 256 * KIB), (false, 255 * KIB)] {
        let stream = Stream::new(1, bytes_max, false);
        let settling = Settling::Kept(Arc::clone(&stream));
        let shared = TxShared::new("numbers".into(), "bytes".into(), settling);
        let link = LinkShared::undriven(1 << 18);
        link.set_ring_bytes(256 * KIB);
        let (mut end, mut consumer) = TxEnd::new(&link, &shared, 1);
        let mut keeping = Keeping::new(stream, StreamStart { id: 1, first: 0, sent_before: 0 });
        while end.ring_bytes() < 4 * KIB {
            assert_eq!(end.stage_slice(&[7; 99]).unwrap(), Staged::Done);
        }
        while !consumer.is_empty() {
            let (front, back, messages) = consumer.peek();
            let bytes = front.len() + back.len();
            keeping.consume(&mut consumer, bytes, messages);
        }
        if settled {
            keeping.settle(end.accepted(), &shared);
        }
        while end.stage_slice(&[7; 99]).unwrap() == Staged::Done {}
        assert_eq!(end.ring_bytes(), last, "settled: {settled}");
    }
}

#[test]
fn the_driver_is_told_once_that_a_message_has_no_room() {
    let mut rig = Rig::new();
    let told = |rig: &Rig| {
        let mut mail = Taken::default();
        rig.end.link.take_mail(&mut mail);
        let no_room = |it: &Command| matches!(it, Command::NoRoom { id: 1, until: 1, .. });
        mail.commands.iter().filter(|it| no_room(it)).count()
    };
    assert_eq!(rig.end.stage_slice(&[7]).unwrap(), Staged::Done);
    assert!(rig.end.has_room(KIB));
    assert_eq!(told(&rig), 0);
    for expected in [1, 0] {
        assert!(!rig.end.has_room(usize::MAX));
        assert_eq!(told(&rig), expected);
    }
}

#[test]
fn a_large_message_has_room_when_no_other_waits_and_the_ring_takes_its_mark() {
    let mut rig = Rig::new();
    assert!(rig.end.has_room_for_large());
    let large = Bytes::from(vec![7; 100 * KIB]);
    assert_eq!(rig.end.stage_large(&large).unwrap(), Staged::Done);
    assert!(!rig.end.has_room_for_large(), "one waits");
    rig.consumer.consume(1, 1);
    assert!(matches!(rig.end.shared.take_beside(), Beside::Large(taken) if taken == large));
    assert!(rig.end.has_room_for_large());
    while rig.end.stage_slice(&[]).unwrap() == Staged::Done {}
    assert!(!rig.end.has_room_for_large(), "the ring is full");
}

#[test]
fn memory_to_encode_in_is_kept_up_to_a_size() {
    let mut rig = Rig::new();
    for (bytes, kept) in [(INLINE_BYTES_MAX, true), (8 * INLINE_BYTES_MAX, false)] {
        let mut scratch = Vec::with_capacity(bytes);
        scratch.push(7);
        assert_eq!(rig.end.stage_scratch(&mut scratch).unwrap(), Staged::Done);
        assert_eq!(scratch.capacity() > 0, kept, "{bytes} bytes");
    }
}
