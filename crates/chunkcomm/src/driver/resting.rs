//! The driver with nothing to do: its work before it sleeps, how long it sleeps, and whether at
//! all.

use super::link::Driver;
use crate::error::{LinkCause, LinkError};
use crate::proto::Time;
use crate::proto::liveness::Alive;
use crate::stats::PeerStats;
use std::io;
use std::sync::Arc;
use std::task::Context;

impl Driver {
    /// Whether the driver, with nothing to do, looks again at once for arriving bytes.
    #[inline]
    pub(super) fn looks_on(&mut self, now: Time) -> bool {
        let sleeps = self.transport.as_ref().is_some_and(|transport| transport.sleeps());
        let (was_on, goes_on) = (self.watch.is_on(), sleeps && self.watch.goes_on());
        if goes_on && !was_on {
            self.publish(now);
        }
        goes_on
    }

    /// Rests until woken, with nothing to do.
    pub(super) fn poll_rest(
        &mut self,
        context: &mut Context<'_>,
        now: Time,
    ) -> Result<(), LinkError> {
        let metrics = self.publish(now);
        let (alive, at) = self.link.poll_alive(now);
        if alive != Alive::Fine {
            self.silent(alive, now)?;
        }
        // Packets of the link wait for the packet that is being written, or for a connection.
        let can_write =
            self.transport.is_some() && !self.writer.is_busy() && self.unwritable.is_none();
        let link = if can_write { self.link.next_deadline() } else { None };
        let rest = self.transport.as_ref().and_then(|_| self.reader.rest_deadline());
        let look = self.looks.deadline(&self.link, now);
        let last = self.unwritable.as_ref().map(|(_, until)| *until);
        let large = [self.shared.large_out.rest(now), self.shared.large_in.rest(now)];
        let mut deadline = at;
        for other in [link, self.recheck, rest, metrics, look, last].into_iter().chain(large) {
            deadline = deadline.min(other.unwrap_or(deadline));
        }
        let probes = alive == Alive::Probe && can_write;
        if probes || self.alarm.poll(context, Some(deadline), now).is_ready() {
            context.waker().wake_by_ref();
        }
        Ok(())
    }

    /// Handles a silent peer: a dialler drops the connection to a suspect one; a dead one ends the
    /// session.
    #[cold]
    #[inline(never)]
    fn silent(&mut self, alive: Alive, now: Time) -> Result<(), LinkError> {
        let _within = self.span.clone().entered();
        tracing::debug!(peer = %self.shared.peer.name, ?alive, "the peer is silent");
        match alive {
            Alive::Dead => Err(self.dead()),
            Alive::Suspect if self.dials() => {
                let silent = io::Error::from(io::ErrorKind::TimedOut);
                self.disconnect(now, LinkCause::Io(Arc::new(silent)))
            }
            _ => Ok(()),
        }
    }

    /// Publishes the counters; returns when to do so again at the latest.
    fn publish(&mut self, now: Time) -> Option<Time> {
        self.rest();
        #[cfg(feature = "metrics")]
        return self.publish_metrics(now);
        #[cfg(not(feature = "metrics"))]
        {
            let _ = now;
            None
        }
    }

    /// Publishes the counters and gives memory back, when everything possible was done.
    pub(super) fn rest(&mut self) {
        let (counters, writer) = (self.link.counters(), &self.writer);
        let duplicates = self.reader.duplicates();
        let stats =
            PeerStats::from_counters(&counters, writer.writes, self.reader.reads, duplicates);
        self.shared.publish_stats(stats);
        if self.reader.is_at_rest() {
            self.link.rest();
        }
    }
}

#[cfg(test)]
mod tests;
