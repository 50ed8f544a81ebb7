//! The reading half of a driver: bytes from the transport to the machine and to
//! the inboxes. The bytes of a large message go from the socket straight to the
//! memory that they are for.

use super::buffers::ReadBuffers;
use super::inbox::{Outcome, RxShared};
use super::mail::LinkShared;
use crate::channel::Landing;
use crate::error::RecvError;
use crate::proto::Time;
use crate::proto::ids::IdMap;
use crate::proto::limits::ACK_DELAY_MS;
use crate::proto::link::{Counted, Event, Link, ProtocolError};
use crate::proto::packet::{Decoder, Item};
use crate::transport::Transport;
use bytes::Bytes;
use std::io::{self, IoSliceMut};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// A fragment of which less is missing is read through the buffer.
const DIRECT_BYTES_MIN: u32 = 4 * 1024;

/// What is read ahead behind a fragment that goes straight to its memory: the
/// header of the next packet and of its fragment. What follows them is copied,
/// so that more would cost.
const AHEAD_BYTES: usize = 64;

/// A link is at rest when nothing came for so long. It looks then, since the
/// acknowledgement of what came last is due later.
const REST_AFTER: Duration = Duration::from_millis(ACK_DELAY_MS / 2);

/// A run of at least so many bytes stays in the buffer that it was read to.
const SHARED_RUN_BYTES_MIN: usize = 2 * 1024;

/// A channel that receives, as its driver has it.
pub(crate) struct RxSlot {
    pub(crate) shared: Arc<RxShared>,
    assembling: Option<Assembling>,
    pub(crate) landing: Option<Box<dyn Landing>>,
}

/// A large message that is being put together.
struct Assembling {
    memory: Vec<u8>,
    filled: usize,
    total: usize,
}

impl RxSlot {
    pub(crate) fn new(shared: Arc<RxShared>) -> RxSlot {
        RxSlot { shared, assembling: None, landing: None }
    }

    /// Where the next `left` bytes of the large message go.
    fn destination(&mut self, left: usize) -> &mut [u8] {
        if let Some(assembling) = &mut self.assembling {
            return assembling.room(left);
        }
        match &mut self.landing {
            Some(landing) => {
                let room = landing.room();
                let bytes = room.len().min(left);
                &mut room[..bytes]
            }
            None => &mut [],
        }
    }

    fn advance(&mut self, bytes: usize) {
        if let Some(assembling) = &mut self.assembling {
            assembling.filled += bytes;
        } else if let Some(landing) = &mut self.landing {
            landing.advance(bytes);
        }
    }

    /// Copies `bytes` to where they belong; false when there is no room.
    fn put(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let room = self.destination(bytes.len());
            let count = room.len();
            if count == 0 {
                return false;
            }
            room.copy_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            self.advance(count);
        }
        true
    }

    /// Puts what a receiver had taken in before it chose a landing.
    pub(crate) fn put_taken(&mut self, bytes: &[u8]) -> bool {
        let assembling = self.assembling.take();
        let fits = self.put(bytes);
        self.assembling = assembling;
        fits
    }

    pub(crate) fn end(&mut self, outcome: Outcome) {
        if let Some(landing) = self.landing.take() {
            let outcome = match &outcome {
                Outcome::Done => Ok(()),
                Outcome::Lost(link) => {
                    let channel = Arc::clone(&self.shared.name);
                    Err(RecvError::Lost { channel, link: link.clone() })
                }
            };
            landing.end(outcome);
        }
        self.shared.end(outcome);
    }

    /// The landing has no room for what comes.
    pub(crate) fn landing_full(&mut self) {
        if let Some(landing) = self.landing.take() {
            landing.end(Err(RecvError::LandingFull { channel: Arc::clone(&self.shared.name) }));
        }
    }
}

impl Assembling {
    /// The next bytes; memory of our own grows with what was received.
    fn room(&mut self, left: usize) -> &mut [u8] {
        let end = (self.filled + left).min(self.total);
        if self.memory.len() < end {
            self.memory.resize(end, 0);
        }
        &mut self.memory[self.filled..end]
    }
}

/// Takes the events that are not for a receiver.
pub(crate) type OtherEvents<'a> = dyn FnMut(&mut Link, &mut IdMap<RxSlot>, Event<'_>) + 'a;

/// What reading works on beside itself.
pub(crate) struct Inbound<'a> {
    pub(crate) link: &'a mut Link,
    pub(crate) receivers: &'a mut IdMap<RxSlot>,
    pub(crate) shared: &'a Arc<LinkShared>,
    /// Events that are not for a receiver.
    pub(crate) others: &'a mut OtherEvents<'a>,
    pub(crate) now: Time,
}

/// Why reading cannot go on.
pub(crate) enum ReadError {
    Io(io::Error),
    Protocol(ProtocolError),
    /// The peer wrote its last.
    End,
}

impl From<ProtocolError> for ReadError {
    fn from(error: ProtocolError) -> Self {
        ReadError::Protocol(error)
    }
}

/// The bytes of one connection on their way in.
pub(crate) struct Reader {
    decoder: Decoder,
    buffers: ReadBuffers,
    buffer: Vec<u8>,
    filled: usize,
    /// The last read ended with a fragment that went straight to its memory: the
    /// next one probably begins with the head of another.
    in_bulk: bool,
    last_read: Time,
    pub(crate) reads: u64,
}

impl Reader {
    pub(crate) fn new(packet_bytes_max: usize, buffers: ReadBuffers) -> Reader {
        let decoder = Decoder::new(packet_bytes_max);
        Reader {
            decoder,
            buffers,
            buffer: Vec::new(),
            filled: 0,
            in_bulk: false,
            last_read: Time(0),
            reads: 0,
        }
    }

    /// When to look again whether the link is at rest.
    pub(crate) fn rest_deadline(&self) -> Option<Time> {
        let holds = !self.buffer.is_empty() && self.filled == 0;
        holds.then(|| self.last_read.after(REST_AFTER))
    }

    /// The connection is gone, with what was not handled yet; packets up to
    /// `received` were.
    pub(crate) fn cut(&mut self, received: u64) {
        self.decoder.cut(received);
        self.filled = 0;
        self.in_bulk = false;
        let buffer = std::mem::take(&mut self.buffer);
        self.buffers.give(buffer);
    }

    /// Packets that came again as a whole and were skipped.
    pub(crate) fn duplicates(&self) -> u64 {
        self.decoder.duplicates()
    }

    /// Nothing came for a while.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Reads once and handles what came.
    pub(crate) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        transport: &mut dyn Transport,
        inbound: &mut Inbound<'_>,
    ) -> Poll<Result<(), ReadError>> {
        if self.buffer.is_empty() {
            self.buffer = self.buffers.take();
        }
        let outcome = match self.decoder.fragment_left() {
            Some((channel, left)) if left >= DIRECT_BYTES_MIN && self.filled == 0 => {
                self.poll_direct(context, transport, inbound, channel, left)
            }
            _ => self.poll_buffer(context, transport, inbound),
        };
        if outcome.is_ready() {
            self.last_read = inbound.now;
        } else if self.filled == 0 && inbound.now >= self.last_read.after(REST_AFTER) {
            // A link at rest holds no buffer.
            let buffer = std::mem::take(&mut self.buffer);
            self.buffers.give(buffer);
            self.buffers.rest();
        }
        outcome
    }

    fn poll_direct(
        &mut self,
        context: &mut Context<'_>,
        transport: &mut dyn Transport,
        inbound: &mut Inbound<'_>,
        channel: u32,
        left: u32,
    ) -> Poll<Result<(), ReadError>> {
        let Some(slot) = inbound.receivers.get_mut(&channel) else {
            return self.poll_buffer(context, transport, inbound);
        };
        let destination = slot.destination(left as usize);
        if destination.is_empty() {
            return self.poll_buffer(context, transport, inbound);
        }
        let room = destination.len();
        // Only behind the fragment's last byte something else may follow.
        let ahead = if room == left as usize { AHEAD_BYTES.min(self.buffer.len()) } else { 0 };
        let mut both = [IoSliceMut::new(destination), IoSliceMut::new(&mut self.buffer[..ahead])];
        let read = ready!(transport.poll_read_two(context, &mut both)).map_err(ReadError::Io)?;
        self.reads += 1;
        if read == 0 {
            return Poll::Ready(Err(ReadError::End));
        }
        let direct = read.min(room);
        slot.advance(direct);
        self.decoder.skip_fragment(direct as u32);
        self.filled = read - direct;
        self.in_bulk = true;
        if let Some(counted) = inbound.link.fragment_landed(channel, direct as u64) {
            inbound.complete(channel, counted);
        }
        Poll::Ready(self.handle(inbound))
    }

    fn poll_buffer(
        &mut self,
        context: &mut Context<'_>,
        transport: &mut dyn Transport,
        inbound: &mut Inbound<'_>,
    ) -> Poll<Result<(), ReadError>> {
        let bulk = std::mem::take(&mut self.in_bulk) && self.filled == 0;
        let end = if bulk { AHEAD_BYTES.min(self.buffer.len()) } else { self.buffer.len() };
        let room = &mut self.buffer[self.filled..end];
        let room_bytes = room.len();
        let read = ready!(transport.poll_read(context, room)).map_err(ReadError::Io)?;
        self.reads += 1;
        if read == 0 {
            return Poll::Ready(Err(ReadError::End));
        }
        self.filled += read;
        if !bulk {
            self.buffers.learn(read, room_bytes);
        }
        Poll::Ready(self.handle(inbound))
    }

    /// Handles all that is complete in the buffer.
    fn handle(&mut self, inbound: &mut Inbound<'_>) -> Result<(), ReadError> {
        if self.buffers.may_lend(self.filled, self.buffer.len()) {
            return self.handle_lent(inbound);
        }
        let mut at = 0;
        let bytes = &self.buffer[..self.filled];
        while let Some(item) = decode(&mut self.decoder, bytes, &mut at)? {
            inbound.item(item, None)?;
        }
        self.buffer.copy_within(at..self.filled, 0);
        self.filled -= at;
        self.make_room();
        Ok(())
    }

    /// As `handle`, for a buffer whose slices may stay in inboxes.
    fn handle_lent(&mut self, inbound: &mut Inbound<'_>) -> Result<(), ReadError> {
        let buffer = Bytes::from(std::mem::take(&mut self.buffer));
        let mut at = 0;
        let bytes = &buffer[..self.filled];
        let outcome = loop {
            match decode(&mut self.decoder, bytes, &mut at) {
                Ok(Some(item)) => match inbound.item(item, Some(&buffer)) {
                    Ok(()) => {}
                    Err(error) => break Err(error),
                },
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        let rest = &bytes[at..];
        let wanted = self.decoder.wants(rest).max(rest.len() + 1);
        let mut next = self.buffers.take_for(wanted).unwrap_or_else(|| vec![0; wanted]);
        next[..rest.len()].copy_from_slice(rest);
        self.filled = rest.len();
        self.buffer = next;
        self.buffers.lend(buffer);
        outcome
    }

    /// The next record fits in the buffer, whatever its size.
    fn make_room(&mut self) {
        let wanted = self.decoder.wants(&self.buffer[..self.filled]).max(self.filled + 1);
        if wanted <= self.buffer.len() {
            return;
        }
        let mut next = self.buffers.take_for(wanted).unwrap_or_else(|| vec![0; wanted]);
        next[..self.filled].copy_from_slice(&self.buffer[..self.filled]);
        let old = std::mem::replace(&mut self.buffer, next);
        self.buffers.give(old);
    }
}

fn decode<'a>(
    decoder: &mut Decoder,
    bytes: &'a [u8],
    at: &mut usize,
) -> Result<Option<Item<'a>>, ReadError> {
    decoder.next(bytes, at).map_err(|error| ReadError::Protocol(error.into()))
}

impl Inbound<'_> {
    /// Handles one item; `lent` is the buffer that it lies in, if slices of that
    /// may stay.
    fn item(&mut self, item: Item<'_>, lent: Option<&Bytes>) -> Result<(), ReadError> {
        match self.link.handle(item, self.now)? {
            Event::None => {}
            Event::Run { channel, messages, bytes } => self.run(channel, messages, bytes, lent),
            Event::LargeBegins { channel, bytes } => self.large_begins(channel, bytes),
            Event::LargeBytes { channel, bytes, done } => self.large_bytes(channel, bytes, done),
            other => (self.others)(self.link, self.receivers, other),
        }
        Ok(())
    }

    fn run(&mut self, channel: u32, messages: u32, bytes: &[u8], lent: Option<&Bytes>) {
        let Some(slot) = self.receivers.get_mut(&channel) else {
            return self.link.consumed(channel, bytes.len() as u64);
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
            self.link.consumed(channel, bytes.len() as u64);
        }
        slot.shared.set_report_step(self.link.report_step(channel));
    }

    fn run_to_landing(&mut self, channel: u32, run: &[u8]) {
        let Some(slot) = self.receivers.get_mut(&channel) else { return };
        let mut at = 0;
        let mut fits = true;
        while let Some(range) = crate::proto::message::next_in_run(run, at) {
            at = range.end;
            fits &= slot.put(&run[range]);
        }
        self.link.consumed(channel, run.len() as u64);
        if !fits {
            self.landing_full(channel);
        } else if at != run.len() {
            self.shared.command(super::mail::Command::Corrupt { id: channel });
        }
    }

    /// The landing of `channel` has no room for what came.
    fn landing_full(&mut self, channel: u32) {
        if let Some(mut slot) = self.receivers.remove(&channel) {
            slot.landing_full();
        }
        self.link.terminate(channel);
    }

    fn large_begins(&mut self, channel: u32, bytes: u64) {
        let Some(slot) = self.receivers.get_mut(&channel) else { return };
        if slot.landing.is_some() {
            self.link.admit_large(channel, true);
            return;
        }
        let into = slot.shared.take_into(bytes);
        if self.link.admit_large(channel, into.is_some()) {
            slot.shared.want_large();
        }
        let total = usize::try_from(bytes).unwrap_or(usize::MAX);
        slot.assembling = Some(Assembling { memory: into.unwrap_or_default(), filled: 0, total });
    }

    fn large_bytes(&mut self, channel: u32, bytes: &[u8], done: Option<Counted>) {
        let Some(slot) = self.receivers.get_mut(&channel) else { return };
        if !slot.put(bytes) {
            return self.landing_full(channel);
        }
        if let Some(counted) = done {
            self.complete(channel, counted);
        }
    }

    /// The large message of `channel` is all there.
    fn complete(&mut self, channel: u32, counted: Counted) {
        let Some(slot) = self.receivers.get_mut(&channel) else { return };
        let Some(mut assembling) = slot.assembling.take() else { return };
        assembling.memory.truncate(assembling.total);
        let bytes = assembling.memory.len() as u64;
        let kept = if slot.landing.is_some() {
            // It began before the landing was chosen.
            if !slot.put(&assembling.memory) {
                self.landing_full(channel);
            }
            false
        } else {
            slot.shared.put_large(assembling.memory, counted).is_some()
        };
        match counted {
            Counted::Window if !kept => self.link.consumed(channel, bytes),
            Counted::Large if !kept => self.link.large_taken(channel),
            _ => {}
        }
    }
}
