//! The machine of a process that joins: its name, and a thread for calls that block.

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

/// Runs a blocking `what` on a thread of its own; returns the receiver of its result. Nothing else
/// waits for the thread.
pub(in crate::cluster) fn on_a_thread<R: Send + 'static>(
    what: impl FnOnce() -> R + Send + 'static,
) -> io::Result<oneshot::Receiver<R>> {
    let (told, tells) = oneshot::channel();
    let thread = std::thread::Builder::new().name("chunkcomm-join".to_owned());
    thread.spawn(move || drop(told.send(what())))?;
    Ok(tells)
}
