//! Threads whose tasks block them, and the threads that take their places.
//!
//! ```text
//!                    step         task blocks            wait is over        place
//!   waits for work ───────▶ active ──────────▶ aside ─────────────────▶ back ───────▶ active
//!         ▲                   │                  ┊ another becomes active: one that is back, one that
//!         └───────────────────┘                  ┊ waits for work, or a new one
//!           nothing to do, somebody is back, or too many are active
//! ```
//!
//! | rule | reason |
//! |---|---|
//! | As many threads are active as the worker is to have. | |
//! | A task whose wait is over goes before tasks that are not begun. | |
//! | Without a free place for some time, one more such task goes on ([`Patience`]). | It may hold a lock that all active tasks wait for. |
//! | At most as many threads exist as virtual workers are allowed, besides those that were given up. | |

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use chunkcomm::host::Instant;

use super::Shared;
use super::queue::StandIn;
use crate::context::{TaskContext, Work, is_at_slice_of};

/// Time without a free place after which a task goes on without one.
const PATIENCE: Duration = Duration::from_millis(20);

/// Time without a free place after which a task goes on without one. It doubles with each such
/// task, until the number of active threads is in bounds again. Many tasks may have waited for the
/// same value, and may compute for long.
#[derive(Debug)]
pub(super) struct Patience {
    pub(super) least: Duration,
    now: Duration,
    /// Time at which a place got free, or a task went on without one.
    since: Instant,
}

impl Patience {
    pub(super) fn new(since: Instant) -> Patience {
        Patience { least: PATIENCE, now: PATIENCE, since }
    }

    /// Returns the time until a task goes on whose wait was over at `back`.
    fn left(&self, back: Instant, now: Instant) -> Duration {
        self.now.saturating_sub(now - back.max(self.since))
    }

    /// Notes that a task goes on without a place.
    fn run_out(&mut self, now: Instant) {
        (self.now, self.since) = (self.now.saturating_mul(2), now);
    }

    /// Notes that a place got free or was taken; `is_crowded`: more threads are active than should
    /// be.
    pub(super) fn handle_place(&mut self, now: Instant, is_crowded: bool) {
        self.since = now;
        if !is_crowded {
            self.now = self.least;
        }
    }
}

thread_local! {
    /// The runner of this thread.
    static RUNNER: RefCell<Option<(Arc<Shared>, Arc<Work>)>> = const { RefCell::new(None) };
}

/// Makes this thread the thread of a runner, until the result is dropped.
pub(super) fn sit_down(shared: &Arc<Shared>, work: &Arc<Work>) -> Seated {
    RUNNER.set(Some((shared.clone(), work.clone())));
    Seated
}

pub(super) struct Seated;

impl Drop for Seated {
    fn drop(&mut self) {
        // The runner's parts are dropped after that: values of the user may be among them.
        drop(RUNNER.take());
    }
}

impl TaskContext {
    /// Runs a function that blocks its thread, such as a read from a slow disk.
    ///
    /// The function runs on this thread. Another thread of the worker runs other tasks meanwhile.
    /// After the function has returned, the task goes on as soon as another task ends or blocks,
    /// before others begin. The task should hold no lock for which other tasks wait. Otherwise none
    /// of them ends, and the task goes on after 20 ms or more.
    ///
    /// A worker starts further threads when it needs them, and keeps them until the farm ends. At
    /// most it has as many as [virtual workers](crate::FarmBuilder::virtual_workers): by default 16
    /// for each computing thread. While all of them are blocked the worker begins no task. So a
    /// task must not wait here for tasks that may not have begun. Short tasks are begun in groups
    /// of some 0.25 ms, and the tasks behind this one in its group wait with it.
    ///
    /// The wait counts in the task's [time](crate::FarmBuilder::task_timeout), and nothing
    /// interrupts the function. When time and grace are over, the task has failed and its thread is
    /// given up.
    ///
    /// Waking another thread takes some 30 us, so a shorter wait is better left alone. A call with
    /// an async form is cheaper in an [async task](crate::RegistryExt::register_async_task), whose
    /// wait takes no thread. In an async task, outside of a farm, and in virtual time, the function
    /// just runs.
    ///
    /// ```
    /// use chunkcomm_cluster::Registry;
    /// use chunkcomm_farm::RegistryExt;
    ///
    /// let mut registry = Registry::new();
    /// let words = registry.register_task("words", |task, path: String| {
    ///     let text = task.blocking(|| std::fs::read_to_string(&path)).unwrap_or_default();
    ///     text.split_whitespace().count()
    /// });
    /// ```
    ///
    /// # Panics
    /// When the function does.
    pub fn blocking<R>(&self, function: impl FnOnce() -> R) -> R {
        while_aside(function)
    }
}

/// Runs a function that blocks this thread. Another thread takes the place of a compute thread
/// meanwhile, if its task is not async.
pub(crate) fn while_aside<R>(wait: impl FnOnce() -> R) -> R {
    let runner = RUNNER.with_borrow(Option::clone).filter(|(_, work)| is_at_slice_of(work));
    let aside = runner.and_then(|(shared, work)| Aside::new(shared, work));
    let result = wait();
    drop(aside);
    result
}

/// Runner that has stepped aside; it comes back when this is dropped.
struct Aside {
    shared: Arc<Shared>,
    work: Arc<Work>,
}

impl Aside {
    /// Steps aside; `None` if the runner is aside already, or was given up.
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
            StandIn::Waiting => shared.wake_one(),
            // If no thread can be started, the others go on.
            StandIn::New => drop(shared.start_runner()),
        }
        Some(Aside { shared, work })
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        let Aside { shared, work } = self;
        let back = Instant::now();
        let mut queue = shared.queue();
        if !work.is_abandoned() {
            queue.back += 1;
            work.set_back(true);
        }
        while !queue.has_place() && !queue.closed && !work.is_abandoned() {
            let now = Instant::now();
            let left = queue.patience.left(back, now);
            if left.is_zero() {
                queue.patience.run_out(now);
                break;
            }
            let waited = shared.places.wait_timeout(queue, left);
            queue = waited.expect("nothing panics with the queue locked").0;
        }
        // A runner that was given up is no longer counted.
        if work.is_abandoned() {
            return;
        }
        work.set_back(false);
        work.set_aside(false);
        queue.back -= 1;
        queue.aside -= 1;
        queue.note_place();
        let makes_room = queue.waits.begun() > 0;
        drop(queue);
        if makes_room {
            shared.wake_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_go_on_without_a_place_one_after_the_other() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let left = |patience: &Patience, back, now| patience.left(at(back), at(now)).as_millis();
        let mut patience = Patience::new(start);
        assert_eq!(left(&patience, 100, 100), 20);
        assert_eq!(left(&patience, 100, 115), 5);
        assert_eq!(left(&patience, 100, 130), 0);
        // The next one waits twice as long, also if its wait was over as early.
        patience.run_out(at(130));
        assert_eq!(left(&patience, 100, 130), 40);
        assert_eq!(left(&patience, 160, 165), 35);
        patience.run_out(at(200));
        assert_eq!(left(&patience, 100, 200), 80);
        // A place got free, and then those beyond the places are done.
        patience.handle_place(at(210), true);
        assert_eq!(left(&patience, 100, 210), 80);
        patience.handle_place(at(220), false);
        assert_eq!(left(&patience, 100, 225), 15);
    }
}
