//! Two machines back to back. For any calls, cuts and delays of their bytes, every message
//! arrives once and in order. Memory stays within the promised amount, and both ends know which
//! messages arrived.

use super::*;
use crate::error::ProtocolError;
use crate::limits::{
    ACK_DELAY_MS, BACKLOG_BYTES_MIN, INLINE_BYTES_MAX, OPEN_CREDIT_DIVISOR, PACKET_BYTES_DEFAULT,
    PACKET_OVERHEAD_BYTES, SETTLED_GAP_MS, TEXT_BYTES_MAX,
};
use crate::liveness::Silence;
use crate::message::{self, PREFIX_BYTES_MAX};
use crate::outbox::tests::Rings;
use crate::packet::{
    AppendRecords, ChannelKind, Decoder, HEADER_BYTES, Item, Lane, Opening, Packet, StreamStart,
};
use crate::tuning::constants::BOUND_BYTES_MIN;
use crate::tuning::flush::{FlushReason, Yield};
use crate::tuning::without::Without;
use proptest::prelude::*;
use std::collections::HashMap;

mod any_order;
mod ends;
mod faults;
mod lanes;
mod large;
mod sizes;

const MESSAGE_BYTES_MAX: u64 = 300_000;

/// One message or run in an inbox.
struct Waiting {
    messages: Vec<Vec<u8>>,
    bytes: u64,
    counted: Counted,
    is_large: bool,
}

/// A channel at its receiver.
#[derive(Default)]
struct Inbox {
    waiting: VecDeque<Waiting>,
    assembling: Vec<u8>,
    /// Whether the message that is being assembled lies in memory of its receiver.
    callers: bool,
    /// Whether that message waits until its receiver wants it.
    large_waits: bool,
    taken: usize,
    unreported: u64,
    ended: bool,
    finished: bool,
    stopped: bool,
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
    is_bounded: bool,
    /// Bytes that were staged, with the heads of messages.
    bytes: u64,
    /// Bytes that the receiver has consumed, as it reported them.
    consumed: u64,
}

/// One node: its machine and the state of a driver.
struct End {
    link: Link,
    rings: Rings,
    decoder: Decoder,
    unread: Vec<u8>,
    /// Bytes written, and not yet at the other end.
    wire: VecDeque<u8>,
    sent: HashMap<u32, Sent>,
    inboxes: HashMap<u32, Inbox>,
    inline_bytes_max: usize,
    windows_bytes_max: u64,
    message_bytes_max: u64,
    large_held: u64,
    described: usize,
    bye: bool,
}

/// Returns a message of a channel; it can be computed again, so that it need not be kept.
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
        packet_bytes_small: packet_bytes_max,
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
        without: Without::default(),
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
            message_bytes_max: config.message_bytes_max,
            large_held: 0,
            described: 0,
            bye: false,
        }
    }

    fn open(&mut self, express: bool, name: &str, now: Time) -> u32 {
        let lane = if express { Lane::Express } else { Lane::Bulk };
        let name = name.to_owned();
        let is_bounded = name.starts_with("bounded");
        let spec = OpenSpec {
            lane,
            system: false,
            kind: ChannelKind::Typed,
            fingerprint: 1,
            stream: None,
            backlog: is_bounded.then_some(BACKLOG_BYTES_MIN),
            name,
        };
        let id = self.link.open(spec, now);
        self.sent.insert(id, Sent { is_bounded, ..Sent::default() });
        id
    }

    fn stage(&mut self, channel: u32, size: usize, now: Time) {
        let Some(sent) = self.sent.get_mut(&channel) else { return };
        if sent.ended || sent.terminated || sent.refused {
            return;
        }
        let bytes = payload(channel, sent.messages, size);
        sent.messages += 1;
        let is_large = size > self.inline_bytes_max;
        sent.bytes += if is_large { 1 } else { message::prefix_bytes(size) } as u64 + size as u64;
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

    /// Puts at most `packets_max` packets on the wire; returns their number.
    fn transmit(&mut self, packets_max: usize, now: Time) -> usize {
        let mut packets = 0;
        for turn in 0.. {
            assert!(turn < 10_000, "it yields without end");
            if packets == packets_max {
                break;
            }
            let mut packet = Packet::default();
            let transmit = self.link.poll_transmit(&mut self.rings, now, &mut packet);
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

    /// Delivers `bytes` from the other end.
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

    /// Loses the connection, with everything on it.
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
            Event::Opened(opening) => {
                let Opening { channel, name, backlog, .. } = *opening;
                let is_bounded = name.starts_with("bounded");
                assert_eq!(backlog, is_bounded.then_some(BACKLOG_BYTES_MIN));
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
                self.put(
                    channel,
                    Waiting { messages: found, bytes, counted: Counted::Window, is_large: false },
                );
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
                    self.put(
                        channel,
                        Waiting { messages: vec![message], bytes, counted, is_large: true },
                    );
                }
            }
            Event::Ended { channel } => {
                let inbox = self.inboxes.get_mut(&channel).unwrap();
                assert!(!inbox.ended && (inbox.stopped || inbox.assembling.is_empty()));
                inbox.assembling.clear();
                inbox.ended = true;
            }
            Event::Terminated { channel } => {
                self.sent.get_mut(&channel).unwrap().terminated = true;
                self.rings.discard(channel);
            }
            Event::Refused { channel, refusal, text, .. } => {
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
            Event::Settled { .. } => panic!("nobody settles"),
            Event::Memory { .. } | Event::Reads => panic!("nobody reads memory"),
            Event::Consumed { channel, total } => {
                let sent = self.sent.get_mut(&channel).unwrap();
                assert!(sent.is_bounded, "{total} bytes of channel {channel}");
                // A packet that is sent again has an earlier total.
                sent.consumed = sent.consumed.max(total);
            }
            Event::None => {}
        }
    }

    fn put(&mut self, channel: u32, waiting: Waiting) {
        let inbox = self.inboxes.get_mut(&channel).unwrap();
        assert!(!inbox.dropped && !inbox.ended, "for nobody");
        inbox.waiting.push_back(waiting);
    }

    /// Checks that messages in inboxes are within the windows, and one large message.
    fn check_memory(&self) {
        let in_windows = |inbox: &Inbox| -> u64 {
            let window = |it: &&Waiting| it.counted == Counted::Window;
            inbox.waiting.iter().filter(window).map(|it| it.bytes).sum()
        };
        let held: u64 = self.inboxes.values().map(in_windows).sum();
        assert!(held <= self.windows_bytes_max, "{held} of {}", self.windows_bytes_max);
        assert!(self.large_held <= self.message_bytes_max, "{} in large ones", self.large_held);
    }

    /// Takes waiting messages as the receiver, at most `count` runs or large messages.
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
            // The link reports what lies in memory of the receiver. Of a large message the mark counts, too.
            if waiting.counted != Counted::Not {
                let bytes = waiting.bytes + u64::from(waiting.is_large);
                self.link.consumed_of_backlog(channel, bytes);
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

    /// Stops the channel: its receiver wants no more.
    fn stop(&mut self, channel: u32) {
        let Some(inbox) = self.inboxes.get_mut(&channel) else { return };
        if !inbox.dropped && !inbox.finished {
            inbox.stopped = true;
            self.link.stop(channel);
        }
    }

    /// Drops the receiver.
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

    /// Loses the connection and puts another one in its place.
    fn cut(&mut self) {
        let now = self.now;
        self.ends.iter_mut().for_each(|end| end.cut(now));
        let received = [0, 1].map(|side: usize| self.ends[side].link.received());
        for (end, received) in self.ends.iter_mut().zip([received[1], received[0]]) {
            end.link.resume(received, now).unwrap();
            end.note_acknowledged();
        }
    }
}

fn two() -> Pair {
    Pair::new([64 * 1024; 2], [1 << 20; 2])
}

/// Sends and answers everything that can be.
fn exchange(pair: &mut Pair) {
    for _ in 0..20 {
        pair.ends[0].transmit(100, pair.now);
        pair.deliver(1, usize::MAX, false);
        pair.ends[1].transmit(100, pair.now);
        pair.deliver(0, usize::MAX, false);
    }
}
