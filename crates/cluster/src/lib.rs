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
//! | `opentelemetry` | no | [Calls](call) that carry the trace of OpenTelemetry they belong to. |

// A sample that is copied compiles without these warnings. They are named, since a newer compiler may have more.
#![doc(test(attr(deny(unused_assignments, unused_imports, unused_must_use, unused_mut))))]
// Names the feature of each item that needs one; only the compiler of docs.rs can.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod call;
pub mod cluster;
mod ext;
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

pub use call::{CallClient, CallError, Service};
pub use cluster::{Cluster, ClusterConfig};
pub use ext::{NodeBuilderExt, NodeExt, SenderExt};
pub use moving::ends::{Arriving, Departing, TravellingReceiver, TravellingSender};
pub use moving::error::{HandOverError, TravelError};
pub use moving::process;
pub use moving::process::{Process, ProcessContext, ProcessHandle};
pub use moving::value::{Value, ValueReader, ValueSource, ValueWriter};
pub use registry::{Function, Registry};
pub use report::{CallsReport, MovingReport};
