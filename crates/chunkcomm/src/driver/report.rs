//! A driver's report of its link, for people.

use super::channels::Channels;
use super::link::Driver;
use super::writing::TxSlot;
use crate::explain::{LinkReport, ReceivingReport, SendingReport};
use crate::proto::Time;
use crate::proto::link::Link;
use crate::proto::outbox::Blocked;
use std::time::Duration;

fn since(earlier: Time, now: Time) -> Duration {
    Duration::from_micros(now.micros_since(earlier))
}

impl Driver {
    /// Returns the state of the link at this moment.
    pub(super) fn report(&self, now: Time) -> LinkReport {
        let (link, shared) = (&self.endpoint.link, &self.channels.shared);
        let [sent, acknowledged, received] = link.numbers();
        LinkReport {
            peer: shared.peer.name.clone(),
            state: self.state().to_owned(),
            attempt: self.endpoint.attempt(),
            way: shared.way(),
            one_copy: self.one_copy.shown(),
            silence: since(link.heard_at(), now),
            sent,
            acknowledged,
            received,
            kept_bytes: link.kept_bytes(),
            waits_for: self.waits_for(),
            trouble: shared.trouble(),
            stats: shared.stats(),
            round_trip: link.round_trip(),
            sending: self.channels.sending(link, now),
            receiving: self.channels.receiving(),
        }
    }

    fn state(&self) -> &'static str {
        match (self.endpoint.is_closing(), self.transport.is_some()) {
            (true, true) => "closing",
            (true, false) => "closing, cut off",
            (false, false) => "cut off",
            (false, true) if self.endpoint.link.is_suspect() => "silent",
            (false, true) => "connected",
        }
    }

    fn waits_for(&self) -> Option<String> {
        if self.transport.is_none() {
            let whom =
                if self.endpoint.dials() { "the peer to answer" } else { "the peer to dial again" };
            return Some(whom.to_owned());
        }
        if self.endpoint.is_writing() {
            return Some("the connection to take more".to_owned());
        }
        if self.endpoint.link.is_full() {
            return Some("acknowledgements: as much is kept as may be".to_owned());
        }
        if let Some(bytes) = self.endpoint.link.bulk_waits() {
            return Some(format!("acknowledgements: bulk has at most {bytes} bytes on their way"));
        }
        None
    }
}

impl Channels {
    fn sending(&self, link: &Link, now: Time) -> Vec<SendingReport> {
        let mut reports: Vec<_> = self
            .senders
            .slots
            .iter()
            .map(|(id, slot)| {
                let staged = u64::from(slot.ring.messages());
                let state = link.channel_state(id);
                SendingReport {
                    channel: slot.shared.name.clone(),
                    staged,
                    sent: link.sent_messages(id),
                    acknowledged: slot.shared.acked(),
                    credit_bytes: state.credit_bytes,
                    waits_for: match state.blocked {
                        Blocked::No => answer_waited_for(id, slot, link),
                        Blocked::Credit => Some("credit: its receiver takes nothing".to_owned()),
                        Blocked::Open => {
                            let waiting = link.unopened();
                            let open = self.senders.slots.len() - waiting;
                            Some(format!(
                                "the peer to have room for one more channel: {open} are open, \
                                 {waiting} wait for one of them to end"
                            ))
                        }
                    },
                    oldest: (staged > 0).then(|| since(state.oldest, now)),
                }
            })
            .collect();
        reports.sort_by(|one, other| one.channel.cmp(&other.channel));
        reports
    }

    fn receiving(&self) -> Vec<ReceivingReport> {
        let mut reports: Vec<_> = self
            .receivers
            .values()
            .map(|slot| &slot.shared)
            .chain(self.senders.backs.iter())
            .map(|shared| {
                let (unread_bytes, awaited) = shared.waiting();
                let channel = shared.name.to_string();
                ReceivingReport { channel, unread_bytes, awaited }
            })
            .collect();
        reports.sort_by(|one, other| one.channel.cmp(&other.channel));
        reports
    }
}

/// Returns what a task waits for in `sync` or `close`, or in `send` for a ring that is full.
fn answer_waited_for(id: u32, slot: &TxSlot, link: &Link) -> Option<String> {
    if !slot.shared.is_waited_for() {
        return None;
    }
    if slot.ring.messages() > 0 {
        return Some("its turn: somebody waits for what is staged to leave".to_owned());
    }
    if let Some((held, bytes_max)) = slot.shared.backlog_held(link.channel_state(id).sent_bytes) {
        return Some(format!("its receiver: {held} of at most {bytes_max} bytes are not taken"));
    }
    let unknown = link.sent_messages(id).saturating_sub(slot.shared.acked());
    (unknown > 0).then(|| "an acknowledgement, and somebody for that".to_owned())
}
