//! The machine of a process that joins: its name, and a thread for calls that block.

use crate::launch::start_thread;
use chunkcomm::host;
use std::io;
use tokio::sync::oneshot;

/// Returns the kernel's name of this machine, or that of the virtual host.
pub(in crate::cluster) fn hostname() -> String {
    if let Some(name) = host::virtual_name() {
        return name;
    }
    let told = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let told = told.or_else(|| std::env::var("HOSTNAME").ok());
    let name = told.as_deref().map(str::trim).filter(|name| !name.is_empty());
    name.unwrap_or("localhost").to_owned()
}

/// Runs a blocking `what` on a thread of its own; returns the receiver of its end. Nothing else waits
/// for the thread.
pub(in crate::cluster) fn on_a_thread(
    what: Box<dyn FnOnce() + Send>,
) -> io::Result<oneshot::Receiver<()>> {
    let (told, tells) = oneshot::channel();
    let work = move || {
        what();
        let _ = told.send(());
    };
    start_thread("chunkcomm-join", Box::new(work))?;
    Ok(tells)
}
