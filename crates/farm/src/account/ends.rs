//! Tasks that end without a result, and workers that are lost.

use chunkcomm::Loss;

use super::{Account, Refused};
use crate::error::{RunError, TaskError, WorkerEnd};
use crate::proto::ledger::{Accepted, SetAside};
use crate::settings::nanos;
use crate::tasks::{Output, Sink};

impl<O: Output, S: Sink<O>> Account<'_, O, S> {
    /// Takes the word that a task has not ended in time.
    pub(super) fn take_late(&mut self, worker: usize, index: u64) -> Result<(), Refused> {
        let limit = self.plan.ways.terms.limit.ok_or(Refused::Worker)?;
        let (after, after_ns) = (limit.after(), nanos(limit.after()));
        let accepted = self.ledger.handle_answer(worker, index, 1, after_ns, self.now_ns)?;
        self.underway.handle_ended(index..index + 1);
        self.record(worker, (index, 1), after_ns);
        let stats = &mut self.workers[worker].stats;
        stats.tasks += 1;
        stats.timed_out += 1;
        stats.busy += after;
        if accepted != Accepted::All {
            return Ok(());
        }
        if let Some(journal) = &mut self.journal {
            journal.skip(index);
        }
        let (function, worker) = (self.function.clone(), self.workers[worker].stats.worker.clone());
        let error = TaskError::TimedOut { index, function, worker, after };
        self.hand_on(index, Err(error), 0).map_err(Refused::Run)
    }

    /// Takes the word of a sub-farmer that workers below it died of a task.
    pub(super) fn take_aside(
        &mut self,
        worker: usize,
        task: u64,
        deaths: u32,
        loss: Loss,
    ) -> Result<(), Refused> {
        let Some(aside) = self.ledger.handle_aside(worker, task, deaths)? else { return Ok(()) };
        self.set_aside(aside, worker, WorkerEnd::Below(loss).into()).map_err(Refused::Run)
    }

    /// Notes the loss of a worker, and opens its tasks for others. `blame`: one of them may be the
    /// cause.
    pub(crate) fn lose(&mut self, worker: usize, loss: &Loss, blame: bool) -> Result<(), RunError> {
        self.speed -= std::mem::take(&mut self.workers[worker].speed);
        self.workers[worker].waiting.note(0, 0, self.now_ns);
        self.underway.handle_lost(worker);
        self.once.handle_lost(worker);
        for aside in self.ledger.handle_lost(worker, blame) {
            self.set_aside(aside, worker, loss.clone())?;
        }
        Ok(())
    }

    fn set_aside(&mut self, aside: SetAside, worker: usize, loss: Loss) -> Result<(), RunError> {
        let SetAside { task: index, deaths, input } = aside;
        self.underway.handle_ended(index..index + 1);
        if let Some(journal) = &mut self.journal {
            journal.skip(index);
        }
        let stats = &mut self.workers[worker].stats;
        let (function, worker) = (self.function.clone(), stats.worker.clone());
        let error = match (loss.cause(), self.plan.ways.terms.limit) {
            // The task stopped the processes of its workers.
            (Some(WorkerEnd::Silent(_)), Some(limit)) => {
                stats.timed_out += 1;
                TaskError::TimedOut { index, function, worker, after: limit.after() }
            }
            _ => TaskError::SetAside { index, function, deaths, worker, loss, input },
        };
        self.hand_on(index, Err(error), 0)
    }
}
