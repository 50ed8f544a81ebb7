//! [`CallClient`]: calls a service.

use super::by_name::{Directory, Named};
use super::calling::Calling;
use super::error::CallError;
use super::form::Form;
use super::line::Line;
use super::opening::{Reach, ToPeer};
use super::options::CallOptions;
use super::runtime_of;
use crate::proto::call::SERVICE_NAME_BYTES_MAX;
use crate::proto::cluster::NodeId;
use crate::sync::locked;
use chunkcomm::error::TypeRefused;
use chunkcomm::{Node, OpenError, Peer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Borrow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;

/// Calls the service of one name: at one peer ([`NodeExt::call_client`](crate::NodeExt::call_client)), or at any node of a cluster
/// that provides it ([`Cluster::call_client`](crate::Cluster::call_client)).
///
/// Any number of calls may be in flight. Clones share channels and cost a few counters. The first
/// call opens the channels. After they were lost, the next call opens them again; for that it
/// begins a new session at the peer's address, if that is known.
///
/// `Req` and `Resp` are compared with the service's types when the channels open.
pub struct CallClient<Req, Resp> {
    pub(super) inner: Arc<Inner<Resp>>,
    pub(super) timeout: Option<Duration>,
    types: PhantomData<fn(&Req)>,
}

pub(super) struct Inner<Resp> {
    pub(super) service: Arc<str>,
    pub(super) options: CallOptions,
    pub(super) form: Arc<Form>,
    pub(super) runtime: Handle,
    target: Target<Resp>,
}

/// The way of a client to its service.
pub(crate) enum Way {
    /// To one provider.
    One(Box<dyn Reach>),
    /// To all providers.
    Named(Arc<dyn Directory>),
}

impl Way {
    pub(crate) fn to(peer: &Peer) -> Way {
        Way::One(Box::new(ToPeer(Mutex::new(peer.clone()))))
    }
}

enum Target<Resp> {
    One(Arc<Line<Resp>>),
    Named(Mutex<Named<Resp>>),
}

impl<Req, Resp> Clone for CallClient<Req, Resp> {
    fn clone(&self) -> CallClient<Req, Resp> {
        let (inner, timeout) = (Arc::clone(&self.inner), self.timeout);
        CallClient { inner, timeout, types: PhantomData }
    }
}

impl<Req, Resp> fmt::Debug for CallClient<Req, Resp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallClient")
            .field("service", &self.inner.service)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// See [`NodeExt::call_client_with`](crate::NodeExt::call_client_with).
pub(crate) fn call_client_with<Req, Resp>(
    node: &Node,
    peer: &Peer,
    name: &str,
    options: CallOptions,
) -> Result<CallClient<Req, Resp>, OpenError>
where
    Req: Serialize + DeserializeOwned,
    Resp: Serialize + DeserializeOwned + Send + 'static,
{
    CallClient::new(node, name, options, Way::to(peer))
}

impl<Req, Resp> CallClient<Req, Resp> {
    /// Limits the wait for an answer, for calls of this client and of clones made of it. The time
    /// for opening and dialling counts; without limit by default. A timeout is reported up to a few
    /// milliseconds late.
    ///
    /// The limit travels with the call. A request that still waits for its turn then is not handled, and the
    /// calls that the handler makes inherit what is left ([`CallScope`](super::CallScope)). A call that is
    /// made within such a scope has the earlier of both limits.
    ///
    /// No clocks are compared: the service counts the limit from the time at which it reads the request. A
    /// request that it reads late, since it was stopped or the connection was cut, is not handled when the
    /// caller's cancellation has arrived by then, within 64 KiB of requests behind it.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> CallClient<Req, Resp> {
        self.timeout = Some(timeout);
        self
    }

    /// Returns the service's name.
    #[must_use]
    pub fn service(&self) -> &str {
        &self.inner.service
    }
}

impl<Req, Resp> CallClient<Req, Resp>
where
    Req: Serialize + DeserializeOwned,
    Resp: Serialize + DeserializeOwned + Send + 'static,
{
    /// Returns a client of a service of one function.
    pub(crate) fn new(
        node: &Node,
        name: &str,
        options: CallOptions,
        way: Way,
    ) -> Result<CallClient<Req, Resp>, OpenError> {
        let form = |schema: Option<&str>| Form::of::<Req, Resp>(name, schema);
        CallClient::with_form(node, name, options, form, way)
    }

    /// Returns a client of a service of a form, which `form` returns for the options' schema.
    pub(crate) fn with_form(
        node: &Node,
        name: &str,
        options: CallOptions,
        form: impl FnOnce(Option<&str>) -> Result<Form, TypeRefused>,
        way: Way,
    ) -> Result<CallClient<Req, Resp>, OpenError> {
        if name.is_empty() || name.len() > SERVICE_NAME_BYTES_MAX {
            return Err(OpenError::Name { bytes: name.len() });
        }
        let form = form(options.schema.as_deref()).map_err(OpenError::Type)?;
        let form = Arc::new(form);
        let service: Arc<str> = name.into();
        let target = match way {
            Way::One(reach) => Target::One(Line::new(&service, reach, &options, &form)),
            Way::Named(directory) => Target::Named(Mutex::new(Named::new(directory))),
        };
        let runtime = runtime_of(node);
        let inner = Arc::new(Inner { service, options, form, runtime, target });
        Ok(CallClient { inner, timeout: None, types: PhantomData })
    }

    /// Sends `request` and waits for its answer.
    ///
    /// The request is urgent: it leaves as soon as nothing else is runnable, with all others that
    /// were made meanwhile. Requests of one client arrive in the order in which their calls were
    /// first polled, and are handled concurrently.
    ///
    /// A client of one peer asks again while the peer does not serve the name yet, up to
    /// [`CallOptions::served_within`]; such calls arrive in any order. A service that has answered this
    /// client, and is gone, fails the call at once.
    ///
    /// # Errors
    ///
    /// See [`CallError`]: its variants separate the handler's errors from those of the service, of
    /// the link and of time. If [`CallError::was_not_handled`], the call may be made again without
    /// harm.
    ///
    /// # Cancel safety
    ///
    /// Dropped before its first poll, nothing was sent. Dropped later, the handler is stopped: its
    /// future is dropped, at the next place where it waits. Whether it was done before is unknown.
    pub fn call<'a>(&'a self, request: &'a Req) -> Calling<'a, Req, Resp> {
        self.call_function(0, request)
    }

    /// Calls the function with this index.
    pub(crate) fn call_function<R: Borrow<Req>>(
        &self,
        function: usize,
        request: R,
    ) -> Calling<'_, Req, Resp, R> {
        Calling::new(self, function, request)
    }

    /// Returns the line for a call, except those of the providers in `tried`.
    pub(super) fn line(
        &self,
        tried: &[NodeId],
    ) -> Result<(Option<NodeId>, Arc<Line<Resp>>), CallError> {
        let inner = &*self.inner;
        match &inner.target {
            Target::One(line) => Ok((None, Arc::clone(line))),
            Target::Named(named) => {
                let mut named = locked(named);
                let chosen = named.choose(&inner.service, &inner.options, &inner.form, tried);
                let Some((id, line)) = chosen else {
                    let (service, why) = (Arc::clone(&inner.service), named.why_nobody());
                    return Err(CallError::NoProvider { service, why });
                };
                Ok((Some(id), line))
            }
        }
    }

    pub(super) fn is_of_one(&self) -> bool {
        matches!(self.inner.target, Target::One(_))
    }

    /// Whether another provider is tried after this error.
    pub(super) fn goes_on_after(&self, error: &CallError) -> bool {
        let elsewhere = matches!(
            error,
            CallError::Overloaded { .. }
                | CallError::Closing { .. }
                | CallError::NoService { .. }
                | CallError::NoProvider { .. }
                | CallError::Unreachable(_)
                | CallError::Types(_)
                | CallError::Method { .. }
        );
        elsewhere && !self.is_of_one()
    }
}
