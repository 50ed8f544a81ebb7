//! One run: tasks go out and results come in, as one hand-written future.
//!
//! A turn takes every answer that is there, from all workers, before it gives out
//! new assignments, so that the channels below gather both. On this path a task costs
//! no allocation and no lock, beyond what the values themselves need.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use chunkcomm::SendError;
use chunkcomm::codec::decode;
use chunkcomm_cluster::registry::Function;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::crew::Crew;
use crate::error::{Loss, RunError};
use crate::link::Link;
use crate::proto::depth::MeasuredDepth;
use crate::proto::order::{InOrder, NotExpected};
use crate::proto::schedule::Schedule;
use crate::proto::wire::{self, Answer};
use crate::stats::WorkerStats;

/// The order in which results are handed on; each is accepted once in any case.
pub(crate) enum Delivery<O> {
    InOrder(InOrder<O>),
    AsCompleted(InOrder<()>),
}

impl<O> Delivery<O> {
    pub(crate) fn in_order() -> Delivery<O> {
        Delivery::InOrder(InOrder::new())
    }

    pub(crate) fn as_completed() -> Delivery<O> {
        Delivery::AsCompleted(InOrder::new())
    }

    #[inline]
    fn accept(
        &mut self,
        index: u64,
        assigned: u64,
        result: O,
        each: &mut impl FnMut(u64, O),
    ) -> Result<(), NotExpected> {
        match self {
            Delivery::InOrder(order) => {
                order.accept(index, assigned, result)?;
                while let Some((index, result)) = order.pop() {
                    each(index, result);
                }
            }
            Delivery::AsCompleted(order) => {
                order.accept(index, assigned, ())?;
                while order.pop().is_some() {}
                each(index, result);
            }
        }
        Ok(())
    }
}

/// Settings of a run, fixed when it begins.
pub(crate) struct Plan {
    /// The run's number, carried by each of its messages.
    pub(crate) run: u32,
    /// The function's index in the farmer's Setup.
    pub(crate) function: u32,
    pub(crate) grain: u32,
    pub(crate) schedule: Schedule,
    /// The measured depth of each worker; `None` where the depth is fixed.
    pub(crate) depths: Option<Vec<MeasuredDepth>>,
}

/// A run in progress.
pub(crate) struct Run<'a, I, O, T, F> {
    links: &'a mut [Link],
    crew: &'a mut Crew,
    tasks: T,
    /// Buffer of the current assignment, kept for its memory.
    assignment: Vec<u8>,
    account: Account<'a, I, O, F>,
}

/// Tasks and results of a run, and the statistics of its workers.
struct Account<'a, I, O, F> {
    plan: Plan,
    function: &'a Function<I, O>,
    each: F,
    delivery: Delivery<O>,
    workers: Vec<WorkerStats>,
}

impl<'a, I, O, T, F> Run<'a, I, O, T, F>
where
    I: Serialize,
    O: DeserializeOwned,
    T: Iterator<Item = I>,
    F: FnMut(u64, O),
{
    pub(crate) fn new(
        links: &'a mut [Link],
        crew: &'a mut Crew,
        plan: Plan,
        function: &'a Function<I, O>,
        tasks: T,
        each: F,
        delivery: Delivery<O>,
    ) -> Self {
        let nothing = |link: &Link| WorkerStats {
            worker: link.name.clone(),
            tasks: 0,
            assignments: 0,
            busy: Duration::ZERO,
        };
        let workers = links.iter().map(nothing).collect();
        let account = Account { plan, function, each, delivery, workers };
        Run { links, crew, tasks, assignment: Vec::new(), account }
    }

    /// Drives the run to its end; returns the statistics of each worker.
    pub(crate) async fn drive(mut self) -> Result<Vec<WorkerStats>, RunError> {
        poll_fn(|context| self.poll(context)).await?;
        Ok(self.account.workers)
    }

    /// Runs one turn. Every link and the crew were polled until they were pending, so
    /// the next event wakes the context.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), RunError>> {
        for worker in 0..self.links.len() {
            self.take_answers(worker, context)?;
            self.send_stalled(worker, context)?;
        }
        self.give_out(context)?;
        if self.account.plan.schedule.is_done() {
            return Poll::Ready(Ok(()));
        }
        let ended = self.crew.poll_ended(context);
        ended.map(|(worker, loss)| Err(self.account.lost(worker.index, loss)))
    }

    fn take_answers(&mut self, worker: usize, context: &mut Context<'_>) -> Result<(), RunError> {
        let (link, account) = (&mut self.links[worker], &mut self.account);
        loop {
            match link.poll_answer(context, |bytes| account.take_answer(worker, bytes)) {
                Poll::Ready(Ok(taken)) => taken?,
                Poll::Ready(Err(loss)) => return Err(account.lost(worker, loss)),
                Poll::Pending => return Ok(()),
            }
        }
    }

    fn send_stalled(&mut self, worker: usize, context: &mut Context<'_>) -> Result<(), RunError> {
        match self.links[worker].poll_stalled(context) {
            Poll::Ready(Ok(())) => self.account.plan.schedule.handle_sent(worker),
            // The assignment was not too large, or it would not have waited.
            Poll::Ready(Err(error)) => return Err(self.account.lost(worker, Loss::Send(error))),
            Poll::Pending => {}
        }
        Ok(())
    }

    fn give_out(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        while let Some(worker) = self.account.plan.schedule.poll_free() {
            let count = self.write_assignment()?;
            let plan = &mut self.account.plan;
            if count == 0 {
                plan.schedule.handle_tasks_end();
                break;
            }
            let first = plan.schedule.assign(count).start;
            match self.links[worker].send(&self.assignment, context) {
                Poll::Ready(Ok(())) => {}
                Poll::Pending => plan.schedule.handle_stalled(worker),
                Poll::Ready(Err(error)) => {
                    return Err(self.account.not_sent(worker, first, count, error));
                }
            }
        }
        Ok(())
    }

    /// Writes the next tasks, as many as the grain or as are left; returns their
    /// number.
    fn write_assignment(&mut self) -> Result<u32, RunError> {
        let plan = &self.account.plan;
        let first = plan.schedule.assigned();
        wire::begin_assignment(&mut self.assignment, plan.run, plan.function, first);
        let mut count = 0;
        while count < plan.grain {
            let Some(task) = self.tasks.next() else {
                break;
            };
            wire::put_value(&mut self.assignment, &task).map_err(|source| {
                let index = first + u64::from(count);
                RunError::Input { index, source }
            })?;
            count += 1;
        }
        wire::finish_assignment(&mut self.assignment, count);
        Ok(count)
    }
}

impl<I, O, F> Account<'_, I, O, F>
where
    O: DeserializeOwned,
    F: FnMut(u64, O),
{
    fn take_answer(&mut self, worker: usize, bytes: &[u8]) -> Result<(), RunError> {
        match wire::read_answer(bytes) {
            // An answer of an earlier run, which was cancelled or failed.
            Ok(Answer::Done { run, .. } | Answer::Failed { run, .. }) if run != self.plan.run => {
                Ok(())
            }
            Ok(Answer::Done { first, count, busy_ns, results, .. }) => {
                let stats = &mut self.workers[worker];
                stats.tasks += u64::from(count);
                stats.assignments += 1;
                stats.busy += Duration::from_nanos(busy_ns);
                let answered = self.plan.schedule.handle_answer(worker);
                answered.map_err(|_| self.lost(worker, Loss::Malformed))?;
                if let Some(depths) = &mut self.plan.depths
                    && let Some(depth) = depths[worker].handle_answer(busy_ns)
                {
                    self.plan.schedule.set_depth(worker, depth);
                }
                self.accept(worker, first, results)
            }
            Ok(Answer::Failed { index, text, .. }) => Err(RunError::Task {
                index,
                function: self.function.name().to_owned(),
                worker: self.workers[worker].worker.clone(),
                text: text.to_owned(),
            }),
            Err(wire::Malformed) => Err(self.lost(worker, Loss::Malformed)),
        }
    }

    fn accept(
        &mut self,
        worker: usize,
        mut index: u64,
        mut results: wire::Items<'_>,
    ) -> Result<(), RunError> {
        let assigned = self.plan.schedule.assigned();
        loop {
            let bytes = match results.next() {
                Ok(Some(bytes)) => bytes,
                Ok(None) => return Ok(()),
                Err(wire::Malformed) => return Err(self.lost(worker, Loss::Malformed)),
            };
            let result = decode::<O>(bytes).map_err(|source| {
                let worker = self.workers[worker].worker.clone();
                RunError::Result { index, worker, source }
            })?;
            let accepted = self.delivery.accept(index, assigned, result, &mut self.each);
            accepted.map_err(|NotExpected| self.lost(worker, Loss::Malformed))?;
            index += 1;
        }
    }

    fn lost(&mut self, worker: usize, loss: Loss) -> RunError {
        let unanswered = self.plan.schedule.handle_lost(worker);
        RunError::Lost { worker: self.workers[worker].worker.clone(), unanswered, loss }
    }

    /// Returns the error of a failed send: the assignment is too large, or the worker is gone.
    fn not_sent(&mut self, worker: usize, index: u64, count: u32, error: SendError) -> RunError {
        match error {
            SendError::TooLarge { bytes, bytes_max } => {
                let worker = self.workers[worker].worker.clone();
                RunError::TooLarge { index, count, worker, bytes, bytes_max }
            }
            _ => self.lost(worker, Loss::Send(error)),
        }
    }
}
