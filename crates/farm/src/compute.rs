//! Runs tasks: the one function that does so, and the thread beside a worker's I/O
//! loop.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use chunkcomm::host::{self, Instant, Work};
use chunkcomm::with_causes;
use chunkcomm_cluster::registry::Entry;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::machine::start_thread;
use crate::proto::wire::{self, Assignment};

/// Runs the tasks of an assignment one after the other and writes the answer.
/// Returns the time at the end. The caller passes the time at the beginning,
/// `started`, which it often has: for the smallest tasks reading the clock costs
/// as much as the task.
pub(crate) fn run_tasks(
    entry: &Entry,
    assignment: Assignment<'_>,
    started: Instant,
    answer: &mut Vec<u8>,
) -> Instant {
    wire::begin_answer(answer, &assignment);
    let (run, mut index, mut inputs) = (assignment.run, assignment.first, assignment.inputs);
    let failure = loop {
        match inputs.next() {
            Ok(Some(input)) => match wire::put_item(answer, |out| entry.call(input, out)) {
                Ok(()) => index += 1,
                Err(error) => break with_causes(&error),
            },
            Ok(None) => {
                let ended = Instant::now();
                wire::finish_answer(answer, nanos(ended - started));
                return ended;
            }
            Err(wire::Malformed) => break "the assignment's bytes are not whole".to_owned(),
        }
    };
    wire::write_failure(answer, run, index, &failure);
    Instant::now()
}

/// In a simulation, occupies a core for the work of the tasks of an answer. Returns the end of the
/// tasks, and writes their time into the answer.
pub(crate) async fn settle(
    work: Work,
    started: Instant,
    ended: Instant,
    answer: &mut [u8],
) -> Instant {
    if !host::is_virtual() {
        return ended;
    }
    work.done().await;
    let ended = Instant::now();
    if wire::is_done(answer) {
        wire::finish_answer(answer, nanos(ended - started));
    }
    ended
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// An assignment that the thread has answered.
pub(crate) struct Computed {
    pub(crate) answer: Vec<u8>,
    pub(crate) function: u32,
    pub(crate) count: u32,
    pub(crate) busy: Duration,
}

/// A number that no run has: with it the thread skips all assignments it still holds.
const NO_RUN: u64 = u64::MAX;

/// A thread that computes; in a simulation, a task that occupies a core. When this is dropped, the
/// thread ends after its current task; nobody waits for that.
pub(crate) struct ComputeThread {
    orders: Orders,
    done: UnboundedReceiver<Computed>,
    current_run: Arc<AtomicU64>,
}

enum Orders {
    Thread(mpsc::Sender<Vec<u8>>),
    Virtual(UnboundedSender<Vec<u8>>),
}

impl ComputeThread {
    /// Starts the thread; an assignment names its function by the index in `entries`.
    pub(crate) fn start(entries: Vec<Entry>) -> std::io::Result<ComputeThread> {
        let (finished, done) = unbounded_channel();
        let current_run = Arc::new(AtomicU64::new(NO_RUN));
        let bench = Bench { entries, finished, current_run: Arc::clone(&current_run) };
        let orders = if host::is_virtual() {
            let (orders, ordered) = unbounded_channel();
            host::spawn(compute_virtually(bench, ordered));
            Orders::Virtual(orders)
        } else {
            let (orders, ordered) = mpsc::channel();
            start_thread("farm-compute".to_owned(), move || compute(&bench, &ordered))?;
            Orders::Thread(orders)
        };
        Ok(ComputeThread { orders, done, current_run })
    }

    /// Hands an assignment over. From now on the thread skips assignments of earlier
    /// runs that it has not begun, without an answer.
    pub(crate) fn hand_over(&mut self, run: u32, assignment: Vec<u8>) {
        self.current_run.store(run.into(), Ordering::Relaxed);
        let sent = match &self.orders {
            Orders::Thread(orders) => orders.send(assignment).is_ok(),
            Orders::Virtual(orders) => orders.send(assignment).is_ok(),
        };
        // The thread ends only when this end is dropped: it catches panics of the
        // functions and has none itself.
        assert!(sent, "the compute thread is there");
    }

    /// Waits for the next answered assignment.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn computed(&mut self) -> Computed {
        self.done.recv().await.expect("the compute thread is there")
    }

    pub(crate) fn try_computed(&mut self) -> Option<Computed> {
        self.done.try_recv().ok()
    }
}

impl Drop for ComputeThread {
    fn drop(&mut self) {
        self.current_run.store(NO_RUN, Ordering::Relaxed);
    }
}

/// The functions of a compute thread and the way of its answers.
struct Bench {
    entries: Vec<Entry>,
    finished: UnboundedSender<Computed>,
    current_run: Arc<AtomicU64>,
}

impl Bench {
    /// Runs an assignment; returns its answer, its work, and the time of its beginning. `None` for
    /// one of an earlier run.
    fn run(&self, bytes: &[u8]) -> Option<(Computed, Work, Instant)> {
        // The I/O loop has read the assignment before it handed it over.
        let assignment = wire::read_assignment(bytes).expect("an assignment was read once");
        if self.current_run.load(Ordering::Relaxed) != u64::from(assignment.run) {
            return None;
        }
        let (function, count) = (assignment.function, assignment.count);
        let (mut answer, started) = (Vec::with_capacity(bytes.len()), Instant::now());
        let entry = &self.entries[function as usize];
        let (ended, work) = host::working(|| run_tasks(entry, assignment, started, &mut answer));
        Some((Computed { answer, function, count, busy: ended - started }, work, started))
    }
}

fn compute(bench: &Bench, orders: &mpsc::Receiver<Vec<u8>>) {
    while let Ok(bytes) = orders.recv() {
        let Some((computed, ..)) = bench.run(&bytes) else { continue };
        if bench.finished.send(computed).is_err() {
            return;
        }
    }
}

async fn compute_virtually(bench: Bench, mut orders: UnboundedReceiver<Vec<u8>>) {
    while let Some(bytes) = orders.recv().await {
        let Some((mut computed, work, started)) = bench.run(&bytes) else { continue };
        computed.busy = settle(work, started, started, &mut computed.answer).await - started;
        if bench.finished.send(computed).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::wire::Answer;
    use chunkcomm_cluster::Registry;

    fn entries() -> Vec<Entry> {
        let mut registry = Registry::new();
        registry.register("inverse", |number: u32| {
            assert!(number != 0, "no inverse of zero");
            1.0 / f64::from(number)
        });
        registry.entries().cloned().collect()
    }

    fn assignment(run: u32, first: u64, numbers: &[u32]) -> Vec<u8> {
        let mut bytes = Vec::new();
        wire::begin_assignment(&mut bytes, run, 0, first);
        numbers.iter().for_each(|number| wire::put_value(&mut bytes, number).unwrap());
        wire::finish_assignment(&mut bytes, numbers.len() as u32);
        bytes
    }

    #[tokio::test]
    async fn the_thread_answers_with_results_and_times() {
        let mut thread = ComputeThread::start(entries()).unwrap();
        thread.hand_over(1, assignment(1, 5, &[2, 4]));
        let computed = thread.computed().await;
        assert_eq!((computed.function, computed.count), (0, 2));
        match wire::read_answer(&computed.answer).unwrap() {
            Answer::Done { run, first, count, busy_ns, mut results } => {
                assert_eq!((run, first, count), (1, 5, 2));
                assert_eq!(busy_ns, nanos(computed.busy));
                assert_eq!(results.next(), Ok(Some(&0.5f64.to_le_bytes()[..])));
                assert_eq!(results.next(), Ok(Some(&0.25f64.to_le_bytes()[..])));
                assert_eq!(results.next(), Ok(None));
            }
            Answer::Failed { text, .. } => panic!("{text}"),
        }
    }

    #[tokio::test]
    async fn a_panic_is_answered_with_index_and_message() {
        let mut thread = ComputeThread::start(entries()).unwrap();
        thread.hand_over(1, assignment(1, 5, &[2, 0, 4]));
        match wire::read_answer(&thread.computed().await.answer).unwrap() {
            Answer::Failed { run: 1, index: 6, text } => {
                assert_eq!(text, "function \"inverse\" panicked: no inverse of zero");
            }
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn what_an_earlier_run_left_is_passed_over() {
        let mut thread = ComputeThread::start(entries()).unwrap();
        // An assignment of run 1 not begun when run 2 begins: sent without `hand_over`.
        thread.current_run.store(2, Ordering::Relaxed);
        let Orders::Thread(orders) = &thread.orders else { panic!("a real thread") };
        orders.send(assignment(1, 0, &[1])).unwrap();
        thread.hand_over(2, assignment(2, 9, &[1]));
        match wire::read_answer(&thread.computed().await.answer).unwrap() {
            Answer::Done { run: 2, first: 9, .. } => {}
            other => panic!("{other:?}"),
        }
        assert!(thread.try_computed().is_none());
    }
}
