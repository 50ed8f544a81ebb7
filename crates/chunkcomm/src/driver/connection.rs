//! The connections of a session: one is lost, another takes its place.

use super::link::{Closing, Driver};
use super::mail::LinkShared;
use crate::error::{LinkCause, LinkError};
use crate::proto::Time;
use crate::proto::attempts::Offer;
use crate::transport::Transport;
use std::sync::Arc;

/// What is done about a lost connection.
pub(crate) enum AfterLoss {
    /// The session ends with it.
    End,
    /// The peer dials again.
    Wait,
    /// It is dialled again.
    Dial(Arc<dyn Redial>),
}

/// Who dials a peer again.
pub(crate) trait Redial: Send + Sync {
    /// Connection `attempt` was lost: sees to the next one, until the session
    /// ends.
    fn redial(&self, link: &Arc<LinkShared>, attempt: u32);
}

impl Driver {
    /// This end dials when the connection is lost.
    pub(super) fn dials(&self) -> bool {
        matches!(self.after_loss, AfterLoss::Dial(_))
    }

    /// The connection is of no use any more: the session waits for another one,
    /// or ends.
    #[cold]
    #[inline(never)]
    pub(super) fn disconnect(&mut self, now: Time, cause: LinkCause) -> Result<(), LinkError> {
        // After our bye, when everything is acknowledged, the peer may hang up
        // first.
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

    /// What was under way on the connection is as if it had not left.
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
            // The peer has lost it, and knows so first.
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
