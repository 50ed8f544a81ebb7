//! Threads whose task blocks them, and those that take their places.
//!
//! ```text
//!                    step         task blocks            wait is over        place
//!   waits for work ───────▶ active ──────────▶ aside ─────────────────▶ back ───────▶ active
//!         ▲                   │                  ┊ another becomes active: one that is back, one that
//!         └───────────────────┘                  ┊ waits for work, or a new one
//!           nothing to do, or somebody is back
//! ```
//!
//! As many threads are active as the worker is to have. A task whose wait is over goes before those that
//! are not begun. But it waits no longer than [`PATIENCE`] for its place, since it may hold a lock that an
//! active task waits for. Only then more threads are active, until one of them is done with its slice.
//! There are at most as many threads as virtual workers.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use chunkcomm::host::Instant;

use super::Shared;
use super::queue::StandIn;
use crate::context::{Work, is_at_slice_of};

/// Longest time that a task waits to go on.
pub(super) const PATIENCE: Duration = Duration::from_millis(100);

thread_local! {
    /// The runner of this thread.
    static RUNNER: RefCell<Option<(Arc<Shared>, Arc<Work>)>> = const { RefCell::new(None) };
}

/// Makes this thread that of a runner.
pub(super) fn sit_down(shared: &Arc<Shared>, work: &Arc<Work>) {
    RUNNER.with_borrow_mut(|runner| *runner = Some((shared.clone(), work.clone())));
}

/// Runs a function that blocks this thread. If it is a compute thread with a task that is not async,
/// another one has its place meanwhile.
pub(crate) fn while_aside<R>(wait: impl FnOnce() -> R) -> R {
    let runner = RUNNER.with_borrow(Option::clone).filter(|(_, work)| is_at_slice_of(work));
    let aside = runner.and_then(|(shared, work)| Aside::new(shared, work));
    let result = wait();
    drop(aside);
    result
}

/// A runner that has stepped aside. It comes back when this is dropped.
struct Aside {
    shared: Arc<Shared>,
    work: Arc<Work>,
}

impl Aside {
    /// Steps aside; `None` if the runner has already, or was given up.
    fn new(shared: Arc<Shared>, work: Arc<Work>) -> Option<Aside> {
        let mut queue = shared.queue();
        if work.is_aside() || work.is_abandoned() {
            return None;
        }
        work.set_aside(true);
        let stand_in = queue.step_aside();
        drop(queue);
        match stand_in {
            StandIn::Back => shared.places.notify_one(),
            StandIn::New if shared.start_runner().is_ok() => {}
            StandIn::Waiting | StandIn::New => shared.wake_one(),
        }
        Some(Aside { shared, work })
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        let Aside { shared, work } = self;
        let since = Instant::now();
        let mut queue = shared.queue();
        queue.back += 1;
        while !queue.has_place() {
            let left = queue.patience.saturating_sub(since.elapsed());
            if left.is_zero() {
                break;
            }
            let waited = shared.places.wait_timeout(queue, left);
            queue = waited.expect("nothing panics with the queue locked").0;
        }
        queue.back -= 1;
        if work.is_abandoned() {
            // It was counted out when it was given up. Others may have stood back for it.
            drop(queue);
            shared.wake_one();
            return;
        }
        work.set_aside(false);
        queue.aside -= 1;
    }
}
