//! The only session of two nodes, which either of them begins.
//!
//! [`Node::connect`] begins a session of its own, whatever the peer has begun. Members of a cluster
//! want one session for both. The dialler says so in its first word, and the acceptor answers:
//!
//! | the acceptor | its answer |
//! |---|---|
//! | has a connected session with the dialler | there is another |
//! | dials the dialler for the only session, and has the smaller incarnation | there is another |
//! | neither | agreed |
//!
//! So of two nodes that dial each other at the same time exactly one agrees. The other dialler then
//! waits for the peer's session and asks again from time to time, since the peer's dial may fail.
//! A session that the acceptor takes for cut off does not count: a dialler asks only while it has
//! none, so it has given that session up.
//!
//! There may still be several: by `connect`, by a peer that does not know the word, or after
//! [`YIELDS_FOR`]. Then both nodes prefer the same one ([`Links::preferred`]).
//!
//! [`Links::preferred`]: super::links::Links::preferred

use super::accepting::AcceptTable;
use super::connecting::{ATTEMPT_MAX, Dialled, Purpose, no_answer, since};
use super::{Node, Peer};
use crate::Address;
use crate::driver::clock;
use crate::driver::mail::LinkShared;
use crate::driver::wakers::locked;
use crate::error::ConnectError;
use crate::proto::backoff::Backoff;
use crate::transport::BoxFuture;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Time for which a dialler lets the peer's session go before its own: 2 s. A dial across a
/// continent with TLS takes less. The peer may dial in vain for longer, behind a firewall.
const YIELDS_FOR: Duration = Duration::from_secs(2);

impl Node {
    /// Returns the session with node `incarnation`, whichever of the two began it. Without one,
    /// dials `address` once. `None`: another node is there.
    ///
    /// The calls of both nodes return the same session, unless a session begins or ends meanwhile.
    ///
    /// On the heap, so that the code is compiled with this crate and not with each program that awaits
    /// it.
    pub(crate) fn meet<'a>(
        &'a self,
        incarnation: u128,
        address: &'a Address,
    ) -> BoxFuture<'a, Result<Option<Peer>, ConnectError>> {
        Box::pin(self.meet_once(incarnation, address))
    }

    async fn meet_once(
        &self,
        incarnation: u128,
        address: &Address,
    ) -> Result<Option<Peer>, ConnectError> {
        let _wait = self.waits().begin(format!("{address} to connect"));
        let (table, own) = (&self.shared.table, self.incarnation());
        let mut backoff = Backoff::new(own as u64 ^ clock::now().0);
        let mut yields_since = None;
        loop {
            let claim = match table.dials(own, incarnation).await {
                Ok(claim) => claim,
                Err(link) => return Ok(Some(self.peer(link))),
            };
            let purpose = match yields_since {
                Some(begun) if since(begun) >= YIELDS_FOR => Purpose::With(incarnation),
                _ => Purpose::Only(incarnation),
            };
            let dialling = self.dialling(address, ATTEMPT_MAX, purpose, Some(claim));
            let dialled = tokio::select! {
                biased;
                link = table.session(own, incarnation) => return Ok(Some(self.peer(link))),
                dialled = dialling => dialled,
            };
            let no_answer = || Err(no_answer(address));
            match dialled.unwrap_or_else(no_answer)? {
                Dialled::Link(link) => return Ok(Some(self.peer(link))),
                Dialled::Other => return Ok(None),
                Dialled::Yields => {
                    yields_since.get_or_insert_with(clock::now);
                    let session = table.session(own, incarnation);
                    let _ = clock::within(&self.shared.runtime, backoff.wait(), session).await;
                }
            }
        }
    }
}

/// A dial for the only session with a node, or the agreement to its dial, until this is dropped.
pub(super) struct Claim {
    table: Arc<AcceptTable>,
    node: u128,
    is_dial: bool,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut table = locked(&self.table.table);
        let waiting = table.links.claim_ends(self.node, self.is_dial);
        drop(table);
        waiting.wake();
    }
}

impl AcceptTable {
    /// Returns the session that node `own`, which has this table, and `node` prefer.
    pub(crate) fn preferred(&self, own: u128, node: u128) -> Option<Arc<LinkShared>> {
        locked(&self.table).links.preferred(own, node).cloned()
    }

    /// Waits for a session with `node`.
    async fn session(&self, own: u128, node: u128) -> Arc<LinkShared> {
        poll_fn(|context| {
            let mut table = locked(&self.table);
            match table.links.preferred(own, node) {
                Some(link) => Poll::Ready(Arc::clone(link)),
                None => table.links.wait(context),
            }
        })
        .await
    }

    /// Waits until this node may dial `node` for the only session: no other call does, and none is
    /// about to be accepted. Returns the session as an error if there is one by then.
    async fn dials(
        self: &Arc<AcceptTable>,
        own: u128,
        node: u128,
    ) -> Result<Claim, Arc<LinkShared>> {
        poll_fn(|context| {
            let mut table = locked(&self.table);
            if let Some(link) = table.links.preferred(own, node) {
                return Poll::Ready(Err(Arc::clone(link)));
            }
            if !table.links.dials(node) {
                return table.links.wait(context);
            }
            Poll::Ready(Ok(Claim { table: Arc::clone(self), node, is_dial: true }))
        })
        .await
    }

    /// Returns whether the only session with `node` begins with that node's dial: `Some` until it
    /// has begun.
    pub(super) fn agrees(self: &Arc<AcceptTable>, own: u128, node: u128) -> Option<Claim> {
        let agrees = locked(&self.table).links.agrees(own, node);
        agrees.then(|| Claim { table: Arc::clone(self), node, is_dial: false })
    }
}
