//! The outbox against an oracle: everything staged comes out of the packets in order, once,
//! within the limits.

use super::*;
use crate::limits::{
    FRAGMENT_BYTES_MAX, INLINE_BYTES_MAX, PACKET_BYTES_DEFAULT, PACKET_BYTES_MIN,
    PACKET_BYTES_SMALL, PACKET_OVERHEAD_BYTES,
};
use crate::message::{self, PREFIX_BYTES_MAX, TAG_LARGE};
use crate::packet::{
    ChannelKind, Decoder, FRAGMENT_HEAD_BYTES, HEADER_BYTES, Header, Item, RECORD_BYTES,
};
use crate::session::Session;
use crate::tuning::flush::{FlushReason, Policy, Verdict};
use proptest::prelude::*;
use std::collections::HashMap;
use std::time::Duration;

mod any_order;
mod counts;
mod ends;
mod lanes;
mod packets;

/// The ring of a channel, as simple as can be.
#[derive(Default)]
struct Ring {
    bytes: VecDeque<u8>,
    messages: u32,
    beside: VecDeque<Beside>,
    large_pending: u32,
}

/// Rings of channels; each view is cut at another place.
#[derive(Default)]
pub(crate) struct Rings {
    rings: HashMap<u32, Ring>,
    /// Channels that were found empty since their last message was staged.
    unqueued: Vec<u32>,
    /// Channels with something left after a packet took from them.
    pub(crate) restaged: Vec<u32>,
    /// Number of views that were asked for.
    views: usize,
    /// Number of messages that the only receiver has settled, and whether it was asked to tell.
    pub(crate) settled: Option<u64>,
    pub(crate) asked: bool,
}

impl Rings {
    /// Stages a message as a producer would; true when the outbox must be told.
    pub(crate) fn stage(&mut self, channel: u32, payload: &[u8], inline_bytes_max: usize) -> bool {
        let ring = self.rings.entry(channel).or_default();
        if payload.len() > inline_bytes_max {
            ring.beside.push_back(Beside::Large(Bytes::copy_from_slice(payload)));
            ring.large_pending += 1;
            ring.bytes.push_back(TAG_LARGE);
        } else {
            let mut prefix = [0; PREFIX_BYTES_MAX];
            message::write_prefix(payload.len(), &mut prefix);
            ring.bytes.extend(&prefix[..message::prefix_bytes(payload.len())]);
            ring.bytes.extend(payload);
        }
        ring.messages += 1;
        // Bytes move to the front of their memory now and then, so that views are cut anywhere.
        if payload.len().is_multiple_of(7) {
            ring.bytes.make_contiguous();
        }
        self.staged(channel)
    }

    /// Stages messages that other channels share; true when the outbox must be told.
    fn stage_run(&mut self, channel: u32, payloads: &[Vec<u8>]) -> bool {
        let ring = self.rings.entry(channel).or_default();
        let mut run = Vec::new();
        for payload in payloads {
            let mut prefix = [0; PREFIX_BYTES_MAX];
            message::write_prefix(payload.len(), &mut prefix);
            run.extend(&prefix[..message::prefix_bytes(payload.len())]);
            run.extend(payload);
        }
        ring.beside.push_back(Beside::Run(run.into(), payloads.len() as u32));
        ring.messages += payloads.len() as u32;
        ring.large_pending += 1;
        ring.bytes.push_back(TAG_LARGE);
        self.staged(channel)
    }

    fn staged(&mut self, channel: u32) -> bool {
        let ring = self.rings.entry(channel).or_default();
        let at = self.unqueued.iter().position(|it| *it == channel);
        let first = ring.messages == 1;
        at.map(|at| self.unqueued.swap_remove(at)).is_some() || first
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rings.values().all(|ring| ring.messages == 0)
    }

    /// Discards the ring of `channel`, whose receiver is gone.
    pub(crate) fn discard(&mut self, channel: u32) {
        self.rings.insert(channel, Ring::default());
    }
}

impl Staged for Rings {
    fn settled(&mut self, _channel: u32, ask: bool) -> Option<u64> {
        self.asked |= ask;
        self.settled
    }

    fn view(&mut self, channel: u32) -> View<'_> {
        self.views += 1;
        let Some(ring) = self.rings.get(&channel) else {
            return View { front: &[], back: &[], messages: 0, large: false };
        };
        let (front, back) = ring.bytes.as_slices();
        View { front, back, messages: ring.messages, large: ring.large_pending > 0 }
    }

    fn consume(&mut self, channel: u32, bytes: usize, messages: u32) {
        let Some(ring) = self.rings.get_mut(&channel) else { return };
        ring.bytes.drain(..bytes);
        ring.messages -= messages;
        if ring.messages > 0 {
            self.restaged.push(channel);
        } else if !self.unqueued.contains(&channel) {
            self.unqueued.push(channel);
        }
    }

    fn take_beside(&mut self, channel: u32) -> Beside {
        let ring = self.rings.get_mut(&channel).unwrap();
        ring.large_pending -= 1;
        let beside = ring.beside.pop_front().unwrap();
        let messages = if let Beside::Run(_, messages) = &beside { *messages } else { 1 };
        self.consume(channel, 1, messages);
        beside
    }

    fn restaged(&mut self) -> Option<u32> {
        self.restaged.pop()
    }
}

/// Messages and end that a channel's receiver got.
#[derive(Default)]
struct Got {
    messages: Vec<Vec<u8>>,
    assembling: Vec<u8>,
    /// Bytes of the message that is being assembled.
    total: u64,
    bytes: u64,
    end: Option<u64>,
}

/// Messages staged on a channel, and the credit that the peer gave.
struct Expected {
    messages: Vec<Vec<u8>>,
    credit: u64,
    ended: bool,
}

/// An outbox, its oracle, and the peer that reads its packets.
struct Scene {
    outbox: Outbox,
    session: Session,
    rings: Rings,
    packet_bytes: usize,
    inline_bytes_max: usize,
    now: Time,
    decoder: Decoder,
    expected: HashMap<u32, Expected>,
    got: HashMap<u32, Got>,
    open_total: u64,
    opened: u64,
}

const OPEN_CREDIT: u64 = 3 * WINDOW_BYTES_INITIAL;

impl Scene {
    fn new(policy: Policy, packet_bytes: usize) -> Scene {
        let gathering = Gathering::new(policy, Duration::from_millis(1));
        Scene {
            outbox: Outbox::new(
                gathering,
                packet_room(packet_bytes),
                OPEN_CREDIT,
                Without::default(),
            ),
            session: Session::new(true, usize::MAX),
            rings: Rings::default(),
            packet_bytes,
            inline_bytes_max: INLINE_BYTES_MAX
                .min(packet_bytes - PACKET_OVERHEAD_BYTES - PREFIX_BYTES_MAX),
            now: Time(1_000_000),
            decoder: Decoder::new(packet_bytes),
            expected: HashMap::new(),
            got: HashMap::new(),
            open_total: OPEN_CREDIT,
            opened: 0,
        }
    }

    fn open(&mut self, lane: Lane) -> u32 {
        self.open_as(lane, false)
    }

    fn open_as(&mut self, lane: Lane, system: bool) -> u32 {
        let name = format!("channel {}", self.expected.len());
        let spec = OpenSpec {
            lane,
            system,
            kind: ChannelKind::Typed,
            fingerprint: 7,
            stream: None,
            backlog: None,
            name,
        };
        let id = self.outbox.open(spec, self.now);
        let credit = WINDOW_BYTES_INITIAL;
        self.expected.insert(id, Expected { messages: Vec::new(), credit, ended: false });
        id
    }

    fn stage(&mut self, channel: u32, size: usize) {
        let expected = self.expected.get_mut(&channel).unwrap();
        if expected.ended {
            return;
        }
        let fill = (expected.messages.len() as u8).wrapping_add(channel as u8);
        let payload = vec![fill; size];
        if self.rings.stage(channel, &payload, self.inline_bytes_max) {
            self.outbox.staged(channel, self.now);
        }
        expected.messages.push(payload);
    }

    /// Stages messages that other channels share.
    fn stage_run(&mut self, channel: u32, sizes: &[usize]) {
        let expected = self.expected.get_mut(&channel).unwrap();
        if expected.ended {
            return;
        }
        let first = (expected.messages.len() as u8).wrapping_add(channel as u8);
        let payloads: Vec<_> = (first..).zip(sizes).map(|(fill, size)| vec![fill; *size]).collect();
        if self.rings.stage_run(channel, &payloads) {
            self.outbox.staged(channel, self.now);
        }
        expected.messages.extend(payloads);
    }

    /// Returns the bytes of `channel` that wait, without those of a message that is on its way.
    fn staged_bytes(&self, channel: u32) -> usize {
        let Some(ring) = self.rings.rings.get(&channel) else { return 0 };
        let bytes_of = |(Beside::Large(bytes) | Beside::Run(bytes, _)): &Beside| bytes.len();
        ring.bytes.len() + ring.beside.iter().map(bytes_of).sum::<usize>()
    }

    fn end(&mut self, channel: u32) {
        let expected = self.expected.get_mut(&channel).unwrap();
        expected.ended = true;
        self.outbox.end(channel, expected.messages.len() as u64, self.now);
    }

    fn grant(&mut self, channel: u32, more: u64) {
        // Only a channel that the peer knows gets credit.
        let Some(expected) = self.expected.get_mut(&channel) else { return };
        if self.got.contains_key(&channel) {
            expected.credit += more;
            self.outbox.handle_credit(channel, expected.credit);
        }
    }

    fn grant_opens(&mut self, more: u64) {
        self.open_total += more * WINDOW_BYTES_INITIAL;
        let unopened = self.outbox.unopened() as u64;
        let opened_before = (self.expected.len() as u64 - unopened) * WINDOW_BYTES_INITIAL;
        self.outbox.handle_open_credit(self.open_total, opened_before);
    }

    /// Asks for packets until none leaves now.
    fn transmit(&mut self) {
        for turn in 0.. {
            assert!(turn < 100_000, "packets without end");
            match self.outbox.decide(&mut self.rings, self.now) {
                Some(Verdict::Leave(_)) => {}
                Some(Verdict::Yield(_)) => continue,
                Some(Verdict::WaitUntil(_)) | None => return,
            }
            let mut head = vec![0; HEADER_BYTES];
            // While a link is not saturated its packets are smaller than the largest.
            let is_small = self.packet_bytes == PACKET_BYTES_DEFAULT && turn % 3 > 0;
            let bytes_max = if is_small { PACKET_BYTES_SMALL } else { self.packet_bytes };
            let filled = self.outbox.fill(
                &mut self.rings,
                &mut self.session,
                &mut head,
                bytes_max,
                self.now,
            );
            for channel in std::mem::take(&mut self.rings.restaged) {
                self.outbox.staged(channel, self.now);
            }
            if head.len() > HEADER_BYTES || filled.tail.is_some() {
                self.read(head, &filled);
            }
        }
    }

    /// Reads one packet as the peer.
    fn read(&mut self, mut bytes: Vec<u8>, filled: &Filled) {
        assert!(bytes.len() <= self.packet_bytes, "{} of {}", bytes.len(), self.packet_bytes);
        let tail = filled.tail.as_deref().unwrap_or(&[]);
        assert!(tail.len() <= FRAGMENT_BYTES_MAX);
        bytes.extend_from_slice(tail);
        let body_bytes = (bytes.len() - HEADER_BYTES) as u32;
        let sequence = self.session.sent(filled.entries, bytes.len(), |_| ());
        let header = Header { body_bytes, sequence, ..Header::default() };
        bytes[..HEADER_BYTES].copy_from_slice(&header.encode());
        let (mut at, mut messages, mut ends, mut ends_in_run) = (0, 0, 0, false);
        while let Some(item) = self.decoder.next(&bytes, &mut at).unwrap() {
            let is_end = matches!(item, Item::PacketEnd { .. });
            if !is_end {
                ends_in_run = matches!(item, Item::Run { .. });
            }
            ends += u32::from(is_end);
            messages += self.item(item);
        }
        assert_eq!((at, ends), (bytes.len(), 1), "one packet, all of it read");
        // A fragment may be beyond a packet's size.
        assert!(!ends_in_run || bytes.len() <= self.packet_bytes);
        assert_eq!(messages, filled.messages);
        let policy = self.outbox.gathering.policy();
        assert!(policy != Policy::Unbuffered || messages <= 1, "{messages} in a packet");
    }

    /// Reads one item; returns the number of messages that it completed.
    fn item(&mut self, item: Item<'_>) -> u32 {
        match item {
            Item::Open(opening) => {
                assert!(self.got.insert(opening.channel, Got::default()).is_none(), "opened twice");
                self.opened += WINDOW_BYTES_INITIAL;
                assert!(self.opened <= self.open_total, "opened without credit");
                0
            }
            Item::Run { channel, messages, bytes } => {
                let got = self.received(channel, bytes.len());
                let (mut at, before) = (0, got.messages.len());
                while let Some(range) = message::next_in_run(bytes, at) {
                    at = range.end;
                    got.messages.push(bytes[range].to_vec());
                }
                assert_eq!(at, bytes.len());
                assert_eq!((got.messages.len() - before) as u32, messages);
                messages
            }
            Item::Fragment { channel, message_bytes, bytes } => {
                let got = self.received(channel, bytes as usize);
                assert!(got.assembling.is_empty() || got.total == message_bytes);
                got.total = message_bytes;
                0
            }
            Item::FragmentBytes { channel, bytes } => {
                let got = self.received(channel, 0);
                got.assembling.extend_from_slice(bytes);
                if got.assembling.len() as u64 != got.total {
                    return 0;
                }
                got.messages.push(std::mem::take(&mut got.assembling));
                1
            }
            Item::End { channel, messages } => {
                let got = self.received(channel, 0);
                assert!(got.end.replace(messages).is_none(), "ended twice");
                0
            }
            _ => 0,
        }
    }

    fn received(&mut self, channel: u32, bytes: usize) -> &mut Got {
        let got = self.got.get_mut(&channel).expect("opened before");
        assert_eq!(got.end, None, "data after the end");
        got.bytes += bytes as u64;
        let credit = self.expected[&channel].credit;
        assert!(got.bytes <= credit, "{} of {credit}", got.bytes);
        got
    }

    /// Checks that everything that may leave has left and equals the staged messages; with
    /// `all` that is everything.
    fn check(&self, all: bool) {
        for (channel, expected) in &self.expected {
            let Some(got) = self.got.get(channel) else {
                assert!(!all, "channel {channel} was never opened");
                continue;
            };
            assert!(got.messages.len() <= expected.messages.len());
            for (index, (got, staged)) in got.messages.iter().zip(&expected.messages).enumerate() {
                assert!(got == staged, "message {index} of channel {channel}");
            }
            if all {
                assert_eq!(got.messages.len(), expected.messages.len(), "of channel {channel}");
                let end = expected.ended.then_some(expected.messages.len() as u64);
                assert_eq!(got.end, end, "end of channel {channel}");
            }
        }
    }

    /// Lets the peer allow everything, and time pass.
    fn finish(&mut self) {
        self.grant_opens(100);
        for _ in 0..10_000 {
            self.now = self.now.after(Duration::from_secs(10));
            self.transmit();
            for channel in self.got.keys().copied().collect::<Vec<_>>() {
                self.grant(channel, 1 << 20);
            }
            let opened = self.got.len() == self.expected.len();
            if opened && self.rings.is_empty() && self.outbox.is_idle() {
                break;
            }
        }
        self.transmit();
        self.check(true);
    }
}

fn sizes() -> impl Strategy<Value = usize> {
    prop_oneof![
        16 => 0usize..40,
        8 => 200usize..300,
        4 => 700usize..9000,
        2 => 9000usize..40_000,
        1 => 250_000usize..300_000,
    ]
}

fn packet_bytes() -> impl Strategy<Value = usize> {
    prop_oneof![Just(PACKET_BYTES_MIN), Just(4096), Just(16 * 1024), Just(64 * 1024)]
}
