//! A run whose results its user takes one by one.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::account::WAITING_BYTES_MAX;
use crate::error::{RunError, TaskError};
use crate::run::Run;
use crate::stats::{Progress, RunStats};
use crate::tasks::{Sink, Source};

/// Most results that wait for their user; the workers then get no further tasks.
const WAITING_MAX: usize = 1 << 16;

/// Number of results between two looks after the workers while results wait.
const A_LOOK: u32 = 64;

/// The results that nobody has taken yet.
pub(crate) struct Waiting<O> {
    /// Each with its task's index and its encoded bytes.
    results: VecDeque<(u64, Result<O, TaskError>, usize)>,
    /// Encoded bytes of all of them.
    bytes: usize,
}

impl<O> Waiting<O> {
    pub(crate) fn new() -> Waiting<O> {
        Waiting { results: VecDeque::new(), bytes: 0 }
    }

    fn pop(&mut self) -> Option<(u64, Result<O, TaskError>)> {
        let (index, result, bytes) = self.results.pop_front()?;
        self.bytes -= bytes;
        Some((index, result))
    }
}

impl<O> Sink<O> for Waiting<O> {
    fn take(&mut self, index: u64, result: Result<O, TaskError>, bytes: usize) {
        self.results.push_back((index, result, bytes));
        self.bytes += bytes;
    }

    fn has_room(&self) -> bool {
        self.results.len() < WAITING_MAX && self.bytes < WAITING_BYTES_MAX
    }
}

/// The tasks of a stream.
pub(crate) struct Streamed<S>(Option<Pin<Box<S>>>);

impl<S: Stream> Streamed<S> {
    pub(crate) fn new(tasks: S) -> Streamed<S> {
        Streamed(Some(Box::pin(tasks)))
    }
}

impl<S: Stream> Source for Streamed<S> {
    type Task = S::Item;

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let Some(tasks) = &mut self.0 else { return Poll::Ready(None) };
        let next = tasks.as_mut().poll_next(context);
        if matches!(next, Poll::Ready(None)) {
            self.0 = None;
        }
        next
    }

    fn left(&self) -> Option<u64> {
        let Some(tasks) = &self.0 else { return Some(0) };
        let (at_least, at_most) = tasks.size_hint();
        (at_most == Some(at_least)).then_some(at_least as u64)
    }
}

/// The results of [`Farm::stream`](crate::Farm::stream): a stream of the index of each task and its
/// result.
///
/// The run goes on while the stream is polled: between two polls the workers do what they hold,
/// 20 to 60 ms of work each, and get nothing new. Up to 65,536 results or 64 MiB of encoded ones wait here.
/// Then, and while a million results or 64 MiB wait for that of an earlier task, the workers get no further
/// tasks.
///
/// An item that is an error ends the stream; a task's own error stands in the place of its result.
///
/// Dropping the stream cancels the run, as dropping the future of [`Farm::run`](crate::Farm::run)
/// does.
#[must_use = "a run goes on while its results are taken"]
pub struct Results<'a, I, O, S: Stream<Item = I>> {
    run: Run<'a, I, O, Streamed<S>, Waiting<O>>,
    taken: u32,
    /// The report, when the run has ended well.
    stats: Option<RunStats>,
    ended: bool,
    /// The error that comes after the results that were accepted before it.
    failed: Option<RunError>,
}

impl<I, O, S: Stream<Item = I>> fmt::Debug for Results<'_, I, O, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Results").field("ended", &self.ended).finish_non_exhaustive()
    }
}

// Nothing is pinned in place: the stream of the tasks has a box of its own.
impl<I, O, S: Stream<Item = I>> Unpin for Results<'_, I, O, S> {}

impl<'a, I, O, S> Results<'a, I, O, S>
where
    I: Serialize + DeserializeOwned + 'static,
    O: Serialize + DeserializeOwned + 'static,
    S: Stream<Item = I>,
{
    pub(crate) fn new(run: Run<'a, I, O, Streamed<S>, Waiting<O>>) -> Self {
        Results { run, taken: 0, stats: None, ended: false, failed: None }
    }

    /// Returns how far the run is.
    pub fn progress(&self) -> Progress {
        self.run.progress()
    }

    /// Returns the report of the run, once all results are there.
    pub fn stats(&self) -> Option<&RunStats> {
        self.stats.as_ref()
    }

    /// Waits for the next result.
    ///
    /// # Errors
    /// The item is an error when the run ends without all results; see [`RunError`].
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Result<(u64, Result<O, TaskError>), RunError>> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }
}

impl<I, O, S> Stream for Results<'_, I, O, S>
where
    I: Serialize + DeserializeOwned + 'static,
    O: Serialize + DeserializeOwned + 'static,
    S: Stream<Item = I>,
{
    type Item = Result<(u64, Result<O, TaskError>), RunError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        this.taken = this.taken.wrapping_add(1);
        let looks = this.run.sink().results.is_empty() || this.taken.is_multiple_of(A_LOOK);
        if looks && !this.ended {
            match this.run.poll(context) {
                Poll::Ready(Ok(())) => {
                    this.ended = true;
                    this.stats = Some(this.run.report());
                }
                Poll::Ready(Err(error)) => {
                    this.ended = true;
                    this.failed = Some(error);
                }
                Poll::Pending => {}
            }
        }
        match this.run.sink().pop() {
            Some(item) => Poll::Ready(Some(Ok(item))),
            None if this.ended => Poll::Ready(this.failed.take().map(Err)),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_large_results_fill_the_room_too() {
        let mut waiting = Waiting::new();
        waiting.take(0, Ok(()), 0);
        waiting.take(1, Ok(()), WAITING_BYTES_MAX - 1);
        assert!(waiting.has_room());
        waiting.take(2, Ok(()), 1);
        assert!(!waiting.has_room());
        (0..2).for_each(|_| drop(waiting.pop()));
        assert!(waiting.has_room());
    }
}
