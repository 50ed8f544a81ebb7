//! Amount that a peer may send: a window per channel, a budget per link.
//!
//! The receiver promises memory before it is used. One part of a link's windows is set aside
//! for the initial windows of channels, so that an open needs no round trip. The rest is lent
//! to channels whose receivers keep up. The memory for one large message that is being put
//! together comes on top.
//!
//! Invariant, asserted after every change: `lent + free == windows_max - open_credit`. `lent`
//! is the sum, over the channels, of the window above its initial size.

use super::error::ProtocolError;
use super::limits::{
    MESSAGE_BYTES_DEFAULT, OPEN_CREDIT_DIVISOR, WINDOW_BYTES_CHANNEL_MAX, WINDOW_BYTES_INITIAL,
};
use std::collections::VecDeque;

/// Part of the window by which the grant must be able to rise before the sender is told: a
/// quarter.
pub const GRANT_DIVISOR: u64 = 4;

/// Part of the window that is one step of a receiver's reports of consumed bytes: an eighth.
pub const REPORT_DIVISOR: u64 = 8;

const _: () = assert!(1.0 / GRANT_DIVISOR as f64 + 1.0 / REPORT_DIVISOR as f64 <= 0.5);

/// Memory that all receiving channels of a link may hold together.
#[derive(Debug)]
pub struct LinkBudget {
    windows_max: u64,
    free: u64,
    lent: u64,
    window_bytes_max: u64,
    open_credit: u64,
    open_total: u64,
    opened: u64,
    message_bytes_max: u64,
    large: VecDeque<u32>,
}

impl LinkBudget {
    /// Creates a budget of `windows_max` bytes for all windows and `message_bytes_max` for one
    /// large message.
    #[must_use]
    pub fn new(windows_max: u64, message_bytes_max: u64) -> LinkBudget {
        let windows_max = windows_max.max(OPEN_CREDIT_DIVISOR * WINDOW_BYTES_INITIAL);
        let open_credit = windows_max / OPEN_CREDIT_DIVISOR;
        LinkBudget {
            windows_max,
            free: windows_max - open_credit,
            lent: 0,
            window_bytes_max: WINDOW_BYTES_CHANNEL_MAX,
            open_credit,
            open_total: open_credit,
            opened: 0,
            message_bytes_max,
            large: VecDeque::new(),
        }
    }

    /// Returns the bytes of initial windows that the peer may open since the session began.
    #[must_use]
    pub fn open_total(&self) -> u64 {
        self.open_total
    }

    /// Returns the bytes that all windows together may hold.
    #[must_use]
    pub fn windows_max(&self) -> u64 {
        self.windows_max
    }

    /// Limits the growth of each channel's window to `bytes`. A window never shrinks.
    pub fn limit_windows(&mut self, bytes: u64) {
        self.window_bytes_max = bytes.max(WINDOW_BYTES_INITIAL);
    }

    /// Gives a channel that the peer opened its initial window.
    ///
    /// # Errors
    ///
    /// The peer has no credit for the channel.
    pub fn open(&mut self) -> Result<Window, ProtocolError> {
        let opened = self.opened + WINDOW_BYTES_INITIAL;
        if opened > self.open_total {
            return Err(ProtocolError::TooManyOpens);
        }
        self.opened = opened;
        let size = WINDOW_BYTES_INITIAL;
        Ok(Window { size, consumed: 0, granted: size, held: false })
    }

    /// Returns the number of channels that the peer may still open.
    #[must_use]
    pub fn opens_left(&self) -> u64 {
        (self.open_total - self.opened) / WINDOW_BYTES_INITIAL
    }

    /// Takes back a closed channel's window. Returns the new total of initial windows, which
    /// must be sent to the peer.
    pub fn close(&mut self, window: &Window) -> u64 {
        let above = window.size - WINDOW_BYTES_INITIAL;
        self.lent -= above;
        self.free += above;
        self.open_total += WINDOW_BYTES_INITIAL;
        self.check();
        self.open_total
    }

    /// Returns the size of the largest message that the peer may send, in bytes.
    #[must_use]
    pub fn message_bytes_max(&self) -> u64 {
        self.message_bytes_max
    }

    /// Queues a message of `channel` that does not fit its window for the link's memory. True
    /// when its turn is now; else the message waits until [`LinkBudget::large_done`] names the
    /// channel.
    pub fn large_begins(&mut self, channel: u32) -> bool {
        self.large.push_back(channel);
        self.large.len() == 1
    }

    /// Notes that the oldest large message of `channel` was taken or given up. Returns the
    /// channel whose turn is now, if that changed.
    pub fn large_done(&mut self, channel: u32) -> Option<u32> {
        let at = self.large.iter().position(|waiting| *waiting == channel)?;
        self.large.remove(at);
        if at == 0 { self.large.front().copied() } else { None }
    }

    /// Notes that the newest large message of `channel` does not need the link's memory any
    /// more. Its turn has not come.
    pub fn large_given_up(&mut self, channel: u32) {
        if let Some(at) = self.large.iter().rposition(|waiting| *waiting == channel) {
            assert!(at > 0, "the first one has its turn");
            self.large.remove(at);
        }
    }

    /// Whether a large message of `channel` has the link's memory or waits for it.
    #[must_use]
    pub fn has_large(&self, channel: u32) -> bool {
        self.large.contains(&channel)
    }

    fn grow(&mut self, size: u64) -> u64 {
        let wanted = (2 * size).min(self.window_bytes_max);
        let more = wanted.saturating_sub(size);
        if more == 0 || more > self.free {
            return size;
        }
        self.free -= more;
        self.lent += more;
        self.check();
        wanted
    }

    fn check(&self) {
        assert!(self.lent + self.free == self.windows_max - self.open_credit);
    }
}

/// Bytes that one channel may hold at its receiver.
///
/// Invariant: `granted <= consumed + size`.
#[derive(Debug)]
pub struct Window {
    size: u64,
    consumed: u64,
    granted: u64,
    /// Whether the grant stays at the end of a long message until the message is taken.
    held: bool,
}

impl Window {
    /// Returns the bytes granted since the channel began.
    #[must_use]
    pub fn granted(&self) -> u64 {
        self.granted
    }

    /// Returns the bytes that the receiver may hold.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Notes that the receiver took `bytes`. True when the grant rose far enough to tell the
    /// sender: by a quarter of the window. The window then doubles if the link has the memory.
    pub fn consume(&mut self, bytes: u64, budget: &mut LinkBudget) -> bool {
        self.consumed += bytes;
        let owed = self.consumed + self.size - self.granted;
        if self.held || GRANT_DIVISOR * owed < self.size {
            return false;
        }
        self.size = budget.grow(self.size);
        self.granted = self.consumed + self.size;
        true
    }

    /// Grows the window for a message of `bytes`, if the link has the memory. False when the
    /// message needs memory of its own. A message of half a window always gets through: the
    /// bytes consumed and not yet granted are below 1/[`GRANT_DIVISOR`] + 1/[`REPORT_DIVISOR`]
    /// of the window.
    pub fn fits_large(&mut self, bytes: u64, budget: &mut LinkBudget) -> bool {
        let mut size = self.size;
        let needed = bytes.saturating_mul(2);
        while size < needed {
            let grown = budget.grow(size);
            if grown == size {
                break;
            }
            size = grown;
        }
        if size > self.size {
            self.granted += size - self.size;
            self.size = size;
        }
        self.size >= needed
    }

    /// Admits a message of `bytes` to memory of its own. It does not count in the window,
    /// whichever part of it comes when. Its last byte is the channel's byte number `end`.
    ///
    /// Behind a message above the default limit nothing more is granted until
    /// [`Window::large_taken`]. So the sender knows from the grant that the message was taken. Returns
    /// whether that is so.
    pub fn admit_large(&mut self, bytes: u64, end: u64) -> bool {
        self.consumed += bytes;
        self.held = bytes > MESSAGE_BYTES_DEFAULT && end > self.granted;
        self.granted = if self.held { end } else { self.consumed + self.size };
        assert!(self.granted <= self.consumed + self.size);
        self.held
    }

    /// Notes that the large message was taken or given up. True when the grant rose by that.
    pub fn large_taken(&mut self) -> bool {
        if self.held {
            self.granted = self.consumed + self.size;
        }
        std::mem::take(&mut self.held)
    }

    /// Checks that the `received` bytes, all that the peer sent, were granted.
    ///
    /// # Errors
    ///
    /// The bytes are more than were granted.
    pub fn check_received(&self, received: u64) -> Result<(), ProtocolError> {
        if received > self.granted {
            return Err(ProtocolError::OverWindow { received, granted: self.granted });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// For any acts of the channels, the windows together stay within the budget, and a
        /// sender that respects its grants is never refused.
        #[test]
        fn the_sum_of_the_windows_stays_within_the_budget(
            steps in prop::collection::vec((0usize..12, 1u64..5_000_000, any::<bool>()), 1..300),
        ) {
            let mut budget = LinkBudget::new(1 << 20, 1 << 20);
            let mut channels: Vec<Option<(Window, u64)>> = (0..12).map(|_| None).collect();
            for (index, bytes, close) in steps {
                match channels[index].take() {
                    None => channels[index] = budget.open().ok().map(|window| (window, 0)),
                    Some((window, _)) if close => { budget.close(&window); }
                    Some((mut window, sent)) => {
                        let sent = (sent + bytes).min(window.granted());
                        prop_assert!(window.check_received(sent).is_ok());
                        prop_assert!(window.check_received(window.granted() + 1).is_err());
                        let held = sent - window.consumed;
                        prop_assert!(held <= window.size());
                        window.consume(held, &mut budget);
                        channels[index] = Some((window, sent));
                    }
                }
                let sum: u64 = channels.iter().flatten().map(|(window, _)| window.size()).sum();
                prop_assert!(sum <= budget.windows_max(), "{} > {}", sum, budget.windows_max());
            }
        }
    }

    #[test]
    fn no_more_channels_are_opened_than_there_is_credit_for() {
        let mut budget = LinkBudget::new(16 * WINDOW_BYTES_INITIAL, 1 << 20);
        let opens = budget.opens_left();
        assert_eq!(opens, budget.open_total() / WINDOW_BYTES_INITIAL);
        for left in (0..opens).rev() {
            assert!(budget.open().is_ok());
            assert_eq!(budget.opens_left(), left);
        }
        assert!(matches!(budget.open(), Err(ProtocolError::TooManyOpens)));
    }

    #[test]
    fn one_large_message_at_a_time() {
        let mut budget = LinkBudget::new(1 << 20, 1 << 20);
        assert!(budget.large_begins(1));
        assert!(!budget.large_begins(2));
        assert!(!budget.large_begins(3));
        assert_eq!(budget.large_done(2), None, "one that waits gives up");
        assert_eq!(budget.large_done(1), Some(3));
        assert!(!budget.large_begins(3), "its next one waits too");
        assert_eq!(budget.large_done(3), Some(3));
        assert!(!budget.large_begins(3));
        budget.large_given_up(3);
        assert_eq!(budget.large_done(3), None, "the older of the two had the turn");
    }

    #[test]
    fn what_a_receiver_consumes_comes_back_before_the_sender_could_starve() {
        let mut budget = LinkBudget::new(1 << 20, 1 << 20);
        let mut window = budget.open().unwrap();
        let mut sent = 0;
        for _ in 0..1000 {
            // Messages of just the inline bound, each consumed as it comes.
            sent += super::super::limits::INLINE_BYTES_MAX as u64;
            assert!(window.check_received(sent).is_ok());
            window.consume(super::super::limits::INLINE_BYTES_MAX as u64, &mut budget);
        }
    }
}
