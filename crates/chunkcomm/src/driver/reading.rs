//! The reading half of a driver: bytes from the transport to the state machine and to the inboxes
//! ([`inbound`]). The bytes of a large message go from the socket straight to their memory
//! ([`slot`]).

mod inbound;
mod slot;

pub(crate) use inbound::Inbound;
pub(crate) use slot::RxSlot;

use super::buffers::ReadBuffers;
use super::one_copy::Unread;
use crate::proto::Time;
use crate::proto::error::ProtocolError;
use crate::proto::limits::ACK_DELAY_MS;
use crate::proto::packet::{Decoder, Elsewhere, Item};
use crate::transport::Transport;
use bytes::Bytes;
use std::io::{self, IoSliceMut};
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Missing bytes of a fragment below which it is read through the buffer.
const DIRECT_BYTES_MIN: u32 = 4 * 1024;

/// Bytes of a fragment in the buffer from which the next one is expected to be as large: 16 KiB. The next
/// read then ends behind its head, and its bytes go straight to their memory. That costs a call of the
/// system more, and saves a copy; for less than 16 KiB the copy is cheaper.
const BULK_BYTES_MIN: usize = 16 * 1024;

/// Bytes read ahead behind a large fragment: the header of the next packet, a small message and the header
/// of its fragment, 89 bytes for an increment of a delta. Bytes behind them have to be copied, so reading
/// more would cost.
const AHEAD_BYTES: usize = 128;

/// A link is at rest when nothing came for this long: 40 ms, when the acknowledgement of a last packet
/// that nothing answered is due, too.
pub(super) const REST_AFTER: Duration = Duration::from_millis(ACK_DELAY_MS);

/// The source of the answer whether something arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    /// The runtime, as it last saw it.
    Runtime,
    /// The system, as it is now.
    System,
}

/// Why reading cannot go on.
pub(crate) enum ReadError {
    Io(io::Error),
    Protocol(ProtocolError),
    /// The peer has ended its direction of the connection.
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
    /// The last read ended in a large fragment or at its end. Behind what is left of it there is probably
    /// the head of another one.
    in_bulk: bool,
    last_read: Time,
    pub(crate) reads: u64,
    /// Bytes of the last read, if it went to the buffer.
    last_bytes: usize,
    /// The last read took less than it had room for: it has probably taken all.
    took_all: bool,
    /// The transport was asked and had nothing. It wakes this task when something arrives.
    pub(super) waits: bool,
    /// Bytes written since the transport was last read from, or the system asked.
    pub(super) written_unread: usize,
    /// Finds the peer's last word, where it has given its packets up: nothing else of this connection counts any more.
    last_word: Option<Box<Decoder>>,
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
            last_bytes: 0,
            took_all: false,
            waits: false,
            written_unread: 0,
            last_word: None,
        }
    }

    /// Returns when to look again whether the link is at rest.
    #[inline]
    pub(crate) fn rest_deadline(&self) -> Option<Time> {
        let holds = !self.buffer.is_empty() && self.filled == 0;
        holds.then(|| self.last_read.after(REST_AFTER))
    }

    /// Forgets the bytes that were not handled, since the connection is gone. Packets up to
    /// `received` were handled.
    pub(crate) fn cut(&mut self, received: u64) {
        self.decoder.cut(received);
        self.filled = 0;
        self.in_bulk = false;
        self.waits = false;
        self.last_word = None;
        let buffer = std::mem::take(&mut self.buffer);
        self.buffers.give(buffer);
    }

    /// Returns the number of packets that came again as a whole and were skipped.
    pub(crate) fn duplicates(&self) -> u64 {
        self.decoder.duplicates()
    }

    /// Whether nothing came for a while.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Returns the bytes of the last read, if that read and the next one go to the buffer.
    #[inline]
    pub(crate) fn gathered(&self) -> usize {
        if self.direct().is_some() { 0 } else { self.last_bytes }
    }

    /// Whether the next bytes are in the peer's memory: no transport will wake anybody for them.
    #[inline]
    pub(crate) fn fetches(&self) -> bool {
        self.decoder.elsewhere().is_some()
    }

    /// Whether the last read has probably taken all that arrived.
    #[inline]
    pub(crate) fn took_all(&self) -> bool {
        self.took_all
    }

    /// Returns the channel and the missing bytes of a fragment, if the next bytes go straight to
    /// its memory.
    #[inline]
    fn direct(&self) -> Option<(u32, u32)> {
        let left = self.decoder.fragment_left();
        left.filter(|(_, left)| *left >= DIRECT_BYTES_MIN && self.filled == 0)
    }

    /// Reads once and handles what came.
    #[inline]
    pub(crate) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        transport: &mut dyn Transport,
        inbound: &mut Inbound<'_>,
        ask: Ask,
    ) -> Poll<Result<(), ReadError>> {
        if self.buffer.is_empty() {
            self.buffer = self.buffers.take();
        }
        if let Some(part) = self.decoder.elsewhere() {
            return Poll::Ready(self.fetch(inbound, part));
        }
        let outcome = match self.direct() {
            Some((channel, left)) => self.poll_direct(context, transport, inbound, channel, left),
            None => self.poll_buffer(context, transport, inbound, ask),
        };
        if outcome.is_ready() {
            self.last_read = inbound.now;
        }
        outcome
    }

    /// Gives the buffers back if nothing came for a while: a link at rest holds none.
    #[inline]
    pub(crate) fn rest(&mut self, now: Time) {
        if self.filled == 0 && now >= self.last_read.after(REST_AFTER) {
            let buffer = std::mem::take(&mut self.buffer);
            self.buffers.give(buffer);
            self.buffers.rest();
        }
    }

    /// Reads from the peer's memory, and handles what stands behind that in the buffer.
    #[inline(never)]
    fn fetch(&mut self, inbound: &mut Inbound<'_>, part: Elsewhere) -> Result<(), ReadError> {
        self.last_bytes = 0;
        self.took_all = false;
        self.last_read = inbound.now;
        match inbound.fetch(part) {
            Ok(bytes) => self.decoder.skip_fragment(bytes),
            Err(Unread::Unasked) => return Err(ProtocolError::Elsewhere.into()),
            Err(Unread::Io(error)) => return Err(ReadError::Io(error)),
            Err(Unread::Gone) => {
                self.last_word = Some(Box::new(self.decoder.clone()));
                self.decoder.cut(inbound.endpoint.link.received());
            }
        }
        self.handle(inbound)
    }

    /// Looks for the peer's last word in the buffer, behind packets that it has given up.
    #[cold]
    #[inline(never)]
    fn seek_last_word(&mut self, inbound: &mut Inbound<'_>) -> Result<(), ReadError> {
        let Some(decoder) = self.last_word.as_deref_mut() else { return Ok(()) };
        let mut at = 0;
        let bytes = &self.buffer[..self.filled];
        loop {
            if let Some(part) = decoder.elsewhere() {
                decoder.skip_fragment(part.bytes);
            }
            match decode(decoder, bytes, &mut at)? {
                Some(Item::Bye | Item::Gone) => inbound.last_word(),
                Some(_) => {}
                None if decoder.elsewhere().is_some() => {}
                None => break,
            }
        }
        self.keep_from(at);
        Ok(())
    }

    #[inline(never)]
    fn poll_direct(
        &mut self,
        context: &mut Context<'_>,
        transport: &mut dyn Transport,
        inbound: &mut Inbound<'_>,
        channel: u32,
        left: u32,
    ) -> Poll<Result<(), ReadError>> {
        let Some(slot) = inbound.channels.receivers.get_mut(channel) else {
            return self.poll_buffer(context, transport, inbound, Ask::Runtime);
        };
        let destination = slot.destination(left as usize);
        if destination.is_empty() {
            return self.poll_buffer(context, transport, inbound, Ask::Runtime);
        }
        let room = destination.len();
        // Something else may follow only behind the fragment's last byte.
        let ahead = if room == left as usize { AHEAD_BYTES.min(self.buffer.len()) } else { 0 };
        let mut both = [IoSliceMut::new(destination), IoSliceMut::new(&mut self.buffer[..ahead])];
        let read = ready!(transport.poll_read_two(context, &mut both)).map_err(ReadError::Io)?;
        self.reads += 1;
        // The runtime reports the bytes that come next.
        self.last_bytes = 0;
        self.took_all = false;
        if read == 0 {
            return Poll::Ready(Err(ReadError::End));
        }
        let direct = read.min(room);
        slot.advance(direct);
        self.decoder.skip_fragment(direct as u32);
        self.filled = read - direct;
        self.in_bulk = true;
        if let Some(counted) = inbound.endpoint.link.fragment_landed(channel, direct as u64) {
            inbound.complete(channel, counted);
        }
        Poll::Ready(self.handle(inbound))
    }

    #[inline]
    fn poll_buffer(
        &mut self,
        context: &mut Context<'_>,
        transport: &mut dyn Transport,
        inbound: &mut Inbound<'_>,
        ask: Ask,
    ) -> Poll<Result<(), ReadError>> {
        let left = self.decoder.fragment_left().map_or(0, |(_, left)| left);
        let bulk = self.in_bulk && self.filled == 0 && left < DIRECT_BYTES_MIN;
        let left = left as usize;
        let end = if bulk { left + AHEAD_BYTES } else { usize::MAX }.min(self.buffer.len());
        let room = &mut self.buffer[self.filled..end];
        let room_bytes = room.len();
        let read = ready!(match ask {
            Ask::Runtime => transport.poll_read(context, room),
            Ask::System => transport.poll_read_now(context, room),
        });
        let read = read.map_err(ReadError::Io)?;
        // The head behind what was left is still to come.
        self.in_bulk = bulk && read <= left;
        self.reads += 1;
        self.last_bytes = read;
        self.took_all = !bulk && read < room_bytes;
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
    #[inline]
    fn handle(&mut self, inbound: &mut Inbound<'_>) -> Result<(), ReadError> {
        if self.last_word.is_some() {
            return self.seek_last_word(inbound);
        }
        if self.buffers.may_lend(self.filled, self.buffer.len()) {
            return self.handle_lent(inbound);
        }
        let (mut at, mut last) = (0, 0);
        let bytes = &self.buffer[..self.filled];
        while let Some(item) = decode(&mut self.decoder, bytes, &mut at)? {
            last = fragment_bytes(&item).unwrap_or(last);
            inbound.item(item, None)?;
        }
        self.in_bulk |= last >= BULK_BYTES_MIN;
        self.keep_from(at);
        Ok(())
    }

    /// Keeps the bytes from `at` on, which wait for more; those before it were handled.
    #[inline]
    fn keep_from(&mut self, at: usize) {
        if at == self.filled {
            // The smallest buffer has room for the beginning of a record.
            self.filled = 0;
            return;
        }
        self.buffer.copy_within(at..self.filled, 0);
        self.filled -= at;
        self.make_room();
    }

    /// As `handle`, for a buffer whose slices may stay in inboxes.
    #[inline(never)]
    fn handle_lent(&mut self, inbound: &mut Inbound<'_>) -> Result<(), ReadError> {
        let buffer = Bytes::from(std::mem::take(&mut self.buffer));
        let (mut at, mut last) = (0, 0);
        let bytes = &buffer[..self.filled];
        let outcome = loop {
            match decode(&mut self.decoder, bytes, &mut at) {
                Ok(Some(item)) => {
                    last = fragment_bytes(&item).unwrap_or(last);
                    match inbound.item(item, Some(&buffer)) {
                        Ok(()) => {}
                        Err(error) => break Err(error),
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.in_bulk |= last >= BULK_BYTES_MIN;
        if buffer.is_unique() {
            // No slice of the buffer stays, as when it holds only a part of a large run.
            self.buffer = Vec::from(buffer);
            self.keep_from(at);
            return outcome;
        }
        let rest = &bytes[at..];
        let wanted = self.decoder.wants(rest).max(rest.len() + 1);
        let mut next = self.buffers.take_for(wanted).unwrap_or_else(|| vec![0; wanted]);
        next[..rest.len()].copy_from_slice(rest);
        self.filled = rest.len();
        self.buffer = next;
        self.buffers.lend(buffer);
        outcome
    }

    /// Makes room in the buffer for the next record, whatever its size.
    #[inline(never)]
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

/// Returns the bytes of a fragment, and nothing for what may stand between two.
#[inline(always)]
fn fragment_bytes(item: &Item<'_>) -> Option<usize> {
    match item {
        Item::FragmentBytes { bytes, .. } => Some(bytes.len()),
        Item::Run { bytes, .. } if bytes.len() > AHEAD_BYTES => Some(0),
        _ => None,
    }
}

#[inline(always)]
fn decode<'a>(
    decoder: &mut Decoder,
    bytes: &'a [u8],
    at: &mut usize,
) -> Result<Option<Item<'a>>, ReadError> {
    decoder.next(bytes, at).map_err(ReadError::Protocol)
}
