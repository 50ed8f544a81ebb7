//! A run of a sub-farmer.

use std::collections::VecDeque;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use chunkcomm::host::Instant;
use chunkcomm::{BytesReceiver, BytesSender, SendError};

use super::Subfarm;
use super::gather::Gathered;
use crate::account::Plan;
use crate::compute::HOLD;
use crate::error::ServeError;
use crate::functions::Reducer;
use crate::pieces::Pieces;
use crate::proto::split;
use crate::proto::wire::{self, Assignment};
use crate::run::{Run, Timer};
use crate::settings::nanos;
use crate::stats::Mishaps;
use crate::tasks::{Encoded, Sink, Source};

/// Longest time that results wait while a worker has no task: 2 ms. Each sub-farmer may cost the
/// farmer 0.1 ms in this time.
const HOLD_WHILE_IDLE: Duration = Duration::from_millis(2);

/// Shortest time between results that go up before all are there: 2 ms. A half, then a half of the
/// rest, and so on, would wake the farmer many times.
const APART: Duration = Duration::from_millis(2);

/// Returns an assignment once all its inputs are checked: the ledger takes them apart.
fn whole(assignment: Assignment<'_>) -> Result<Assignment<'_>, ServeError> {
    match wire::items_bytes(assignment.items, assignment.count) {
        Some(bytes) if bytes == assignment.items.len() => Ok(assignment),
        _ => Err(ServeError::Malformed),
    }
}

/// End of a run.
pub(super) enum Turn {
    /// The run of this number begins with this order.
    Run(u32, Bytes),
    /// The farm is done.
    Done,
}

/// Source of the tasks in the farmer's assignments that are not given out.
impl Source for Pieces {
    type Task = Encoded;

    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<Encoded>> {
        // The run asks again when there are more.
        self.take(1).map_or(Poll::Pending, |task| Poll::Ready(Some(Encoded(task.items))))
    }

    fn left(&self) -> Option<u64> {
        Some(self.tasks())
    }

    fn numbered(&self) -> Option<(u64, u32)> {
        self.front().map(|piece| (piece.first, piece.attempt))
    }
}

/// Run in progress, between the farmer and the workers.
pub(super) struct Relay<'a> {
    tasks: &'a mut BytesReceiver,
    answers: &'a mut BytesSender,
    waiting: &'a mut VecDeque<Bytes>,
    /// Numbers of threads and of lost workers that the farmer knows.
    known: &'a mut (u32, u64),
    /// Mishaps of the run that the farmer knows.
    mishaps: Mishaps,
    number: u32,
    reducers: &'a [Option<Reducer>],
    run: Run<'a, Encoded, Pieces, Gathered<'a>>,
    /// Time in the tasks of all results that went up, and the number of these tasks.
    told: (Duration, u64),
    /// Time at which results went up last.
    sent: Instant,
    wait: Timer,
    begun: Instant,
    /// Timer that is set while fractions of tasks wait.
    progress_wait: Timer,
}

impl<'a> Relay<'a> {
    /// Begins the run of this number, with its first order.
    pub(super) fn new(farm: &'a mut Subfarm, number: u32, first: Option<&[u8]>) -> Relay<'a> {
        let Subfarm { upper, ways, workers, waiting, told, reducers } = farm;
        let bytes_max = upper.answers.peer().message_bytes_max();
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let mut pieces = Pieces::default();
        let (mut function, mut reducible) = (0, false);
        if let Some(Ok(wire::Order::Assign(assignment))) = first.map(wire::read_order) {
            (function, reducible) = (assignment.function, assignment.reducible);
            pieces.put(&assignment);
        }
        let plan = Plan::new(number, function, *ways);
        let plan = Plan { at_once: true, is_below: true, ..plan };
        let mut relay = Relay {
            tasks: &mut upper.tasks,
            answers: &mut upper.answers,
            waiting,
            known: told,
            mishaps: Mishaps::default(),
            number,
            reducers,
            run: Run::new(workers, plan, "", pieces, Gathered::new(number, bytes_max), None),
            told: (Duration::ZERO, 0),
            sent: Instant::now(),
            wait: Timer::default(),
            begun: Instant::now(),
            progress_wait: Timer::default(),
        };
        relay.set_function(function, reducible);
        relay
    }

    /// Sets the function, by its index, of the tasks that follow, and whether their results may be
    /// reduced.
    fn set_function(&mut self, function: u32, reducible: bool) {
        self.run.set_function(function);
        let reducer = self.reducers.get(function as usize).filter(|_| reducible);
        self.run.account.sink.set_reducer(reducer.and_then(Option::as_ref));
    }

    /// Runs one turn.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Turn, ServeError>> {
        while let Poll::Ready(order) = self.tasks.poll_recv(context)? {
            let Some(order) = order else { return Poll::Ready(Ok(Turn::Done)) };
            if let Some(run) = self.take(&order, context)? {
                self.run.note_left();
                return Poll::Ready(Ok(Turn::Run(run, order)));
            }
        }
        match self.run.poll(context) {
            Poll::Ready(Err(error)) => {
                return Poll::Ready(Err(ServeError::Farm(Box::new(error))));
            }
            Poll::Ready(Ok(())) => unreachable!("the source of the tasks never ends"),
            Poll::Pending => {}
        }
        let now = (self.run.threads(), self.run.lost());
        if std::mem::replace(self.known, now) != now {
            self.waiting.push_back(Bytes::copy_from_slice(&wire::threads(now.0, now.1)));
        }
        while let Some((key, ask)) = self.run.account.once.poll_ask() {
            self.waiting.push_back(Bytes::from(wire::once_answer(self.number, key, &ask)));
        }
        self.send_up(context);
        self.send_progress(context);
        match self.poll_sent(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Pending,
        }
    }

    /// Takes an order of the farmer; returns the run that it begins, if it does.
    fn take(&mut self, order: &[u8], context: &mut Context<'_>) -> Result<Option<u32>, ServeError> {
        match wire::read_order(order).map_err(|_| ServeError::Malformed)? {
            wire::Order::Assign(assignment) if assignment.run != self.number => {
                return Ok(Some(whole(assignment)?.run));
            }
            wire::Order::Assign(assignment) => {
                // A run that began with a take-back learns its function here.
                self.set_function(assignment.function, assignment.reducible);
                self.run.tasks.put(&whole(assignment)?);
            }
            wire::Order::Value(part) => self.run.relay(&part),
            wire::Order::Forget { digest } => self.run.forget(digest),
            wire::Order::Once { run, key, reply } if run == self.number => {
                self.run.account.once.handle_reply(key, reply);
            }
            wire::Order::End | wire::Order::Once { .. } => {}
            // A take-back of zero tasks is a ping.
            wire::Order::TakeBack { run, count } if run != self.number && count > 0 => {
                self.waiting.push_back(Bytes::copy_from_slice(&wire::returned(run, 0, 0)));
                return Ok(Some(run));
            }
            wire::Order::TakeBack { run, count } => self.give_back(run, count, context)?,
        }
        Ok(None)
    }

    /// Gives back the tasks that are not given out. Tasks that workers give back follow later.
    fn give_back(
        &mut self,
        run: u32,
        count: u64,
        context: &mut Context<'_>,
    ) -> Result<(), ServeError> {
        let mut left = count;
        if run == self.number {
            for (first, count) in self.run.tasks.give_back(count) {
                left -= u64::from(count);
                self.run.account.sink.give_back(first, count);
            }
            let asked = self.run.take_back(left, context);
            asked.map_err(|error| ServeError::Farm(Box::new(error)))?;
        }
        self.waiting.extend(self.run.account.sink.words());
        self.waiting.push_back(Bytes::copy_from_slice(&wire::returned(run, 0, 0)));
        Ok(())
    }

    /// Sends the gathered results up when they are due.
    fn send_up(&mut self, context: &mut Context<'_>) {
        self.waiting.extend(self.run.account.sink.words());
        while let Some(age) = self.run.account.sink.age() {
            let waits = self.run.tasks.tasks();
            let (ledger, carried) = self.run.held();
            let left = ledger.unanswered() + carried + waits;
            let lacks = waits == 0 && ledger.any_idle();
            let gathered = &mut self.run.account.sink;
            let is_half = gathered.count() >= left && self.sent.elapsed() >= APART;
            let is_due = left == 0
                || is_half
                || gathered.is_full()
                || age >= if lacks { HOLD_WHILE_IDLE } else { HOLD };
            if is_due {
                self.tell_mishaps();
                let busy_ns = self.busy_ns();
                self.waiting.extend(self.run.account.sink.answers(busy_ns));
                self.sent = Instant::now();
                break;
            }
            if !self.wait.is_over(HOLD_WHILE_IDLE, context) {
                return;
            }
        }
        self.wait = Timer::default();
    }

    /// Tells the farmer of mishaps since the last such word, together with results. Messages of
    /// their own took a quarter of the time of 1,000 workers with tasks of 0.5 ms.
    fn tell_mishaps(&mut self) {
        let now = self.run.held().0.mishaps();
        if std::mem::replace(&mut self.mishaps, now) != now {
            self.waiting.push_back(Bytes::from(wire::mishaps(self.number, now)));
        }
    }

    /// Sends the fractions of running tasks up when they are due.
    fn send_progress(&mut self, context: &mut Context<'_>) {
        while let Some(due_ns) = self.run.account.sink.reports.due_ns() {
            let now_ns = nanos(self.begun.elapsed());
            if let Some(word) = self.run.account.sink.reports.poll_word(now_ns) {
                self.waiting.push_back(Bytes::from(word));
                continue;
            }
            if !self.progress_wait.has_come(self.begun + Duration::from_nanos(due_ns), context) {
                return;
            }
        }
        self.progress_wait = Timer::default();
    }

    /// Returns the mean time in a task since the last results went up, in nanoseconds.
    fn busy_ns(&mut self) -> f64 {
        let now = self.run.busy();
        let before = std::mem::replace(&mut self.told, now);
        let (busy, tasks) = (now.0.saturating_sub(before.0), now.1.saturating_sub(before.1));
        busy.as_nanos() as f64 / tasks.max(1) as f64
    }

    /// Sends waiting messages, as far as there is room.
    fn poll_sent(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ServeError>> {
        while let Some(message) = self.waiting.front() {
            let ready = std::task::ready!(self.answers.poll_ready(context));
            match ready.and_then(|()| self.answers.start_send(message.clone())) {
                Ok(()) => drop(self.waiting.pop_front()),
                Err(error @ SendError::TooLarge { .. }) => {
                    let answer = self.waiting.pop_front().unwrap_or_default();
                    // The workers below keep a value. The next one elsewhere computes it again.
                    let parts = split::instead(&answer, &error);
                    let parts = parts.map_err(|_| ServeError::Malformed)?;
                    parts.into_iter().rev().for_each(|it| self.waiting.push_front(it.into()));
                }
                // The farm has ended, as the end of the orders will say.
                Err(SendError::Terminated(_)) => self.waiting.clear(),
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else the ledger would panic, when it takes apart what it was not given.
    #[test]
    fn an_assignment_without_all_its_inputs_is_refused() {
        let mut message = Vec::new();
        wire::begin_assignment(&mut message, 1, 0);
        (0..2u64).for_each(|task| wire::put_value(&mut message, &task).unwrap());
        for (count, is_whole) in [(1, false), (2, true), (3, false)] {
            wire::number_assignment(&mut message, 0, count);
            let Ok(wire::Order::Assign(assignment)) = wire::read_order(&message) else { panic!() };
            assert_eq!(whole(assignment).is_ok(), is_whole, "{count}");
        }
    }
}
