//! Times of a link and of the bytes for it, as a pump measures them.

use std::time::Duration;

use chunkcomm::host::Instant;

/// The link as the pump sees it.
#[derive(Default)]
pub(super) struct LinkTimes {
    /// It has written all that it was given.
    pub(super) idle: bool,
    /// Time at which the channel took the last message.
    pub(super) sent_at: Option<Instant>,
    /// Since the link was idle: the start of the first message, the number of messages and of bytes.
    busy: Option<(Instant, u32, usize)>,
    /// Number of messages that were measured.
    measured: u32,
}

/// Number of messages of a round whose times are measured: the costs are known after some, and each
/// costs a wake-up.
const MEASURED_MAX: u32 = 32;

impl LinkTimes {
    pub(super) fn handle_send(&mut self, bytes: usize) {
        match &mut self.busy {
            Some((_, messages, all)) => (*messages, *all) = (*messages + 1, *all + bytes),
            None if self.idle => self.busy = Some((Instant::now(), 1, bytes)),
            None => {}
        }
        self.idle = false;
    }

    /// Whether the next time at which the link is idle is worth a wake-up.
    pub(super) fn is_measured(&self) -> bool {
        !self.idle && self.sent_at.is_some() && self.measured < MEASURED_MAX
    }

    /// Notes that the link is idle; returns the bytes and the time of the message since it was idle
    /// before, if it was a single one.
    pub(super) fn handle_idle(&mut self) -> Option<(usize, u64)> {
        self.idle = true;
        let (since, messages, bytes) = self.busy.take()?;
        self.measured += 1;
        (messages == 1).then(|| (bytes, ns_since(Some(since))))
    }
}

/// Bytes that were committed in a round after the first.
#[derive(Default)]
pub(super) struct Production {
    pub(super) since: Option<Instant>,
    pub(super) bytes: usize,
}

impl Production {
    pub(super) fn handle_committed(&mut self, bytes: usize) {
        match self.since {
            Some(_) => self.bytes += bytes,
            None => self.since = Some(Instant::now()),
        }
    }
}

/// Returns the time since `then` in nanoseconds, as long as can be when there was none.
pub(super) fn ns_since(then: Option<Instant>) -> u64 {
    let since = then.map_or(Duration::MAX, Instant::elapsed);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
