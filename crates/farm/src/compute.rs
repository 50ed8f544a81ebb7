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

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use chunkcomm::host::{self, Instant};
use chunkcomm::with_causes;
use chunkcomm_cluster::registry::Entry;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::machine::start_thread;
use crate::proto::placement::{Place, Placement};
use crate::proto::wire::{self, Assignment};

/// Longest time that a result waits for others to be sent with it, but for the task at work.
const HOLD: Duration = Duration::from_millis(2);

/// Bytes of results from which an answer leaves.
const ANSWER_BYTES: usize = 256 << 10;

/// Time of a slice on a compute thread, in nanoseconds: what is in a slice cannot be given back.
const SLICE_NS: f64 = 250e3;

/// Tasks of one assignment that are not begun.
struct Piece {
    run: u32,
    function: u32,
    first: u64,
    count: u32,
    /// Their inputs, each after its length.
    items: Bytes,
}

/// Tasks that are run one after the other.
struct Slice {
    tasks: Piece,
    /// Number of tasks that are then left, if the assignment has no more; for one thread.
    left: Option<u64>,
}

/// State that the runners of a worker share.
struct Queue {
    pieces: VecDeque<Piece>,
    /// Number of tasks in them.
    tasks: u64,
    /// Where the tasks of each function run.
    placements: Vec<Placement>,
    threads: u32,
    /// Number of the newest run: pieces of earlier ones are dropped.
    run: u32,
    closed: bool,
}

impl Queue {
    /// Takes tasks of about this time in nanoseconds, if the next ones run at this place.
    fn take(&mut self, place: Place, target_ns: f64) -> Option<Slice> {
        let piece = self.pieces.front_mut()?;
        let placement = &self.placements[piece.function as usize];
        // Several threads are not helped by the loop.
        let where_due = if self.threads == 1 { placement.place() } else { Place::Thread };
        if where_due != place {
            return None;
        }
        let fair = piece.count.div_ceil(self.threads);
        let count = placement.tasks_in(target_ns).min(fair);
        self.tasks -= u64::from(count);
        if count == piece.count {
            let left = Some(self.tasks / u64::from(self.threads));
            return self.pieces.pop_front().map(|tasks| Slice { tasks, left });
        }
        // What is wrong in the bytes after the end shows when they are run.
        let bytes = wire::items_bytes(&piece.items, count).unwrap_or(piece.items.len());
        let items = piece.items.split_to(bytes);
        let tasks = Piece { count, items, ..*piece };
        piece.first += u64::from(count);
        piece.count -= count;
        Some(Slice { tasks, left: None })
    }

    fn give_back(&mut self, count: u64) -> Vec<(u64, u32)> {
        let (mut left, mut given) = (count, Vec::new());
        while let Some(piece) = self.pieces.back_mut().filter(|_| left > 0) {
            let taken = u32::try_from(left).unwrap_or(u32::MAX).min(piece.count);
            piece.count -= taken;
            left -= u64::from(taken);
            self.tasks -= u64::from(taken);
            given.push((piece.first + u64::from(piece.count), taken));
            if piece.count == 0 {
                self.pieces.pop_back();
            } else {
                let bytes = wire::items_bytes(&piece.items, piece.count);
                piece.items.truncate(bytes.unwrap_or(piece.items.len()));
            }
        }
        given
    }
}

struct Shared {
    queue: Mutex<Queue>,
    /// Wakes the compute threads; in a simulation, their tasks.
    work: Condvar,
    virtual_work: Notify,
    entries: Vec<Entry>,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("nothing panics with the queue locked")
    }

    fn wake(&self) {
        if host::is_virtual() {
            self.virtual_work.notify_waiters();
        } else {
            self.work.notify_all();
        }
    }
}

/// The results of a runner that are not sent yet.
#[derive(Default)]
struct Report {
    /// The answer so far; empty if there is none.
    bytes: Vec<u8>,
    run: u32,
    first: u64,
    count: u32,
    busy: Duration,
    begun: Option<Instant>,
}

impl Report {
    /// Runs the tasks of a slice, and adds their results. Returns an answer that must leave before.
    fn run(&mut self, entry: &Entry, slice: &Slice, started: Instant) -> Option<Vec<u8>> {
        let tasks = &slice.tasks;
        let follows = self.run == tasks.run && self.first + u64::from(self.count) == tasks.first;
        let before = if follows { None } else { self.take() };
        if self.begun.is_none() {
            wire::begin_answer(&mut self.bytes, tasks.run, tasks.first);
            (self.run, self.first, self.begun) = (tasks.run, tasks.first, Some(started));
        }
        let (run, function, first, count) = (tasks.run, tasks.function, tasks.first, tasks.count);
        let items = &tasks.items[..];
        let mut inputs = Assignment { run, function, first, count, items }.inputs();
        for _ in 0..tasks.count {
            let ran = match inputs.next() {
                Ok(Some(input)) => wire::put_item(&mut self.bytes, |out| entry.call(input, out))
                    .map_err(|error| with_causes(&error)),
                _ => Err("the assignment's bytes are not whole".to_owned()),
            };
            if let Err(text) = ran {
                wire::put_failure(&mut self.bytes, &text);
            }
        }
        self.count += tasks.count;
        before
    }

    /// Whether the answer must leave after this slice.
    fn is_due(&self, slice: &Slice, now: Instant) -> bool {
        slice.left.is_some_and(|left| u64::from(self.count) >= left)
            || self.bytes.len() >= ANSWER_BYTES
            || self.begun.is_some_and(|begun| now - begun >= HOLD)
    }

    /// Ends the answer and returns it, if there is one.
    fn take(&mut self) -> Option<Vec<u8>> {
        self.begun.take()?;
        wire::finish_answer(&mut self.bytes, self.count, nanos(self.busy));
        (self.count, self.busy) = (0, Duration::ZERO);
        Some(std::mem::take(&mut self.bytes))
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
    threads: u32,
}

impl Bench {
    /// Starts this number of threads; an assignment names its function by the index in `entries`.
    pub(crate) fn start(entries: Vec<Entry>, threads: u32) -> std::io::Result<Bench> {
        let queue = Queue {
            pieces: VecDeque::new(),
            tasks: 0,
            placements: vec![Placement::new(); entries.len()],
            threads: threads.max(1),
            run: 0,
            closed: false,
        };
        let (work, virtual_work) = (Condvar::new(), Notify::new());
        let shared = Arc::new(Shared { queue: Mutex::new(queue), work, virtual_work, entries });
        let (answers, answered) = unbounded_channel();
        let threads = threads.max(1);
        for _ in 0..threads {
            let (shared, answers) = (Arc::clone(&shared), answers.clone());
            if host::is_virtual() {
                host::spawn(compute_virtually(shared, answers));
            } else {
                start_thread("farm-compute".to_owned(), move || compute(&shared, &answers))?;
            }
        }
        Ok(Bench { shared, answered, report: Report::default(), threads })
    }

    pub(crate) fn threads(&self) -> u32 {
        self.threads
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
        let (before, ended) = run_slice(&self.shared, &mut self.report, &slice).await;
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

impl Queue {
    fn clear(&mut self) {
        self.pieces.clear();
        self.tasks = 0;
    }

    /// Begins a run: what an earlier one left is dropped.
    fn enter(&mut self, run: u32) {
        if self.run != run {
            self.run = run;
            self.clear();
        }
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

/// Runs a slice, notes its time, and returns an answer that must leave before, and the end.
async fn run_slice(
    shared: &Shared,
    report: &mut Report,
    slice: &Slice,
) -> (Option<Vec<u8>>, Instant) {
    let (before, work, started) = begin_slice(shared, report, slice);
    work.done().await;
    (before, end_slice(shared, report, slice, started))
}

fn begin_slice(
    shared: &Shared,
    report: &mut Report,
    slice: &Slice,
) -> (Option<Vec<u8>>, host::Work, Instant) {
    let started = Instant::now();
    let entry = &shared.entries[slice.tasks.function as usize];
    let (before, work) = host::working(|| report.run(entry, slice, started));
    (before, work, started)
}

fn end_slice(shared: &Shared, report: &mut Report, slice: &Slice, started: Instant) -> Instant {
    let ended = Instant::now();
    let busy = ended - started;
    report.busy += busy;
    let mut queue = shared.queue();
    let placement = &mut queue.placements[slice.tasks.function as usize];
    let place = placement.place();
    placement.handle_done(slice.tasks.count, nanos(busy));
    let moved = placement.place() == Place::Thread && place == Place::Loop;
    drop(queue);
    if moved {
        shared.wake();
    }
    ended
}

/// What a compute thread does next.
enum Next {
    Run(Slice),
    Wait,
    End,
}

fn next(queue: &mut Queue) -> Next {
    match queue.take(Place::Thread, SLICE_NS) {
        _ if queue.closed => Next::End,
        Some(slice) => Next::Run(slice),
        None => Next::Wait,
    }
}

/// Sends the answers; `false` if the worker has ended.
fn send(answers: &UnboundedSender<Vec<u8>>, of: [Option<Vec<u8>>; 2]) -> bool {
    of.into_iter().flatten().all(|answer| answers.send(answer).is_ok())
}

fn compute(shared: &Shared, answers: &UnboundedSender<Vec<u8>>) {
    let mut report = Report::default();
    loop {
        let mut queue = shared.queue();
        let slice = loop {
            match next(&mut queue) {
                Next::Run(slice) => break slice,
                Next::End => return,
                Next::Wait if report.begun.is_some() => {
                    drop(queue);
                    if !send(answers, [report.take(), None]) {
                        return;
                    }
                    queue = shared.queue();
                }
                Next::Wait => {
                    queue = shared.work.wait(queue).expect("nothing panics with the queue locked");
                }
            }
        };
        drop(queue);
        let (before, _, started) = begin_slice(shared, &mut report, &slice);
        let ended = end_slice(shared, &mut report, &slice, started);
        let due = report.is_due(&slice, ended);
        if !send(answers, [before, if due { report.take() } else { None }]) {
            return;
        }
    }
}

async fn compute_virtually(shared: Arc<Shared>, answers: UnboundedSender<Vec<u8>>) {
    let mut report = Report::default();
    loop {
        // Created before the queue is looked at, so that no wake-up falls between the two.
        let woken = shared.virtual_work.notified();
        let found = next(&mut shared.queue());
        let slice = match found {
            Next::Run(slice) => slice,
            Next::End => return,
            Next::Wait => {
                if !send(&answers, [report.take(), None]) {
                    return;
                }
                woken.await;
                continue;
            }
        };
        let (before, ended) = run_slice(&shared, &mut report, &slice).await;
        let due = report.is_due(&slice, ended);
        if !send(&answers, [before, if due { report.take() } else { None }]) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::wire::{Answer, Item, Order};
    use chunkcomm_cluster::Registry;

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
        wire::begin_assignment(&mut bytes, run, 0, first);
        numbers.iter().for_each(|number| wire::put_value(&mut bytes, number).unwrap());
        wire::finish_assignment(&mut bytes, numbers.len() as u32);
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
