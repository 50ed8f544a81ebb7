//! The receiver's direction of a delta's channel, and the interest in what comes.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};

use chunkcomm::{BytesSender, host};

use crate::proto::frame::{Reply, encode_round};
use crate::proto::opening::Opening;
use crate::proto::sections::Sections;
use crate::proto::sending::UNGRANTED_BYTES_MAX;

/// The receiver's direction of a delta's channel: a few bytes a round.
pub(crate) struct WayBack(Mutex<Option<BytesSender>>);

impl WayBack {
    pub(crate) fn new(sender: BytesSender) -> Self {
        Self(Mutex::new(Some(sender)))
    }

    /// Returns a direction that has ended.
    #[cfg(test)]
    pub(super) fn gone() -> Self {
        Self(Mutex::new(None))
    }

    /// Says that all bytes of `round` have landed, or that there is a buffer for it.
    pub(crate) fn say_round(&self, landed: bool, round: u32) {
        self.say(&encode_round(landed, round));
    }

    /// Lets a sender that waits for grants send everything. A sender that has no more than it may send
    /// anyway hears nothing.
    pub(crate) fn grant_all(&self, opening: &Opening, sections: &Sections) {
        if opening.waits_for_grants && sections.bytes() > UNGRANTED_BYTES_MAX {
            self.grant(sections.bytes());
        }
    }

    /// Says how many bytes may be sent in all.
    pub(super) fn grant(&self, bytes: usize) {
        self.say(&Reply::Granted(bytes as u64).encode());
    }

    /// Sends `message`, without waiting and, where the channel has room, without an allocation.
    pub(crate) fn say(&self, message: &[u8]) {
        let mut sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// Held by a receiver and its forwards. Without a holder, nothing more lands.
pub(crate) struct Interest(pub(crate) Arc<WayBack>);

impl Drop for Interest {
    fn drop(&mut self) {
        self.0.end();
    }
}
