//! Threads of a real machine and tasks of the runtime.
//!
//! The code that starts one is compiled anew for each type of function or future: some 1,000 lines
//! of LLVM's input. Behind a pointer they have one type.

use std::io;
use std::pin::Pin;
use std::thread;

use chunkcomm::host;
use tokio::task::{AbortHandle, JoinSet};

/// Starts a thread with this name. Nobody waits for its end.
pub(crate) fn start_thread(name: String, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    thread::Builder::new().name(name).spawn(run).map(drop)
}

/// Part of a node's work, without a result.
pub(crate) type Chore = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Spawns a chore of the present process. Nobody waits for its end.
pub(crate) fn spawn(chore: Chore) {
    host::spawn(chore);
}

/// Spawns a chore of the present process among others.
pub(crate) fn spawn_among(chores: &mut JoinSet<()>, chore: Chore) -> AbortHandle {
    chores.spawn(host::here(chore))
}
