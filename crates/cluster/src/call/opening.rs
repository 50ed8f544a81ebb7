//! How a line opens its duplex.

use super::answers::{self, Ending};
use super::callers::Callers;
use super::error::CallError;
use super::line::{Line, Up};
use super::runtime_of;
use super::service::duplex;
use crate::sync::locked;
use chunkcomm::layer::{Layer as _, Link, Waiting, share_last_woken};
use chunkcomm::{LinkError, OpenError, Peer, channel, host};

use serde::de::DeserializeOwned;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};

/// The way to a provider.
pub(crate) trait Reach: Send + Sync {
    /// Returns the existing session, if there is one.
    fn at_hand(&self) -> Option<Peer>;

    /// Dials the provider when there is no session.
    fn dial(&self) -> Pin<Box<dyn Future<Output = Result<Peer, CallError>> + Send + '_>>;
}

/// A session with a peer, begun again at its address when it has ended.
pub(super) struct ToPeer(pub(super) Mutex<Peer>);

impl Reach for ToPeer {
    fn at_hand(&self) -> Option<Peer> {
        Some(locked(&self.0).clone()).filter(Peer::is_alive)
    }

    fn dial(&self) -> Pin<Box<dyn Future<Output = Result<Peer, CallError>> + Send + '_>> {
        Box::pin(async {
            let peer = locked(&self.0).clone();
            let Some(address) = peer.dialled() else {
                return Err(CallError::Unreachable(OpenError::Lost(ended(&peer).await)));
            };
            let again = peer.node().connect(address).await;
            let again = again.map_err(|why| CallError::Unreachable(OpenError::Connect(why)))?;
            *locked(&self.0) = again.clone();
            Ok(again)
        })
    }
}

/// Returns why nothing is opened to the peer any more. While this node is closing, its sessions
/// have not ended yet.
async fn ended(peer: &Peer) -> LinkError {
    if peer.is_alive() { Link::of(peer).closed() } else { peer.closed().await }
}

impl<Resp: DeserializeOwned + Send + 'static> Line<Resp> {
    /// Opens the duplex unless it is open. Over an existing session that takes no round trip.
    pub(super) async fn open(self: &Arc<Self>) -> Result<(), CallError> {
        let _turn = self.opening.lock().await;
        if locked(&self.state).up.is_some() {
            return Ok(());
        }
        if let Some(peer) = self.reach.at_hand()
            && self.open_over(&peer).is_ok()
        {
            return Ok(());
        }
        let peer = self.reach.dial().await?;
        self.open_over(&peer).map_err(|error| CallError::Unreachable(OpenError::Lost(error)))
    }

    fn open_over(self: &Arc<Self>, peer: &Peer) -> Result<(), LinkError> {
        let (node, lane) = (peer.node(), self.options.lane);
        // From now on the node has the layer that reports calls.
        let callers = Callers::of(&node);
        let options = channel(duplex(&self.service)).lane(lane);
        let (mut tx, rx) = Link::of(peer).open_duplex(&node, &options, &self.form.fingerprint)?;
        if let Some(greeting) = self.form.greeting() {
            // A new channel has room for it. One that has ended says so to the first call.
            let _ = tx.stage_waiting(&Waiting::Slice(&greeting));
        }
        let mut state = locked(&self.state);
        state.openings += 1;
        let number = state.openings;
        let first = number == 1;
        state.up = Some(Up { tx, number, reading: None, reader: None, armed: None });
        drop(state);
        if first {
            let line: Weak<Line<Resp>> = Arc::downgrade(self);
            callers.add(line);
        }
        // Without the lock: on a runtime that is shutting down the task ends at once.
        let ending = Ending { line: Arc::downgrade(self), number, node: node.clone() };
        let has_ends = self.form.returns_ends;
        let reading =
            host::spawn_on(&runtime_of(&node), answers::read(ending, peer.clone(), rx, has_ends));
        share_last_woken();
        match &mut locked(&self.state).up {
            Some(up) if up.number == number => up.reading = Some(reading.abort_handle()),
            _ => reading.abort(),
        }
        Ok(())
    }
}
