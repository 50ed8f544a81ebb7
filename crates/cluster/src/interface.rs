//! The parts that code written by the attribute `service` is made of. Programs name none of
//! them.

#[cfg(feature = "tower")]
mod layered;

pub use crate::call::MethodTypes;
pub use crate::call::{
    CallError, CallOptions, Called, Method, ServeError, Service, ServiceOptions,
};
pub use crate::cluster::{Cluster, NameError};
pub use chunkcomm::{Node, OpenError, Peer};
#[cfg(feature = "tower")]
pub use layered::{CallHandler, CallService, Handling, Layer, LayeredServer};
pub use serde;
pub use std::convert::Infallible;
pub use std::future::Future;

use crate::call::{CallClient, Calling, Form, Indices, Way, serve_form};
use chunkcomm::error::TypeRefused;
use chunkcomm::layer::Fingerprint;
use serde::de::{DeserializeOwned, Error as _, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeTuple as _};
use serde::{Deserialize, Deserializer, Serializer};
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// A request to any method of a service, or an answer: an enum with a variant for each.
pub trait Word: Sized {
    /// Returns the index of its method in the trait.
    fn index(&self) -> usize;

    /// Reads the value of the method with this number.
    ///
    /// # Errors
    ///
    /// There is no such method, or it is no value of it.
    fn read<'de, A: SeqAccess<'de>>(id: u32, rest: &mut A) -> Result<Self, A::Error>;
}

/// The requests of a service.
pub trait Interface: Word + Serialize + DeserializeOwned + Send + 'static {
    /// The answers.
    type Answer: Word + Serialize + DeserializeOwned + Send + 'static;

    /// The service's name, unless another one is given.
    const NAME: &'static str;

    /// The methods.
    const METHODS: &'static [Method];

    /// The types of each method.
    const TYPES: &'static [MethodTypes];
}

/// A handler of the requests of a service.
pub trait Handles<I: Interface>: Fn(I) -> Self::Running + Send + Sync + 'static {
    /// The future of an answer. A method's own error is part of the answer.
    type Running: Future<Output = Result<I::Answer, Infallible>> + Send + 'static;
}

impl<I, F, Fut> Handles<I> for F
where
    I: Interface,
    F: Fn(I) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<I::Answer, Infallible>> + Send + 'static,
{
    type Running = Fut;
}

/// Serves at a node.
///
/// # Errors
///
/// As [`NodeExt::serve`](crate::NodeExt::serve).
pub fn serve<I: Interface>(
    node: &Node,
    name: &str,
    options: ServiceOptions,
    handler: impl Handles<I>,
) -> Result<Service, ServeError> {
    let form = |schema: Option<&str>| Form::of_methods(name, I::METHODS, I::TYPES, schema);
    let indices = Indices { of_request: I::index, of_answer: I::Answer::index };
    serve_form(node, name, options, form, indices, handler)
}

/// Serves at a node and provides the name in its cluster.
///
/// # Errors
///
/// As [`Cluster::serve`].
///
/// # Cancel safety
///
/// As [`Cluster::serve`].
pub async fn serve_in<I: Interface>(
    cluster: &Cluster,
    name: &str,
    options: ServiceOptions,
    handler: impl Handles<I>,
) -> Result<Service, NameError> {
    cluster.providing(name, serve(cluster.node(), name, options, handler)).await
}

/// Calls the methods of a service.
pub struct Client<I: Interface> {
    calls: CallClient<I, I::Answer>,
}

impl<I: Interface> Clone for Client<I> {
    fn clone(&self) -> Client<I> {
        Client { calls: self.calls.clone() }
    }
}

impl<I: Interface> fmt::Debug for Client<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.calls.fmt(f)
    }
}

impl<I: Interface> Client<I> {
    /// Returns a client of the service of a peer.
    ///
    /// # Errors
    ///
    /// As [`NodeExt::call_client`](crate::NodeExt::call_client).
    pub fn at(
        node: &Node,
        peer: &Peer,
        name: &str,
        options: CallOptions,
    ) -> Result<Client<I>, OpenError> {
        Client::new(node, name, options, Way::to(peer))
    }

    /// Returns a client of all services of the name in the cluster.
    ///
    /// # Errors
    ///
    /// As [`Cluster::call_client`].
    pub fn in_cluster(
        cluster: &Cluster,
        name: &str,
        options: CallOptions,
    ) -> Result<Client<I>, OpenError> {
        Client::new(cluster.node(), name, options, cluster.any_provider())
    }

    fn new(
        node: &Node,
        name: &str,
        options: CallOptions,
        way: Way,
    ) -> Result<Client<I>, OpenError> {
        let form = |schema: Option<&str>| Form::of_methods(name, I::METHODS, I::TYPES, schema);
        let calls = CallClient::with_form(node, name, options, form, way)?;
        Ok(Client { calls })
    }

    /// Sets the limit of a wait.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Client<I> {
        Client { calls: self.calls.timeout(timeout) }
    }

    /// Calls the method of a request; `answer` takes its result out of the answer, and returns `None` for an
    /// answer to another method.
    ///
    /// # Errors
    ///
    /// As [`CallClient::call`].
    ///
    /// # Cancel safety
    ///
    /// As [`CallClient::call`].
    #[inline]
    pub fn call<T, E, F>(&self, request: I, answer: F) -> Asking<'_, I, F>
    where
        F: Fn(I::Answer) -> Option<Result<T, E>>,
        E: From<CallError>,
    {
        Asking { calling: self.calls.call_function(request.index(), request), answer }
    }
}

/// The call of a method.
pub struct Asking<'a, I: Interface, F> {
    calling: Calling<'a, I, I::Answer, I>,
    answer: F,
}

impl<I: Interface, F> Unpin for Asking<'_, I, F> {}

impl<I: Interface, F> fmt::Debug for Asking<'_, I, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.calling.fmt(f)
    }
}

impl<I, T, E, F> Future for Asking<'_, I, F>
where
    I: Interface,
    F: Fn(I::Answer) -> Option<Result<T, E>>,
    E: From<CallError>,
{
    type Output = Result<T, E>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T, E>> {
        let this = &mut *self;
        let answer = ready!(Pin::new(&mut this.calling).poll(context))?;
        let result = (this.answer)(answer);
        Poll::Ready(result.unwrap_or_else(|| Err(this.calling.wrong_answer().into())))
    }
}

/// A type of an argument or of the result of a method. All types with serde's `Serialize` and `Deserialize` are
/// such, if they borrow nothing.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument or the result of a service's method",
    label = "a method with this type cannot be called from elsewhere",
    note = "the type must implement serde's `Serialize` and `Deserialize`, which can be derived, and own \
            its data; the error of a `Result` travels as well",
    note = "a stream is a `TravellingReceiver`"
)]
pub trait Travels: Serialize + DeserializeOwned + Send + 'static {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned + Send + 'static> Travels for T {}

/// Returns the fingerprint of a type, or of the schema that stands for it.
///
/// # Errors
///
/// Values of the type cannot be sent.
pub fn type_of<T: Travels>(schema: Option<&str>) -> Result<Fingerprint, TypeRefused> {
    Fingerprint::of::<T>(schema)
}

/// Writes a word.
///
/// # Errors
///
/// The serializer's.
#[inline]
pub fn put<T: Serialize, S: Serializer>(id: u32, value: &T, to: S) -> Result<S::Ok, S::Error> {
    let mut pair = to.serialize_tuple(2)?;
    pair.serialize_element(&id)?;
    pair.serialize_element(value)?;
    pair.end()
}

/// Reads a word.
///
/// # Errors
///
/// The deserializer's.
#[inline]
pub fn take<'de, W: Word, D: Deserializer<'de>>(from: D) -> Result<W, D::Error> {
    struct Pair<W>(PhantomData<W>);

    impl<'de, W: Word> Visitor<'de> for Pair<W> {
        type Value = W;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a method's number and its value")
        }

        #[inline]
        fn visit_seq<A: SeqAccess<'de>>(self, mut pair: A) -> Result<W, A::Error> {
            let id = next(&mut pair)?;
            W::read(id, &mut pair)
        }
    }

    from.deserialize_tuple(2, Pair(PhantomData))
}

/// Reads the next part of a word.
///
/// # Errors
///
/// The deserializer's.
#[inline]
pub fn next<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(from: &mut A) -> Result<T, A::Error> {
    from.next_element()?.ok_or_else(|| A::Error::custom("it ends too early"))
}

/// Returns the error of a number that no method has.
#[cold]
pub fn no_method<E: serde::de::Error>() -> E {
    E::custom("no method has this number")
}

/// Expands to its input if this crate has the feature `tower`, which `service` cannot see.
#[cfg(feature = "tower")]
#[doc(hidden)]
#[macro_export]
macro_rules! __with_tower {
    ($($item:item)*) => { $($item)* };
}

/// Expands to nothing, as this crate is without the feature `tower`.
#[cfg(not(feature = "tower"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __with_tower {
    ($($item:item)*) => {};
}
