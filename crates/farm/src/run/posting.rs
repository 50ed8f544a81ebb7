//! A run's section of the node's report, while somebody looks.

use std::time::Duration;

use chunkcomm::report::{Cell, Section, State, Table, Timeline};

use super::Run;
use crate::proto::timeline::TaskSpan;
use crate::stats::WorkerStats;
use crate::tasks::{Input, Output, Sink, Source};

/// Time between two sections: 200 ms, and 1 ms more for each worker.
const POSTED_EVERY: Duration = Duration::from_millis(200);

/// Time that the timeline shows: 60 s.
const WINDOW: Duration = Duration::from_secs(60);

/// Longest gap of spans that are shown as one, and the longest span that is joined: 100 ms.
const JOINED: Duration = Duration::from_millis(100);

const COLUMNS: [&str; 8] =
    ["worker", "state", "tasks", "holds", "threads", "busy", "a task", "cause"];

impl<O: Output, T: Source<Task: Input>, S: Sink<O>> Run<'_, O, T, S> {
    /// Posts the section of the run, if somebody looks and its time has come. The last one `is_over`.
    pub(super) fn post(&mut self, is_over: bool) {
        let board = &self.workers.board;
        if !board.is_looked_at() {
            return;
        }
        if !board.look_again() {
            return self.account.look_away();
        }
        let each = Duration::from_millis(self.account.workers.len() as u64);
        if !is_over && !board.is_older(POSTED_EVERY + each) {
            return;
        }
        let stats = self.account.stats();
        let section = self.facts(board.section(), &stats, is_over).table(self.table(&stats));
        let section = section.timeline(self.running(&stats));
        self.workers.board.post(section, is_over);
    }

    fn facts(&self, section: Section, stats: &[WorkerStats], is_over: bool) -> Section {
        let (progress, elapsed) = (self.progress(), self.account.started.elapsed());
        let (done, mishaps) = (progress.given - progress.unanswered, self.account.ledger.mishaps());
        let state = match is_over {
            true => Cell::state(State::Idle, "done"),
            false => Cell::state(State::Busy, "runs"),
        };
        let rate = (done > self.account.recalled)
            .then(|| (done - self.account.recalled) as f64 / elapsed.as_secs_f64());
        let part = progress.total().filter(|&total| total > 0);
        let part = part.map_or(Cell::Nothing, |total| Cell::Share(progress.done() / total as f64));
        let left = progress.total().map(|total| total as f64 - progress.done());
        let estimate = left.zip(rate).map(|(left, rate)| (left.max(0.0) / rate * 1e6) as u64);
        let lost = stats.iter().filter(|it| it.lost.is_some()).count() as u64;
        let timed_out = stats.iter().map(|it| it.timed_out).sum();
        section
            .fact("state", state)
            .fact("function", Cell::text(self.account.function()))
            .fact("part done", part)
            .fact("done", Cell::Count(done))
            .fact("under way", Cell::Count(progress.unanswered))
            .fact("open", progress.left.map_or(Cell::Nothing, Cell::Count))
            .fact("rate", rate.map_or(Cell::Nothing, Cell::Rate))
            .fact("for", Cell::Micros(elapsed.as_micros() as u64))
            .fact("time left", estimate.filter(|_| !is_over).map_or(Cell::Nothing, Cell::Micros))
            .fact("workers", Cell::Count(stats.len() as u64 - lost))
            .fact("deaths", Cell::Count(lost))
            .fact("retries", Cell::Count(mishaps.reissued))
            .fact("copies of stragglers", Cell::Count(mishaps.copied))
            .fact("given back", Cell::Count(mishaps.returned))
            .fact("dropped results", Cell::Count(mishaps.dropped))
            .fact("timed out", Cell::Count(timed_out))
            .fact("from the journal", Cell::Count(self.account.recalled))
    }

    fn table(&self, stats: &[WorkerStats]) -> Table {
        let elapsed = self.account.started.elapsed().as_secs_f64();
        let mut table = Table::new("workers", &COLUMNS);
        for (at, worker) in stats.iter().enumerate() {
            let held = self.account.ledger.held(at);
            let state = match &worker.lost {
                Some(_) => (State::Gone, "lost"),
                None if self.lookout.is_silent(at) => (State::Trouble, "silent"),
                None if self.account.ledger.is_kept_off(at) => (State::Idle, "not chosen"),
                None if held == 0 => (State::Idle, "idle"),
                None => (State::Busy, "works"),
            };
            let busy = worker.busy.as_secs_f64() / (elapsed * f64::from(worker.threads.max(1)));
            let mean = worker.busy.as_micros().checked_div(u128::from(worker.tasks));
            table.row([
                Cell::text(&worker.worker.to_string()),
                Cell::state(state.0, state.1),
                Cell::Count(worker.tasks),
                Cell::Count(held),
                Cell::Count(u64::from(worker.threads)),
                Cell::Share(busy.min(1.0)),
                mean.map_or(Cell::Nothing, |mean| Cell::Micros(mean as u64)),
                worker.lost.as_ref().map_or(Cell::Nothing, |loss| Cell::text(&loss.to_string())),
            ]);
        }
        table
    }

    /// Returns what ran in the last minute. A span of no task is one of a worker that has not answered yet.
    fn running(&mut self, stats: &[WorkerStats]) -> Timeline {
        let now = self.account.started.elapsed();
        let since = now.saturating_sub(WINDOW);
        let names = stats.iter().map(|it| it.worker.to_string());
        let mut timeline = Timeline::new(names, now.as_micros() as u64);
        let mut lines = Lines::default();
        let latest = self.account.look();
        // Nothing is known of the time before somebody looked.
        let known = latest.since.max(since);
        latest.spans.iter().filter(|span| span.end >= since).for_each(|span| lines.add(span));
        for span in lines.joined {
            let at = (span.begin.as_micros() as u64, span.end.as_micros() as u64);
            timeline.span((span.worker as u32, span.thread), at, span.first, span.tasks.into());
        }
        for (worker, stats) in stats.iter().enumerate() {
            let held = self.account.ledger.held(worker);
            if stats.lost.is_none() && held > 0 {
                let last = lines.last.get(worker).into_iter().flatten().filter_map(|it| it.1);
                let begin = last.max().unwrap_or(known);
                let at = (begin.as_micros() as u64, now.as_micros() as u64);
                timeline.span((worker as u32, 0), at, 0, 0);
            }
        }
        timeline
    }
}

/// Spans of the timeline, the short ones of a thread joined.
#[derive(Default)]
struct Lines {
    joined: Vec<TaskSpan>,
    /// Of each worker and thread, the index of its last span, and when that ended.
    last: Vec<Vec<(usize, Option<Duration>)>>,
}

impl Lines {
    /// Adds a span; those of a thread come in order.
    fn add(&mut self, span: &TaskSpan) {
        let (worker, thread) = (span.worker, span.thread as usize);
        if self.last.len() <= worker {
            self.last.resize(worker + 1, Vec::new());
        }
        let last = &mut self.last[worker];
        if last.len() <= thread {
            last.resize(thread + 1, (0, None));
        }
        let (at, ended) = last[thread];
        let before = ended.and_then(|_| self.joined.get_mut(at));
        let is_short = span.end - span.begin < JOINED;
        match before {
            Some(before)
                if is_short
                    && before.end - before.begin < 2 * JOINED
                    && span.begin.saturating_sub(before.end) < JOINED =>
            {
                before.end = span.end;
                before.tasks = before.tasks.saturating_add(span.tasks);
                last[thread].1 = Some(span.end);
            }
            _ => {
                last[thread] = (self.joined.len(), Some(span.end));
                self.joined.push(*span);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(thread: u32, begin: u64, end: u64) -> TaskSpan {
        let [begin, end] = [begin, end].map(Duration::from_millis);
        TaskSpan { worker: 1, thread, begin, end, first: begin.as_millis() as u64, tasks: 2 }
    }

    #[test]
    fn short_spans_of_a_thread_are_joined_and_long_ones_stay() {
        let mut lines = Lines::default();
        let spans = [(0, 0, 9), (0, 9, 20), (1, 5, 30), (0, 20, 400), (0, 400, 410), (0, 600, 610)];
        spans.iter().for_each(|&(thread, begin, end)| lines.add(&span(thread, begin, end)));
        let seen = lines
            .joined
            .iter()
            .map(|it| (it.thread, it.begin.as_millis(), it.end.as_millis(), it.tasks));
        let expected =
            [(0, 0, 20, 4), (1, 5, 30, 2), (0, 20, 400, 2), (0, 400, 410, 2), (0, 600, 610, 2)];
        assert_eq!(seen.collect::<Vec<_>>(), expected);
    }
}
