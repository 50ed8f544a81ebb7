//! Incoming items of an end, checked against what the other end must have sent.

use super::super::pattern;
use super::{End, Inbox, Over, Style};
use chunkcomm_proto::link::{Counted, Event, ProtocolError};
use chunkcomm_proto::packet::{Item, Refusal};
use chunkcomm_proto::random::Random;
use chunkcomm_proto::{Time, message};
use std::collections::VecDeque;
use std::time::Duration;

impl End {
    /// Handles every complete item of the bytes that were read.
    pub(in super::super) fn handle_unread(&mut self, now: Time) -> Result<(), ProtocolError> {
        let unread = std::mem::take(&mut self.unread);
        let mut at = 0;
        let outcome = loop {
            match self.decoder.next(&unread, &mut at) {
                Ok(Some(item)) => {
                    if let Err(error) = self.item(item, now) {
                        break Err(error);
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error.into()),
            }
        };
        self.unread = unread;
        self.unread.drain(..at);
        self.note_acknowledged();
        self.check_memory();
        outcome
    }

    /// Handles one item, and checks that the machine does with it what the protocol's text says.
    fn item(&mut self, item: Item<'_>, now: Time) -> Result<(), ProtocolError> {
        let received = self.link.received();
        if let Item::Packet(header) = item {
            self.open = (header.sequence > received).then_some(header);
            if let Some(header) = self.open
                && let Some(broken_off) = self.broken_off.take()
                && header != broken_off
            {
                self.fail(|| format!("{header:?} went on where {broken_off:?} broke off"));
            }
        }
        let event = self.link.handle(item, now)?;
        match item {
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
        self.event(event, now);
        Ok(())
    }

    fn event(&mut self, event: Event<'_>, now: Time) {
        match event {
            Event::Opened { channel, name, .. } => self.opened(channel, name),
            Event::Run { channel, messages, bytes } => self.run(channel, messages, bytes),
            Event::LargeBegins { channel, .. } => {
                let inbox = &mut self.inboxes[channel as usize - 1];
                inbox.callers = inbox.lands;
                inbox.partial = Some(0);
                inbox.large_waits = self.link.admit_large(channel, inbox.callers);
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
                if twice || inbox.partial.is_some() {
                    self.fail(|| format!("channel {channel} ended twice, or in a message"));
                }
                self.touched.push(channel);
            }
            Event::Terminated { channel } => self.terminated(channel),
            Event::Refused { channel, .. } => {
                self.terminated(channel);
                self.link.describe(channel, "a type");
            }
            Event::Bye => self.last_word = Some(Over::ClosedByPeer),
            Event::Gone => self.last_word = Some(Over::Forgotten),
            Event::Described { .. } | Event::Wait { .. } | Event::Settled { .. } | Event::None => {}
        }
        let _ = now;
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
            self.inboxes.push(Inbox {
                style: Style::Eager,
                lands: false,
                arrived: 0,
                partial: None,
                waiting: VecDeque::new(),
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
            self.link.refuse(channel, Refusal::TypeMismatch, "another type");
        }
    }

    fn run(&mut self, channel: u32, messages: u32, bytes: &[u8]) {
        let inbox = &mut self.inboxes[channel as usize - 1];
        let (mut at, mut found) = (0, 0);
        let mut good = !inbox.dropped && !inbox.ended && inbox.partial.is_none();
        while let Some(range) = message::next_in_run(bytes, at) {
            at = range.end;
            found += 1;
            let (start, size) = self.theirs.message(channel, inbox.arrived);
            good &= pattern().get(start..start + size) == bytes.get(range);
            inbox.arrived += 1;
        }
        good &= found == messages && at == bytes.len();
        inbox.waiting.push_back((bytes.len() as u64, Counted::Window));
        let arrived = inbox.arrived;
        self.touched.push(channel);
        if !good {
            self.fail(|| format!("a wrong message of channel {channel}, of {arrived}"));
        }
    }

    /// Checks bytes of a large message, which are already in their place.
    pub(in super::super) fn large_bytes(&mut self, channel: u32, bytes: &[u8]) {
        let inbox = &mut self.inboxes[channel as usize - 1];
        let arrived = inbox.arrived;
        let (start, size) = self.theirs.message(channel, arrived);
        let good = inbox.partial.as_mut().is_some_and(|at| {
            let from = start + *at;
            *at += bytes.len();
            *at <= size && pattern().get(from..from + bytes.len()) == Some(bytes)
        });
        if !good {
            self.fail(|| format!("wrong bytes of message {arrived} of channel {channel}"));
        }
    }

    /// Handles the completion of a large message.
    pub(in super::super) fn large_done(&mut self, channel: u32, counted: Counted) {
        let inbox = &mut self.inboxes[channel as usize - 1];
        let size = self.theirs.message(channel, inbox.arrived).1;
        let good = inbox.partial.take() == Some(size);
        let memory = (counted == Counted::Not) == inbox.callers;
        inbox.arrived += 1;
        inbox.waiting.push_back((size as u64, counted));
        if counted == Counted::Large {
            self.large_held += size as u64;
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
        for carried in self.link.poll_acknowledged() {
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
            let windows = inbox.waiting.iter().filter(|it| it.1 == Counted::Window);
            whole += windows.map(|it| it.0).sum::<u64>();
            partial += inbox.partial.filter(|_| !inbox.callers).unwrap_or(0) as u64;
        }
        let (windows, message) = (self.config.windows_bytes_max, self.config.message_bytes_max);
        let held = whole + partial + self.large_held;
        if whole > windows || self.large_held > message || held > windows + message {
            let large = self.large_held;
            self.fail(|| format!("inboxes hold {whole} and {partial} bytes, {large} large"));
        }
    }
}
