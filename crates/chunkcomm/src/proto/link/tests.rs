//! Two machines back to back: whatever they are asked and however their bytes
//! are cut and delayed, every message arrives once and in order, memory stays
//! within what was promised, and both ends know what arrived.

use super::*;
use crate::proto::credit::CreditError;
use crate::proto::flush::{FlushReason, Yield};
use crate::proto::limits::{
    ACK_DELAY_MS, INLINE_BYTES_MAX, OPEN_CREDIT_DIVISOR, PACKET_BYTES_DEFAULT,
    PACKET_OVERHEAD_BYTES, TEXT_BYTES_MAX,
};
use crate::proto::liveness::Silence;
use crate::proto::message::{self, PREFIX_BYTES_MAX};
use crate::proto::outbox::tests::Rings;
use crate::proto::pace::BOUND_BYTES_MIN;
use crate::proto::packet::{AppendRecords, ChannelKind, Decoder, HEADER_BYTES, Item, Lane, Packet};
use proptest::prelude::*;
use std::collections::HashMap;

const MESSAGE_BYTES_MAX: u64 = 300_000;

/// One message or run in an inbox.
struct Waiting {
    messages: Vec<Vec<u8>>,
    bytes: u64,
    counted: Counted,
}

/// A channel at its receiver.
#[derive(Default)]
struct Inbox {
    waiting: VecDeque<Waiting>,
    assembling: Vec<u8>,
    /// The message that is being assembled lies in memory of its receiver.
    callers: bool,
    /// It waits until its receiver wants it.
    large_waits: bool,
    taken: usize,
    unreported: u64,
    ended: bool,
    finished: bool,
    dropped: bool,
}

/// A channel at its sender.
#[derive(Default)]
struct Sent {
    messages: usize,
    ended: bool,
    terminated: bool,
    refused: bool,
    acknowledged: u64,
    end_acknowledged: bool,
}

/// One node: its machine and what a driver has.
struct End {
    link: Link,
    rings: Rings,
    decoder: Decoder,
    unread: Vec<u8>,
    /// Written, and not yet at the other end.
    wire: VecDeque<u8>,
    sent: HashMap<u32, Sent>,
    inboxes: HashMap<u32, Inbox>,
    inline_bytes_max: usize,
    windows_bytes_max: u64,
    large_held: u64,
    described: usize,
    bye: bool,
}

/// What a message of a channel is, so that it need not be kept.
fn payload(channel: u32, index: usize, size: usize) -> Vec<u8> {
    let mut bytes = vec![(channel as u8).wrapping_mul(31).wrapping_add(index as u8); size];
    let head = index.to_le_bytes();
    let count = head.len().min(size);
    bytes[..count].copy_from_slice(&head[..count]);
    bytes
}

fn config(packet_bytes_max: usize, windows_bytes_max: u64, peers: u64) -> LinkConfig {
    LinkConfig {
        policy: Policy::Chunked,
        age_bound: Duration::from_millis(1),
        packet_bytes_max,
        packet_bytes_tuned: packet_bytes_max,
        windows_bytes_max,
        message_bytes_max: MESSAGE_BYTES_MAX,
        peer_open_credit: peers / OPEN_CREDIT_DIVISOR,
        session: true,
        resend_bytes_max: 1 << 20,
        silence: Silence {
            probe: Duration::from_secs(1),
            suspect: Duration::from_secs(3),
            dead: Duration::from_secs(10),
        },
        now: Time(0),
    }
}

impl End {
    fn new(config: &LinkConfig) -> End {
        End {
            link: Link::new(config),
            rings: Rings::default(),
            decoder: Decoder::new(PACKET_BYTES_DEFAULT),
            unread: Vec::new(),
            wire: VecDeque::new(),
            sent: HashMap::new(),
            inboxes: HashMap::new(),
            inline_bytes_max: INLINE_BYTES_MAX
                .min(config.packet_bytes_max - PACKET_OVERHEAD_BYTES - PREFIX_BYTES_MAX),
            windows_bytes_max: config.windows_bytes_max,
            large_held: 0,
            described: 0,
            bye: false,
        }
    }

    fn open(&mut self, express: bool, name: &str, now: Time) -> u32 {
        let lane = if express { Lane::Express } else { Lane::Bulk };
        let name = name.to_owned();
        let spec = OpenSpec { lane, kind: ChannelKind::Typed, fingerprint: 1, name };
        let id = self.link.open(spec, now);
        self.sent.insert(id, Sent::default());
        id
    }

    fn stage(&mut self, channel: u32, size: usize, now: Time) {
        let Some(sent) = self.sent.get_mut(&channel) else { return };
        if sent.ended || sent.terminated || sent.refused {
            return;
        }
        let bytes = payload(channel, sent.messages, size);
        sent.messages += 1;
        if self.rings.stage(channel, &bytes, self.inline_bytes_max) {
            self.link.staged(channel, now);
        }
    }

    fn end(&mut self, channel: u32, now: Time) {
        let Some(sent) = self.sent.get_mut(&channel) else { return };
        if !sent.ended {
            sent.ended = true;
            self.link.end(channel, sent.messages as u64, now);
        }
    }

    /// Packets go on the wire, at most so many; says how many did.
    fn transmit(&mut self, packets_max: usize, now: Time) -> usize {
        let mut packets = 0;
        for turn in 0.. {
            assert!(turn < 10_000, "it yields without end");
            if packets == packets_max {
                break;
            }
            let mut packet = Packet::default();
            let transmit = self.link.poll_transmit(&mut self.rings, now, &mut packet);
            for channel in std::mem::take(&mut self.rings.restaged) {
                self.link.staged(channel, now);
            }
            match transmit {
                Transmit::Packet { number, again } => {
                    packets += 1;
                    assert!(packet.head.len() >= HEADER_BYTES && (number > 0 || !again));
                    self.wire.extend(&packet.head);
                    self.wire.extend(packet.tail.iter().flatten());
                    self.link.written(number, &mut packet);
                }
                Transmit::Yield(Yield::Tasks | Yield::Core) => {}
                Transmit::Nothing => break,
            }
        }
        packets
    }

    /// So many bytes come from the other end.
    fn deliver(&mut self, from: &mut VecDeque<u8>, bytes: usize, callers: bool, now: Time) {
        let bytes = bytes.min(from.len());
        self.unread.extend(from.drain(..bytes));
        let unread = std::mem::take(&mut self.unread);
        let mut at = 0;
        while let Some(item) = self.decoder.next(&unread, &mut at).unwrap() {
            let event = self.link.handle(item, now).unwrap();
            self.event(event, callers);
        }
        self.unread = unread[at..].to_vec();
        self.note_acknowledged();
        self.check_memory();
    }

    /// The connection is gone, with what was on it.
    fn cut(&mut self, now: Time) {
        self.wire.clear();
        self.unread.clear();
        self.decoder.cut(self.link.received());
        self.link.cut(now);
    }

    fn note_acknowledged(&mut self) {
        for carried in self.link.poll_acknowledged() {
            let sent = self.sent.get_mut(&carried.channel).unwrap();
            assert!(carried.messages >= sent.acknowledged);
            assert!(!sent.end_acknowledged, "acknowledged after the end");
            sent.acknowledged = carried.messages;
            sent.end_acknowledged = carried.end;
        }
    }

    fn event(&mut self, event: Event<'_>, callers: bool) {
        match event {
            Event::Opened { channel, name, .. } => {
                assert!(self.inboxes.insert(channel, Inbox::default()).is_none());
                if name.starts_with("refuse") {
                    let text = "t".repeat(2 * TEXT_BYTES_MAX);
                    self.link.refuse(channel, Refusal::TypeMismatch, &text);
                    self.inboxes.get_mut(&channel).unwrap().dropped = true;
                }
            }
            Event::Run { channel, messages, bytes } => {
                let mut found = Vec::new();
                let mut at = 0;
                while let Some(range) = message::next_in_run(bytes, at) {
                    at = range.end;
                    found.push(bytes[range].to_vec());
                }
                assert_eq!((found.len(), at), (messages as usize, bytes.len()));
                let bytes = bytes.len() as u64;
                self.put(channel, Waiting { messages: found, bytes, counted: Counted::Window });
            }
            Event::LargeBegins { channel, .. } => {
                let inbox = self.inboxes.get_mut(&channel).unwrap();
                inbox.callers = callers;
                inbox.large_waits = self.link.admit_large(channel, callers);
            }
            Event::LargeBytes { channel, bytes, done } => {
                let inbox = self.inboxes.get_mut(&channel).unwrap();
                inbox.assembling.extend_from_slice(bytes);
                if let Some(counted) = done {
                    assert_eq!(counted == Counted::Not, inbox.callers);
                    let message = std::mem::take(&mut inbox.assembling);
                    let bytes = message.len() as u64;
                    if counted == Counted::Large {
                        self.large_held += bytes;
                    }
                    self.put(channel, Waiting { messages: vec![message], bytes, counted });
                }
            }
            Event::Ended { channel } => {
                let inbox = self.inboxes.get_mut(&channel).unwrap();
                assert!(!inbox.ended && inbox.assembling.is_empty());
                inbox.ended = true;
            }
            Event::Terminated { channel } => {
                self.sent.get_mut(&channel).unwrap().terminated = true;
                self.rings.discard(channel);
            }
            Event::Refused { channel, refusal, text } => {
                assert_eq!((refusal, text.len()), (Refusal::TypeMismatch, TEXT_BYTES_MAX));
                self.sent.get_mut(&channel).unwrap().refused = true;
                self.rings.discard(channel);
                self.link.describe(channel, &"d".repeat(3 * TEXT_BYTES_MAX));
            }
            Event::Described { text, .. } => {
                assert_eq!(text.len(), TEXT_BYTES_MAX);
                self.described += 1;
            }
            Event::Bye => self.bye = true,
            Event::Gone => panic!("nobody gives up"),
            Event::Wait { .. } => panic!("nobody tells of waits"),
            Event::None => {}
        }
    }

    fn put(&mut self, channel: u32, waiting: Waiting) {
        let inbox = self.inboxes.get_mut(&channel).unwrap();
        assert!(!inbox.dropped && !inbox.ended, "for nobody");
        inbox.waiting.push_back(waiting);
    }

    /// What lies in inboxes is within the windows, and one large message.
    fn check_memory(&self) {
        let in_windows = |inbox: &Inbox| -> u64 {
            let window = |it: &&Waiting| it.counted == Counted::Window;
            inbox.waiting.iter().filter(window).map(|it| it.bytes).sum()
        };
        let held: u64 = self.inboxes.values().map(in_windows).sum();
        assert!(held <= self.windows_bytes_max, "{held} of {}", self.windows_bytes_max);
        assert!(self.large_held <= MESSAGE_BYTES_MAX, "{} in large messages", self.large_held);
    }

    /// The receiver takes what waits, at most `count` runs or large messages.
    fn take(&mut self, channel: u32, count: usize) {
        let Some(inbox) = self.inboxes.get_mut(&channel) else { return };
        if inbox.dropped || inbox.finished {
            return;
        }
        for _ in 0..count {
            let Some(waiting) = inbox.waiting.pop_front() else { break };
            for message in waiting.messages {
                let expected = payload(channel, inbox.taken, message.len());
                assert!(message == expected, "message {} of channel {channel}", inbox.taken);
                inbox.taken += 1;
            }
            match waiting.counted {
                Counted::Not => {}
                Counted::Window => {
                    inbox.unreported += waiting.bytes;
                    if inbox.unreported >= self.link.report_step(channel) {
                        let bytes = std::mem::take(&mut inbox.unreported);
                        self.link.consumed(channel, bytes);
                    }
                }
                Counted::Large => {
                    self.large_held -= waiting.bytes;
                    self.link.large_taken(channel);
                }
            }
        }
        if !inbox.waiting.is_empty() {
            return;
        }
        if inbox.ended {
            inbox.finished = true;
            self.link.finished(channel);
        } else if std::mem::take(&mut inbox.large_waits) {
            self.link.demand_large(channel);
        }
    }

    /// The receiver is dropped.
    fn drop_receiver(&mut self, channel: u32) {
        let Some(inbox) = self.inboxes.get_mut(&channel) else { return };
        if inbox.dropped || inbox.finished {
            return;
        }
        inbox.dropped = true;
        let large = |it: &Waiting| if it.counted == Counted::Large { it.bytes } else { 0 };
        self.large_held -= inbox.waiting.drain(..).map(|it| large(&it)).sum::<u64>();
        inbox.assembling.clear();
        self.link.terminate(channel);
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Open(bool),
    OpenRefused,
    Stage(u32, usize),
    Urgent(u32),
    Flush(u32, bool),
    End(u32),
    Take(u32, usize),
    Drop(u32),
    Transmit(usize),
    Deliver(usize, bool),
    Time(u64),
    Cut,
}

fn step() -> impl Strategy<Value = Step> {
    let channel = 1u32..6;
    let size = prop_oneof![
        12 => 0usize..60,
        6 => 200usize..2000,
        3 => 5000usize..12_000,
        2 => 12_000usize..60_000,
        1 => 200_000usize..300_000,
    ];
    prop_oneof![
        3 => any::<bool>().prop_map(Step::Open),
        1 => Just(Step::OpenRefused),
        24 => (channel.clone(), size).prop_map(|(channel, size)| Step::Stage(channel, size)),
        2 => channel.clone().prop_map(Step::Urgent),
        2 => (channel.clone(), any::<bool>()).prop_map(|(channel, sync)| Step::Flush(channel, sync)),
        1 => channel.clone().prop_map(Step::End),
        10 => (channel.clone(), 1usize..20).prop_map(|(channel, count)| Step::Take(channel, count)),
        1 => channel.prop_map(Step::Drop),
        12 => (1usize..5).prop_map(Step::Transmit),
        14 => (1usize..40_000, any::<bool>()).prop_map(|(bytes, callers)| {
            Step::Deliver(bytes, callers)
        }),
        3 => (0u64..4_000_000).prop_map(Step::Time),
        1 => Just(Step::Cut),
    ]
}

/// Both ends and the time.
struct Pair {
    ends: [End; 2],
    now: Time,
}

impl Pair {
    fn new(packet_bytes: [usize; 2], windows_bytes: [u64; 2]) -> Pair {
        let end = |one: usize| {
            End::new(&config(packet_bytes[one], windows_bytes[one], windows_bytes[1 - one]))
        };
        Pair { ends: [end(0), end(1)], now: Time(1_000_000_000) }
    }

    fn deliver(&mut self, to: usize, bytes: usize, callers: bool) {
        let [a, b] = &mut self.ends;
        let (to, from) = if to == 0 { (a, b) } else { (b, a) };
        to.deliver(&mut from.wire, bytes, callers, self.now);
    }

    /// The connection is lost and another one takes its place.
    fn cut(&mut self) {
        let now = self.now;
        self.ends.iter_mut().for_each(|end| end.cut(now));
        let received = [0, 1].map(|side: usize| self.ends[side].link.received());
        for (end, received) in self.ends.iter_mut().zip([received[1], received[0]]) {
            end.link.resume(received, now).unwrap();
            end.note_acknowledged();
        }
    }

    fn step(&mut self, side: usize, step: Step) {
        let now = self.now;
        let end = &mut self.ends[side];
        match step {
            Step::Open(express) => {
                if end.sent.len() < 5 {
                    end.open(express, "name", now);
                }
            }
            Step::OpenRefused => {
                if end.sent.len() < 5 {
                    end.open(false, "refuse me", now);
                }
            }
            Step::Stage(channel, size) => end.stage(channel, size, now),
            Step::Urgent(channel) => {
                let until = end.sent.get(&channel).map_or(0, |sent| sent.messages);
                end.link.urgent(channel, until as u64, now);
            }
            Step::Flush(channel, sync) => {
                let until = end.sent.get(&channel).map_or(0, |sent| sent.messages);
                end.link.flush(channel, until as u64, now, sync);
            }
            Step::End(channel) => end.end(channel, now),
            Step::Take(channel, count) => end.take(channel, count),
            Step::Drop(channel) => end.drop_receiver(channel),
            Step::Transmit(packets) => {
                end.transmit(packets, now);
            }
            Step::Deliver(bytes, callers) => self.deliver(side, bytes, callers),
            Step::Cut => self.cut(),
            Step::Time(nanos) => self.now = now.after(Duration::from_nanos(nanos)),
        }
    }

    /// Everybody takes what comes and time passes, until both ends are quiet.
    fn finish(&mut self) {
        for side in [0, 1] {
            let channels: Vec<u32> = self.ends[side].sent.keys().copied().collect();
            for channel in channels {
                self.ends[side].end(channel, self.now);
            }
            self.ends[side].link.close();
        }
        for _ in 0..5000 {
            self.now = self.now.after(Duration::from_millis(1));
            for side in [0, 1] {
                self.ends[side].transmit(100, self.now);
                self.deliver(1 - side, usize::MAX, false);
                let channels: Vec<u32> = self.ends[1 - side].inboxes.keys().copied().collect();
                for channel in channels {
                    self.ends[1 - side].take(channel, usize::MAX);
                }
            }
            if self.ends.iter().all(|end| end.link.is_quiet() && end.wire.is_empty()) {
                return self.check();
            }
        }
        panic!("it does not come to rest");
    }

    fn check(&mut self) {
        for side in [0, 1] {
            let (sender, receiver) = (&self.ends[side], &self.ends[1 - side]);
            let refused = sender.sent.values().filter(|sent| sent.refused).count();
            assert_eq!(receiver.described, refused);
            for (channel, sent) in &sender.sent {
                assert!(sent.end_acknowledged, "the end of channel {channel}");
                if sent.refused || sent.terminated {
                    continue;
                }
                assert_eq!(sent.acknowledged, sent.messages as u64);
                let inbox = &receiver.inboxes[channel];
                if !inbox.dropped {
                    assert_eq!((inbox.taken, inbox.finished), (sent.messages, true));
                }
            }
            assert_eq!(receiver.large_held, 0);
            assert!(receiver.link.incoming.is_empty(), "channels are left");
            // All windows came back.
            let opened = sender.sent.len() as u64 * WINDOW_BYTES_INITIAL;
            let total = receiver.windows_bytes_max / OPEN_CREDIT_DIVISOR + opened;
            assert_eq!(receiver.link.budget.open_total(), total);
        }
        let now = self.now;
        self.ends[0].link.bye();
        assert_eq!(self.ends[0].transmit(1, now), 1);
        self.deliver(1, usize::MAX, false);
        assert!(self.ends[1].bye);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_message_arrives_once_and_in_order_within_the_memory_promised(
        packet_bytes in [0usize..3, 0usize..3],
        windows in [0usize..3, 0usize..3],
        steps in prop::collection::vec((0usize..2, step()), 1..300),
    ) {
        let packet_bytes = packet_bytes.map(|index| [1024, 4096, 64 * 1024][index]);
        let windows = windows.map(|index| [32 * 1024, 128 * 1024, 4 << 20][index]);
        let mut pair = Pair::new(packet_bytes, windows);
        for (side, step) in steps {
            pair.step(side, step);
        }
        pair.finish();
    }
}

fn two() -> Pair {
    Pair::new([64 * 1024; 2], [1 << 20; 2])
}

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
    // Each may open one channel.
    for _ in 0..2 {
        let channel = pair.ends[0].open(false, "name", now);
        for _ in 0..40 {
            pair.ends[0].stage(channel, 1000, now);
        }
        pair.ends[0].link.end_when_drained(channel, now);
    }
    pair.ends[0].link.close();
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

/// Everything that can be sent and answered is.
fn exchange(pair: &mut Pair) {
    for _ in 0..20 {
        pair.ends[0].transmit(100, pair.now);
        pair.deliver(1, usize::MAX, false);
        pair.ends[1].transmit(100, pair.now);
        pair.deliver(0, usize::MAX, false);
    }
}

#[test]
fn large_messages_get_the_links_memory_one_after_the_other_when_they_are_wanted() {
    let mut pair = Pair::new([64 * 1024; 2], [256 * 1024; 2]);
    let now = pair.now;
    let channels: Vec<u32> = (0..4).map(|_| pair.ends[0].open(false, "name", now)).collect();
    for channel in &channels {
        pair.ends[0].stage(*channel, 290_000, now);
    }
    exchange(&mut pair);
    assert_eq!(pair.ends[1].large_held, 0, "nobody wants one");
    let wanted = &channels[1..];
    for channel in wanted {
        pair.ends[1].take(*channel, 1);
    }
    for channel in wanted {
        exchange(&mut pair);
        for other in &channels {
            let whole = !pair.ends[1].inboxes[other].waiting.is_empty();
            assert_eq!(whole, other == channel, "channel {other}");
        }
        assert_eq!(pair.ends[1].large_held, 290_000);
        pair.ends[1].take(*channel, 1);
    }
    pair.finish();
}

#[test]
fn a_large_message_may_be_wanted_before_the_one_before_it_is_reported_as_taken() {
    let mut pair = Pair::new([64 * 1024; 2], [256 * 1024; 2]);
    let now = pair.now;
    let channel = pair.ends[0].open(false, "name", now);
    for _ in 0..3 {
        pair.ends[0].stage(channel, 290_000, now);
    }
    for _ in 0..3 {
        exchange(&mut pair);
        // The next one begins to arrive within what is left of the window.
        pair.ends[1].link.demand_large(channel);
        exchange(&mut pair);
        assert_eq!(pair.ends[1].inboxes[&channel].waiting.len(), 1);
        pair.ends[1].link.demand_large(channel);
        pair.ends[1].link.demand_large(channel);
        pair.ends[1].take(channel, 1);
    }
    pair.finish();
}

#[test]
fn long_texts_and_grants_of_many_channels_leave_in_packets_of_any_size() {
    let mut pair = Pair::new([1024; 2], [8 << 20; 2]);
    let now = pair.now;
    for number in 0..60 {
        let name = if number % 2 == 0 { "refuse me".to_owned() } else { "n".repeat(255) };
        let channel = pair.ends[0].open(number % 3 == 0, &name, now);
        for _ in 0..20 {
            pair.ends[0].stage(channel, 500, now);
        }
    }
    pair.finish();
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
    assert_eq!((counters.packets_sent, counters.message_packets), (1, 1));
    assert_eq!((counters.messages_sent, counters.messages_per_packet_max), (5, 5));
    assert_eq!(counters.flushes.get(FlushReason::Idle), 1);
}

/// What a link says of a packet with this body, after an open of channel 1.
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
    let error = CreditError::Channel { received: u64::from(above), granted: WINDOW_BYTES_INITIAL };
    assert_eq!(refused(|body| run(body, 1, above)), ProtocolError::Credit(error));
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
        assert_eq!(error, ProtocolError::Credit(CreditError::Message { bytes, bytes_max }));
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
                Ok(Event::Opened { channel, .. }) => {
                    end.link.refuse(channel, Refusal::NotAccepted, "");
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

/// What `end` has on the wire behind `from` bytes, but for headers.
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

/// A link with much staged on bulk channels 1 to 8 and a little on express channel
/// 9, a channel that comes from the other end, and whatever may leave on the wire.
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

/// Its record is numbered, since it must not get lost.
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

#[test]
fn two_ends_that_close_do_not_ask_each_other_for_ever() {
    let mut pair = Pair::new([4096; 2], [256 * 1024; 2]);
    let now = pair.now;
    for end in &mut pair.ends {
        let channel = end.open(false, "name", now);
        end.stage(channel, 10, now);
        end.end(channel, now);
        end.link.close();
    }
    // In turns: each answers before it looks whether there is nothing more to say.
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
