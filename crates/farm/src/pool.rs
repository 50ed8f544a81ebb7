//! Tasks that create tasks.
//!
//! The children of a task come with its result, and count only when that is accepted. So a task
//! that runs twice has its children once. The run is over when every given task has its result and
//! no task is left.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use crate::error::TaskError;
use crate::tasks::{Sink, Source};

struct Pool<I> {
    /// Tasks to be given, the newest last.
    tasks: Vec<I>,
    given: u64,
    answered: u64,
}

/// Source of a pool: gives the newest task first, so that the pool holds few.
pub(crate) struct Given<I>(Arc<Mutex<Pool<I>>>);

/// Sink of a pool: takes results and children.
pub(crate) struct Taken<I, F>(Arc<Mutex<Pool<I>>>, F);

/// Returns the source and the sink of a pool that begins with these tasks.
pub(crate) fn pool<I, F>(tasks: impl IntoIterator<Item = I>, each: F) -> (Given<I>, Taken<I, F>) {
    let mut tasks: Vec<I> = tasks.into_iter().collect();
    tasks.reverse();
    let pool = Arc::new(Mutex::new(Pool { tasks, given: 0, answered: 0 }));
    (Given(Arc::clone(&pool)), Taken(pool, each))
}

impl<I> Source for Given<I> {
    type Task = I;

    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<I>> {
        let mut pool = self.0.lock().expect("nothing panics with the pool locked");
        match pool.tasks.pop() {
            Some(task) => {
                pool.given += 1;
                Poll::Ready(Some(task))
            }
            None if pool.given == pool.answered => Poll::Ready(None),
            // The run asks again when results have come.
            None => Poll::Pending,
        }
    }

    fn left(&self) -> Option<u64> {
        None
    }
}

impl<I, O, F: FnMut(O)> Sink<(O, Vec<I>)> for Taken<I, F> {
    fn take(&mut self, _: u64, result: Result<(O, Vec<I>), TaskError>, _bytes: usize) {
        // The run ends with the first error.
        let Ok((result, children)) = result else { return };
        let mut pool = self.0.lock().expect("nothing panics with the pool locked");
        pool.answered += 1;
        pool.tasks.extend(children);
        drop(pool);
        (self.1)(result);
    }
}
