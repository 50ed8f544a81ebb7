//! Threads of a real machine that nobody waits for.

use std::io;
use std::thread;

/// Starts a thread with this name. Nobody waits for its end.
pub(crate) fn start_thread(name: String, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name).spawn(run).map(drop)
}
