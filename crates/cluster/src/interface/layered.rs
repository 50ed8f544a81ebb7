//! The parts of code for the crate `tower`.

use super::{
    Cluster, Form, Handles, Indices, Interface, Method, NameError, Node, ServeError, Service,
    ServiceOptions, Word as _, serve_form,
};
use crate::call::middleware::Layered;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Mutex;

pub use crate::call::middleware::{CallHandler, CallService, Handling};
pub use tower::Layer;

/// A server with layers.
pub struct LayeredServer<I, S> {
    name: String,
    options: ServiceOptions,
    layers: S,
    interface: PhantomData<fn(I)>,
}

impl<I, S> fmt::Debug for LayeredServer<I, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayeredServer").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<I: Interface, S: Handling<I, I::Answer>> LayeredServer<I, S> {
    /// Returns a server of a handler within a layer.
    pub fn new<L>(
        name: String,
        options: ServiceOptions,
        layer: &L,
        handler: impl Handles<I>,
    ) -> LayeredServer<I, S>
    where
        L: Layer<CallHandler<I, I::Answer>, Service = S>,
    {
        let layers = layer.layer(CallHandler::new(handler));
        LayeredServer { name, options, layers, interface: PhantomData }
    }

    /// Answers the calls of any peer of `node`, until the result is closed or dropped.
    ///
    /// # Errors
    ///
    /// As [`NodeExt::serve`](crate::NodeExt::serve).
    pub fn serve(self, node: &Node) -> Result<Service, ServeError> {
        let LayeredServer { name, options, layers, .. } = self;
        let form = |schema: Option<&str>| Form::of_methods(&name, I::METHODS, I::TYPES, schema);
        let indices = Indices { of_request: I::index, of_answer: I::Answer::index };
        let method = |request: &I| I::METHODS.get(request.index()).map(Method::name);
        let handler = Layered { service: (&*name).into(), method, layers: Mutex::new(layers) };
        serve_form(node, &name, options, form, indices, handler)
    }

    /// Serves as `serve` does, and lets every member of the cluster find it by its name.
    ///
    /// # Errors
    ///
    /// As [`Cluster::serve`].
    ///
    /// # Cancel safety
    ///
    /// As [`Cluster::serve`].
    pub async fn serve_in(self, cluster: &Cluster) -> Result<Service, NameError> {
        let name = self.name.clone();
        cluster.providing(&name, self.serve(cluster.node())).await
    }
}
