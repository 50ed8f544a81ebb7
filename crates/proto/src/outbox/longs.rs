//! Long messages that the peer has not taken yet: while it decodes one, it may be silent for longer.

use crate::limits::MESSAGE_BYTES_DEFAULT;

/// A message above the default size of the largest message.
#[derive(Debug)]
struct Long {
    channel: u32,
    /// Bytes of the channel up to the message's end. A grant beyond it says that the peer has taken
    /// the message ([`Window::admit_large`](crate::credit::Window::admit_large)).
    end: u64,
    bytes: u64,
}

/// The long messages whose first byte was sent and that the peer has not taken.
#[derive(Debug, Default)]
pub(super) struct Longs {
    all: Vec<Long>,
    has_changed: bool,
}

impl Longs {
    /// Notes a message of `bytes` that begins behind the first `sent` bytes of `channel`.
    #[inline]
    pub(super) fn begins(&mut self, channel: u32, sent: u64, bytes: u64) {
        if bytes > MESSAGE_BYTES_DEFAULT {
            self.all.push(Long { channel, end: sent + bytes, bytes });
            self.has_changed = true;
        }
    }

    /// Notes the grant of `total` bytes for `channel`.
    pub(super) fn granted(&mut self, channel: u32, total: u64) {
        self.keep(|it| it.channel != channel || it.end >= total);
    }

    /// Notes that the receiver of `channel` is gone.
    pub(super) fn gone(&mut self, channel: u32) {
        self.keep(|it| it.channel != channel);
    }

    fn keep(&mut self, is_kept: impl Fn(&Long) -> bool) {
        let count = self.all.len();
        self.all.retain(is_kept);
        self.has_changed |= self.all.len() < count;
    }

    /// Returns the size of the largest of these messages, in bytes, if they have changed since the
    /// last call; 0 when there is none.
    #[inline]
    pub(super) fn poll_largest(&mut self) -> Option<u64> {
        let has_changed = std::mem::take(&mut self.has_changed);
        has_changed.then(|| self.all.iter().map(|it| it.bytes).max().unwrap_or(0))
    }
}
