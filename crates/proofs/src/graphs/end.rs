//! One end of a link in a graph: its machine, its senders and receivers, and its end
//! of a connection.

use super::super::arrivals::{Arrivals, Content, Waiting};
use super::super::plan::{self, MESSAGE_BYTES_MAX};
use super::super::rings::Rings;
use super::super::writing::{next_output, write_packet};
use chunkcomm_proto::Time;
use chunkcomm_proto::endpoint::{AfterLoss, Endpoint, Output, SessionId};
use chunkcomm_proto::limits::{
    INLINE_BYTES_MAX, OPEN_CREDIT_DIVISOR, PACKET_BYTES_TUNED, PACKET_OVERHEAD_BYTES,
    WINDOW_BYTES_INITIAL,
};
use chunkcomm_proto::link::{Counted, Event, LinkConfig};
use chunkcomm_proto::message::PREFIX_BYTES_MAX;
use chunkcomm_proto::outbox::OpenSpec;
use chunkcomm_proto::packet::{ChannelKind, Decoder, Item, Lane};
use chunkcomm_proto::random::Random;
use chunkcomm_proto::tuning::flush::Policy;
use chunkcomm_proto::tuning::without::Without;
use chunkcomm_simulation::{EndId, Network, Read};
use std::time::Duration;

/// Bytes in a ring beyond which its producer waits.
const RING_BYTES_MAX: usize = 32 * 1024;
/// Bytes of large messages beyond which a producer waits.
const LARGE_STAGED_MAX: usize = 64 * 1024;

/// Packets that one look writes at most.
const TURNS_MAX: usize = 6;

/// Way in which a receiver takes messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taker {
    Always,
    /// One run or large message each time this many steps have passed.
    Slow(u64),
    Never,
    /// Nothing after this many messages.
    Stops(u64),
    /// Everything, once another channel has brought messages: its index among the channels of all
    /// links, and their number.
    After(usize, u64),
}

#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) taker: Taker,
    /// Whether it may take: its awaited channel has brought enough, or it waits for none.
    pub(super) open: bool,
    pub(super) taken: u64,
    arrivals: Arrivals,
    large_waits: bool,
    unreported: u64,
}

impl Receiver {
    pub(super) fn new(taker: Taker, key: u64, id: u32) -> Receiver {
        Receiver {
            taker,
            open: !matches!(taker, Taker::After(..)),
            taken: 0,
            arrivals: Arrivals::new(Content(key), id),
            large_waits: false,
            unreported: 0,
        }
    }

    /// Returns how many messages it would take now.
    fn appetite(&self, step: u64) -> u64 {
        match self.taker {
            Taker::Never => 0,
            Taker::Stops(count) => count - self.taken,
            Taker::Slow(every) if !step.is_multiple_of(every) => 0,
            _ if !self.open => 0,
            _ => u64::MAX,
        }
    }
}

/// A channel at its sender.
#[derive(Debug, Clone, Copy)]
struct Sender {
    staged: u64,
    messages: u64,
}

#[derive(Debug)]
pub(super) struct End {
    pub(super) node: usize,
    pub(super) key: u64,
    pub(super) receivers: Vec<Receiver>,
    /// The last violation of a check.
    pub(super) wrong: Option<String>,
    endpoint: Endpoint,
    rings: Rings,
    senders: Vec<Sender>,
    inline_max: usize,
    way: EndId,
    /// Bytes read that are not yet a whole record.
    unread: Vec<u8>,
    decoder: Decoder,
}

impl End {
    /// Creates an end; `windows` are the bytes of its windows and of the peer's.
    pub(super) fn new(
        (node, way): (usize, EndId),
        windows: [u64; 2],
        key: u64,
        random: &mut Random,
        now: Time,
    ) -> End {
        let packet_bytes_max = random.pick(&[1024, 4096, 16 * 1024]);
        let config = LinkConfig {
            policy: if random.one_in(8) { Policy::Unbuffered } else { Policy::Chunked },
            age_bound: Duration::from_millis(1),
            packet_bytes_small: packet_bytes_max,
            packet_bytes_max,
            packet_bytes_tuned: 4 * packet_bytes_max,
            windows_bytes_max: windows[0],
            message_bytes_max: MESSAGE_BYTES_MAX,
            peer_open_credit: windows[1] / OPEN_CREDIT_DIVISOR,
            session: true,
            resend_bytes_max: random.pick(&[16, 128, 4096]) * 1024,
            silence: plan::silence(),
            now,
            without: Without::default(),
        };
        let id = SessionId { number: 0, peer: 0 };
        let mut endpoint = Endpoint::new(&config, id, AfterLoss::End);
        endpoint.link.limit_windows(WINDOW_BYTES_INITIAL);
        let inline = packet_bytes_max - PACKET_OVERHEAD_BYTES - PREFIX_BYTES_MAX;
        End {
            node,
            key,
            receivers: Vec::new(),
            wrong: None,
            endpoint,
            rings: Rings::default(),
            senders: Vec::new(),
            inline_max: INLINE_BYTES_MAX.min(inline),
            way,
            unread: Vec::new(),
            decoder: Decoder::new(PACKET_BYTES_TUNED),
        }
    }

    pub(super) fn open(&mut self, random: &mut Random, now: Time) -> u32 {
        let lane = if random.one_in(4) { Lane::Express } else { Lane::Bulk };
        let kind = ChannelKind::Typed;
        let spec = OpenSpec {
            lane,
            system: false,
            kind,
            fingerprint: 1,
            stream: None,
            backlog: None,
            name: "name".to_owned(),
        };
        self.rings.open();
        self.senders.push(Sender { staged: 0, messages: random.range(1, 300) });
        self.endpoint.link.open(spec, now)
    }

    /// Returns how many messages `channel` is to bring.
    pub(super) fn messages(&self, channel: u32) -> u64 {
        self.senders[channel as usize - 1].messages
    }

    /// Whether the sender of `channel` has messages that it could not get rid of.
    pub(super) fn waits(&self, channel: u32) -> bool {
        self.rings.messages(channel) > 0
            || self.senders[channel as usize - 1].staged < self.messages(channel)
    }

    /// Produces, writes, reads and takes; returns how much moved.
    pub(super) fn look(&mut self, network: &mut Network, random: &mut Random, now: Time) -> u64 {
        let mut moved = self.produce(now);
        for _ in 0..TURNS_MAX {
            let wrote = self.write(network, now);
            if wrote == 0 {
                break;
            }
            moved += wrote;
        }
        self.read(network, random, now);
        self.endpoint.poll(now);
        moved + self.take(now)
    }

    fn produce(&mut self, now: Time) -> u64 {
        let mut moved = 0;
        for (index, sender) in self.senders.iter_mut().enumerate() {
            let channel = index as u32 + 1;
            while sender.staged < sender.messages {
                let (bytes, large) = self.rings.bytes(channel);
                if bytes > RING_BYTES_MAX || large > LARGE_STAGED_MAX {
                    self.endpoint.link.no_room(channel, sender.staged, now);
                    break;
                }
                let (start, size) = Content(self.key).message(channel, sender.staged);
                sender.staged += 1;
                moved += 1;
                if self.rings.stage(channel, start, size, self.inline_max) {
                    self.endpoint.link.staged(channel, now);
                }
            }
        }
        moved
    }

    fn write(&mut self, network: &mut Network, now: Time) -> u64 {
        let output = next_output(&mut self.endpoint, &mut self.rings, now);
        if output != Some(Output::Write) {
            return 0;
        }
        let number = self.endpoint.packet_mut().1;
        let written = write_packet(&mut self.endpoint, network, self.way, now, |left| left);
        let (written, _) = written.expect("no link ever breaks");
        // A question is no movement: a look that only asks would move for ever.
        if number == 0 { 0 } else { written as u64 }
    }

    fn read(&mut self, network: &mut Network, random: &mut Random, now: Time) {
        let most = if random.one_in(3) { random.range(1, 3000) as usize } else { usize::MAX };
        let mut bytes = std::mem::take(&mut self.unread);
        let read = network.read_to(now, self.way, most, &mut bytes).expect("no link ever breaks");
        if read == Read::Nothing {
            self.unread = bytes;
            return;
        }
        let mut at = 0;
        loop {
            match self.decoder.next(&bytes, &mut at) {
                Ok(Some(item)) => self.item(item, now),
                Ok(None) => break,
                Err(error) => {
                    self.wrong = Some(error.to_string());
                    break;
                }
            }
        }
        bytes.drain(..at);
        self.unread = bytes;
        let heard = self.endpoint.heard(now);
        debug_assert_eq!(heard, Ok(()), "nobody closes");
        self.endpoint.link.poll_acknowledged();
    }

    fn item(&mut self, item: Item<'_>, now: Time) {
        let event = match self.endpoint.handle(item, now) {
            Ok(event) => event,
            Err(error) => return self.wrong = Some(error.to_string()),
        };
        match event {
            Event::Run { channel, messages, bytes } => {
                let good = self.receivers[channel as usize - 1].arrivals.run(messages, bytes);
                if !good {
                    self.wrong = Some(format!("a wrong message of channel {channel}"));
                }
            }
            Event::LargeBegins { channel, .. } => {
                let waits = self.endpoint.link.admit_large(channel, false);
                let receiver = &mut self.receivers[channel as usize - 1];
                receiver.large_waits = waits;
                receiver.arrivals.large_begins();
            }
            Event::LargeBytes { channel, bytes, done } => {
                let arrivals = &mut self.receivers[channel as usize - 1].arrivals;
                let good = arrivals.large_bytes(bytes)
                    && done.is_none_or(|counted| arrivals.large_done(counted).1);
                if !good {
                    self.wrong = Some(format!("wrong bytes of channel {channel}"));
                }
            }
            _ => {}
        }
    }

    fn take(&mut self, now: Time) -> u64 {
        let mut moved = 0;
        let step = now.0 / 1_000_000;
        for (index, receiver) in self.receivers.iter_mut().enumerate() {
            let channel = index as u32 + 1;
            let mut appetite = receiver.appetite(step);
            if matches!(receiver.taker, Taker::Slow(_)) {
                appetite =
                    appetite.min(receiver.arrivals.waiting.front().map_or(1, |run| run.messages));
            }
            while appetite > 0 {
                let Some(Waiting { messages, bytes, counted }) =
                    receiver.arrivals.waiting.front_mut()
                else {
                    break;
                };
                let count = appetite.min(*messages);
                appetite -= count;
                *messages -= count;
                receiver.taken += count;
                moved += count;
                if *messages > 0 {
                    break;
                }
                match *counted {
                    Counted::Not => {}
                    Counted::Window => receiver.unreported += *bytes,
                    Counted::Large => self.endpoint.link.large_taken(channel),
                }
                receiver.arrivals.waiting.pop_front();
                if receiver.unreported >= self.endpoint.link.report_step(channel) {
                    self.endpoint.link.consumed(channel, std::mem::take(&mut receiver.unreported));
                }
            }
            let waits = appetite > 0 && receiver.arrivals.waiting.is_empty();
            if waits && std::mem::take(&mut receiver.large_waits) {
                self.endpoint.link.demand_large(channel);
            }
        }
        moved
    }
}
