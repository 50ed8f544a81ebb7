//! The future of a call.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::group::error::{CollectiveError, GroupError};
use crate::group::shared::{Finished, Run, Shared};
use crate::proto::schedule::algorithm::Algorithm;

/// Takes the caller's data out of a run that is over.
pub(crate) type Take<R, D> =
    Box<dyn FnOnce(&mut dyn Run, Option<GroupError>) -> Result<R, CollectiveError<D>> + Send>;

/// A call of a [`Group`](crate::Group) that is under way: a future of its result `R`, or of a
/// [`CollectiveError`] that gives the caller's data `D` back.
///
/// The call has its number from the moment when the method returned, and goes on whether this is
/// polled or not. A future that is polled runs the group's calls itself, with their operators; otherwise the group's
/// task does.
///
/// # Cancel safety
///
/// Dropped, the call goes on without its caller to the end, and its data are dropped there.
#[must_use = "the data of the call come back by it"]
pub struct Call<R, D = R> {
    shared: Arc<Shared>,
    number: u64,
    algorithm: Algorithm,
    take: Option<Take<R, D>>,
}

impl<R, D> Call<R, D> {
    pub(crate) fn new(
        shared: Arc<Shared>,
        number: u64,
        algorithm: Algorithm,
        take: Take<R, D>,
    ) -> Call<R, D> {
        Call { shared, number, algorithm, take: Some(take) }
    }

    /// Returns the number of the call in its group, from 1.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the algorithm that the call takes: the one that was set, else the chosen one. Blocks whose
    /// lengths only the call finds out may travel by another.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Blocks the thread until the call is over. For threads outside the runtime, in the place of
    /// `.await`.
    ///
    /// # Errors
    ///
    /// As the call.
    pub fn wait(self) -> Result<R, CollectiveError<D>> {
        chunkcomm::layer::block_on(self)
    }
}

impl<R: 'static> Call<R> {
    /// Returns the call with what `f` makes of its result, and of the data that it gives back.
    pub(crate) fn map<S: 'static>(mut self, f: fn(R) -> S) -> Call<S> {
        let take = self.take.take().expect("nobody has polled the call");
        let taken = move |run: &mut dyn Run, cause: Option<GroupError>| match take(run, cause) {
            Ok(result) => Ok(f(result)),
            Err(CollectiveError { data, cause }) => Err(CollectiveError { data: f(data), cause }),
        };
        Call::new(Arc::clone(&self.shared), self.number, self.algorithm, Box::new(taken))
    }
}

impl<R, D> Future for Call<R, D> {
    type Output = Result<R, CollectiveError<D>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = self.shared.poll_call(self.number, context.waker());
        let Poll::Ready(Finished { mut run, cause }) = polled else { return Poll::Pending };
        let take = self.take.take().expect("a call ends once");
        let taken = take(&mut *run, cause);
        self.shared.keep(run);
        Poll::Ready(taken)
    }
}

impl<R, D> Drop for Call<R, D> {
    fn drop(&mut self) {
        if self.take.is_some() {
            self.shared.forget(self.number);
        }
    }
}

impl<R, D> std::fmt::Debug for Call<R, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").field("number", &self.number).finish_non_exhaustive()
    }
}
