//! Reasons for which the transfers of a flowing collective stop, told to their lane.

use std::sync::Arc;

use chunkcomm::{Loss, LossKind, SendError};
use tokio::sync::watch;

use crate::error::{DeltaRecvError, DeltaSendError};

/// The first faults of the transfers of a lane.
#[derive(Debug, Default)]
pub struct Trouble(watch::Sender<Found>);

/// Faults that were told so far.
#[derive(Debug, Default)]
pub struct Found {
    /// A rank whose transfer has ended in order, and the first round in which it takes no part.
    pub left: Option<(usize, u32)>,
    /// A rank that is lost, or cannot go on.
    pub failed: Option<(usize, Loss)>,
}

impl Trouble {
    /// Waits until `look` finds something.
    pub async fn until<R>(&self, look: impl Fn(&Found) -> Option<R>) -> R {
        let mut found = self.0.subscribe();
        let found = found.wait_for(|found| look(found).is_some()).await;
        found.ok().and_then(|found| look(&found)).expect("the sender is borrowed")
    }
}

/// One transfer of a collective, by the rank at its other end.
#[derive(Clone, Debug)]
pub struct FlowEnd {
    /// Where its faults are told.
    pub trouble: Arc<Trouble>,
    /// The rank at its other end.
    pub rank: usize,
    /// This rank.
    pub own: usize,
}

impl FlowEnd {
    /// Notes that what is missing from `round` on does not come.
    pub(crate) fn not_received(&self, round: u32, error: DeltaRecvError) {
        match error {
            DeltaRecvError::Ended { cause: None, .. } => self.left(round),
            DeltaRecvError::Combine { loss, .. } if loss.kind() == LossKind::Panicked => {
                self.failed(self.own, loss);
            }
            // The operand is gone: its own transfer, or this rank's program, says more.
            DeltaRecvError::Combine { .. } => {}
            error => self.failed(self.rank, error.into()),
        }
    }

    /// Notes that nothing is sent from `round` on.
    pub(crate) fn not_sent(&self, round: u32, error: DeltaSendError) {
        match error {
            // Its end is heard in either way.
            DeltaSendError::Gone { .. } | DeltaSendError::Channel(SendError::Terminated(_)) => {
                self.left(round);
            }
            DeltaSendError::Stopped { .. } | DeltaSendError::Source { .. } => {}
            // The other rank is there.
            DeltaSendError::NoRoom { .. } => self.failed(self.own, error.into()),
            error => self.failed(self.rank, error.into()),
        }
    }

    fn left(&self, round: u32) {
        self.trouble.0.send_modify(|found| {
            let is_first = found.left.is_none_or(|(_, first)| round < first);
            if is_first {
                found.left = Some((self.rank, round));
            }
        });
    }

    fn failed(&self, rank: usize, loss: Loss) {
        self.trouble.0.send_modify(|found| {
            found.failed.get_or_insert((rank, loss));
        });
    }
}
