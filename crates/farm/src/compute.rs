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

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use chunkcomm::host::{self, Instant};
use chunkcomm::with_causes;
use chunkcomm_cluster::registry::Entry;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use self::queue::{Next, Piece, Queue, Slice};
use self::report::Report;
use crate::machine::start_thread;
use crate::proto::placement::Place;
use crate::proto::wire::{self, Assignment};

mod queue;
mod report;

/// Longest time that a result waits for others to be sent with it.
pub(crate) const HOLD: Duration = Duration::from_millis(100);

struct Shared {
    queue: Mutex<Queue>,
    /// Wakes the compute threads; in a simulation, their tasks.
    work: Condvar,
    virtual_work: Notify,
    entries: Vec<Entry>,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        locked(&self.queue)
    }

    fn wake(&self) {
        if host::is_virtual() {
            self.virtual_work.notify_waiters();
        } else {
            self.work.notify_all();
        }
    }
}

/// Runs the tasks of a slice and appends their results.
fn run_tasks(entry: &Entry, tasks: &Piece, results: &mut Vec<u8>) {
    let (run, function, first, count) = (tasks.run, tasks.function, tasks.first, tasks.count);
    let mut inputs = Assignment { run, function, first, count, items: &tasks.items }.inputs();
    for _ in 0..count {
        let ran = match inputs.next() {
            Ok(Some(input)) => wire::put_item(results, |out| entry.call(input, out))
                .map_err(|error| with_causes(&error)),
            _ => Err("the assignment's bytes are not whole".to_owned()),
        };
        if let Err(text) = ran {
            wire::put_failure(results, &text);
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The tasks of a worker, seen from its I/O loop. When this is dropped, the threads end after their
/// current task; nobody waits for that.
pub(crate) struct Bench {
    shared: Arc<Shared>,
    answered: UnboundedReceiver<Vec<u8>>,
    /// Results of the tasks that the loop ran itself.
    report: Report,
    /// Results of the compute threads.
    reports: Vec<Arc<Mutex<Report>>>,
}

impl Bench {
    /// Starts this number of threads; an assignment names its function by the index in `entries`.
    pub(crate) fn start(entries: Vec<Entry>, threads: u32) -> std::io::Result<Bench> {
        let queue = Queue::new(entries.len(), threads.max(1));
        let (work, virtual_work) = (Condvar::new(), Notify::new());
        let shared = Arc::new(Shared { queue: Mutex::new(queue), work, virtual_work, entries });
        let (answers, answered) = unbounded_channel();
        // When a thread cannot be started, dropping this ends those before it.
        let mut bench = Bench { shared, answered, report: Report::default(), reports: Vec::new() };
        for _ in 0..threads.max(1) {
            let report = Arc::default();
            bench.reports.push(Arc::clone(&report));
            let runner = Runner { shared: bench.shared.clone(), answers: answers.clone(), report };
            if host::is_virtual() {
                host::spawn(runner.compute_virtually());
            } else {
                start_thread("farm-compute".to_owned(), move || runner.compute())?;
            }
        }
        Ok(bench)
    }

    pub(crate) fn threads(&self) -> u32 {
        self.reports.len() as u32
    }

    /// Returns the answers of the compute threads that have waited for long: their runners are at
    /// a task that takes long.
    pub(crate) fn old_answers(&mut self) -> Vec<Vec<u8>> {
        let now = Instant::now();
        let old = |report: &Arc<Mutex<Report>>| {
            let mut report = locked(report);
            if report.is_old(now) { report.take() } else { None }
        };
        self.reports.iter().filter_map(old).collect()
    }

    /// Whether compute threads are at work.
    pub(crate) fn is_at_work(&self) -> bool {
        let queue = self.shared.queue();
        queue.tasks > 0 || queue.waiting < queue.threads
    }

    /// Takes an assignment; `false` if it names no function.
    pub(crate) fn put(&mut self, assignment: &Assignment<'_>) -> bool {
        let Assignment { run, function, first, count, items } = *assignment;
        let mut queue = self.shared.queue();
        if function as usize >= self.shared.entries.len() {
            return false;
        }
        queue.enter(run);
        if count > 0 {
            let items = Bytes::copy_from_slice(items);
            queue.pieces.push_back(Piece { run, function, first, count, items });
            queue.tasks += u64::from(count);
        }
        let placed =
            queue.threads == 1 && queue.placements[function as usize].place() == Place::Loop;
        drop(queue);
        if !placed {
            self.shared.wake();
        }
        true
    }

    /// Removes up to `count` tasks of this run that are not begun, and returns their ranges.
    pub(crate) fn give_back(&mut self, run: u32, count: u64) -> Vec<(u64, u32)> {
        let mut queue = self.shared.queue();
        if count > 0 {
            queue.enter(run);
        }
        queue.give_back(count)
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
        let entry = &self.shared.entries[slice.tasks.function as usize];
        let bytes = &mut self.report.bytes;
        let ((), work) = host::working(|| run_tasks(entry, &slice.tasks, bytes));
        work.done().await;
        let ended = self.shared.measure(&slice.tasks, started);
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
        queue.clear();
        drop(queue);
        self.shared.wake();
    }
}

/// A compute thread; in a simulation, a task that occupies a core.
struct Runner {
    shared: Arc<Shared>,
    answers: UnboundedSender<Vec<u8>>,
    report: Arc<Mutex<Report>>,
}

impl Runner {
    fn compute(&self) {
        let mut results = Vec::new();
        while let Some(slice) = self.wait_for_slice() {
            let started = Instant::now();
            self.shared.run(&slice.tasks, &mut results);
            if !self.report(&slice, &mut results, started) {
                return;
            }
        }
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
            let ((), work) = host::working(|| self.shared.run(&slice.tasks, &mut results));
            work.done().await;
            if !self.report(&slice, &mut results, started) {
                return;
            }
        }
    }

    /// Reports the results of a slice; `false` if the worker has ended.
    fn report(&self, slice: &Slice, results: &mut Vec<u8>, started: Instant) -> bool {
        let ended = self.shared.measure(&slice.tasks, started);
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
    fn run(&self, tasks: &Piece, results: &mut Vec<u8>) {
        run_tasks(&self.entries[tasks.function as usize], tasks, results);
    }

    /// Notes the time of tasks that are done; returns the end.
    fn measure(&self, tasks: &Piece, started: Instant) -> Instant {
        let ended = Instant::now();
        let mut queue = self.queue();
        let placement = &mut queue.placements[tasks.function as usize];
        let place = placement.place();
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
        let mut bench = Bench::start(entries(), 1).unwrap();
        put(&mut bench, 1, 5, &[2, 0, 4]);
        let answers = results(&mut bench, 3).await;
        let panicked = "function \"inverse\" panicked: no inverse of zero".to_owned();
        assert_eq!(answers, [Ok(0.5), Err(panicked), Ok(0.25)]);
    }

    /// Tasks come as the thread starts, and as it is about to wait.
    #[tokio::test]
    async fn no_wake_up_is_missed() {
        for round in 0..1_000 {
            let mut bench = Bench::start(entries(), 1).unwrap();
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
        let mut bench = Bench::start(registry.entries().cloned().collect(), 1).unwrap();
        put(&mut bench, 1, 0, &[0, 60_000]);
        assert!(bench.is_at_work());
        let put_at = Instant::now();
        let old = loop {
            tokio::time::sleep(Duration::from_millis(10)).await;
            if let Some(old) = bench.old_answers().pop() {
                break old;
            }
            assert!(put_at.elapsed() < DEADLINE, "the first result is kept back");
        };
        assert_eq!(read(&old), (1, 0, vec![Ok(0.0)]));
        assert!(bench.is_at_work() && bench.old_answers().is_empty());
    }

    #[tokio::test]
    async fn several_threads_share_an_assignment_and_the_loop_takes_none() {
        let mut bench = Bench::start(entries(), 3).unwrap();
        (0..20).for_each(|_| bench.shared.queue().placements[0].handle_done(1, 100));
        for first in 0..10 {
            put(&mut bench, 1, first * 100, &[4; 100]);
            assert!(!bench.run_here(Duration::from_micros(50)).await.0);
        }
        assert_eq!(results(&mut bench, 1000).await, vec![Ok(0.25); 1000]);
    }

    /// A bench without threads, whose queue stays as it is.
    fn bench_without_threads() -> Bench {
        let mut bench = Bench::start(entries(), 1).unwrap();
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
        assert_eq!(bench.shared.queue().pieces[0].items.len(), 3 * 8);
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
