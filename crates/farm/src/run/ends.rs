//! Ends of workers: their tasks go to others, and a run without any worker ends.

use std::task::Context;
use std::task::Poll;

use chunkcomm::{Loss, SendError};

use super::{Run, Timer};
use crate::error::{RunError, WorkerEnd, is_a_cause, is_of_runtime};
use crate::link::Link;
use crate::name::WorkerName;
use crate::settings::times::CAUSE_WAIT;
use crate::tasks::{Input, Output, Sink, Source};

impl<O: Output, T: Source<Task: Input>, S: Sink<O>> Run<'_, O, T, S> {
    /// Ends worker processes whose task has not ended in time.
    pub(super) fn retire_late(&mut self) -> Result<(), RunError> {
        while let Some((worker, task)) = self.account.late.pop() {
            if self.workers.links[worker].name.pid.is_some() {
                self.bury(worker, &WorkerEnd::Stuck { task }.into())?;
            }
        }
        Ok(())
    }

    /// Takes the ends of workers.
    pub(super) fn note_ends(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        while let Poll::Ready((name, loss)) = self.workers.crew.poll_ended(context) {
            let was_ready = self.workers.links.iter().any(|link| link.name == name);
            self.workers.crew.replace(&name, was_ready);
            let is_it = |link: &Link| link.name == name && link.lost.is_none();
            if let Some(worker) = self.workers.links.iter().position(is_it) {
                self.bury(worker, &loss)?;
            }
        }
        if !self.is_in_doubt() {
            self.cause_wait = Timer::default();
        } else if self.cause_wait.is_over(CAUSE_WAIT, context) {
            for worker in 0..self.workers.links.len() {
                if let Some(loss) = self.workers.links[worker].broken.take() {
                    self.bury(worker, &loss)?;
                }
            }
        }
        Ok(())
    }

    /// Whether the cause of a broken link is not known.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.workers.links.iter().any(|link| link.broken.is_some())
    }

    /// Notes that a worker is lost. After a broken link the run still waits for the cause: it comes
    /// soon, and is the better report.
    pub(super) fn lose(&mut self, worker: usize, loss: Loss) -> Result<(), RunError> {
        if is_of_runtime(&loss) {
            return Err(self.end_farm(self.workers.links[worker].name.clone(), loss));
        }
        let link = &mut self.workers.links[worker];
        let has_ended = matches!(loss.cause(), Some(SendError::Terminated(_)));
        let closed = has_ended || matches!(loss.cause(), Some(WorkerEnd::Closed));
        let left = closed && link.name.member.is_some();
        if is_a_cause(&loss) || left {
            return self.bury(worker, &loss);
        }
        link.give_up_tasks();
        link.broken = Some(loss);
        self.account.ledger.handle_stalled(worker);
        Ok(())
    }

    /// Opens a lost worker's tasks for others. A process that has not ended is killed: while its
    /// answers wait, it may not see that its tasks have ended.
    pub(super) fn bury(&mut self, worker: usize, loss: &Loss) -> Result<(), RunError> {
        let link = &mut self.workers.links[worker];
        link.broken = None;
        link.give_up_tasks();
        self.account.workers[worker].stats.lost = Some(loss.clone());
        if link.lost.replace(loss.clone()).is_some() {
            return Ok(());
        }
        if matches!(loss.cause(), Some(WorkerEnd::Silent(_))) {
            link.give_up_answers();
        }
        self.buried = Some(worker);
        if !matches!(loss.cause(), Some(WorkerEnd::Exited(_))) {
            self.workers.crew.kill(&self.workers.links[worker].name);
        }
        let link = &self.workers.links[worker];
        self.workers.crew.note_lost(link.name.index, link.arrival);
        // A worker that left, or was ended, did not die of its tasks.
        let blame = !matches!(loss.cause(), Some(WorkerEnd::Closed | WorkerEnd::Stuck { .. }));
        if blame {
            self.work_no_more();
        }
        self.account.lose(worker, loss, blame)
    }

    /// Ends the run when it has no worker, and none is to come or has come in the time to start.
    pub(super) fn check_for_workers(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        if self.account.ledger.present() > 0 {
            self.alone = Timer::default();
            return Ok(());
        }
        let start = self.account.plan.ways.start;
        if self.workers.expects(&self.home) && !self.alone.is_over(start, context) {
            return Ok(());
        }
        let (unanswered, left) = (self.account.ledger.unanswered(), self.left());
        let links = &self.workers.links;
        let is_there =
            |link: &&Link| link.lost.is_none() && !self.workers.crew.is_reserve(&link.name);
        let there = links.iter().filter(is_there).count();
        if there > 0 {
            return Err(RunError::NotChosen { there, unanswered, left });
        }
        let of_this_run = self.buried.map(|worker| &links[worker]).into_iter();
        let lost = of_this_run
            .chain(links.iter().rev())
            .find_map(|link| link.lost.clone().map(|loss| (link.name.clone(), loss)));
        let (worker, loss) = lost.expect("a farm begins with a worker");
        Err(self.end_farm(worker, loss))
    }

    /// Ends the farm: no worker is left after this one.
    fn end_farm(&mut self, worker: WorkerName, loss: Loss) -> RunError {
        let (unanswered, left) = (self.account.ledger.unanswered(), self.left());
        let unreplaced = self.workers.crew.unreplaced().cloned().map(Box::new);
        let error = RunError::Lost { worker, unanswered, left, loss, unreplaced };
        self.workers.crew.dismiss();
        self.workers.lost = Some(error.clone());
        error
    }
}
