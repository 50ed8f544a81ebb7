//! One run: tasks go out and results come in, as one hand-written future.
//!
//! A turn takes every answer that is there, from all workers, before it gives out
//! new assignments, so that the channels below gather both. On this path a task costs
//! no allocation and no lock, beyond what the values themselves need.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use chunkcomm::SendError;
use chunkcomm::host;

use crate::account::{Account, Plan, Refused};
use crate::crew::Crew;
use crate::error::{Loss, RunError};
use crate::handshake::{Met, Reception};
use crate::journal::Journal;
use crate::link::Link;
use crate::proto::ledger::Ledger;
use crate::proto::wire::{self, Part};
use crate::settings::nanos;
use crate::shared::Sharing;
use crate::stats::{Progress, RunStats, Traffic};
use crate::tasks::{Input, Output, Sink, Source};

/// Bytes from which an assignment of measured grain takes no further task.
const ASSIGNMENT_BYTES: usize = 128 << 10;

/// Time to wait for the cause of a broken link. The farmer sees the break before the end of the
/// process that caused it.
const CAUSE_WAIT: Duration = Duration::from_secs(2);

/// Time before the end of the farm's time from which on nothing is given out, besides 1.25 times the
/// longest time that an answer took.
const DRAIN_NS_MIN: u64 = 100_000_000;

/// Time between two looks for silent workers at the end of a run.
const LOOK: Duration = Duration::from_millis(50);

/// Number of results from the journal in a turn: the nodes of the farmer are to be heard meanwhile.
const RECALLS: u32 = 256;

/// Longest time that accepted results are in the journal and not permanent.
const SYNC_WAIT: Duration = Duration::from_secs(1);

/// The farm's side of a run: its workers, and how others come.
pub(crate) struct Workers<'a> {
    pub(crate) links: &'a mut Vec<Link>,
    pub(crate) crew: &'a mut Crew,
    pub(crate) reception: &'a mut Reception,
    pub(crate) sharing: &'a mut Sharing,
    /// Why the farm can run nothing more.
    pub(crate) lost: &'a mut Option<RunError>,
    /// Whether the last run has left tasks at the workers.
    pub(crate) unfinished: &'a mut bool,
}

impl Workers<'_> {
    fn traffic(&self) -> Traffic {
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
    /// Its index and attempt, where a farmer above has numbered it.
    carried_numbers: Option<(u64, u32)>,
    /// The result of the task after those of the last assignment, from the journal.
    recalled: Option<O>,
    account: Account<'a, O, S>,
    /// Number of tasks that the farmer above wants back, and workers were asked for.
    wanted: u64,
    /// Set while workers without tasks wait for others.
    look: Option<Timer>,
    /// Workers whose link broke, with what that looked like, until the cause is known.
    broken: Vec<(usize, Loss)>,
    cause_wait: Option<Timer>,
    /// Set while nobody works, and somebody is to come.
    alone: Option<Timer>,
    sync_wait: Option<Timer>,
    /// Wakes the run when it has to give nothing more out, or to end; set for this time.
    drain: Option<(u64, Timer)>,
    /// Traffic before the run.
    before: Traffic,
}

/// New tasks for a worker.
struct Written {
    first: u64,
    count: u32,
    /// How often the farmer above has given them out before.
    attempt: u32,
    /// The assignment.
    message: Vec<u8>,
}

type Timer = Pin<Box<dyn Future<Output = ()> + Send>>;

impl<'a, I, O, T, S> Run<'a, I, O, T, S>
where
    I: Input,
    O: Output,
    T: Source<Task = I>,
    S: Sink<O>,
{
    pub(crate) fn new(
        workers: Workers<'a>,
        plan: Plan,
        function: &str,
        tasks: T,
        sink: S,
        journal: Option<&'a mut Journal>,
    ) -> Self {
        if std::mem::replace(workers.unfinished, true) {
            // A worker drops what it has of another run.
            let word = [Bytes::copy_from_slice(&wire::take_back(plan.run, 1))];
            workers.links.iter_mut().for_each(|link| link.tell(&word));
        }
        let mut account = Account::new(plan, function, sink, tasks.left(), journal);
        workers.links.iter().for_each(|link| account.join(link));
        // The cause of their end was not known when the run before ended.
        let is_broken = |link: &Link| !link.is_open() && link.lost.is_none();
        let broken = workers.links.iter().enumerate().filter(|(_, link)| is_broken(link));
        let broken: Vec<_> = broken.map(|(worker, _)| (worker, Loss::Closed)).collect();
        broken.iter().for_each(|&(worker, _)| account.ledger.handle_stalled(worker));
        Run {
            before: workers.traffic(),
            workers,
            tasks,
            carried: Vec::new(),
            carried_numbers: None,
            recalled: None,
            account,
            wanted: 0,
            look: None,
            broken,
            cause_wait: None,
            alone: None,
            sync_wait: None,
            drain: None,
        }
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
            timeline: self.account.recorder.as_ref().map(|recorder| recorder.timeline.clone()),
            traffic: self.workers.traffic().with(&self.before, u64::saturating_sub),
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

    pub(crate) fn sink(&mut self) -> &mut S {
        &mut self.account.sink
    }

    pub(crate) fn source(&mut self) -> &mut T {
        &mut self.tasks
    }

    /// Returns the ledger and the tasks that are not in it.
    pub(crate) fn held(&self) -> (&Ledger, u64) {
        (&self.account.ledger, u64::from(!self.carried.is_empty()))
    }

    /// Returns the time spent in the tasks, and their number.
    pub(crate) fn busy(&self) -> (Duration, u64) {
        let stats = &self.account.stats;
        (stats.iter().map(|it| it.busy).sum(), stats.iter().map(|it| it.tasks).sum())
    }

    /// Notes, as another run begins, whether this one has left tasks at the workers.
    pub(crate) fn note_left(&mut self) {
        *self.workers.unfinished = self.account.ledger.unanswered() > 0;
    }

    /// Sets the function, by its index, of the tasks that follow.
    pub(crate) fn set_function(&mut self, function: u32) {
        self.account.plan.function = function;
    }

    /// Number of threads, or of virtual workers, of all workers that are there.
    pub(crate) fn threads(&self) -> u32 {
        let links = self.workers.links.iter().enumerate();
        let there = links.filter(|(_, link)| link.is_open());
        there.fold(0, |sum, (worker, _)| sum.saturating_add(self.account.threads(worker)))
    }

    /// Number of workers that were lost so far, in earlier runs too.
    pub(crate) fn lost(&self) -> u64 {
        self.workers.links.iter().filter(|link| link.lost.is_some()).count() as u64
    }

    /// Takes a part of a shared value from the farmer above.
    pub(crate) fn relay(&mut self, part: &Part<'_>) {
        self.workers.sharing.relay(part);
    }

    /// Lets the workers forget a shared value, as the farmer above does.
    pub(crate) fn forget(&mut self, digest: u128) {
        let message = [self.workers.sharing.forget(digest)];
        for (worker, link) in self.workers.links.iter_mut().enumerate() {
            link.tell(&message);
            if link.is_stalled() {
                // Nothing is assigned while the word waits for room.
                self.account.ledger.handle_stalled(worker);
            }
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
            *self.workers.unfinished = false;
            return Poll::Ready(Ok(()));
        }
        self.keep_journal(context)?;
        if !drains {
            self.even_out(context)?;
        }
        if !self.broken.is_empty() {
            // Some may have broken in this turn.
            self.note_ends(context)?;
        }
        self.check_for_workers(context)?;
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
                *self.workers.lost = Some(error.clone());
                return Err(error);
            }
            let next_ns = if drains { end_ns } else { begin_ns };
            if self.drain.as_ref().is_none_or(|&(at_ns, _)| at_ns != next_ns) {
                let at = self.account.started + Duration::from_nanos(next_ns);
                self.drain = Some((next_ns, Box::pin(host::sleep_until(at))));
            }
            let is_over = |(_, timer): &mut (u64, Timer)| timer.as_mut().poll(context).is_ready();
            if !self.drain.as_mut().is_some_and(is_over) {
                return Ok(drains);
            }
            self.drain = None;
            self.account.look_at_clock();
        }
    }

    /// Whether the source is known to have no further task.
    fn has_no_more(&self) -> bool {
        self.carried.is_empty() && self.recalled.is_none() && self.tasks.left() == Some(0)
    }

    /// Writes what was accepted in this turn, and makes it permanent in time.
    fn keep_journal(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        let Some(journal) = &mut self.account.journal else { return Ok(()) };
        if !journal.end_turn()? {
            return Ok(());
        }
        let wait = self.sync_wait.get_or_insert_with(|| Box::pin(host::sleep(SYNC_WAIT)));
        if wait.as_mut().poll(context).is_ready() {
            self.sync_wait = None;
            journal.sync()?;
        }
        Ok(())
    }

    /// Takes workers that have become ready.
    fn meet(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        while let Poll::Ready(met) = self.workers.reception.poll_met(self.workers.crew, context) {
            match met {
                Met::Ready(link) => {
                    self.account.join(&link);
                    self.workers.links.push(link);
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

    /// Ends worker processes that are at a task that has not ended in time.
    fn retire_late(&mut self) -> Result<(), RunError> {
        while let Some((worker, task)) = self.account.late.pop() {
            if self.workers.links[worker].name.pid.is_some() {
                self.bury(worker, &Loss::Stuck { task })?;
            }
        }
        Ok(())
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
                Poll::Pending => {
                    if link.farms {
                        link.threads = account.threads(worker);
                        link.lost_below = account.below(worker);
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

    /// Opens what a lost worker held for others. A process that has not ended is killed: it may not
    /// see that its tasks have ended, while its answers wait.
    fn bury(&mut self, worker: usize, loss: &Loss) -> Result<(), RunError> {
        self.broken.retain(|&(broken, _)| broken != worker);
        let link = &mut self.workers.links[worker];
        link.end_tasks();
        self.account.stats[worker].lost = Some(loss.clone());
        if link.lost.replace(loss.clone()).is_some() {
            return Ok(());
        }
        if !matches!(loss, Loss::Exited(_)) {
            self.workers.crew.kill(&self.workers.links[worker].name);
        }
        let link = &self.workers.links[worker];
        self.workers.crew.note_lost(link.name.index, link.arrival);
        // A worker that left, or was ended, did not die of its tasks.
        let blame = !matches!(loss, Loss::Closed | Loss::Stuck { .. });
        self.account.lose(worker, loss, blame)
    }

    /// Takes up to `count` tasks back from the workers; they go to the sink as they come.
    pub(crate) fn take_back(
        &mut self,
        mut count: u64,
        context: &mut Context<'_>,
    ) -> Result<(), RunError> {
        self.wanted = 0;
        while let Some((worker, asked)) = self.account.ledger.poll_spare(count) {
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
        let sent = self.workers.links[worker].send(&order, self.workers.sharing, context);
        self.note_sent(worker, (0, 0, sent))
    }

    fn give_out(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
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
                    (first, count, link.send(message, self.workers.sharing, context))
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
                    (first, count, link.send(message, self.workers.sharing, context))
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

    /// Writes the next tasks, as many as the grain or as there are.
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
        let bytes_max = match account.is_measured(worker) {
            true => taken.min(ASSIGNMENT_BYTES),
            // A sub-farmer's tasks fit one by one: so its farmer sent them.
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
                let read = |bytes: &[u8]| O::read(bytes).ok();
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
        Ok(Written { first, count, attempt, message })
    }

    /// Lets workers without tasks have some of those that others hold.
    fn even_out(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        while let Some((victim, count)) = self.account.ledger.poll_victim() {
            self.ask_back(victim, count, context)?;
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
                let sent = self.workers.links[worker].send(message, self.workers.sharing, context);
                self.note_sent(worker, (first, count, sent))?;
            }
        }
    }

    /// Ends the run when nobody is left to work, and nobody is to come or has come in the time to start.
    fn check_for_workers(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        if self.account.ledger.present() > 0 {
            self.alone = None;
            return Ok(());
        }
        if self.workers.crew.expects(self.workers.links) {
            let start = self.account.plan.ways.start;
            let wait = self.alone.get_or_insert_with(|| Box::pin(host::sleep(start)));
            if wait.as_mut().poll(context).is_pending() {
                return Ok(());
            }
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
