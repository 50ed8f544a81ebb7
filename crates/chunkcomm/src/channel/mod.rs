//! The ends of channels: what [`Sender`](crate::Sender), [`Receiver`](crate::Receiver) and their
//! twins for bytes take and give, and calls over many of them.
//!
//! # Futures of your own
//!
//! | call | poll function |
//! |---|---|
//! | `recv` of a receiver, a duplex or a [`SelectAll`](crate::SelectAll) | `poll_recv` |
//! | `send` | `poll_ready`, then `start_send` |
//! | `flush` | `poll_flush` |
//! | `close` | `poll_close`, which does not wait for acknowledgements |
//! | `closed` of a sender or a [`Peer`] | `poll_closed` |
//! | `next` of [`LinkEvents`](crate::LinkEvents) | `poll_next` |
//!
//! - After `Pending` nothing was taken or accepted, and the task of the context is woken when the call
//!   may get further. A receiver or a `SelectAll` wakes only the task that polled last. All others
//!   wake each task that has polled.
//! - A task may be woken without a reason, and polls again.
//! - Poll functions do not take from the task's budget. A future that loops over them lets others run
//!   by itself, for instance with [`tokio::task::coop::poll_proceed`].
//! - `Sink` and `Stream` are the same calls, for the combinators of other crates.
//!
//! ```
//! use chunkcomm::{Node, Receiver, Sender};
//! use std::error::Error;
//! use std::future::Future;
//! use std::pin::Pin;
//! use std::task::{Context, Poll, ready};
//!
//! /// Passes values on until there are no more.
//! struct Relay {
//!     from: Receiver<u64>,
//!     to: Sender<u64>,
//! }
//!
//! impl Future for Relay {
//!     type Output = Result<(), Box<dyn Error>>;
//!
//!     fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
//!         let Relay { from, to } = &mut *self;
//!         loop {
//!             let budget = ready!(tokio::task::coop::poll_proceed(context));
//!             // Room comes first: a value that was taken has a place at once.
//!             ready!(to.poll_ready(context))?;
//!             match ready!(from.poll_recv(context))? {
//!                 Some(value) => to.start_send(&value)?,
//!                 None => return to.poll_close(context).map_err(Into::into),
//!             }
//!             budget.made_progress();
//!         }
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn Error>> {
//! let node = Node::builder().build().await?;
//! let peer = node.local().await?;
//! let mut source = node.open::<u64>(&peer, "in").await?;
//! let to = node.open(&peer, "out").await?;
//! let (_, from) = node.accept("in").await?;
//! source.send_all(0..1000).await?;
//! drop(source);
//!
//! Relay { from, to }.await?;
//! let (_, mut sink) = node.accept("out").await?;
//! let mut values: Vec<u64> = Vec::new();
//! while let Some(value) = sink.recv().await? {
//!     values.push(value);
//! }
//! assert!(values.into_iter().eq(0..1000));
//! # Ok(())
//! # }
//! ```
//!
//! Calls that begin something (`connect`, `open`, `accept`) and the waits for one count of messages
//! (`sync` and its like) are futures only. A future that polls one of them keeps it in a box. A clone
//! of the node makes it independent of borrowed values:
//!
//! ```
//! use chunkcomm::{AcceptError, Node, Peer, Receiver};
//! use std::pin::Pin;
//!
//! type Accepting = Pin<Box<dyn Future<Output = Result<(Peer, Receiver<u64>), AcceptError>> + Send>>;
//!
//! fn accepting(node: &Node) -> Accepting {
//!     let node = node.clone();
//!     Box::pin(async move { node.accept("numbers").await })
//! }
//! ```
//!
//! # Channels of bytes
//!
//! Channels without codec have types of their own: [`BytesSender`](crate::BytesSender),
//! [`BytesReceiver`](crate::BytesReceiver) and [`BytesDuplex`](crate::BytesDuplex). One generic face
//! with a marker (`Sender<Raw>`) would save about 200 lines here. It would cost the user the inference
//! of a channel's type: with two definitions of `send` and `recv`, or with one by an associated type,
//! the compiler no longer finds the type of a channel from its use:
//!
//! ```
//! # use chunkcomm::Node;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let node = Node::builder().build().await?;
//! # let peer = node.local().await?;
//! let mut sender = node.open(&peer, "numbers").await?;
//! sender.send(&7_u32).await?;
//! let (_, mut receiver) = node.accept("numbers").await?;
//! let number: Option<u32> = receiver.recv().await?;
//! # assert_eq!(number, Some(7));
//! # Ok(())
//! # }
//! ```
//!
//! Every signature that takes or returns a message would name that associated type instead of the
//! value's. The calls that are the same for both are written once (`calls`, `tx`).

// Reading order: `sender`, `receiver` (ends for values); `bytes_sender`, `bytes_receiver` (ends for
// the user's own bytes); `duplex`, `bytes_duplex` (two channels as one); `tx`, `calls` (the parts that
// all share); `select_all` (takes from
// many receivers in turn), `many` (sends to many), `ends` (the traits that both use); `context` (the
// link of the message at hand).

pub(crate) mod blocking;
pub(crate) mod bytes_duplex;
pub(crate) mod bytes_receiver;
pub(crate) mod bytes_sender;
mod calls;
pub(crate) mod context;
pub(crate) mod duplex;
pub(crate) mod ends;
pub(crate) mod many;
pub(crate) mod receiver;
pub(crate) mod select_all;
pub(crate) mod sender;
pub(crate) mod tx;

pub use crate::driver::landing::Landing;
pub use crate::driver::taking::Delivery;
pub use crate::node::duplexes::UnansweredDuplex;
pub use bytes_sender::BytesPermit;
pub use ends::{ReceivingEnd, SendingEnd};
pub use many::{any_ready, send_bytes_to_all, send_to_all, try_send_bytes_to_all, try_send_to_all};
pub use receiver::Receiving;
pub use select_all::{SELECT_TURN_BYTES, Selected};
pub use sender::{Permit, Sending};

use crate::error::OpenError;
use crate::node::Peer;
use crate::proto::limits::{BACKLOG_BYTES_MIN, CHANNEL_NAME_BYTES_MAX};
use crate::proto::packet::Lane;
use std::time::Duration;

/// Names a channel that is opened or accepted with options; a name alone stands for a channel
/// without any.
///
/// ```
/// use chunkcomm::{Lane, Node, OpenError, Peer, Sender, channel};
///
/// async fn orders(node: &Node, peer: &Peer) -> Result<Sender<u64>, OpenError> {
///     node.open(peer, channel("orders").lane(Lane::Express)).await
/// }
/// ```
pub fn channel(name: impl Into<String>) -> ChannelOptions {
    ChannelOptions {
        name: name.into(),
        lane: Lane::default(),
        system: false,
        schema: None,
        within: None,
        from: None,
        settled: false,
        stream: None,
        backlog: None,
        refuses_at_once: false,
    }
}

/// The name of a channel that is opened or accepted, and its options; made by [`channel`] or from a
/// name.
#[derive(Debug, Clone)]
#[must_use]
pub struct ChannelOptions {
    pub(crate) name: String,
    pub(crate) lane: Lane,
    /// Whether it is one of the library's own channels.
    pub(crate) system: bool,
    pub(crate) schema: Option<String>,
    pub(crate) within: Option<Duration>,
    pub(crate) from: Option<Peer>,
    /// Whether the receiver settles.
    pub(crate) settled: bool,
    /// The number of the stream, if the receiver settles.
    pub(crate) stream: Option<u128>,
    /// Most bytes that are accepted and not consumed.
    pub(crate) backlog: Option<u64>,
    /// Whether an accept refuses a channel of another type at once. Else it waits for the sender's type, which
    /// its error names.
    pub(crate) refuses_at_once: bool,
}

impl From<&str> for ChannelOptions {
    fn from(name: &str) -> ChannelOptions {
        channel(name)
    }
}

impl From<String> for ChannelOptions {
    fn from(name: String) -> ChannelOptions {
        channel(name)
    }
}

impl From<&String> for ChannelOptions {
    fn from(name: &String) -> ChannelOptions {
        channel(name)
    }
}

impl ChannelOptions {
    /// Returns the name that stands for the type, if there is one.
    pub(crate) fn schema_name(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// Refuses a name that is empty or too long.
    pub(crate) fn check_name(&self) -> Result<(), OpenError> {
        let bytes = self.name.len();
        if bytes == 0 || bytes > CHANNEL_NAME_BYTES_MAX {
            return Err(OpenError::Name { bytes });
        }
        Ok(())
    }

    /// Sets the lane of the channel, [`Lane::Bulk`] by default. Messages of express channels
    /// leave before those of bulk channels of the same link.
    pub fn lane(mut self, lane: Lane) -> ChannelOptions {
        self.lane = lane;
        self
    }

    /// Lets the receiver report to the sender the messages that it has settled; off by default, set
    /// by the opening end.
    ///
    /// The receiver settles by hand ([`Receiver::settle`](crate::Receiver::settle)), or when it
    /// takes the next message. [`Sender::sync_settled`](crate::Sender::sync_settled) waits for
    /// that. [`ChannelStats::settled`](crate::stats::ChannelStats::settled) counts the settled messages.
    ///
    /// Messages that are not settled when the session ends are lost, as without this option.
    /// [`Node::open_redelivering`](crate::Node::open_redelivering) sends them again.
    pub fn settled(mut self) -> ChannelOptions {
        self.settled = true;
        self
    }

    /// Limits the channel's backlog: the encoded bytes that are accepted and that the receiver has not
    /// taken, wherever they are. At least 4 KiB; no limit by default.
    ///
    /// Beyond it `send` waits and `try_send` returns `Full`. So the sender of a slow receiver knows that
    /// it is slow, and a message is never behind more than this. Without the limit, some 20 KiB wait for
    /// a receiver that does not take them, and up to 4 MiB for one that took them fast before.
    ///
    /// A message above the limit is accepted with nothing before it, and goes alone. A `Sink` learns the
    /// size of an item after it was ready, so one large item may be beyond the limit. The receiver reports
    /// each eighth of the limit, and when it waits for more. A small limit costs throughput: a sender
    /// can be ahead by that much in each round trip.
    ///
    /// It is set by the sending end: where the channel is opened; for the way back of a duplex, where it is
    /// accepted. A redelivering sender has a limit of its own
    /// ([`Redelivery::bytes_max`](crate::Redelivery::bytes_max)), and this one has no effect there.
    pub fn backlog(mut self, bytes: u64) -> ChannelOptions {
        self.backlog = Some(bytes.max(BACKLOG_BYTES_MIN));
        self
    }

    /// Returns the options that count for a watch: the name, the lane and the schema. The smallest backlog
    /// bounds the values that wait for a watcher that holds one.
    pub(crate) fn for_watch(self) -> ChannelOptions {
        let ChannelOptions { name, lane, schema, .. } = self;
        ChannelOptions { lane, schema, ..channel(name).backlog(BACKLOG_BYTES_MIN) }
            .refusing_at_once()
    }

    /// Puts the channel before the user's channels of its lane.
    pub(crate) fn refusing_at_once(mut self) -> ChannelOptions {
        self.refuses_at_once = true;
        self
    }

    pub(crate) fn system(mut self) -> ChannelOptions {
        self.system = true;
        self
    }

    /// Compares this name instead of the type's description. For types that describe
    /// themselves poorly, and for types that differ on purpose. The user then promises
    /// that each end can decode the messages of the other.
    pub fn schema(mut self, name: impl Into<String>) -> ChannelOptions {
        self.schema = Some(name.into());
        self
    }

    /// Limits the time of an `accept`, which then fails by
    /// [`AcceptError::Late`](crate::AcceptError::Late); no limit by default.
    ///
    /// It has no effect where a channel is opened. Without a limit a service waits for its next
    /// client for ever. After 5 s both ends warn of a name that may be misspelt.
    pub fn within(mut self, deadline: Duration) -> ChannelOptions {
        self.within = Some(deadline);
        self
    }

    /// Accepts the channel of this peer alone; by default of any peer. The opens of others under the
    /// name wait for other calls. It has no effect where a channel is opened.
    ///
    /// The peer is the node with its incarnation, in whichever session. When its sessions have
    /// ended, the `accept` fails by [`AcceptError::Lost`](crate::AcceptError::Lost).
    pub fn from_peer(mut self, peer: &Peer) -> ChannelOptions {
        self.from = Some(peer.clone());
        self
    }
}

/// Messages after which `send` and `recv` take one unit of the task's budget: 32. So
/// a task that always has something to do lets others run.
pub(crate) const MESSAGES_A_BUDGET_UNIT: u32 = 32;

/// Messages a unit of budget of a sender on its driver's thread: 128.
///
/// With this many, the budget of 128 units fills a packet, even of the smallest messages. A
/// task without budget goes on only after tokio has looked at its sockets. The driver runs before
/// that, and would find an idle link and half a packet. Larger messages fill their ring first,
/// and wait.
const MESSAGES_A_BUDGET_UNIT_AT_HOME: u32 = 128;

/// Counts messages towards the task's budget.
#[derive(Debug, Default)]
pub struct Turn(u32);

/// A clone begins a turn of its own.
impl Clone for Turn {
    fn clone(&self) -> Turn {
        Turn::default()
    }
}

impl Turn {
    /// Counts one more message; returns whether the budget may have to be asked.
    #[inline]
    pub fn over(&mut self) -> bool {
        self.0 = self.0.wrapping_add(1);
        self.0.is_multiple_of(MESSAGES_A_BUDGET_UNIT)
    }

    /// Whether the budget is to be asked after a turn; `home`: the sender is on its driver's
    /// thread.
    pub(crate) fn asks(&self, home: bool) -> bool {
        !home || self.0.is_multiple_of(MESSAGES_A_BUDGET_UNIT_AT_HOME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_at_home_asks_for_its_budget_less_often() {
        for (home, once_in) in [(false, 32), (true, 128)] {
            let mut turn = Turn::default();
            let asked = (1..=1024).filter(|_| turn.over() && turn.asks(home));
            assert!(asked.eq((1..=1024 / once_in).map(|nth| nth * once_in)), "home: {home}");
        }
    }
}
