//! A node's warnings to people, where no call can return an error. Each is one line, whatever text
//! of a peer is in it.

use crate::proto::plain::Plain;
use std::io::Write as _;
use tracing::dispatcher;

/// A node's warnings, on `tracing` or else in a line on standard error.
#[derive(Debug, Clone)]
pub(super) struct Warnings {
    node: String,
    /// Whether nothing is written to standard error.
    quiet: bool,
}

impl Warnings {
    pub(super) fn new(node: String, quiet: bool) -> Warnings {
        Warnings { node, quiet }
    }

    /// Warns by `tracing` if that has a subscriber, else on standard error.
    pub(super) fn say(&self, what: &str) {
        if dispatcher::has_been_set() {
            tracing::warn!(node = %self.node, "{}", Plain(what));
        } else {
            self.say_aloud(what);
        }
    }

    /// Warns on standard error if `tracing`, where the warning was before, has no subscriber.
    pub(super) fn say_unheard(&self, what: &str) {
        if !dispatcher::has_been_set() {
            self.say_aloud(what);
        }
    }

    fn say_aloud(&self, what: &str) {
        if !self.quiet {
            // In one write. A failure of it can be reported nowhere.
            let line = format!("chunkcomm: node {}: {}\n", self.node, Plain(what));
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }
}
