//! Typed channels between nodes over TCP. Send one message at a time: messages
//! to the same peer are gathered in packets, and the library decides when a
//! packet leaves (dynamic chunking, after J. Berthold, "Dynamic Chunking in
//! Eden").
//!
//! For services that send many small messages to each other, and for programs
//! that ship large ones. The straightforward program is the fast one: no batch
//! sizes, no flush timers. A link survives lost connections. Beyond loopback nobody
//! joins without the cluster's credential, and TLS 1.3 encrypts TCP. Not for
//! requests over the open internet.
//!
//! When a session is given up, the sender does not know the fate of messages that were
//! not acknowledged. A sender of [`Node::open_redelivering`] delivers them across restarts
//! of the receiver. With a log on disk ([`Redelivery::log`]) it also delivers them
//! across restarts of its own process.
//!
//! ```
//! use chunkcomm::Node;
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Node::builder().name("server").listen("127.0.0.1:0".parse()?).build().await?;
//! let client = Node::builder().name("client").build().await?;
//!
//! let peer = client.connect(&server.addresses()[0]).await?;
//! let mut sender = client.open::<(u64, String)>(&peer, "greetings").await?;
//! for number in 0..1000 {
//!     sender.send(&(number, "hello".to_owned())).await?;
//! }
//! drop(sender); // the stream ends after what was accepted
//!
//! let (_peer, mut receiver) = server.accept::<(u64, String)>("greetings").await?;
//! let mut count = 0;
//! while let Some((number, _text)) = receiver.recv().await? {
//!     assert_eq!(number, count);
//!     count += 1;
//! }
//! assert_eq!(count, 1000);
//! client.close(Duration::from_secs(5)).await?; // all has arrived, or the error says what has not
//! # Ok(())
//! # }
//! ```
//!
//! # Words
//!
//! A *node* is one member of a cluster, a *peer* another node, a *link* the
//! session with a peer. A *channel* is a typed, ordered, one-way path between two
//! nodes. A *message* is what the user sends. A *packet* is what is written: many
//! messages for one peer, of any channels.
//!
//! | a message is | when |
//! |---|---|
//! | *accepted* | `send` returned `Ok`: it is in our outbox |
//! | *acknowledged* | it is in the peer's inbox |
//! | *consumed* | `recv` took it |
//! | *settled* | the receiver is done with it ([`Receiver::settle`]), on channels opened for that |
//!
//! `flush` hands accepted messages to the transport. `sync` waits until they are
//! acknowledged, `sync_settled` until they are settled. `close` ends a channel.
//!
//! # What is where
//!
//! | to | names |
//! |---|---|
//! | make a node and meet others | [`Node`], [`NodeBuilder`], [`Limits`], [`Silence`], [`Address`], [`Peer`], [`Credential`] |
//! | send and receive values | [`Sender`], [`Receiver`], [`SelectAll`], [`channel()`] and its [`ChannelOptions`], [`Lane`] |
//! | send and receive bytes | [`BytesSender`], [`BytesReceiver`] |
//! | send and receive on one thing | [`Duplex`], [`BytesDuplex`] |
//! | send to many | [`feed`](mod@feed), [`watch`], [`channel::send_to_all`] |
//! | deliver across restarts | [`Redelivery`], [`Fsync`] |
//! | decide when packets leave | [`Policy`] |
//! | see what goes on | [`stats`], [`stats::FlushReason`], [`explain`], [`report`], [`LinkEvents`], [`LinkEvent`] |
//! | handle errors | [`SendError`], [`RecvError`] and their like, [`error`], [`with_causes`] |
//! | run in a simulation unchanged | [`host`] |
//! | write futures and helpers of your own | [`channel`](mod@channel), [`codec`] |
//! | build another layer on nodes | [`layer`] |
//!
//! Calls, processes, channel ends that travel and clusters are the crate `chunkcomm-cluster`.
//!
//! Inside, `transport` provides byte streams and `driver` moves bytes between them and the pure
//! machine of a link. That machine is the crate [`chunkcomm_proto`], which promises no stability.
//! The parts of it that programs need are exported here, each by its own name.
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `tls` | yes | Credentials and TLS. Without it a node listens beyond loopback only if told to be insecure. |
//! | `metrics` | no | The counters of links through the facade of the crate `metrics`. |
//! | `settings` | no | The module `settings`: settings from files and from the environment. |
//! | `simulation` | no | Worlds in the place of the system; see `chunkcomm-simulation`. |
//!
//! # Types
//!
//! Values need `Serialize` and `DeserializeOwned`, at both ends. The type is
//! described by probing its `Deserialize` (names, fields, variants). When the
//! descriptions of the two ends differ, the channel is refused with an error that
//! names both. See [`chunkcomm_proto::describe`] for the differences that this does not see, and
//! [`ChannelOptions::schema`]. `#[serde(flatten)]`, `untagged` and `skip` lose
//! data in a format that does not describe itself: do not use them in messages.

// A sample that is copied compiles without these warnings. They are named, since a newer compiler may have more.
#![doc(test(attr(deny(unused_assignments, unused_imports, unused_must_use, unused_mut))))]
// Names the feature of each item that needs one; the compiler of docs.rs can.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod address;
pub mod channel;
mod credential;
mod descriptors;
mod driver;
pub mod error;
pub mod explain;
pub mod feed;
pub mod host;
pub mod layer;
mod log;
mod node;
mod portable;
#[doc(hidden)]
pub mod proto;
pub mod report;
#[cfg(feature = "settings")]
pub mod settings;
pub mod stats;
mod transport;
pub mod watch;

pub use address::Address;
pub use channel::bytes_duplex::BytesDuplex;
pub use channel::bytes_receiver::BytesReceiver;
pub use channel::bytes_sender::BytesSender;
pub use channel::duplex::Duplex;
pub use channel::receiver::Receiver;
pub use channel::select_all::SelectAll;
pub use channel::sender::Sender;
pub use channel::{ChannelOptions, channel};
#[doc(hidden)]
pub use chunkcomm_proto::debug_with_causes;
pub use credential::Credential;
pub use error::{
    AcceptError, CloseError, ConnectError, LinkError, Loss, LossKind, NodeError, OpenError,
    RecvError, SendError, TryRecvError, TrySendError,
};
pub use feed::feed;
pub use log::Fsync;
#[doc(hidden)]
pub use node::Experiment;
pub use node::{
    AGE_BOUND_VARIABLE, CREDENTIAL_FILE_VARIABLE, Limits, LinkEvent, LinkEvents, Node, NodeBuilder,
    Peer, Redelivery,
};
pub use portable::portable_only;
/// ```
/// use chunkcomm::{Credential, with_causes};
///
/// let error = Credential::load("absent").expect_err("there is no such file");
/// assert_eq!(error.to_string(), "credential file absent cannot be read or written");
/// assert!(with_causes(&error).starts_with(&format!("{error}: ")));
/// assert_eq!(format!("{error:?}"), with_causes(&error));
/// ```
pub use proto::causes::with_causes;
pub use proto::codec;
pub use proto::liveness::Silence;
pub use proto::packet::Lane;
pub use proto::tuning::flush::Policy;
#[cfg(feature = "tls")]
pub use rustls;
