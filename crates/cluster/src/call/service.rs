//! [`Service`]: answers requests under a name.

use super::callers::{self, Callers};
use super::connection::serve;
use super::error::{ServeError, ServiceCloseError};
use super::form::Form;
use super::handling::{Handler, Launching, Outcome, Queued};
use super::options::ServiceOptions;
use super::runtime_of;
use crate::proto::call::serving::Serving;
use crate::proto::call::{CALLS_PREFIX, SERVICE_NAME_BYTES_MAX};
use crate::sync::locked;
use chunkcomm::Node;
use chunkcomm::error::TypeRefused;
use chunkcomm::host::{self, JoinHandle};
use chunkcomm::layer::{Expected, Layer as _, share_last_woken};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};

/// State shared by the parts of a service.
pub(super) struct Shared<Req, H: Handler<Req>> {
    pub(super) name: Arc<str>,
    pub(super) node: Node,
    pub(super) runtime: Handle,
    pub(super) form: Form,
    pub(super) handler: H,
    pub(super) indices: Indices<Req, H::Answer>,
    pub(super) parallel: bool,
    pub(super) serving: Mutex<Serving<Queued<Req>, AbortHandle>>,
    pub(super) launching: Mutex<Launching<Req>>,
    /// Notified when a closing service has nothing left.
    pub(super) over: Notify,
}

/// The functions of requests and answers, as their indices in the service's form.
pub(crate) struct Indices<Req, A> {
    pub(crate) of_request: fn(&Req) -> usize,
    pub(crate) of_answer: fn(&A) -> usize,
}

impl<Req, H: Handler<Req>> Shared<Req, H> {
    /// Returns the index of the function of a request; 0 for one that could not be decoded.
    pub(super) fn function_of(&self, request: &Outcome<Req>) -> usize {
        request.as_ref().map_or(0, self.indices.of_request)
    }
}

/// A service without its types, as its handle sees it.
trait Served: Send + Sync {
    fn stats(&self) -> ServiceStats;
    fn method_stats(&self) -> Vec<MethodStats>;
    fn close(&self);
    fn is_over(&self) -> bool;
    fn over(&self) -> &Notify;
}

impl<Req: Send + 'static, H: Handler<Req>> callers::Served for Shared<Req, H> {
    fn report(&self) -> (String, ServiceStats) {
        (self.name.to_string(), self.stats())
    }
}

impl<Req: Send + 'static, H: Handler<Req>> Served for Shared<Req, H> {
    fn stats(&self) -> ServiceStats {
        let serving = locked(&self.serving);
        let (at_once, waiting) = (serving.at_once(), serving.waiting());
        serving.counters().iter().fold(
            ServiceStats { at_once, waiting, ..ServiceStats::default() },
            |all, it| ServiceStats {
                requests: all.requests + it.requests,
                overloaded: all.overloaded + it.overloaded,
                cancelled: all.cancelled + it.cancelled,
                expired: all.expired + it.expired,
                ..all
            },
        )
    }

    fn method_stats(&self) -> Vec<MethodStats> {
        let serving = locked(&self.serving);
        let counters = serving.counters().iter().enumerate();
        let stats = counters.map(|(index, &it)| MethodStats {
            name: Arc::clone(&self.form.function(index).name),
            requests: it.requests,
            overloaded: it.overloaded,
            cancelled: it.cancelled,
            expired: it.expired,
        });
        stats.collect()
    }

    fn close(&self) {
        locked(&self.serving).close();
    }

    fn is_over(&self) -> bool {
        locked(&self.serving).is_over()
    }

    fn over(&self) -> &Notify {
        &self.over
    }
}

/// Counters of a service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServiceStats {
    /// Requests that came, without those that could not be decoded.
    pub requests: u64,
    /// Of these, refused because too many waited.
    pub overloaded: u64,
    /// Of these, cancelled before their turn or while they were handled.
    pub cancelled: u64,
    /// Of these, not handled: their deadline passed before their turn.
    pub expired: u64,
    /// Requests in handling now.
    pub at_once: usize,
    /// Requests waiting for their turn now.
    pub waiting: usize,
}

/// Counters of one method of a service; those of a service without methods have its name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MethodStats {
    /// The names of the service and the method: `Store.get`.
    pub name: Arc<str>,
    /// Requests that came, as in [`ServiceStats`].
    pub requests: u64,
    /// Of these, refused because too many waited.
    pub overloaded: u64,
    /// Of these, cancelled.
    pub cancelled: u64,
    /// Of these, not handled: their deadline passed before their turn.
    pub expired: u64,
}

/// A service of a node: it answers until it is closed or dropped.
///
/// Dropped, it ends at once: its handlers are dropped, and every waiting caller gets
/// [`CallError::Ended`](super::CallError::Ended).
///
/// Before its node [closes](Node::close), the answers of handlers that have returned leave. Handlers that still
/// run, and requests that wait, are dropped: [`Service::close`] lets them be answered before.
#[must_use = "a service ends when it is dropped"]
pub struct Service {
    name: Arc<str>,
    node: Node,
    served: Arc<dyn Served>,
    stop: watch::Sender<bool>,
    accepting: JoinHandle<()>,
    /// Work to be done before the service closes.
    withdraw: Option<Box<dyn FnOnce() + Send + Sync>>,
    /// The name of its channels; none once it is free again, and may be another service's.
    expected: Option<Arc<Expected>>,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("name", &self.name)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

/// See [`NodeExt::serve_with`](crate::NodeExt::serve_with).
pub(crate) fn serve_with<Req, Resp, E, F, Fut>(
    node: &Node,
    name: &str,
    options: ServiceOptions,
    handler: F,
) -> Result<Service, ServeError>
where
    Req: Serialize + DeserializeOwned + Send + 'static,
    Resp: Serialize + DeserializeOwned + Send + 'static,
    E: fmt::Display + 'static,
    F: Fn(Req) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Resp, E>> + Send + 'static,
{
    let form = |schema: Option<&str>| Form::of::<Req, Resp>(name, schema);
    let indices = Indices { of_request: |_| 0, of_answer: |_| 0 };
    serve_form(node, name, options, form, indices, handler)
}

/// Answers requests of a form, which `form` returns for the options' schema.
pub(crate) fn serve_form<Req, H>(
    node: &Node,
    name: &str,
    options: ServiceOptions,
    form: impl FnOnce(Option<&str>) -> Result<Form, TypeRefused>,
    indices: Indices<Req, H::Answer>,
    handler: H,
) -> Result<Service, ServeError>
where
    Req: DeserializeOwned + Send + 'static,
    H: Handler<Req>,
{
    let ServiceOptions { at_once, waiting, parallel, schema } = options;
    if name.is_empty() || name.len() > SERVICE_NAME_BYTES_MAX {
        return Err(ServeError::Name { bytes: name.len() });
    }
    let form = form(schema.as_deref()).map_err(ServeError::Type)?;
    // From now on the node has the layer that holds the requests.
    let callers = Callers::of(node);
    let Some(expected) = Expected::begin(node, duplex(name)) else {
        return Err(ServeError::Taken { name: name.to_owned() });
    };
    let functions = form.functions();
    let (name, expected): (Arc<str>, _) = (name.into(), Arc::new(expected));
    let shared = Arc::new(Shared {
        name: Arc::clone(&name),
        node: node.clone(),
        runtime: runtime_of(node),
        form,
        handler,
        indices,
        parallel,
        serving: Mutex::new(Serving::new(at_once, waiting, functions)),
        launching: Mutex::default(),
        over: Notify::new(),
    });
    let served: Arc<dyn callers::Served> = Arc::clone(&shared) as _;
    callers.add_service(Arc::downgrade(&served));
    let (stop, stopped) = watch::channel(false);
    let accepting = accept_all(Arc::clone(&shared), Arc::clone(&expected), stopped);
    let accepting = host::spawn_on(&shared.runtime, accepting);
    share_last_woken();
    let (node, served) = (node.clone(), shared);
    Ok(Service { name, node, served, stop, accepting, withdraw: None, expected: Some(expected) })
}

/// Returns the name of the duplexes that carry requests to a service, and its answers.
pub(super) fn duplex(service: &str) -> String {
    format!("{CALLS_PREFIX}{service}")
}

/// Takes clients until the service stops, then waits for the present ones. Dropped, it drops them.
async fn accept_all<Req, H>(
    shared: Arc<Shared<Req, H>>,
    expected: Arc<Expected>,
    stopped: watch::Receiver<bool>,
) where
    Req: DeserializeOwned + Send + 'static,
    H: Handler<Req>,
{
    let (mut clients, mut last) = (JoinSet::new(), 0);
    let mut stop = stopped.clone();
    loop {
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            Some(_) = clients.join_next() => {}
            opened = expected.take() => {
                // The node is closed.
                let Ok(opened) = opened else { break };
                last += 1;
                let (shared, expected) = (Arc::clone(&shared), Arc::clone(&expected));
                clients.spawn(host::here(serve(shared, last, opened, expected, stopped.clone())));
            }
        }
    }
    while clients.join_next().await.is_some() {}
}

impl Service {
    /// Returns the service's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the service's counters so far.
    #[must_use]
    pub fn stats(&self) -> ServiceStats {
        self.served.stats()
    }

    /// Returns the counters so far of each method, in the order of the trait.
    #[must_use]
    pub fn method_stats(&self) -> Vec<MethodStats> {
        self.served.method_stats()
    }

    /// Adds work that is done before the service closes or is dropped.
    pub(crate) fn withdrawing(mut self, what: impl FnOnce() + Send + Sync + 'static) -> Service {
        self.withdraw = Some(Box::new(what));
        self
    }

    /// Ends the service in order: new clients and requests are refused; requests in handling or
    /// waiting are answered. Returns when the clients have the answers.
    ///
    /// # Errors
    ///
    /// After `deadline` the rest is cut off, as if the service had been dropped; the error
    /// counts it.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the service ends at once.
    pub async fn close(mut self, deadline: Duration) -> Result<(), ServiceCloseError> {
        self.retire();
        let runtime = self.node.runtime().clone();
        let ended = host::timeout_on(&runtime, deadline, self.end());
        if ended.await.is_ok() {
            return Ok(());
        }
        let ServiceStats { at_once, waiting, .. } = self.stats();
        Err(ServiceCloseError { service: Arc::clone(&self.name), handled: at_once, waiting })
    }

    /// Stops taking new clients, and frees the name.
    fn retire(&mut self) {
        let Some(expected) = self.expected.take() else { return };
        if let Some(withdraw) = self.withdraw.take() {
            withdraw();
        }
        self.served.close();
        expected.end();
    }

    async fn end(&mut self) {
        loop {
            let over = self.served.over().notified();
            if self.served.is_over() {
                break;
            }
            over.await;
        }
        self.stop.send_replace(true);
        // The only failure is a panic, which the runtime has reported.
        let _ = (&mut self.accepting).await;
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.retire();
        self.accepting.abort();
    }
}
