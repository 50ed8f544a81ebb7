//! What is waited for that no link knows of, so that [`Node::explain`](super::Node::explain)
//! can name it.

use crate::driver::clock;
use crate::driver::wakers::locked;
use crate::explain::{CallsReport, WaitReport};
use crate::proto::Time;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// Somebody who makes calls.
pub(crate) trait Caller: Send + Sync {
    /// What is in flight, if anything is.
    fn report(&self) -> Option<CallsReport>;
}

#[derive(Default)]
struct Table {
    last: u64,
    waits: BTreeMap<u64, (String, Time)>,
    callers: Vec<Weak<dyn Caller>>,
}

/// The waits of one node.
#[derive(Default)]
pub(crate) struct Waits(Mutex<Table>);

/// A wait that lasts as long as this.
pub(crate) struct Wait {
    waits: Arc<Waits>,
    number: u64,
}

impl Drop for Wait {
    fn drop(&mut self) {
        locked(&self.waits.0).waits.remove(&self.number);
    }
}

impl Waits {
    /// From now on `what` is waited for.
    pub(crate) fn begin(self: &Arc<Self>, what: String) -> Wait {
        let mut table = locked(&self.0);
        table.last += 1;
        let number = table.last;
        table.waits.insert(number, (what, clock::now()));
        Wait { waits: Arc::clone(self), number }
    }

    /// Whose calls are told of, as long as it lives.
    pub(crate) fn add_caller(&self, caller: Weak<dyn Caller>) {
        let mut table = locked(&self.0);
        table.callers.retain(|it| it.strong_count() > 0);
        table.callers.push(caller);
    }

    /// Who waits for what, the oldest first.
    pub(super) fn report(&self) -> (Vec<WaitReport>, Vec<CallsReport>) {
        let now = clock::now();
        let table = locked(&self.0);
        let wait = |(what, since): &(String, Time)| WaitReport {
            what: what.clone(),
            since: Duration::from_micros(now.micros_since(*since)),
        };
        let waits = table.waits.values().map(wait).collect();
        let callers: Vec<_> = table.callers.iter().filter_map(Weak::upgrade).collect();
        drop(table);
        // A caller may be the last to let go of what it holds: not under the lock.
        (waits, callers.iter().filter_map(|it| it.report()).collect())
    }
}
