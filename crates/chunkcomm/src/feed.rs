//! A feed: each message to all subscribers, however many come and go.
//!
//! ```text
//!   Feed                                             each subscriber
//!   send ──▶ encode ──▶ the channel of each ─────────▶ recv
//!              │          subscriber with room
//!              └──▶ log ──▶ those that are behind, once they have room
//!                    └────▶ those that come late: the last `keep`
//! ```
//!
//! A message is encoded once. The log has it once, for all subscribers that are behind. It holds at most the
//! [backlog](FeedOptions::backlog), with `skip` an eighth more, and the messages that are
//! [kept](FeedOptions::keep) for late subscribers.
//!
//! | a subscriber that is behind its backlog | setting |
//! |---|---|
//! | holds the feed up: `send` waits | [`wait`](FeedOptions::wait), the default |
//! | misses the oldest messages, and is told how many | [`skip`](FeedOptions::skip) |
//! | is ended, and told so | [`end`](FeedOptions::end) |
//!
//! | it is | then |
//! |---|---|
//! | a subscriber that comes before the feed | waits for it |
//! | a lost connection | is dialled again: nothing is lost or repeated |
//! | the end of the session, a feed that was restarted | [`Subscription::recv`] fails; subscribe again |
//! | a subscriber that is dropped or lost | leaves the feed |
//! | the last [`Feed`] that is dropped | the subscribers get the rest, then `None` |
//!
//! For the latest value alone see [`crate::watch`].
//!
//! ```
//! use chunkcomm::{Node, feed};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Node::builder().name("server").listen("127.0.0.1:0".parse()?).build().await?;
//! let mut orders = server.feed::<u32>(feed("orders").keep(2))?;
//! for order in 1..=3 {
//!     orders.send(&order).await?;
//! }
//!
//! let client = Node::builder().name("client").build().await?;
//! let mut seen = client.subscribe::<u32>("orders", &server.addresses()[0]).await?;
//! orders.send(&4).await?;
//! drop(orders);
//! for order in 2..=4 {
//!     assert_eq!(seen.recv().await?, Some(order));
//! }
//! assert_eq!(seen.recv().await?, None);
//! # Ok(())
//! # }
//! ```

mod gathering;
mod hub;
mod log;
mod names;
mod options;
mod receiving;
mod sending;
mod serving;
mod subscriber;

pub use crate::error::FeedError;
pub use gathering::{Reach, Reaching, Sources};
pub use options::{FeedOptions, feed};
pub use receiving::Subscription;
pub use sending::Feed;

/// A word to a subscriber. The codec writes its parts one after the other, each optional value behind a byte.
///
/// | message | count | the word says |
/// |---|---|---|
/// | `Some` | `None` | a message |
/// | `None` | `Some` | the number of messages that were left out; the first word leaves out none |
/// | `None` | `None` | the subscriber was behind its backlog, and is ended |
type Word<T> = (Option<T>, Option<u64>);

/// The byte before the message in a [`Word`].
const WORD_HEAD: u8 = 1;

/// The byte behind the message in a [`Word`].
const WORD_TAIL: u8 = 0;

/// A word of a subscriber; none is ever sent.
type Silence = u8;
