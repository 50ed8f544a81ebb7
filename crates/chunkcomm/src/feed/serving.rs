//! Tasks of a feed: one accepts its subscribers, one serves each of them.

use super::Silence;
use super::hub::Hub;
use crate::channel::ChannelOptions;
use crate::channel::receiver::Receiver;
use crate::channel::tx::Tx;
use crate::driver::tasks;
use crate::error::AcceptError;
use crate::node::fingerprint::Fingerprint;
use crate::node::owed::Owed;
use crate::node::{Node, duplexes};
use crate::proto::packet::ChannelKind;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Accepts the subscribers of a feed.
pub(super) struct Serves {
    pub(super) node: Node,
    pub(super) options: ChannelOptions,
    pub(super) print: Fingerprint,
    pub(super) hub: Arc<Hub>,
}

impl Serves {
    /// Accepts subscribers until the feed is dropped, or the node closed. Then nothing can be sent, also when the
    /// runtime ends first.
    pub(super) async fn run(self) {
        self.accept().await;
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
                Err(AcceptError::Mismatch { .. }) => {}
                Err(_) => return,
            }
        }
    }
}

impl Drop for Serves {
    fn drop(&mut self) {
        self.hub.close();
    }
}

/// Serves a subscriber until it is gone or over, or has all of a feed that has ended.
async fn serve(hub: Arc<Hub>, tx: Tx, mut silence: Receiver<Silence>, owed: Owed) {
    let mut tx = Some(tx);
    let number = poll_fn(|context| {
        Poll::Ready(hub.add(tx.take().expect("it is polled once"), context.waker()))
    })
    .await;
    let mut served = Served { hub: Arc::clone(&hub), number: Some(number) };
    let serving = poll_fn(|context| poll_served(&hub, number, &mut silence, context));
    let has_left = owed.during(serving, || !hub.owes(number)).await;
    if served.remove(has_left) {
        // The subscriber holds its line until it has heard that it was behind.
        let heard = async { while let Ok(Some(_)) = silence.recv().await {} };
        tokio::select! {
            () = heard => {}
            () = poll_fn(|context| hub.poll_over(context)) => {}
        }
    }
}

/// A subscriber that is served. It is removed also when its task ends early.
struct Served {
    hub: Arc<Hub>,
    /// `None` once it is removed.
    number: Option<usize>,
}

impl Served {
    /// Removes the subscriber; returns whether it was behind its backlog.
    fn remove(&mut self, has_left: bool) -> bool {
        self.number.take().is_some_and(|number| self.hub.remove(number, has_left))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.remove(false);
    }
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
