//! The items that were read, on their way to the receivers.

use super::ReadError;
use super::slot::Assembling;
use crate::driver::channels::Channels;
use crate::driver::large::WASTE_MAX;
use crate::driver::mail::Command;
use crate::driver::one_copy::{OneCopy, Unread};
use crate::proto::Time;
use crate::proto::endpoint::Endpoint;
use crate::proto::link::{Counted, Event};
use crate::proto::message;
use crate::proto::packet::{Elsewhere, Item};
use bytes::Bytes;

/// Bytes of a run from which on it stays in the buffer that it was read to.
const SHARED_RUN_BYTES_MIN: usize = 2 * 1024;

/// The state that reading works on, besides the reader itself.
pub(crate) struct Inbound<'a> {
    pub(crate) endpoint: &'a mut Endpoint,
    pub(crate) channels: &'a mut Channels,
    pub(crate) one_copy: &'a mut OneCopy,
    pub(crate) now: Time,
}

impl Inbound<'_> {
    /// Handles one item. `lent` is the buffer that the item lies in, if slices of that buffer may
    /// stay.
    #[inline(always)]
    pub(super) fn item(&mut self, item: Item<'_>, lent: Option<&Bytes>) -> Result<(), ReadError> {
        match self.endpoint.handle(item, self.now)? {
            Event::None => {}
            Event::Run { channel, messages, bytes } => self.run(channel, messages, bytes, lent),
            other => self.other(other),
        }
        Ok(())
    }

    /// Handles the last word of a peer that has given its packets up: the session is over there.
    pub(super) fn last_word(&mut self) {
        self.endpoint.gave_up();
    }

    #[inline(never)]
    fn other(&mut self, event: Event<'_>) {
        match event {
            Event::LargeBegins { channel, bytes } => self.large_begins(channel, bytes),
            Event::LargeBytes { channel, bytes, done } => self.large_bytes(channel, bytes, done),
            Event::Memory { address, word } => {
                self.one_copy.probe(address, word, &mut self.endpoint.link);
            }
            other => self.channels.event(other, &mut self.endpoint.link, self.now),
        }
    }

    /// Reads bytes of a fragment from the peer's memory to where they belong; returns their number.
    #[inline(never)]
    pub(super) fn fetch(&mut self, part: Elsewhere) -> Result<u32, Unread> {
        let Elsewhere { channel, address, bytes } = part;
        if !self.one_copy.is_reading() {
            return Err(Unread::Unasked);
        }
        let Some(slot) = self.channels.receivers.get_mut(channel) else {
            // Nobody wants them: they count as read.
            self.endpoint.link.fragment_landed(channel, u64::from(bytes));
            return Ok(bytes);
        };
        let room = slot.destination(bytes as usize);
        if room.is_empty() {
            self.endpoint.link.fragment_landed(channel, u64::from(bytes));
            self.landing_full(channel);
            return Ok(bytes);
        }
        self.one_copy.read(address, room)?;
        let bytes = room.len() as u32;
        slot.advance(bytes as usize);
        if let Some(counted) = self.endpoint.link.fragment_landed(channel, u64::from(bytes)) {
            self.complete(channel, counted);
        }
        Ok(bytes)
    }

    #[inline]
    fn run(&mut self, channel: u32, messages: u32, bytes: &[u8], lent: Option<&Bytes>) {
        let Some(slot) = self.channels.receivers.get_mut(channel) else {
            return self.endpoint.link.consumed(channel, bytes.len() as u64);
        };
        if slot.landing.is_some() {
            return self.run_to_landing(channel, bytes);
        }
        let put = match lent {
            Some(buffer) if bytes.len() >= SHARED_RUN_BYTES_MIN => {
                slot.shared.put_shared(buffer.slice_ref(bytes), messages)
            }
            _ => slot.shared.put_copied(bytes, messages),
        };
        if put.is_none() {
            self.endpoint.link.consumed(channel, bytes.len() as u64);
        }
        slot.shared.set_report_step(self.endpoint.link.report_step(channel));
    }

    #[inline(never)]
    fn run_to_landing(&mut self, channel: u32, run: &[u8]) {
        let Some(slot) = self.channels.receivers.get_mut(channel) else { return };
        let mut at = 0;
        let mut fits = true;
        while let Some(range) = message::next_in_run(run, at) {
            at = range.end;
            fits &= slot.put(&run[range]);
        }
        self.endpoint.link.consumed(channel, run.len() as u64);
        self.endpoint.link.consumed_of_backlog(channel, run.len() as u64);
        if !fits {
            self.landing_full(channel);
        } else if at != run.len() {
            self.channels.shared.command(Command::Corrupt { id: channel });
        } else {
            self.settle_landed(channel);
        }
    }

    /// Settles the landed messages: no receiver is left to settle them by hand.
    fn settle_landed(&mut self, channel: u32) {
        let landed = self.endpoint.link.received_messages(channel);
        self.endpoint.link.settle(channel, landed, self.now);
    }

    /// Ends `channel`: its landing has no room for the bytes that came.
    fn landing_full(&mut self, channel: u32) {
        if let Some(mut slot) = self.channels.receivers.remove(channel) {
            slot.landing_full();
        }
        self.endpoint.link.terminate(channel);
    }

    fn large_begins(&mut self, channel: u32, bytes: u64) {
        let Some(slot) = self.channels.receivers.get_mut(channel) else { return };
        if slot.landing.is_some() {
            self.endpoint.link.admit_large(channel, true);
            return;
        }
        let into = slot.shared.take_into(bytes);
        let waits = self.endpoint.link.admit_large(channel, into.is_some());
        if waits {
            slot.shared.want_large();
        }
        let total = usize::try_from(bytes).unwrap_or(usize::MAX);
        let kept = &self.channels.shared.large_in;
        let (memory, turn) = match into {
            Some(buffer) => (buffer, None),
            None if waits => kept.take_in_turn(total),
            None => (kept.take(total), None),
        };
        slot.assembling = Some(Assembling { memory, filled: 0, total, _turn: turn });
    }

    fn large_bytes(&mut self, channel: u32, bytes: &[u8], done: Option<Counted>) {
        let Some(slot) = self.channels.receivers.get_mut(channel) else { return };
        if !slot.put(bytes) {
            return self.landing_full(channel);
        }
        if let Some(counted) = done {
            self.complete(channel, counted);
        }
    }

    /// Delivers the large message of `channel`, which is complete.
    pub(super) fn complete(&mut self, channel: u32, counted: Counted) {
        let Some(slot) = self.channels.receivers.get_mut(channel) else { return };
        let Some(mut assembling) = slot.assembling.take() else {
            if slot.landing.is_some() {
                self.settle_landed(channel);
            }
            return;
        };
        assembling.memory.truncate(assembling.total);
        let bytes = assembling.memory.len() as u64;
        let kept = if slot.landing.is_some() {
            // The message began before the landing was chosen.
            let fits = slot.put(&assembling.memory);
            if assembling.memory.capacity() <= WASTE_MAX * assembling.total {
                self.channels.shared.large_in.give(std::mem::take(&mut assembling.memory));
            }
            if fits {
                self.settle_landed(channel);
            } else {
                self.landing_full(channel);
            }
            false
        } else {
            slot.shared.put_large(std::mem::take(&mut assembling.memory), counted).is_some()
        };
        if !kept && counted != Counted::Not {
            self.endpoint.link.consumed_of_backlog(channel, bytes + 1);
        }
        match counted {
            Counted::Window if !kept => self.endpoint.link.consumed(channel, bytes),
            Counted::Large if !kept => self.endpoint.link.large_taken(channel),
            _ => {}
        }
    }
}
