//! One program on many machines: calls, processes, travelling channel ends, and clusters, on top of
//! [`chunkcomm`].
//!
//! The crate is for programs whose nodes ask each other for work. A program that only needs
//! channels between nodes that it dials itself needs `chunkcomm` alone.
//!
//! ```text
//!     Cluster      members, names, barriers; launchers start it        cluster, launch
//!     Process      "run this there, with these streams"                moving::process, registry
//!     ends         channel ends and values that travel in messages     moving
//!     calls        requests and their answers                          call
//!     ---------------------------------------------------------------------------------
//!     chunkcomm    nodes, channels, links
//! ```
//!
//! Calls, processes and travelling ends are methods of nodes, their builders and senders, by three
//! traits: [`NodeExt`], [`NodeBuilderExt`] and [`SenderExt`]. The [`prelude`] brings all three:
//!
//! ```
//! use chunkcomm::Node;
//! use chunkcomm_cluster::prelude::*;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Node::builder().listen("127.0.0.1:0".parse()?).build().await?;
//! let _service = server.serve("root", |x: f64| async move { Ok::<_, String>(x.sqrt()) })?;
//!
//! let client = Node::builder().build().await?;
//! let peer = client.connect(&server.addresses()[0]).await?;
//! let root = client.call_client::<f64, f64>(&peer, "root")?;
//! assert_eq!(root.call(&9.0).await?, 3.0);
//! # Ok(())
//! # }
//! ```
//!
//! Reading order:
//!
//! - [`call`]: requests and their answers.
//! - [`TravellingSender`] and [`Value`]: channel ends that travel.
//! - [`mod@process`]: functions that other nodes run, with [`Registry`].
//! - [`Cluster`]: programs on many machines. [`launch`]: processes of this machine.
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `tls` | yes | Credentials and TLS, as in `chunkcomm`. |
//! | `macros` | no | `service`: the interface of a service as a trait. |
//! | `opentelemetry` | no | [Calls](call) that carry the trace of OpenTelemetry they belong to. |

// A sample that is copied compiles without these warnings. They are named, since a newer compiler may have more.
#![doc(test(attr(deny(unused_assignments, unused_imports, unused_must_use, unused_mut))))]
// Names the feature of each item that needs one; only the compiler of docs.rs can.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod call;
pub mod cluster;
mod ext;
#[doc(hidden)]
pub mod interface;
pub mod launch;
mod moving;
#[doc(hidden)]
pub mod proto;
pub mod registry;
mod report;
pub mod roster;
mod sync;
mod tasks;

/// The extension traits: `use chunkcomm_cluster::prelude::*`.
pub mod prelude {
    pub use crate::ext::{NodeBuilderExt, NodeExt, SenderExt};
}

/// The versions whose layer `call::trace_calls` knows.
#[cfg(feature = "opentelemetry")]
pub use {opentelemetry, tracing_opentelemetry};

pub use call::{CallClient, CallError, Called, Service};
/// Makes the interface of a service out of a trait.
///
/// Of a trait `Store` it makes
///
/// - the trait, whose methods return futures that are `Send`: an implementation writes `async fn`;
/// - `StoreServer::new(implementation)`, with `name` (by default the trait's), `options`, and `serve` at a node
///   or `serve_in` a cluster, which return a [`Service`];
/// - `StoreClient::at` a peer or `in_cluster`, or with a name and options `at_with` and `in_cluster_with`, with a
///   method for each of the trait's.
///
/// A method that returns `Result<T, E>` returns `Result<T, `[`Called<E>`](Called)`>` at the client: the service's
/// own error, or that of the call. Any other returns `Result<T, `[`CallError`]`>`. Types of arguments and results
/// own their data, and have serde's `Serialize` and `Deserialize`. They and their errors are `Send`.
///
/// ```
/// use chunkcomm::Node;
/// use chunkcomm_cluster::Called;
/// use std::collections::BTreeMap;
/// use std::sync::Mutex;
///
/// /// A store of numbers.
/// #[chunkcomm_cluster::service]
/// trait Store {
///     /// Returns the number of a key.
///     #[idempotent]
///     async fn get(&self, key: String) -> Option<u64>;
///     async fn put(&self, key: String, value: u64) -> Result<(), String>;
/// }
///
/// #[derive(Default)]
/// struct Numbers(Mutex<BTreeMap<String, u64>>);
///
/// impl Store for Numbers {
///     async fn get(&self, key: String) -> Option<u64> {
///         self.0.lock().unwrap().get(&key).copied()
///     }
///
///     async fn put(&self, key: String, value: u64) -> Result<(), String> {
///         match self.0.lock().unwrap().insert(key, value) {
///             None => Ok(()),
///             Some(before) => Err(format!("it was {before}")),
///         }
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Node::builder().listen("127.0.0.1:0".parse()?).build().await?;
/// let _serving = StoreServer::new(Numbers::default()).serve(&server)?;
///
/// let client = Node::builder().build().await?;
/// let peer = client.connect(&server.addresses()[0]).await?;
/// let store = StoreClient::at(&client, &peer)?;
/// store.put("one".into(), 1).await?;
/// assert_eq!(store.get("one".into()).await?, Some(1));
/// match store.put("one".into(), 2).await {
///     Err(Called::Service(text)) => assert_eq!(text, "it was 1"),
///     other => panic!("{other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Versions
///
/// All methods share one duplex. A method is its name and the types of its arguments and its result, which the two
/// ends compare once. Either end may have more methods than the other. A call of a method that the service has
/// not, or has with other types, fails with [`CallError::Method`], and the other methods go on; a client of a
/// cluster asks another provider. So a service gets new methods first and its clients later, and a method with
/// other types gets another name.
///
/// # Calls
///
/// Timeouts, scopes, traces and cancellation are those of [`call`]; hooks and errors name a method as
/// `Store.get`, and [`Service::method_stats`] counts each. `StoreClient::METHODS` has for a retry which calls
/// [may be repeated](call::Method::may_repeat): those that nobody has handled, and those of methods that are
/// `#[idempotent]`.
///
/// With the feature `tower`, `StoreServer::layer` puts a layer around the methods, and `StoreClient::into_tower` has
/// each method as a service, whose requests are tuples of arguments: see `call::middleware`.
///
/// Streams are ends that travel: a [`TravellingReceiver`] as result, or a [`TravellingSender`] as argument. The
/// peers must be able to reach each other. A request that has ends in it is sent to one provider, and not again.
///
/// # Costs
///
/// As those of [`call`], and four bytes more for a request and for an answer. A call of any method takes memory
/// for the largest request and the largest answer of all.
#[cfg(feature = "macros")]
#[cfg_attr(docsrs, doc(cfg(feature = "macros")))]
pub use chunkcomm_macros::service;
pub use cluster::{Cluster, ClusterConfig};
pub use ext::{NodeBuilderExt, NodeExt, SenderExt};
pub use moving::ends::{Arriving, Departing, TravellingReceiver, TravellingSender};
pub use moving::error::{HandOverError, TravelError};
pub use moving::process;
pub use moving::process::{Process, ProcessContext, ProcessHandle};
pub use moving::value::{Value, ValueReader, ValueSource, ValueWriter};
pub use registry::{Function, Registry};
pub use report::{CallsReport, MovingReport};
