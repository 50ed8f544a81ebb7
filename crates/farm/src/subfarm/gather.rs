//! The results that a sub-farmer has, and its farmer has not.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use chunkcomm::host::Instant;

use crate::compute::ANSWER_BYTES;
use crate::error::TaskError;
use crate::proto::wire;
use crate::tasks::{Encoded, Sink};

/// Results of neighbours.
#[derive(Default)]
struct Part {
    first: u64,
    count: u32,
    /// Each after its length, as in an answer.
    items: Vec<u8>,
}

impl Part {
    fn end(&self) -> u64 {
        self.first + u64::from(self.count)
    }
}

/// Results of a run, until they are sent together.
pub(super) struct Gathered {
    run: u32,
    /// In the order in which they came.
    parts: Vec<Part>,
    count: u64,
    bytes: usize,
    begun: Option<Instant>,
    /// Words about tasks that are late, set aside or given back.
    words: Vec<Bytes>,
}

impl Gathered {
    pub(super) fn new(run: u32) -> Gathered {
        Gathered { run, parts: Vec::new(), count: 0, bytes: 0, begun: None, words: Vec::new() }
    }

    /// Number of results.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Bytes of the results.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
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
        (self.count, self.bytes, self.begun) = (0, 0, None);
        self.parts.sort_by_key(|part| part.first);
        let mut merged: Vec<Part> = Vec::new();
        for part in self.parts.drain(..) {
            let follows = |last: &Part| last.end() == part.first && last.items.len() < ANSWER_BYTES;
            match merged.last_mut().filter(|last| follows(last)) {
                Some(last) => {
                    last.count += part.count;
                    last.items.extend_from_slice(&part.items);
                }
                None => merged.push(part),
            }
        }
        let answer = |Part { first, count, items }: Part| {
            let mut bytes = Vec::with_capacity(wire::ANSWER_HEAD + items.len());
            wire::begin_answer(&mut bytes, self.run, first);
            bytes.extend_from_slice(&items);
            wire::finish_answer(&mut bytes, count, (busy_ns * f64::from(count)) as u64);
            Bytes::from(bytes)
        };
        merged.into_iter().map(answer).collect()
    }

    /// Adds a result, which `put` writes.
    fn add(&mut self, index: u64, put: impl FnOnce(&mut Vec<u8>)) {
        self.begun.get_or_insert_with(Instant::now);
        if self.parts.last().is_none_or(|last| last.end() != index) {
            self.parts.push(Part { first: index, ..Part::default() });
        }
        let part = self.parts.last_mut().expect("there is one now");
        let before = part.items.len();
        put(&mut part.items);
        part.count += 1;
        self.bytes += part.items.len() - before;
        self.count += 1;
    }
}

impl Sink<Encoded> for Gathered {
    fn give_back(&mut self, first: u64, count: u32) {
        self.words.push(Bytes::copy_from_slice(&wire::returned(self.run, first, count)));
    }

    fn take(&mut self, index: u64, result: Result<Encoded, TaskError>) {
        let word = match result {
            Ok(Encoded(value)) => {
                return self.add(index, |items| {
                    let Ok(()) = wire::put_item(items, |items| {
                        items.extend_from_slice(&value);
                        Ok::<_, Infallible>(())
                    });
                });
            }
            Err(TaskError::TimedOut { .. }) => wire::late(self.run, index).to_vec(),
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
