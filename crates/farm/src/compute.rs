//! Tasks that a worker holds, and the threads that run them.
//!
//! ```text
//!   assignments ──▶ queue ──▶ slice ──▶ I/O loop, for tiny tasks ──┐
//!                     │         └─────▶ compute threads ───────────┤
//!                     ▼                                            ▼
//!                 given back                                    answers
//! ```
//!
//! A runner takes the next few tasks of the oldest assignment, a *slice*. It runs them and adds
//! their results to its answer. The answer leaves
//!
//! - at the end of an assignment when it has as many tasks as are left, so that new ones come in
//!   time;
//! - after [`HOLD`];
//! - when the runner has nothing to do.
//!
//! A farmer that was woken for each result would do little else.
//!
//! A runner whose task blocks its thread steps aside, and another takes its place: `aside.rs`.
//!
//! Tasks of an async function are begun one by one. While they wait they are in `waits.rs`, and any
//! thread goes on with them. Their results are gathered in one place, since they end in any order.

use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use chunkcomm::host::{self, Instant};
use chunkcomm::with_causes;
use chunkcomm_cluster::registry::Entry;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

pub(crate) use self::aside::while_aside;
use self::queue::Queue;
pub(crate) use self::report::ANSWER_BYTES;
use self::report::{Done, Report};
use self::runner::Runner;
use self::waits::Begun;
use crate::context::{Common, Long, Work, run_each};
use crate::needs::Needs;
use crate::pieces::Piece;
use crate::proto::placement::Place;
use crate::proto::width::Width;
use crate::proto::wire::{self, Assignment, TaskTimeout};
use crate::settings::nanos;
use crate::threads::{spawn, start_thread};
use crate::values::{Values, drop_quietly};

mod aside;
mod queue;
mod report;
mod runner;
mod waits;

/// Longest time that a result waits for others to be sent with it.
pub(crate) const HOLD: Duration = Duration::from_millis(100);

/// Longest time that tasks run in the I/O loop between two looks after packets.
pub(crate) const SLICE: Duration = Duration::from_micros(50);

/// Shortest time between two looks after the compute threads.
const LOOK_MIN: Duration = Duration::from_millis(1);

/// Delay from which a look at the threads counts as late.
const LATE_MIN: Duration = Duration::from_millis(100);

/// Number of threads with given-up tasks at which a worker ends. It is twice the number of its
/// other threads, if that is more.
const STUCK_MAX: usize = 64;

struct Shared {
    queue: Mutex<Queue>,
    /// Runners that were not given up.
    seats: Mutex<Vec<Seat>>,
    answers: UnboundedSender<Vec<u8>>,
    common: Arc<Common>,
    /// Runtime of the I/O loop, which has the timers that async tasks wait for.
    runtime: Handle,
    /// Wakes the compute threads; in a simulation, their tasks.
    work: Condvar,
    virtual_work: Notify,
    /// Wakes threads whose tasks wait to go on.
    places: Condvar,
    /// Results of async tasks. Never locked while the queue is being locked.
    done: Mutex<Done>,
    entries: Vec<Entry>,
    /// Time limit of a task, and the moment from which times are counted.
    limit: Option<TaskTimeout>,
    started: Instant,
    /// Sum of the delays of late looks. The process was stopped then, so they are no time of a
    /// task.
    stopped_ns: AtomicU64,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        locked(&self.queue)
    }

    /// Returns the current time in nanoseconds, if the time of tasks is limited.
    #[inline]
    fn clock(&self) -> u64 {
        if self.limit.is_none() {
            return 0;
        }
        nanos(self.started.elapsed()).saturating_sub(self.stopped_ns.load(Ordering::Relaxed))
    }

    /// Wakes a compute thread.
    fn wake_one(&self) {
        if host::is_virtual() {
            self.virtual_work.notify_waiters();
        } else {
            self.work.notify_one();
        }
    }

    fn wake(&self) {
        if host::is_virtual() {
            self.virtual_work.notify_waiters();
        } else {
            self.work.notify_all();
        }
    }
}

/// Drops tasks whose results nobody wants.
fn discard(tasks: impl IntoIterator<Item = Begun>) {
    tasks.into_iter().for_each(drop_quietly);
}

/// A runner as the I/O loop sees it.
#[derive(Clone)]
struct Seat {
    /// Its results.
    report: Arc<Mutex<Report>>,
    work: Arc<Work>,
    /// The tasks of its slice: their run, the first, and their number.
    slice: Arc<Mutex<(u32, u64, u32)>>,
    /// The task that was last asked to end, and the time of its begin.
    asked: Option<(u64, u64)>,
}

/// Tasks of a worker as its I/O loop sees them. When this is dropped, the threads end after their
/// current task; nobody waits for that.
pub(crate) struct Compute {
    shared: Arc<Shared>,
    answered: UnboundedReceiver<Vec<u8>>,
    /// Results of the tasks that the loop ran itself.
    report: Report,
    work: Arc<Work>,
    threads: u32,
    /// Runners that were given up, with tasks that have not ended.
    stuck: Vec<Arc<Work>>,
    /// Time of the next look, while compute threads are at work.
    due: Option<Instant>,
}

impl Compute {
    /// Starts this number of threads, each with this number of virtual workers, or a measured one.
    /// An assignment names its function by the index in `entries`.
    pub(crate) fn start(
        entries: Vec<Entry>,
        threads: u32,
        limit: Option<TaskTimeout>,
        virtual_workers: Option<u32>,
    ) -> std::io::Result<Compute> {
        let threads = threads.max(1);
        let is_async = entries.iter().map(Entry::is_async).collect();
        let width = Width::new(threads, virtual_workers);
        let (answers, answered) = unbounded_channel();
        let common = Arc::<Common>::default();
        let work = Arc::new(Work::new(common.clone()));
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue::new(is_async, width, threads, limit.is_some())),
            seats: Mutex::default(),
            answers,
            common,
            runtime: Handle::current(),
            work: Condvar::new(),
            virtual_work: Notify::new(),
            places: Condvar::new(),
            done: Mutex::default(),
            entries,
            limit,
            started: Instant::now(),
            stopped_ns: AtomicU64::new(0),
        });
        let report = Report::default();
        // If a thread cannot be started, dropping this ends the threads before it.
        let stuck = Vec::new();
        let compute = Compute { shared, answered, report, work, threads, stuck, due: None };
        for _ in 0..threads {
            compute.shared.start_runner()?;
        }
        Ok(compute)
    }

    /// Lets tasks ask the farmer for values, in messages of at most this size.
    pub(crate) fn connect(&self, bytes_max: u64) {
        self.shared.common.needs.connect(self.shared.answers.clone(), bytes_max);
    }

    /// Returns the values that tasks have asked the farmer for.
    pub(crate) fn needs(&self) -> &Needs {
        &self.shared.common.needs
    }

    /// Returns the shared values.
    pub(crate) fn values(&self) -> &Values {
        &self.shared.common.values
    }

    /// Waits until [`look`](Compute::look) is due; for ever while no compute thread is at work.
    ///
    /// # Cancel safety
    /// The next call waits for the same time.
    pub(crate) async fn wait_until(due: Option<Instant>) {
        match due {
            Some(due) => host::sleep_until(due).await,
            None => pending().await,
        }
    }

    /// Returns when the next look is due.
    pub(crate) fn due(&mut self) -> Option<Instant> {
        if !self.is_at_work() {
            self.due = None;
            return None;
        }
        let after = self.look_after();
        Some(*self.due.get_or_insert_with(|| Instant::now() + after))
    }

    fn look_after(&self) -> Duration {
        let Some(limit) = self.shared.limit else { return HOLD };
        (limit.timeout.min(limit.grace) / 4).clamp(LOOK_MIN, HOLD)
    }

    /// Looks after the compute threads.
    ///
    /// Returns answers that have waited for long, whose runners are at a long task. Also returns
    /// words about the progress of tasks, and about late tasks.
    ///
    /// # Errors
    /// A thread cannot be replaced.
    pub(crate) fn look(&mut self) -> std::io::Result<Vec<Vec<u8>>> {
        let now = Instant::now();
        self.note_stop(now);
        let mut messages = Vec::new();
        let mut done = locked(&self.shared.done);
        if done.is_old(now) {
            messages.extend(done.take());
        }
        drop(done);
        let now_ns = nanos(now - self.shared.started);
        messages.extend(self.shared.common.reports().poll_word(now_ns));
        self.look_at_waits(&mut messages);
        let shared = &self.shared;
        let mut given_up = Vec::new();
        locked(&shared.seats).retain_mut(|seat| {
            let mut report = locked(&seat.report);
            messages.extend(if report.is_old(now) { report.take() } else { None });
            drop(report);
            let Some((limit, long)) = shared.limit.zip(seat.work.now()) else { return true };
            let time = Duration::from_nanos(shared.clock().saturating_sub(long.begun_ns));
            if time < limit.timeout {
                return true;
            }
            seat.work.cancel(long.serial);
            let asked = (long.index, long.begun_ns);
            if seat.asked.replace(asked) != Some(asked) {
                // A task that was just asked has time until the next look, however late this one is.
                return true;
            }
            if time >= limit.after() && shared.give_up(seat, long, &mut messages) {
                given_up.push(seat.work.clone());
                return false;
            }
            true
        });
        // An ended runner has dropped its part.
        self.stuck.retain(|work| Arc::strong_count(work) > 1);
        let mut started = Ok(());
        for work in given_up {
            self.stuck.push(work);
            started = started.and(shared.start_runner());
        }
        started.map(|()| messages)
    }

    /// Takes the delay of a late look for a stop of the process, and gives the tasks that much more
    /// time.
    fn note_stop(&mut self, now: Instant) {
        let late = self.due.take().map_or(Duration::ZERO, |due| now - due);
        if late >= LATE_MIN {
            self.shared.stopped_ns.fetch_add(nanos(late), Ordering::Relaxed);
        }
    }

    /// Drops waiting tasks whose time and grace are over.
    fn look_at_waits(&mut self, messages: &mut Vec<Vec<u8>>) {
        let Some(limit) = self.shared.limit else { return };
        let now_ns = self.shared.clock();
        let mut queue = self.shared.queue();
        let (over, any_woken) = queue.waits.look(now_ns, limit);
        drop(queue);
        let late = |task: &Begun| wire::late(task.context.run(), task.context.index(), false);
        messages.extend(over.iter().map(|task| late(task).to_vec()));
        if any_woken || !over.is_empty() {
            // The dropped tasks make room for others.
            self.shared.wake();
        }
        discard(over);
    }

    /// Whether too many given-up tasks have not ended.
    pub(crate) fn is_stuck(&self) -> bool {
        let runners = self.shared.queue().runners as usize;
        self.stuck.len() >= STUCK_MAX.max(2 * runners)
    }

    /// Whether compute threads are at work.
    fn is_at_work(&self) -> bool {
        let queue = self.shared.queue();
        queue.left() > 0 || queue.waiting < queue.runners
    }

    /// Takes an assignment; returns `false` if it names no function.
    pub(crate) fn put(&mut self, assignment: &Assignment<'_>) -> bool {
        let Assignment { run, function, .. } = *assignment;
        let mut queue = self.shared.queue();
        if function as usize >= self.shared.entries.len() {
            return false;
        }
        let (is_other, dropped) = queue.enter(run);
        let unanswered = is_other.then(|| self.shared.common.enter(run));
        queue.pieces.put(assignment);
        let placed = queue.loops && queue.placements[function as usize].place() == Place::Loop;
        let waiting = queue.waiting;
        drop(queue);
        drop(unanswered);
        if !placed {
            // Further threads only stand in for these.
            (0..waiting.min(self.threads)).for_each(|_| self.shared.wake_one());
        }
        discard(dropped);
        true
    }

    /// Removes up to `count` tasks of this run that are not begun, and returns their ranges.
    pub(crate) fn give_back(&mut self, run: u32, count: u64) -> Vec<(u64, u32)> {
        let mut queue = self.shared.queue();
        // A ping is of no run.
        let (is_other, dropped) = if count > 0 { queue.enter(run) } else { (false, Vec::new()) };
        let unanswered = is_other.then(|| self.shared.common.enter(run));
        let given = queue.pieces.give_back(count);
        drop(queue);
        drop(unanswered);
        discard(dropped);
        given
    }

    /// Runs the next tasks in the loop for about this time, if they are tiny. Returns whether it
    /// did, and answers that must leave.
    pub(crate) async fn run_here(&mut self, target: Duration) -> (bool, [Option<Vec<u8>>; 2]) {
        let taken = self.shared.queue().take(Place::Loop, target.as_nanos() as f64);
        let Some(slice) = taken else {
            return (false, [self.report.take(), None]);
        };
        let started = Instant::now();
        let before = self.report.begin(&slice.tasks, started);
        let (shared, bytes) = (&self.shared, &mut self.report.bytes);
        let (is_seen, work) = host::working(|| shared.run(&slice.tasks, bytes, &self.work));
        work.done().await;
        let ended = self.shared.measure(&slice.tasks, started, is_seen);
        self.report.count += slice.tasks.count;
        self.report.busy += ended - started;
        let due = self.report.is_due(&slice, ended);
        (true, [before, if due { self.report.take() } else { None }])
    }

    /// Waits for the next answer of a compute thread.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn answered(&mut self) -> Vec<u8> {
        self.answered.recv().await.expect("the compute threads are there")
    }

    pub(crate) fn try_answered(&mut self) -> Option<Vec<u8>> {
        self.answered.try_recv().ok()
    }

    /// Returns answers with all results that are there, however young they are.
    pub(crate) fn rest(&mut self) -> Vec<Vec<u8>> {
        let later = Instant::now() + HOLD;
        let mut done = locked(&self.shared.done);
        let mut answers = if done.is_old(later) { done.take() } else { Vec::new() };
        drop(done);
        answers
            .extend(locked(&self.shared.seats).iter().filter_map(|it| locked(&it.report).take()));
        answers.extend(self.report.take());
        answers.extend(std::iter::from_fn(|| self.try_answered()));
        answers
    }
}

impl Drop for Compute {
    fn drop(&mut self) {
        let mut queue = self.shared.queue();
        queue.closed = true;
        queue.pieces.clear();
        let dropped = queue.waits.clear();
        drop(queue);
        self.shared.common.closed.store(true, Ordering::Relaxed);
        drop(self.shared.common.needs.close());
        self.shared.wake();
        self.shared.places.notify_all();
        discard(dropped);
    }
}

impl Shared {
    /// Starts a runner, which is counted already.
    fn start_runner(self: &Arc<Shared>) -> std::io::Result<()> {
        let work = Arc::new(Work::new(self.common.clone()));
        let (report, slice) = (Arc::<Mutex<Report>>::default(), Arc::<Mutex<_>>::default());
        let (shared, seat) = (self.clone(), Seat { report, work, slice, asked: None });
        let runner = Runner { shared, seat: seat.clone() };
        if host::is_virtual() {
            spawn(Box::pin(runner.compute_virtually()));
        } else {
            let started =
                start_thread("farm-compute".to_owned(), Box::new(move || runner.compute()));
            if started.is_err() {
                self.queue().runners -= 1;
                // A thread may have stood back for the new one.
                self.wake_one();
                self.places.notify_one();
            }
            started?;
        }
        locked(&self.seats).push(seat);
        Ok(())
    }

    /// Gives a runner up, if it is still at this task, and gives its other tasks back. Returns
    /// whether it did; another runner must then take its place.
    fn give_up(&self, seat: &Seat, long: Long, messages: &mut Vec<Vec<u8>>) -> bool {
        let slice = locked(&seat.slice);
        let (run, first, count) = *slice;
        let end = first + u64::from(count);
        if seat.work.now() != Some(long) || !(first..end).contains(&long.index) {
            return false;
        }
        // The runner locks the slice before it reports, and then ends.
        let mut queue = self.queue();
        seat.work.abandon();
        queue.aside -= u32::from(seat.work.is_aside());
        queue.back -= u32::from(seat.work.is_back());
        queue.waits.give_up(run, long.index);
        drop((queue, slice));
        self.places.notify_all();
        self.common.needs.give_up(run, long.index);
        messages.extend(locked(&seat.report).take());
        messages.push(wire::late(run, long.index, true).to_vec());
        for (first, end) in [(first, long.index), (long.index + 1, end)] {
            if first < end {
                messages.push(wire::returned(run, first, (end - first) as u32).to_vec());
            }
        }
        true
    }

    /// Runs tasks and appends their results; returns whether the function looked at its context.
    fn run(&self, tasks: &Piece, results: &mut Vec<u8>, work: &Arc<Work>) -> bool {
        let entry = &self.entries[tasks.function as usize];
        let mut inputs = tasks.inputs();
        let run_next = || {
            let ran = match inputs.next() {
                Ok(Some(input)) => wire::put_item(results, |out| entry.call(input, out))
                    .map_err(|error| with_causes(&error)),
                _ => Err("the assignment's bytes are not whole".to_owned()),
            };
            if let Err(text) = ran {
                wire::put_failure(results, &text);
            }
        };
        run_each(work, tasks, || self.clock(), run_next)
    }

    /// Notes the time of finished tasks; returns the moment of their end.
    fn measure(&self, tasks: &Piece, started: Instant, is_seen: bool) -> Instant {
        let ended = Instant::now();
        let mut queue = self.queue();
        let placement = &mut queue.placements[tasks.function as usize];
        let place = placement.place();
        if is_seen {
            placement.keep_on_thread();
        }
        placement.handle_done(tasks.count, nanos(ended - started));
        let leaves_loop = place == Place::Loop && placement.place() == Place::Thread;
        let wakes = leaves_loop && queue.waiting > 0;
        if queue.width.is_told() {
            queue.width.handle_ended(tasks.count);
        }
        drop(queue);
        if wakes {
            self.wake();
        }
        ended
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nothing panics with this locked")
}

#[cfg(test)]
mod tests;
