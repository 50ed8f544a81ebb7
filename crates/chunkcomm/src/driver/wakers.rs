//! Tasks that wait for the same thing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::thread::{self, Thread};

/// Returns a waker that ends the next `park` of this thread.
pub(crate) fn thread_waker() -> Waker {
    Waker::from(Arc::new(Unpark(thread::current())))
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// Returns the lock's content, even after a panic: data under our locks is valid after every single
/// statement.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakers, one a task.
#[derive(Default)]
pub(crate) struct Wakers(Vec<Waker>);

impl Wakers {
    pub(crate) fn add(&mut self, waker: &Waker) {
        if !self.0.iter().any(|known| known.will_wake(waker)) {
            self.0.push(waker.clone());
        }
    }

    /// Adds the wakers of others, which are to be woken together; a task may then be there twice.
    pub(crate) fn append(&mut self, others: Wakers) {
        self.0.extend(others.0);
    }

    /// Takes all wakers, to be woken without the lock.
    pub(crate) fn take(&mut self) -> Wakers {
        Wakers(std::mem::take(&mut self.0))
    }

    pub(crate) fn wake(self) {
        for waker in self.0 {
            waker.wake();
        }
    }
}
