//! One run: tasks go out and results come in, as one hand-written future.
//!
//! A turn takes every answer that is there, from all workers, before it gives out
//! new assignments, so that the channels below gather both. On this path a task costs
//! no allocation and no lock, beyond what the values themselves need.
//!
//! A task's way to its function and back, with the files:
//!
//! ```text
//! Farm::run         Run::give_out      Link::send          Desk::take     Compute::put
//! farm/runs.rs ──▶  run/giving.rs ──▶  link.rs        ~~~  worker.rs ──▶  compute.rs
//!                   Ledger::assign                                        Queue, then a Runner or the
//!                   proto/ledger.rs                                       I/O loop: compute/
//!                                                                              │
//! Sink::take        Account            Link::poll_answer   Desk::send     run_each: the function
//! tasks.rs    ◀───  account.rs    ◀──  link.rs        ~~~  worker.rs ◀──  context.rs
//!                   Ledger::handle_answer, InOrder                        Report: compute/report.rs
//!                   proto/ledger.rs, proto/order.rs
//! ```

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use chunkcomm::layer::add_reports;
use chunkcomm::stats::PeerStats;
use chunkcomm::{Node, SendError};

use crate::account::{Account, Plan, Refused};
use crate::board::Board;
use crate::crew::Crew;
use crate::error::{RunError, WorkerEnd};
use crate::handshake::{Met, Reception};
use crate::journal::Journal;
use crate::link::Link;
use crate::name::WorkerName;
use crate::proto::home::Home;
use crate::proto::ledger::Ledger;
use crate::proto::wire::{self, Part};
use crate::settings::nanos;
use crate::shared::Sharing;
use crate::stats::{Progress, RunStats, Timeline};
use crate::tasks::{Input, Output, Sink, Source};

use self::lookout::Lookout;
pub(crate) use self::timer::Timer;

/// Time before the end of the farm's time from which on nothing is given out: 0.1 s, in nanoseconds.
/// To it is added 1.25 times the longest wait for an answer.
const DRAIN_NS_MIN: u64 = 100_000_000;

/// Time between two looks for silent workers at the end of a run.
const LOOK: Duration = Duration::from_millis(50);

/// Longest time that an accepted result in the journal is not permanent.
const SYNC_WAIT: Duration = Duration::from_secs(1);

/// Closure that chooses the workers that get tasks of a run.
pub(crate) type Choice = Box<dyn Fn(&WorkerName) -> bool + Send + Sync>;

/// Closure that gets the progress of a run.
pub(crate) type Watch = Box<dyn FnMut(&Progress) + Send + Sync>;

/// The workers of a farm or a sub-farmer, and the arrival of others.
pub(crate) struct Workers {
    pub(crate) links: Vec<Link>,
    pub(crate) crew: Crew,
    pub(crate) reception: Reception,
    pub(crate) sharing: Sharing,
    /// Reason why the farm can run nothing more.
    pub(crate) lost: Option<RunError>,
    /// Whether the last run has left tasks at the workers.
    unfinished: bool,
    /// Chooses the workers of the run; `None` takes all.
    pub(crate) choice: Option<Choice>,
    /// Gets the progress of runs.
    pub(crate) watch: Option<Watch>,
    /// The run as the node's report shows it.
    pub(crate) board: Arc<Board>,
}

impl Workers {
    pub(crate) fn new(node: &Node, links: Vec<Link>, crew: Crew, reception: Reception) -> Workers {
        let (sharing, lost, choice, watch) = (Sharing::default(), None, None, None);
        let board = Arc::new(Board::new(crew.farm()));
        add_reports(node, &board);
        Workers { links, crew, reception, sharing, lost, unfinished: false, choice, watch, board }
    }

    /// Whether this worker gets tasks of the run.
    fn choose(&self, worker: &WorkerName, home: &Home) -> bool {
        (home.works() || !self.crew.is_reserve(worker))
            && self.choice.as_ref().is_none_or(|choice| choice(worker))
    }

    /// Adds a worker to the account. The farmer's own gets no copies: a task that silences others
    /// may end it.
    fn join<O: Output, S: Sink<O>>(
        &self,
        link: &Link,
        account: &mut Account<'_, O, S>,
        home: &Home,
    ) {
        let worker = account.join(link, self.choose(&link.name, home));
        if self.crew.is_reserve(&link.name) {
            account.ledger.give_no_copies(worker);
        }
        if lookout::may_stop(link) && account.plan.ways.terms.limit.is_some() {
            account.ledger.ask_before_copies(worker);
        }
    }

    /// Whether a worker is still to come that gets tasks of the run.
    fn expects(&self, home: &Home) -> bool {
        self.crew.expects(&self.links, |name| self.choose(name, home))
    }

    fn traffic(&self) -> PeerStats {
        let each = self.links.iter().map(|link| link.peer().stats());
        each.fold(PeerStats::default(), |sum, one| sum.plus(&one))
    }
}

/// A run in progress.
pub(crate) struct Run<'a, O, T, S> {
    workers: &'a mut Workers,
    pub(crate) tasks: T,
    /// Encoded input, after its length, that did not fit in the last assignment.
    carried: Vec<u8>,
    /// Index and attempt of that input, if a farmer above has numbered it.
    carried_numbers: Option<(u64, u32)>,
    /// Result from the journal, with its encoded bytes, of the task after the last assignment.
    recalled: Option<(O, usize)>,
    pub(crate) account: Account<'a, O, S>,
    /// Number of tasks that the farmer above wants back, and that workers were asked for.
    wanted: u64,
    /// Decision whether the farmer's own worker, if it has one in reserve, takes part.
    home: Home,
    /// Timer that is set while workers without tasks wait for others.
    look: Timer,
    /// The worker that this run lost last.
    buried: Option<usize>,
    /// Timer that is set while the cause of a broken link is not known.
    cause_wait: Timer,
    /// Timer that is set while no worker is there, and one is to come.
    alone: Timer,
    sync_wait: Timer,
    lookout: Lookout,
    /// Timer until the next call with the progress; `None` if nothing watches the run.
    show_wait: Option<Timer>,
    /// Timer that wakes the run when it has to stop giving out tasks, or to end.
    drain: Timer,
    /// Traffic before the run.
    before: PeerStats,
}

impl<'a, O: Output, T: Source<Task: Input>, S: Sink<O>> Run<'a, O, T, S> {
    pub(crate) fn new(
        workers: &'a mut Workers,
        plan: Plan,
        function: &str,
        tasks: T,
        sink: S,
        journal: Option<&'a mut Journal>,
    ) -> Self {
        if std::mem::replace(&mut workers.unfinished, true) {
            // At this word a worker drops what it has of another run.
            let word = [Bytes::copy_from_slice(&wire::take_back(plan.run, 1))];
            workers.links.iter_mut().for_each(|link| link.tell(&word));
        }
        let mut account = Account::new(plan, function, sink, tasks.left(), journal);
        let home = Home::new(workers.crew.has_reserve());
        for link in &workers.links {
            workers.join(link, &mut account, &home);
        }
        Run {
            before: workers.traffic(),
            lookout: Lookout::new(plan.ways.terms.limit),
            workers,
            tasks,
            carried: Vec::new(),
            carried_numbers: None,
            recalled: None,
            account,
            wanted: 0,
            home,
            look: Timer::default(),
            buried: None,
            cause_wait: Timer::default(),
            alone: Timer::default(),
            sync_wait: Timer::default(),
            show_wait: None,
            drain: Timer::default(),
        }
    }

    /// Lets sub-farmers reduce the results, unless a journal needs the result of each task.
    pub(crate) fn let_reduce(&mut self) {
        self.account.plan.reduces = self.account.journal.is_none();
    }

    /// Hands results on as they come instead of in the order of the tasks.
    pub(crate) fn hand_on_at_once(&mut self) {
        self.account.hand_on_at_once();
    }

    /// Drives the run to its end.
    pub(crate) async fn drive(mut self) -> Result<RunStats, RunError> {
        poll_fn(|context| self.poll(context)).await?;
        Ok(self.report())
    }

    pub(crate) fn report(&self) -> RunStats {
        let mishaps = self.account.ledger.mishaps();
        let workers = self.account.stats();
        RunStats {
            tasks: workers.iter().map(|worker| worker.tasks).sum::<u64>() - mishaps.dropped,
            elapsed: self.account.started.elapsed(),
            workers,
            recalled: self.account.recalled,
            mishaps,
            timeline: self.timeline(),
            traffic: self.workers.traffic().since(&self.before),
        }
    }

    fn timeline(&self) -> Option<Timeline> {
        let recorder = self.account.recorder.as_ref().filter(|recorder| recorder.keeps());
        recorder.map(|recorder| recorder.timeline.clone())
    }

    pub(crate) fn progress(&self) -> Progress {
        let ledger = &self.account.ledger;
        Progress {
            given: ledger.assigned(),
            unanswered: ledger.unanswered(),
            left: self.left(),
            underway: self.account.underway.sum(),
        }
    }

    /// Returns the number of tasks that the ledger does not have yet, where it is known.
    fn left(&self) -> Option<u64> {
        self.tasks.left().map(|left| left + self.apart())
    }

    /// Returns the number of tasks that left the source and are not in the ledger.
    fn apart(&self) -> u64 {
        u64::from(!self.carried.is_empty()) + u64::from(self.recalled.is_some())
    }

    /// Returns the ledger and the tasks that are not in it.
    pub(crate) fn held(&self) -> (&Ledger, u64) {
        (&self.account.ledger, u64::from(!self.carried.is_empty()))
    }

    /// Returns the time spent in the tasks, and their number.
    pub(crate) fn busy(&self) -> (Duration, u64) {
        let workers = &self.account.workers;
        let tasks = workers.iter().map(|it| it.stats.tasks).sum();
        (workers.iter().map(|it| it.stats.busy).sum(), tasks)
    }

    /// Notes, as another run begins, whether this one has left tasks at the workers.
    pub(crate) fn note_left(&mut self) {
        self.workers.unfinished = self.account.ledger.unanswered() > 0;
    }

    /// Sets the function, by its index, of the tasks that follow.
    pub(crate) fn set_function(&mut self, function: u32) {
        self.account.plan.function = function;
    }

    /// Returns the number of threads, or of virtual workers, of all workers that are there.
    pub(crate) fn threads(&self) -> u32 {
        let links = self.workers.links.iter().enumerate();
        let there = links.filter(|(_, link)| link.is_open());
        there.fold(0, |sum, (worker, _)| sum.saturating_add(self.account.workers[worker].threads))
    }

    /// Returns the number of workers that were lost so far, in earlier runs too.
    pub(crate) fn lost(&self) -> u64 {
        self.workers.links.iter().filter(|link| link.lost.is_some()).count() as u64
    }

    /// Takes a part of a shared value from the farmer above.
    pub(crate) fn relay(&mut self, part: &Part<'_>) {
        self.workers.sharing.relay(part);
    }

    /// Lets the workers forget a shared value, as the farmer above does.
    pub(crate) fn forget(&mut self, digest: u128) {
        let message = self.workers.sharing.forget(digest);
        for worker in 0..self.workers.links.len() {
            self.tell(worker, message.clone());
        }
    }

    /// Sends a worker a short word, as soon as there is room.
    fn tell(&mut self, worker: usize, word: Bytes) {
        let link = &mut self.workers.links[worker];
        link.tell(&[word]);
        if link.is_stalled() {
            // Nothing is assigned while the word waits for room.
            self.account.ledger.handle_stalled(worker);
        }
    }

    /// Runs one turn. Every link and the crew were polled until they were pending, so
    /// the next event wakes the context.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), RunError>> {
        let polled = self.poll_turn(context);
        if let (Poll::Ready(Err(_)), Some(journal)) = (&polled, &mut self.account.journal) {
            // The run's error is the first; the next run reports a journal that cannot be written.
            let _ = journal.end_run();
        }
        polled
    }

    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<Result<(), RunError>> {
        self.account.look_at_clock();
        self.meet(context)?;
        for worker in 0..self.workers.links.len() {
            self.take_answers(worker, context)?;
            self.send_stalled(worker, context)?;
        }
        self.look_home();
        self.retire_late()?;
        self.note_ends(context)?;
        let drains = self.drains(context)?;
        if !drains {
            self.give_out(context)?;
        }
        self.account.note_held();
        if self.account.ledger.is_done() {
            if let Some(journal) = &mut self.account.journal {
                journal.end_run()?;
            }
            self.workers.unfinished = false;
            self.show_now();
            self.post(true);
            return Poll::Ready(Ok(()));
        }
        self.keep_journal(context)?;
        self.look_for_silent(context)?;
        if !drains {
            self.even_out(context)?;
        }
        if self.is_in_doubt() {
            // Links may have broken in this turn.
            self.note_ends(context)?;
        }
        self.reply(context)?;
        self.check_for_workers(context)?;
        self.show(context);
        Poll::Pending
    }

    /// Whether the farm's time is nearly over, so that nothing new is given out.
    fn drains(&mut self, context: &mut Context<'_>) -> Result<bool, RunError> {
        let Some(end) = self.account.plan.ways.end else { return Ok(false) };
        let end_ns = nanos(end - self.account.started);
        loop {
            let ledger = &self.account.ledger;
            let longest_ns = ledger.longest_ns();
            let held_ns = longest_ns.saturating_add(longest_ns / 4).saturating_add(DRAIN_NS_MIN);
            let begin_ns = end_ns.saturating_sub(held_ns);
            let drains = self.account.now_ns >= begin_ns;
            if drains && (ledger.is_at_rest() || self.account.now_ns >= end_ns) {
                if ledger.unanswered() == 0 && self.has_no_more() {
                    self.account.ledger.handle_source(false, true);
                    return Ok(true);
                }
                let (given, unanswered) = (ledger.assigned(), ledger.unanswered());
                let error = RunError::OutOfTime { given, unanswered };
                self.workers.lost = Some(error.clone());
                return Err(error);
            }
            let next_ns = if drains { end_ns } else { begin_ns };
            let at = self.account.started + Duration::from_nanos(next_ns);
            if !self.drain.has_come(at, context) {
                return Ok(drains);
            }
            self.account.look_at_clock();
        }
    }

    /// Whether the source is known to have no further task.
    fn has_no_more(&self) -> bool {
        self.carried.is_empty() && self.recalled.is_none() && self.tasks.left() == Some(0)
    }

    /// Writes the results accepted in this turn, and makes them permanent in time.
    fn keep_journal(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        let Some(journal) = &mut self.account.journal else { return Ok(()) };
        if journal.end_turn()? && self.sync_wait.is_over(SYNC_WAIT, context) {
            journal.sync()?;
        }
        Ok(())
    }

    /// Takes workers that have become ready.
    fn meet(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        while let Poll::Ready(met) =
            self.workers.reception.poll_met(&mut self.workers.crew, context)
        {
            match met {
                Met::Ready(link) => {
                    self.workers.join(&link, &mut self.account, &self.home);
                    self.workers.links.push(*link);
                }
                Met::Placed(_) => {}
                Met::Not(error, _) => self.workers.crew.note_refused(&error),
            }
        }
        let handed = self.workers.reception.handed();
        match &mut self.account.journal {
            Some(journal) if !handed.is_empty() => Ok(journal.take_over(handed)?),
            _ => Ok(()),
        }
    }

    fn take_answers(&mut self, worker: usize, context: &mut Context<'_>) -> Result<(), RunError> {
        let (link, account) = (&mut self.workers.links[worker], &mut self.account);
        if !link.is_open() {
            return Ok(());
        }
        let mut is_heard = false;
        let loss = loop {
            match link.poll_answer(context, |bytes| account.take_answer(worker, bytes)) {
                Poll::Ready(Ok(Ok(()))) => is_heard = true,
                Poll::Ready(Ok(Err(Refused::Run(error)))) => return Err(error),
                Poll::Ready(Ok(Err(Refused::Worker))) => break WorkerEnd::Malformed.into(),
                Poll::Ready(Err(loss)) => break loss,
                Poll::Pending => {
                    if is_heard {
                        account.ledger.handle_sign(worker, account.now_ns);
                        self.lookout.handle_heard(worker, account.now_ns);
                    }
                    if link.farms {
                        link.threads = account.workers[worker].threads;
                        let below = account.workers[worker].below;
                        if std::mem::replace(&mut link.lost_below, below) < below {
                            self.work_no_more();
                        }
                    }
                    return Ok(());
                }
            }
        };
        self.lose(worker, loss)
    }

    fn send_stalled(&mut self, worker: usize, context: &mut Context<'_>) -> Result<(), RunError> {
        match self.workers.links[worker].poll_stalled(context) {
            Poll::Ready(Ok(())) => self.account.ledger.handle_sent(worker),
            // The assignment was not too large, or it would not have waited.
            Poll::Ready(Err(error)) => return self.lose(worker, error.into()),
            Poll::Pending => {}
        }
        Ok(())
    }

    /// Takes up to `count` tasks back from the workers; the tasks go to the sink as they come.
    pub(crate) fn take_back(
        &mut self,
        mut count: u64,
        context: &mut Context<'_>,
    ) -> Result<(), RunError> {
        self.wanted = 0;
        while let Some((worker, asked)) = self.account.ledger.poll_spare(count, self.account.now_ns)
        {
            self.ask_back(worker, asked, context)?;
            self.wanted += asked;
            count -= asked;
        }
        Ok(())
    }

    fn ask_back(
        &mut self,
        worker: usize,
        count: u64,
        context: &mut Context<'_>,
    ) -> Result<(), RunError> {
        let order = wire::take_back(self.account.plan.run, count);
        let sent = self.workers.links[worker].send(&order, &self.workers.sharing, context);
        self.note_sent(worker, (0, 0, sent))
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
            Poll::Ready(Err(error)) => self.lose(worker, error.into()),
        }
    }

    /// Gives workers without tasks some that others hold.
    fn even_out(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        while let Some((victim, count)) = self.account.ledger.poll_victim(self.account.now_ns) {
            self.ask_back(victim, count, context)?;
        }
        if !self.account.ledger.is_in_tail() {
            self.look = Timer::default();
            return Ok(());
        }
        while self.look.is_over(LOOK, context) {
            self.account.look_at_clock();
            let now_ns = self.account.now_ns;
            while let Some(found) = self.account.ledger.poll_straggler(now_ns) {
                let (worker, first, count, message) = found;
                let sent = self.workers.links[worker].send(message, &self.workers.sharing, context);
                self.note_sent(worker, (first, count, sent))?;
            }
        }
        Ok(())
    }
}

mod ends;
mod giving;
mod home;
mod lookout;
mod posting;
mod telling;
mod timer;
