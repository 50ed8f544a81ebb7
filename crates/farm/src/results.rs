//! A run whose results its user takes one by one.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use chunkcomm_cluster::registry::Travels;
use futures_core::Stream;

use crate::account::WAITING_BYTES_MAX;
use crate::error::{RunError, TaskError};
use crate::run::Run;
use crate::stats::{Progress, RunStats};
use crate::tasks::{Sink, Source};

/// Most results that wait for their user; with more, the workers get no further tasks.
const WAITING_MAX: usize = 1 << 16;

/// Number of results between two looks after the workers while results wait.
const A_LOOK: u32 = 64;

/// Results that the user has not taken yet.
pub(crate) struct Waiting<O> {
    /// The results, each with its task's index and its encoded bytes. An error is boxed, so that
    /// millions of results stay small.
    results: VecDeque<(u64, Result<O, Box<TaskError>>, usize)>,
    /// Encoded bytes of all of them.
    bytes: usize,
}

impl<O> Waiting<O> {
    pub(crate) fn new() -> Waiting<O> {
        Waiting { results: VecDeque::new(), bytes: 0 }
    }

    #[inline]
    fn pop(&mut self) -> Option<Result<(u64, O), RunError>> {
        let (index, result, bytes) = self.results.pop_front()?;
        self.bytes -= bytes;
        Some(match result {
            Ok(result) => Ok((index, result)),
            Err(error) => Err(RunError::Task(*error)),
        })
    }
}

impl<O> Sink<O> for Waiting<O> {
    #[inline]
    fn take(&mut self, index: u64, result: Result<O, TaskError>, bytes: usize) {
        self.results.push_back((index, result.map_err(Box::new), bytes));
        self.bytes += bytes;
    }

    fn has_room(&self) -> bool {
        self.results.len() < WAITING_MAX && self.bytes < WAITING_BYTES_MAX
    }
}

/// Results of [`Farm::stream`](crate::Farm::stream), each with its task's index.
///
/// They come in the order of the tasks, or [as they come](Results::as_completed).
/// [`next`](Results::next) and the [`Stream`] take one result after the other.
/// [`for_each`](Results::for_each) hands all to a closure, at less cost a task.
///
/// The run goes on while the stream is polled. Between two polls the workers do the tasks that they
/// hold, 20 to 60 ms of work each, and get no new ones. Up to 65,536 results or 64 MiB of encoded
/// ones wait here. Then the workers get no further tasks. They also get none while a million
/// results or 64 MiB wait for that of an earlier task.
///
/// [`RunError::Task`] stands in the place of a task's result. Any other error is the last item.
///
/// Dropping the stream cancels the run, as dropping the future of [`Farm::run`](crate::Farm::run)
/// does.
#[must_use = "a run goes on while its results are taken"]
pub struct Results<'a, O, T> {
    run: Run<'a, O, T, Waiting<O>>,
    taken: u32,
    /// Report of a run that has ended well.
    stats: Option<RunStats>,
    ended: bool,
    /// The error that comes after the results that were accepted before it.
    failed: Option<RunError>,
}

impl<O, T> fmt::Debug for Results<'_, O, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Results").field("ended", &self.ended).finish_non_exhaustive()
    }
}

// Nothing is pinned in place: the stream of the tasks has a box of its own.
impl<O, T> Unpin for Results<'_, O, T> {}

impl<'a, O: Travels, T: Source<Task: Travels>> Results<'a, O, T> {
    pub(crate) fn new(run: Run<'a, O, T, Waiting<O>>) -> Self {
        Results { run, taken: 0, stats: None, ended: false, failed: None }
    }

    /// Gives the results as they come instead of in the order of the tasks.
    ///
    /// Results that already wait for that of an earlier task come next.
    pub fn as_completed(mut self) -> Self {
        self.run.hand_on_at_once();
        self
    }

    /// Returns the progress of the run.
    pub fn progress(&self) -> Progress {
        self.run.progress()
    }

    /// Returns the report of the run, once all results are there.
    pub fn stats(&self) -> Option<&RunStats> {
        self.stats.as_ref()
    }

    /// Waits for the next result, and returns it with its task's index; `None` after the last one.
    ///
    /// # Errors
    /// [`RunError::Task`] stands in the place of the result of a task that failed, and names the
    /// task. The run goes on. Any other error ends the run; see [`RunError`].
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Result<Option<(u64, O)>, RunError> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await.transpose()
    }

    /// Passes each result to `each` with its task's index until the run ends, and returns the
    /// report.
    ///
    /// The first task that fails ends the run.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use chunkcomm_cluster::Registry;
    /// use chunkcomm_farm::{Farm, settings::WorkersAs};
    ///
    /// let mut registry = Registry::new();
    /// let square = registry.register("square", |number: u64| number * number);
    /// let mut farm = Farm::builder(registry).workers_as(WorkersAs::Thread).start().await?;
    /// let (mut sum, results) = (0, farm.stream(&square, 0..100)?.as_completed());
    /// results.for_each(|_index, square| sum += square).await?;
    /// assert_eq!(sum, 328_350);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`RunError`]; `each` was called for the results that came before.
    ///
    /// # Cancel safety
    /// As [`Farm::run`](crate::Farm::run).
    pub async fn for_each(mut self, mut each: impl FnMut(u64, O)) -> Result<RunStats, RunError> {
        self.run.account.plan.stops = true;
        let ended = std::future::poll_fn(|context| {
            loop {
                if !self.ended {
                    self.drive(context);
                }
                let sink = &mut self.run.account.sink;
                let had_room = sink.has_room();
                while let Some(item) = sink.pop() {
                    match item {
                        Ok((index, result)) => each(index, result),
                        Err(error) => return Poll::Ready(Err(error)),
                    }
                }
                if self.ended {
                    return Poll::Ready(self.failed.take().map_or(Ok(()), Err));
                }
                if had_room {
                    return Poll::Pending;
                }
            }
        });
        ended.await?;
        Ok(self.run.report())
    }

    /// Drives the run, and notes its end.
    fn drive(&mut self, context: &mut Context<'_>) {
        let Poll::Ready(ended) = self.run.poll(context) else { return };
        self.ended = true;
        match ended {
            Ok(()) => self.stats = Some(self.run.report()),
            Err(error) => self.failed = Some(error),
        }
    }
}

impl<O: Travels, T: Source<Task: Travels>> Stream for Results<'_, O, T> {
    type Item = Result<(u64, O), RunError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        this.taken = this.taken.wrapping_add(1);
        let looks = this.run.account.sink.results.is_empty() || this.taken.is_multiple_of(A_LOOK);
        if looks && !this.ended {
            this.drive(context);
        }
        match this.run.account.sink.pop() {
            Some(item) => Poll::Ready(Some(item)),
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
