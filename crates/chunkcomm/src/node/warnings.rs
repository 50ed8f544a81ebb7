//! A node's warnings to people, where no call can return an error. Each is one line, whatever text
//! of a peer is in it.

use crate::proto::plain::Plain;
use std::io::Write as _;
use tracing::dispatcher;

/// Warns about the node of this name, which may be quiet: what no other report of its owner has.
pub fn warn(node: &str, what: &str) {
    Warnings::new(node.to_owned(), Aloud::All).say(what);
}

/// Warnings that a node writes to standard error, where `tracing` has no subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Aloud {
    All,
    /// Only that no connection can be accepted.
    AcceptErrors,
    Nothing,
}

/// A node's warnings, on `tracing` or else in a line on standard error.
#[derive(Debug, Clone)]
pub(super) struct Warnings {
    node: String,
    aloud: Aloud,
}

impl Warnings {
    pub(super) fn new(node: String, aloud: Aloud) -> Warnings {
        Warnings { node, aloud }
    }

    /// Warns by `tracing` if that has a subscriber, else on standard error.
    pub(super) fn say(&self, what: &str) {
        self.say_if(self.aloud == Aloud::All, what);
    }

    /// Warns in the same way that no connection can be accepted.
    pub(super) fn say_accept_error(&self, what: &str) {
        self.say_if(self.aloud != Aloud::Nothing, what);
    }

    /// Warns on standard error if `tracing`, where the warning was before, has no subscriber.
    pub(super) fn say_unheard(&self, what: &str) {
        if !dispatcher::has_been_set() && self.aloud == Aloud::All {
            self.say_aloud(what);
        }
    }

    fn say_if(&self, aloud: bool, what: &str) {
        if dispatcher::has_been_set() {
            tracing::warn!(node = %self.node, "{}", Plain(what));
        } else if aloud {
            self.say_aloud(what);
        }
    }

    fn say_aloud(&self, what: &str) {
        // In one write. A failure of it can be reported nowhere.
        let line = format!("chunkcomm: node {}: {}\n", self.node, Plain(what));
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}
