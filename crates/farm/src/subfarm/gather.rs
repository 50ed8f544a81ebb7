//! The results that a sub-farmer has, and its farmer has not.

use std::time::Duration;

use bytes::Bytes;
use chunkcomm::host::Instant;

use crate::compute::ANSWER_BYTES;
use crate::error::TaskError;
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
}

impl Gathered {
    pub(super) fn new(run: u32) -> Gathered {
        let mut reports = Reports::default();
        reports.enter(run);
        Gathered { run, parts: Parts::default(), begun: None, reports, words: Vec::new() }
    }

    /// Number of results.
    pub(super) fn count(&self) -> u64 {
        self.parts.count()
    }

    /// Bytes of the results.
    pub(super) fn bytes(&self) -> usize {
        self.parts.bytes()
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
