//! What was accepted and may not have arrived, until somebody was told.

use crate::driver::ending::LostChannel;
use crate::error::CloseError;
use crate::moving::line::WORDS_CHANNEL;
use std::collections::VecDeque;

/// Channels that are remembered.
const CHANNELS_MAX: usize = 1024;

/// Channels of which something may not have arrived. Who calls their sender is told, and
/// they are forgotten then; the others wait for the node to be closed.
#[derive(Default)]
pub(super) struct Losses {
    /// True: they were lost while the node closed, which says so in any case.
    channels: VecDeque<(LostChannel, bool)>,
    forgotten: u64,
}

impl Losses {
    pub(super) fn add(&mut self, lost: Vec<LostChannel>, closing: bool) {
        if lost.is_empty() {
            return;
        }
        self.channels.retain(|(it, closing)| *closing || !it.shared.is_told());
        let accounted_for = |it: &LostChannel| is_of_the_library(&it.shared.name);
        self.channels
            .extend(lost.into_iter().filter(|it| !accounted_for(it)).map(|it| (it, closing)));
        while !closing && self.channels.len() > CHANNELS_MAX {
            self.channels.pop_front();
            self.forgotten += 1;
        }
    }

    /// All that nobody was told of; now the caller is.
    pub(super) fn take(&mut self) -> Result<(), CloseError> {
        let untold = |(it, closing): &(LostChannel, bool)| *closing || !it.shared.is_told();
        let lost: Vec<_> = self.channels.drain(..).filter(untold).collect();
        let forgotten = std::mem::take(&mut self.forgotten);
        if lost.is_empty() && forgotten == 0 {
            return Ok(());
        }
        for (channel, _) in &lost {
            channel.shared.set_told();
        }
        let channels = lost.into_iter().map(|(channel, _)| channel.left).collect();
        Err(CloseError { channels, forgotten })
    }
}

/// Calls, clusters and moving ends tell whom it concerns by errors of their own.
fn is_of_the_library(name: &str) -> bool {
    name.starts_with("chunkcomm.") || name == WORDS_CHANNEL
}
