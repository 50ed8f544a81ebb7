//! The ends of a region's transfers, by which a program follows and stops them.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use chunkcomm::Peer;
use tokio::sync::watch;

use crate::error::{DeltaRecvError, DeltaSendError};
use crate::landing::{Interest, LandingFate};
use crate::pump::PumpHandle;

/// The landings of a region, which stop with it.
#[derive(Default)]
pub(super) struct Landings(Mutex<Vec<Weak<Held>>>);

impl Landings {
    /// Returns the end of a landing of this region.
    pub(super) fn hold(
        &self,
        interest: Arc<Interest>,
        outcome: watch::Receiver<LandingFate>,
        peer: Peer,
        name: &str,
    ) -> RegionLanding {
        let held = Arc::new(Held(Mutex::new(Some(interest))));
        let mut landings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        landings.retain(|landing| landing.strong_count() > 0);
        landings.push(Arc::downgrade(&held));
        RegionLanding { held, outcome, peer, channel: name.to_owned() }
    }
}

impl Drop for Landings {
    fn drop(&mut self) {
        let landings = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        landings.iter().filter_map(Weak::upgrade).for_each(|landing| landing.stop());
    }
}

/// The interest in a landing, until the landing's end or the region lets go of it.
struct Held(Mutex<Option<Arc<Interest>>>);

impl Held {
    fn stop(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// Sections of a region on their way to a peer.
///
/// Dropped before [`finish`](Self::finish), it stops them, and the peer gets an error.
#[must_use = "a transfer stops when its end is dropped"]
#[derive(Debug)]
pub struct RegionSend(PumpHandle);

impl RegionSend {
    pub(super) fn new(pump: PumpHandle) -> Self {
        Self(pump)
    }

    /// Waits until all elements of the sections have landed at the peer, which may have to combine some of them
    /// still.
    ///
    /// # Errors
    /// [`DeltaSendError::Mismatch`] when the peer expects something else. [`DeltaSendError::Source`] when
    /// elements would have come by a transfer that has failed. [`DeltaSendError::Gone`] and others when the
    /// peer or its landing is gone. [`DeltaSendError::Stopped`] when the region is gone.
    ///
    /// # Cancel safety
    /// When the future is dropped, the transfer goes on; call it again.
    pub async fn finish(&mut self) -> Result<(), DeltaSendError> {
        self.0.landed().await
    }

    /// Returns the node that receives.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        self.0.peer.as_ref().expect("a transfer has a receiver")
    }
}

/// Sections of a region that land from a peer.
///
/// Dropped before [`finish`](Self::finish), it stops them, and the peer gets an error. Elements that landed
/// stay.
#[must_use = "a transfer stops when its end is dropped"]
pub struct RegionLanding {
    held: Arc<Held>,
    outcome: watch::Receiver<LandingFate>,
    peer: Peer,
    channel: String,
}

impl RegionLanding {
    /// Waits until all elements of the sections have landed or are combined.
    ///
    /// # Errors
    /// [`DeltaRecvError::Ended`] and [`DeltaRecvError::Channel`] when the peer ended or died before that,
    /// [`DeltaRecvError::Frame`] when what came does not fit: also when it landed where elements were out or
    /// done. [`DeltaRecvError::Combine`] when it could not be combined.
    ///
    /// # Cancel safety
    /// When the future is dropped, the transfer goes on; call it again.
    pub async fn finish(&mut self) -> Result<(), DeltaRecvError> {
        let outcome = match self.outcome.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone(),
            // Its last word was read before.
            Err(_) => None,
        };
        outcome.expect("a landing says how it ended before it is gone")
    }

    /// Returns the node that sends.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }
}

impl Drop for RegionLanding {
    fn drop(&mut self) {
        self.held.stop();
    }
}

impl fmt::Debug for RegionLanding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegionLanding")
            .field("channel", &self.channel)
            .field("peer", &self.peer.name())
            .field("outcome", &self.outcome.borrow())
            .finish_non_exhaustive()
    }
}
