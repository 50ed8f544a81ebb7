//! Statistics of a run.

use std::time::Duration;

use chunkcomm::stats::PeerStats;
use chunkcomm::stats::trace::TraceEvents;

use crate::name::WorkerName;
pub use crate::proto::ledger::Mishaps;
pub use crate::proto::timeline::{TaskSpan, Timeline};
use chunkcomm::Loss;

/// Statistics of one worker in a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkerStats {
    /// Name of the worker.
    pub worker: WorkerName,
    /// Number of tasks whose results the worker gave, dropped results included.
    pub tasks: u64,
    /// Number of messages that brought these results.
    pub answers: u64,
    /// Number of threads on which the worker computes, those below a sub-farmer included; the
    /// number of virtual workers where tasks wait.
    pub threads: u32,
    /// Time spent in the tasks themselves, waits included, summed over the worker's threads. It is
    /// summed over the virtual workers where tasks wait.
    pub busy: Duration,
    /// Largest number of virtual workers that the worker had; 0 if its tasks did not wait.
    pub virtual_workers: u32,
    /// Time without a task, summed over the threads: the worker had fewer tasks than threads.
    /// Causes: the source had no task, other workers had the last ones, or the grain is too large.
    pub waited_for_farmer: Duration,
    /// Remaining time of the threads in the run: they waited for messages.
    ///
    /// Assignments and answers were under way, too large to leave at once, or not yet read by a
    /// busy farmer. The worker's own time for messages counts here. So does the time of tasks whose
    /// results came too late for the run.
    pub waited_for_wire: Duration,
    /// Number of the worker's tasks that did not end in time. A thread still runs such a task if
    /// the worker is there and the task was not waiting.
    pub timed_out: u64,
    /// Number of workers that a sub-farmer has lost since the end of the previous run.
    pub lost_below: u64,
    /// Mishaps of a sub-farmer's tasks, as far as it has reported them before the end of the run.
    /// They are not part of [`RunStats::mishaps`].
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

/// Progress of a run, in numbers of tasks.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    /// Number of tasks that were given to workers, or found in the journal.
    pub given: u64,
    /// Number of given tasks that have no result yet.
    pub unanswered: u64,
    /// Number of tasks still in the stream or the iterator; `None` unless it tells its length
    /// exactly.
    pub left: Option<u64>,
    /// Sum of the reported fractions of running tasks
    /// ([`TaskContext::progress`](crate::TaskContext::progress)); at most `unanswered`.
    pub underway: f64,
}

impl Progress {
    /// Returns the work that is done, in tasks: tasks with a result or a failure, and reported
    /// fractions.
    ///
    /// It may fall: fractions that a lost worker has reported no longer count.
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
    /// Number of tasks whose results were accepted; failed ones count, those that were set aside do
    /// not.
    pub tasks: u64,
    /// Number of tasks whose results were in the journal of an earlier farmer; not part of `tasks`.
    pub recalled: u64,
    /// Time from the first assignment to the last result, without the start of the workers.
    pub elapsed: Duration,
    /// Statistics of each worker, lost ones included, in the order in which they came.
    pub workers: Vec<WorkerStats>,
    /// Numbers of tasks that were lost, moved or done twice, except those of
    /// [`WorkerStats::mishaps_below`].
    pub mishaps: Mishaps,
    /// Messages and packets between the farmer and all its workers, counted at the farmer.
    ///
    /// A run ends when its last result is accepted, so the next run may count some of its
    /// acknowledgements. Maxima are those since the workers' sessions began.
    pub traffic: PeerStats,
    /// Timeline of the workers' tasks, if the farm [keeps it](crate::FarmBuilder::keep_timeline).
    pub timeline: Option<Timeline>,
}

impl RunStats {
    /// Returns the number of tasks a second; 0 for an empty run.
    #[must_use]
    pub fn tasks_per_second(&self) -> f64 {
        if self.tasks == 0 { 0.0 } else { self.tasks as f64 / self.elapsed.as_secs_f64() }
    }

    /// Returns the timeline as JSON in the Trace Event Format of Chrome; `None` where none was
    /// kept.
    ///
    /// Perfetto (<https://ui.perfetto.dev>) and `chrome://tracing` show it. Each worker is a
    /// process with its threads. A span is an answer: the time of its tasks, up to the farmer's
    /// receipt.
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

/// Results of a run in the order of its tasks, and the run's report.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome<O> {
    /// The results, one a task, in the order of the tasks.
    pub results: Vec<O>,
    /// Report of the run.
    pub stats: RunStats,
}

/// Single result of a run, and the run's report.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Reduced<O> {
    /// The result; `None` if there was no input.
    pub value: Option<O>,
    /// Report of the run. A task is a group of inputs, or a problem to divide.
    pub stats: RunStats,
}
