//! The events of a link that are not for a receiver's inbox: channels that begin and end.

use super::backs;
use super::channels::Channels;
use super::ending::LostChannel;
use super::inbox::{Early, Outcome, RxShared};
use super::mail::{Command, LinkShared};
use super::reading::RxSlot;
use super::staging::Failure;
use super::taking::RxEnd;
use crate::error::{ChannelRefused, LinkError, RefusalReason};
use crate::proto::Time;
use crate::proto::link::{Event, Link};
use crate::proto::packet::{ChannelKind, Lane, Opening, Refusal};
use std::sync::Arc;

/// A channel that a peer opened.
pub struct Opened {
    pub(crate) receiver: RxEnd,
    pub(crate) kind: ChannelKind,
    pub(crate) lane: Lane,
    pub(crate) fingerprint: u64,
    pub(crate) since: Time,
    /// Whether a warning was given that nobody accepts the channel.
    pub(crate) spoken_of: bool,
}

/// The node's part that takes the channels opened by peers.
pub(crate) trait Acceptor: Send + Sync {
    /// Takes a channel that a peer opened; the peer may open `left` more. `Err` gives the channel
    /// back to be refused.
    fn opened(&self, opened: Opened, left: u64) -> Result<(), Box<Opened>>;

    /// Notes the sender's type of a channel that was refused for its type.
    fn described(&self, link: &Arc<LinkShared>, channel: u32, text: &str);

    /// Notes that the peer refused this channel; messages accepted on it may not have arrived.
    fn refused(&self, channel: LostChannel);

    /// Notes that an open of ours waits: the peer has no room for one more channel.
    fn open_waits(&self);

    /// Warns people.
    fn warn(&self, what: &str);

    /// Notes that the session has lost its connection. Its end would free `bytes`.
    fn cut_off(&self, link: &Arc<LinkShared>, error: &LinkError, bytes: u64);

    /// Notes that the session goes on, on connection `attempt`.
    fn resumed(&self, link: &Arc<LinkShared>, attempt: u32);

    /// Notes that the session ended; messages accepted on these channels may not have arrived.
    fn ended(&self, link: &Arc<LinkShared>, error: &LinkError, lost: Vec<LostChannel>);
}

impl Channels {
    /// Handles an event that is not for a receiver's inbox.
    pub(super) fn event(&mut self, event: Event<'_>, link: &mut Link, now: Time) {
        match event {
            Event::Opened(opening) => self.opened(&opening, link, now),
            Event::Settled { channel, total, last } => self.senders.settled(channel, total, last),
            Event::Consumed { channel, total } => {
                if let Some(slot) = self.senders.slots.get(channel) {
                    slot.shared.set_consumed(total);
                }
            }
            Event::Ended { channel } => {
                let Some(slot) = self.receivers.get_mut(channel) else { return };
                let landed = slot.landing.is_some();
                slot.end(Outcome::Done);
                if landed {
                    self.receivers.remove(channel);
                    link.finished(channel);
                }
            }
            Event::Terminated { channel } => {
                // First the acknowledgements: the same packet may acknowledge messages that would
                // otherwise be reported as unknown.
                self.take_acknowledged(link);
                match self.senders.slots.get_mut(channel) {
                    // The receiver may still settle the messages that it has: its last report
                    // follows.
                    Some(slot) if slot.keeping.is_some() => slot.discard = true,
                    Some(slot) if !slot.shared.end_acked() => {
                        self.fail(channel, Failure::Terminated);
                    }
                    _ => {}
                }
            }
            Event::Refused { channel, refusal, text, sent } => {
                self.refused(channel, refusal, text, sent, link);
            }
            Event::Described { channel, text } => {
                self.acceptor.described(&self.shared, channel, text);
            }
            Event::Wait { number, chain } => self.peer_waits(number, chain, link, now),
            _ => {}
        }
    }

    fn opened(&mut self, opening: &Opening<'_>, link: &mut Link, since: Time) {
        let Opening { channel, lane, kind, fingerprint, stream, backlog, name } = *opening;
        if let Some((of, back)) = self.senders.backs.take(name) {
            if back.kind == kind && back.fingerprint == fingerprint && stream.is_none() {
                back.shared.set_backlog(backlog);
                return self.opened_back(channel, &back.shared, link);
            }
            // It ends with the session.
            self.senders.backs.insert(of, back);
            return self.shared.command(Command::Corrupt { id: channel });
        }
        let shared = RxShared::new(name, channel);
        shared.set_backlog(backlog);
        shared.set_report_step(link.report_step(channel));
        self.receivers.insert(channel, RxSlot::new(Arc::clone(&shared)));
        let receiver = RxEnd::new(shared, Arc::clone(&self.shared), stream);
        let opened = Opened { receiver, kind, lane, fingerprint, since, spoken_of: false };
        let left = link.opens_left();
        if let Err(refused) = self.acceptor.opened(opened, left) {
            refused.receiver.disarm();
            self.receivers.remove(channel);
            link.refuse(channel, Refusal::NotAccepted, "");
        }
    }

    /// Gives the way back of a duplex, which the peer has opened, to the receiver that waits for
    /// it.
    fn opened_back(&mut self, channel: u32, shared: &Arc<RxShared>, link: &mut Link) {
        shared.set_report_step(link.report_step(channel));
        let Some(Early { stopped, landing }) = shared.begin(channel) else {
            return link.terminate(channel);
        };
        self.receivers.insert(channel, RxSlot::new(Arc::clone(shared)));
        if stopped {
            link.stop(channel);
        }
        if let Some(landing) = landing {
            self.shared.command(Command::Land { id: channel, landing, taken: Vec::new() });
        }
    }

    fn refused(&mut self, channel: u32, refusal: Refusal, text: &str, sent: u64, link: &mut Link) {
        if refusal == Refusal::NotAccepted && self.senders.give_back(channel) {
            return;
        }
        let back = self.senders.backs.remove(channel);
        // A channel that is discarded was refused before: the answer is on its way.
        let slot = self.senders.slots.get(channel).filter(|slot| !slot.discard);
        let staged = slot.map_or(0, |slot| u64::from(slot.ring.messages()));
        // A duplex whose own channel has ended still waits for the way back.
        let shared = slot.map(|slot| &slot.shared).or(back.as_ref().map(|back| &back.tx));
        let Some(shared) = shared.map(Arc::clone) else { return };
        let sender = shared.description.clone();
        let reason = match refusal {
            Refusal::TypeMismatch => {
                link.describe(channel, &sender);
                RefusalReason::TypeMismatch { sender, receiver: text.to_owned() }
            }
            Refusal::KindMismatch => RefusalReason::KindMismatch,
            Refusal::NotAccepted => RefusalReason::NotAccepted,
        };
        let (name, peer) = (shared.name.clone(), self.shared.peer.name.clone());
        let refused = ChannelRefused { channel: name, peer, reason: reason.clone() };
        let refused = Arc::new(refused);
        if let Some(back) = back {
            backs::end(&back.shared, Outcome::Refused(Arc::clone(&refused)));
            shared.fail(Failure::Refused(reason.clone()));
        }
        self.fail(channel, Failure::Refused(reason));
        self.take_acknowledged(link);
        // Messages in the peer's inbox are lost as well, since no receiver takes them. The link's
        // machine has no count of a channel whose end was acknowledged.
        let accepted = (sent + staged).max(shared.acked());
        if accepted > 0 {
            self.acceptor.refused(LostChannel::refused(&shared, accepted, refused));
        }
    }

    fn fail(&mut self, channel: u32, failure: Failure) {
        if let Some(slot) = self.senders.slots.get_mut(channel) {
            slot.discard = true;
            slot.shared.fail(failure);
            // A stream that failed is not opened again.
            if let Some(keeping) = slot.keeping.take() {
                keeping.end();
            }
        }
    }
}
