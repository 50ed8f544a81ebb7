//! Waits that no link knows of, so that [`Node::explain`] can name
//! them.

use super::Node;
use crate::driver::clock;
use crate::driver::wakers::locked;
use crate::explain::WaitReport;
use crate::proto::Time;
use crate::proto::sorted::SortedMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Default)]
struct Table {
    last: u64,
    waits: SortedMap<u64, (What, Time)>,
}

/// The object of a wait.
enum What {
    /// A peer to open this channel.
    Open(String),
    Other(String),
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Open(channel) => write!(f, "a peer to open channel {channel:?}"),
            What::Other(what) => f.write_str(what),
        }
    }
}

/// The waits of one node.
#[derive(Default)]
pub(crate) struct Waits(Mutex<Table>);

/// Keeps a wait in the report until it is dropped.
pub struct Wait {
    waits: Arc<Waits>,
    number: u64,
}

impl Wait {
    /// Lets [`Node::explain`] name a wait for `what`.
    #[must_use]
    pub fn begin(node: &Node, what: String) -> Wait {
        node.waits().begin(what)
    }

    /// Names another object of the same wait, as long as it lasts: its time goes on.
    pub fn goes_on_for(&self, what: String) {
        if let Some((named, _)) = locked(&self.waits.0).waits.get_mut(&self.number) {
            *named = What::Other(what);
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        locked(&self.waits.0).waits.remove(&self.number);
    }
}

impl Waits {
    /// Begins a wait for `what`.
    pub(super) fn begin(self: &Arc<Self>, what: String) -> Wait {
        self.add(What::Other(what))
    }

    /// Begins a wait for a peer that opens `channel`.
    pub(super) fn begin_accept(self: &Arc<Self>, channel: &str) -> Wait {
        self.add(What::Open(channel.to_owned()))
    }

    fn add(self: &Arc<Self>, what: What) -> Wait {
        let mut table = locked(&self.0);
        table.last += 1;
        let number = table.last;
        table.waits.insert(number, (what, clock::now()));
        Wait { waits: Arc::clone(self), number }
    }

    /// Returns the channels that peers are to open, as text for people.
    pub(super) fn accepts(&self) -> Vec<String> {
        let table = locked(&self.0);
        let accepts = table.waits.values().filter(|(what, _)| matches!(what, What::Open(_)));
        accepts.map(|(what, _)| what.to_string()).collect()
    }

    /// Reports the waits, the oldest first.
    pub(super) fn report(&self) -> Vec<WaitReport> {
        let now = clock::now();
        let table = locked(&self.0);
        let wait = |(what, since): &(What, Time)| WaitReport {
            what: what.to_string(),
            since: Duration::from_micros(now.micros_since(*since)),
        };
        table.waits.values().map(wait).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_goes_on_for_another_object_keeps_its_beginning_and_its_place() {
        let waits = Arc::new(Waits::default());
        let (first, _second) = (waits.begin("three".to_owned()), waits.begin("one".to_owned()));
        let begun = locked(&waits.0).waits[&first.number].1;
        first.goes_on_for("two".to_owned());
        assert_eq!(locked(&waits.0).waits[&first.number].1, begun);
        let report = waits.report();
        assert_eq!(report.iter().map(|it| &*it.what).collect::<Vec<_>>(), ["two", "one"]);
        drop(first);
        assert_eq!(waits.report().len(), 1);
    }
}
