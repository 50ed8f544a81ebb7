//! A node's warnings to people, where no call can return an error. Each is one line, whatever text
//! of a peer is in it.

use super::Node;
use crate::driver::clock;
use crate::driver::wakers::locked;
use crate::explain::Warning;
use crate::proto::Time;
use crate::proto::plain::{Plain, cut};
use std::collections::VecDeque;
use std::io::Write as _;
use std::sync::Mutex;
use std::time::Duration;
use tracing::dispatcher;

/// Number of warnings that a process keeps.
const KEPT_COUNT_MAX: usize = 64;

/// Most bytes of a kept warning.
const KEPT_BYTES_MAX: usize = 1000;

/// The last warnings of this process, the oldest first.
static KEPT: Mutex<VecDeque<(String, String, Time)>> = Mutex::new(VecDeque::new());

impl Node {
    /// Returns the last 64 warnings of all nodes of this process, the oldest first: those that went to `tracing` or to
    /// standard error, and those of nodes that are quiet.
    #[must_use]
    pub fn warnings(&self) -> Vec<Warning> {
        kept()
    }
}

fn kept() -> Vec<Warning> {
    let now = clock::now();
    let warning = |(node, text, at): &(String, String, Time)| Warning {
        node: node.clone(),
        text: text.clone(),
        age: Duration::from_micros(now.micros_since(*at)),
    };
    locked(&KEPT).iter().map(warning).collect()
}

fn keep(node: &str, what: &str) {
    let text = Plain(cut(what, KEPT_BYTES_MAX)).to_string();
    let node = cut(node, KEPT_BYTES_MAX).to_owned();
    let mut kept = locked(&KEPT);
    if kept.len() >= KEPT_COUNT_MAX {
        kept.pop_front();
    }
    kept.push_back((node, text, clock::now()));
}

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
        keep(&self.node, what);
        if !dispatcher::has_been_set() && self.aloud == Aloud::All {
            self.say_aloud(what);
        }
    }

    fn say_if(&self, aloud: bool, what: &str) {
        keep(&self.node, what);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_warnings_are_kept_in_one_line_each() {
        for number in 0..KEPT_COUNT_MAX + 9 {
            Warnings::new("kept".to_owned(), Aloud::Nothing)
                .say(&format!("number {number}\n{}", "x".repeat(2000)));
        }
        // Other tests of this process may warn, too.
        let kept: Vec<_> = kept().into_iter().filter(|it| it.node == "kept").collect();
        assert!(kept.len() <= KEPT_COUNT_MAX && kept.len() > KEPT_COUNT_MAX / 2);
        let last = kept.last().unwrap();
        assert!(
            last.text.starts_with(&format!(r"number {}\nxx", KEPT_COUNT_MAX + 8)),
            "{}",
            last.text
        );
        assert!(last.text.len() <= KEPT_BYTES_MAX + 1);
    }
}
