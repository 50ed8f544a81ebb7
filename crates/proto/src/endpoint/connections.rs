//! Connections of an endpoint: one is lost, and another takes its place.

use super::bytes::Writing;
use super::{AfterLoss, Endpoint, LAST_WORDS, SessionEnd};
use crate::Time;
use crate::resume::{Kind, Resume};

impl Endpoint {
    /// Notes that nothing can be written to the connection any more: a write failed, or this
    /// direction is shut down. The connection is still read for a while.
    ///
    /// - After a failed write, the peer's last word may tell more.
    /// - After a shutdown, the peer hangs up when it has the last packet. If this end hung up with
    ///   bytes unread, its system would drop that packet.
    pub fn stop_writing(&mut self, now: Time) {
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
        self.peer_reads = false;
        self.left = 0;
        self.writing.take_address_out();
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
}
