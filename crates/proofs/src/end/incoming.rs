//! Incoming items of an end, checked against what the other end must have sent.

use super::super::arrivals::Arrivals;
use super::super::pattern;
use super::{End, Inbox, Style};
use chunkcomm_proto::Time;
use chunkcomm_proto::error::ProtocolError;
use chunkcomm_proto::link::{Counted, Event};
use chunkcomm_proto::packet::{Elsewhere, Item, Refusal};
use chunkcomm_proto::random::Random;
use std::time::Duration;

impl End {
    /// Handles every complete item of the bytes that were read.
    pub(in super::super) fn handle_unread(&mut self, now: Time) -> Result<(), ProtocolError> {
        let unread = std::mem::take(&mut self.unread);
        let mut at = 0;
        let outcome = loop {
            match self.decoder.next(&unread, &mut at) {
                Ok(Some(item)) => {
                    if let Err(error) = self.item(&item, now) {
                        break Err(error);
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.unread = unread;
        self.unread.drain(..at);
        self.note_acknowledged();
        self.check_memory();
        outcome
    }

    /// Takes the first `bytes` of a fragment from where they are: all messages are slices of the pattern.
    pub(in super::super) fn read_memory(&mut self, part: Elsewhere, bytes: usize, now: Time) {
        let Elsewhere { channel, address, .. } = part;
        let start = usize::try_from(address).unwrap_or(usize::MAX);
        let Some(found) = pattern().get(start..).and_then(|rest| rest.get(..bytes)) else {
            return self.fail(|| format!("a fragment of channel {channel} is not in memory"));
        };
        self.decoder.skip_fragment(bytes as u32);
        if self.item(&Item::FragmentBytes { channel, bytes: found }, now).is_err() {
            self.fail(|| format!("bytes of channel {channel} were refused"));
        }
    }

    /// Handles one item, and checks that the machine does with it what the protocol's text says.
    fn item(&mut self, item: &Item<'_>, now: Time) -> Result<(), ProtocolError> {
        let received = self.endpoint.link.received();
        if let Item::Packet(header) = *item {
            self.open = (header.sequence > received).then_some(header);
            if let Some(header) = self.open
                && let Some(broken_off) = self.broken_off.take()
                && header != broken_off
            {
                self.fail(|| format!("{header:?} went on where {broken_off:?} broke off"));
            }
        }
        let event = self.endpoint.handle(item.clone(), now)?;
        match *item {
            Item::Packet(header) if header.sequence > received + 1 => {
                self.fail(|| format!("packet {} began behind {received}", header.sequence));
            }
            Item::Packet(header) if header.ack > self.written => {
                let (ack, written) = (header.ack, self.written);
                self.fail(|| format!("an ack of {ack} was believed where {written} was written"));
            }
            Item::PacketEnd { sequence, ack_now } => {
                self.open = None;
                self.asked |= ack_now;
                if sequence != 0 && sequence != received + 1 {
                    self.fail(|| format!("packet {sequence} was taken behind {received}"));
                }
            }
            Item::Gone if event != Event::Gone => {
                self.fail(|| "the peer gave the session up, which ended nothing".to_owned());
            }
            _ => {}
        }
        self.event(event);
        Ok(())
    }

    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Opened(opening) => self.opened(opening.channel, opening.name),
            Event::Run { channel, messages, bytes } => self.run(channel, messages, bytes),
            Event::LargeBegins { channel, .. } => {
                let inbox = &mut self.inboxes[channel as usize - 1];
                inbox.callers = inbox.lands;
                inbox.arrivals.large_begins();
                inbox.large_waits = self.endpoint.link.admit_large(channel, inbox.callers);
                self.touched.push(channel);
            }
            Event::LargeBytes { channel, bytes, done } => {
                self.large_bytes(channel, bytes);
                if let Some(counted) = done {
                    self.large_done(channel, counted);
                }
            }
            Event::Ended { channel } => {
                let inbox = &mut self.inboxes[channel as usize - 1];
                let twice = std::mem::replace(&mut inbox.ended, true);
                if twice || inbox.arrivals.partial.is_some() {
                    self.fail(|| format!("channel {channel} ended twice, or in a message"));
                }
                self.touched.push(channel);
            }
            Event::Terminated { channel } => self.terminated(channel),
            Event::Refused { channel, .. } => {
                self.terminated(channel);
                self.endpoint.link.describe(channel, "a type");
            }
            _ => {}
        }
    }

    fn terminated(&mut self, channel: u32) {
        self.sent[channel as usize - 1].terminated = true;
        self.rings.discard(channel);
    }

    fn opened(&mut self, channel: u32, name: &str) {
        let mut random = Random::fork(self.theirs.0, 1000 + u64::from(channel));
        let style = match random.below(20) {
            0..=3 => Style::Slow(Duration::from_micros(random.range(10, 3000))),
            4 => Style::Drops(random.range(0, 200)),
            _ => Style::Eager,
        };
        // Channels are admitted in order, and their lanes may open them in another.
        while self.inboxes.len() < channel as usize {
            let arrivals = Arrivals::new(self.theirs, self.inboxes.len() as u32 + 1);
            self.inboxes.push(Inbox {
                style: Style::Eager,
                lands: false,
                arrivals,
                callers: false,
                large_waits: false,
                unreported: 0,
                ended: false,
                finished: false,
                dropped: false,
                resting: false,
            });
        }
        let inbox = &mut self.inboxes[channel as usize - 1];
        inbox.style = style;
        inbox.lands = random.one_in(4);
        if name == "refuse" {
            inbox.dropped = true;
            self.endpoint.link.refuse(channel, Refusal::TypeMismatch, "another type");
        }
    }

    fn run(&mut self, channel: u32, messages: u32, bytes: &[u8]) {
        let inbox = &mut self.inboxes[channel as usize - 1];
        let wanted = !inbox.dropped && !inbox.ended;
        if !inbox.arrivals.run(messages, bytes) || !wanted {
            let arrived = inbox.arrivals.arrived;
            self.fail(|| format!("a wrong message of channel {channel}, of {arrived}"));
        }
        self.touched.push(channel);
    }

    /// Checks bytes of a large message, which are already in their place.
    pub(in super::super) fn large_bytes(&mut self, channel: u32, bytes: &[u8]) {
        let arrivals = &mut self.inboxes[channel as usize - 1].arrivals;
        if !arrivals.large_bytes(bytes) {
            let arrived = arrivals.arrived;
            self.fail(|| format!("wrong bytes of message {arrived} of channel {channel}"));
        }
    }

    /// Handles the completion of a large message.
    pub(in super::super) fn large_done(&mut self, channel: u32, counted: Counted) {
        let inbox = &mut self.inboxes[channel as usize - 1];
        let (size, good) = inbox.arrivals.large_done(counted);
        let memory = (counted == Counted::Not) == inbox.callers;
        if counted == Counted::Large {
            self.large_held += size;
        }
        self.touched.push(channel);
        if !good || !memory {
            self.fail(|| format!("a large message of channel {channel} of wrong size"));
        }
    }

    /// Returns the channel of the fragment at hand and the number of its missing bytes, if they may
    /// go past the decoder.
    pub(in super::super) fn direct(&self) -> Option<(u32, usize)> {
        let (channel, left) = self.decoder.fragment_left()?;
        let wanted = self.inboxes.get(channel as usize - 1).is_some_and(|inbox| !inbox.dropped);
        (self.unread.is_empty() && wanted).then_some((channel, left as usize))
    }

    /// Hands acknowledgements to the channels.
    pub(in super::super) fn note_acknowledged(&mut self) {
        let mut wrong = None;
        for carried in self.endpoint.link.poll_acknowledged() {
            let Some(sent) = self.sent.get_mut(carried.channel as usize - 1) else { continue };
            if carried.messages < sent.acked || sent.end_acked {
                wrong = Some(carried);
            }
            sent.acked = carried.messages;
            sent.end_acked = carried.end;
            if sent.sync.is_some_and(|until| until <= sent.acked) {
                sent.sync = None;
            }
        }
        if let Some(carried) = wrong {
            self.fail(|| format!("{carried:?} was acknowledged out of turn"));
        }
    }

    /// Checks that memory is within the promised bounds.
    fn check_memory(&mut self) {
        let (mut whole, mut partial) = (0, 0);
        for inbox in &self.inboxes {
            let arrivals = &inbox.arrivals;
            let windows = arrivals.waiting.iter().filter(|it| it.counted == Counted::Window);
            whole += windows.map(|it| it.bytes).sum::<u64>();
            partial += arrivals.partial.filter(|_| !inbox.callers).unwrap_or(0) as u64;
        }
        let (windows, message) = (self.config.windows_bytes_max, self.config.message_bytes_max);
        let held = whole + partial + self.large_held;
        if whole > windows || self.large_held > message || held > windows + message {
            let large = self.large_held;
            self.fail(|| format!("inboxes hold {whole} and {partial} bytes, {large} large"));
        }
    }
}
