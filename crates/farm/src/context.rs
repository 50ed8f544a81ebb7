//! The task that a thread runs, for its function and its worker.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::needs::{Needs, Unanswered};
use crate::pieces::Piece;
use crate::proto::progress::{Reports, WHOLE};
use crate::values::{Once, Values};

/// The running task: its index, its attempt, and whether it should end.
///
/// Functions registered with [`RegistryExt::register_task`](crate::RegistryExt::register_task) and
/// [`RegistryExt::register_async_task`](crate::RegistryExt::register_async_task) get it.
#[derive(Clone)]
pub struct TaskContext {
    numbers: Numbers,
    work: Arc<Work>,
}

/// Numbers of a task.
#[derive(Clone, Copy)]
struct Numbers {
    run: u32,
    index: u64,
    attempt: u32,
    /// Serial of the task at its runner.
    serial: u64,
}

impl Numbers {
    /// Those of a function that runs outside of a farm.
    const OUTSIDE: Numbers = Numbers { run: 0, index: 0, attempt: 0, serial: 1 };
}

impl fmt::Debug for TaskContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskContext")
            .field("index", &self.index())
            .field("attempt", &self.attempt())
            .field("is_cancelled", &self.is_cancelled())
            .finish()
    }
}

impl TaskContext {
    /// Returns the index of the task in its run.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.numbers.index
    }

    /// Returns how often the task was given out before; 0 for the first attempt.
    ///
    /// A task is given out again when its worker died, or when it was moved or copied. More than
    /// one attempt may run at a time.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.numbers.attempt
    }

    /// Returns whether the task should end.
    ///
    /// It should if its [time](crate::FarmBuilder::task_timeout) is over, another run has begun, or
    /// the farm has ended. A function that runs for long looks here, and returns the best that it
    /// has, or panics. A result that comes within the grace counts.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        let Work { cancelled, abandoned, common, .. } = &*self.work;
        cancelled.load(Ordering::Relaxed) == self.numbers.serial
            || abandoned.load(Ordering::Relaxed)
            || common.closed.load(Ordering::Relaxed)
            || common.run.load(Ordering::Relaxed) != self.numbers.run
    }

    /// Reports the fraction of the task that is done, from 0 to 1, for
    /// [`Progress`](crate::Progress) at the farmer.
    ///
    /// Call it as often as is handy: a report with the same thousandths costs a few nanoseconds,
    /// another one a lock. A worker sends the newest fraction of each running task, at most every
    /// 200 ms. So a task that ends before then is not reported. Of two attempts at a task the
    /// larger fraction counts. A value outside of 0 to 1 counts as the nearest one, and one that is
    /// no number as 0.
    ///
    /// ```
    /// use chunkcomm_cluster::Registry;
    /// use chunkcomm_farm::RegistryExt;
    ///
    /// let mut registry = Registry::new();
    /// let sums = registry.register_task("sums", |task, rows: Vec<Vec<f64>>| {
    ///     let sum = |(at, row): (usize, &Vec<f64>)| {
    ///         task.progress(at as f64 / rows.len() as f64);
    ///         row.iter().sum::<f64>()
    ///     };
    ///     rows.iter().enumerate().map(sum).collect::<Vec<_>>()
    /// });
    /// ```
    pub fn progress(&self, fraction: f64) {
        let thousandths = (fraction.clamp(0.0, 1.0) * f64::from(WHOLE)) as u32;
        let Work { reported, common, .. } = &*self.work;
        let report = self.numbers.serial << THOUSANDTHS_BITS | u64::from(thousandths);
        if reported.swap(report, Ordering::Relaxed) != report {
            common.reports().report(self.run(), self.index(), thousandths);
        }
    }

    /// Drops the report of the task, which has ended.
    pub(crate) fn end_reports(&self) {
        if self.work.reported.load(Ordering::Relaxed) != 0 {
            self.work.common.reports().end(self.run(), self.index()..self.index() + 1);
        }
    }

    /// Returns the values that tasks of its worker compute for each other.
    pub(crate) fn values(&self) -> &Once {
        &self.work.common.once
    }

    /// Returns the values that other workers may have.
    pub(crate) fn needs(&self) -> &Needs {
        &self.work.common.needs
    }

    /// Begins a task that may wait. The task has a state of its own, since its thread runs others
    /// meanwhile.
    pub(crate) fn begin(common: &Arc<Common>, tasks: &Piece, now_ns: u64) -> TaskContext {
        let &Piece { run, first: index, attempt, .. } = tasks;
        let work = Arc::new(Work::new(common.clone()));
        let serial = work.begin(index, now_ns);
        TaskContext { numbers: Numbers { run, index, attempt, serial }, work }
    }

    pub(crate) fn run(&self) -> u32 {
        self.numbers.run
    }

    /// Returns the time at which the task began, in nanoseconds.
    pub(crate) fn begun_ns(&self) -> u64 {
        self.work.begun_ns.load(Ordering::Relaxed)
    }

    /// Asks the task to end; returns whether this is the first request.
    pub(crate) fn cancel(&self) -> bool {
        let serial = self.numbers.serial;
        self.work.cancelled.swap(serial, Ordering::Relaxed) != serial
    }

    /// Runs a part of the task on this thread.
    pub(crate) fn within<R>(&self, run: impl FnOnce() -> R) -> R {
        CURRENT.with(|current| {
            current.work.replace(Some(self.work.clone()));
            current.numbers.set(self.numbers);
            let result = run();
            current.work.replace(None);
            current.numbers.set(Numbers::OUTSIDE);
            current.is_seen.set(false);
            result
        })
    }
}

/// Returns the worker whose task runs on this thread.
pub(crate) fn current_worker() -> Option<Arc<Common>> {
    CURRENT.with(|current| current.work.borrow().as_ref().map(|work| work.common.clone()))
}

/// Returns whether this thread runs tasks of this runner one after the other.
pub(crate) fn is_at_slice_of(runner: &Arc<Work>) -> bool {
    let is_its = |work: &Arc<Work>| Arc::ptr_eq(work, runner);
    CURRENT.with(|current| current.work.borrow().as_ref().is_some_and(is_its))
}

/// Returns the context of the task that runs on this thread.
pub(crate) fn current() -> TaskContext {
    CURRENT.with(|current| {
        current.is_seen.set(true);
        current.context()
    })
}

thread_local! {
    static CURRENT: Current = const {
        Current {
            work: RefCell::new(None),
            is_seen: Cell::new(false),
            numbers: Cell::new(Numbers::OUTSIDE),
        }
    };
}

/// The task of this thread.
struct Current {
    work: RefCell<Option<Arc<Work>>>,
    /// Whether a function looked at its context.
    is_seen: Cell<bool>,
    numbers: Cell<Numbers>,
}

impl Current {
    fn context(&self) -> TaskContext {
        let work = self.work.borrow().clone().unwrap_or_default();
        TaskContext { numbers: self.numbers.get(), work }
    }
}

/// Bits of a report below its task's serial.
const THOUSANDTHS_BITS: u32 = 10;

const _: () = assert!(WHOLE < 1 << THOUSANDTHS_BITS);

/// Runs tasks on this thread, each with its context; returns whether a function looked at its
/// context.
///
/// `run_next` is called once for each task, and `clock` gives the start of the task.
#[inline]
pub(crate) fn run_each(
    work: &Arc<Work>,
    tasks: &Piece,
    clock: impl Fn() -> u64,
    mut run_next: impl FnMut(),
) -> bool {
    CURRENT.with(|current| {
        current.work.replace(Some(work.clone()));
        let &Piece { run, first, count, attempt, .. } = tasks;
        for index in first..first + u64::from(count) {
            let serial = work.begin(index, clock());
            current.numbers.set(Numbers { run, index, attempt, serial });
            run_next();
        }
        work.end();
        current.work.replace(None);
        current.numbers.set(Numbers::OUTSIDE);
        let is_seen = current.is_seen.take();
        if is_seen {
            work.common.reports().end(run, first..first + u64::from(count));
        }
        is_seen
    })
}

/// Task that runs for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Long {
    pub(crate) serial: u64,
    pub(crate) index: u64,
    pub(crate) begun_ns: u64,
}

/// State that all runners of a worker see.
#[derive(Default)]
pub(crate) struct Common {
    pub(crate) values: Values,
    /// Values of the newest run.
    pub(crate) once: Once,
    /// Fractions of its tasks that are done.
    reports: Mutex<Reports>,
    /// Values that other workers may have.
    pub(crate) needs: Needs,
    /// Number of the newest run.
    pub(crate) run: AtomicU32,
    /// Whether the worker has ended.
    pub(crate) closed: AtomicBool,
}

impl Common {
    /// Begins a run. Returns the questions of the one before.
    pub(crate) fn enter(&self, run: u32) -> Unanswered {
        self.run.store(run, Ordering::Relaxed);
        self.once.clear();
        self.reports().enter(run);
        self.needs.enter(run)
    }

    /// Returns the reports of the newest run.
    pub(crate) fn reports(&self) -> MutexGuard<'_, Reports> {
        self.reports.lock().expect("nothing panics with the reports locked")
    }
}

/// State of a runner, for other threads.
#[derive(Default)]
pub(crate) struct Work {
    /// Odd while a task runs; another number for each task.
    serial: AtomicU64,
    index: AtomicU64,
    begun_ns: AtomicU64,
    /// Serial of the task that should end.
    cancelled: AtomicU64,
    /// Serial of the task that reported a fraction last, and its thousandths.
    reported: AtomicU64,
    /// Whether the runner was given up: nobody waits for it.
    abandoned: AtomicBool,
    /// Whether its task blocks it, or waits to go on. Written with the queue locked, as are
    /// `abandoned` and `back`.
    aside: AtomicBool,
    /// Whether its task waits to go on.
    back: AtomicBool,
    common: Arc<Common>,
}

impl Work {
    pub(crate) fn new(common: Arc<Common>) -> Work {
        Work { common, ..Work::default() }
    }

    /// Notes that the next task begins; returns its serial.
    #[inline]
    pub(crate) fn begin(&self, index: u64, now_ns: u64) -> u64 {
        // Only the runner writes these.
        let serial = (self.serial.load(Ordering::Relaxed) | 1) + 1;
        self.serial.store(serial, Ordering::Relaxed);
        fence(Ordering::Release);
        self.index.store(index, Ordering::Relaxed);
        self.begun_ns.store(now_ns, Ordering::Relaxed);
        self.serial.store(serial + 1, Ordering::Release);
        serial + 1
    }

    /// Notes that no task runs.
    #[inline]
    pub(crate) fn end(&self) {
        let serial = (self.serial.load(Ordering::Relaxed) | 1) + 1;
        self.serial.store(serial, Ordering::Release);
    }

    /// Returns the task that runs, if one does.
    pub(crate) fn now(&self) -> Option<Long> {
        let serial = self.serial.load(Ordering::Acquire);
        let (index, begun_ns) =
            (self.index.load(Ordering::Relaxed), self.begun_ns.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let same = self.serial.load(Ordering::Relaxed) == serial;
        (serial % 2 == 1 && same).then_some(Long { serial, index, begun_ns })
    }

    /// Asks the task that runs to end.
    pub(crate) fn cancel(&self, serial: u64) {
        self.cancelled.store(serial, Ordering::Relaxed);
    }

    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    pub(crate) fn set_aside(&self, is_aside: bool) {
        self.aside.store(is_aside, Ordering::Relaxed);
    }

    pub(crate) fn set_back(&self, is_back: bool) {
        self.back.store(is_back, Ordering::Relaxed);
    }

    pub(crate) fn is_back(&self) -> bool {
        self.back.load(Ordering::Relaxed)
    }

    pub(crate) fn is_aside(&self) -> bool {
        self.aside.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RegistryExt;
    use chunkcomm::codec::encode_into_vec;
    use chunkcomm_cluster::Registry;

    #[test]
    fn a_function_sees_its_task_and_is_told_to_end() {
        let mut registry = Registry::new();
        registry.register_task("who", |task: &TaskContext, (): ()| {
            (task.index(), task.attempt(), task.is_cancelled())
        });
        let entry = registry.lookup("who").unwrap().clone();
        let work = Arc::new(Work::default());
        let mut seen = Vec::new();
        let tasks = Piece { first: 7, count: 3, attempt: 2, ..Piece::default() };
        let is_seen = run_each(
            &work,
            &tasks,
            || 5,
            || {
                let long = work.now().unwrap();
                assert_eq!(long.begun_ns, 5);
                if long.index == 8 {
                    work.cancel(long.serial);
                }
                let mut out = Vec::new();
                entry.call(&[], &mut out).unwrap();
                seen.push(out);
            },
        );
        let encoded = |index: u64, cancelled: bool| {
            let mut bytes = Vec::new();
            encode_into_vec(&(index, 2u32, cancelled), &mut bytes).unwrap();
            bytes
        };
        assert_eq!(seen, [encoded(7, false), encoded(8, true), encoded(9, false)]);
        assert_eq!((work.now(), is_seen), (None, true));

        let mut out = Vec::new();
        entry.call(&[], &mut out).unwrap();
        assert_eq!(out.last(), Some(&0), "outside of a farm nothing is cancelled");
        assert_eq!(current().blocking(|| 5), 5);
    }

    #[test]
    fn tasks_of_other_runs_and_of_ended_workers_are_cancelled() {
        let work = Arc::new(Work::default());
        let common = work.common.clone();
        let cancelled = |run| {
            let mut answers = Vec::new();
            let tasks = Piece { run, count: 2, ..Piece::default() };
            run_each(&work, &tasks, || 0, || answers.push(current().is_cancelled()));
            answers
        };
        common.run.store(4, Ordering::Relaxed);
        assert_eq!((cancelled(4), cancelled(3)), (vec![false; 2], vec![true; 2]));
        common.closed.store(true, Ordering::Relaxed);
        assert_eq!(cancelled(4), [true; 2]);
        assert!(!run_each(&work, &Piece { run: 4, count: 1, ..Piece::default() }, || 0, || ()));
    }

    #[test]
    fn a_task_is_seen_whole_or_not_at_all() {
        let work = Arc::new(Work::default());
        let runner = work.clone();
        let running = std::thread::spawn(move || {
            for number in 1..200_000 {
                runner.begin(number, number);
                if number % 3 == 0 {
                    runner.end();
                }
            }
            runner.end();
        });
        while !running.is_finished() {
            if let Some(long) = work.now() {
                assert_eq!(long.index, long.begun_ns);
            }
        }
        running.join().unwrap();
    }
}
