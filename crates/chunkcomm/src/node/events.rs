//! [`LinkEvents`]: the changes of a node's links, as they happen.

use super::links::{Change, News};
use super::{Node, NodeShared, Peer};
use crate::error::{LinkError, Unacknowledged};
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// A change of a link's state, from [`Node::events`].
///
/// The events of one peer are `Connected`, then `CutOff` and `Resumed` in turn, then
/// `Ended`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum LinkEvent {
    /// A session with a peer has begun, whichever side dialled.
    Connected {
        /// The peer.
        peer: Peer,
    },
    /// The session has no connection for now. Accepted messages are kept and leave on the next
    /// connection.
    CutOff {
        /// The peer.
        peer: Peer,
        /// The error that broke the connection.
        error: LinkError,
    },
    /// The session goes on where it was, on another connection.
    Resumed {
        /// The peer.
        peer: Peer,
        /// Number of the connection; the first of a session is 1, and failed attempts count.
        attempt: u32,
        /// Time without a connection.
        after: Duration,
    },
    /// The session is over.
    Ended {
        /// The peer. A peer that comes back is another [`Peer`].
        peer: Peer,
        /// The error that ended the session; [`LinkError::is_closed`] when one of the ends closed
        /// it.
        error: LinkError,
        /// The user's channels to the peer with messages that were not acknowledged, each
        /// with its account. [`Node::close`] still reports the losses that no call on a sender
        /// has reported.
        unacknowledged: Arc<[Unacknowledged]>,
    },
    /// The subscriber was too slow, and events gave way to later ones. Its view of its peers may
    /// be wrong. A new subscription begins with the present state.
    Missed {
        /// Number of events that gave way.
        events: u64,
    },
}

/// The events of a node's links, from [`Node::events`]. A [`Stream`](futures_core::Stream).
#[must_use = "a subscription ends when it is dropped"]
pub struct LinkEvents {
    node: Weak<NodeShared>,
    id: u64,
}

impl fmt::Debug for LinkEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkEvents").finish_non_exhaustive()
    }
}

impl Node {
    /// Subscribes to the changes of this node's links: peers that connect, are cut off, come back
    /// and are gone.
    ///
    /// The subscription begins with a `Connected` for each session that there is, and a `CutOff`
    /// for those without a connection. Later changes follow; none is missing or comes twice. The
    /// links of a node to itself ([`Node::local`]) are left out.
    ///
    /// The events of a peer come in order, `Ended` as the last. `Connected` is there before
    /// [`Node::connect`] or the first [`Node::accept`] of that peer returns. `Ended` has the same
    /// error that the peer's senders and receivers get; either may come first.
    ///
    /// Each subscription has its own queue of 1024 events, including its first ones. A driver
    /// never waits for a subscriber. When the queue is full, its oldest event gives way, and
    /// [`LinkEvent::Missed`] counts it. Messages cost nothing extra with a subscription.
    ///
    /// A subscription does not keep the node alive. It ends when the node is closed and its
    /// last session is over, or at once when the node is gone.
    ///
    /// ```
    /// use chunkcomm::{LinkEvent, Node};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = Node::builder().listen("127.0.0.1:0".parse()?).build().await?;
    /// let mut events = server.events();
    /// let client = Node::builder().name("client").build().await?;
    /// client.connect(&server.addresses()[0]).await?;
    /// client.close(std::time::Duration::from_secs(5)).await?;
    ///
    /// while let Some(event) = events.next().await {
    ///     match event {
    ///         LinkEvent::Connected { peer } => assert_eq!(peer.name(), "client"),
    ///         LinkEvent::CutOff { peer, error } => println!("{}: {error}", peer.name()),
    ///         LinkEvent::Ended { error, unacknowledged, .. } => {
    ///             assert!(error.is_closed() && unacknowledged.is_empty());
    ///             break;
    ///         }
    ///         _ => {}
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn events(&self) -> LinkEvents {
        LinkEvents { node: Arc::downgrade(&self.shared), id: self.shared.table.watch() }
    }
}

impl LinkEvents {
    /// Waits for the next event; returns `None` when there will be none.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropped before it returns, it has taken nothing.
    pub async fn next(&mut self) -> Option<LinkEvent> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// As [`Self::next`], as a `poll` function.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<LinkEvent>> {
        let Some(node) = self.node.upgrade() else { return Poll::Ready(None) };
        let news = ready!(node.table.poll_news(self.id, context));
        Poll::Ready(news.map(|news| event(news, node)))
    }
}

fn event(news: News, node: Arc<NodeShared>) -> LinkEvent {
    let (link, change) = match news {
        News::Missed(events) => return LinkEvent::Missed { events },
        News::Of(link, change) => (link, change),
    };
    let peer = Peer { link, node };
    match change {
        Change::Connected => LinkEvent::Connected { peer },
        Change::CutOff(error) => LinkEvent::CutOff { peer, error },
        Change::Resumed { attempt, after } => LinkEvent::Resumed { peer, attempt, after },
        Change::Ended { error, unacknowledged } => LinkEvent::Ended { peer, error, unacknowledged },
    }
}

impl Drop for LinkEvents {
    fn drop(&mut self) {
        if let Some(node) = self.node.upgrade() {
            node.table.unwatch(self.id);
        }
    }
}

impl futures_core::Stream for LinkEvents {
    type Item = LinkEvent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<LinkEvent>> {
        LinkEvents::poll_next(&mut self, context)
    }
}
