//! The methods that this crate adds to nodes, their builders and senders.

use crate::call::{CallClient, CallOptions, Callers, ServeError, Service, ServiceOptions};
use crate::moving::MovingLayer;
use crate::moving::ends::{self, Arriving, Departing, TravellingReceiver, TravellingSender};
use crate::moving::error::{HandOverError, TravelError};
use crate::moving::value::{self, Value, ValueReader, ValueSource, ValueWriter};
use crate::process::{Process, ProcessError, ProcessHandle};
use crate::registry::Registry;
use crate::report::{CallsReport, MovingReport};
use chunkcomm::layer::Layer as _;
use chunkcomm::{Lane, Node, NodeBuilder, OpenError, Peer, Sender};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Borrow;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

mod sealed {
    pub trait Sealed {}

    impl Sealed for chunkcomm::Node {}
    impl Sealed for chunkcomm::NodeBuilder {}
    impl<T> Sealed for chunkcomm::Sender<T> {}
}

/// Calls, processes and channel ends that travel, as methods of a [`Node`].
pub trait NodeExt: sealed::Sealed + Borrow<Node> {
    /// Answers requests under `name` with `handler`: any peer of this node may call.
    ///
    /// `handler` gets a request and returns a future of its answer. The future is dropped when its
    /// caller does not wait any more: the call was dropped or timed out, or the client or the link
    /// is gone. An error is sent as its text; a panic is caught, and its message sent.
    ///
    /// The tasks run on the current runtime, else on that of the node.
    ///
    /// # Errors
    ///
    /// The name is empty or longer than 240 bytes, or taken, or values of a type cannot be
    /// sent.
    ///
    /// ```
    /// use chunkcomm::Node;
    /// use chunkcomm_cluster::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = Node::builder().listen("127.0.0.1:0".parse()?).build().await?;
    /// let _service = server.serve("length", |text: String| async move {
    ///     if text.is_empty() { Err("it is empty") } else { Ok(text.len() as u64) }
    /// })?;
    ///
    /// # let client = Node::builder().build().await?;
    /// # let peer = client.connect(&server.addresses()[0]).await?;
    /// let length = client.call_client::<String, u64>(&peer, "length")?;
    /// assert_eq!(length.call(&"four".to_owned()).await?, 4);
    /// assert!(length.call(&String::new()).await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    fn serve<Req, Resp, E, F, Fut>(&self, name: &str, handler: F) -> Result<Service, ServeError>
    where
        Req: Serialize + DeserializeOwned + Send + 'static,
        Resp: Serialize + DeserializeOwned + Send + 'static,
        E: fmt::Display + 'static,
        F: Fn(Req) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Resp, E>> + Send + 'static,
    {
        self.serve_with(name, ServiceOptions::default(), handler)
    }

    /// As [`NodeExt::serve`], with options.
    ///
    /// # Errors
    ///
    /// As [`NodeExt::serve`].
    fn serve_with<Req, Resp, E, F, Fut>(
        &self,
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
        crate::call::serve_with(self.borrow(), name, options, handler)
    }

    /// As [`NodeExt::serve_with`], within a layer of the crate `tower`: see
    /// [`call::middleware`](crate::call::middleware). Layers that are not `Clone` stand within a buffer.
    ///
    /// # Errors
    ///
    /// As [`NodeExt::serve`].
    #[cfg(feature = "tower")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tower")))]
    fn serve_layered<Req, Resp, E, F, Fut, L>(
        &self,
        name: &str,
        options: ServiceOptions,
        layer: &L,
        handler: F,
    ) -> Result<Service, ServeError>
    where
        Req: Serialize + DeserializeOwned + Send + 'static,
        Resp: Serialize + DeserializeOwned + Send + 'static,
        E: fmt::Display + 'static,
        F: Fn(Req) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Resp, E>> + Send + 'static,
        L: tower::Layer<
                crate::call::middleware::CallHandler<Req, Resp>,
                Service: crate::call::middleware::Handling<Req, Resp>,
            >,
    {
        crate::call::middleware::serve_layered(self.borrow(), name, options, layer, handler)
    }

    /// Returns a client of the service `name` of `peer`. Nothing is sent before its first call.
    ///
    /// # Errors
    ///
    /// The name is empty or longer than 240 bytes, or values of a type cannot be sent. The first
    /// call reports whether the peer has the service, with these types.
    ///
    /// ```
    /// use chunkcomm::Node;
    /// use chunkcomm_cluster::prelude::*;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = Node::builder().listen("127.0.0.1:0".parse()?).build().await?;
    /// # let _service = server.serve("root", |x: f64| async move { Ok::<_, String>(x.sqrt()) })?;
    /// # let client = Node::builder().build().await?;
    /// let peer = client.connect(&server.addresses()[0]).await?;
    /// let root = client.call_client::<f64, f64>(&peer, "root")?.timeout(Duration::from_secs(5));
    /// // Two calls are in flight at a time.
    /// let (nine, four) = tokio::join!(root.call(&9.0), root.call(&4.0));
    /// assert_eq!((nine?, four?), (3.0, 2.0));
    /// # Ok(())
    /// # }
    /// ```
    fn call_client<Req, Resp>(
        &self,
        peer: &Peer,
        name: &str,
    ) -> Result<CallClient<Req, Resp>, OpenError>
    where
        Req: Serialize + DeserializeOwned,
        Resp: Serialize + DeserializeOwned + Send + 'static,
    {
        self.call_client_with(peer, name, CallOptions::default())
    }

    /// As [`NodeExt::call_client`], with options.
    ///
    /// # Errors
    ///
    /// As [`NodeExt::call_client`].
    fn call_client_with<Req, Resp>(
        &self,
        peer: &Peer,
        name: &str,
        options: CallOptions,
    ) -> Result<CallClient<Req, Resp>, OpenError>
    where
        Req: Serialize + DeserializeOwned,
        Resp: Serialize + DeserializeOwned + Send + 'static,
    {
        crate::call::call_client_with(self.borrow(), peer, name, options)
    }

    /// Makes a sending end to hand over, and the end where its values arrive here. Costs no
    /// message.
    ///
    /// # Errors
    ///
    /// - [`TravelError::Open`]: values of the type cannot be sent.
    /// - [`TravelError::System`]: the system gave no random numbers.
    fn travelling_sender<T>(&self) -> Result<(TravellingSender<T>, Arriving<T>), TravelError>
    where
        T: Serialize + DeserializeOwned,
    {
        ends::travelling_sender(self.borrow(), Lane::Bulk)
    }

    /// Makes a receiving end to hand over, and the end that sends to it from here. Costs no
    /// message.
    ///
    /// # Errors
    ///
    /// - [`TravelError::Open`]: values of the type cannot be sent.
    /// - [`TravelError::System`]: the system gave no random numbers.
    fn travelling_receiver<T>(&self) -> Result<(TravellingReceiver<T>, Departing<T>), TravelError>
    where
        T: Serialize + DeserializeOwned,
    {
        ends::travelling_receiver(self.borrow(), Lane::Bulk)
    }

    /// Makes a value that is read here, and its writer to hand over. Costs no message.
    ///
    /// # Errors
    ///
    /// - [`TravelError::Open`]: values of the type cannot be sent.
    /// - [`TravelError::System`]: the system gave no random numbers.
    fn value<T>(&self) -> Result<(ValueWriter<T>, Value<T>), TravelError>
    where
        T: Serialize + DeserializeOwned,
    {
        value::value(self.borrow())
    }

    /// Makes a value that is written here, and its reading side to hand over. Costs no message.
    ///
    /// # Errors
    ///
    /// As [`NodeExt::value`].
    fn value_reader<T>(&self) -> Result<(ValueReader<T>, ValueSource<T>), TravelError>
    where
        T: Serialize + DeserializeOwned,
    {
        value::value_reader(self.borrow())
    }

    /// Asks `peer` to run a process with this input, whose ends move there. Sends one message,
    /// which leaves at once; does not wait until the process has begun. Waits while inputs of 4
    /// MiB, or 65,536 words, wait to be taken by the peer.
    ///
    /// # Errors
    ///
    /// - [`ProcessError::Unsent`]: the input cannot be encoded, or is larger than the peer takes.
    /// - [`ProcessError::Unreachable`]: the session has ended and cannot be begun again.
    ///
    /// The handle reports whether the peer has the process.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, no process was asked for; the input is dropped with its ends.
    fn instantiate<I>(
        &self,
        peer: &Peer,
        process: &Process<I>,
        input: I,
    ) -> impl Future<Output = Result<ProcessHandle, ProcessError>>
    where
        I: Serialize + DeserializeOwned,
    {
        crate::process::instantiate(self.borrow(), peer, process, input)
    }

    /// Returns the calls that this node made and that have no answer yet.
    fn calls_in_flight(&self) -> Vec<CallsReport> {
        Callers::started(self.borrow()).map(|it| it.report()).unwrap_or_default()
    }

    /// Returns how many channel ends and processes this node answers for or waits for.
    fn moving_report(&self) -> MovingReport {
        MovingLayer::started(self.borrow()).map(|it| it.report()).unwrap_or_default()
    }
}

impl NodeExt for Node {}

/// Processes, as a setting of a [`NodeBuilder`].
pub trait NodeBuilderExt: sealed::Sealed {
    /// Runs the processes of this registry for peers that ask for them, on the runtime in which
    /// the node is built; see [`crate::process`]. By default the node runs none.
    #[must_use]
    fn processes(self, registry: &Registry) -> Self;
}

impl NodeBuilderExt for NodeBuilder {
    fn processes(mut self, registry: &Registry) -> NodeBuilder {
        MovingLayer::settings(&mut self).registry = Some(Arc::new(registry.clone()));
        self
    }
}

/// Messages with channel ends in them, as a method of a [`Sender`].
pub trait SenderExt<T>: sealed::Sealed {
    /// As `send`, for a value with channel ends in it, which move with it: [`TravellingSender`],
    /// [`TravellingReceiver`], [`ValueWriter`], [`ValueReader`].
    ///
    /// # Errors
    ///
    /// As `send`; the value comes back with its ends.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, nothing was accepted. The value is dropped with its ends, and
    /// their other ends learn that.
    fn hand_over(&mut self, value: T) -> impl Future<Output = Result<(), HandOverError<T>>>;
}

impl<T: Serialize> SenderExt<T> for Sender<T> {
    async fn hand_over(&mut self, value: T) -> Result<(), HandOverError<T>> {
        ends::hand_over(self, value).await
    }
}
