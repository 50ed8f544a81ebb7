//! Tasks of a feed: one accepts its subscribers, one serves each of them.

use super::Silence;
use super::hub::Hub;
use crate::channel::ChannelOptions;
use crate::channel::receiver::Receiver;
use crate::channel::tx::Tx;
use crate::driver::{clock, tasks};
use crate::error::AcceptError;
use crate::node::fingerprint::Fingerprint;
use crate::node::owed::Owed;
use crate::node::{Node, duplexes};
use crate::proto::packet::ChannelKind;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Pause after a subscriber that was refused for its type.
const REFUSED_PAUSE: Duration = Duration::from_millis(10);

/// Accepts the subscribers of a feed.
pub(super) struct Serves {
    pub(super) node: Node,
    pub(super) options: ChannelOptions,
    pub(super) print: Fingerprint,
    pub(super) hub: Arc<Hub>,
}

impl Serves {
    /// Accepts subscribers until the feed is dropped, or the node closed.
    pub(super) async fn run(self) {
        self.accept().await;
        self.hub.close();
    }

    async fn accept(&self) {
        let Serves { node, options, print, hub } = self;
        loop {
            let accepting = node.accept_end(options, ChannelKind::Typed, print);
            let accepted = tokio::select! {
                biased;
                () = poll_fn(|context| hub.poll_ended(context)) => return,
                accepted = accepting => accepted,
            };
            match accepted {
                Ok((rx, peer)) => {
                    let back = duplexes::open_back(&rx, options, ChannelKind::Typed, print);
                    let owed = format!("the rest of feed {:?} to {}", options.name, peer.name());
                    let owed = Owed::standing(node, owed);
                    let tx = Tx::new(back, peer.clone());
                    let silence = Receiver::new(rx, peer, false);
                    let serving = serve(Arc::clone(hub), tx, silence, owed);
                    tasks::spawn_on(node.runtime(), serving);
                }
                // The subscriber was told.
                Err(AcceptError::Mismatch { .. }) => clock::pause(REFUSED_PAUSE).await,
                Err(_) => return,
            }
        }
    }
}

/// Serves a subscriber until it is gone or over, or has all of a feed that has ended.
async fn serve(hub: Arc<Hub>, tx: Tx, mut silence: Receiver<Silence>, owed: Owed) {
    let mut tx = Some(tx);
    let number = poll_fn(|context| {
        Poll::Ready(hub.add(tx.take().expect("it is polled once"), context.waker()))
    })
    .await;
    let served = poll_fn(|context| poll_served(&hub, number, &mut silence, context));
    let has_left = owed.during(served, || !hub.owes(number)).await;
    hub.remove(number, has_left);
}

/// Is ready when the subscriber gets nothing more; returns whether it has left, or is lost.
fn poll_served(
    hub: &Hub,
    number: usize,
    silence: &mut Receiver<Silence>,
    context: &mut Context<'_>,
) -> Poll<bool> {
    // A word of the subscriber means nothing.
    while let Poll::Ready(word) = silence.poll_recv(context) {
        if !matches!(word, Ok(Some(_))) {
            return Poll::Ready(true);
        }
    }
    hub.poll_serve(number, context).map(|()| false)
}
