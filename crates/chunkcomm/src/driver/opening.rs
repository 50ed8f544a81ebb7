//! Channels of ours whose open waits for credit: the peer has no room for one more.

use super::channels::Channels;
use super::clock;
use super::mail::LinkShared;
use super::staging::TxShared;
use super::wakers::locked;
use crate::proto::Time;
use crate::proto::link::Link;
use crate::proto::outbox::Blocked;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The opens of a link that wait.
#[derive(Default)]
pub(crate) struct Opens(Mutex<State>);

#[derive(Default)]
struct State {
    /// In the order in which they began.
    waiting: Vec<Waiting>,
    /// Time when the peer last had room for one that waited.
    opened: Option<Time>,
}

impl State {
    fn waiting(&self, channel: &Arc<TxShared>) -> Option<&Waiting> {
        self.waiting.iter().find(|it| Arc::ptr_eq(&it.channel, channel))
    }
}

struct Waiting {
    id: u32,
    channel: Arc<TxShared>,
    since: Time,
    /// Number of channels to the peer that were open then.
    open: usize,
    /// Whether a warning was given.
    spoken_of: bool,
}

/// An open that has waited for long.
pub(crate) struct LateOpen {
    pub(crate) channel: String,
    /// Number of channels to the peer that were open when the wait began.
    pub(crate) open: usize,
}

impl Opens {
    /// Returns for how long this channel has waited, if it waits.
    pub(crate) fn waits(&self, channel: &Arc<TxShared>) -> Option<Duration> {
        let since = locked(&self.0).waiting(channel)?.since;
        Some(Duration::from_micros(clock::now().micros_since(since)))
    }

    /// Returns for how long this channel has waited since another one opened.
    pub(crate) fn waits_in_vain(&self, channel: &Arc<TxShared>) -> Option<Duration> {
        let state = locked(&self.0);
        let since = state.waiting(channel)?.since;
        let since = state.opened.map_or(since, |opened| since.max(opened));
        Some(Duration::from_micros(clock::now().micros_since(since)))
    }

    /// Passes each open that has waited for `long` to `late`, once. Returns the time until the next one
    /// has.
    pub(crate) fn take_late(
        &self,
        long: Duration,
        now: Time,
        mut late: impl FnMut(LateOpen),
    ) -> Option<Duration> {
        let mut state = locked(&self.0);
        for it in state.waiting.iter_mut().filter(|it| !it.spoken_of) {
            let left = it.since.after(long).micros_since(now);
            if left > 0 {
                return Some(Duration::from_micros(left));
            }
            it.spoken_of = true;
            late(LateOpen { channel: it.channel.name.clone(), open: it.open });
        }
        None
    }

    /// Forgets all: the session has ended.
    pub(super) fn end(&self) {
        locked(&self.0).waiting.clear();
    }
}

impl LinkShared {
    /// Returns the opens that wait.
    pub(crate) fn opens(&self) -> &Opens {
        &self.opens
    }
}

impl Channels {
    /// Notes a channel that has just begun, if its open waits.
    pub(super) fn note_open(&mut self, id: u32, link: &Link, since: Time) {
        if link.channel_state(id).blocked != Blocked::Open {
            return;
        }
        let Some(slot) = self.senders.slots.get(id) else { return };
        let open = self.senders.slots.len() - link.unopened();
        let channel = Arc::clone(&slot.shared);
        let waiting = Waiting { id, channel, since, open, spoken_of: false };
        locked(&self.shared.opens.0).waiting.push(waiting);
        self.opens_waiting += 1;
        self.acceptor.open_waits();
    }

    /// Forgets the opens that wait no longer.
    #[inline]
    pub(super) fn look_at_opens(&mut self, link: &Link) {
        if self.opens_waiting != link.unopened() {
            self.forget_opens(link);
        }
    }

    #[cold]
    fn forget_opens(&mut self, link: &Link) {
        let mut state = locked(&self.shared.opens.0);
        state.opened = Some(clock::now());
        state.waiting.retain(|it| link.channel_state(it.id).blocked == Blocked::Open);
        self.opens_waiting = link.unopened();
    }
}
