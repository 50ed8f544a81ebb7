//! Middleware: clients as services of the crate `tower`, and its layers around the handlers of services.
//!
//! ```
//! use chunkcomm::Node;
//! use chunkcomm_cluster::call::ServiceOptions;
//! use chunkcomm_cluster::call::middleware::{CallRequest, Refusal};
//! use chunkcomm_cluster::NodeExt;
//! use tower::filter::FilterLayer;
//! use tower::retry::RetryLayer;
//! use tower::{BoxError, Layer, ServiceExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! let server = Node::builder().name("server").listen("127.0.0.1:0".parse()?).build().await?;
//! let known = FilterLayer::new(|call: CallRequest<u64>| match call.peer().name() {
//!     "client" => Ok(call),
//!     name => Err(BoxError::from(Refusal::new(format!("{name} is not known here")))),
//! });
//! let double = |number: u64| async move { Ok::<_, String>(2 * number) };
//! let _service = server.serve_layered("double", ServiceOptions::default(), &known, double)?;
//!
//! let client = Node::builder().name("client").build().await?;
//! let peer = client.connect(&server.addresses()[0]).await?;
//! let double = client.call_client::<u64, u64>(&peer, "double")?.into_tower();
//! let retry = RetryLayer::new(double.retry(1));
//! assert_eq!(retry.layer(double).oneshot(21).await?, 42);
//! # Ok(())
//! # }
//! ```
//!
//! # No authority by name
//!
//! A peer chooses its name, and the credential names nobody: whoever has it may call, under any name. A layer
//! that decides by [`CallRequest::peer`] sorts friends, as by their load. It keeps out no enemy.
//!
//! # Errors of layers
//!
//! | error of a layer of a service | error of the call |
//! |---|---|
//! | [`Refusal`] | [`CallError::Refused`]: not handled, and not worth a retry |
//! | [`Overloaded`] of tower's `LoadShed` | [`CallError::Overloaded`]: not handled |
//! | any other, as a time-out's, and the handler's own | [`CallError::Failed`] with its text |

pub use super::retry::{CallRetry, OfCall};

use super::client::CallClient;
use super::error::{CallError, ServeError};
use super::form::{Form, Method};
use super::handling::Handler;
use super::options::ServiceOptions;
use super::scope::CallScope;
use super::service::{Indices, Service as Serving, serve_form};
use crate::proto::call::wire::Kind;
use crate::sync::locked;
use chunkcomm::host::Instant;
use chunkcomm::{Node, Peer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tower::load_shed::error::Overloaded;
use tower::{BoxError, Layer, Service, ServiceExt as _};

type Running<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// A client as a service of the crate `tower`: [`CallClient::into_tower`].
///
/// Of a trait it is one method: `StoreClient::into_tower` has a function for each, whose requests are the tuple of
/// its arguments. It is always ready: calls that wait to be sent wait in their futures. A call costs one box
/// more than one of the client. The future owns all it needs; dropped, it cancels the call.
pub struct CallService<Req, Resp, E = CallError> {
    method: Option<Method>,
    call: Arc<dyn Fn(Req) -> Running<Resp, E> + Send + Sync>,
}

impl<Req, Resp, E> CallService<Req, Resp, E> {
    /// Returns a service of calls that `call` makes.
    #[doc(hidden)]
    pub fn new<F>(
        method: Option<Method>,
        call: impl Fn(Req) -> F + Send + Sync + 'static,
    ) -> CallService<Req, Resp, E>
    where
        F: Future<Output = Result<Resp, E>> + Send + 'static,
    {
        CallService { method, call: Arc::new(move |request| Box::pin(call(request))) }
    }

    /// Returns the policy that retries calls of this method, with its waits by this seed.
    #[must_use]
    pub fn retry(&self, seed: u64) -> CallRetry {
        CallRetry::new(self.method, seed)
    }
}

impl<Req, Resp, E> Clone for CallService<Req, Resp, E> {
    fn clone(&self) -> CallService<Req, Resp, E> {
        CallService { method: self.method, call: Arc::clone(&self.call) }
    }
}

impl<Req, Resp, E> fmt::Debug for CallService<Req, Resp, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallService").field("method", &self.method).finish_non_exhaustive()
    }
}

impl<Req, Resp, E> Service<Req> for CallService<Req, Resp, E> {
    type Response = Resp;
    type Error = E;
    type Future = Running<Resp, E>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), E>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        (self.call)(request)
    }
}

impl<Req, Resp> CallClient<Req, Resp>
where
    Req: Serialize + DeserializeOwned + Send + 'static,
    Resp: Serialize + DeserializeOwned + Send + 'static,
{
    /// Returns this client as a service of the crate `tower`, with its timeout.
    #[must_use]
    pub fn into_tower(self) -> CallService<Req, Resp> {
        CallService::new(None, move |request| {
            let client = self.clone();
            async move { client.call_function(0, request).await }
        })
    }
}

/// A call that came to a service, as its layers see it.
///
/// Its [`CallScope`] is the current one in the futures of layers, too.
#[derive(Debug, Clone)]
pub struct CallRequest<Req> {
    service: Arc<str>,
    method: Option<&'static str>,
    peer: Peer,
    deadline: Option<Instant>,
    request: Req,
}

impl<Req> CallRequest<Req> {
    /// Returns the service's name.
    #[must_use]
    pub fn service(&self) -> &str {
        &self.service
    }

    /// Returns the method's name; `None` if the service is a closure.
    #[must_use]
    pub fn method(&self) -> Option<&'static str> {
        self.method
    }

    /// Returns the caller's node, whose name is of its own choice.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Returns the deadline of the call; `None` if there is none.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns the request. That of a trait has no use outside of generated code.
    #[must_use]
    pub fn request(&self) -> &Req {
        &self.request
    }
}

/// The error with which a layer refuses a call that it has not handed on: the caller gets
/// [`CallError::Refused`].
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Refusal {
    why: String,
}

chunkcomm::debug_with_causes!(Refusal);

impl Refusal {
    /// Returns a refusal with its reason, which the caller reads.
    #[must_use]
    pub fn new(why: impl Into<String>) -> Refusal {
        Refusal { why: why.into() }
    }
}

/// The handler of a service, as its innermost layer sees it. Clones share the handler.
pub struct CallHandler<Req, Resp> {
    handle: Arc<dyn Fn(Req) -> Running<Resp, BoxError> + Send + Sync>,
}

impl<Req, Resp> CallHandler<Req, Resp> {
    pub(crate) fn new<F, E: fmt::Display>(
        handler: impl Fn(Req) -> F + Send + Sync + 'static,
    ) -> CallHandler<Req, Resp>
    where
        F: Future<Output = Result<Resp, E>> + Send + 'static,
    {
        let handle = move |request| -> Running<Resp, BoxError> {
            let running = handler(request);
            Box::pin(async { running.await.map_err(|error| error.to_string().into()) })
        };
        CallHandler { handle: Arc::new(handle) }
    }
}

impl<Req, Resp> Clone for CallHandler<Req, Resp> {
    fn clone(&self) -> CallHandler<Req, Resp> {
        CallHandler { handle: Arc::clone(&self.handle) }
    }
}

impl<Req, Resp> fmt::Debug for CallHandler<Req, Resp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallHandler").finish_non_exhaustive()
    }
}

impl<Req, Resp> Service<CallRequest<Req>> for CallHandler<Req, Resp> {
    type Response = Resp;
    type Error = BoxError;
    type Future = Running<Resp, BoxError>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: CallRequest<Req>) -> Self::Future {
        (self.handle)(call.request)
    }
}

/// A handler with its layers: a service whose clones share their limits.
pub trait Handling<Req, Resp>:
    Service<CallRequest<Req>, Response = Resp, Error: Into<BoxError>, Future: Send>
    + Clone
    + Send
    + 'static
{
}

impl<S, Req, Resp> Handling<Req, Resp> for S where
    S: Service<CallRequest<Req>, Response = Resp, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static
{
}

/// The reason why a layered service has no answer.
pub(crate) struct Unanswered {
    pub(super) kind: Kind,
    text: String,
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<BoxError> for Unanswered {
    fn from(error: BoxError) -> Unanswered {
        let kind = match () {
            () if error.is::<Refusal>() => Kind::Refused,
            () if error.is::<Overloaded>() => Kind::Overloaded,
            () => Kind::Failed,
        };
        Unanswered { kind, text: error.to_string() }
    }
}

/// A [`Handling`] as a handler.
pub(crate) struct Layered<Req, S> {
    pub(crate) service: Arc<str>,
    pub(crate) method: fn(&Req) -> Option<&'static str>,
    /// Cloned for each call.
    pub(crate) layers: Mutex<S>,
}

impl<Req, Resp, S> Handler<Req> for Layered<Req, S>
where
    Req: Send + 'static,
    Resp: Serialize + Send + 'static,
    S: Handling<Req, Resp> + Service<CallRequest<Req>, Response = Resp>,
{
    type Answer = Resp;
    type Error = Unanswered;
    type Running = Running<Resp, Unanswered>;

    fn begin(&self, request: Req, peer: &Peer) -> Self::Running {
        let (service, method) = (Arc::clone(&self.service), (self.method)(&request));
        let deadline = CallScope::current().deadline();
        let call = CallRequest { service, method, peer: peer.clone(), deadline, request };
        let layers = locked(&self.layers).clone();
        Box::pin(async { layers.oneshot(call).await.map_err(|it| Unanswered::from(it.into())) })
    }
}

/// See [`NodeExt::serve_layered`](crate::NodeExt::serve_layered).
pub(crate) fn serve_layered<Req, Resp, E, F, Fut, L>(
    node: &Node,
    name: &str,
    options: ServiceOptions,
    layer: &L,
    handler: F,
) -> Result<Serving, ServeError>
where
    Req: Serialize + DeserializeOwned + Send + 'static,
    Resp: Serialize + DeserializeOwned + Send + 'static,
    E: fmt::Display + 'static,
    F: Fn(Req) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Resp, E>> + Send + 'static,
    L: Layer<CallHandler<Req, Resp>, Service: Handling<Req, Resp>>,
{
    let form = |schema: Option<&str>| Form::of::<Req, Resp>(name, schema);
    let indices = Indices { of_request: |_| 0, of_answer: |_| 0 };
    let layers = Mutex::new(layer.layer(CallHandler::new(handler)));
    let handler = Layered { service: name.into(), method: |_| None, layers };
    serve_form(node, name, options, form, indices, handler)
}
