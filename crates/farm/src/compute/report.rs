//! Answers that runners gather.

use std::time::Duration;

use chunkcomm::host::Instant;
use chunkcomm::with_causes;
use chunkcomm_cluster::registry::FunctionError;

use super::queue::Slice;
use super::{HOLD, nanos};
use crate::pieces::Piece;
use crate::proto::parts::Parts;
use crate::proto::wire;

/// Bytes of results at which an answer leaves.
pub(crate) const ANSWER_BYTES: usize = 256 << 10;

/// Results of a runner that were not sent yet.
#[derive(Default)]
pub(super) struct Report {
    /// The answer so far.
    pub(super) bytes: Vec<u8>,
    pub(super) run: u32,
    pub(super) first: u64,
    pub(super) count: u32,
    pub(super) busy: Duration,
    /// Time at which the answer was begun; `None` if there is none.
    pub(super) begun: Option<Instant>,
}

impl Report {
    /// Makes room for the results of these tasks; returns the answer, if they do not continue it.
    pub(super) fn begin(&mut self, tasks: &Piece, now: Instant) -> Option<Vec<u8>> {
        let follows = self.run == tasks.run && self.first + u64::from(self.count) == tasks.first;
        let before = if follows { None } else { self.take() };
        if self.begun.is_none() {
            wire::begin_answer(&mut self.bytes, tasks.run, tasks.first);
            (self.run, self.first, self.begun) = (tasks.run, tasks.first, Some(now));
        }
        before
    }

    /// Whether the answer must leave after this slice.
    pub(super) fn is_due(&self, slice: &Slice, now: Instant) -> bool {
        slice.left.is_some_and(|left| u64::from(self.count) >= left)
            || self.bytes.len() >= ANSWER_BYTES
            || self.is_old(now)
    }

    pub(super) fn is_old(&self, now: Instant) -> bool {
        self.begun.is_some_and(|begun| now - begun >= HOLD)
    }

    /// Ends the answer and returns it, if there is one.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        self.begun.take()?;
        wire::finish_answer(&mut self.bytes, self.count, nanos(self.busy));
        (self.count, self.busy) = (0, Duration::ZERO);
        Some(std::mem::take(&mut self.bytes))
    }
}

/// Results of the async tasks of all threads of a worker; they end in any order.
#[derive(Default)]
pub(super) struct Done {
    run: u32,
    parts: Parts,
    busy: Duration,
    begun: Option<Instant>,
}

impl Done {
    /// Adds the result of a task that took this time.
    pub(super) fn add(
        &mut self,
        (run, index): (u32, u64),
        result: &Result<Vec<u8>, FunctionError>,
        busy: Duration,
        now: Instant,
    ) {
        if self.run != run {
            *self = Done { run, ..Done::default() };
        }
        self.begun.get_or_insert(now);
        self.busy += busy;
        self.parts.add(index, |items| match result {
            Ok(value) => wire::put_bytes(items, value),
            Err(error) => wire::put_failure(items, &with_causes(error)),
        });
    }

    /// Whether the results must leave; `left` is the number of tasks without a result.
    pub(super) fn is_due(&self, left: u64, now: Instant) -> bool {
        self.parts.count() >= left || self.parts.bytes() >= ANSWER_BYTES || self.is_old(now)
    }

    pub(super) fn is_old(&self, now: Instant) -> bool {
        self.begun.is_some_and(|begun| now - begun >= HOLD)
    }

    /// Takes the answers.
    pub(super) fn take(&mut self) -> Vec<Vec<u8>> {
        self.begun = None;
        let busy = nanos(std::mem::take(&mut self.busy)) as f64;
        self.parts.take(self.run, busy / self.parts.count().max(1) as f64, ANSWER_BYTES)
    }
}
