//! The latest value of something, for any number of nodes: as tokio's `watch`, over a network.
//!
//! ```text
//!   publisher                                        each watcher
//!   send_replace ──▶ newest value ──▶ one message ──▶ newest that came ──▶ borrow, changed
//!                     (a slot)        on its way       (a slot)
//! ```
//!
//! A value that is replaced before it leaves is never sent. So neither a fast publisher nor a slow watcher
//! makes anything grow: there are two values and one message a watcher, 4 KiB of messages while the watcher holds
//! a value borrowed. The last value always arrives, and the end behind it, also if the publisher's node is
//! [closed](Node::close) right then.
//!
//! | it is | then |
//! |---|---|
//! | a watcher that comes late, or comes back | begins with the present value |
//! | a watcher that comes before its publisher | waits for it |
//! | a lost connection, a publisher that was restarted | the watcher keeps its value, finds the publisher again, and goes on with its present value |
//! | the last [`WatchSender`] that is dropped | [`WatchReceiver::changed`] fails by [`WatchError::Ended`] |
//!
//! For values of which none may be missed, use a channel ([`Node::open`]). To bound how far a receiver of a
//! channel may be behind, see [`ChannelOptions::backlog`](crate::ChannelOptions::backlog).
//!
//! ```
//! use chunkcomm::Node;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Node::builder().name("server").listen("127.0.0.1:0".parse()?).build().await?;
//! let price = server.publish("price", 100_u32)?;
//!
//! let client = Node::builder().name("client").build().await?;
//! let mut seen = client.watch::<u32>("price", &server.addresses()[0]).await?;
//! assert_eq!(*seen.borrow_and_update(), 100);
//! for price_now in 101..=200 {
//!     price.send_replace(price_now)?;
//! }
//! while *seen.borrow_and_update() < 200 {
//!     seen.changed().await?;
//! }
//! assert_eq!(seen.borrow().number(), 100);
//! # Ok(())
//! # }
//! ```

mod receiving;
mod sending;

pub use crate::error::WatchError;
pub use receiving::{Publisher, Seen, WatchReceiver};
pub use sending::{Published, WatchSender};

#[cfg(doc)]
use crate::Node;

/// A word to a watcher: a value with its number, counted from 0 by its publisher, or the end.
type Word<T> = Option<(u64, T)>;

/// A word of a watcher; none is ever sent.
type Silence = u8;
