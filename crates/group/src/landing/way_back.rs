//! The receiver's direction of a delta's channel, and the interest in what comes.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};

use chunkcomm::{BytesSender, host};
use tokio::sync::Notify;

use crate::proto::frame::encode_round;

/// The receiver's direction of a delta's channel: a few bytes a round.
pub(crate) struct WayBack {
    sender: Mutex<Option<BytesSender>>,
    has_ended: AtomicBool,
    /// Wakes the landing's task, if it has one.
    wake: Notify,
}

impl WayBack {
    pub(crate) fn new(sender: BytesSender) -> Self {
        Self {
            sender: Mutex::new(Some(sender)),
            has_ended: AtomicBool::new(false),
            wake: Notify::new(),
        }
    }

    /// Returns a direction that has ended.
    #[cfg(test)]
    pub(super) fn gone() -> Self {
        Self { sender: Mutex::new(None), has_ended: AtomicBool::new(false), wake: Notify::new() }
    }

    /// Says that all bytes of `round` have landed, or that there is a buffer for it.
    pub(crate) fn say_round(&self, landed: bool, round: u32) {
        self.say(&encode_round(landed, round));
    }

    /// Sends `message`, without waiting and, where the channel has room, without an allocation.
    pub(crate) fn say(&self, message: &[u8]) {
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
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
        drop(self.sender.lock().unwrap_or_else(PoisonError::into_inner).take());
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
pub struct Interest(pub(crate) Arc<WayBack>);

impl Interest {
    /// Says that there is a buffer for a further round.
    pub fn say_begun(&self, round: u32) {
        self.0.say_round(false, round);
    }

    /// Ends it: nothing more lands.
    pub fn end(&self) {
        self.0.end();
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        self.0.end();
    }
}
