//! Panics of the tasks of a simulation. One that nobody sees fails the run.
//!
//! ```text
//!                      handle is awaited
//!   task panics --+--> kept ------------> seen
//!                 |      '- handle is dropped, or the run ends --,
//!                 '- handle was dropped -------------------------+--> the run fails
//! ```

use super::simulated::Here;
use super::{JoinHandle, Process};
use crate::driver::clock;
use crate::transport::world;
use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

thread_local! {
    /// The panics that nobody has seen, with the addresses of their witnesses.
    static KEPT: RefCell<Vec<(usize, String)>> = const { RefCell::new(Vec::new()) };
}

/// Forgets the panics of an earlier run.
pub fn clear() {
    KEPT.take();
}

/// Fails the run for a panic that nobody has seen.
///
/// # Panics
///
/// If there is one.
pub fn check() {
    let kept = KEPT.take().into_iter().next();
    if let Some(why) = clock::stopped().or(kept.map(|(_, why)| why)) {
        panic!("{why}");
    }
}

/// The handle's part in a task: while it lives, somebody may see how the task ends.
#[derive(Debug)]
pub(super) struct Witness(Arc<()>);

impl Witness {
    /// Notes that the task's panic was seen.
    pub(super) fn saw(&self) {
        let _ = self.take();
    }

    fn take(&self) -> Option<String> {
        let own = Arc::as_ptr(&self.0).addr();
        let take = |kept: &RefCell<Vec<(usize, String)>>| {
            let mut kept = kept.borrow_mut();
            let at = kept.iter().position(|(witness, _)| *witness == own)?;
            Some(kept.remove(at).1)
        };
        // A handle that outlives its run may be dropped at the end of its thread.
        KEPT.try_with(take).ok()?
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        if let Some(why) = self.take() {
            clock::stop(why);
        }
    }
}

pin_project_lite::pin_project! {
    /// A task of a simulation.
    #[derive(Debug)]
    pub struct Watched<F> {
        witness: Weak<()>,
        process: Option<Process>,
        #[pin]
        future: Here<F>,
    }
}

impl<F: Future> Future for Watched<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let polled = catch_unwind(AssertUnwindSafe(|| this.future.poll(context)));
        polled.unwrap_or_else(|panic| {
            let why = failure(*this.process, &*panic);
            match this.witness.upgrade() {
                Some(witness) => {
                    let witness = Arc::as_ptr(&witness).addr();
                    KEPT.with_borrow_mut(|kept| kept.push((witness, why)));
                }
                None => clock::stop(why),
            }
            resume_unwind(panic)
        })
    }
}

/// Returns the words for a panic of a task.
fn failure(process: Option<Process>, panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("the panic has no text");
    let name = process.and_then(|it| Some(world::of_this_thread()?.name_of(it.host)));
    let whose = name.map_or_else(|| "no host".to_owned(), |name| format!("the host {name}"));
    format!("a task of {whose} panicked, and nobody awaited it: {text}")
}

/// Spawns a task of a simulation `by` a call of its runtime.
pub(super) fn spawn_watched<F: Future>(
    future: Here<F>,
    by: impl FnOnce(Watched<F>) -> tokio::task::JoinHandle<F::Output>,
) -> JoinHandle<F::Output> {
    let (witness, process) = (Witness(Arc::default()), future.process());
    let task = by(Watched { witness: Arc::downgrade(&witness.0), process, future });
    if let Some(process) = process {
        process.owns(task.abort_handle());
    }
    JoinHandle { task, witness: Some(witness) }
}

impl Process {
    /// Spawns a task of this process `by` a call of its runtime.
    pub fn spawn<F: Future>(
        self,
        future: F,
        by: impl FnOnce(Watched<F>) -> tokio::task::JoinHandle<F::Output>,
    ) -> JoinHandle<F::Output> {
        spawn_watched(self.owned(future), by)
    }
}
