//! Waking the library's tasks from the user's tasks.
//!
//! In tokio's runtime of several threads a worker keeps the task that it woke last in a slot. No
//! other worker steals from that slot. The woken task runs on that worker as soon as the running
//! task yields. While the running task computes, the woken one waits, though other workers idle.
//! The next task that is woken or spawned pushes it into the queue that other workers steal from.
//! Tokio then tells an idle worker:
//!
//! ```text
//!                       slot      queue          stolen by others
//!     wake(driver)      driver    -              -
//!     spawn(nothing)    nothing   driver    ->   driver
//! ```
//!
//! The empty task is a new one each time. A task kept for this may still wait to run, and waking
//! it then pushes nothing.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use tokio::runtime::{Handle, RuntimeFlavor, worker_index};

/// Lets an idle worker take the library's task that was woken or spawned last, if the caller runs
/// on a worker.
///
/// Called after each such wake or spawn in a user's task, since that task may compute next.
pub fn share_last_woken() {
    if has_several_threads() {
        push_last_woken();
    }
}

fn has_several_threads() -> bool {
    let here = Handle::try_current();
    here.is_ok_and(|runtime| runtime.runtime_flavor() != RuntimeFlavor::CurrentThread)
}

fn push_last_woken() {
    if worker_index().is_some() {
        tokio::spawn(ready(()));
    }
}

/// Wakes the driver of a link from any thread.
#[derive(Debug)]
pub(crate) struct DriverWaker {
    waker: Waker,
    several_threads: bool,
    /// The driver was woken and has not run since; the call that woke the driver shares it.
    woken: AtomicBool,
}

impl DriverWaker {
    /// Returns the waker of the task that runs here.
    pub(crate) fn here(waker: &Waker) -> DriverWaker {
        let several_threads = has_several_threads();
        DriverWaker { waker: waker.clone(), several_threads, woken: AtomicBool::new(false) }
    }

    /// Notes that the driver runs: the next [`Self::wake`] wakes it again.
    #[inline]
    pub(crate) fn runs(&self) {
        if self.several_threads {
            // An exchange, so that the driver sees the mail from before a `wake` that found it
            // woken.
            self.woken.swap(false, Ordering::AcqRel);
        }
    }

    #[inline]
    pub(crate) fn wake(&self) {
        if !self.several_threads {
            return self.waker.wake_by_ref();
        }
        if !self.woken.swap(true, Ordering::AcqRel) {
            self.waker.wake_by_ref();
            push_last_woken();
        }
    }
}

/// The waker that a driver gives to its transport. A driver that was woken by others need not ask
/// its transport again whether something arrived.
pub(crate) struct TransportWaker {
    note: Arc<Note>,
    waker: Waker,
}

struct Note {
    woken: AtomicBool,
    driver: Waker,
}

impl TransportWaker {
    /// Returns the waker of the driver that runs here.
    pub(crate) fn here(driver: &Waker) -> TransportWaker {
        let note = Arc::new(Note { woken: AtomicBool::new(true), driver: driver.clone() });
        TransportWaker { waker: Waker::from(Arc::clone(&note)), note }
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Returns whether the transport woke the driver since the last call.
    #[inline]
    pub(crate) fn take_woken(&self) -> bool {
        self.note.woken.load(Ordering::Relaxed) && self.note.woken.swap(false, Ordering::AcqRel)
    }
}

impl Wake for Note {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.driver.wake_by_ref();
    }
}
