//! Feeds of a cluster, found by name.

use super::state::State;
use super::{Cluster, NameError, NodeId};
use chunkcomm::ChannelOptions;
use chunkcomm::feed::{Feed, FeedError, Reach, Sources, Subscription};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// Beginning of the names that members with feeds provide.
const PROVIDED: &str = "chunkcomm.feed.";

impl Cluster {
    /// Announces a [feed](chunkcomm::Node::feed) of this node to all members, for [`Cluster::subscribe`]. It is
    /// [provided](Cluster::provide), under a name of its own kind, until it is dropped. Several nodes may have
    /// feeds of the same name.
    ///
    /// # Errors
    ///
    /// As [`Cluster::provide`]; the name has at most 240 bytes.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the feed is announced all the same.
    pub async fn provide_feed<T>(&self, feed: &Feed<T>) -> Result<(), NameError> {
        let name = format!("{PROVIDED}{}", feed.name());
        let (state, provided) = (Arc::clone(&self.shared.state), name.clone());
        feed.at_end(move || state.change(|it| it.withdraw(&provided)));
        self.provide(&name).await
    }

    /// Subscribes to the feeds of this name of all members, as members come and go; with a `*` at its end, to
    /// all feeds whose names begin so.
    ///
    /// Of a member it gets the messages that are sent once its feed has taken the subscriber, shortly after
    /// this call or the member's [`Cluster::provide_feed`]. A feed that
    /// [keeps](chunkcomm::feed::FeedOptions::keep) messages sends those first. Messages of one member come in
    /// order. The subscription ends with the cluster, and counts as a clone of this [`Cluster`].
    ///
    /// # Errors
    ///
    /// As [`Subscription::gathering`].
    pub fn subscribe<T>(
        &self,
        feed: impl Into<ChannelOptions>,
    ) -> Result<Subscription<T>, FeedError>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        let members = Members { cluster: self.clone(), known: Vec::new() };
        Subscription::gathering(self.node(), feed, members)
    }
}

/// The members that feed.
struct Members {
    cluster: Cluster,
    known: Vec<(NodeId, String)>,
}

impl Members {
    fn state(&self) -> &State {
        &self.cluster.shared.state
    }
}

impl Sources for Members {
    type Id = NodeId;

    async fn next(&mut self) -> Option<Vec<(NodeId, String)>> {
        let known = &self.known;
        let now = self.state().until(|it| {
            if it.end().is_some() {
                return Some(None);
            }
            let now: Vec<_> = it.provided_below(PROVIDED).collect();
            (now != *known).then_some(Some(now))
        });
        let now = now.await?;
        self.known.clone_from(&now);
        Some(now)
    }

    fn reach(&self) -> Reach<NodeId> {
        let cluster = self.cluster.downgrade();
        Arc::new(move |member| {
            let cluster = cluster.clone();
            Box::pin(async move { cluster.upgrade()?.peer_of(member).await.ok() })
        })
    }
}
