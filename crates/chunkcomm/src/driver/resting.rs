//! The driver with nothing to do: its work before it sleeps, how long it sleeps, and whether at
//! all.

use super::link::Driver;
use crate::error::{LinkCause, LinkError};
use crate::proto::Time;
use crate::proto::endpoint::{Action, SessionEnd};
use crate::proto::limits::ACK_DELAY_MS;
use std::task::Context;
use std::time::Duration;

impl Driver {
    /// Whether the driver, with nothing to do, looks again at once for arriving bytes.
    #[inline]
    pub(super) fn looks_on(&mut self, now: Time) -> bool {
        if self.watch.sleeps() {
            return false;
        }
        let sleeps = self.transport.as_ref().is_some_and(|transport| transport.sleeps());
        let (was_on, goes_on) = (self.watch.is_on(), sleeps && self.watch.goes_on());
        if goes_on && !was_on {
            self.publish(now);
        }
        goes_on
    }

    /// Rests until woken, with nothing to do.
    #[inline]
    pub(super) fn poll_rest(
        &mut self,
        context: &mut Context<'_>,
        now: Time,
    ) -> Result<(), LinkError> {
        let metrics = self.publish(now);
        if metrics.is_none() && self.looks_later(now) {
            return Ok(());
        }
        let mut deadline = loop {
            match self.endpoint.poll(now) {
                Action::Wait(at) => break at,
                Action::Write => {
                    context.waker().wake_by_ref();
                    return Ok(());
                }
                Action::Drop => self.connection_dropped(),
                Action::Dial { attempt } => self.dial(attempt),
                Action::Unanswered => self.unanswered(),
                Action::End(SessionEnd::Lost) => {
                    let lost = self.write_error.take();
                    return Err(self.error(lost.unwrap_or(LinkCause::ConnectionLost)));
                }
                Action::End(end) => return Err(self.error_of(end)),
            }
        };
        let rest = self.transport.as_ref().and_then(|_| self.reader.rest_deadline());
        let look = self.channels.looks.deadline(&self.endpoint.link, now);
        let shared = &self.channels.shared;
        let large = [shared.large_out.rest(now), shared.large_in.rest(now)];
        for other in [self.recheck, rest, metrics, look, large[0], large[1]] {
            deadline = other.map_or(deadline, |other| deadline.min(other));
        }
        if self.alarm.poll(context, Some(deadline), now).is_ready() {
            context.waker().wake_by_ref();
        }
        Ok(())
    }

    /// Whether the timer goes off before anything is due: the deadlines are looked for then. So a link on
    /// which packets pass all the time looks for them every 20 ms.
    #[inline]
    fn looks_later(&self, now: Time) -> bool {
        self.transport.is_some()
            && self.recheck.is_none()
            && self.endpoint.link.silence().probe >= Duration::from_millis(2 * ACK_DELAY_MS)
            && self.alarm.precedes(self.endpoint.link.next_deadline(), now)
    }

    /// Publishes the counters; returns when to do so again at the latest.
    #[inline]
    fn publish(&mut self, now: Time) -> Option<Time> {
        self.reader.rest(now);
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
    #[inline]
    pub(super) fn rest(&mut self) {
        self.channels.shared.publish_stats(|stats| {
            *stats = self.endpoint.link.counters();
            (stats.writes, stats.reads) = (self.endpoint.writes(), self.reader.reads);
            stats.packets_duplicate = self.reader.duplicates();
        });
        if self.reader.is_at_rest() {
            self.endpoint.link.rest();
        }
    }
}

#[cfg(test)]
mod tests;
