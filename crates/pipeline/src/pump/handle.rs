//! The handle by which a sender or a forward follows its pump.

use std::sync::Arc;

use chunkcomm::Peer;
use tokio::sync::watch;

use super::leaving::Leaving;

use crate::error::DeltaSendError;

/// Outcome of a transfer so far. Closed means that the task has ended.
#[derive(Debug)]
pub(super) struct Fated {
    /// Number of rounds that have landed.
    pub(super) landed: u32,
    /// Number of bytes that leave together.
    pub(super) increment_bytes: usize,
    /// The stream has ended: no further one will.
    pub(super) is_over: bool,
    /// Reason why no further one will.
    pub(super) error: Option<DeltaSendError>,
}

/// Follows a pump: its outcome, and the bytes that have left.
#[derive(Debug)]
pub(crate) struct PumpHandle {
    fate: watch::Receiver<Fated>,
    #[cfg_attr(
        not(feature = "tracked"),
        expect(dead_code, reason = "asked by `tracked_send` alone")
    )]
    leaving: Arc<Leaving>,
    /// Round that the user is in.
    pub(crate) round: u32,
    pub(crate) peer: Peer,
    pub(crate) channel: String,
}

impl PumpHandle {
    /// Begins in `round`, with the pump's side.
    pub(super) fn new(
        peer: &Peer,
        channel: &str,
        round: u32,
        increment_bytes: usize,
        leaving: Arc<Leaving>,
    ) -> (watch::Sender<Fated>, Self) {
        let fated = Fated { landed: round - 1, increment_bytes, is_over: false, error: None };
        let (sender, fate) = watch::channel(fated);
        (sender, Self { fate, leaving, round, peer: peer.clone(), channel: channel.to_owned() })
    }

    /// Begins to count the bytes that leave.
    #[cfg(feature = "tracked")]
    pub(crate) fn count_leaving(&self) {
        self.leaving.begin();
    }

    /// Returns the bytes that have left the node since then, while the last ones of the round are withheld.
    #[cfg(feature = "tracked")]
    pub(crate) fn left_bytes(&self) -> usize {
        self.leaving.left_bytes()
    }

    /// Returns the number of bytes that leave together.
    pub(crate) fn increment_bytes(&self) -> usize {
        self.fate.borrow().increment_bytes
    }

    /// Returns the error of this round, if it has failed.
    pub(crate) fn check(&self) -> Result<(), DeltaSendError> {
        let fate = self.fate.borrow();
        match &fate.error {
            Some(error) if fate.landed < self.round => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Waits until this round has landed.
    pub(crate) async fn landed(&mut self) -> Result<(), DeltaSendError> {
        let round = self.round;
        let over = |fate: &Fated| fate.landed >= round || fate.error.is_some();
        // An error says that the pump has ended, and what it said last holds.
        let _ = self.fate.wait_for(over).await;
        self.check()?;
        let fate = self.fate.borrow();
        if fate.landed >= round {
            return Ok(());
        }
        if fate.is_over {
            return Err(self.over());
        }
        let (peer, channel) = (self.peer.name().to_owned(), self.channel.clone());
        Err(DeltaSendError::Stopped { peer, channel })
    }

    /// Returns the error of a round behind the end of the stream.
    pub(crate) fn over(&self) -> DeltaSendError {
        DeltaSendError::Over { peer: self.peer.name().to_owned(), channel: self.channel.clone() }
    }
}
