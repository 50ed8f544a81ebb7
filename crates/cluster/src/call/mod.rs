//! Calls: a request to a service by its name, and the answer to it.
//!
//! ```
//! use chunkcomm::Node;
//! use chunkcomm_cluster::{CallError, NodeExt};
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Node::builder().name("server").listen("127.0.0.1:0".parse()?).build().await?;
//! let roots = server.serve("root", |number: f64| async move {
//!     if number < 0.0 { Err(format!("{number} has none")) } else { Ok(number.sqrt()) }
//! })?;
//!
//! let client = Node::builder().name("client").build().await?;
//! let peer = client.connect(&server.addresses()[0]).await?;
//! let root = client.call_client::<f64, f64>(&peer, "root")?.timeout(Duration::from_secs(5));
//! assert_eq!(root.call(&9.0).await?, 3.0);
//! // What the handler says is told apart from what the link, the service and the clock say.
//! match root.call(&-1.0).await {
//!     Err(CallError::Failed { text, .. }) => assert_eq!(text, "-1 has none"),
//!     other => panic!("{other:?}"),
//! }
//! roots.close(Duration::from_secs(5)).await?;
//! assert!(matches!(root.call(&9.0).await, Err(CallError::NoService { .. })));
//! # Ok(())
//! # }
//! ```
//!
//! [`Cluster::serve`](crate::Cluster::serve) and
//! [`Cluster::call_client`](crate::Cluster::call_client) find services by name. Several nodes may
//! provide the same service; each call goes to the provider with the fewest calls of this client in
//! flight.
//!
//! # How they travel
//!
//! A client has a duplex with a provider, for requests and answers, by default in the express lane.
//! A request that is alone leaves as soon as nothing else is runnable, in a
//! packet of its own. Requests that are made while other tasks are runnable share a packet. So
//! nothing has to be batched by hand.
//!
//! [Channel ends](crate::TravellingSender) travel in requests and answers, and values. A request that has ends in
//! it is sent to one provider, and not again: the ends are with the request.
//!
//! # Interfaces
//!
//! The functions of a service may be the methods of a trait: see the attribute `service` of the feature `macros`.
//! Limits, retries and refusals are layers of the crate `tower`: see `middleware`, of the feature `tower`.
//!
//! # Costs
//!
//! A call allocates nothing and spawns nothing as long as its handler does not have to wait: the
//! handler is polled once where its request was read, and only then becomes a task.
//! [`ServiceOptions::parallel`] is for handlers that compute for long. Ends in a request or an answer cost
//! allocations.
//!
//! Reading order: [`CallClient`], [`Service`], [`CallError`]; of traits [`Called`], [`Method`].

mod answers;
mod by_name;
mod callers;
mod calling;
mod carrying;
mod client;
mod connection;
mod error;
mod form;
mod handling;
mod line;
#[cfg(feature = "tower")]
#[cfg_attr(docsrs, doc(cfg(feature = "tower")))]
pub mod middleware;
mod opening;
mod options;
mod requests;
#[cfg(feature = "tower")]
mod retry;
mod scope;
mod service;
#[cfg(feature = "opentelemetry")]
mod traces;

pub use calling::Calling;
pub use client::CallClient;
pub use error::{CallError, Called, ServeError, ServiceCloseError};
pub use form::Method;
#[doc(hidden)]
pub use form::{MethodTypes, TypeOf};
pub use options::{CallOptions, ServiceOptions};
pub use scope::{CallContext, CallHooks, CallScope, set_call_hooks};
pub use service::{MethodStats, Service, ServiceStats};
#[cfg(feature = "opentelemetry")]
pub use traces::trace_calls;

pub(crate) use by_name::Directory;
pub(crate) use callers::Callers;
pub(crate) use client::{Way, call_client_with};
pub(crate) use form::Form;
pub(crate) use opening::Reach;
pub(crate) use service::{Indices, serve_form, serve_with};

/// Returns the runtime of the tasks that answer and read answers: the current one, else the node's.
fn runtime_of(node: &chunkcomm::Node) -> tokio::runtime::Handle {
    tokio::runtime::Handle::try_current().unwrap_or_else(|_| node.runtime().clone())
}
