//! A subscriber of a feed, below the type of its messages.
//!
//! ```text
//!                 a batch finds no room              it is behind its backlog
//!   Even ───────────────────────────────▶ Lagging ─────────────────────────────▶ Over
//!     ▲                                     │  ▲      (or it is lost, from any state)
//!     └─────────────────────────────────────┘  └── a new one, until it is welcomed
//!          its task has sent it the rest
//! ```

use super::Word;
use super::log::{Log, Place, Rest};
use super::options::Behind;
use crate::channel::tx::Tx;
use crate::driver::staging::{Staged, TxEnd};
use crate::error::SendError;
use crate::proto::codec;
use std::task::Waker;

/// State of a subscriber.
#[derive(Clone, Copy)]
pub(super) enum Stand {
    /// All messages so far are in its channel.
    Even,
    /// The log has messages for it from this place on.
    Lagging(Place),
    /// It gets no further message; its task ends it.
    Over,
}

pub(super) struct Subscriber {
    pub(super) tx: Tx,
    pub(super) stand: Stand,
    /// Messages that were left out and that it was not told of; `None` if there is nothing to tell.
    untold: Option<u64>,
    /// Whether it was behind its backlog.
    pub(super) is_behind: bool,
    /// Of its task, which sends it what the log has.
    pub(super) waker: Waker,
}

impl Subscriber {
    /// Makes a subscriber that is to be welcomed, and to get the messages from `place` on.
    pub(super) fn new(tx: Tx, place: Place, waker: &Waker) -> Subscriber {
        let (stand, untold) = (Stand::Lagging(place), Some(0));
        Subscriber { tx, stand, untold, is_behind: false, waker: waker.clone() }
    }

    pub(super) fn lags(&self) -> bool {
        matches!(self.stand, Stand::Lagging(_))
    }

    /// Sends it nothing more, since it is behind its backlog.
    pub(super) fn end(&mut self) {
        self.is_behind = true;
        self.stop();
    }

    /// Sends it nothing more, and tells its task.
    fn stop(&mut self) {
        self.stand = Stand::Over;
        self.waker.wake_by_ref();
    }

    /// Sends what the log has. A subscriber that still lags then waits for room.
    pub(super) fn catch_up(&mut self, log: &Log, behind: Behind, backlog: u64) {
        for is_last in [false, true] {
            let Stand::Lagging(mut place) = self.stand else { return };
            self.skip_to(&mut place, log.begin());
            if behind == Behind::Skip {
                let held = self.tx.with(TxEnd::backlog_held);
                let next = log.within(place, backlog.saturating_sub(held));
                self.skip_to(&mut place, next);
            }
            match self.stage(log, &mut place) {
                Ok(true) => self.stand = Stand::Even,
                Ok(false) => self.stand = Stand::Lagging(place),
                Err(_) => self.stop(),
            }
            if !is_last && self.lags() {
                self.tx.shared().wait(&self.waker);
            }
        }
    }

    /// Leaves out the messages before `next`.
    fn skip_to(&mut self, place: &mut Place, next: Place) {
        if place.message < next.message {
            *self.untold.get_or_insert(0) += next.message - place.message;
        }
        // The log may have let go of the segment at whose end an equal place is.
        if place.message <= next.message {
            *place = next;
        }
    }

    /// Stages what it was not told, and the messages from `place` on; returns whether that is all.
    fn stage(&mut self, log: &Log, place: &mut Place) -> Result<bool, SendError> {
        loop {
            if let Some(count) = self.untold {
                if !self.says(&(None, Some(count)))? {
                    return Ok(false);
                }
                self.untold = None;
            }
            let Some(rest) = log.rest(place) else { return Ok(true) };
            let staged = match rest {
                Rest::Run(run, messages) => self.tx.with(|end| {
                    let (bytes, messages) = end.stage_run(run, messages)?;
                    place.advance(bytes, messages);
                    Ok(bytes > 0)
                }),
                Rest::Shared(run, at, messages) => self.tx.with(|end| {
                    let (bytes, messages) = end.stage_shared_run(run, at, messages)?;
                    place.advance(bytes, messages);
                    Ok(bytes > 0)
                }),
                Rest::Large(bytes) => self.tx.with(|end| {
                    let staged = end.stage_shared(bytes)? == Staged::Done;
                    if staged {
                        place.advance_large(bytes);
                    }
                    Ok(staged)
                }),
            };
            match staged {
                Ok(true) => {}
                Err(SendError::TooLarge { .. }) => {
                    *place = log.after(*place);
                    *self.untold.get_or_insert(0) += 1;
                }
                other => return other,
            }
        }
    }

    /// Stages a word without a message, if there is room.
    fn says(&mut self, word: &Word<()>) -> Result<bool, SendError> {
        let mut encoded = Vec::new();
        codec::encode_into_vec(word, &mut encoded).expect("a number can be encoded");
        self.tx.with(|end| end.stage_slice(&encoded)).map(|staged| staged == Staged::Done)
    }

    /// Tells the subscriber why it is over; returns whether that is done.
    pub(super) fn tells_end(&mut self) -> bool {
        if !self.is_behind {
            return true;
        }
        for is_last in [false, true] {
            match self.says(&(None, None)) {
                Ok(false) if !is_last => self.tx.shared().wait(&self.waker),
                Ok(false) => return false,
                Ok(true) | Err(_) => break,
            }
        }
        true
    }
}
