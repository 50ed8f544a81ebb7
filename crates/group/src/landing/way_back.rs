//! The receiver's direction of a delta's channel, and the interest in what comes.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Waker};

use chunkcomm::{BytesSender, host};
use tokio::sync::Notify;

use super::line::Awaiting;
use crate::proto::frame::encode_round;

/// A sender of replies, which the transfers of a line share.
pub(super) type Back = Arc<Mutex<Option<BytesSender>>>;

/// The receiver's direction of a delta's channel: a few bytes a round. A transfer of a line has it from its beginning
/// until it has landed.
pub(crate) struct WayBack {
    sender: OnceLock<Back>,
    is_of_line: bool,
    has_landed: AtomicBool,
    has_ended: AtomicBool,
    /// Wakes the landing's task, if it has one.
    wake: Notify,
}

impl WayBack {
    pub(crate) fn new(sender: BytesSender) -> Self {
        let back = Self::of(false);
        back.attach(&Arc::new(Mutex::new(Some(sender))));
        back
    }

    /// Returns the direction of a transfer of a line, which has not begun.
    pub(super) fn of_line() -> Self {
        Self::of(true)
    }

    /// Returns a direction that has ended.
    #[cfg(test)]
    pub(super) fn gone() -> Self {
        Self::of(false)
    }

    fn of(is_of_line: bool) -> Self {
        Self {
            sender: OnceLock::new(),
            is_of_line,
            has_landed: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            wake: Notify::new(),
        }
    }

    /// Takes the line's direction for this transfer, which begins.
    pub(super) fn attach(&self, line: &Back) {
        let _ = self.sender.set(Arc::clone(line));
    }

    /// Whether the line's direction serves another transfer.
    fn has_left(&self) -> bool {
        self.is_of_line && self.has_landed.load(Ordering::Acquire)
    }

    /// Says that all bytes of `round` have landed, or that there is a buffer for it.
    pub(crate) fn say_round(&self, landed: bool, round: u32) {
        let has_left = self.has_left();
        // From its hearing on, the sender may use the line for another transfer.
        self.has_landed.fetch_or(landed, Ordering::AcqRel);
        if !has_left {
            self.put(&encode_round(landed, round));
        }
    }

    /// Sends `message`, without waiting and, where the channel has room, without an allocation.
    pub(crate) fn say(&self, message: &[u8]) {
        if !self.has_left() {
            self.put(message);
        }
    }

    fn put(&self, message: &[u8]) {
        let Some(sender) = self.sender.get() else { return };
        let mut sender = sender.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = sender.as_mut() else { return };
        let sent = pin!(sender.send_slice_now(message))
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_ready();
        if !sent {
            // Nothing was accepted. A later message may overtake this one: each says all that the ones
            // before it said.
            let (mut sender, message) = (sender.clone(), message.to_vec());
            host::spawn(async move {
                // The user sees the transfer's own outcome.
                let _ = sender.send_slice_now(&message).await;
            });
        }
    }

    /// Ends this direction: the sender learns that its receiver is gone.
    pub(crate) fn end(&self) {
        if let Some(sender) = self.sender.get().filter(|_| !self.has_left()) {
            drop(sender.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
        self.has_ended.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether this direction has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Wakes the landing's task.
    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Waits until the landing's task is to look again. It also is when this direction ends.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }
}

/// Held by a receiver and its forwards. Without a holder, nothing more lands.
pub struct Interest {
    back: Arc<WayBack>,
    /// Dropped behind the end: a transfer that has not begun does not begin.
    _awaiting: Option<Awaiting>,
}

impl Interest {
    pub(super) fn new(back: Arc<WayBack>) -> Self {
        Self { back, _awaiting: None }
    }

    /// Begins with a transfer that a line is to bring.
    pub(super) fn awaiting(back: Arc<WayBack>, awaiting: Awaiting) -> Self {
        Self { back, _awaiting: Some(awaiting) }
    }

    /// Says that there is a buffer for a further round.
    pub fn say_begun(&self, round: u32) {
        self.back.say_round(false, round);
    }

    /// Ends it: nothing more lands.
    pub fn end(&self) {
        self.back.end();
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        self.back.end();
    }
}
