//! Warnings of channels that a peer opened and nobody accepts, as when a name is misspelt at
//! either end.

use super::accepting::AcceptTable;
use super::losses::tells_itself;
use super::waits::Waits;
use crate::driver::clock;
use crate::driver::wakers::locked;
use crate::proto::Time;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// Time after which a node warns of a held open: 5 s. A program that starts up accepts within a
/// second or two. People who see no progress look around after some seconds more.
const UNACCEPTED_AFTER: Duration = Duration::from_secs(5);

/// Warns, once each, of the opens that are held for [`UNACCEPTED_AFTER`]. `held` is notified of
/// each further open.
pub(super) async fn speak_of_unaccepted(
    table: Weak<AcceptTable>,
    waits: Arc<Waits>,
    held: Arc<Notify>,
) {
    loop {
        held.notified().await;
        let mut rest = Some(UNACCEPTED_AFTER);
        while let Some(pause) = rest {
            clock::pause(pause).await;
            let Some(table) = table.upgrade() else { return };
            rest = table.speak_of_unaccepted(&waits.accepts(), clock::now());
        }
    }
}

impl AcceptTable {
    /// Returns the channels that were opened and nobody accepted, each with its peer.
    pub(super) fn held_names(&self) -> Vec<String> {
        let table = locked(&self.table);
        let held = table.held.iter().map(|it| &it.receiver);
        let held = held.filter(|it| !tells_itself(&it.shared.name));
        held.map(|it| format!("{:?} by {}", it.shared.name, it.link.peer.name)).collect()
    }

    /// Warns of the opens that nobody has accepted in time, and names `accepts`, which this node
    /// waits for. Returns the time until the next warning may be due, if any may.
    pub(super) fn speak_of_unaccepted(&self, accepts: &[String], now: Time) -> Option<Duration> {
        let (mut spoken_of, mut rest) = (Vec::new(), None::<Duration>);
        let mut table = locked(&self.table);
        for held in table.held.iter_mut().filter(|held| !held.spoken_of) {
            let left = held.since.after(UNACCEPTED_AFTER).micros_since(now);
            if left > 0 {
                // Timers step a millisecond; one timer is to be enough.
                let left = Duration::from_micros(left) + Duration::from_millis(1);
                rest = Some(rest.map_or(left, |rest| rest.min(left)));
                continue;
            }
            held.spoken_of = true;
            let (name, peer) = (&held.receiver.shared.name, &held.receiver.link.peer.name);
            if !tells_itself(name) {
                spoken_of.push(format!("channel {name:?} from {peer}"));
            }
        }
        drop(table);
        for channel in spoken_of {
            let mut text = format!("{channel}: nobody has accepted it for 5 s");
            if !accepts.is_empty() {
                text += &format!("; this node waits for {}", accepts.join(", for "));
            }
            self.warnings.say(&text);
        }
        rest
    }
}
