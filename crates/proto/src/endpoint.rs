//! One end of a session: its link, and the connections that carry the link from the first byte to
//! the last word.
//!
//! A driver moves bytes, time and connections for it:
//!
//! | the driver | calls | and then |
//! |---|---|---|
//! | can write | [`Endpoint::poll_output`] | writes [`Endpoint::unwritten`] and reports [`Endpoint::wrote`], or shuts its direction down |
//! | has read | [`Endpoint::handle`] for each item, then [`Endpoint::heard`] | |
//! | cannot write any more | [`Endpoint::write_failed`] | reads on |
//! | cannot read any more | [`Endpoint::lost`] | drops the connection |
//! | has nothing to do | [`Endpoint::poll`] | does what it returns |
//! | has dialled | [`Endpoint::greeted`], [`Endpoint::answered`], [`Endpoint::dial_failed`] | says the word, goes on with the connection |
//! | was dialled | [`Endpoint::offered`], then [`Endpoint::adopt`] | says the answer, goes on with the connection |
//!
//! A call that returns a [`SessionEnd`] is the last one but [`Endpoint::end`].
//!
//! The connections of a session are numbered by its dialler, from 1. The one with the highest
//! number counts.

mod dialling;

use super::Time;
use super::link::{Event, Link, LinkConfig, ProtocolError, Transmit};
use super::liveness::Alive;
use super::outbox::Staged;
use super::packet::{Item, Packet};
use super::resume::{Kind, Resume};
use super::session::Carried;
use super::tuning::flush::Yield;
use dialling::Dialling;
use std::time::Duration;

/// Time in which the peer's last bytes before it hung up arrive: they lie in this machine's kernel
/// or were lost with the connection.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Action after the loss of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterLoss {
    /// The session ends.
    End,
    /// This end waits for the peer to dial again.
    Wait,
    /// This end dials the peer again.
    Dial,
}

/// The session that an endpoint is an end of.
#[derive(Debug, Clone, Copy)]
pub struct SessionId {
    /// The session's number, drawn by its dialler.
    pub number: u64,
    /// Incarnation of the peer's node.
    pub peer: u128,
}

/// Cause of the end of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionEnd {
    /// This end has closed.
    Closed,
    /// The peer has closed.
    ClosedByPeer,
    /// The peer no longer knows the session.
    Forgotten,
    /// The peer's node is another one than before.
    Restarted,
    /// The peer was silent for too long.
    Dead,
    /// The connection is lost, and the session ends with it.
    Lost,
    /// The peer has broken the protocol.
    Protocol(ProtocolError),
    /// The user or the driver has given the session up.
    GivenUp,
}

impl From<ProtocolError> for SessionEnd {
    fn from(error: ProtocolError) -> SessionEnd {
        SessionEnd::Protocol(error)
    }
}

/// The driver's task when the transport can take bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Write [`Endpoint::unwritten`].
    Write,
    /// Let others run, then ask again.
    Yield(Yield),
    /// Shut this direction of the connection down, then end with [`SessionEnd::Closed`].
    Shutdown,
    /// Nothing.
    Nothing,
}

/// The driver's task when everything possible was read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Come back at this time at the latest.
    Wait(Time),
    /// Ask [`Endpoint::poll_output`]: a packet is to leave.
    Write,
    /// Drop the connection: the peer is silent, or nothing can be written. Ask again.
    Drop,
    /// Dial connection `attempt`.
    Dial {
        /// Number of the connection.
        attempt: u32,
    },
    /// Stop dialling: the peer does not answer. Ask again.
    Unanswered,
    /// End the session.
    End(SessionEnd),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closing {
    No,
    /// Everything staged is to be acknowledged first.
    Draining,
    /// The last packet is on its way.
    Bye,
    /// The transport learns that nothing follows.
    Shutdown,
}

/// The packet that is being written.
#[derive(Debug, Default)]
struct Writing {
    /// Empty while nothing is being written.
    packet: Packet,
    /// Number of the packet; 0 for one without.
    number: u64,
    /// Whether the packet was written before, on a connection that was lost.
    again: bool,
    offset: usize,
    writes: u64,
}

/// One end of a session.
#[derive(Debug)]
pub struct Endpoint {
    /// The session's link, for everything that concerns its channels.
    pub link: Link,
    session: SessionId,
    after_loss: AfterLoss,
    /// Number of the current connection, or of the last one.
    attempt: u32,
    connected: bool,
    writing: Writing,
    /// Number of writes in all.
    writes: u64,
    /// Time until which a connection that cannot be written to is still read.
    unwritable: Option<Time>,
    closing: Closing,
    /// The cause with which the peer ended the session.
    last_word: Option<SessionEnd>,
    dialling: Dialling,
}

impl Endpoint {
    /// Begins a session on its first connection, both hellos exchanged.
    #[must_use]
    pub fn new(config: &LinkConfig, session: SessionId, after_loss: AfterLoss) -> Endpoint {
        Endpoint {
            link: Link::new(config),
            session,
            after_loss,
            attempt: 1,
            connected: true,
            writing: Writing::default(),
            writes: 0,
            unwritable: None,
            closing: Closing::No,
            last_word: None,
            dialling: Dialling::default(),
        }
    }

    /// Whether there is a connection.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// Whether this end closes.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.closing != Closing::No
    }

    /// Whether the last packet was made.
    #[must_use]
    pub fn has_said_bye(&self) -> bool {
        matches!(self.closing, Closing::Bye | Closing::Shutdown)
    }

    /// Whether this end dials when the connection is lost.
    #[must_use]
    pub fn dials(&self) -> bool {
        self.after_loss == AfterLoss::Dial
    }

    /// Returns the number of the current connection, or of the last one.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Closes: everything staged leaves, every channel ends, and with the last acknowledgement the
    /// session does.
    pub fn close(&mut self, now: Time) {
        if self.closing == Closing::No {
            self.closing = Closing::Draining;
            self.link.close(now);
        }
    }

    // ---- bytes ----

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
    fn can_write(&self) -> bool {
        self.connected && self.unwritable.is_none()
    }

    /// Returns the size of the packet that is being written.
    #[must_use]
    #[inline]
    pub fn packet_bytes(&self) -> usize {
        self.writing.packet.bytes()
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
        let Writing { packet: Packet { head, tail }, offset, .. } = &self.writing;
        let tail = tail.as_deref().unwrap_or_default();
        let from = (*offset).min(head.len());
        [&head[from..], &tail[offset - from..]]
    }

    /// Notes that one write took the first `bytes` of [`Endpoint::unwritten`]. Returns whether the
    /// whole packet is written.
    #[inline]
    pub fn wrote(&mut self, bytes: usize) -> bool {
        let Writing { packet, number, offset, writes, .. } = &mut self.writing;
        *writes += 1;
        *offset += bytes;
        if *offset < packet.bytes() {
            return false;
        }
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
            _ => {}
        }
        Ok(event)
    }

    /// Notes that bytes were read, after their items were handled.
    ///
    /// # Errors
    ///
    /// The peer has ended the session.
    #[inline]
    pub fn heard(&mut self, now: Time) -> Result<(), SessionEnd> {
        self.link.heard(now);
        self.last_word.map_or(Ok(()), Err)
    }

    // ---- time ----

    /// Returns the next step that neither reading nor writing brings.
    pub fn poll(&mut self, now: Time) -> Action {
        let (alive, mut at) = self.link.poll_alive(now);
        match alive {
            Alive::Dead => return Action::End(SessionEnd::Dead),
            Alive::Suspect if self.dials() => return self.drop_connection(now),
            Alive::Probe if self.can_write() && !self.is_writing() => return Action::Write,
            Alive::Probe | Alive::Suspect | Alive::Fine => {}
        }
        if let Some(until) = self.unwritable {
            if now >= until {
                return self.drop_connection(now);
            }
            at = at.min(until);
        }
        match self.dialling.poll(now) {
            Some(Action::Wait(until)) => at = at.min(until),
            Some(action) => return action,
            None => {}
        }
        // Packets wait for the packet that is being written, or for a connection.
        if self.can_write() && !self.is_writing() {
            at = at.min(self.link.next_deadline().unwrap_or(at));
        }
        Action::Wait(at)
    }

    fn drop_connection(&mut self, now: Time) -> Action {
        match self.lost(now) {
            Ok(()) => Action::Drop,
            Err(end) => Action::End(end),
        }
    }

    // ---- connections ----

    /// Notes that nothing can be written to the connection any more. It is still read for a while:
    /// the peer's last word may tell more than the failed write.
    pub fn write_failed(&mut self, now: Time) {
        self.unwritable.get_or_insert(now.after(LAST_WORDS));
    }

    /// Whether nothing can be written to the connection any more.
    #[must_use]
    #[inline]
    pub fn is_unwritable(&self) -> bool {
        self.unwritable.is_some()
    }

    /// Notes that the connection is lost: packets under way on it count as if they had not left.
    ///
    /// # Errors
    ///
    /// The session ends with the connection.
    #[cold]
    pub fn lost(&mut self, now: Time) -> Result<(), SessionEnd> {
        // After the last packet, with everything acknowledged, the peer may hang up first.
        if self.has_said_bye() {
            return Err(SessionEnd::Closed);
        }
        if self.after_loss == AfterLoss::End {
            return Err(SessionEnd::Lost);
        }
        self.cut(now);
        if self.dials() {
            self.dialling.begin(self.session.number, self.attempt, now);
        }
        Ok(())
    }

    fn cut(&mut self, now: Time) {
        self.connected = false;
        self.unwritable = None;
        if self.is_writing() {
            self.link.give_back(self.writing.number, &mut self.writing.packet);
        }
        self.writing = Writing::default();
        self.link.cut(now);
    }

    /// Takes connection `attempt` in place of the present one, which is over.
    fn take(&mut self, attempt: u32, now: Time) -> Kind {
        if self.has_said_bye() || self.after_loss == AfterLoss::End {
            return Kind::Unknown;
        }
        if attempt <= self.attempt {
            return Kind::Stale;
        }
        self.attempt = attempt;
        if self.connected {
            // The peer has lost the connection, and knows it first.
            self.cut(now);
        }
        Kind::Agreed
    }

    /// Handles the hello on connection `attempt`, which this end has dialled: node `incarnation` is
    /// there. Returns the word to say; `None` when the connection is not wanted any more.
    ///
    /// # Errors
    ///
    /// The peer has restarted, and has no end of this session.
    pub fn greeted(
        &mut self,
        attempt: u32,
        incarnation: u128,
        now: Time,
    ) -> Result<Option<Resume>, SessionEnd> {
        if !self.dialling.is_at(attempt) {
            return Ok(None);
        }
        if incarnation != self.session.peer {
            return Err(SessionEnd::Restarted);
        }
        if self.take(attempt, now) != Kind::Agreed {
            self.dialling.failed(now);
            return Ok(None);
        }
        let (session, received) = (self.session.number, self.link.received());
        Ok(Some(Resume { kind: Kind::Again, session, attempt, received, addressee: incarnation }))
    }

    /// Handles the answer to that word. Returns whether the session goes on with the connection.
    ///
    /// # Errors
    ///
    /// The peer no longer knows the session, or claims packets that it cannot have.
    pub fn answered(
        &mut self,
        attempt: u32,
        answer: &Resume,
        now: Time,
    ) -> Result<bool, SessionEnd> {
        if !self.dialling.is_at(attempt) {
            return Ok(false);
        }
        match answer.kind {
            Kind::Agreed => self.adopt(attempt, answer.received, now),
            Kind::Unknown => Err(SessionEnd::Forgotten),
            _ => {
                self.dialling.failed(now);
                Ok(false)
            }
        }
    }

    /// Notes that connection `attempt`, which this end has dialled, came to nothing. Returns false
    /// when it was given up before.
    pub fn dial_failed(&mut self, attempt: u32, now: Time) -> bool {
        let fails = self.dialling.is_at(attempt);
        if fails {
            self.dialling.failed(now);
        }
        fails
    }

    /// Decides about a connection on which the peer says `word` about this session. Returns the
    /// answer. If the answer agrees, the present connection is over, and [`Endpoint::adopt`]
    /// follows once the answer is said.
    pub fn offered(&mut self, word: &Resume, now: Time) -> Resume {
        let kind = self.take(word.attempt, now);
        word.answer(kind, self.link.received(), self.session.peer)
    }

    /// Goes on with connection `attempt`, on which the peer reports that it has the packets up to
    /// `received`. False when a later one was taken meanwhile.
    ///
    /// # Errors
    ///
    /// The peer cannot have these packets.
    pub fn adopt(&mut self, attempt: u32, received: u64, now: Time) -> Result<bool, SessionEnd> {
        if attempt != self.attempt || self.connected {
            return Ok(false);
        }
        self.dialling.done();
        self.link.resume(received, now)?;
        self.connected = true;
        Ok(true)
    }

    /// Ends the session. Returns the bytes that report this to the peer, if one is to know; they
    /// are written if the connection takes them at once.
    #[cold]
    pub fn end(&mut self, end: SessionEnd) -> Option<Vec<u8>> {
        self.dialling.done();
        let within = self.is_within_packet();
        let connected = std::mem::take(&mut self.connected);
        let knows = self.last_word.is_some() || (end == SessionEnd::Closed && self.has_said_bye());
        (connected && !within && !knows).then(|| self.link.farewell())
    }
}

#[cfg(test)]
mod tests;
