//! The tokio runtime of a process, and tasks on it.

use std::future::Future;
use std::pin::Pin;

use tokio::runtime::{Builder, Runtime};

use crate::failure::{Doing, Failure};

/// Builds the tokio runtime of a process: one worker is the current-thread flavour.
///
/// # Errors
/// If the system refuses.
pub fn start(threads: usize) -> Result<Runtime, Failure> {
    let mut builder =
        if threads == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder.worker_threads(threads).enable_all().build().doing("starting the tokio runtime")
}

/// Runs a future as a task of the runtime, as a program's own tasks run: on a worker, if there are
/// several.
pub(crate) fn run_task<F>(runtime: &Runtime, future: F) -> Result<F::Output, Failure>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    // The runtime's code for a task is then compiled once, and not for each bench.
    let future: Pin<Box<dyn Future<Output = F::Output> + Send>> = Box::pin(future);
    runtime.block_on(async { tokio::spawn(future).await }).doing("running a task")
}
