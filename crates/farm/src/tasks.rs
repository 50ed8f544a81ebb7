//! Where the tasks of a run come from, and where its results go.

use std::iter::Fuse;
use std::task::{Context, Poll};

use crate::error::TaskError;

/// Where the tasks of a run come from.
pub(crate) trait Source {
    type Task;

    /// Returns the next task; pending when there is none now, `None` when there are no more.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Self::Task>>;

    /// Returns the number of tasks that are left, where it is known.
    fn left(&self) -> Option<u64>;
}

/// The tasks of an iterator.
pub(crate) struct Listed<T>(Fuse<T>);

impl<T: Iterator> Listed<T> {
    pub(crate) fn new(tasks: impl IntoIterator<IntoIter = T>) -> Listed<T> {
        Listed(tasks.into_iter().fuse())
    }
}

impl<T: Iterator> Source for Listed<T> {
    type Task = T::Item;

    #[inline]
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<T::Item>> {
        Poll::Ready(self.0.next())
    }

    fn left(&self) -> Option<u64> {
        let (at_least, at_most) = self.0.size_hint();
        (at_most == Some(at_least)).then_some(at_least as u64)
    }
}

/// Where the results of a run go.
pub(crate) trait Sink<O> {
    fn take(&mut self, index: u64, result: Result<O, TaskError>);

    /// Whether it takes results of further tasks.
    fn has_room(&self) -> bool {
        true
    }
}

impl<O, F: FnMut(u64, Result<O, TaskError>)> Sink<O> for F {
    #[inline]
    fn take(&mut self, index: u64, result: Result<O, TaskError>) {
        self(index, result);
    }
}
