//! The acknowledgement that the peer is owed, and when it must leave.

use crate::proto::Time;
use crate::proto::limits::{ACK_BYTES_MAX, ACK_DELAY_MS, ACK_PACKETS_MAX};
use std::time::Duration;

/// What came since the last acknowledgement left.
#[derive(Debug, Default)]
pub(super) struct Owed {
    packets: u64,
    bytes: u64,
    since: Option<Time>,
    /// The peer asked for it.
    pub(super) at_once: bool,
}

impl Owed {
    /// A packet of `bytes` came.
    pub(super) fn packet(&mut self, bytes: u64, now: Time) {
        self.packets += 1;
        self.bytes += bytes;
        self.since.get_or_insert(now);
    }

    /// Nothing came, and nobody asked.
    pub(super) fn is_nothing(&self) -> bool {
        self.since.is_none() && !self.at_once
    }

    /// It must leave whatever the time is.
    pub(super) fn is_due(&self) -> bool {
        self.at_once || self.packets >= ACK_PACKETS_MAX || self.bytes >= ACK_BYTES_MAX
    }

    /// When it must leave at the latest.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.since.map(|since| since.after(Duration::from_millis(ACK_DELAY_MS)))
    }
}
