//! Bytes that arrived at an end whose host has not received them: they wait for its I/O thread.

/// Bytes that arrived and wait for the I/O thread.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    /// Bytes of a packet that has not arrived as a whole.
    collected: usize,
    /// Whether the thread has bytes of this packet.
    begun: bool,
    /// Bytes that the thread has, or will turn to.
    handed: usize,
    /// Whether nothing comes behind them.
    end: bool,
}

/// Bytes for the I/O thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Portion {
    pub(super) bytes: usize,
    /// Whether these are the first bytes of a packet.
    pub(super) begins: bool,
}

impl Arrived {
    /// Takes more bytes in. Returns those that the thread is to receive now: a whole packet, or at
    /// least `step` bytes of a large one. `is_last` is true at the end of a packet, or where the
    /// rest is lost.
    pub(super) fn collect(&mut self, bytes: usize, step: u64, is_last: bool) -> Option<Portion> {
        self.collected += bytes;
        if !is_last && (self.collected as u64) < step {
            return None;
        }
        let portion = Portion { bytes: self.collected, begins: !self.begun };
        self.handed += self.collected;
        self.collected = 0;
        self.begun = !is_last;
        Some(portion).filter(|portion| portion.bytes > 0)
    }

    pub(super) fn bytes(&self) -> usize {
        self.collected + self.handed
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes() == 0
    }

    /// Returns how many of `bytes`, which the thread has received, are still wanted.
    pub(super) fn take_received(&mut self, bytes: usize) -> usize {
        let bytes = bytes.min(self.handed);
        self.handed -= bytes;
        bytes
    }

    /// Returns all bytes, which the thread will not receive.
    pub(super) fn take_all(&mut self) -> usize {
        std::mem::take(self).bytes()
    }

    /// Notes that nothing comes behind the bytes.
    pub(super) fn end_behind(&mut self) {
        self.end = true;
    }

    /// Returns true, once, when all bytes before the end of the stream are received.
    pub(super) fn end_is_due(&mut self) -> bool {
        self.is_empty() && std::mem::take(&mut self.end)
    }
}
