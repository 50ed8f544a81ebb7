//! Warnings to people, where no call can return an error.

use std::io::Write as _;

use tracing::dispatcher;

/// Warns by `tracing` if that has a subscriber, else by a line on standard error.
pub(crate) fn warn(what: &str) {
    if dispatcher::has_been_set() {
        tracing::warn!("{what}");
    } else {
        // One write for the whole line. A failure of it can be reported nowhere.
        let _ = std::io::stderr().write_all(format!("chunkcomm-farm: {what}\n").as_bytes());
    }
}
