//! Tasks that create tasks.
//!
//! The children of a task come with its result, and count only when that is accepted. So a task
//! that runs twice has its children once. The run is over when every given task has its result and
//! no task is left.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use crate::error::TaskError;
use crate::tasks::{Sink, Source};

/// Tasks, each with its place among the others.
struct Pool<I, P> {
    /// Tasks to be given, the newest last.
    open: Vec<(I, P)>,
    /// Places of the tasks from this index on; `None` for one that has its result.
    first: u64,
    given: VecDeque<Option<P>>,
}

/// Source of a pool: gives the newest task first, so that the pool holds few.
pub(crate) struct Given<I, P>(Arc<Mutex<Pool<I, P>>>);

/// Sink of a pool: takes results and children.
pub(crate) struct Taken<I, P, F>(Arc<Mutex<Pool<I, P>>>, F);

/// Returns the source and the sink of a pool that begins with these tasks. `each` takes a result
/// with the place of its task, and returns the children.
pub(crate) fn pool<I, P, F>(mut open: Vec<(I, P)>, each: F) -> (Given<I, P>, Taken<I, P, F>) {
    open.reverse();
    let pool = Arc::new(Mutex::new(Pool { open, first: 0, given: VecDeque::new() }));
    (Given(Arc::clone(&pool)), Taken(pool, each))
}

fn locked<I, P>(pool: &Mutex<Pool<I, P>>) -> MutexGuard<'_, Pool<I, P>> {
    pool.lock().expect("nothing panics with the pool locked")
}

impl<I, P> Source for Given<I, P> {
    type Task = I;

    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<I>> {
        let mut pool = locked(&self.0);
        match pool.open.pop() {
            Some((task, place)) => {
                // The run numbers its tasks in the order in which they are given.
                pool.given.push_back(Some(place));
                Poll::Ready(Some(task))
            }
            None if pool.given.is_empty() => Poll::Ready(None),
            // The run asks again when results have come.
            None => Poll::Pending,
        }
    }

    fn left(&self) -> Option<u64> {
        None
    }
}

impl<I, P, O, F: FnMut(P, O) -> Vec<(I, P)>> Sink<O> for Taken<I, P, F> {
    fn take(&mut self, index: u64, result: Result<O, TaskError>, _bytes: usize) {
        // The run ends with the first error.
        let Ok(result) = result else { return };
        let mut pool = locked(&self.0);
        let at = (index - pool.first) as usize;
        let place = pool.given[at].take().expect("a task has one result");
        while let Some(None) = pool.given.front() {
            pool.given.pop_front();
            pool.first += 1;
        }
        drop(pool);
        let children = (self.1)(place, result);
        locked(&self.0).open.extend(children);
    }
}
