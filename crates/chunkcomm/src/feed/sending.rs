//! The feed.

use super::hub::Hub;
use super::log::Encoded;
use super::names::Names;
use super::options::{Behind, FeedOptions};
use super::serving::Serves;
use super::{Silence, WORD_HEAD, WORD_TAIL, Word};
use crate::channel::Turn;
use crate::driver::memory::freed_apart;
use crate::driver::tasks;
use crate::driver::wakers::locked;
use crate::error::{FeedError, OpenError};
use crate::node::fingerprint::Fingerprint;
use crate::node::{Node, NodeShared};
use crate::proto::codec;
use crate::proto::limits::INLINE_BYTES_MAX;
use crate::proto::message::{PREFIX_BYTES_MAX, prefix_bytes, write_prefix};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, Weak};

/// Turns of the links within a backlog, of a sender that waits for nobody: 8. A message to a node of the same
/// thread and the report that it was taken need 3 to 4 turns.
const TURNS_A_BACKLOG: usize = 8;

/// Sends messages to all subscribers of a name; [`Node::feed`] makes it.
///
/// Each subscriber gets the messages in the order in which they were accepted. Those of clones, which feed the
/// same subscribers, are in one order for all of them. When the last clone is dropped, the feed ends for all.
pub struct Feed<T> {
    shared: Arc<Shared>,
    /// The message, behind room for its prefix.
    scratch: Vec<u8>,
    /// Bytes of the last message, if it was a large one.
    last_large: usize,
    turn: Turn,
    /// Bytes since the links last had their turn.
    since_turn: usize,
    types: PhantomData<fn(&T)>,
}

impl<T> Clone for Feed<T> {
    fn clone(&self) -> Feed<T> {
        Feed::new(Arc::clone(&self.shared))
    }
}

impl<T> fmt::Debug for Feed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

impl<T> Feed<T> {
    fn new(shared: Arc<Shared>) -> Feed<T> {
        let (scratch, turn, types) = (Vec::new(), Turn::default(), PhantomData);
        Feed { shared, scratch, last_large: 0, turn, since_turn: 0, types }
    }

    /// Returns the feed's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Returns the number of subscribers now.
    #[must_use]
    pub fn subscriber_count(&self) -> usize {
        self.shared.hub.subscribers()
    }

    /// Calls `what` when the last clone of the feed is dropped.
    pub fn at_end(&self, what: impl FnOnce() + Send + 'static) {
        locked(&self.shared.at_end).push(Box::new(what));
    }
}

impl<T: Serialize> Feed<T> {
    /// Accepts `value` for all subscribers: encodes it once. Waits for a subscriber that is behind its
    /// [backlog](FeedOptions::backlog), unless the feed [skips](FeedOptions::skip) messages or
    /// [ends](FeedOptions::end) such a subscriber. Without subscribers it is accepted at once.
    ///
    /// A subscriber whose node takes no message of this size misses it, and is told so.
    ///
    /// # Errors
    ///
    /// [`FeedError::Encode`] concerns this message alone. After [`FeedError::Closed`] nothing can be sent.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, nothing was accepted.
    pub async fn send(&mut self, value: &T) -> Result<(), FeedError> {
        if self.turn.over() {
            tokio::task::coop::consume_budget().await;
        }
        for _ in 0..(self.since_turn / self.shared.turn_bytes).min(TURNS_A_BACKLOG) {
            self.since_turn = 0;
            tokio::task::yield_now().await;
        }
        self.encode(value)?;
        self.since_turn += self.scratch.len();
        let Feed { shared, scratch, last_large, .. } = self;
        let bytes = scratch.len() - PREFIX_BYTES_MAX;
        if bytes <= shared.inline_bytes_max {
            let begin = PREFIX_BYTES_MAX - prefix_bytes(bytes);
            write_prefix(bytes, &mut scratch[begin..]);
            let message = Encoded::Small(&scratch[begin..]);
            poll_fn(|context| shared.hub.poll_send(context, message)).await
        } else {
            *last_large = scratch.len();
            let message = Bytes::from(std::mem::take(scratch)).slice(PREFIX_BYTES_MAX..);
            let message = freed_apart(message);
            poll_fn(|context| shared.hub.poll_send(context, Encoded::Large(&message))).await
        }
    }

    /// Encodes `value` into the scratch, behind room for the prefix. Without a lock, so that its `Serialize`
    /// cannot harm a clone.
    fn encode(&mut self, value: &T) -> Result<(), FeedError> {
        self.scratch.clear();
        self.scratch.reserve(std::mem::take(&mut self.last_large));
        self.scratch.extend_from_slice(&[0; PREFIX_BYTES_MAX]);
        self.scratch.push(WORD_HEAD);
        codec::encode_into_vec(value, &mut self.scratch)
            .map_err(|error| FeedError::Encode(Arc::new(error)))?;
        self.scratch.push(WORD_TAIL);
        Ok(())
    }
}

/// State that the clones of a feed share.
struct Shared {
    name: String,
    node: Weak<NodeShared>,
    hub: Arc<Hub>,
    /// Bytes of the longest message that is copied.
    inline_bytes_max: usize,
    /// Bytes after which a sender that waits for nobody gives the links their turn.
    turn_bytes: usize,
    /// Called when the feed is dropped.
    at_end: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.hub.end();
        // Before another feed can have the name.
        for at_end in std::mem::take(&mut *locked(&self.at_end)) {
            at_end();
        }
        if let Some(shared) = self.node.upgrade() {
            let node = Node { shared };
            Names::remove(&node, &self.name);
            node.give_up_name(&self.name);
        }
    }
}

impl Node {
    /// Feeds the nodes that [subscribe](Node::subscribe) to a name; see [`mod@crate::feed`].
    ///
    /// The name is that of a duplex, which subscribers open.
    ///
    /// # Errors
    ///
    /// - [`FeedError::Open`]: the name is empty or longer than 255 bytes, or messages of the type cannot be
    ///   sent.
    /// - [`FeedError::Taken`]: this node feeds or [publishes](Node::publish) something under the name already.
    /// - [`FeedError::Closed`]: the node is closed.
    pub fn feed<T>(&self, feed: impl Into<FeedOptions>) -> Result<Feed<T>, FeedError>
    where
        T: Serialize + DeserializeOwned,
    {
        let options = feed.into();
        let refused = |refused| FeedError::Open(OpenError::Type(refused));
        let schema = options.channel.schema_name();
        let there = Fingerprint::of::<Silence>(schema).map_err(refused)?;
        let back = Fingerprint::of::<Word<T>>(schema).map_err(refused)?;
        self.feed_words(options, there.duplex(&back)).map(Feed::new)
    }

    fn feed_words(
        &self,
        options: FeedOptions,
        print: Fingerprint,
    ) -> Result<Arc<Shared>, FeedError> {
        options.channel.check_name().map_err(FeedError::Open)?;
        if self.is_closed() {
            return Err(FeedError::Closed);
        }
        let name = options.channel.name.clone();
        if !self.claim(&name) {
            return Err(FeedError::Taken { feed: name });
        }
        Names::add(self, &name).inspect_err(|_| self.give_up_name(&name))?;
        let bytes_max = usize::try_from(options.backlog).unwrap_or(usize::MAX) - PREFIX_BYTES_MAX;
        let hub = Arc::new(Hub::new(&options));
        let channel = options.channel.backlog(options.backlog).refusing_at_once();
        let node = Arc::downgrade(&self.shared);
        let serves = Serves { node: self.clone(), options: channel, print, hub: Arc::clone(&hub) };
        tasks::spawn_on(self.runtime(), serves.run());
        let inline_bytes_max = INLINE_BYTES_MAX.min(bytes_max);
        let turn_bytes = match options.behind {
            Behind::Wait => usize::MAX,
            Behind::Skip | Behind::End => bytes_max / TURNS_A_BACKLOG,
        };
        let at_end = Mutex::default();
        Ok(Arc::new(Shared { name, node, hub, inline_bytes_max, turn_bytes, at_end }))
    }
}
