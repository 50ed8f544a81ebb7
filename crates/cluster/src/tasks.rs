//! Tasks of this crate.
//!
//! A runtime's code for a task is compiled anew for each type of future: some 1,500 lines of LLVM's
//! input. Behind a pointer they have one type. It costs an allocation, so the tasks of calls, which
//! are generic anyway, do without.

use chunkcomm::host::{self, JoinHandle};
use std::pin::Pin;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

/// A task without a result.
pub(crate) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Spawns a task of the present process on the current runtime.
pub(crate) fn spawn(task: Task) -> JoinHandle<()> {
    host::spawn(task)
}

/// Spawns a task of the present process on `runtime`.
pub(crate) fn spawn_on(runtime: &Handle, task: Task) -> JoinHandle<()> {
    host::spawn_on(runtime, task)
}

/// Spawns a task of the present process among others.
pub(crate) fn spawn_among(tasks: &mut JoinSet<()>, task: Task) {
    tasks.spawn(host::here(task));
}
