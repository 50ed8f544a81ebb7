//! The acknowledgement that the peer is owed, and when it must leave.

use crate::Time;
use crate::limits::{ACK_BYTES_MAX, ACK_DELAY_MS, ACK_PACKETS_MAX};
use std::time::Duration;

/// Packets and bytes that came since the last acknowledgement left.
#[derive(Debug, Default)]
pub(super) struct Owed {
    packets: u64,
    bytes: u64,
    since: Option<Time>,
    /// Whether the peer asked for the acknowledgement at once.
    pub(super) at_once: bool,
}

impl Owed {
    /// Notes that a packet of `bytes` came.
    #[inline]
    pub(super) fn packet(&mut self, bytes: u64, now: Time) {
        self.packets += 1;
        self.bytes += bytes;
        self.since.get_or_insert(now);
    }

    /// Whether the acknowledgement must leave now, whatever the time.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.at_once || self.packets >= ACK_PACKETS_MAX || self.bytes >= ACK_BYTES_MAX
    }

    /// Returns the time when the acknowledgement must leave at the latest.
    #[inline]
    pub(super) fn deadline(&self) -> Option<Time> {
        self.since.map(|since| since.after(Duration::from_millis(ACK_DELAY_MS)))
    }
}
