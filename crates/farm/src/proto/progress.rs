//! Fractions of running tasks that are done, as the tasks report them.
//!
//! ```text
//!   task ──▶ Reports ── a word at most every 200 ms ──▶ Reports of a sub-farmer ──▶ Underway
//! ```
//!
//! A fraction is a number of thousandths. A word has the newest fraction of each task that reported
//! one since the previous word. So a farmer hears from a worker at a bounded rate, whatever the
//! tasks do.

use std::ops::Range;

use chunkcomm_proto::sorted::SortedMap;

use super::wire;

/// Thousandths of a finished task.
pub(crate) const WHOLE: u32 = 1000;

/// Shortest time between two words, in nanoseconds: 200 ms. A farmer of 1000 workers then takes
/// 5000 words a second; a shorter time is not seen on a progress bar.
pub(crate) const EVERY_NS: u64 = 200_000_000;

/// Most tasks of a word; the next word goes on behind them.
const TASKS_MAX: usize = 4096;

/// Reports that were not sent yet.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    run: u32,
    tasks: SortedMap<u64, u32>,
    /// Index behind the last task that was sent, where the next word begins.
    next: u64,
    /// When the last word left.
    told_ns: Option<u64>,
}

impl Reports {
    /// Begins a run; reports of the previous run are dropped.
    pub(crate) fn enter(&mut self, run: u32) {
        (self.run, self.next) = (run, 0);
        self.tasks = SortedMap::new();
    }

    /// Takes the report of a task of this run.
    pub(crate) fn report(&mut self, run: u32, task: u64, thousandths: u32) {
        if run == self.run {
            self.tasks.insert(task, thousandths);
        }
    }

    /// Drops the reports of tasks that have ended.
    pub(crate) fn end(&mut self, run: u32, tasks: Range<u64>) {
        if run == self.run {
            remove(&mut self.tasks, tasks);
        }
    }

    /// Returns the time from which a word may leave; `None` if there is no report.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        let after = self.told_ns.map_or(0, |told_ns| told_ns.saturating_add(EVERY_NS));
        (!self.tasks.is_empty()).then_some(after)
    }

    /// Returns the next word, if one is due.
    pub(crate) fn poll_word(&mut self, now_ns: u64) -> Option<Vec<u8>> {
        self.due_ns().filter(|&due_ns| due_ns <= now_ns)?;
        self.told_ns = Some(now_ns);
        // If each word began with the lowest index, tasks with higher ones might never be sent.
        let first = self.next;
        let lower = self.tasks.keys().take_while(|&&task| task < first);
        let in_turn = self.tasks.keys_from(&first).chain(lower);
        let last = *in_turn.take(TASKS_MAX).last()?;
        self.next = last + 1;
        let mut told = Vec::new();
        self.tasks.retain(|&task, &mut thousandths| {
            // The lowest index follows on the highest.
            let is_told = task.wrapping_sub(first) <= last.wrapping_sub(first);
            if is_told {
                told.push((task, thousandths));
            }
            !is_told
        });
        Some(wire::progress(self.run, &told))
    }
}

/// Fractions of the tasks that workers hold.
#[derive(Debug, Default)]
pub(crate) struct Underway {
    /// Fraction by task, with the worker that reported it.
    tasks: SortedMap<u64, (usize, u32)>,
}

impl Underway {
    /// Takes the report about a task that the worker holds. Of several reports the largest counts.
    pub(crate) fn handle_report(&mut self, worker: usize, task: u64, thousandths: u32) {
        let known = self.tasks.get_or_insert(task, (worker, thousandths));
        if thousandths > known.1 {
            *known = (worker, thousandths);
        }
    }

    /// Drops the fractions of tasks that no worker runs any more.
    #[inline]
    pub(crate) fn handle_ended(&mut self, tasks: Range<u64>) {
        if !self.tasks.is_empty() {
            remove(&mut self.tasks, tasks);
        }
    }

    /// Drops the fractions that a lost worker has reported.
    pub(crate) fn handle_lost(&mut self, worker: usize) {
        self.tasks.retain(|_, &mut (of, _)| of != worker);
    }

    /// Returns the sum of the fractions, in tasks.
    pub(crate) fn sum(&self) -> f64 {
        let thousandths: u64 = self.tasks.values().map(|&(_, it)| u64::from(it)).sum();
        thousandths as f64 / f64::from(WHOLE)
    }
}

fn remove<T>(tasks: &mut SortedMap<u64, T>, ended: Range<u64>) {
    while let Some(&task) = tasks.keys_from(&ended.start).next().filter(|&&it| it < ended.end) {
        tasks.remove(&task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::wire::Answer;

    fn read(word: &[u8]) -> Vec<(u64, u32)> {
        let Ok(Answer::Progress { fractions, .. }) = wire::read_answer(word) else { panic!() };
        fractions.collect()
    }

    #[test]
    fn a_word_has_the_newest_report_of_each_running_task() {
        let mut reports = Reports::default();
        reports.enter(3);
        assert_eq!((reports.due_ns(), reports.poll_word(7)), (None, None));
        for (task, thousandths) in [(5, 100), (2, 300), (5, 200), (9, 400)] {
            reports.report(3, task, thousandths);
        }
        reports.report(2, 8, 900);
        reports.end(3, 9..12);
        reports.end(2, 0..100);
        assert_eq!(read(&reports.poll_word(7).unwrap()), [(2, 300), (5, 200)]);
        assert_eq!(reports.due_ns(), None);
        // The next word has to wait.
        reports.report(3, 5, 201);
        assert_eq!(reports.due_ns(), Some(7 + EVERY_NS));
        assert_eq!(reports.poll_word(6 + EVERY_NS), None);
        assert_eq!(read(&reports.poll_word(7 + EVERY_NS).unwrap()), [(5, 201)]);
        reports.report(3, 5, 202);
        reports.enter(4);
        assert_eq!(reports.due_ns(), None);
    }

    /// Twice the tasks of a word report again before each word: all are told in two words.
    #[test]
    fn a_word_is_bounded_and_the_next_goes_on_behind_it() {
        let mut reports = Reports::default();
        let all = 2 * TASKS_MAX as u64 - 6;
        let mut told = Vec::new();
        for word in 0..2 {
            (0..all).for_each(|task| reports.report(0, task, 1 + word));
            let read = read(&reports.poll_word(u64::from(word) * EVERY_NS).unwrap());
            assert_eq!(read.len(), TASKS_MAX);
            told.extend(read.into_iter().map(|(task, _)| task));
        }
        assert_eq!(told[TASKS_MAX..][..6], [0, 1, 2, 3, 4, 5]);
        told.sort_unstable();
        told.dedup();
        assert_eq!(told.len() as u64, all);
    }

    #[test]
    fn fractions_count_while_their_worker_has_the_task() {
        let mut underway = Underway::default();
        for (worker, task, thousandths) in [(0, 4, 500), (1, 5, 250), (1, 4, 100), (0, 6, 1)] {
            underway.handle_report(worker, task, thousandths);
        }
        assert!((underway.sum() - 0.751).abs() < 1e-9);
        underway.handle_ended(6..9);
        assert!((underway.sum() - 0.75).abs() < 1e-9);
        underway.handle_lost(0);
        assert!((underway.sum() - 0.25).abs() < 1e-9);
    }
}
