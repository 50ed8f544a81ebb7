//! Commands that the ends of channels send to a driver.

use super::backs::Back;
use super::keeping::Keeping;
use super::link::{Closing, Driver};
use super::mail::Command;
use super::staging::Failure;
use super::taking::RxEnd;
use super::writing::TxSlot;
use crate::error::{LinkCause, LinkError};
use crate::proto::Time;
use std::sync::Arc;

impl Driver {
    /// Takes the notices and commands of the channels' ends.
    #[inline]
    pub(super) fn handle_mail(&mut self, now: Time) -> Result<(), LinkError> {
        if !self.shared.take_mail(&mut self.taken) {
            return Ok(());
        }
        if !self.taken.commands.is_empty() {
            self.handle_commands(now)?;
        }
        for notice in self.taken.staged.drain(..) {
            self.link.woken_for(notice.id, notice.at, notice.bytes);
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
            Command::Open { id, spec, tx, ring, back } => {
                if let Some(shared) = back {
                    let (kind, fingerprint) = (spec.kind, spec.fingerprint);
                    let back = Back { shared, tx: Arc::clone(&tx), kind, fingerprint };
                    self.senders.backs.insert(id, back);
                }
                let stream = tx.settling.stream().zip(spec.stream);
                let keeping = stream.map(|(kept, it)| Keeping::new(Arc::clone(kept), it));
                let given = self.link.open(*spec, now);
                assert_eq!(given, id, "channels are numbered where they are posted");
                if keeping.is_some() {
                    // It may have been staged for an earlier channel.
                    tx.set_queued();
                    self.link.staged(id, now);
                    if let Some(messages) = tx.ended() {
                        self.link.end(id, messages, now);
                    }
                }
                self.senders.slots.insert(id, TxSlot { shared: tx, ring, keeping, discard: false });
            }
            Command::Urgent { id, until, at } => self.link.urgent(id, until, at),
            Command::NoRoom { id, until, at } => self.link.no_room(id, until, at),
            Command::Flush { id, until, at, sync } => self.link.flush(id, until, at, sync),
            Command::End { id, messages, at } => self.link.end(id, messages, at),
            Command::Consumed { id, bytes } => {
                self.link.consumed(id, bytes);
                if let Some(slot) = self.receivers.get(id) {
                    slot.shared.set_report_step(self.link.report_step(id));
                }
            }
            Command::Settled { id } => {
                if let Some(slot) = self.receivers.get(id) {
                    self.link.settle(id, slot.shared.take_settled(), now);
                }
            }
            Command::LargeDemanded { id } => self.link.demand_large(id),
            Command::LargeTaken { id } => self.link.large_taken(id),
            Command::Finished { id } => {
                self.receivers.remove(id);
                self.link.finished(id);
            }
            Command::Stop { id } => self.link.stop(id),
            Command::Terminate { id } => {
                self.receivers.remove(id);
                self.link.terminate(id);
            }
            Command::Refuse { id, refusal, text } => {
                self.receivers.remove(id);
                self.link.refuse(id, refusal, &text);
            }
            Command::Land { id, landing, taken } => self.land(id, landing, &taken, now),
            Command::Corrupt { id } => {
                return Err(self.error(LinkCause::CorruptRun { channel: id }));
            }
            Command::Close => self.close(now),
            Command::Abort(error) => return Err(error),
            Command::Explain { answer } => {
                let _ = answer.send(Box::new(self.report(now)));
            }
            Command::Offer { attempt, answer } => {
                let offer = self.offer(attempt, now);
                let _ = answer.send((offer, self.link.received()));
            }
            Command::Adopt { attempt, received, transport } => {
                self.adopt(attempt, received, transport, now)?;
            }
        }
        Ok(())
    }

    pub(super) fn land(
        &mut self,
        id: u32,
        landing: Box<dyn crate::driver::landing::Landing>,
        taken: &[bytes::Bytes],
        now: Time,
    ) {
        let Some(slot) = self.receivers.get_mut(id) else { return };
        slot.landing = Some(landing);
        // A large message may have waited for a receiver that waits.
        self.link.demand_large(id);
        let mut fits = taken.iter().all(|bytes| slot.put_taken(bytes));
        let mut rest = RxEnd::new(Arc::clone(&slot.shared), Arc::clone(&self.shared), None);
        while let Some(fit) = rest.take_with(|bytes| slot.put_taken(bytes)) {
            fits &= fit;
        }
        let outcome = slot.shared.with_queue(|queue| queue.outcome());
        rest.disarm();
        if fits {
            self.link.settle(id, self.link.received_messages(id), now);
        }
        if !fits {
            slot.landing_full();
            self.receivers.remove(id);
            self.link.terminate(id);
        } else if let Some(outcome) = outcome {
            slot.end(outcome);
            self.receivers.remove(id);
            self.link.finished(id);
        }
    }

    pub(super) fn close(&mut self, now: Time) {
        if !matches!(self.closing, Closing::No) {
            return;
        }
        self.closing = Closing::Draining;
        let error = self.error(LinkCause::Closed);
        for (id, slot) in self.senders.slots.iter_mut() {
            slot.shared.refuse_more(Failure::Lost(error.clone()));
            self.link.end_when_drained(id, now);
        }
        self.link.close();
    }
}
