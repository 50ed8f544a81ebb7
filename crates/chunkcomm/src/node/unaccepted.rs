//! Warnings of channels that a peer opened and nobody accepts, as when a name is misspelt at
//! either end, and of channels of ours for which a peer has no room.

use super::accepting::AcceptTable;
use super::losses::tells_itself;
use super::waits::Waits;
use crate::driver::clock;
use crate::driver::opening::LateOpen;
use crate::driver::wakers::locked;
use crate::error::Named;
use crate::proto::Time;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// Time after which a node warns of a held open, and of one for which a peer has no room: 5 s. A
/// program that starts up accepts within a second or two. People who see no progress look around after
/// some seconds more.
const UNACCEPTED_AFTER: Duration = Duration::from_secs(5);

/// Longest time between two of these warnings, where peers go on opening such channels: 10
/// minutes.
const PAUSE_MAX: Duration = Duration::from_secs(600);

/// Most channels, and names that this node waits for, that a warning names: 4. Others are counted.
const NAMED_MAX: usize = 4;

/// Result of a look at the held opens.
struct Looked {
    /// Whether a warning was given.
    spoke: bool,
    /// Time until the next open is due, if there is one.
    next: Option<Duration>,
}

/// Warns, once each, of the opens that are held for [`UNACCEPTED_AFTER`]. `held` is notified of each further
/// one.
pub(super) async fn speak_of_unaccepted(
    table: Weak<AcceptTable>,
    waits: Arc<Waits>,
    held: Arc<Notify>,
) {
    speak(table, held, |table, now| table.speak_of_unaccepted(&waits.accepts(), now)).await;
}

/// Warns, once each, of opens of ours that wait as long for room. `waits` is notified of each further one.
pub(super) async fn speak_of_unopened(table: Weak<AcceptTable>, waits: Arc<Notify>) {
    speak(table, waits, AcceptTable::speak_of_unopened).await;
}

/// Looks for opens that are late, from `told` on.
///
/// The opens that are due at a time share one warning. The pause after a warning doubles as long as
/// something is due at its end: what peers do does not fill a log.
async fn speak(
    table: Weak<AcceptTable>,
    told: Arc<Notify>,
    look: impl Fn(&AcceptTable, Time) -> Looked,
) {
    let mut pause_after = UNACCEPTED_AFTER;
    loop {
        told.notified().await;
        let mut rest = Some(UNACCEPTED_AFTER);
        while let Some(pause) = rest {
            clock::pause(pause).await;
            let Some(table) = table.upgrade() else { return };
            let Looked { spoke, next } = look(&table, clock::now());
            rest = next;
            if spoke {
                rest = Some(pause_after.max(next.unwrap_or_default()));
                pause_after = PAUSE_MAX.min(2 * pause_after);
            } else {
                pause_after = UNACCEPTED_AFTER;
            }
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

    /// Warns of the opens that nobody has accepted in time, and of those that gave way to others;
    /// names `accepts`, which this node waits for.
    fn speak_of_unaccepted(&self, accepts: &[String], now: Time) -> Looked {
        let (mut due, mut next) = (Few::default(), None::<Duration>);
        let mut table = locked(&self.table);
        for held in table.held.iter_mut().filter(|held| !held.spoken_of) {
            let left = held.since.after(UNACCEPTED_AFTER).micros_since(now);
            if left > 0 {
                // Timers step a millisecond; one timer is to be enough.
                let left = Duration::from_micros(left) + Duration::from_millis(1);
                next = Some(next.map_or(left, |next| next.min(left)));
                continue;
            }
            held.spoken_of = true;
            let (name, peer) = (&held.receiver.shared.name, &held.receiver.link.peer.name);
            if !tells_itself(name) {
                due.add(|| format!("channel {name:?} from {peer}"));
            }
        }
        let gave_way = std::mem::take(&mut table.gave_way);
        drop(table);
        let words = unaccepted_in_words(&due, gave_way, accepts);
        if let Some(text) = &words {
            self.warnings.say(text);
        }
        Looked { spoke: words.is_some(), next }
    }

    /// Warns of opens of ours that have waited for long.
    fn speak_of_unopened(&self, now: Time) -> Looked {
        let (mut late, mut next) = (Few::default(), None::<Duration>);
        for link in self.links() {
            let left = link.opens().take_late(UNACCEPTED_AFTER, now, |it| {
                let (LateOpen { channel, open }, peer) = (it, &link.peer.name);
                late.add(|| format!("{} to {peer}, to which {open} are open", Named(&channel)));
            });
            if let Some(left) = left {
                let left = left + Duration::from_millis(1);
                next = Some(next.map_or(left, |next| next.min(left)));
            }
        }
        let spoke = late.count > 0;
        if spoke {
            let them = if late.count == 1 { "it" } else { "them" };
            let late = late.in_words("; ");
            self.warnings.say(&format!("{late}: the peer has had no room for {them} for 5 s"));
        }
        Looked { spoke, next }
    }
}

/// Returns the warning, if there is anything to say.
fn unaccepted_in_words(due: &Few, gave_way: u64, accepts: &[String]) -> Option<String> {
    let mut parts = Vec::new();
    if due.count > 0 {
        let them = if due.count == 1 { "it" } else { "them" };
        parts.push(format!("{}: nobody has accepted {them} for 5 s", due.in_words(", ")));
    }
    if gave_way > 0 {
        parts.push(format!("{gave_way} channels that nobody accepted gave way to others"));
    }
    if parts.is_empty() {
        return None;
    }
    let mut waits = Few::default();
    accepts.iter().for_each(|it| waits.add(|| it.clone()));
    if waits.count > 0 {
        parts.push(format!("this node waits for {}", waits.in_words(", for ")));
    }
    Some(parts.join("; "))
}

/// The first of some things, in words, and the number of all.
#[derive(Default)]
struct Few {
    first: Vec<String>,
    count: usize,
}

impl Few {
    fn add(&mut self, words: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.len() < NAMED_MAX {
            self.first.push(words());
        }
    }

    fn in_words(&self, between: &str) -> String {
        let named = self.first.join(between);
        match self.count - self.first.len() {
            0 => named,
            more => format!("{named} and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_names_the_first_and_counts_the_others() {
        let words = |due: &[&str], gave_way, accepts: &[&str]| {
            let mut few = Few::default();
            due.iter().for_each(|it| few.add(|| (*it).to_owned()));
            let accepts: Vec<String> = accepts.iter().map(|it| (*it).to_owned()).collect();
            unaccepted_in_words(&few, gave_way, &accepts)
        };
        assert_eq!(words(&[], 0, &["x"]), None);
        assert_eq!(words(&["a"], 0, &[]).unwrap(), "a: nobody has accepted it for 5 s");
        assert_eq!(
            words(&["a", "b", "c", "d", "e"], 7, &["x", "y"]).unwrap(),
            "a, b, c, d and 1 more: nobody has accepted them for 5 s; 7 channels that nobody \
             accepted gave way to others; this node waits for x, for y"
        );
    }
}
