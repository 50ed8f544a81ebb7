//! One run: tasks go out and results come in, as one hand-written future.
//!
//! A turn takes every answer that is there, from all workers, before it gives out
//! new assignments, so that the channels below gather both. On this path a task costs
//! no allocation and no lock, beyond what the values themselves need.

use std::future::poll_fn;
use std::iter::Fuse;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use chunkcomm::SendError;
use chunkcomm::codec::decode;
use chunkcomm::host::{self, Instant};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::crew::Crew;
use crate::error::{Loss, RunError, TaskError};
use crate::handshake::{Met, Reception};
use crate::link::Link;
use crate::proto::ledger::{Accepted, Counts, Ledger, NotAsked, SetAside};
use crate::proto::order::InOrder;
use crate::proto::pace::{Growth, Pace, Setting};
use crate::proto::wire::{self, Answer, Item};
use crate::stats::{Mishaps, Progress, RunStats, Traffic, WorkerStats};

/// Bytes from which an assignment of measured grain takes no further task.
const ASSIGNMENT_BYTES: usize = 128 << 10;

/// Most results that wait for that of an earlier task.
const REORDERED_MAX: usize = 1 << 20;

/// Time to wait for the cause of a broken link. The farmer sees the break before the end of the
/// process that caused it.
const CAUSE_WAIT: Duration = Duration::from_secs(2);

/// Time between two looks for silent workers at the end of a run.
const LOOK: Duration = Duration::from_millis(50);

/// Where the tasks of a run come from.
pub(crate) trait Source {
    type Task;

    /// Returns the next task; pending when there is none now, `None` when there are no more.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Self::Task>>;

    /// Returns the number of tasks that are left, where it is known.
    fn left(&self) -> Option<u64>;
}

/// The tasks of an iterator.
pub(crate) struct Listed<T>(Fuse<T>);

impl<T: Iterator> Listed<T> {
    pub(crate) fn new(tasks: impl IntoIterator<IntoIter = T>) -> Listed<T> {
        Listed(tasks.into_iter().fuse())
    }
}

impl<T: Iterator> Source for Listed<T> {
    type Task = T::Item;

    #[inline]
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<T::Item>> {
        Poll::Ready(self.0.next())
    }

    fn left(&self) -> Option<u64> {
        let (at_least, at_most) = self.0.size_hint();
        (at_most == Some(at_least)).then_some(at_least as u64)
    }
}

/// Where the results of a run go.
pub(crate) trait Sink<O> {
    fn take(&mut self, index: u64, result: Result<O, TaskError>);

    /// Whether it takes results of further tasks.
    fn has_room(&self) -> bool {
        true
    }
}

impl<O, F: FnMut(u64, Result<O, TaskError>)> Sink<O> for F {
    #[inline]
    fn take(&mut self, index: u64, result: Result<O, TaskError>) {
        self(index, result);
    }
}

/// Settings of a run, fixed when it begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// The run's number, carried by each of its messages.
    pub(crate) run: u32,
    /// The function's index in the farmer's Setup.
    pub(crate) function: u32,
    pub(crate) prefetch: Setting,
    pub(crate) grain: Setting,
    /// Number of workers that die of a task before it is set aside.
    pub(crate) deaths_max: u32,
    /// Whether results are handed on in the order of the tasks.
    pub(crate) in_order: bool,
    /// Whether the first task that fails ends the run.
    pub(crate) stops: bool,
}

/// The farm's side of a run: its workers, and how others come.
pub(crate) struct Workers<'a> {
    pub(crate) links: &'a mut Vec<Link>,
    pub(crate) crew: &'a mut Crew,
    pub(crate) reception: &'a mut Reception,
    /// Why the farm can run nothing more.
    pub(crate) lost: &'a mut Option<RunError>,
}

impl Workers<'_> {
    pub(crate) fn traffic(&self) -> Traffic {
        let each = self.links.iter().map(|link| Traffic::of(&link.peer().stats()));
        each.fold(Traffic::default(), |sum, one| sum.with(&one, u64::saturating_add))
    }
}

/// A run in progress.
pub(crate) struct Run<'a, I, O, T: Source<Task = I>, S> {
    workers: Workers<'a>,
    tasks: T,
    /// An encoded input, after its length, that did not fit in the last assignment.
    carried: Vec<u8>,
    account: Account<O, S>,
    /// Set while workers without tasks wait for others.
    look: Option<Timer>,
    /// Workers whose link broke, with what that looked like, until the cause is known.
    broken: Vec<(usize, Loss)>,
    cause_wait: Option<Timer>,
}

type Timer = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Tasks and results of a run, and the statistics of its workers.
struct Account<O, S> {
    plan: Plan,
    /// The function's name.
    function: String,
    sink: S,
    order: InOrder<Result<O, TaskError>>,
    ledger: Ledger,
    paces: Vec<Pace>,
    growth: Growth,
    stats: Vec<WorkerStats>,
    /// Tasks a second of each worker, measured, and their sum.
    speeds: Vec<f64>,
    speed: f64,
    started: Instant,
    now_ns: u64,
    /// Number of tasks that the source still has, where it is known.
    left: Option<u64>,
}

impl<'a, I, O, T, S> Run<'a, I, O, T, S>
where
    I: Serialize,
    O: DeserializeOwned,
    T: Source<Task = I>,
    S: Sink<O>,
{
    pub(crate) fn new(workers: Workers<'a>, plan: Plan, function: &str, tasks: T, sink: S) -> Self {
        let mut account = Account {
            plan,
            function: function.to_owned(),
            sink,
            order: InOrder::new(),
            ledger: Ledger::new(plan.deaths_max),
            paces: Vec::new(),
            growth: Growth::new(),
            stats: Vec::new(),
            speeds: Vec::new(),
            speed: 0.0,
            started: Instant::now(),
            now_ns: 0,
            left: tasks.left(),
        };
        workers.links.iter().for_each(|link| account.join(link));
        // The cause of their end was not known when the run before ended.
        let is_broken = |link: &Link| !link.is_open() && link.lost.is_none();
        let broken = workers.links.iter().enumerate().filter(|(_, link)| is_broken(link));
        let broken: Vec<_> = broken.map(|(worker, _)| (worker, Loss::Closed)).collect();
        broken.iter().for_each(|&(worker, _)| account.ledger.handle_stalled(worker));
        Run { workers, tasks, carried: Vec::new(), account, look: None, broken, cause_wait: None }
    }

    /// Drives the run to its end.
    pub(crate) async fn drive(mut self) -> Result<RunStats, RunError> {
        let (started, before) = (Instant::now(), self.workers.traffic());
        poll_fn(|context| self.poll(context)).await?;
        Ok(self.report(started, &before))
    }

    pub(crate) fn report(&self, started: Instant, before: &Traffic) -> RunStats {
        let Counts { reissued, returned, copied, dropped } = self.account.ledger.counts();
        let workers = self.account.stats.clone();
        RunStats {
            tasks: workers.iter().map(|worker| worker.tasks).sum::<u64>() - dropped,
            elapsed: started.elapsed(),
            workers,
            mishaps: Mishaps { reissued, returned, copied, dropped },
            traffic: self.workers.traffic().with(before, u64::saturating_sub),
        }
    }

    pub(crate) fn progress(&self) -> Progress {
        let ledger = &self.account.ledger;
        Progress {
            given: ledger.assigned(),
            unanswered: ledger.unanswered(),
            left: self.tasks.left(),
        }
    }

    pub(crate) fn traffic(&self) -> Traffic {
        self.workers.traffic()
    }

    pub(crate) fn sink(&mut self) -> &mut S {
        &mut self.account.sink
    }

    /// Runs one turn. Every link and the crew were polled until they were pending, so
    /// the next event wakes the context.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), RunError>> {
        self.account.look_at_clock();
        self.meet(context);
        for worker in 0..self.workers.links.len() {
            self.take_answers(worker, context)?;
            self.send_stalled(worker, context)?;
        }
        self.note_ends(context)?;
        self.give_out(context)?;
        if self.account.ledger.is_done() {
            return Poll::Ready(Ok(()));
        }
        self.even_out(context)?;
        if !self.broken.is_empty() {
            // Some may have broken in this turn.
            self.note_ends(context)?;
        }
        self.check_for_workers()?;
        Poll::Pending
    }

    /// Takes workers that have become ready.
    fn meet(&mut self, context: &mut Context<'_>) {
        while let Poll::Ready(met) = self.workers.reception.poll_met(self.workers.crew, context) {
            match met {
                Met::Ready(link) => {
                    self.account.join(&link);
                    self.workers.links.push(link);
                }
                Met::Not(error, _) => self.workers.crew.note_refused(&error),
            }
        }
    }

    fn take_answers(&mut self, worker: usize, context: &mut Context<'_>) -> Result<(), RunError> {
        let (link, account) = (&mut self.workers.links[worker], &mut self.account);
        if !link.is_open() {
            return Ok(());
        }
        let loss = loop {
            match link.poll_answer(context, |bytes| account.take_answer(worker, bytes)) {
                Poll::Ready(Ok(Ok(()))) => {}
                Poll::Ready(Ok(Err(Refused::Run(error)))) => return Err(error),
                Poll::Ready(Ok(Err(Refused::Worker))) => break Loss::Malformed,
                Poll::Ready(Err(loss)) => break loss,
                Poll::Pending => return Ok(()),
            }
        };
        self.lose(worker, loss)
    }

    fn send_stalled(&mut self, worker: usize, context: &mut Context<'_>) -> Result<(), RunError> {
        match self.workers.links[worker].poll_stalled(context) {
            Poll::Ready(Ok(())) => self.account.ledger.handle_sent(worker),
            // The assignment was not too large, or it would not have waited.
            Poll::Ready(Err(error)) => return self.lose(worker, Loss::Send(error)),
            Poll::Pending => {}
        }
        Ok(())
    }

    /// Takes the ends of workers.
    fn note_ends(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        while let Poll::Ready((name, loss)) = self.workers.crew.poll_ended(context) {
            let was_ready = self.workers.links.iter().any(|link| link.name == name);
            self.workers.crew.replace(&name, was_ready);
            let is_it = |link: &Link| link.name == name && link.lost.is_none();
            if let Some(worker) = self.workers.links.iter().position(is_it) {
                self.bury(worker, &loss)?;
            }
        }
        if self.broken.is_empty() {
            self.cause_wait = None;
            return Ok(());
        }
        let wait = self.cause_wait.get_or_insert_with(|| Box::pin(host::sleep(CAUSE_WAIT)));
        if wait.as_mut().poll(context).is_ready() {
            self.cause_wait = None;
            for (worker, loss) in std::mem::take(&mut self.broken) {
                self.bury(worker, &loss)?;
            }
        }
        Ok(())
    }

    /// Notes that a worker is lost. Where its link broke the cause is still waited for: it comes
    /// soon, and is the better report.
    fn lose(&mut self, worker: usize, loss: Loss) -> Result<(), RunError> {
        let link = &mut self.workers.links[worker];
        let closed = matches!(loss, Loss::Closed | Loss::Send(SendError::Terminated(_)));
        let left = closed && link.name.member.is_some();
        if loss.is_a_cause() || left {
            return self.bury(worker, &loss);
        }
        link.end_tasks();
        self.account.ledger.handle_stalled(worker);
        self.broken.push((worker, loss));
        Ok(())
    }

    /// Opens what a lost worker held for others.
    fn bury(&mut self, worker: usize, loss: &Loss) -> Result<(), RunError> {
        self.broken.retain(|&(broken, _)| broken != worker);
        let link = &mut self.workers.links[worker];
        link.end_tasks();
        self.account.stats[worker].lost = Some(loss.clone());
        if link.lost.replace(loss.clone()).is_some() {
            return Ok(());
        }
        let account = &mut self.account;
        account.speed -= std::mem::take(&mut account.speeds[worker]);
        for aside in account.ledger.handle_lost(worker) {
            account.set_aside(aside, worker, loss.clone())?;
        }
        Ok(())
    }

    fn give_out(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        let ended = self.account.ledger.has_ended();
        self.account.ledger.handle_source(false, ended);
        while let Some(worker) = self.account.ledger.poll_free() {
            let link = &mut self.workers.links[worker];
            let now_ns = self.account.now_ns;
            let sent = match self.account.ledger.reissue(now_ns) {
                Some((first, count, message)) => (first, count, link.send(message, context)),
                None => {
                    let first = self.account.ledger.assigned();
                    let (count, message) = self.write_assignment(worker, context)?;
                    if count == 0 {
                        continue;
                    }
                    let link = &mut self.workers.links[worker];
                    let message = self.account.ledger.assign(count, message, now_ns);
                    (first, count, link.send(message, context))
                }
            };
            self.note_sent(worker, sent)?;
        }
        Ok(())
    }

    fn note_sent(
        &mut self,
        worker: usize,
        (index, count, sent): (u64, u32, Poll<Result<(), SendError>>),
    ) -> Result<(), RunError> {
        match sent {
            Poll::Ready(Ok(())) => Ok(()),
            Poll::Pending => {
                self.account.ledger.handle_stalled(worker);
                Ok(())
            }
            Poll::Ready(Err(SendError::TooLarge { bytes, bytes_max })) => {
                let worker = self.workers.links[worker].name.clone();
                Err(RunError::TooLarge { index, count, worker, bytes, bytes_max })
            }
            Poll::Ready(Err(error)) => self.lose(worker, Loss::Send(error)),
        }
    }

    /// Writes the next tasks, as many as the grain or as there are; returns their number.
    fn write_assignment(
        &mut self,
        worker: usize,
        context: &mut Context<'_>,
    ) -> Result<(u32, Vec<u8>), RunError> {
        let account = &mut self.account;
        if !account.has_room() {
            account.ledger.handle_source(true, false);
            return Ok((0, Vec::new()));
        }
        let grain = account.ledger.grain(worker);
        let is_measured = account.plan.grain == Setting::Auto;
        let taken = self.workers.links[worker].peer().message_bytes_max();
        let bytes_max = ASSIGNMENT_BYTES.min(usize::try_from(taken).unwrap_or(usize::MAX));
        let first = account.ledger.assigned();
        let mut message = account.ledger.buffer();
        wire::begin_assignment(&mut message, account.plan.run, account.plan.function, first);
        let mut count = u32::from(!self.carried.is_empty());
        message.append(&mut self.carried);
        while count < grain {
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
            wire::put_value(&mut message, &task).map_err(|source| {
                let index = first + u64::from(count);
                RunError::Input { index, source }
            })?;
            if is_measured && message.len() > bytes_max && count > 0 {
                self.carried = message.split_off(at);
                break;
            }
            count += 1;
        }
        account.left = self.tasks.left();
        wire::finish_assignment(&mut message, count);
        Ok((count, message))
    }

    /// Lets workers without tasks have some of those that others hold.
    fn even_out(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        while let Some((victim, count)) = self.account.ledger.poll_victim() {
            let order = wire::take_back(self.account.plan.run, count);
            let sent = self.workers.links[victim].send(&order, context);
            self.note_sent(victim, (0, 0, sent))?;
        }
        if !self.account.ledger.is_in_tail() {
            self.look = None;
            return Ok(());
        }
        loop {
            let look = self.look.get_or_insert_with(|| Box::pin(host::sleep(LOOK)));
            if look.as_mut().poll(context).is_pending() {
                return Ok(());
            }
            self.look = None;
            self.account.look_at_clock();
            let now_ns = self.account.now_ns;
            while let Some(found) = self.account.ledger.poll_straggler(now_ns) {
                let (worker, first, count, message) = found;
                let sent = self.workers.links[worker].send(message, context);
                self.note_sent(worker, (first, count, sent))?;
            }
        }
    }

    /// Ends the run when nobody is left to work, and nobody is to come.
    fn check_for_workers(&mut self) -> Result<(), RunError> {
        if self.account.ledger.present() > 0 || self.workers.crew.expects(self.workers.links) {
            return Ok(());
        }
        let lost = self
            .workers
            .links
            .iter()
            .rev()
            .find_map(|link| link.lost.clone().map(|loss| (link.name.clone(), loss)));
        let (worker, loss) = lost.expect("a farm begins with a worker");
        let unanswered = self.account.ledger.unanswered();
        let error = RunError::Lost { worker, unanswered, loss };
        self.workers.crew.dismiss();
        *self.workers.lost = Some(error.clone());
        Err(error)
    }
}

/// Why an answer was not taken.
enum Refused {
    Run(RunError),
    /// The worker sent what nobody asked for.
    Worker,
}

impl From<wire::Malformed> for Refused {
    fn from(wire::Malformed: wire::Malformed) -> Refused {
        Refused::Worker
    }
}

impl From<NotAsked> for Refused {
    fn from(NotAsked: NotAsked) -> Refused {
        Refused::Worker
    }
}

impl<O, S> Account<O, S>
where
    O: DeserializeOwned,
    S: Sink<O>,
{
    fn look_at_clock(&mut self) {
        self.now_ns = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
    }

    fn join(&mut self, link: &Link) {
        let Plan { prefetch, grain, .. } = self.plan;
        let pace = Pace::new(prefetch, grain, link.round_trip_ns, link.threads);
        let worker = self.ledger.handle_joined(pace.share(self.growth, None, 1), link.threads);
        if link.is_stalled() {
            // An assignment of a cancelled run still waits.
            self.ledger.handle_stalled(worker);
        }
        if link.lost.is_some() {
            self.ledger.handle_lost(worker);
        }
        self.paces.push(pace);
        self.speeds.push(0.0);
        self.stats.push(WorkerStats {
            worker: link.name.clone(),
            tasks: 0,
            answers: 0,
            busy: Duration::ZERO,
            lost: link.lost.clone(),
        });
    }

    fn has_room(&self) -> bool {
        self.order.window() < REORDERED_MAX && self.sink.has_room()
    }

    #[inline]
    fn take_answer(&mut self, worker: usize, bytes: &[u8]) -> Result<(), Refused> {
        match wire::read_answer(bytes)? {
            // An answer of an earlier run, which was cancelled or failed.
            Answer::Done { run, .. } | Answer::Returned { run, .. } if run != self.plan.run => {
                Ok(())
            }
            Answer::Returned { first, count, .. } => {
                Ok(self.ledger.handle_returned(worker, first, count, self.now_ns)?)
            }
            Answer::Done { first, count, busy_ns, results, .. } => {
                // Read once to its end: what is not whole is not accepted.
                let mut whole = results;
                while whole.next_result()?.is_some() {}
                let now_ns = self.now_ns;
                let accepted = self.ledger.handle_answer(worker, first, count, busy_ns, now_ns)?;
                self.measure(worker, count, busy_ns);
                self.accept(worker, first, results, &accepted)
            }
        }
    }

    /// Counts the tasks of an answer, and sets what the worker may hold.
    fn measure(&mut self, worker: usize, count: u32, busy_ns: u64) {
        let stats = &mut self.stats[worker];
        stats.tasks += u64::from(count);
        stats.answers += 1;
        stats.busy += Duration::from_nanos(busy_ns);
        if (self.plan.prefetch, self.plan.grain) == (Setting::Fixed(1), Setting::Fixed(1)) {
            return;
        }
        self.growth.handle_answer(count);
        let pace = &mut self.paces[worker];
        pace.handle_answer(count, busy_ns);
        let speed = pace.speed();
        self.speed += speed - self.speeds[worker];
        self.speeds[worker] = speed;
        let left = self.left.map(|left| (left as f64 * speed / self.speed) as u64);
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
        let mut index = first;
        while let Some(item) = results.next_result()? {
            let is_accepted = match accepted {
                Accepted::All => true,
                Accepted::Some(ranges) => ranges.iter().any(|range| range.contains(&index)),
            };
            if is_accepted {
                let name = &self.stats[worker].worker;
                let result =
                    match item {
                        Item::Value(bytes) => decode::<O>(bytes).map_err(|source| {
                            TaskError::Result { index, worker: name.clone(), source }
                        }),
                        Item::Failure(text) => Err(TaskError::Failed {
                            index,
                            function: self.function.clone(),
                            worker: name.clone(),
                            text: text.to_owned(),
                        }),
                    };
                self.hand_on(index, result).map_err(Refused::Run)?;
            }
            index += 1;
        }
        Ok(())
    }

    fn set_aside(&mut self, aside: SetAside, worker: usize, loss: Loss) -> Result<(), RunError> {
        let SetAside { task: index, deaths, input } = aside;
        let (function, worker) = (self.function.clone(), self.stats[worker].worker.clone());
        let loss = Box::new(loss);
        let error = TaskError::SetAside { index, function, deaths, worker, loss, input };
        self.hand_on(index, Err(error))
    }

    #[inline]
    fn hand_on(&mut self, index: u64, result: Result<O, TaskError>) -> Result<(), RunError> {
        match result {
            Err(error) if self.plan.stops => return Err(RunError::Task(error)),
            result if self.plan.in_order => {
                self.order.accept(index, result);
                while let Some((index, result)) = self.order.pop() {
                    self.sink.take(index, result);
                }
            }
            result => self.sink.take(index, result),
        }
        Ok(())
    }
}
