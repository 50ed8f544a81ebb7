//! The results that a sub-farmer has, and its farmer has not.

use std::time::Duration;

use bytes::Bytes;
use chunkcomm::host::Instant;

use crate::compute::ANSWER_BYTES;
use crate::error::TaskError;
use crate::functions::Reducer;
use crate::proto::parts::Parts;
use crate::proto::progress::Reports;
use crate::proto::wire;
use crate::tasks::{Encoded, Sink};

/// Results of a run, until they are sent together.
pub(super) struct Gathered {
    run: u32,
    parts: Parts,
    begun: Option<Instant>,
    /// Fractions of running tasks that are done.
    pub(super) reports: Reports,
    /// Words about tasks that are late, set aside or given back.
    words: Vec<Bytes>,
    /// Reduces the results, if they are to be reduced.
    reducer: Option<Reducer>,
    /// Whether the reducer has failed. The farmer then reduces the results, and reports the failure.
    fails: bool,
    /// With this many bytes the results are reduced. If they still have as many, they are sent.
    full: usize,
    /// Bytes of the longest message to the farmer.
    bytes_max: usize,
}

impl Gathered {
    pub(super) fn new(run: u32, bytes_max: usize) -> Gathered {
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

    /// Lets the results be reduced from now on, or not.
    pub(super) fn set_reducer(&mut self, reducer: Option<Reducer>) {
        self.reducer = reducer;
    }

    /// Number of tasks that have a result.
    pub(super) fn count(&self) -> u64 {
        self.parts.count()
    }

    /// Whether the results are so long that they must leave. They are reduced first.
    pub(super) fn is_full(&mut self) -> bool {
        if self.parts.bytes() >= self.full {
            self.reduce();
        }
        self.parts.bytes() >= self.full
    }

    /// Reduces the results of neighbours.
    fn reduce(&mut self) {
        let Some(reducer) = &self.reducer else { return };
        self.parts.reduce(self.bytes_max, |results, count| {
            if self.fails {
                return None;
            }
            let reduced = reducer.reduce(results, count);
            self.fails = reduced.is_err();
            reduced.ok()?
        });
        // Each time there are twice as many bytes, so that long results gather, too, and each is reduced
        // a few times only.
        self.full = (2 * self.parts.bytes()).min(self.bytes_max).max(ANSWER_BYTES);
    }

    /// Returns how long the first result has waited; `None` if there is none.
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

impl Sink<Encoded> for Gathered {
    fn give_back(&mut self, first: u64, count: u32) {
        self.words.push(Bytes::copy_from_slice(&wire::returned(self.run, first, count)));
    }

    fn note_progress(&mut self, task: u64, thousandths: u32) {
        self.reports.report(self.run, task, thousandths);
    }

    fn take(&mut self, index: u64, result: Result<Encoded, TaskError>) {
        self.reports.end(self.run, index..index + 1);
        let word = match result {
            Ok(Encoded(value)) => {
                return self.add(index, |items| wire::put_bytes(items, &value));
            }
            Err(TaskError::TimedOut { .. }) => wire::late(self.run, index, true).to_vec(),
            Err(TaskError::SetAside { deaths, worker, loss, .. }) => {
                wire::aside(self.run, index, deaths, &format!("{worker} was lost: {loss}"))
            }
            // The farmer names this node.
            Err(TaskError::Failed { worker, text, .. }) if worker.member.is_none() => {
                return self.add(index, |items| wire::put_failure(items, &text));
            }
            Err(TaskError::Failed { worker, text, .. }) => {
                let text = format!("below it, at {worker}: {text}");
                return self.add(index, |items| wire::put_failure(items, &text));
            }
            Err(error @ TaskError::Result { .. }) => {
                let text = error.to_string();
                return self.add(index, |items| wire::put_failure(items, &text));
            }
        };
        self.words.push(Bytes::from(word));
    }
}
