//! The last events of the members, with their times.

use crate::gather::cut;
use crate::state::EventState;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Number of events that are kept.
const EVENTS_MAX: usize = 256;

/// The last events, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Log(VecDeque<EventState>);

impl Log {
    pub(crate) fn note(&mut self, kind: &'static str, who: &str, text: &str) {
        if self.0.len() >= EVENTS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(EventState { at_ms: now_ms(), kind, who: cut(who), text: cut(text) });
    }

    /// Returns the events, the newest first.
    pub(crate) fn newest(&self) -> Vec<EventState> {
        self.0.iter().rev().cloned().collect()
    }
}

/// Returns the time in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_millis() as u64)
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_events_are_kept() {
        let mut log = Log::default();
        (0..EVENTS_MAX + 2).for_each(|at| log.note("came", &at.to_string(), ""));
        let newest = log.newest();
        assert_eq!((newest.len(), newest[0].who.as_str()), (EVENTS_MAX, "257"));
        assert_eq!(newest.last().unwrap().who, "2");
    }
}
