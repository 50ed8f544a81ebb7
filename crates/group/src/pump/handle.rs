//! The handle by which a sender or a forward follows its pump.

use std::sync::Arc;

use chunkcomm::{Loss, LossKind, Peer};
use tokio::sync::watch;

use super::leaving::Leaving;

use crate::error::DeltaSendError;

/// Outcome of a transfer so far. Closed means that the task has ended.
#[derive(Debug)]
pub struct Fated {
    /// Number of rounds that have landed.
    pub landed: u32,
    /// Number of bytes that leave together.
    pub increment_bytes: usize,
    /// The stream has ended: no further one will.
    pub is_over: bool,
    /// Reason why no further one will.
    pub error: Option<DeltaSendError>,
}

/// Follows a pump: its outcome, and the bytes that have left.
#[derive(Debug)]
pub struct PumpHandle {
    fate: watch::Receiver<Fated>,
    leaving: Option<Arc<Leaving>>,
    /// Round that the user is in.
    pub round: u32,
    /// The node that receives; `None` for the operand of a collective.
    pub peer: Option<Peer>,
    /// Name of the channel, of a collective the call in words.
    pub channel: String,
    /// The rounds are whole: a stream of them does not end early, and nothing is corrected.
    pub is_whole: bool,
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
        let (leaving, peer) = (Some(leaving), Some(peer.clone()));
        let (channel, is_whole) = (channel.to_owned(), false);
        (sender, Self { fate, leaving, round, peer, channel, is_whole })
    }

    /// Begins to follow the transfers of a collective, which `fate` tells of.
    pub fn of_flow(fate: &watch::Sender<Fated>, channel: &str, is_whole: bool) -> Self {
        let (fate, channel) = (fate.subscribe(), channel.to_owned());
        Self { fate, leaving: None, round: 1, peer: None, channel, is_whole }
    }

    /// Returns the error of what the operand of a collective cannot do.
    pub fn refused(why: &str) -> DeltaSendError {
        DeltaSendError::Collective(Loss::new(LossKind::Refused, why))
    }

    /// Returns the name of the receiver for errors.
    pub fn peer_name(&self) -> String {
        self.peer.as_ref().map_or("the group", Peer::name).to_owned()
    }

    /// Begins to count the bytes that leave.
    pub fn count_leaving(&self) {
        self.leaving.iter().for_each(|leaving| leaving.begin());
    }

    /// Returns the bytes that have left the node since then, while the last ones of the round are withheld.
    pub fn left_bytes(&self) -> usize {
        self.leaving.as_ref().map_or(usize::MAX, |leaving| leaving.left_bytes())
    }

    /// Returns the number of bytes that leave together.
    pub fn increment_bytes(&self) -> usize {
        self.fate.borrow().increment_bytes
    }

    /// Returns the error of this round, if it has failed.
    pub fn check(&self) -> Result<(), DeltaSendError> {
        let fate = self.fate.borrow();
        match &fate.error {
            Some(error) if fate.landed < self.round => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Waits until this round has landed.
    pub async fn landed(&mut self) -> Result<(), DeltaSendError> {
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
        let (peer, channel) = (self.peer_name(), self.channel.clone());
        Err(DeltaSendError::Stopped { peer, channel })
    }

    /// Returns the error of a round behind the end of the stream.
    pub fn over(&self) -> DeltaSendError {
        DeltaSendError::Over { peer: self.peer_name(), channel: self.channel.clone() }
    }
}
