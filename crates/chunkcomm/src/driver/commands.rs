//! Commands that the ends of channels and the node send to a driver.

use super::backs::Back;
use super::channels::Channels;
use super::keeping::Keeping;
use super::landing::Landing;
use super::link::Driver;
use super::mail::Command;
use super::staging::Failure;
use super::taking::RxEnd;
use super::writing::TxSlot;
use crate::error::{LinkCause, LinkError};
use crate::proto::Time;
use crate::proto::link::Link;
use bytes::Bytes;
use std::sync::Arc;

impl Driver {
    /// Takes the notices and commands of the channels' ends.
    #[inline]
    pub(super) fn handle_mail(&mut self, now: Time) -> Result<(), LinkError> {
        if !self.channels.shared.take_mail(&mut self.taken) {
            return Ok(());
        }
        if !self.taken.commands.is_empty() {
            self.handle_commands(now)?;
        }
        for notice in self.taken.staged.drain(..) {
            self.endpoint.link.woken_for(notice.id, notice.at, notice.bytes);
        }
        Ok(())
    }

    #[inline(never)]
    fn handle_commands(&mut self, now: Time) -> Result<(), LinkError> {
        let mut taken = std::mem::take(&mut self.taken.commands);
        let mut commands = taken.drain(..);
        let failed = commands.try_for_each(|command| self.command(command, now));
        if let Err(error) = failed {
            // Whoever sent the rest learns why the session ended.
            self.taken.commands.extend(commands);
            return Err(error);
        }
        drop(commands);
        self.taken.commands = taken;
        Ok(())
    }

    fn command(&mut self, command: Command, now: Time) -> Result<(), LinkError> {
        match command {
            Command::Corrupt { id } => {
                return Err(self.error(LinkCause::CorruptRun { channel: id }));
            }
            Command::Close => self.close(now),
            Command::Abort(error) => return Err(error),
            Command::Explain { answer } => {
                let _ = answer.send(Box::new(self.report(now)));
            }
            Command::Offered { word, answer } => {
                let _ = answer.send(self.offered(&word, now));
            }
            Command::Adopt { attempt, received, transport } => {
                let adopted = self.endpoint.adopt(attempt, received, now);
                self.adopted(adopted, transport)?;
            }
            Command::Greeted { attempt, incarnation, answer } => {
                let greeted = self.endpoint.greeted(attempt, incarnation, now);
                let _ = answer.send(greeted.map_err(|end| self.error_of(end))?);
            }
            Command::Answered { attempt, answer, transport } => {
                let answered = self.endpoint.answered(attempt, &answer, now);
                self.adopted(answered, transport)?;
            }
            Command::DialFailed { attempt, why } => {
                if self.endpoint.dial_failed(attempt, now) {
                    self.channels.shared.set_trouble(why);
                }
            }
            other => self.channels.command(other, &mut self.endpoint.link, now),
        }
        Ok(())
    }

    fn close(&mut self, now: Time) {
        if !self.endpoint.is_closing() {
            let error = self.error(LinkCause::Closed);
            for slot in self.channels.senders.slots.values() {
                slot.shared.refuse_more(Failure::Lost(error.clone()));
            }
            self.endpoint.close(now);
        }
    }
}

impl Channels {
    fn command(&mut self, command: Command, link: &mut Link, now: Time) {
        match command {
            Command::Open { id, spec, tx, ring, back } => {
                if let Some(shared) = back {
                    let (kind, fingerprint) = (spec.kind, spec.fingerprint);
                    let back = Back { shared, tx: Arc::clone(&tx), kind, fingerprint };
                    self.senders.backs.insert(id, back);
                }
                let stream = tx.settling.stream().zip(spec.stream);
                let keeping = stream.map(|(kept, it)| Keeping::new(Arc::clone(kept), it));
                let given = link.open(*spec, now);
                assert_eq!(given, id, "channels are numbered where they are posted");
                if keeping.is_some() {
                    // It may have been staged for an earlier channel.
                    tx.set_queued();
                    link.staged(id, now);
                    if let Some(messages) = tx.ended() {
                        link.end(id, messages, now);
                    }
                }
                self.senders.slots.insert(id, TxSlot { shared: tx, ring, keeping, discard: false });
                self.note_open(id, link, now);
            }
            Command::Urgent { id, until, at } => link.urgent(id, until, at),
            Command::NoRoom { id, until, at } => link.no_room(id, until, at),
            Command::Flush { id, until, at, sync } => link.flush(id, until, at, sync),
            Command::End { id, messages, at } => link.end(id, messages, at),
            Command::Consumed { id, bytes } => {
                link.consumed(id, bytes);
                if let Some(slot) = self.receivers.get(id) {
                    slot.shared.set_report_step(link.report_step(id));
                }
            }
            Command::ConsumedOfBacklog { id, bytes } => link.consumed_of_backlog(id, bytes),
            Command::Settled { id } => {
                if let Some(slot) = self.receivers.get(id) {
                    self.senders.settling.insert(id, Arc::clone(&slot.shared));
                    link.settle(id, slot.shared.settled(), now);
                }
            }
            Command::LargeDemanded { id } => link.demand_large(id),
            Command::LargeTaken { id } => link.large_taken(id),
            Command::Finished { id } => {
                self.settled_last(id, link, now);
                self.receivers.remove(id);
                link.finished(id);
            }
            Command::Stop { id } => link.stop(id),
            Command::Terminate { id } => {
                self.settled_last(id, link, now);
                self.receivers.remove(id);
                link.terminate(id);
            }
            Command::Refuse { id, refusal, text } => {
                self.receivers.remove(id);
                link.refuse(id, refusal, &text);
            }
            Command::Land { id, landing, taken } => self.land(id, landing, &taken, link, now),
            // The driver's own.
            _ => {}
        }
    }

    /// Looks for the last time at what a receiver has settled, which is gone.
    fn settled_last(&mut self, id: u32, link: &mut Link, now: Time) {
        if let Some(shared) = self.senders.settling.remove(id) {
            link.settle(id, shared.settled(), now);
        }
    }

    fn land(
        &mut self,
        id: u32,
        landing: Box<dyn Landing>,
        taken: &[Bytes],
        link: &mut Link,
        now: Time,
    ) {
        self.senders.settling.remove(id);
        let Some(slot) = self.receivers.get_mut(id) else { return };
        slot.landing = Some(landing);
        // A large message may have waited for a receiver that waits.
        link.demand_large(id);
        let mut fits = taken.iter().all(|bytes| slot.put_taken(bytes));
        let mut rest = RxEnd::new(Arc::clone(&slot.shared), Arc::clone(&self.shared), None);
        while let Some(fit) = rest.take_with(|bytes| slot.put_taken(bytes)) {
            fits &= fit;
        }
        let outcome = slot.shared.with_queue(|queue| queue.outcome());
        rest.tell_consumed();
        rest.disarm();
        if fits {
            link.settle(id, link.received_messages(id), now);
        }
        if !fits {
            slot.landing_full();
            self.receivers.remove(id);
            link.terminate(id);
        } else if let Some(outcome) = outcome {
            slot.end(outcome);
            self.receivers.remove(id);
            link.finished(id);
        }
    }
}
