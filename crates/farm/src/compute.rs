//! The tasks that a worker holds, and the threads that run them.
//!
//! ```text
//!   assignments ──▶ queue ──▶ slice ──▶ I/O loop, for tiny tasks ──┐
//!                     │         └─────▶ compute threads ───────────┤
//!                     ▼                                            ▼
//!                 given back                                    answers
//! ```
//!
//! A runner takes the next few tasks of the oldest assignment, a *slice*, runs them and adds their
//! results to its answer. The answer leaves at the end of an assignment when it has as many tasks
//! as are left, so that new ones come before those are done; after [`HOLD`]; or when the runner has
//! nothing to do. A farmer that is woken for each result would do little else.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use chunkcomm::host::{self, Instant};
use chunkcomm::with_causes;
use chunkcomm_cluster::registry::Entry;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use self::queue::{Next, Queue, Slice};
pub(crate) use self::report::ANSWER_BYTES;
use self::report::Report;
use crate::context::{Common, Long, Tasks, Work, run_each};
use crate::machine::start_thread;
use crate::pieces::Piece;
use crate::proto::placement::Place;
use crate::proto::wire::{self, Assignment, Limit};
use crate::shared::Values;

mod queue;
mod report;

/// Longest time that a result waits for others to be sent with it.
pub(crate) const HOLD: Duration = Duration::from_millis(100);

/// Shortest time between two looks after the compute threads.
const LOOK_MIN: Duration = Duration::from_millis(1);

/// Most threads of a worker at tasks that were given up.
const STUCK_MAX: usize = 64;

struct Shared {
    queue: Mutex<Queue>,
    /// Wakes the compute threads; in a simulation, their tasks.
    work: Condvar,
    virtual_work: Notify,
    entries: Vec<Entry>,
    /// Time of a task, and the moment from which it is counted.
    limit: Option<Limit>,
    started: Instant,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        locked(&self.queue)
    }

    /// Returns the time in nanoseconds, if the time of tasks is limited.
    #[inline]
    fn clock(&self) -> u64 {
        if self.limit.is_some() { nanos(self.started.elapsed()) } else { 0 }
    }

    fn wake(&self) {
        if host::is_virtual() {
            self.virtual_work.notify_waiters();
        } else {
            self.work.notify_all();
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A runner, seen from the I/O loop.
struct Seat {
    /// Its results.
    report: Arc<Mutex<Report>>,
    work: Arc<Work>,
    /// The tasks of its slice: their run, the first, and their number.
    slice: Arc<Mutex<(u32, u64, u32)>>,
}

/// The tasks of a worker, seen from its I/O loop. When this is dropped, the threads end after their
/// current task; nobody waits for that.
pub(crate) struct Bench {
    shared: Arc<Shared>,
    answered: UnboundedReceiver<Vec<u8>>,
    answers: UnboundedSender<Vec<u8>>,
    /// Results of the tasks that the loop ran itself.
    report: Report,
    work: Arc<Work>,
    common: Arc<Common>,
    seats: Vec<Seat>,
    /// Runners that were given up at a task that did not end.
    stuck: Vec<Arc<Work>>,
}

impl Bench {
    /// Starts this number of threads; an assignment names its function by the index in `entries`.
    pub(crate) fn start(
        entries: Vec<Entry>,
        threads: u32,
        limit: Option<Limit>,
    ) -> std::io::Result<Bench> {
        let threads = threads.max(1);
        // Several threads are not helped by the loop, and a loop that runs a task sees no time-out.
        let queue = Queue::new(entries.len(), threads, threads == 1 && limit.is_none());
        let (work, virtual_work) = (Condvar::new(), Notify::new());
        let (queue, started) = (Mutex::new(queue), Instant::now());
        let shared = Shared { queue, work, virtual_work, entries, limit, started };
        let (answers, answered) = unbounded_channel();
        let common = Arc::<Common>::default();
        // When a thread cannot be started, dropping this ends those before it.
        let mut bench = Bench {
            shared: Arc::new(shared),
            answered,
            answers,
            report: Report::default(),
            work: Arc::new(Work::new(common.clone())),
            common,
            seats: Vec::new(),
            stuck: Vec::new(),
        };
        for _ in 0..threads {
            let seat = bench.seat()?;
            bench.seats.push(seat);
        }
        Ok(bench)
    }

    /// Starts a runner.
    fn seat(&self) -> std::io::Result<Seat> {
        let work = Arc::new(Work::new(self.common.clone()));
        let (report, slice) = (Arc::<Mutex<Report>>::default(), Arc::<Mutex<_>>::default());
        let runner = Runner {
            shared: self.shared.clone(),
            answers: self.answers.clone(),
            report: report.clone(),
            work: work.clone(),
            slice: slice.clone(),
        };
        if host::is_virtual() {
            host::spawn(runner.compute_virtually());
        } else {
            start_thread("farm-compute".to_owned(), move || runner.compute())?;
        }
        Ok(Seat { report, work, slice })
    }

    /// The shared values.
    pub(crate) fn values(&self) -> &Values {
        &self.common.values
    }

    pub(crate) fn threads(&self) -> u32 {
        self.seats.len() as u32
    }

    /// Returns the time until [`look`](Bench::look) is due again.
    pub(crate) fn look_after(&self) -> Duration {
        let Some(limit) = self.shared.limit else { return HOLD };
        let shorter = Duration::from_nanos(limit.timeout_ns.min(limit.grace_ns) / 4);
        shorter.clamp(LOOK_MIN, HOLD)
    }

    /// Looks after the compute threads. Returns the answers that have waited for long, whose runners
    /// are at a task that takes long, and words about tasks that are late.
    ///
    /// # Errors
    /// When a thread cannot be replaced.
    pub(crate) fn look(&mut self) -> std::io::Result<Vec<Vec<u8>>> {
        let now = Instant::now();
        let mut messages = Vec::new();
        for at in 0..self.seats.len() {
            let mut report = locked(&self.seats[at].report);
            let old = if report.is_old(now) { report.take() } else { None };
            drop(report);
            messages.extend(old);
            let Some((limit, long)) = self.shared.limit.zip(self.seats[at].work.now()) else {
                continue;
            };
            let for_ns = self.shared.clock().saturating_sub(long.begun_ns);
            if for_ns >= limit.timeout_ns.saturating_add(limit.grace_ns) {
                self.give_up(at, long, &mut messages)?;
            } else if for_ns >= limit.timeout_ns {
                self.seats[at].work.cancel(long.serial);
            }
        }
        Ok(messages)
    }

    /// Gives a runner up, if it is still at this task. Another one has its place; its other tasks
    /// are given back.
    fn give_up(
        &mut self,
        at: usize,
        long: Long,
        messages: &mut Vec<Vec<u8>>,
    ) -> std::io::Result<()> {
        let seat = &self.seats[at];
        let slice = locked(&seat.slice);
        let (run, first, count) = *slice;
        let end = first + u64::from(count);
        if seat.work.now() != Some(long) || !(first..end).contains(&long.index) {
            return Ok(());
        }
        // It locks the slice before it reports, and then ends.
        seat.work.abandon();
        drop(slice);
        messages.extend(locked(&seat.report).take());
        messages.push(wire::late(run, long.index).to_vec());
        for (first, end) in [(first, long.index), (long.index + 1, end)] {
            if first < end {
                messages.push(wire::returned(run, first, (end - first) as u32).to_vec());
            }
        }
        let new = self.seat()?;
        let given_up = std::mem::replace(&mut self.seats[at], new);
        // An ended runner has dropped its part.
        self.stuck.retain(|work| Arc::strong_count(work) > 1);
        self.stuck.push(given_up.work);
        Ok(())
    }

    /// Whether too many tasks do not end.
    pub(crate) fn is_stuck(&self) -> bool {
        self.stuck.len() >= STUCK_MAX
    }

    /// Whether compute threads are at work.
    pub(crate) fn is_at_work(&self) -> bool {
        let queue = self.shared.queue();
        queue.pieces.tasks() > 0 || queue.waiting < queue.threads
    }

    /// Takes an assignment; `false` if it names no function.
    pub(crate) fn put(&mut self, assignment: &Assignment<'_>) -> bool {
        let Assignment { run, function, .. } = *assignment;
        let mut queue = self.shared.queue();
        if function as usize >= self.shared.entries.len() {
            return false;
        }
        if queue.pieces.put(assignment) {
            self.common.run.store(run, Ordering::Relaxed);
        }
        let placed = queue.loops && queue.placements[function as usize].place() == Place::Loop;
        drop(queue);
        if !placed {
            self.shared.wake();
        }
        true
    }

    /// Removes up to `count` tasks of this run that are not begun, and returns their ranges.
    pub(crate) fn give_back(&mut self, run: u32, count: u64) -> Vec<(u64, u32)> {
        let mut queue = self.shared.queue();
        if count > 0 && queue.pieces.enter(run) {
            self.common.run.store(run, Ordering::Relaxed);
        }
        queue.pieces.give_back(count)
    }

    /// Runs the next tasks here, for about this time, if they are tiny; returns whether it did, and
    /// answers that must leave.
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
}

impl Drop for Bench {
    fn drop(&mut self) {
        let mut queue = self.shared.queue();
        queue.closed = true;
        queue.pieces.clear();
        drop(queue);
        self.common.closed.store(true, Ordering::Relaxed);
        self.shared.wake();
    }
}

/// A compute thread; in a simulation, a task that occupies a core.
struct Runner {
    shared: Arc<Shared>,
    answers: UnboundedSender<Vec<u8>>,
    report: Arc<Mutex<Report>>,
    work: Arc<Work>,
    slice: Arc<Mutex<(u32, u64, u32)>>,
}

impl Runner {
    fn compute(&self) {
        let mut results = Vec::new();
        while let Some(slice) = self.wait_for_slice() {
            let started = Instant::now();
            self.note(&slice);
            let is_seen = self.shared.run(&slice.tasks, &mut results, &self.work);
            if !self.report(&slice, &mut results, started, is_seen) {
                return;
            }
        }
    }

    fn note(&self, slice: &Slice) {
        let Piece { run, first, count, .. } = slice.tasks;
        *locked(&self.slice) = (run, first, count);
    }

    /// Waits for tasks; `None` when the worker ends.
    fn wait_for_slice(&self) -> Option<Slice> {
        let mut queue = self.shared.queue();
        loop {
            match queue.next() {
                Next::Run(slice) => return Some(slice),
                Next::End => return None,
                Next::Wait => {}
            }
            // Results are sent when there is nothing else to do. The queue stays locked until the
            // wait, so that no wake-up falls between the two.
            let Some(answer) = locked(&self.report).take() else {
                queue.waiting += 1;
                queue = self.shared.work.wait(queue).expect("nothing panics with the queue locked");
                queue.waiting -= 1;
                continue;
            };
            drop(queue);
            if !self.send([Some(answer), None]) {
                return None;
            }
            queue = self.shared.queue();
        }
    }

    async fn compute_virtually(self) {
        let mut results = Vec::new();
        loop {
            // Created before the queue is looked at, so that no wake-up falls between the two.
            let woken = self.shared.virtual_work.notified();
            let found = self.shared.queue().next();
            let slice = match found {
                Next::Run(slice) => slice,
                Next::End => return,
                Next::Wait => {
                    let answer = locked(&self.report).take();
                    if !self.send([answer, None]) {
                        return;
                    }
                    self.shared.queue().waiting += 1;
                    woken.await;
                    self.shared.queue().waiting -= 1;
                    continue;
                }
            };
            let started = Instant::now();
            self.note(&slice);
            let (shared, tasks) = (&self.shared, &slice.tasks);
            let (is_seen, work) = host::working(|| shared.run(tasks, &mut results, &self.work));
            // Their time passes now, and is that of the first.
            self.work.begin(tasks.first, shared.clock());
            work.done().await;
            self.work.end();
            if !self.report(&slice, &mut results, started, is_seen) {
                return;
            }
        }
    }

    /// Reports the results of a slice; `false` if the worker has ended, or has given this runner up.
    fn report(
        &self,
        slice: &Slice,
        results: &mut Vec<u8>,
        started: Instant,
        is_seen: bool,
    ) -> bool {
        // From here on nobody gives the slice up.
        let mut noted = locked(&self.slice);
        if self.work.is_abandoned() {
            return false;
        }
        noted.2 = 0;
        drop(noted);
        let ended = self.shared.measure(&slice.tasks, started, is_seen);
        let mut report = locked(&self.report);
        let before = report.begin(&slice.tasks, ended);
        report.bytes.extend_from_slice(results);
        report.count += slice.tasks.count;
        report.busy += ended - started;
        let answer = if report.is_due(slice, ended) { report.take() } else { None };
        drop(report);
        results.clear();
        self.send([before, answer])
    }

    /// Sends answers; `false` if the worker has ended.
    fn send(&self, answers: [Option<Vec<u8>>; 2]) -> bool {
        answers.into_iter().flatten().all(|answer| self.answers.send(answer).is_ok())
    }
}

impl Shared {
    /// Runs tasks and appends their results; returns whether the function looked at its context.
    fn run(&self, tasks: &Piece, results: &mut Vec<u8>, work: &Arc<Work>) -> bool {
        let entry = &self.entries[tasks.function as usize];
        let &Piece { run, function, first, count, attempt, ref items } = tasks;
        let mut inputs = Assignment { run, function, first, count, attempt, items }.inputs();
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
        run_each(work, Tasks { run, first, count, attempt }, || self.clock(), run_next)
    }

    /// Notes the time of tasks that are done; returns the end.
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
mod tests {
    use super::*;
    use crate::proto::wire::{Answer, Item, Order};
    use chunkcomm_cluster::Registry;

    /// Longest time that a step may take; none takes longer on a machine that is alive.
    const DEADLINE: Duration = Duration::from_secs(30);

    fn entries() -> Vec<Entry> {
        let mut registry = Registry::new();
        registry.register("inverse", |number: u32| {
            assert!(number != 0, "no inverse of zero");
            1.0 / f64::from(number)
        });
        registry.entries().cloned().collect()
    }

    fn put(bench: &mut Bench, run: u32, first: u64, numbers: &[u32]) {
        let mut bytes = Vec::new();
        wire::begin_assignment(&mut bytes, run, 0);
        numbers.iter().for_each(|number| wire::put_value(&mut bytes, number).unwrap());
        wire::number_assignment(&mut bytes, first, numbers.len() as u32);
        let Ok(Order::Assign(assignment)) = wire::read_order(&bytes) else { panic!() };
        assert!(bench.put(&assignment));
    }

    type Results = Vec<Result<f64, String>>;

    fn read(answer: &[u8]) -> (u32, u64, Results) {
        let Ok(Answer::Done { run, first, mut results, .. }) = wire::read_answer(answer) else {
            panic!("{answer:?}")
        };
        let mut read = Vec::new();
        while let Some(item) = results.next_result().unwrap() {
            read.push(match item {
                Item::Value(bytes) => Ok(f64::from_le_bytes(bytes.try_into().unwrap())),
                Item::Failure(text) => Err(text.to_owned()),
            });
        }
        (run, first, read)
    }

    /// Takes answers until they have this number of results.
    async fn results(bench: &mut Bench, count: usize) -> Results {
        let mut all = Vec::new();
        while all.len() < count {
            all.extend(read(&bench.answered().await).2);
        }
        all
    }

    #[tokio::test]
    async fn the_threads_answer_and_a_panic_fails_its_task_alone() {
        let mut bench = Bench::start(entries(), 1, None).unwrap();
        put(&mut bench, 1, 5, &[2, 0, 4]);
        let answers = results(&mut bench, 3).await;
        let panicked = "function \"inverse\" panicked: no inverse of zero".to_owned();
        assert_eq!(answers, [Ok(0.5), Err(panicked), Ok(0.25)]);
    }

    /// Tasks come as the thread starts, and as it is about to wait.
    #[tokio::test]
    async fn no_wake_up_is_missed() {
        for round in 0..1_000 {
            let mut bench = Bench::start(entries(), 1, None).unwrap();
            for first in 0..10 {
                (0..(round + first) % 50).for_each(|_| std::hint::spin_loop());
                put(&mut bench, 1, first, &[4]);
                let put_at = Instant::now();
                while bench.try_answered().is_none() {
                    assert!(put_at.elapsed() < DEADLINE, "{round}: the thread is not awake");
                    std::hint::spin_loop();
                }
            }
        }
    }

    #[tokio::test]
    async fn a_long_task_does_not_keep_back_the_results_before_it() {
        let mut registry = Registry::new();
        registry.register("sleep", |ms: u32| {
            std::thread::sleep(Duration::from_millis(ms.into()));
            f64::from(ms)
        });
        let mut bench = Bench::start(registry.entries().cloned().collect(), 1, None).unwrap();
        put(&mut bench, 1, 0, &[0, 60_000]);
        assert!(bench.is_at_work());
        let put_at = Instant::now();
        let old = loop {
            tokio::time::sleep(Duration::from_millis(10)).await;
            if let Some(old) = bench.look().unwrap().pop() {
                break old;
            }
            assert!(put_at.elapsed() < DEADLINE, "the first result is kept back");
        };
        assert_eq!(read(&old), (1, 0, vec![Ok(0.0)]));
        assert!(bench.is_at_work() && bench.look().unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_task_that_does_not_end_loses_its_thread_and_no_other_task() {
        let mut registry = Registry::new();
        registry.register("sleep", |ms: u32| {
            std::thread::sleep(Duration::from_millis(ms.into()));
            f64::from(ms)
        });
        let limit = Limit { timeout_ns: 1_000_000_000, grace_ns: 1_000_000 };
        let entries = registry.entries().cloned().collect();
        let mut bench = Bench::start(entries, 1, Some(limit)).unwrap();
        // Tasks known as short share a slice.
        (0..99).for_each(|_| bench.shared.queue().placements[0].handle_done(1, 1_000));
        put(&mut bench, 1, 5, &[0, 0, 3_600_000, 0]);
        let put_at = Instant::now();
        let messages = loop {
            tokio::time::sleep(bench.look_after()).await;
            let messages = bench.look().unwrap();
            if !messages.is_empty() {
                break messages;
            }
            assert!(put_at.elapsed() < DEADLINE, "the task goes on");
        };
        let expected = [wire::late(1, 7), wire::returned(1, 5, 2), wire::returned(1, 8, 1)];
        assert_eq!(messages, expected);
        put(&mut bench, 1, 5, &[0, 0]);
        assert_eq!(results(&mut bench, 2).await, [Ok(0.0), Ok(0.0)]);
        assert_eq!((bench.stuck.len(), bench.look().unwrap().len()), (1, 0));
    }

    /// Tasks end at about the time at which they are given up.
    #[tokio::test]
    async fn no_task_is_lost_when_it_ends_as_its_thread_is_given_up() {
        let mut registry = Registry::new();
        registry.register("spin", |us: u64| {
            let begun = std::time::Instant::now();
            while begun.elapsed() < Duration::from_micros(us) {}
        });
        let entries: Vec<Entry> = registry.entries().cloned().collect();
        let limit = Limit { timeout_ns: 1_000_000, grace_ns: 1_000_000 };
        let mut ended = 0;
        for round in 0..60_u64 {
            let mut bench = Bench::start(entries.clone(), 2, Some(limit)).unwrap();
            (0..99).for_each(|_| bench.shared.queue().placements[0].handle_done(1, 100_000));
            let mut bytes = Vec::new();
            for first in [0, 50] {
                wire::begin_assignment(&mut bytes, 1, 0);
                for at in 0..50 {
                    let long = at % 10 == 2;
                    let us = if long { 1_900 + (round * 37 + at * 11) % 200 } else { 5 };
                    wire::put_value(&mut bytes, &us).unwrap();
                }
                wire::number_assignment(&mut bytes, first, 50);
                let Ok(Order::Assign(assignment)) = wire::read_order(&bytes) else { panic!() };
                assert!(bench.put(&assignment));
            }
            let (mut told, begun) = ([false; 100], Instant::now());
            while told.contains(&false) {
                assert!(begun.elapsed() < DEADLINE, "round {round}: {told:?}");
                let mut messages = bench.look().unwrap();
                messages.extend(std::iter::from_fn(|| bench.try_answered()));
                for message in messages {
                    let (first, count) = match wire::read_answer(&message).unwrap() {
                        Answer::Done { first, count, .. } => (first, count),
                        Answer::Returned { first, count, .. } => (first, count),
                        Answer::Late { index, .. } => (index, 1),
                        other => panic!("{other:?}"),
                    };
                    told[first as usize..first as usize + count as usize].fill(true);
                }
                tokio::task::yield_now().await;
            }
            ended += bench.stuck.len();
        }
        assert!(ended > 0, "no task was late");
    }

    #[tokio::test]
    async fn several_threads_share_an_assignment_and_the_loop_takes_none() {
        let mut bench = Bench::start(entries(), 3, None).unwrap();
        (0..20).for_each(|_| bench.shared.queue().placements[0].handle_done(1, 100));
        for first in 0..10 {
            put(&mut bench, 1, first * 100, &[4; 100]);
            assert!(!bench.run_here(Duration::from_micros(50)).await.0);
        }
        assert_eq!(results(&mut bench, 1000).await, vec![Ok(0.25); 1000]);
    }

    /// A bench without threads, whose queue stays as it is.
    fn bench_without_threads() -> Bench {
        let mut bench = Bench::start(entries(), 1, None).unwrap();
        let mut queue = bench.shared.queue();
        queue.closed = true;
        drop(queue);
        bench.shared.wake();
        bench.report = Report::default();
        bench
    }

    #[tokio::test]
    async fn what_is_given_back_is_the_end_of_the_queue() {
        let mut bench = bench_without_threads();
        put(&mut bench, 1, 0, &[1; 5]);
        put(&mut bench, 1, 5, &[1; 3]);
        assert_eq!(bench.give_back(1, 5), [(5, 3), (3, 2)]);
        assert_eq!(bench.shared.queue().pieces.front().unwrap().items.len(), 3 * 8);
        assert_eq!(bench.give_back(1, u64::MAX), [(0, 3)]);
        assert_eq!(bench.give_back(1, 1), []);
    }

    #[tokio::test]
    async fn a_new_run_drops_what_an_earlier_one_left() {
        let mut bench = bench_without_threads();
        put(&mut bench, 1, 0, &[1; 5]);
        assert_eq!(bench.give_back(0, 0), [], "a question about the round trip is of no run");
        put(&mut bench, 2, 9, &[1]);
        assert_eq!(bench.give_back(2, 100), [(9, 1)]);
    }

    #[tokio::test]
    async fn tiny_tasks_run_in_the_loop_and_gather_in_an_answer() {
        let mut bench = bench_without_threads();
        (0..20).for_each(|_| bench.shared.queue().placements[0].handle_done(1, 100));
        put(&mut bench, 1, 0, &[2; 50]);
        let mut answers = Vec::new();
        loop {
            let (ran, sent) = bench.run_here(Duration::from_micros(1)).await;
            answers.extend(sent.into_iter().flatten());
            if !ran {
                break;
            }
        }
        let (run, first, results) = read(&answers[0]);
        assert_eq!((run, first, results, answers.len()), (1, 0, vec![Ok(0.5); 50], 1));
    }
}
