//! The makers of calls of a node, for its report.

use crate::report::CallsReport;
use crate::sync::locked;
use std::sync::{Mutex, Weak};

/// A maker of calls.
pub(super) trait Caller: Send + Sync {
    /// Reports the calls in flight, if there are any.
    fn report(&self) -> Option<CallsReport>;
}

/// Those that made calls and live.
#[derive(Default)]
pub(crate) struct Callers(Mutex<Vec<Weak<dyn Caller>>>);

impl Callers {
    pub(super) fn add(&self, caller: Weak<dyn Caller>) {
        let mut callers = locked(&self.0);
        callers.retain(|it| it.strong_count() > 0);
        callers.push(caller);
    }

    /// Reports the calls without an answer.
    pub(crate) fn report(&self) -> Vec<CallsReport> {
        let callers: Vec<_> = locked(&self.0).iter().filter_map(Weak::upgrade).collect();
        // Not under the lock: dropping the last reference to a caller may run its destructors.
        callers.iter().filter_map(|it| it.report()).collect()
    }
}
