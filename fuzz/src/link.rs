//! One peer's whole machine against a peer that keeps to the packet format and to nothing else.
//!
//! The bytes are read as a list of deeds: the peer's records and packets, and our side's actions in
//! between. Our side is honest: it consumes what it received and answers every question.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use chunkcomm::proto::Time;
use chunkcomm::proto::endpoint::{Action, AfterLoss, Endpoint, Output, SessionEnd, SessionId};
use chunkcomm::proto::link::{Counted, Event, LinkConfig};
use chunkcomm::proto::liveness::Silence;
use chunkcomm::proto::outbox::{Beside, OpenSpec, Staged, View};
use chunkcomm::proto::packet::{AppendRecords, ChannelKind, Decoder, Header, Item, Lane, Refusal};
use chunkcomm::proto::resume::{Kind, Resume};
use chunkcomm::proto::tuning::flush::Policy;
use chunkcomm::proto::tuning::without::Without;
use chunkcomm::stats::FlushReason;

use crate::deeds::Deeds;

const PACKET_BYTES_MAX: usize = 4096;
const WINDOWS_BYTES_MAX: u64 = 256 * 1024;
/// Largest message, below a window's size, so that the window does not bound a message.
const MESSAGE_BYTES_MAX: u64 = 12 * 1024;

/// Checks that no deed of the peer makes the machine panic or hold more bytes than its budget.
pub fn run(data: &[u8]) {
    let mut deeds = Deeds::new(data);
    let mut machine = Machine::new(&mut deeds);
    while !deeds.is_empty() {
        if machine.step(&mut deeds).is_err() {
            return;
        }
    }
}

const EDGES: [u64; 8] =
    [1, 4096, 8192, 16_384, MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX + 1, u32::MAX as u64, u64::MAX];

fn next_item<'a>(
    decoder: &mut Decoder,
    wire: &'a [u8],
    at: &mut usize,
) -> Result<Option<Item<'a>>, SessionEnd> {
    decoder.next(wire, at).map_err(SessionEnd::Protocol)
}

fn channel(deeds: &mut Deeds<'_>) -> u32 {
    deeds.below(4) as u32
}

/// Our staged messages.
#[derive(Default)]
struct Rings(BTreeMap<u32, Vec<u8>>);

impl Staged for Rings {
    fn view(&mut self, channel: u32) -> View<'_> {
        let front = self.0.get(&channel).map_or(&[][..], |ring| ring);
        // Each message is one byte behind its length.
        View { front, back: &[], messages: (front.len() / 2) as u32, large: false }
    }

    fn consume(&mut self, channel: u32, bytes: usize, messages: u32) {
        assert_eq!(bytes, 2 * messages as usize);
        self.0.get_mut(&channel).map(|ring| ring.drain(..bytes));
    }

    fn take_beside(&mut self, _channel: u32) -> Beside {
        unreachable!("nothing large is staged")
    }
}

struct Machine {
    endpoint: Endpoint,
    decoder: Decoder,
    rings: Rings,
    /// Body of the peer's next packet.
    body: Vec<u8>,
    sequence: u64,
    /// Our channels that have ended: nothing more is staged.
    ended: HashSet<u32>,
    /// Channels that the peer opened.
    opened: HashSet<u32>,
    now: Time,
    /// Bytes received and not consumed, by channel.
    held: HashMap<u32, u64>,
    /// Channels of large messages that occupy the link's memory.
    large: Vec<u32>,
    /// Bytes of the message that is coming in, by channel.
    assembling: HashMap<u32, u64>,
    closing: bool,
}

impl Machine {
    fn new(deeds: &mut Deeds<'_>) -> Machine {
        let policies =
            [Policy::Chunked, Policy::Unbuffered, Policy::Linger(Duration::from_millis(2))];
        let config = LinkConfig {
            policy: policies[usize::from(deeds.byte() % 3)],
            age_bound: Duration::from_millis(1),
            packet_bytes_small: PACKET_BYTES_MAX,
            packet_bytes_max: PACKET_BYTES_MAX,
            packet_bytes_tuned: PACKET_BYTES_MAX,
            windows_bytes_max: WINDOWS_BYTES_MAX,
            message_bytes_max: MESSAGE_BYTES_MAX,
            peer_open_credit: 64 * 1024,
            session: !deeds.one_in(4),
            resend_bytes_max: 1 << 20,
            silence: Silence {
                probe: Duration::from_secs(1),
                suspect: Duration::from_secs(3),
                dead: Duration::from_secs(10),
            },
            now: Time(1),
            without: Without::default(),
        };
        let session = SessionId { number: 1, peer: 2 };
        Machine {
            endpoint: Endpoint::new(&config, session, AfterLoss::Wait),
            decoder: Decoder::new(PACKET_BYTES_MAX),
            rings: Rings::default(),
            body: Vec::new(),
            sequence: 0,
            ended: HashSet::new(),
            opened: HashSet::new(),
            now: Time(1),
            held: HashMap::new(),
            large: Vec::new(),
            assembling: HashMap::new(),
            closing: false,
        }
    }

    fn step(&mut self, deeds: &mut Deeds<'_>) -> Result<(), SessionEnd> {
        match deeds.byte() % 26 {
            0..=10 => self.record(deeds),
            11..=13 => self.packet(deeds)?,
            14 | 15 => self.consume(channel(deeds)),
            16 | 17 => self.transmit(),
            18 => self.send(deeds),
            19 => self.answer(deeds),
            20 => self.now = self.now.after(Duration::from_micros(deeds.number(&EDGES) % 5000)),
            21 => self.endpoint.link.large_taken(self.large.pop().unwrap_or_default()),
            22 => self.end(deeds),
            23 => self.another_connection(deeds)?,
            24 => self.rest()?,
            _ => drop(self.endpoint.link.poll_acknowledged()),
        }
        Ok(())
    }

    /// Lets the endpoint do what is due.
    fn rest(&mut self) -> Result<(), SessionEnd> {
        match self.endpoint.poll(self.now) {
            Action::Wait(until) => assert!(until > self.now, "it waits for what has passed"),
            Action::Write | Action::Drop => {}
            Action::Dial { .. } | Action::Unanswered => unreachable!("the peer dials"),
            Action::End(end) => return Err(end),
        }
        Ok(())
    }

    /// Loses the connection; on another one the peer says which packets it has.
    fn another_connection(&mut self, deeds: &mut Deeds<'_>) -> Result<(), SessionEnd> {
        let received = self.endpoint.link.received();
        self.decoder.cut(received);
        if self.endpoint.is_connected() && deeds.one_in(2) {
            self.endpoint.lost(self.now)?;
        }
        // Packets not received as a whole come again, or others do.
        self.sequence = if deeds.one_in(8) { self.sequence } else { received };
        let [sent, acknowledged, _] = self.endpoint.link.numbers();
        let unsure = sent - acknowledged + 1;
        let has = match deeds.one_in(8) {
            true => deeds.number(&EDGES),
            false => acknowledged + deeds.number(&EDGES) % unsure,
        };
        let last = self.endpoint.attempt();
        let attempt = last.saturating_sub(1).saturating_add(deeds.below(4) as u32);
        let word = Resume { kind: Kind::Again, session: 1, attempt, received: has, addressee: 1 };
        let answer = self.endpoint.offered(&word, self.now);
        if self.endpoint.has_said_bye() {
            assert_eq!(answer.kind, Kind::Unknown);
            return Err(SessionEnd::Closed);
        }
        assert_eq!(answer.kind == Kind::Agreed, attempt > last, "the highest attempt counts");
        let was_connected = self.endpoint.is_connected();
        let adopted = self.endpoint.adopt(attempt, has, self.now)?;
        assert_eq!(adopted, !was_connected && attempt == self.endpoint.attempt());
        Ok(())
    }

    /// Appends a record to the peer's packet.
    fn record(&mut self, deeds: &mut Deeds<'_>) {
        let channel = channel(deeds);
        let body = &mut self.body;
        let deed = deeds.byte();
        // The records are mostly in order, so that there is something to break.
        let deed = match self.opened.insert(channel) {
            true if deed < 240 => 0,
            false if deed.is_multiple_of(12) => 2,
            _ => deed,
        };
        match deed % 12 {
            0 | 1 => {
                body.open(channel, Lane::Express, ChannelKind::Bytes, deeds.number(&EDGES), "name");
            }
            2..=4 => {
                let bytes = (deeds.number(&EDGES) % 2000) as usize;
                body.run(channel, bytes as u32, deeds.number(&EDGES) as u32);
                body.extend(std::iter::repeat_n(deeds.byte(), bytes));
            }
            5 | 6 => {
                let bytes = (deeds.number(&EDGES) % 20_000) as usize;
                body.fragment(channel, deeds.number(&EDGES), bytes as u32);
                body.extend(std::iter::repeat_n(deeds.byte(), bytes));
            }
            7 => body.end(channel, deeds.number(&EDGES)),
            8 => body.terminate(channel),
            9 => body.credit(channel, deeds.number(&EDGES)),
            10 => body.open_credit(deeds.number(&EDGES)),
            _ => body.refuse(channel, Refusal::KindMismatch, "text"),
        }
    }

    /// Sends the peer's packet.
    fn packet(&mut self, deeds: &mut Deeds<'_>) -> Result<(), SessionEnd> {
        let sequence = match deeds.byte() {
            0 => 0,
            1 => deeds.number(&EDGES),
            _ => self.sequence + 1,
        };
        self.sequence = self.sequence.max(sequence);
        let header = Header {
            body_bytes: self.body.len() as u32,
            flags: deeds.byte() % 2,
            sequence,
            ack: if deeds.byte() > 8 { 0 } else { deeds.number(&EDGES) },
        };
        let wire = [&header.encode()[..], &self.body].concat();
        self.body.clear();
        if deeds.one_in(6) {
            // The packet breaks off and comes again, or another one with its number does.
            self.read(&wire[..deeds.number(&EDGES) as usize % wire.len()])?;
            self.another_connection(deeds)?;
            if deeds.one_in(6) {
                return Ok(());
            }
        }
        let used = self.read(&wire)?;
        assert_eq!(used, wire.len());
        Ok(())
    }

    /// Takes in the bytes of a packet; returns the number of bytes used.
    fn read(&mut self, wire: &[u8]) -> Result<usize, SessionEnd> {
        let mut at = 0;
        while let Some(item) = next_item(&mut self.decoder, wire, &mut at)? {
            let event = self.endpoint.handle(item, self.now)?;
            self.react(&event);
        }
        self.endpoint.heard(self.now)?;
        let held: u64 = self.held.values().chain(self.assembling.values()).sum();
        assert!(held <= WINDOWS_BYTES_MAX + MESSAGE_BYTES_MAX, "{held} bytes are held");
        Ok(at)
    }

    fn react(&mut self, event: &Event<'_>) {
        match *event {
            Event::Run { channel, bytes, .. } => {
                *self.held.entry(channel).or_default() += bytes.len() as u64;
            }
            Event::LargeBegins { channel, bytes } => {
                if self.endpoint.link.admit_large(channel, false) {
                    self.endpoint.link.demand_large(channel);
                }
                assert!(bytes <= MESSAGE_BYTES_MAX);
                self.assembling.insert(channel, 0);
            }
            Event::LargeBytes { channel, bytes, done } => {
                *self.assembling.entry(channel).or_default() += bytes.len() as u64;
                if done.is_some() {
                    let bytes = self.assembling.remove(&channel).unwrap_or_default();
                    match done {
                        Some(Counted::Window) => *self.held.entry(channel).or_default() += bytes,
                        Some(Counted::Large) => self.large.push(channel),
                        _ => {}
                    }
                }
            }
            Event::Terminated { channel } | Event::Refused { channel, .. } => {
                self.rings.0.remove(&channel);
            }
            _ => {}
        }
    }

    /// Consumes the bytes that a receiver holds.
    fn consume(&mut self, channel: u32) {
        if let Some(bytes) = self.held.remove(&channel) {
            self.endpoint.link.consumed(channel, bytes);
        }
    }

    /// Writes the packets that are ready, as the driver does.
    fn transmit(&mut self) {
        for _ in 0..256 {
            match self.endpoint.poll_output(&mut self.rings, self.now) {
                Output::Write => {
                    let bytes = self.endpoint.packet_bytes();
                    assert!(bytes <= PACKET_BYTES_MAX, "a packet of {bytes} bytes");
                    assert_eq!(self.endpoint.unwritten().concat().len(), bytes);
                    assert!(!self.endpoint.wrote(1));
                    assert!(self.endpoint.wrote(bytes - 1));
                }
                Output::Nothing | Output::Shutdown => break,
                Output::Yield(_) => {}
            }
        }
        let flushes = self.endpoint.link.counters().flushes;
        let counted: u64 = FlushReason::ALL.iter().map(|reason| flushes.get(*reason)).sum();
        assert_eq!(counted, self.endpoint.link.counters().message_packets_sent);
    }

    /// Opens a channel of our own, or stages some messages.
    fn send(&mut self, deeds: &mut Deeds<'_>) {
        if deeds.one_in(4) && self.rings.0.len() < 16 && !self.closing {
            let spec = OpenSpec {
                lane: Lane::Bulk,
                system: false,
                kind: ChannelKind::Typed,
                fingerprint: 7,
                stream: None,
                backlog: deeds.one_in(4).then_some(4096),
                name: "ours".into(),
            };
            let channel = self.endpoint.link.open(spec, self.now);
            self.rings.0.insert(channel, Vec::new());
            return;
        }
        let channel = u32::from(deeds.byte());
        let Some(ring) = self.rings.0.get_mut(&channel) else { return };
        if self.ended.contains(&channel) {
            return;
        }
        ring.extend([1, 7].repeat(1 + usize::from(deeds.byte())));
        self.endpoint.link.staged(channel, self.now);
        if deeds.one_in(4) {
            self.endpoint.link.flush(channel, u64::MAX, self.now, deeds.one_in(2));
        }
    }

    /// Turns a channel of the peer away, as a receiver of ours does.
    fn answer(&mut self, deeds: &mut Deeds<'_>) {
        let channel = channel(deeds);
        match deeds.byte() % 4 {
            0 => self.endpoint.link.terminate(channel),
            1 => self.endpoint.link.refuse(channel, Refusal::TypeMismatch, "text"),
            2 => self.endpoint.link.describe(channel, "text"),
            _ => return,
        }
        self.assembling.remove(&channel);
        self.consume(channel);
        self.large.retain(|large| *large != channel);
    }

    /// Ends one of our channels or the whole link.
    fn end(&mut self, deeds: &mut Deeds<'_>) {
        let channel = u32::from(deeds.byte());
        match deeds.byte() % 8 {
            0 => {
                self.closing = true;
                self.ended.extend(self.rings.0.keys());
                self.endpoint.close(self.now);
            }
            _ if self.rings.0.contains_key(&channel) => {
                self.ended.insert(channel);
                let staged = self.rings.0[&channel].len() / 2;
                let messages = self.endpoint.link.sent_messages(channel) + staged as u64;
                self.endpoint.link.end(channel, messages, self.now);
            }
            _ => {}
        }
    }
}

/// Returns deeds of an orderly peer, one after the other.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    // Open channel 1, run of 10 bytes, end; packet; consume; transmit.
    let open: &[u8] = &[0, 1, 0, 7];
    let run: &[u8] = &[0, 1, 2, 10, 1, 0];
    let fragment: &[u8] = &[0, 1, 5, 100, 100, 0];
    let end: &[u8] = &[0, 1, 7, 1];
    let packet: &[u8] = &[11, 9, 0, 9];
    let rest: &[u8] = &[14, 1, 16, 18, 0, 18, 1, 1, 9, 0, 0, 16, 20, 5, 16];
    vec![
        [&[0, 1], open, run, packet, end, packet, rest].concat(),
        [&[0, 1], open, fragment, packet, rest, packet, &[21], rest].concat(),
        [&[1, 0], open, packet, rest, rest, &[0, 1, 8], packet, rest].concat(),
    ]
}
