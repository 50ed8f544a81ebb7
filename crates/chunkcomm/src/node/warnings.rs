//! A node's warnings to people, where no call can return an error.

use std::io::Write as _;
use tracing::dispatcher;

/// A node's way to the people who run it: `tracing`, else a line on standard error.
#[derive(Debug, Clone)]
pub(super) struct Warnings {
    node: String,
    /// Whether nothing is said on standard error.
    quiet: bool,
}

impl Warnings {
    pub(super) fn new(node: String, quiet: bool) -> Warnings {
        Warnings { node, quiet }
    }

    /// Warns by `tracing` if that has a subscriber, else on standard error.
    pub(super) fn say(&self, what: &str) {
        if dispatcher::has_been_set() {
            tracing::warn!(node = %self.node, "{what}");
        } else {
            self.say_aloud(what);
        }
    }

    /// Warns on standard error if `tracing`, which was told before, had no subscriber.
    pub(super) fn say_unheard(&self, what: &str) {
        if !dispatcher::has_been_set() {
            self.say_aloud(what);
        }
    }

    fn say_aloud(&self, what: &str) {
        if !self.quiet {
            // In one write. Nobody is left to tell when it fails.
            let line = format!("chunkcomm: node {}: {what}\n", self.node);
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }
}
