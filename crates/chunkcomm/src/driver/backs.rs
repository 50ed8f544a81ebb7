//! The ways back of duplexes.
//!
//! A duplex is two channels. Its opener opens one of them. The peer, when it accepts that, opens the
//! other one, under a name made of the number of the first. So the pairing has no message of its own.
//! The opener has the inbox of the way back from the start: its receiver is an ordinary one, which
//! waits.
//!
//! | while the way back is not open | its receiver |
//! |---|---|
//! | the peer opens it | gets what comes |
//! | the peer refuses the duplex | ends with the reason |
//! | the session ends | ends with the cause |
//! | the receiver is dropped | stays here: the way back is terminated once it is open |

use super::inbox::{Outcome, RxShared};
use super::staging::TxShared;
use super::taking::land_rest;
use crate::proto::ids::IdMap;
use crate::proto::packet::ChannelKind;
use std::sync::Arc;

/// Beginning of the name of a way back. The number of the opener's channel follows.
const NAME: &str = "\0duplex/";

/// Returns the name of the way back of the duplex that the peer opened as `channel`.
pub(crate) fn name(channel: u32) -> String {
    format!("{NAME}{channel}")
}

/// A way back that the peer has not opened yet.
pub(crate) struct Back {
    pub(crate) shared: Arc<RxShared>,
    /// The way there.
    pub(crate) tx: Arc<TxShared>,
    pub(crate) kind: ChannelKind,
    /// The fingerprint of the duplex, which both its channels have.
    pub(crate) fingerprint: u64,
}

/// The ways back that the peer has not opened yet, by the number of the way there.
#[derive(Default)]
pub(crate) struct Backs(IdMap<Back>);

impl Backs {
    pub(crate) fn insert(&mut self, channel: u32, back: Back) {
        self.0.insert(channel, back);
    }

    pub(crate) fn remove(&mut self, channel: u32) -> Option<Back> {
        self.0.remove(channel)
    }

    /// Takes the way back that the peer opens under `name`, with the number of the way there.
    pub(crate) fn take(&mut self, name: &str) -> Option<(u32, Back)> {
        let channel = name.strip_prefix(NAME)?.parse().ok()?;
        Some((channel, self.0.remove(channel)?))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<RxShared>> {
        self.0.values().map(|back| &back.shared)
    }

    pub(crate) fn take_all(&mut self) -> Vec<Arc<RxShared>> {
        let all = std::mem::take(&mut self.0);
        all.values().map(|back| Arc::clone(&back.shared)).collect()
    }
}

/// Ends a way back that will not be opened.
pub(crate) fn end(shared: &RxShared, outcome: Outcome) {
    shared.end(outcome);
    if let Some(landing) = shared.with_queue(|queue| queue.early.landing.take()) {
        land_rest(shared, landing, &[], None);
    }
}
