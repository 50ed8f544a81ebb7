//! The account of a run: which tasks are out, what an answer does to them, and the way of a result to
//! its user.
//!
//! ```text
//!   source ──▶ Ledger ──▶ assignment ──▶ worker ──▶ answer ──▶ Ledger      accepted once, or dropped
//!                 ▲                                              │
//!                 └─── again: a worker died, or gave it back     ▼
//!                                                 Journal ◀── result       if the run has a journal
//!                                                                │
//!                                                            InOrder       if the order is that of the tasks
//!                                                                │
//!                                                              Sink ──▶ user
//! ```
//!
//! | an answer's task | what happens |
//! |---|---|
//! | is out | its result goes on |
//! | has its result already, or is of an earlier run | the answer is dropped |
//! | was never assigned | the worker is cut off ([`Refused::Worker`]) |
//! | failed | its error goes on in the place of a result; with `stops` it ends the run |

use std::time::Duration;

use chunkcomm::host::Instant;

use crate::error::{RunError, TaskError};
use crate::journal::Journal;
use crate::link::Link;
use crate::proto::home::Spent;
use crate::proto::ledger::{Accepted, Ledger};
use crate::proto::once::Table;
use crate::proto::order::InOrder;
use crate::proto::pace::{Grain, Growth, Pace};
use crate::proto::progress::Underway;
use crate::proto::timeline::{Latest, Recorder};
use crate::proto::waiting::Waiting;
use crate::proto::wire::{self, Answer, Fractions, Item, Terms};
use crate::settings::{Ways, nanos};
use crate::stats::WorkerStats;
use crate::tasks::{Output, Sink, Unreadable};

/// Most results that wait for that of an earlier task.
const REORDERED_MAX: usize = 1 << 20;

/// Encoded bytes of waiting results from which no further task is begun: 64 MiB. Results wait for
/// those of earlier tasks, or for their user.
pub(crate) const WAITING_BYTES_MAX: usize = 64 << 20;

/// Settings of a run, fixed when it begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// The run's number, carried by each of its messages.
    pub(crate) run: u32,
    /// The function's index in the workers' seats.
    pub(crate) function: u32,
    pub(crate) ways: Ways,
    /// Whether results are handed on as they come instead of in the order of the tasks.
    pub(crate) at_once: bool,
    /// Whether the first task that fails ends the run.
    pub(crate) stops: bool,
    /// Whether all results are kept, so that results that wait for others cost nothing more.
    pub(crate) collects: bool,
    /// Whether a sub-farmer drives the run.
    pub(crate) is_below: bool,
    /// Whether sub-farmers may reduce the results.
    pub(crate) reduces: bool,
}

impl Plan {
    /// Returns the plan of a run that keeps the order of the tasks and goes on when a task fails.
    pub(crate) fn new(run: u32, function: u32, ways: Ways) -> Plan {
        let (at_once, stops, collects, is_below, reduces) = (false, false, false, false, false);
        Plan { run, function, ways, at_once, stops, collects, is_below, reduces }
    }
}

/// Tasks and results of a run, and the statistics of its workers.
pub(crate) struct Account<'a, O, S> {
    pub(crate) plan: Plan,
    /// The function's name.
    function: String,
    pub(crate) sink: S,
    order: InOrder<Result<O, TaskError>>,
    pub(crate) ledger: Ledger,
    pub(crate) workers: Vec<Worker>,
    growth: Growth,
    /// Fractions of running tasks that are done.
    pub(crate) underway: Underway,
    /// Values that a worker computes for all.
    pub(crate) once: Table,
    /// The run's timeline, if it is kept.
    pub(crate) recorder: Option<Box<Recorder>>,
    /// Tasks a second of all workers together, measured.
    speed: f64,
    pub(crate) started: Instant,
    /// Time since the begin of the run, in nanoseconds; read once a turn.
    pub(crate) now_ns: u64,
    /// Number of tasks still in the source, where it is known.
    pub(crate) left: Option<u64>,
    pub(crate) journal: Option<&'a mut Journal>,
    /// Number of tasks whose results the journal had.
    pub(crate) recalled: u64,
    /// Workers with a stuck task, and the index of that task.
    pub(crate) late: Vec<(usize, u64)>,
}

/// A worker of a run.
pub(crate) struct Worker {
    pub(crate) pace: Pace,
    pub(crate) threads: u32,
    /// Number of workers that a sub-farmer has lost since it began.
    pub(crate) below: u64,
    /// Whether the worker is a sub-farmer.
    farms: bool,
    pub(crate) stats: WorkerStats,
    waiting: Waiting,
    /// Tasks a second, measured.
    speed: f64,
}

/// Reason why an answer was not taken.
pub(crate) enum Refused {
    Run(RunError),
    /// The worker sent an answer that was not asked for.
    Worker,
}

impl From<wire::Malformed> for Refused {
    fn from(wire::Malformed: wire::Malformed) -> Refused {
        Refused::Worker
    }
}

impl<'a, O: Output, S: Sink<O>> Account<'a, O, S> {
    pub(crate) fn new(
        plan: Plan,
        function: &str,
        sink: S,
        left: Option<u64>,
        journal: Option<&'a mut Journal>,
    ) -> Account<'a, O, S> {
        let spans_max = plan.ways.spans_max;
        Account {
            plan,
            function: function.to_owned(),
            sink,
            order: InOrder::new(),
            ledger: Ledger::new(plan.ways.terms.deaths_max),
            workers: Vec::new(),
            growth: Growth::new(),
            underway: Underway::default(),
            once: Table::new(plan.run, plan.is_below),
            recorder: (spans_max > 0).then(|| Box::new(Recorder::new(spans_max))),
            speed: 0.0,
            started: Instant::now(),
            now_ns: 0,
            left,
            journal,
            recalled: 0,
            late: Vec::new(),
        }
    }

    pub(crate) fn look_at_clock(&mut self) {
        self.now_ns = nanos(self.started.elapsed());
    }

    /// Adds a worker, and returns its index. The worker gets tasks of the run only if it is chosen.
    pub(crate) fn join(&mut self, link: &Link, is_chosen: bool) -> usize {
        // The settings hold for the workers below a sub-farmer; its own share is measured.
        let Terms { prefetch, grain, .. } = self.plan.ways.terms;
        let (prefetch, grain) = if link.farms { (None, Grain::Auto) } else { (prefetch, grain) };
        let mut pace = Pace::new(prefetch, grain, link.round_trip_ns, link.threads);
        if link.farms || self.plan.is_below {
            pace = pace.in_tree();
        }
        let worker = self.ledger.handle_joined(pace.share(self.growth, None, 1), link.threads);
        if link.is_stalled() {
            // An assignment of a cancelled run still waits.
            self.ledger.handle_stalled(worker);
        }
        let mut waiting = Waiting::new(link.threads, self.now_ns);
        if link.lost.is_some() {
            self.ledger.handle_lost(worker, false);
            waiting.note(0, 0, self.now_ns);
        }
        let stats = WorkerStats { lost: link.lost.clone(), ..WorkerStats::new(link.name.clone()) };
        let &Link { threads, farms, lost_below: below, .. } = link;
        self.workers.push(Worker { pace, threads, below, farms, stats, waiting, speed: 0.0 });
        if !is_chosen {
            self.keep_off(worker, true);
        }
        worker
    }

    /// Notes how many tasks each worker holds, at the end of a turn.
    #[inline]
    pub(crate) fn note_held(&mut self) {
        for (at, worker) in self.workers.iter_mut().enumerate() {
            if worker.stats.lost.is_none() && !self.ledger.is_kept_off(at) {
                worker.waiting.note(worker.threads, self.ledger.held(at), self.now_ns);
            }
        }
    }

    /// Gives a worker no further task of the run, or lets it have tasks again.
    pub(crate) fn keep_off(&mut self, worker: usize, kept_off: bool) {
        self.ledger.keep_off(worker, kept_off);
        if kept_off {
            self.workers[worker].waiting.note(0, 0, self.now_ns);
        }
    }

    /// Returns the times of all workers until now.
    pub(crate) fn spent(&self) -> Spent {
        let mut sum = Spent { now_ns: self.now_ns, ..Spent::default() };
        for (at, Worker { stats, waiting, threads, .. }) in self.workers.iter().enumerate() {
            let busy_ns = nanos(stats.busy);
            let waited = waiting.waited(busy_ns, self.now_ns);
            sum.tasks += stats.tasks;
            sum.answers += stats.answers;
            sum.busy_ns += busy_ns;
            sum.for_wire_ns += waited.for_wire_ns;
            sum.for_farmer_ns += waited.for_farmer_ns;
            if stats.lost.is_none() && !self.ledger.is_kept_off(at) {
                sum.threads += u64::from(*threads);
            }
        }
        sum
    }

    /// Returns the statistics of the workers until now.
    pub(crate) fn stats(&self) -> Vec<WorkerStats> {
        let now_ns = nanos(self.started.elapsed());
        let until_now = |&Worker { ref stats, ref waiting, threads, .. }: &Worker| {
            let waited = waiting.waited(nanos(stats.busy), now_ns);
            let waited_for_farmer = Duration::from_nanos(waited.for_farmer_ns);
            let waited_for_wire = Duration::from_nanos(waited.for_wire_ns);
            WorkerStats { threads, waited_for_farmer, waited_for_wire, ..stats.clone() }
        };
        self.workers.iter().map(until_now).collect()
    }

    pub(crate) fn has_room(&self) -> bool {
        let is_full = self.order.bytes() >= WAITING_BYTES_MAX && !self.plan.collects;
        !is_full && self.order.window() < REORDERED_MAX && self.sink.has_room()
    }

    #[inline]
    pub(crate) fn take_answer(&mut self, worker: usize, bytes: &[u8]) -> Result<(), Refused> {
        match wire::read_answer(bytes)? {
            Answer::Late { run, index, is_stuck } => {
                if is_stuck {
                    self.late.push((worker, index));
                }
                if run == self.plan.run { self.take_late(worker, index) } else { Ok(()) }
            }
            // They come before the worker is ready.
            Answer::Handed(_) => Err(Refused::Worker),
            // Only a sub-farmer has workers that may die, and a number of threads that changes.
            Answer::Aside { .. } | Answer::Threads { .. } | Answer::Mishaps { .. }
                if !self.workers[worker].farms =>
            {
                Err(Refused::Worker)
            }
            // An answer of an earlier run, which was cancelled or failed.
            Answer::Done { run, .. }
            | Answer::Returned { run, .. }
            | Answer::Progress { run, .. }
            | Answer::Once { run, .. }
            | Answer::Virtual { run, .. }
            | Answer::Aside { run, .. }
            | Answer::Mishaps { run, .. }
                if run != self.plan.run =>
            {
                Ok(())
            }
            Answer::Mishaps { mishaps, .. } => {
                self.workers[worker].stats.mishaps_below = mishaps;
                Ok(())
            }
            Answer::Aside { index, deaths, loss, .. } => {
                self.take_aside(worker, index, deaths, loss)
            }
            Answer::Threads { count, lost } => {
                let Worker { below, stats, .. } = &mut self.workers[worker];
                let before = std::mem::replace(below, lost);
                stats.lost_below += lost.saturating_sub(before);
                self.set_threads(worker, count);
                Ok(())
            }
            Answer::Virtual { workers, .. } => self.take_virtual(worker, workers),
            Answer::Once { key, ask, .. } => {
                self.once.handle_ask(worker, key, ask);
                Ok(())
            }
            Answer::Progress { fractions, .. } => {
                self.take_progress(worker, fractions);
                Ok(())
            }
            Answer::Returned { first, count, .. } => self.take_returned(worker, first, count),
            // Only a sub-farmer reduces results, and only where it may.
            Answer::Done { is_reduced: true, .. }
                if !self.workers[worker].farms || !self.plan.reduces =>
            {
                Err(Refused::Worker)
            }
            // Another worker has answered one of the tasks whose results are reduced to one.
            Answer::Done { first, count, is_reduced: true, .. }
                if !self.ledger.holds_all(worker, first, count) =>
            {
                self.take_returned(worker, first, count)
            }
            Answer::Done { first, count, busy_ns, results, .. } => {
                // Reads the answer to its end first: an answer that is not whole is not accepted.
                let mut whole = results;
                while whole.next_result()?.is_some() {}
                let now_ns = self.now_ns;
                let accepted = self.ledger.handle_answer(worker, first, count, busy_ns, now_ns)?;
                self.underway.handle_ended(first..first + u64::from(count));
                self.record(worker, (first, count), busy_ns);
                self.measure(worker, count, busy_ns);
                self.accept(worker, first, results, &accepted)
            }
        }
    }

    /// Opens these tasks for others.
    fn take_returned(&mut self, worker: usize, first: u64, count: u32) -> Result<(), Refused> {
        self.ledger.handle_returned(worker, first, count, self.now_ns)?;
        self.underway.handle_ended(first..first + u64::from(count));
        Ok(())
    }

    /// Takes the fractions of the tasks that the worker holds; its other tasks have a result by
    /// now.
    fn take_progress(&mut self, worker: usize, fractions: Fractions<'_>) {
        for (task, thousandths) in fractions {
            if self.ledger.holds(worker, task) {
                self.underway.handle_report(worker, task, thousandths);
                self.sink.note_progress(task, thousandths);
            }
        }
    }

    /// Returns the latest spans of the timeline, which are kept from now on.
    pub(crate) fn look(&mut self) -> &Latest {
        let now = self.started.elapsed();
        self.recorder.get_or_insert_with(|| Box::new(Recorder::new(0))).look(now)
    }

    /// Keeps the latest spans of the timeline no more.
    pub(crate) fn look_away(&mut self) {
        self.recorder = self.recorder.take().filter(|recorder| recorder.keeps());
        if let Some(recorder) = &mut self.recorder {
            recorder.look_away();
        }
    }

    /// Returns the function's name.
    pub(crate) fn function(&self) -> &str {
        &self.function
    }

    /// Adds an answer to the timeline, if one is kept.
    #[inline]
    fn record(&mut self, worker: usize, tasks: (u64, u32), busy_ns: u64) {
        if let Some(recorder) = &mut self.recorder {
            let now_ns = nanos(self.started.elapsed());
            let threads = self.workers[worker].threads;
            recorder.add((worker, threads), tasks, busy_ns, now_ns);
        }
    }

    /// Counts the tasks of an answer, and sets the worker's share.
    fn measure(&mut self, worker: usize, count: u32, busy_ns: u64) {
        let Worker { stats, pace, speed, .. } = &mut self.workers[worker];
        stats.tasks += u64::from(count);
        stats.answers += 1;
        stats.busy += Duration::from_nanos(busy_ns);
        self.growth.handle_answer(count);
        pace.handle_answer(count, busy_ns);
        self.speed += pace.speed() - *speed;
        *speed = pace.speed();
        self.set_share(worker);
    }

    /// Takes the worker's number of virtual workers. Ledger and pace count each as a thread, since
    /// a task's time includes its waits.
    fn take_virtual(&mut self, worker: usize, workers: u32) -> Result<(), Refused> {
        let Worker { farms, stats, .. } = &mut self.workers[worker];
        if *farms || !(1..=wire::VIRTUAL_MAX).contains(&workers) {
            return Err(Refused::Worker);
        }
        stats.virtual_workers = stats.virtual_workers.max(workers);
        self.set_threads(worker, workers);
        self.set_share(worker);
        Ok(())
    }

    fn set_threads(&mut self, worker: usize, threads: u32) {
        self.workers[worker].threads = threads;
        self.workers[worker].pace.set_threads(threads);
        self.ledger.set_threads(worker, threads);
    }

    fn set_share(&mut self, worker: usize) {
        let Worker { pace, speed, .. } = &mut self.workers[worker];
        let left = self.left.map(|left| (left as f64 * *speed / self.speed) as u64);
        let (share, task_ns) =
            (pace.share(self.growth, left, self.ledger.present()), pace.task_ns());
        self.ledger.set_share(worker, share, task_ns);
    }

    fn accept(
        &mut self,
        worker: usize,
        first: u64,
        mut results: wire::Items<'_>,
        accepted: &Accepted,
    ) -> Result<(), Refused> {
        let is_accepted = |index: u64| match accepted {
            Accepted::All => true,
            Accepted::Some(ranges) => ranges.iter().any(|range| range.contains(&index)),
        };
        // Results that must be permanent before they are passed on.
        let mut held_back = Vec::new();
        let mut index = first;
        while let Some(item) = results.next_result()? {
            if is_accepted(index) {
                let (result, bytes) = (self.read(worker, index, item), item.bytes());
                if let Some(journal) = &mut self.journal {
                    match (item, &result) {
                        (Item::Value(value), Ok(_)) => journal.add(index, value),
                        _ => journal.skip(index),
                    }
                }
                if self.journal.as_ref().is_some_and(|journal| journal.holds_back()) {
                    held_back.push((index, result, bytes));
                } else {
                    self.hand_on(index, result, bytes).map_err(Refused::Run)?;
                }
            }
            index += 1;
        }
        if let Some(journal) = &mut self.journal {
            journal.end_answer().map_err(|error| Refused::Run(error.into()))?;
        }
        let mut held_back = held_back.into_iter();
        held_back
            .try_for_each(|(index, result, bytes)| self.hand_on(index, result, bytes))
            .map_err(Refused::Run)
    }

    #[inline]
    fn read(&self, worker: usize, index: u64, item: Item<'_>) -> Result<O, TaskError> {
        let name = || self.workers[worker].stats.worker.clone();
        match item {
            Item::Value(bytes) => O::read(bytes).map_err(|unreadable| match unreadable {
                Unreadable::Refused(source) => TaskError::Result { index, worker: name(), source },
                Unreadable::Panicked(text) => {
                    TaskError::ResultPanicked { index, worker: name(), text }
                }
            }),
            Item::Failure(text) => Err(TaskError::Failed {
                index,
                function: self.function.clone(),
                worker: name(),
                text: text.to_owned(),
            }),
        }
    }

    /// Accepts the next task of the source; the journal has its result, of these encoded bytes.
    pub(crate) fn recall(&mut self, (result, bytes): (O, usize)) -> Result<(), RunError> {
        let index = self.ledger.skip();
        self.recalled += 1;
        self.hand_on(index, Ok(result), bytes)
    }

    /// Hands results on as they come from now on, beginning with those that wait.
    pub(crate) fn hand_on_at_once(&mut self) {
        self.plan.at_once = true;
        for (index, result, bytes) in self.order.drain() {
            self.sink.take(index, result, bytes);
        }
    }

    #[inline]
    fn hand_on(
        &mut self,
        index: u64,
        result: Result<O, TaskError>,
        bytes: usize,
    ) -> Result<(), RunError> {
        match result {
            Err(error) if self.plan.stops => return Err(RunError::Task(error)),
            result if !self.plan.at_once => {
                self.order.accept(index, result, bytes);
                while let Some((index, result, bytes)) = self.order.pop() {
                    self.sink.take(index, result, bytes);
                }
            }
            result => self.sink.take(index, result, bytes),
        }
        Ok(())
    }
}

mod ends;
#[cfg(test)]
mod tests;
