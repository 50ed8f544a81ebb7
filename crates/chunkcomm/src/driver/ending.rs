//! The end of a session: everybody on it learns why, and what arrived.

use super::inbox::Outcome;
use super::link::{Closing, Driver};
use super::mail::Command;
use super::staging::Failure;
use super::taking::land_rest;
use crate::error::{Account, LinkCause, LinkError, Unacknowledged};
use std::task::Context;

impl Driver {
    pub(super) fn dead(&self) -> LinkError {
        let (silence_ms, trouble) = (self.dead_ms, self.shared.trouble());
        self.error(LinkCause::Dead { silence_ms, trouble })
    }

    /// The channels with messages that are not known to have arrived.
    pub(super) fn unacknowledged(&mut self) -> Vec<Unacknowledged> {
        let mut channels = Vec::new();
        for (id, slot) in self.senders.slots.iter_mut() {
            let staged = slot.ring.messages();
            let accepted = self.link.sent_messages(id) + u64::from(staged);
            let acknowledged = slot.shared.acked();
            if accepted > acknowledged && !slot.discard {
                channels.push(Unacknowledged {
                    channel: slot.shared.name.clone(),
                    peer: self.shared.peer.name.clone(),
                    account: Account { accepted, acknowledged },
                    cause: None,
                });
            }
        }
        channels
    }

    /// Tells the peer that the session was given up, if that can be done at once.
    pub(super) fn say_gone(&mut self) {
        let Some(transport) = &mut self.transport else { return };
        if self.last_word.is_none() && !self.writer.is_within_packet() {
            let packet = self.link.farewell();
            let mut context = Context::from_waker(std::task::Waker::noop());
            let _ = transport.poll_write(&mut context, &[std::io::IoSlice::new(&packet)]);
        }
    }

    /// The session is over: everybody on it learns why.
    #[cold]
    #[inline(never)]
    pub(super) fn end(&mut self, error: &LinkError) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        self.rest();
        self.looks.leave();
        #[cfg(feature = "metrics")]
        self.publish_last_metrics();
        if !error.is_closed() || matches!(self.closing, Closing::No | Closing::Draining) {
            self.say_gone();
        }
        let unacknowledged = self.unacknowledged();
        log_end(&self.shared.peer.name, error, &unacknowledged);
        self.shared.set_unacknowledged(unacknowledged);
        let left = self.shared.end(error);
        for slot in self.senders.slots.values() {
            slot.shared.fail(Failure::Lost(error.clone()));
        }
        for slot in self.receivers.values_mut() {
            slot.end(Outcome::Lost(error.clone()));
        }
        for command in std::mem::take(&mut self.taken.commands).into_iter().chain(left.commands) {
            match command {
                Command::Open { tx, .. } => tx.fail(Failure::Lost(error.clone())),
                Command::Land { id, landing, taken } => {
                    if let Some(slot) = self.receivers.get(id) {
                        land_rest(&slot.shared, landing, &taken, None);
                    }
                }
                _ => {}
            }
        }
        self.acceptor.ended(&self.shared);
    }
}

fn log_end(peer: &str, error: &LinkError, unacknowledged: &[Unacknowledged]) {
    if unacknowledged.is_empty() {
        return tracing::debug!(peer, cause = %error, "the session ended");
    }
    for channel in unacknowledged {
        let (name, account) = (&channel.channel, &channel.account);
        tracing::warn!(peer, channel = %name, %account, cause = %error,
            "the session ended with messages that are not acknowledged");
    }
}
