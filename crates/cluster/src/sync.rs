//! Locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Returns the lock's content, even after a panic: data under these locks is valid after every
/// single statement.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
