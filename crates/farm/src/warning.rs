//! Warnings to people, where no call can return an error.

use std::io::Write as _;

use tracing::dispatcher;

/// Warns by `tracing` if that has a subscriber, else in a line on standard error.
pub(crate) fn warn(what: &str) {
    if dispatcher::has_been_set() {
        tracing::warn!("{what}");
    } else {
        // In one write. A failure of it can be reported nowhere.
        let _ = std::io::stderr().write_all(format!("chunkcomm-farm: {what}\n").as_bytes());
    }
}
