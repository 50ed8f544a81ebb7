//! The ends whose home this node is: where the channels that others open to them are taken.

use crate::driver::events::Opened;
use crate::driver::taking::RxEnd;
use crate::driver::wakers::{Wakers, locked};
use crate::proto::custody::Fate;
use crate::proto::packet::ChannelKind;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

/// What the names of channels to such ends begin with.
pub(crate) const PORT_PREFIX: &str = "\0chunkcomm.port.";

/// The name of the channel to the end with this number.
pub(crate) fn name_of(number: u128) -> String {
    format!("{PORT_PREFIX}{number:032x}")
}

/// Which end a channel of this name is for.
pub(crate) fn number_of(name: &str) -> Option<u128> {
    let number = name.strip_prefix(PORT_PREFIX)?;
    u128::from_str_radix(number, 16).ok()
}

/// Ends that were made here and not connected yet, by number. The number is random: who was not
/// given it cannot connect.
#[derive(Default)]
pub(crate) struct Homes(Mutex<HashMap<u128, Arc<Slot>>>);

/// Where an end waits for its channel.
pub(crate) struct Slot {
    fingerprint: u64,
    state: Mutex<State>,
}

enum State {
    Waiting(Wakers),
    Connected(RxEnd),
    Ended(Fate),
    Taken,
}

impl Homes {
    /// A new end of this type.
    pub(crate) fn add(&self, number: u128, fingerprint: u64) -> Arc<Slot> {
        let state = Mutex::new(State::Waiting(Wakers::default()));
        let slot = Arc::new(Slot { fingerprint, state });
        locked(&self.0).insert(number, Arc::clone(&slot));
        slot
    }

    /// Nobody waits for this end's channel any more.
    pub(crate) fn remove(&self, number: u128) {
        locked(&self.0).remove(&number);
    }

    /// A peer opened the channel to this end. `Err`: there is none, it has one, or it
    /// is of another type.
    pub(super) fn connect(&self, number: u128, opened: Opened) -> Result<(), Box<Opened>> {
        let mut homes = locked(&self.0);
        let fits = |slot: &Arc<Slot>| {
            opened.kind == ChannelKind::Typed && slot.fingerprint == opened.fingerprint
        };
        if !homes.get(&number).is_some_and(fits) {
            return Err(Box::new(opened));
        }
        let slot = homes.remove(&number);
        drop(homes);
        if let Some(slot) = slot {
            slot.set(State::Connected(opened.receiver));
        }
        Ok(())
    }

    /// That became of the far end with this number; of no interest when it was connected.
    pub(super) fn ended(&self, number: u128, fate: Fate) {
        let slot = locked(&self.0).remove(&number);
        if let Some(slot) = slot {
            slot.set(State::Ended(fate));
        }
    }

    /// All ends that wait are lost.
    pub(super) fn end_all(&self, why: &str) {
        let homes = std::mem::take(&mut *locked(&self.0));
        for slot in homes.values() {
            slot.set(State::Ended(Fate::Lost { why: why.to_owned() }));
        }
    }

    /// Ends that wait.
    pub(crate) fn count(&self) -> usize {
        locked(&self.0).len()
    }
}

impl Slot {
    fn set(&self, state: State) {
        let before = std::mem::replace(&mut *locked(&self.state), state);
        if let State::Waiting(waiting) = before {
            waiting.wake();
        }
    }

    /// Waits for the channel, or for what became of the far end instead. To be asked
    /// until it is ready.
    pub(crate) fn poll_connected(&self, context: &mut Context<'_>) -> Poll<Result<RxEnd, Fate>> {
        let mut state = locked(&self.state);
        match &mut *state {
            State::Waiting(waiting) => {
                waiting.add(context.waker());
                Poll::Pending
            }
            State::Ended(fate) => Poll::Ready(Err(fate.clone())),
            State::Taken => Poll::Ready(Err(Fate::Connected)),
            State::Connected(_) => match std::mem::replace(&mut *state, State::Taken) {
                State::Connected(end) => Poll::Ready(Ok(end)),
                // It was looked at under the same lock.
                _ => Poll::Pending,
            },
        }
    }
}
