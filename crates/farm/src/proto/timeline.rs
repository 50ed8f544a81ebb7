//! A timeline of a run: which worker had which tasks, and when.
//!
//! The farmer alone keeps it, from the answers. An answer tells how long its tasks took, but not
//! when. So its span ends when the answer came. Spans of a worker that overlap belong to different
//! threads.

use std::collections::VecDeque;
use std::time::Duration;

/// Tasks whose results came in one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskSpan {
    /// Index of the worker in [`RunStats::workers`](crate::RunStats::workers).
    pub worker: usize,
    /// Thread of the worker, from 0: the first free one, as far as the farmer knows.
    pub thread: u32,
    /// Begin, since the begin of the run: `end` less the time of the tasks, but not before the end
    /// of the thread's previous span.
    pub begin: Duration,
    /// Time at which the farmer took the answer, since the begin of the run. A result may wait up
    /// to 100 ms at its worker, to be sent together with others.
    pub end: Duration,
    /// Index of the first task.
    pub first: u64,
    /// Number of tasks.
    pub tasks: u32,
}

/// Spans of a run, kept with [`FarmBuilder::keep_timeline`](crate::FarmBuilder::keep_timeline).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeline {
    /// The spans in the order in which the answers came.
    pub spans: Vec<TaskSpan>,
    /// Number of spans that were dropped, beyond the most that are kept.
    pub spans_dropped: u64,
}

/// Number of the latest spans that are kept for a viewer.
const LATEST_COUNT_MAX: usize = 16 << 10;

/// The latest spans.
#[derive(Clone, Debug)]
pub(crate) struct Latest {
    /// Time since which they are kept.
    pub(crate) since: Duration,
    pub(crate) spans: VecDeque<TaskSpan>,
}

/// A timeline in the making.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    pub(crate) timeline: Timeline,
    spans_max: usize,
    /// The latest spans, while somebody looks at them.
    latest: Option<Latest>,
    /// Time until which each thread of each worker is taken.
    taken_ns: Vec<Vec<u64>>,
}

impl Recorder {
    pub(crate) fn new(spans_max: usize) -> Recorder {
        Recorder { timeline: Timeline::default(), spans_max, latest: None, taken_ns: Vec::new() }
    }

    /// Whether the timeline is kept for the program.
    pub(crate) fn keeps(&self) -> bool {
        self.spans_max > 0
    }

    /// Keeps the latest spans from now on; returns them.
    pub(crate) fn look(&mut self, now: Duration) -> &Latest {
        self.latest.get_or_insert_with(|| Latest { since: now, spans: VecDeque::new() })
    }

    /// Keeps the latest spans no more.
    pub(crate) fn look_away(&mut self) {
        self.latest = None;
    }

    /// Adds an answer of a worker that has this number of threads.
    pub(crate) fn add(
        &mut self,
        (worker, threads): (usize, u32),
        (first, tasks): (u64, u32),
        busy_ns: u64,
        now_ns: u64,
    ) {
        let is_full = self.timeline.spans.len() >= self.spans_max;
        self.timeline.spans_dropped += u64::from(is_full);
        if is_full && self.latest.is_none() {
            return;
        }
        if self.taken_ns.len() <= worker {
            self.taken_ns.resize(worker + 1, Vec::new());
        }
        let taken_ns = &mut self.taken_ns[worker];
        let begin_ns = now_ns.saturating_sub(busy_ns);
        let free = taken_ns.iter().position(|&until_ns| until_ns <= begin_ns);
        let thread = match free {
            Some(thread) => thread,
            None if taken_ns.len() < threads as usize => {
                taken_ns.push(0);
                taken_ns.len() - 1
            }
            // All threads seem taken: the clocks of two hosts differ, or an answer took longer than
            // the one before.
            None => (0..taken_ns.len()).min_by_key(|&at| taken_ns[at]).unwrap_or_default(),
        };
        let Some(until_ns) = taken_ns.get_mut(thread) else { return };
        let begin_ns = begin_ns.max(*until_ns).min(now_ns);
        *until_ns = now_ns;
        let [begin, end] = [begin_ns, now_ns].map(Duration::from_nanos);
        let thread = thread as u32;
        let span = TaskSpan { worker, thread, begin, end, first, tasks };
        if !is_full {
            self.timeline.spans.push(span);
        }
        if let Some(Latest { spans: latest, .. }) = &mut self.latest {
            if latest.len() >= LATEST_COUNT_MAX {
                latest.pop_front();
            }
            latest.push_back(span);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(recorder: &Recorder) -> Vec<(usize, u32, u128, u128)> {
        let of = |it: &TaskSpan| (it.worker, it.thread, it.begin.as_nanos(), it.end.as_nanos());
        recorder.timeline.spans.iter().map(of).collect()
    }

    #[test]
    fn spans_that_overlap_stand_in_different_threads() {
        let mut recorder = Recorder::new(9);
        recorder.add((1, 2), (0, 5), 100, 100);
        recorder.add((1, 2), (5, 1), 60, 110);
        recorder.add((1, 2), (6, 1), 10, 110);
        recorder.add((0, 1), (7, 1), 500, 120);
        let expected = [(1, 0, 0, 100), (1, 1, 50, 110), (1, 0, 100, 110), (0, 0, 0, 120)];
        assert_eq!(spans(&recorder), expected);
        assert_eq!((recorder.timeline.spans[0].first, recorder.timeline.spans[0].tasks), (0, 5));
    }

    #[test]
    fn a_thread_has_one_span_at_a_time() {
        let mut recorder = Recorder::new(9);
        recorder.add((0, 1), (0, 1), 40, 50);
        recorder.add((0, 1), (1, 1), 40, 60);
        recorder.add((0, 1), (2, 1), 40, 60);
        assert_eq!(spans(&recorder), [(0, 0, 10, 50), (0, 0, 50, 60), (0, 0, 60, 60)]);
    }

    #[test]
    fn the_latest_spans_are_kept_while_somebody_looks() {
        let mut recorder = Recorder::new(1);
        recorder.add((0, 1), (0, 1), 1, 1);
        let at = Duration::from_nanos;
        assert!(recorder.look(at(1)).spans.is_empty());
        let last = LATEST_COUNT_MAX as u64 + 2;
        (1..=last).for_each(|at| recorder.add((0, 1), (at, 1), 1, at + 1));
        let latest = recorder.look(at(last));
        assert_eq!((latest.since, latest.spans.len()), (at(1), LATEST_COUNT_MAX));
        assert_eq!(latest.spans.back().map(|span| span.first), Some(last));
        assert_eq!((recorder.timeline.spans.len(), recorder.timeline.spans_dropped), (1, last));
        recorder.look_away();
        recorder.add((0, 1), (9, 1), 1, last + 2);
        let latest = recorder.look(at(last + 3));
        assert!(latest.spans.is_empty() && latest.since == at(last + 3));
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let mut recorder = Recorder::new(1);
        (0..3).for_each(|at| recorder.add((0, 1), (at, 1), 1, at));
        assert_eq!((recorder.timeline.spans.len(), recorder.timeline.spans_dropped), (1, 2));
    }
}
