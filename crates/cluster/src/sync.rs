//! Locks, and values that a thread hands to another.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Returns the lock's content, even after a panic: data under these locks is valid after every
/// single statement.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One value that a thread hands to another. The standard library's channels would be compiled anew
/// for each type of value, and are ten times as long.
struct Handover<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

enum State<T> {
    Awaited,
    Given(T),
    /// It was taken, or its giver is gone.
    Over,
}

/// Gives a value to another thread, or ends its wait when it is dropped.
pub(crate) struct Giver<T>(Arc<Handover<T>>);

/// Waits for the value of another thread.
pub(crate) struct Taker<T>(Arc<Handover<T>>);

/// Returns the two ends of a handover.
pub(crate) fn handover<T>() -> (Giver<T>, Taker<T>) {
    let shared = Arc::new(Handover { state: Mutex::new(State::Awaited), changed: Condvar::new() });
    (Giver(Arc::clone(&shared)), Taker(shared))
}

impl<T> Giver<T> {
    /// Gives the value. It is lost if nobody waits for it any more.
    pub(crate) fn give(self, value: T) {
        *locked(&self.0.state) = State::Given(value);
    }
}

impl<T> Drop for Giver<T> {
    fn drop(&mut self) {
        let mut state = locked(&self.0.state);
        if matches!(*state, State::Awaited) {
            *state = State::Over;
        }
        drop(state);
        self.0.changed.notify_one();
    }
}

impl<T> Taker<T> {
    /// Waits for the value; `None` when its giver is gone.
    pub(crate) fn take(self) -> Option<T> {
        let mut state = locked(&self.0.state);
        loop {
            match std::mem::replace(&mut *state, State::Over) {
                State::Given(value) => return Some(value),
                State::Over => return None,
                State::Awaited => *state = State::Awaited,
            }
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_across() {
        let (giver, taker) = handover();
        let giving = std::thread::spawn(move || giver.give(7));
        assert_eq!(taker.take(), Some(7));
        giving.join().unwrap();
    }

    #[test]
    fn a_giver_that_is_gone_ends_the_wait() {
        let (giver, taker) = handover::<u32>();
        let ending = std::thread::spawn(move || drop(giver));
        assert_eq!(taker.take(), None);
        ending.join().unwrap();
    }
}
