//! Ends whose home is this node. The channels that other nodes open to them arrive here.

use crate::proto::custody::Fate;
use crate::sync::locked;
use chunkcomm::layer::{Opened, RawReceiver};
use chunkcomm_proto::sorted::SortedMap;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// Prefix of the names of channels to these ends.
pub(crate) const END_PREFIX: &str = "\0the channel of a travelling end\0";

/// Returns the name of the channel to the end with this number.
pub(crate) fn name_of(number: u128) -> String {
    format!("{END_PREFIX}{number:032x}")
}

/// Returns the number of the end that a channel of this name is for.
pub(crate) fn number_of(name: &str) -> Option<u128> {
    let number = name.strip_prefix(END_PREFIX)?;
    u128::from_str_radix(number, 16).ok()
}

/// Most dropped ends that are remembered: 1024. An older one refuses its channel.
const DROPPED_MAX: usize = 1024;

/// Ends that were made here, by number. The number is random, so only a node that received it can
/// connect.
#[derive(Default)]
pub(crate) struct Homes(Mutex<Ends>);

#[derive(Default)]
struct Ends {
    /// Ends that are not connected yet.
    waiting: SortedMap<u128, Arc<Slot>>,
    /// Ends that were dropped before they were connected, the oldest first. A channel to one of
    /// them is terminated, as by a dropped receiver: its messages are no loss. A channel to any
    /// other missing end is refused.
    dropped: VecDeque<u128>,
}

/// Place where an end waits for its channel.
pub(crate) struct Slot {
    fingerprint: u64,
    state: Mutex<State>,
}

enum State {
    /// The end waits for its channel; the task that asked last is woken.
    Waiting(Option<Waker>),
    Connected(RawReceiver),
    Ended(Fate),
    Taken,
}

impl Homes {
    /// Adds a new end of this type.
    pub(crate) fn add(&self, number: u128, fingerprint: u64) -> Arc<Slot> {
        let state = Mutex::new(State::Waiting(None));
        let slot = Arc::new(Slot { fingerprint, state });
        locked(&self.0).waiting.insert(number, Arc::clone(&slot));
        slot
    }

    /// Removes a dropped end, which waits for no channel.
    pub(crate) fn remove(&self, number: u128) {
        let mut ends = locked(&self.0);
        if ends.waiting.remove(&number).is_none() {
            return;
        }
        if ends.dropped.len() == DROPPED_MAX {
            ends.dropped.pop_front();
        }
        ends.dropped.push_back(number);
    }

    /// Connects an end with the channel that a peer opened. `Err`: there is no such end, it has a
    /// channel, or it has another type.
    pub(super) fn connect(&self, number: u128, opened: Opened) -> Result<(), Box<Opened>> {
        let mut ends = locked(&self.0);
        let fits = ends.waiting.get(&number).is_some_and(|slot| opened.is_of(slot.fingerprint));
        let slot = if fits { ends.waiting.remove(&number) } else { None };
        let was_dropped = slot.is_none() && ends.dropped.contains(&number);
        drop(ends);
        match slot {
            Some(slot) => slot.set(State::Connected(opened.into_receiver())),
            // Dropped, the receiver terminates its channel.
            None if was_dropped => drop(opened.into_receiver()),
            None => return Err(Box::new(opened)),
        }
        Ok(())
    }

    /// Notes the fate of the far end with this number; has no effect once that end is connected.
    pub(super) fn ended(&self, number: u128, fate: Fate) {
        let slot = locked(&self.0).waiting.remove(&number);
        if let Some(slot) = slot {
            slot.set(State::Ended(fate));
        }
    }

    /// Marks all waiting ends as lost.
    pub(super) fn end_all(&self, why: &str) {
        let waiting = std::mem::take(&mut locked(&self.0).waiting);
        for slot in waiting.values() {
            slot.set(State::Ended(Fate::Lost { why: why.to_owned() }));
        }
    }

    /// Returns the number of waiting ends.
    pub(crate) fn count(&self) -> usize {
        locked(&self.0).waiting.len()
    }
}

impl Slot {
    fn set(&self, state: State) {
        let before = std::mem::replace(&mut *locked(&self.state), state);
        if let State::Waiting(Some(waiting)) = before {
            waiting.wake();
        }
    }

    /// Waits for the channel, or for the fate of the far end. The caller polls it until it is
    /// ready.
    pub(crate) fn poll_connected(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<Result<RawReceiver, Fate>> {
        let mut state = locked(&self.state);
        match &mut *state {
            State::Waiting(waiting) => {
                *waiting = Some(context.waker().clone());
                Poll::Pending
            }
            State::Ended(fate) => Poll::Ready(Err(fate.clone())),
            State::Taken => Poll::Ready(Err(Fate::Connected)),
            State::Connected(_) => match std::mem::replace(&mut *state, State::Taken) {
                State::Connected(end) => Poll::Ready(Ok(end)),
                // Unreachable: the state was checked under the same lock.
                _ => Poll::Pending,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_dropped_ends_are_remembered_and_no_others() {
        let homes = Homes::default();
        for number in 0..1500 {
            homes.add(number, 0);
            homes.remove(number);
            // One that is connected or lost is not there any more.
            homes.remove(number);
        }
        homes.add(2000, 0);
        homes.ended(2000, Fate::Lost { why: "the test".to_owned() });
        homes.remove(2000);
        let dropped: Vec<u128> = locked(&homes.0).dropped.iter().copied().collect();
        assert!(dropped.into_iter().eq(476..1500));
    }
}
