//! One end of a session: its link, and the connections that carry the link from the first byte to
//! the last word.
//!
//! A driver moves bytes, time and connections for it:
//!
//! | the driver | calls | and then |
//! |---|---|---|
//! | can write | [`Endpoint::poll_output`] | writes [`Endpoint::unwritten`] and reports [`Endpoint::wrote`], or shuts its direction down |
//! | has read | [`Endpoint::handle`] for each item, then [`Endpoint::heard`] | |
//! | cannot write any more | [`Endpoint::stop_writing`] | reads on |
//! | cannot read any more | [`Endpoint::lost`] | drops the connection |
//! | has nothing to do | [`Endpoint::poll`] | does what it returns |
//! | has dialled | [`Endpoint::greeted`], [`Endpoint::answered`], [`Endpoint::dial_failed`] | says the word, goes on with the connection |
//! | was dialled | [`Endpoint::offered`], then [`Endpoint::adopt`] | says the answer, goes on with the connection |
//!
//! A call that returns a [`SessionEnd`] is the last one but [`Endpoint::end`].
//!
//! The connections of a session are numbered by its dialler, from 1. The one with the highest
//! number counts.
//!
//! Reading order: this file (the session, and time), `bytes` (what is written and read),
//! `connections` (one is lost, another comes), `dialling`.

mod bytes;
mod connections;
mod dialling;

use super::Time;
use super::error::ProtocolError;
use super::link::{Link, LinkConfig};
use super::liveness::Alive;
use super::tuning::flush::Yield;
use bytes::Writing;
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
    /// Shut this direction of the connection down, then call [`Endpoint::stop_writing`].
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
    /// Whether the peer reads fragments from this end's memory, on this connection.
    peer_reads: bool,
    /// Number of the last packet of which the peer has to read a fragment so.
    left: u64,
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
            peer_reads: false,
            left: 0,
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

    /// Returns the next step that neither reading nor writing brings.
    #[inline]
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
