//! Statistics of a run.

use std::time::Duration;

use chunkcomm::stats::PeerStats;
use chunkcomm::stats::trace::TraceEvents;

use crate::error::Loss;
use crate::name::WorkerName;
pub use crate::proto::ledger::Mishaps;
pub use crate::proto::timeline::{TaskSpan, Timeline};

/// Statistics of one worker in a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkerStats {
    /// Name of the worker.
    pub worker: WorkerName,
    /// Number of tasks whose results the worker gave, those that were dropped among them.
    pub tasks: u64,
    /// Number of messages that brought these results.
    pub answers: u64,
    /// Number of threads on which the worker computes, those below a sub-farmer among them; of virtual
    /// workers where tasks wait.
    pub threads: u32,
    /// Time spent in the tasks themselves, summed over the worker's threads. Waits count: the sum
    /// is then that of the virtual workers.
    pub busy: Duration,
    /// Largest number of virtual workers that the worker had; 0 if its tasks did not wait.
    pub virtual_workers: u32,
    /// Time without a task, summed over the threads: the farmer had given the worker fewer tasks than
    /// it has threads. The source had none, others had the last ones, or the grain is too large.
    pub waited_for_farmer: Duration,
    /// Rest of the threads' time in the run. Assignments and answers were under way, too large to leave
    /// at once, or not yet read at a farmer that is busy. The worker's own time for them is in it, and
    /// the time of tasks whose results did not come before the end of the run.
    pub waited_for_wire: Duration,
    /// Number of its tasks that did not end in time. Each still has a thread, if the worker is there
    /// and the task was not waiting.
    pub timed_out: u64,
    /// Number of workers that a sub-farmer has lost since the end of the run before.
    pub lost_below: u64,
    /// Tasks of the run that a sub-farmer has given out again, moved or given twice, as far as it has
    /// told before the end of the run. They are not in [`RunStats::mishaps`].
    pub mishaps_below: Mishaps,
    /// Cause of the worker's loss; `None` while it is there.
    pub lost: Option<Loss>,
}

impl WorkerStats {
    pub(crate) fn new(worker: WorkerName) -> WorkerStats {
        WorkerStats {
            worker,
            tasks: 0,
            answers: 0,
            threads: 0,
            busy: Duration::ZERO,
            waited_for_farmer: Duration::ZERO,
            waited_for_wire: Duration::ZERO,
            virtual_workers: 0,
            timed_out: 0,
            lost_below: 0,
            mishaps_below: Mishaps::default(),
            lost: None,
        }
    }
}

/// How far a run is, in numbers of tasks.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    /// Given to workers, or found in the journal.
    pub given: u64,
    /// Of those, without a result yet.
    pub unanswered: u64,
    /// Still in the stream or the iterator, where it tells its length exactly.
    pub left: Option<u64>,
    /// Sum of the fractions of running tasks that are done, as far as these report one
    /// ([`TaskContext::progress`](crate::TaskContext::progress)); at most `unanswered`.
    pub underway: f64,
}

impl Progress {
    /// Returns the work that is done, in tasks: those that have a result, failed ones among them, and the
    /// reported fractions of others. It may fall: fractions that a lost worker has reported no longer count.
    #[must_use]
    pub fn done(&self) -> f64 {
        (self.given - self.unanswered) as f64 + self.underway
    }

    /// Returns the number of all tasks, where it is known.
    #[must_use]
    pub fn total(&self) -> Option<u64> {
        self.left.map(|left| self.given + left)
    }
}

/// Report of a run: tasks, time, workers, packets.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunStats {
    /// Number of tasks whose results were accepted; those that failed are among them, those that
    /// were set aside are not.
    pub tasks: u64,
    /// Number of tasks whose results were in the journal of an earlier farmer; not among `tasks`.
    pub recalled: u64,
    /// Time from the first assignment to the last result. The start of the workers is
    /// not in it.
    pub elapsed: Duration,
    /// Statistics of each worker, in the order in which they came, lost ones among them.
    pub workers: Vec<WorkerStats>,
    /// Numbers of tasks that were lost, moved or done twice; those below a sub-farmer are in
    /// [`WorkerStats::mishaps_below`].
    pub mishaps: Mishaps,
    /// Messages and packets between the farmer and all its workers, counted at the farmer and summed
    /// over the workers. A run ends when its last result is accepted: the next run may count a few
    /// of its packets of acknowledgements. Maxima are those since the workers' sessions began.
    pub traffic: PeerStats,
    /// The tasks of each worker in time, where the farm
    /// [keeps it](crate::FarmBuilder::keep_timeline).
    pub timeline: Option<Timeline>,
}

impl RunStats {
    /// Returns the number of tasks a second; 0 for an empty run.
    #[must_use]
    pub fn tasks_per_second(&self) -> f64 {
        if self.tasks == 0 { 0.0 } else { self.tasks as f64 / self.elapsed.as_secs_f64() }
    }

    /// Returns the timeline as JSON in the Trace Event Format of Chrome, which Perfetto
    /// (<https://ui.perfetto.dev>) and `chrome://tracing` show; `None` where none was kept. Each worker is a
    /// process with its threads. A span is an answer: the time of its tasks, until the farmer took it.
    #[must_use]
    pub fn to_trace_json(&self) -> Option<String> {
        let timeline = self.timeline.as_ref()?;
        let mut events = TraceEvents::new();
        for (number, worker) in (0..).zip(&self.workers) {
            let lost = worker.lost.as_ref().map(|loss| format!(", lost: {loss}"));
            let name = format!("{}{}", worker.worker, lost.unwrap_or_default());
            events.name_process(number, &name);
            for thread in 0..worker.threads as usize {
                events.name_thread(number, thread, &format!("thread {thread}"));
            }
        }
        for span in &timeline.spans {
            let [begin, end] = [span.begin, span.end].map(|it| it.as_nanos() as u64);
            let at = (span.worker as u32, span.thread as usize);
            let last = span.first + u64::from(span.tasks).saturating_sub(1);
            let name = match span.tasks {
                1 => format!("task {}", span.first),
                _ => format!("tasks {} to {last}", span.first),
            };
            events.span(at, begin, end - begin, &name, &[("tasks", &span.tasks)]);
        }
        if timeline.spans_dropped > 0 {
            let text = format!("{} answers are missing: there is no room", timeline.spans_dropped);
            events.note(0, self.elapsed.as_nanos() as u64, &text);
        }
        Some(events.finish())
    }

    /// Returns the time spent in tasks, summed over the workers.
    #[must_use]
    pub fn busy(&self) -> Duration {
        self.workers.iter().map(|worker| worker.busy).sum()
    }
}

/// The results of a run in the order of its tasks, and the run's report.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome<O> {
    /// One result a task, in the order of the tasks.
    pub results: Vec<O>,
    /// Report of the run.
    pub stats: RunStats,
}

/// The one result of a run, and the run's report.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Reduced<O> {
    /// The result; `None` without an input.
    pub value: Option<O>,
    /// Report of the run. A task is a group of inputs, or a problem to divide.
    pub stats: RunStats,
}
