//! The events of a link that are not for a receiver's inbox: channels that begin
//! and end.

use super::ending::LostChannel;
use super::inbox::{Outcome, RxShared};
use super::mail::LinkShared;
use super::reading::RxSlot;
use super::staging::Failure;
use super::taking::RxEnd;
use super::writing::TxSlots;
use crate::error::{LinkCause, RefusalReason};
use crate::proto::Time;
use crate::proto::cycle::Board;
use crate::proto::ids::IdMap;
use crate::proto::link::{Event, Link};
use crate::proto::packet::{ChannelKind, Refusal};
use std::sync::{Arc, Mutex};

/// A channel that a peer opened.
pub(crate) struct Opened {
    pub(crate) receiver: RxEnd,
    pub(crate) kind: ChannelKind,
    pub(crate) fingerprint: u64,
}

/// Who takes the channels that peers open.
pub(crate) trait Acceptor: Send + Sync {
    /// A peer opened a channel. `Err` gives it back to be refused.
    fn opened(&self, opened: Opened) -> Result<(), Box<Opened>>;

    /// The sender's type of a channel that was refused for its type.
    fn described(&self, link: &Arc<LinkShared>, channel: u32, text: &str);

    /// What was accepted on these channels may not have arrived.
    fn lost(&self, channels: Vec<LostChannel>);

    /// The session ended.
    fn ended(&self, link: &Arc<LinkShared>);
}

/// Handles the events that are not for a receiver's inbox.
pub(super) struct Others<'a> {
    pub(super) acceptor: &'a Arc<dyn Acceptor>,
    pub(super) shared: &'a Arc<LinkShared>,
    pub(super) senders: &'a mut TxSlots,
    pub(super) link: &'a mut Link,
    pub(super) receivers: &'a mut IdMap<RxSlot>,
    pub(super) last_word: &'a mut Option<LinkCause>,
    pub(super) board: &'a Mutex<Board>,
}

impl Others<'_> {
    pub(super) fn handle(&mut self, event: Event<'_>, now: Time) {
        match event {
            Event::Opened { channel, kind, fingerprint, name, .. } => {
                self.opened(channel, kind, fingerprint, name);
            }
            Event::Ended { channel } => {
                let Some(slot) = self.receivers.get_mut(channel) else { return };
                let landed = slot.landing.is_some();
                slot.end(Outcome::Done);
                if landed {
                    self.receivers.remove(channel);
                    self.link.finished(channel);
                }
            }
            Event::Terminated { channel } => {
                self.take_acknowledged();
                self.fail(channel, Failure::Terminated);
            }
            Event::Refused { channel, refusal, text, sent } => {
                self.refused(channel, refusal, text, sent);
            }
            Event::Described { channel, text } => {
                self.acceptor.described(self.shared, channel, text);
            }
            Event::Wait { number, chain } => self.peer_waits(number, chain, now),
            Event::Bye => *self.last_word = Some(LinkCause::ClosedByPeer),
            Event::Gone => *self.last_word = Some(LinkCause::Forgotten),
            _ => {}
        }
    }

    /// The same packet may acknowledge what would be called unknown otherwise.
    fn take_acknowledged(&mut self) {
        for carried in self.link.poll_acknowledged() {
            self.senders.acknowledged(carried);
        }
    }

    fn opened(&mut self, channel: u32, kind: ChannelKind, fingerprint: u64, name: &str) {
        let shared = RxShared::new(name, channel);
        shared.set_report_step(self.link.report_step(channel));
        self.receivers.insert(channel, RxSlot::new(Arc::clone(&shared)));
        let receiver = RxEnd::new(shared, Arc::clone(self.shared));
        let opened = Opened { receiver, kind, fingerprint };
        if let Err(refused) = self.acceptor.opened(opened) {
            refused.receiver.disarm();
            self.receivers.remove(channel);
            self.link.refuse(channel, Refusal::NotAccepted, "");
        }
    }

    fn refused(&mut self, channel: u32, refusal: Refusal, text: &str, sent: u64) {
        let Some(slot) = self.senders.slots.get(channel) else { return };
        if slot.discard {
            // It was refused before: the answer is on its way.
            return;
        }
        let sender = slot.shared.description.clone();
        let reason = match refusal {
            Refusal::TypeMismatch => {
                self.link.describe(channel, &sender);
                RefusalReason::TypeMismatch { sender, receiver: text.to_owned() }
            }
            Refusal::KindMismatch => RefusalReason::KindMismatch,
            Refusal::NotAccepted => RefusalReason::NotAccepted,
        };
        self.fail(channel, Failure::Refused(reason));
        self.take_acknowledged();
        let Some(slot) = self.senders.slots.get_mut(channel) else { return };
        let accepted = sent + u64::from(slot.ring.messages());
        if accepted > slot.shared.acked() {
            let lost = LostChannel::refused(&slot.shared, &self.shared.peer.name, accepted);
            self.acceptor.lost(vec![lost]);
        }
    }

    fn fail(&mut self, channel: u32, failure: Failure) {
        if let Some(slot) = self.senders.slots.get_mut(channel) {
            slot.discard = true;
            slot.shared.fail(failure);
        }
    }
}
