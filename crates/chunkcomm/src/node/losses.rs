//! Accepted messages that may not have arrived, until some call has reported the loss.

use super::layers::Layers;
use crate::driver::ending::LostChannel;
use crate::error::{CloseError, Named, Unacknowledged};
use std::collections::VecDeque;
use std::sync::Arc;

/// Most channels that are remembered: 1024.
const CHANNELS_MAX: usize = 1024;

/// Beginning of the names of a layer's channels that nodes accept as the program's.
const OF_LAYERS: &str = "chunkcomm.";

/// Beginning of the channel names of the crates that stand on this one.
const OF_CRATES: &str = "chunkcomm-";

/// Most channels that a node names at its end: 4.
const CHANNELS_NAMED: usize = 4;

/// Channels with messages that may not have arrived. A channel is forgotten once a call on its
/// sender has reported the loss; the others are kept for `Node::close`.
#[derive(Default)]
pub(super) struct Losses {
    /// The channels; true for those lost while the node closed, which closing reports in any case.
    channels: VecDeque<(LostChannel, bool)>,
    forgotten: u64,
}

impl Losses {
    /// Adds losses that the node reports; see [`reported`].
    pub(super) fn add(&mut self, lost: Vec<LostChannel>, closing: bool) {
        if lost.is_empty() {
            return;
        }
        self.channels.retain(|(it, closing)| *closing || !it.shared.is_told());
        self.channels.extend(lost.into_iter().map(|it| (it, closing)));
        while !closing && self.channels.len() > CHANNELS_MAX {
            self.channels.pop_front();
            self.forgotten += 1;
        }
    }

    /// Adds a loss unless it is known already.
    pub(super) fn add_new(&mut self, lost: LostChannel) {
        if !self.channels.iter().any(|(known, _)| Arc::ptr_eq(&known.shared, &lost.shared)) {
            self.add(vec![lost], true);
        }
    }

    /// Returns, as an error, all losses that no call has reported; from now on they count as
    /// reported. Losses while the node closed are returned by every close.
    pub(super) fn tell(&mut self) -> Result<(), CloseError> {
        self.channels.retain(|(it, closing)| *closing || !it.shared.is_told());
        let forgotten = std::mem::take(&mut self.forgotten);
        if self.channels.is_empty() && forgotten == 0 {
            return Ok(());
        }
        for (channel, _) in &self.channels {
            channel.shared.set_told();
        }
        let channels = self.channels.iter().map(|(channel, _)| channel.left.clone()).collect();
        Err(CloseError { channels, forgotten, unsaid: Vec::new() })
    }

    /// Returns, in one line, the losses of a gone node that no call has reported.
    pub(super) fn untold(&self) -> Option<String> {
        let is_untold = |it: &&LostChannel| !it.shared.is_told();
        let untold = || self.channels.iter().map(|(it, _)| it).filter(is_untold);
        let messages: u64 = untold().map(|it| it.left.account.unknown()).sum();
        if messages == 0 {
            return None;
        }
        let mut text = format!(
            "it ended, and whether {messages} messages arrived is unknown: Node::close waits for that"
        );
        for LostChannel { left, .. } in untold().take(CHANNELS_NAMED) {
            let Unacknowledged { channel, peer, account, .. } = left;
            text += &format!("; {} to {peer}: {account}", Named(channel));
        }
        match untold().count().saturating_sub(CHANNELS_NAMED) as u64 + self.forgotten {
            0 => {}
            more => text += &format!("; and {more} channels more"),
        }
        Some(text)
    }
}

/// Returns whether this channel is not the program's: of a layer, or of a crate that stands on this
/// one. Those have errors of their own.
pub(super) fn tells_itself(name: &str) -> bool {
    is_reserved(name) || name.starts_with(OF_LAYERS) || is_of_crates(name)
}

/// Returns whether this channel is one of the crates that stand on this one.
fn is_of_crates(name: &str) -> bool {
    name.starts_with(OF_CRATES)
}

/// Returns those of the lost channels that the node reports. Those of other crates have errors of
/// their own; of a layer's channels the layer decides. Called without a lock.
pub(super) fn reported(mut lost: Vec<LostChannel>, layers: &Layers) -> Vec<LostChannel> {
    lost.retain(|it| {
        let name = &it.shared.name;
        if name.starts_with(OF_LAYERS) || is_of_crates(name) {
            return false;
        }
        !is_reserved(name) || layers.reports_loss(name, it.left.account.unknown())
    });
    lost
}

/// Returns whether this name is reserved for layers; see [`crate::layer`].
pub(super) fn is_reserved(name: &str) -> bool {
    name.starts_with('\0')
}
