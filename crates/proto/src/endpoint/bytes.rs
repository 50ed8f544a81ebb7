//! Bytes of an endpoint: the packet that is being written, and items that were read.

use super::{Closing, Endpoint, Output, SessionEnd};
use crate::Time;
use crate::error::ProtocolError;
use crate::limits::ELSEWHERE_BYTES_MIN;
use crate::link::{Event, Transmit};
use crate::outbox::Staged;
use crate::packet::{ADDRESS_BYTES, FLAG_ELSEWHERE, HEADER_FLAGS_AT, Item, Packet};
use crate::session::Carried;

/// The packet that is being written.
#[derive(Debug, Default)]
pub(super) struct Writing {
    /// Empty while nothing is being written.
    pub(super) packet: Packet,
    /// Number of the packet; 0 for one without.
    pub(super) number: u64,
    /// Whether the packet was written before, on a connection that was lost.
    again: bool,
    /// Whether the head ends with the address of the tail, which is written in its place.
    is_elsewhere: bool,
    offset: usize,
    writes: u64,
}

impl Writing {
    /// Puts the address of the tail in its place. The packet is kept until it is acknowledged, and the peer
    /// acknowledges it when it has read the tail.
    #[inline(never)]
    fn put_address_in(&mut self) {
        let Packet { head, tail: Some(tail), .. } = &mut self.packet else { return };
        head[HEADER_FLAGS_AT] |= FLAG_ELSEWHERE;
        head.extend_from_slice(&(tail.as_ptr().addr() as u64).to_le_bytes());
        self.is_elsewhere = true;
    }

    /// Makes the packet as it was: it may come again on another connection.
    #[inline]
    pub(super) fn take_address_out(&mut self) {
        if std::mem::take(&mut self.is_elsewhere) {
            let head = &mut self.packet.head;
            head.truncate(head.len() - ADDRESS_BYTES);
            head[HEADER_FLAGS_AT] &= !FLAG_ELSEWHERE;
        }
    }

    /// Returns the bytes to write.
    #[inline]
    fn bytes(&self) -> usize {
        if self.is_elsewhere { self.packet.head.len() } else { self.packet.bytes() }
    }
}

impl Endpoint {
    /// Returns the next step of writing. Asked when the transport can take bytes.
    #[inline]
    pub fn poll_output(&mut self, staged: &mut impl Staged, now: Time) -> Output {
        if !self.can_write() {
            return Output::Nothing;
        }
        if self.is_writing() {
            return Output::Write;
        }
        loop {
            let transmit = self.link.poll_transmit(staged, now, &mut self.writing.packet);
            match transmit {
                Transmit::Packet { number, again } => {
                    (self.writing.number, self.writing.again) = (number, again);
                    let packet = &self.writing.packet;
                    if packet.is_fragment && self.peer_reads && !again {
                        let bytes = packet.tail.as_ref().map_or(0, bytes::Bytes::len);
                        if bytes >= ELSEWHERE_BYTES_MIN {
                            self.writing.put_address_in();
                            self.left = number;
                        }
                    }
                    return Output::Write;
                }
                Transmit::Yield(whom) => return Output::Yield(whom),
                Transmit::Nothing if self.closing == Closing::No => return Output::Nothing,
                Transmit::Nothing => {
                    if let Some(output) = self.poll_closing() {
                        return output;
                    }
                }
            }
        }
    }

    /// Takes the next step of closing; `None` when a packet is to leave for it.
    #[cold]
    #[inline(never)]
    fn poll_closing(&mut self) -> Option<Output> {
        match self.closing {
            Closing::Draining if self.link.is_quiet() => {
                self.closing = Closing::Bye;
                self.link.bye();
                None
            }
            Closing::Bye | Closing::Shutdown => {
                self.closing = Closing::Shutdown;
                Some(Output::Shutdown)
            }
            Closing::No | Closing::Draining => Some(Output::Nothing),
        }
    }

    /// Whether nothing is to be written now, or waits for others: an acknowledgement that is not due yet
    /// counts as nothing.
    #[must_use]
    #[inline]
    pub fn has_nothing(&self, now: Time) -> bool {
        self.closing == Closing::No && !self.is_writing() && self.link.has_nothing(now)
    }

    /// Whether a packet is being written.
    #[must_use]
    #[inline]
    pub fn is_writing(&self) -> bool {
        !self.writing.packet.head.is_empty()
    }

    /// Whether a part of a packet was written.
    #[must_use]
    pub fn is_within_packet(&self) -> bool {
        self.writing.offset > 0
    }

    #[inline]
    pub(super) fn can_write(&self) -> bool {
        self.connected && self.unwritable.is_none()
    }

    /// Returns the size of the packet that is being written.
    #[must_use]
    #[inline]
    pub fn packet_bytes(&self) -> usize {
        self.writing.bytes()
    }

    /// Returns the bytes that leave with the packet that is being written, those that the peer reads from memory
    /// among them.
    #[must_use]
    #[inline]
    pub fn leaving_bytes(&self) -> usize {
        self.writing.packet.bytes()
    }

    /// Returns the number of the last packet that the peer has to read from memory; up to it nothing may count as
    /// written before it is acknowledged. 0 when there is none.
    #[must_use]
    #[inline]
    pub fn left_in_memory(&self) -> u64 {
        if self.left == 0 {
            return 0;
        }
        let [_, acknowledged, _] = self.link.numbers();
        if self.left > acknowledged { self.left } else { 0 }
    }

    /// Returns the packet that is being written, its number and whether it was written before; for
    /// those who check an endpoint.
    pub fn packet_mut(&mut self) -> (&mut Packet, u64, bool) {
        (&mut self.writing.packet, self.writing.number, self.writing.again)
    }

    /// Returns the bytes that are to be written, in two parts.
    #[must_use]
    #[inline]
    pub fn unwritten(&self) -> [&[u8]; 2] {
        let Writing { packet: Packet { head, tail, .. }, offset, is_elsewhere, .. } = &self.writing;
        let tail = tail.as_deref().filter(|_| !is_elsewhere).unwrap_or_default();
        let from = (*offset).min(head.len());
        [&head[from..], &tail[offset - from..]]
    }

    /// Notes that one write took the first `bytes` of [`Endpoint::unwritten`]. Returns whether the
    /// whole packet is written.
    #[inline]
    pub fn wrote(&mut self, bytes: usize) -> bool {
        self.writing.writes += 1;
        self.writing.offset += bytes;
        if self.writing.offset < self.writing.bytes() {
            return false;
        }
        self.writing.take_address_out();
        let Writing { packet, number, offset, writes, .. } = &mut self.writing;
        self.writes += *writes;
        self.link.written(*number, packet);
        self.link.count_writes(*writes);
        (*offset, *writes) = (0, 0);
        true
    }

    /// Returns the number of writes so far, of whole packets.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// Returns the states of the channels after the last packet, if that packet carried messages
    /// for the first time.
    #[must_use]
    #[inline]
    pub fn carried(&self) -> &[Carried] {
        if self.writing.again { &[] } else { self.link.carried() }
    }

    /// Handles an item that was read.
    ///
    /// # Errors
    ///
    /// The peer breaks the protocol; the session is over.
    #[inline(always)]
    pub fn handle<'a>(&mut self, item: Item<'a>, now: Time) -> Result<Event<'a>, ProtocolError> {
        let event = self.link.handle(item, now)?;
        match event {
            Event::Bye => self.last_word = Some(SessionEnd::ClosedByPeer),
            Event::Gone => self.last_word = Some(SessionEnd::Forgotten),
            Event::Reads => self.peer_reads = self.link.is_read(),
            _ => {}
        }
        Ok(event)
    }

    /// Notes that the peer has given the session up, as its last word says.
    pub fn gave_up(&mut self) {
        self.last_word = Some(SessionEnd::Forgotten);
    }

    /// Notes that bytes were read, after their items were handled.
    ///
    /// # Errors
    ///
    /// The peer has ended the session.
    #[inline]
    pub fn heard(&mut self, now: Time) -> Result<(), SessionEnd> {
        self.link.heard(now);
        match self.last_word {
            Some(_) if self.has_said_bye() => Err(SessionEnd::Closed),
            Some(end) => Err(end),
            None => Ok(()),
        }
    }
}
