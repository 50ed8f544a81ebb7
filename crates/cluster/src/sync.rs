//! Locks, and tasks that wait for the same thing.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

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

    pub(crate) fn wake(self) {
        for waker in self.0 {
            waker.wake();
        }
    }
}
