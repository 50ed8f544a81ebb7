//! The connections of a session: one is lost, and another takes its place.

use super::link::{Closing, Driver};
use super::mail::LinkShared;
use crate::error::{LinkCause, LinkError};
use crate::proto::Time;
use crate::proto::attempts::Offer;
use crate::transport::Transport;
use std::sync::Arc;

/// Action after a lost connection.
pub(crate) enum AfterLoss {
    /// The session ends too.
    End,
    /// This end waits for the peer to dial again.
    Wait,
    /// This end dials the peer again.
    Dial(Arc<dyn Redial>),
}

/// The node's part that dials a peer again.
pub(crate) trait Redial: Send + Sync {
    /// Sees to the connection after `attempt`, which was lost, until the session ends.
    fn redial(&self, link: &Arc<LinkShared>, attempt: u32);
}

impl Driver {
    /// Whether this end dials when the connection is lost.
    pub(super) fn dials(&self) -> bool {
        matches!(self.after_loss, AfterLoss::Dial(_))
    }

    /// Gives the connection up: the session waits for another one, or ends.
    #[cold]
    #[inline(never)]
    pub(super) fn disconnect(&mut self, now: Time, cause: LinkCause) -> Result<(), LinkError> {
        // After our bye, with everything acknowledged, the peer may hang up first.
        if matches!(self.closing, Closing::Bye | Closing::Shutdown) {
            return Err(self.error(LinkCause::Closed));
        }
        if matches!(self.after_loss, AfterLoss::End) {
            return Err(self.error(cause));
        }
        let _within = self.span.clone().entered();
        let trouble = trouble_of(&cause);
        tracing::info!(peer = %self.shared.peer.name, attempt = self.attempts.last(), %trouble,
            "the connection was lost");
        self.shared.set_trouble(trouble);
        self.cut(now, cause);
        if let AfterLoss::Dial(dialler) = &self.after_loss {
            dialler.redial(&self.shared, self.attempts.last());
        }
        Ok(())
    }

    /// Cuts the connection: packets under way on it count as if they had not left.
    fn cut(&mut self, now: Time, cause: LinkCause) {
        if self.transport.take().is_some() {
            self.acceptor.cut_off(&self.shared, &self.error(cause));
        }
        self.watch.stop();
        self.unwritable = None;
        self.attempts.lost();
        self.writer.cut(&mut self.link);
        self.reader.cut(self.link.received());
        self.link.cut(now);
    }

    pub(super) fn offer(&mut self, attempt: u32, now: Time) -> Offer {
        let closes = matches!(self.closing, Closing::Bye | Closing::Shutdown);
        let over = closes || matches!(self.after_loss, AfterLoss::End);
        let offer = self.attempts.offer(attempt, over);
        if offer == Offer::Taken && self.transport.is_some() {
            // The peer has lost the connection, and knows it first.
            self.cut(now, LinkCause::ConnectionLost);
        }
        offer
    }

    pub(super) fn adopt(
        &mut self,
        attempt: u32,
        received: u64,
        transport: Box<dyn Transport>,
        now: Time,
    ) -> Result<(), LinkError> {
        if !self.attempts.adopt(attempt) {
            return Ok(());
        }
        let resumed = self.link.resume(received, now);
        resumed.map_err(|error| self.error(LinkCause::Protocol(error)))?;
        self.transport = Some(transport);
        self.read_waits = false;
        self.note_acknowledged();
        let _within = self.span.enter();
        tracing::info!(peer = %self.shared.peer.name, attempt, received, "the session goes on");
        self.acceptor.resumed(&self.shared, attempt);
        Ok(())
    }
}

fn trouble_of(cause: &LinkCause) -> String {
    match cause {
        LinkCause::Io(error) => error.to_string(),
        _ => "the connection ended".to_owned(),
    }
}
