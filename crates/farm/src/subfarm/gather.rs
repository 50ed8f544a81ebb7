//! Results that a sub-farmer has not sent to its farmer yet.

use std::time::Duration;

use bytes::Bytes;
use chunkcomm::Loss;
use chunkcomm::host::Instant;

use crate::compute::ANSWER_BYTES;
use crate::error::TaskError;
use crate::functions::Reducer;
use crate::proto::parts::Parts;
use crate::proto::progress::Reports;
use crate::proto::wire;
use crate::tasks::{Encoded, Sink};

/// Results of a run, until they are sent together.
pub(super) struct Gathered<'a> {
    run: u32,
    parts: Parts,
    begun: Option<Instant>,
    /// Fractions of running tasks that are done.
    pub(super) reports: Reports,
    /// Words about late tasks, and tasks set aside or given back.
    words: Vec<Bytes>,
    /// Reducer of the results, if they are to be reduced.
    reducer: Option<&'a Reducer>,
    /// Whether the reducer has failed. The farmer then reduces the results, and reports the failure.
    fails: bool,
    /// Bytes of results from which they are reduced. If they still have as many, they are sent.
    full: usize,
    /// Bytes of the longest message to the farmer.
    bytes_max: usize,
}

impl<'a> Gathered<'a> {
    pub(super) fn new(run: u32, bytes_max: usize) -> Gathered<'a> {
        let mut reports = Reports::default();
        reports.enter(run);
        Gathered {
            run,
            parts: Parts::default(),
            begun: None,
            reports,
            words: Vec::new(),
            reducer: None,
            fails: false,
            full: ANSWER_BYTES,
            bytes_max,
        }
    }

    /// Sets the reducer of results from now on; `None`: they are not reduced.
    pub(super) fn set_reducer(&mut self, reducer: Option<&'a Reducer>) {
        self.reducer = reducer;
    }

    /// Returns the number of tasks that have a result.
    pub(super) fn count(&self) -> u64 {
        self.parts.count()
    }

    /// Reduces results that are long, and returns whether they are still so long that they must
    /// leave.
    pub(super) fn is_full(&mut self) -> bool {
        if self.parts.bytes() >= self.full {
            self.reduce();
        }
        self.parts.bytes() >= self.full
    }

    /// Reduces the results of neighbours.
    fn reduce(&mut self) {
        let Some(reducer) = self.reducer else { return };
        self.parts.reduce(self.bytes_max, |results, count| {
            if self.fails {
                return None;
            }
            let reduced = reducer.reduce(results, count);
            self.fails = reduced.is_err();
            reduced.ok()?
        });
        // The bound doubles each time. So long results gather too, and each is reduced only a few
        // times.
        self.full = (2 * self.parts.bytes()).min(self.bytes_max).max(ANSWER_BYTES);
    }

    /// Returns the time that the first result has waited; `None` if there is none.
    pub(super) fn age(&self) -> Option<Duration> {
        self.begun.map(Instant::elapsed)
    }

    /// Takes the words.
    pub(super) fn words(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.words)
    }

    /// Takes the results, as answers; `busy_ns` is the mean time of a task.
    pub(super) fn answers(&mut self, busy_ns: f64) -> Vec<Bytes> {
        self.begun = None;
        self.reduce();
        self.full = ANSWER_BYTES;
        let answers = self.parts.take(self.run, busy_ns, ANSWER_BYTES);
        answers.into_iter().map(Bytes::from).collect()
    }

    /// Adds a result, which `put` writes.
    fn add(&mut self, index: u64, put: impl FnOnce(&mut Vec<u8>)) {
        self.begun.get_or_insert_with(Instant::now);
        self.parts.add(index, put);
    }
}

impl Sink<Encoded> for Gathered<'_> {
    fn give_back(&mut self, first: u64, count: u32) {
        self.words.push(Bytes::copy_from_slice(&wire::returned(self.run, first, count)));
    }

    fn note_progress(&mut self, task: u64, thousandths: u32) {
        self.reports.report(self.run, task, thousandths);
    }

    fn take(&mut self, index: u64, result: Result<Encoded, TaskError>, _bytes: usize) {
        self.reports.end(self.run, index..index + 1);
        let word = match result {
            Ok(Encoded(value)) => {
                return self.add(index, |items| wire::put_bytes(items, &value));
            }
            Err(TaskError::TimedOut { .. }) => wire::late(self.run, index, true).to_vec(),
            Err(TaskError::SetAside { deaths, worker, loss, .. }) => {
                let words = format!("{worker} was lost: {loss:?}");
                wire::aside(self.run, index, deaths, &Loss::new(loss.kind(), words))
            }
            // The farmer names this node in the failure.
            Err(TaskError::Failed { worker, text, .. }) if worker.member.is_none() => {
                return self.add(index, |items| wire::put_failure(items, &text));
            }
            Err(TaskError::Failed { worker, text, .. }) => {
                let text = format!("below it, at {worker}: {text}");
                return self.add(index, |items| wire::put_failure(items, &text));
            }
            Err(error @ (TaskError::Result { .. } | TaskError::ResultPanicked { .. })) => {
                let text = error.to_string();
                return self.add(index, |items| wire::put_failure(items, &text));
            }
        };
        self.words.push(Bytes::from(word));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functions::RegistryExt as _;
    use crate::proto::wire::Answer;
    use chunkcomm_cluster::Registry;

    const BYTES_MAX: usize = 8 << 20;

    /// Returns the ranges of the answers that are left of results of this length, of which the reducer
    /// takes the longer of two, and whether each is reduced.
    fn gathered(indices: &[u64], bytes: usize, panics: bool) -> Vec<(u64, u32, bool)> {
        let mut registry = Registry::new();
        let longer = move |one: Vec<u8>, next: Vec<u8>| {
            assert!(!panics, "it does not reduce");
            if one.len() > next.len() { one } else { next }
        };
        registry.register_map_reduce("longer", |bytes: Vec<u8>| bytes, longer);
        let reducer = Reducer::of("longer", &registry).unwrap();
        let mut gathered = Gathered::new(1, BYTES_MAX);
        gathered.set_reducer(Some(&reducer));
        let mut answers = Vec::new();
        for &index in indices {
            let mut value = Vec::new();
            wire::put_value(&mut value, &Some(vec![7u8; bytes])).unwrap();
            let value = value.split_off(wire::LENGTH_BYTES);
            gathered.take(index, Ok(Encoded(Bytes::from(value))), bytes);
            if gathered.is_full() {
                answers.extend(gathered.answers(0.0));
            }
        }
        answers.extend(gathered.answers(0.0));
        assert!(answers.iter().all(|answer| answer.len() <= BYTES_MAX));
        let read = |answer: &Bytes| match wire::read_answer(answer) {
            Ok(Answer::Done { first, count, is_reduced, .. }) => (first, count, is_reduced),
            other => panic!("{other:?}"),
        };
        answers.iter().map(read).collect()
    }

    /// Each of these alone would be enough for an answer.
    #[test]
    fn long_results_gather_until_they_are_reduced() {
        let long = 2 * ANSWER_BYTES;
        assert_eq!(gathered(&[0, 1, 2, 3, 4, 5, 6, 7], long, false), [(0, 8, true)]);
        assert_eq!(gathered(&[7, 5, 3, 1, 6, 4, 2, 0], long, false), [(0, 8, true)]);
        assert_eq!(gathered(&[3, 1, 5], long, false).len(), 3, "they are no neighbours");
        assert_eq!(gathered(&[0, 1, 2], 10, false), [(0, 3, true)]);
        assert_eq!(gathered(&[4], long, false), [(4, 1, false)]);
    }

    /// The farmer reduces them, and has the same failure.
    #[test]
    fn a_reducer_that_fails_leaves_the_results_as_they_are() {
        assert_eq!(gathered(&[0, 1, 2], 10, true), [(0, 3, false)]);
        let answers = gathered(&[0, 1, 2, 3, 4], 2 * ANSWER_BYTES, true);
        assert_eq!(answers.iter().map(|&(_, count, _)| count).sum::<u32>(), 5);
        assert!(answers.iter().all(|&(.., is_reduced)| !is_reduced));
    }
}
