//! Services of a cluster, found by name.

use super::{Cluster, End, NameError, NodeId, State, WeakCluster};
use crate::call::{
    CallClient, CallError, CallOptions, Directory, Reach, ServeError, Service, ServiceOptions, Way,
    serve_with,
};
use chunkcomm::layer::Link;
use chunkcomm::{ConnectError, Loss, LossKind, Node, OpenError, Peer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::watch;

impl Cluster {
    /// Answers requests under `name`, which every member then finds by [`Cluster::call_client`].
    ///
    /// It serves as [`NodeExt::serve`](crate::NodeExt::serve) does, and
    /// [provides](Cluster::provide) the name. Several nodes may serve the same name.
    ///
    /// # Errors
    ///
    /// [`NameError::Serve`], as [`NodeExt::serve`](crate::NodeExt::serve); those of [`Cluster::provide`].
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, there is no service. The name may stay provided until
    /// [`Cluster::withdraw`].
    pub async fn serve<Req, Resp, E, F, Fut>(
        &self,
        name: &str,
        options: ServiceOptions,
        handler: F,
    ) -> Result<Service, NameError>
    where
        Req: Serialize + DeserializeOwned + Send + 'static,
        Resp: Serialize + DeserializeOwned + Send + 'static,
        E: fmt::Display + 'static,
        F: Fn(Req) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Resp, E>> + Send + 'static,
    {
        let service = serve_with(self.node(), name, options, handler);
        self.providing(name, service).await
    }

    /// Provides the name of a service that has begun, as long as it serves.
    pub(crate) async fn providing(
        &self,
        name: &str,
        service: Result<Service, ServeError>,
    ) -> Result<Service, NameError> {
        let service = service.map_err(NameError::Serve)?;
        self.provide(name).await?;
        let (state, name) = (Arc::clone(&self.shared.state), name.to_owned());
        Ok(service.withdrawing(move || state.change(|it| it.withdraw(&name))))
    }

    /// Returns a client of the service `name`, at all of its providers.
    ///
    /// Each call goes to the provider with the fewest of this client's calls in flight; equal
    /// providers take turns. A provider that refuses a call, or cannot be reached, is passed over.
    /// A dead provider is not asked. Without any provider a call fails at once;
    /// [`Cluster::provider`] waits for one. The client counts as a clone of this [`Cluster`].
    ///
    /// # Errors
    ///
    /// As [`NodeExt::call_client`](crate::NodeExt::call_client).
    pub fn call_client<Req, Resp>(&self, name: &str) -> Result<CallClient<Req, Resp>, OpenError>
    where
        Req: Serialize + DeserializeOwned,
        Resp: Serialize + DeserializeOwned + Send + 'static,
    {
        self.call_client_with(name, CallOptions::default())
    }

    /// Returns a client as [`Cluster::call_client`], with options.
    ///
    /// # Errors
    ///
    /// As [`Cluster::call_client`].
    pub fn call_client_with<Req, Resp>(
        &self,
        name: &str,
        options: CallOptions,
    ) -> Result<CallClient<Req, Resp>, OpenError>
    where
        Req: Serialize + DeserializeOwned,
        Resp: Serialize + DeserializeOwned + Send + 'static,
    {
        CallClient::new(self.node(), name, options, self.any_provider())
    }

    /// Returns the way of a client to all providers of a service.
    pub(crate) fn any_provider(&self) -> Way {
        Way::Named(Arc::new(Names(self.clone())))
    }

    /// Returns a client of the service `name` at the node of this rank.
    ///
    /// The name need not be [provided](Cluster::provide) in the cluster.
    ///
    /// # Errors
    ///
    /// As [`Cluster::peer`], and as [`NodeExt::call_client`](crate::NodeExt::call_client).
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn call_client_at<Req, Resp>(
        &self,
        rank: u32,
        name: &str,
    ) -> Result<CallClient<Req, Resp>, CallError>
    where
        Req: Serialize + DeserializeOwned,
        Resp: Serialize + DeserializeOwned + Send + 'static,
    {
        let peer = self.peer(rank).await.map_err(|loss| unreachable(name, &loss))?;
        let id = NodeId { rank, incarnation: peer.incarnation() };
        let cluster = self.downgrade();
        let reach =
            Box::new(ToMember { cluster, node: self.node().clone(), id, service: name.into() });
        let client = CallClient::new(self.node(), name, CallOptions::default(), Way::One(reach));
        client.map_err(CallError::Unreachable)
    }
}

/// Directory of the providers that the manager has announced.
struct Names(Cluster);

impl Names {
    fn state(&self) -> &State {
        &self.0.shared.state
    }
}

impl Directory for Names {
    fn providers(&self, service: &str) -> Vec<NodeId> {
        self.0.providers(service)
    }

    fn changed(&self) -> watch::Receiver<()> {
        self.state().changed.subscribe()
    }

    fn reach(&self, provider: NodeId, service: &str) -> Box<dyn Reach> {
        let (cluster, node) = (self.0.downgrade(), self.0.node().clone());
        Box::new(ToMember { cluster, node, id: provider, service: service.to_owned() })
    }

    fn ended(&self) -> Option<String> {
        self.0.ended().map(|end| end.to_string())
    }
}

/// A member by its rank and incarnation.
struct ToMember {
    /// Dials the member; without it only an existing session is used.
    cluster: WeakCluster,
    node: Node,
    id: NodeId,
    service: String,
}

impl Reach for ToMember {
    fn at_hand(&self) -> Option<Peer> {
        Link::with(&self.node, self.id.incarnation).map(|link| link.peer(&self.node))
    }

    fn dial(&self) -> Pin<Box<dyn Future<Output = Result<Peer, CallError>> + Send + '_>> {
        Box::pin(async {
            let ToMember { cluster, id, service, .. } = self;
            let peer = match cluster.upgrade() {
                Some(cluster) => cluster.peer_of(*id).await,
                None => Err(Loss::of(LossKind::Left, End::Left)),
            };
            peer.map_err(|loss| unreachable(service, &loss))
        })
    }
}

fn unreachable(service: &str, loss: &Loss) -> CallError {
    match loss.cause::<ConnectError>() {
        Some(cause) => CallError::Unreachable(OpenError::Connect(cause.clone())),
        None => CallError::NoProvider { service: service.into(), why: Some(loss.words()) },
    }
}
