//! The end of a session: all its channels learn the cause, and how much arrived.

use super::backs;
use super::channels::Channels;
use super::inbox::Outcome;
use super::keeping::Returned;
use super::link::Driver;
use super::mail::Command;
use super::staging::{Failure, TxShared};
use super::taking::land_rest;
use crate::error::{
    Account, ChannelLost, ChannelRefused, LinkCause, LinkError, Named, SendError, Unacknowledged,
};
use crate::proto::endpoint::{Endpoint, SessionEnd};
use crate::proto::link::Link;
use std::io::IoSlice;
use std::sync::Arc;
use std::task::Context;

/// A channel whose messages may not all have arrived.
pub(crate) struct LostChannel {
    /// The channel's state: a task that asks it learns of the loss.
    pub(crate) shared: Arc<TxShared>,
    pub(crate) left: Unacknowledged,
}

impl LostChannel {
    /// Makes the entry of a channel whose session ended.
    pub(crate) fn new(shared: &Arc<TxShared>, account: Account, link: &LinkError) -> LostChannel {
        let (channel, peer) = (shared.name.clone(), link.peer().to_owned());
        let lost = ChannelLost { channel: channel.clone(), link: link.clone(), account };
        // The task that closes the node knows that closing took too long.
        let before = !matches!(link.cause(), LinkCause::CloseDeadline);
        let cause = before.then(|| SendError::Lost(Arc::new(lost)));
        let left = Unacknowledged { channel, peer, account, cause };
        LostChannel { shared: Arc::clone(shared), left }
    }

    /// Makes the entry of a channel that the peer refused, perhaps while this node closes.
    pub(super) fn refused(
        shared: &Arc<TxShared>,
        accepted: u64,
        refused: Arc<ChannelRefused>,
    ) -> LostChannel {
        let account = shared.account(accepted);
        let (channel, peer) = (refused.channel.clone(), refused.peer.clone());
        let left =
            Unacknowledged { channel, peer, account, cause: Some(SendError::Refused(refused)) };
        LostChannel { shared: Arc::clone(shared), left }
    }
}

impl Driver {
    /// Ends the session: all its channels learn the cause.
    #[cold]
    #[inline(never)]
    pub(super) fn end(&mut self, error: &LinkError) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        let _within = self.span.clone().entered();
        self.dial = None;
        self.one_copy.end();
        self.rest();
        self.channels.shared.large_out.end();
        self.channels.shared.large_in.end();
        #[cfg(feature = "metrics")]
        self.publish_last_metrics();
        let end = if error.is_closed() { SessionEnd::Closed } else { SessionEnd::GivenUp };
        if let (Some(bytes), Some(transport)) = (self.endpoint.end(end), &mut self.transport) {
            let mut context = Context::from_waker(std::task::Waker::noop());
            let _ = transport.poll_write(&mut context, &[IoSlice::new(&bytes)]);
        }
        let left = self.channels.shared.end(error);
        // A task that learns of the end cannot send any more.
        self.channels.fail_senders(error, &self.endpoint);
        self.channels.shared.tell_end();
        let commands = std::mem::take(&mut self.taken.commands).into_iter().chain(left.commands);
        self.channels.end(error, commands, &self.endpoint);
    }
}

impl Channels {
    /// Returns the channels with messages that are not known to have arrived.
    fn unacknowledged(&mut self, error: &LinkError, link: &Link) -> Vec<LostChannel> {
        let mut channels = Vec::new();
        for (id, slot) in self.senders.slots.iter_mut() {
            // The link's machine has no count of a channel whose end was acknowledged.
            let sent = link.sent_messages(id).max(slot.shared.acked());
            let accepted = sent + u64::from(slot.ring.messages());
            if accepted > slot.shared.acked() && !slot.discard && !slot.shared.outlives_its_node() {
                channels.push(LostChannel::new(&slot.shared, slot.shared.account(accepted), error));
            }
        }
        channels
    }

    fn fail_senders(&mut self, error: &LinkError, endpoint: &Endpoint) {
        if !endpoint.is_closing() {
            let channels: Vec<u32> = self.senders.slots.keys().collect();
            for channel in channels {
                self.senders.give_back(channel);
            }
        }
        for slot in self.senders.slots.values() {
            slot.shared.fail(Failure::Lost(error.clone()));
        }
    }

    fn end(
        &mut self,
        error: &LinkError,
        commands: impl Iterator<Item = Command>,
        endpoint: &Endpoint,
    ) {
        self.looks.leave();
        self.shared.opens().end();
        // Nothing is accepted any more, so the counts are final.
        let mut lost = self.unacknowledged(error, &endpoint.link);
        let (mut landings, mut unopened) = (Vec::new(), self.senders.backs.take_all());
        for command in commands {
            match command {
                Command::Open { tx, ring, spec, .. } if tx.settling.stream().is_some() => {
                    let start = spec.stream.unwrap_or_default();
                    let stream = tx.settling.stream().cloned();
                    let unopened = Returned::unopened(tx, ring, start);
                    self.senders.given_up.extend(stream.and_then(|it| it.give_back(unopened)));
                }
                Command::Open { tx, ring, back, .. } => {
                    tx.fail(Failure::Lost(error.clone()));
                    unopened.extend(back);
                    if ring.messages() > 0 {
                        let account = tx.account(u64::from(ring.messages()));
                        lost.push(LostChannel::new(&tx, account, error));
                    }
                }
                Command::Land { id, landing, taken } => landings.push((id, landing, taken)),
                _ => {}
            }
        }
        let given_up = std::mem::take(&mut self.senders.given_up);
        lost.extend(given_up.into_iter().filter_map(|returned| returned.give_up(error)));
        log_end(&self.shared.peer.name, error, &lost);
        self.acceptor.ended(&self.shared, error, lost);
        // Last, since the code of a user's landing may panic: a task that closes the node waits for
        // the steps before this one.
        for (id, slot) in self.receivers.iter_mut() {
            slot.end(Outcome::Lost(error.clone(), endpoint.link.received_messages(id)));
        }
        for back in unopened {
            backs::end(&back, Outcome::Lost(error.clone(), 0));
        }
        for (id, landing, taken) in landings {
            if let Some(slot) = self.receivers.get(id) {
                land_rest(&slot.shared, landing, &taken, None);
            }
        }
    }
}

fn log_end(peer: &str, error: &LinkError, lost: &[LostChannel]) {
    if lost.is_empty() {
        return tracing::debug!(peer, cause = ?error, "the session ended");
    }
    for LostChannel { left, .. } in lost {
        let (name, account) = (Named(&left.channel), &left.account);
        tracing::warn!(peer, channel = %name, %account, cause = ?error,
            "the session ended with messages that are not acknowledged");
    }
}
