//! The connections of a session: one is lost, and another takes its place.

use super::link::Driver;
use super::mail::LinkShared;
use crate::error::{LinkCause, LinkError};
use crate::proto::Time;
use crate::proto::endpoint::SessionEnd;
use crate::proto::resume::Resume;
use crate::transport::Transport;
use std::io;
use std::sync::Arc;
use tokio::task::AbortHandle;

/// The node's part that dials a peer again.
pub(crate) trait Redial: Send + Sync {
    /// Dials connection `attempt` and reports to the driver of `link` by commands.
    fn dial(&self, link: &Arc<LinkShared>, attempt: u32) -> Dial;
}

/// A dial under way, given up when it is dropped.
pub(crate) struct Dial(pub(crate) AbortHandle);

impl Drop for Dial {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Driver {
    /// Handles the loss of the connection.
    ///
    /// # Errors
    ///
    /// The session ends with it.
    #[cold]
    #[inline(never)]
    pub(super) fn connection_lost(&mut self, now: Time, cause: LinkCause) -> Result<(), LinkError> {
        // The failed write came first.
        let cause = self.write_error.take().unwrap_or(cause);
        match self.endpoint.lost(now) {
            Ok(()) => self.cut_off(cause, true),
            Err(SessionEnd::Lost) => return Err(self.error(cause)),
            Err(end) => return Err(self.error_of(end)),
        }
        Ok(())
    }

    /// Drops the connection, which the endpoint has given up.
    #[cold]
    pub(super) fn connection_dropped(&mut self) {
        let silent = || LinkCause::Io(Arc::new(io::ErrorKind::TimedOut.into()));
        let cause = self.write_error.take().unwrap_or_else(silent);
        self.cut_off(cause, true);
    }

    /// Drops the transport and tells the node. The loss is a `trouble` unless the peer has made
    /// another connection already.
    fn cut_off(&mut self, cause: LinkCause, trouble: bool) {
        let shared = &self.channels.shared;
        if trouble {
            let _within = self.span.enter();
            let trouble = trouble_of(&cause);
            let attempt = self.endpoint.attempt();
            tracing::info!(peer = %shared.peer.name, attempt, %trouble, "the connection was lost");
            shared.set_trouble(trouble);
        }
        self.one_copy.end();
        if self.transport.take().is_some() {
            let bytes = self.endpoint.link.state_bytes()
                + self.channels.assembling_bytes()
                + shared.peer.shown.bytes();
            self.channels.acceptor.cut_off(shared, &self.error(cause), bytes);
        }
        self.write_error = None;
        self.watch.stop();
        self.reader.cut(self.endpoint.link.received());
    }

    /// Dials connection `attempt`; the dial before it is given up.
    pub(super) fn dial(&mut self, attempt: u32) {
        self.dial = self.redial.as_ref().map(|it| it.dial(&self.channels.shared, attempt));
    }

    pub(super) fn unanswered(&mut self) {
        self.dial = None;
        self.channels.shared.set_trouble("the peer does not answer".to_owned());
    }

    /// Decides about a connection of the peer's, which says `word`; returns the answer.
    pub(super) fn offered(&mut self, word: &Resume, now: Time) -> Resume {
        let answer = self.endpoint.offered(word, now);
        if !self.endpoint.is_connected() && self.transport.is_some() {
            self.cut_off(LinkCause::ConnectionLost, false);
        }
        answer
    }

    /// Goes on with `transport`, if the endpoint has adopted it.
    pub(super) fn adopted(
        &mut self,
        adopted: Result<bool, SessionEnd>,
        transport: Box<dyn Transport>,
    ) -> Result<(), LinkError> {
        if !adopted.map_err(|end| self.error_of(end))? {
            return Ok(());
        }
        self.one_copy.begin(&*transport, &mut self.endpoint.link);
        self.transport = Some(transport);
        self.dial = None;
        self.reader.waits = false;
        self.channels.note_acknowledged(&mut self.endpoint.link);
        let _within = self.span.enter();
        let (shared, attempt) = (&self.channels.shared, self.endpoint.attempt());
        tracing::info!(peer = %shared.peer.name, attempt, "the session goes on");
        self.channels.acceptor.resumed(shared, attempt);
        Ok(())
    }
}

fn trouble_of(cause: &LinkCause) -> String {
    match cause {
        LinkCause::Io(error) => error.to_string(),
        _ => "the connection ended".to_owned(),
    }
}
