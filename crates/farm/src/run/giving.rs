//! Way of tasks from their source to the workers.

use std::task::{Context, Poll};

use super::Run;
use crate::error::RunError;
use crate::proto::wire;
use crate::tasks::{Input, Output, Sink, Source};

/// Bytes from which an assignment of measured grain takes no further task.
const ASSIGNMENT_BYTES: usize = 128 << 10;

/// Most results from the journal in a turn: the farmer must hear its nodes in between.
const RECALLS: u32 = 256;

/// New tasks for a worker.
struct Written {
    first: u64,
    count: u32,
    /// Number of times that the farmer above has given them out before.
    attempt: u32,
    /// The assignment.
    message: Vec<u8>,
}

impl<O: Output, T: Source<Task: Input>, S: Sink<O>> Run<'_, O, T, S> {
    pub(super) fn give_out(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        for (first, count) in self.account.ledger.give_up(self.wanted) {
            self.wanted = self.wanted.saturating_sub(count.into());
            self.account.sink.give_back(first, count);
        }
        let ended = self.account.ledger.has_ended();
        self.account.ledger.handle_source(false, ended);
        while let Some(worker) = self.account.ledger.poll_free() {
            let link = &mut self.workers.links[worker];
            let now_ns = self.account.now_ns;
            let sent = match self.account.ledger.reissue(now_ns) {
                Some((first, count, message)) => {
                    (first, count, link.send(message, &self.workers.sharing, context))
                }
                None => {
                    let Written { first, count, attempt, message } =
                        self.write_assignment(worker, context)?;
                    if count == 0 {
                        continue;
                    }
                    let link = &mut self.workers.links[worker];
                    let ledger = &mut self.account.ledger;
                    let message = ledger.assign(first, count, attempt, message, now_ns);
                    (first, count, link.send(message, &self.workers.sharing, context))
                }
            };
            self.note_sent(worker, sent)?;
        }
        Ok(())
    }

    /// Writes the next tasks: as many as the grain, or as there are.
    fn write_assignment(
        &mut self,
        worker: usize,
        context: &mut Context<'_>,
    ) -> Result<Written, RunError> {
        let account = &mut self.account;
        if let Some(result) = self.recalled.take() {
            account.recall(result)?;
        }
        let mut recalls_left = RECALLS;
        let grain = account.ledger.grain(worker);
        let taken = self.workers.links[worker].peer().message_bytes_max();
        let taken = usize::try_from(taken).unwrap_or(usize::MAX);
        let bytes_max = match account.workers[worker].pace.is_measured() {
            true => taken.min(ASSIGNMENT_BYTES),
            // Each of a sub-farmer's tasks fits by itself, as its farmer sent it.
            false if self.tasks.numbered().is_some() => taken,
            false => usize::MAX,
        };
        let mut message = account.ledger.buffer();
        wire::begin_assignment(&mut message, account.plan.run, account.plan.function);
        let numbered = self.carried_numbers.take().or_else(|| self.tasks.numbered());
        let (mut first, attempt) = numbered.unwrap_or_else(|| (account.ledger.assigned(), 0));
        let mut count = u32::from(!self.carried.is_empty());
        message.append(&mut self.carried);
        while count < grain {
            let next = (first + u64::from(count), attempt);
            if count > 0 && self.tasks.numbered().is_some_and(|numbers| numbers != next) {
                break;
            }
            if count == 0 && (recalls_left == 0 || !account.has_room()) {
                if recalls_left == 0 {
                    context.waker().wake_by_ref();
                }
                account.ledger.handle_source(true, false);
                break;
            }
            let task = match self.tasks.poll_next(context) {
                Poll::Ready(Some(task)) => task,
                Poll::Ready(None) => {
                    account.ledger.handle_source(false, true);
                    break;
                }
                Poll::Pending => {
                    account.ledger.handle_source(true, false);
                    break;
                }
            };
            let at = message.len();
            let put = task.put(&mut message);
            put.map_err(|source| RunError::Input { index: next.0, source })?;
            if let Some(journal) = &mut account.journal {
                let read = |bytes: &[u8]| Some((O::read(bytes).ok()?, bytes.len()));
                if let Some(result) = journal.meet(&message[at + wire::LENGTH_BYTES..], read)? {
                    message.truncate(at);
                    if count > 0 {
                        self.recalled = Some(result);
                        break;
                    }
                    account.recall(result)?;
                    first = account.ledger.assigned();
                    recalls_left -= 1;
                    continue;
                }
            }
            if message.len() > bytes_max && count > 0 {
                self.carried = message.split_off(at);
                self.carried_numbers = numbered.map(|_| next);
                break;
            }
            count += 1;
        }
        account.left = self.tasks.left();
        wire::number_assignment(&mut message, first, count);
        wire::set_attempt(&mut message, attempt);
        if account.plan.reduces {
            wire::mark_reducible(&mut message);
        }
        Ok(Written { first, count, attempt, message })
    }
}
