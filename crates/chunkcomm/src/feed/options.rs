//! Name and settings of a feed.

use crate::channel::{ChannelOptions, channel};
use crate::proto::limits::BACKLOG_BYTES_MIN;

/// Default of [`FeedOptions::backlog`]: 256 KiB, as much as a packet grows to.
const BACKLOG_BYTES_DEFAULT: u64 = 256 * 1024;

/// The lot of a subscriber that is behind its backlog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Behind {
    Wait,
    Skip,
    End,
}

/// Names a feed with settings; a name alone stands for a feed with the default ones.
///
/// ```
/// use chunkcomm::feed::{Feed, FeedError};
/// use chunkcomm::{Node, feed};
///
/// fn prices(node: &Node) -> Result<Feed<f64>, FeedError> {
///     node.feed(feed("prices").backlog(64 * 1024).skip().keep(1))
/// }
/// ```
pub fn feed(channel: impl Into<ChannelOptions>) -> FeedOptions {
    FeedOptions::from(channel.into())
}

/// The name of a feed and its settings; made by [`feed`] or from a name.
///
/// Of the [options](crate::channel()) of a channel the lane and the schema count.
#[derive(Debug, Clone)]
#[must_use]
pub struct FeedOptions {
    /// The channels to the subscribers.
    pub(super) channel: ChannelOptions,
    pub(super) backlog: u64,
    pub(super) behind: Behind,
    pub(super) keep: u64,
}

impl From<ChannelOptions> for FeedOptions {
    fn from(options: ChannelOptions) -> FeedOptions {
        let ChannelOptions { name, lane, schema, .. } = options;
        FeedOptions {
            channel: ChannelOptions { lane, schema, ..channel(name) },
            backlog: BACKLOG_BYTES_DEFAULT,
            behind: Behind::Wait,
            keep: 0,
        }
    }
}

impl From<&str> for FeedOptions {
    fn from(name: &str) -> FeedOptions {
        feed(name)
    }
}

impl From<String> for FeedOptions {
    fn from(name: String) -> FeedOptions {
        feed(name)
    }
}

impl From<&String> for FeedOptions {
    fn from(name: &String) -> FeedOptions {
        feed(name)
    }
}

impl FeedOptions {
    /// Limits how far a subscriber may be behind, in encoded bytes that it has not taken: 256 KiB by
    /// default, at least 4 KiB. One message more is accepted.
    ///
    /// A larger backlog survives longer pauses of a subscriber. The feed then holds that many bytes, once
    /// for all subscribers that are behind. The channel to each holds at most as many, of memory that it shares
    /// with the others.
    pub fn backlog(mut self, bytes: u64) -> FeedOptions {
        self.backlog = bytes.max(BACKLOG_BYTES_MIN);
        self
    }

    /// Lets `send` wait for a subscriber that is behind its backlog; the default.
    pub fn wait(mut self) -> FeedOptions {
        self.behind = Behind::Wait;
        self
    }

    /// Leaves out the oldest messages for a subscriber that is behind its backlog.
    /// [`Subscription::skipped`](super::Subscription::skipped) counts them. `send` waits for nobody, but gives
    /// the links their turn 8 times a backlog.
    pub fn skip(mut self) -> FeedOptions {
        self.behind = Behind::Skip;
        self
    }

    /// Ends a subscriber that is behind its backlog: after what it was sent,
    /// [`Subscription::recv`](super::Subscription::recv) fails. `send` waits for nobody.
    pub fn end(mut self) -> FeedOptions {
        self.behind = Behind::End;
        self
    }

    /// Sends the last `messages` to each new subscriber first, as far as they fit in half of the backlog; by
    /// default none.
    pub fn keep(mut self, messages: usize) -> FeedOptions {
        self.keep = messages as u64;
        self
    }
}
