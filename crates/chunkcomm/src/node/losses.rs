//! What was accepted and may not have arrived, until somebody was told.

use crate::cluster::lines;
use crate::driver::ending::LostChannel;
use crate::error::CloseError;
use crate::moving::line::WORDS_CHANNEL;
use crate::proto::call;
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

    /// All that nobody was told of; now the caller is. What was lost while the node closed
    /// is told to everybody who closes it.
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
        Err(CloseError { channels, forgotten })
    }
}

/// Calls, clusters and lines tell whom it concerns by errors of their own.
fn is_of_the_library(name: &str) -> bool {
    call::is_reserved(name) || name.starts_with(lines::PREFIX) || name == WORDS_CHANNEL
}
