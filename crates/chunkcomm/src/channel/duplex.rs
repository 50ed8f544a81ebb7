//! [`Duplex`]: two channels of values that are opened, accepted, polled and ended as one.

use super::calls::{calls_of_every_duplex, calls_of_every_sink};
use super::receiver::{Receiver, Receiving};
use super::sender::{Sender, Sending};
use crate::error::{CloseError, RecvError, SendError, TryRecvError, TrySendError};
use crate::node::Peer;
use crate::stats::{ChannelStats, ReceivingStats};
use futures_core::Stream;
use futures_sink::Sink;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Sends values of `Out` to one peer and receives values of `In` from it, each in order.
///
/// [`Node::open_duplex`](crate::Node::open_duplex) makes one end,
/// [`Node::accept_duplex`](crate::Node::accept_duplex) the other. The opener may send at once: the
/// messages wait at the peer until it accepts. The opener's `recv` waits for the same.
///
/// The two directions are a [`Sender`] and a [`Receiver`], with their promises, cost and memory.
/// There is no order between messages of different directions. [`Duplex::split`] parts them.
///
/// Dropping the duplex ends our direction after the messages that were accepted, and tells the peer
/// that nothing more is wanted. The peer's `recv` takes these messages and then returns `None`. Its
/// `send` fails with [`SendError::Terminated`].
///
/// `Sink` and `Stream` are those of the two halves. `poll_close` of the `Sink` ends only the
/// direction to the peer.
///
/// ```
/// use chunkcomm::{Duplex, Node};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Node::builder().name("server").listen("127.0.0.1:0".parse()?).build().await?;
/// let client = Node::builder().name("client").build().await?;
/// let peer = client.connect(&server.addresses()[0]).await?;
///
/// let mut ours: Duplex<String, usize> = client.open_duplex(&peer, "lengths").await?;
/// ours.send(&"hello".to_owned()).await?;
///
/// let (_, mut theirs) = server.accept_duplex::<usize, String>("lengths").await?;
/// let text = theirs.recv().await?.expect("the client has sent a text");
/// theirs.send(&text.len()).await?;
/// assert_eq!(ours.recv().await?, Some(5));
///
/// drop(ours);
/// assert_eq!(theirs.recv().await?, None);
/// # Ok(())
/// # }
/// ```
#[must_use = "both directions end when a duplex is dropped"]
#[derive(Debug)]
pub struct Duplex<Out, In> {
    sender: Sender<Out>,
    receiver: Receiver<In>,
}

impl<Out, In> Duplex<Out, In> {
    pub(crate) fn new(sender: Sender<Out>, receiver: Receiver<In>) -> Duplex<Out, In> {
        Duplex { sender, receiver }
    }

    calls_of_every_duplex!(Sender<Out>);

    /// Returns the receiving half, for its other calls.
    pub fn receiver(&mut self) -> &mut Receiver<In> {
        &mut self.receiver
    }

    /// Parts the two directions. Dropping one half leaves the other.
    pub fn split(self) -> (Sender<Out>, Receiver<In>) {
        (self.sender, self.receiver)
    }
}

impl<Out: Serialize, In> Duplex<Out, In> {
    /// Accepts `value`; waits while the outbox is full.
    ///
    /// # Errors
    ///
    /// As [`Sender::send`].
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, nothing was accepted.
    pub fn send<'a>(&'a mut self, value: &'a Out) -> Sending<'a, Out> {
        self.sender.send(value)
    }

    /// Accepts `value` if there is room for it now.
    ///
    /// # Errors
    ///
    /// As [`Sender::try_send`].
    pub fn try_send(&mut self, value: &Out) -> Result<(), TrySendError> {
        self.sender.try_send(value)
    }

    /// Accepts `value` without waiting, as [`Self::poll_ready`] has promised.
    ///
    /// # Errors
    ///
    /// As [`Sender::start_send`].
    pub fn start_send(&mut self, value: &Out) -> Result<(), SendError> {
        self.sender.start_send(value)
    }
}

impl<Out, In: DeserializeOwned> Duplex<Out, In> {
    /// Waits for the next value; `None` when the peer is done and all was taken. A
    /// [`SendError::Terminated`] concerns our direction alone.
    ///
    /// # Errors
    ///
    /// As [`Receiver::recv`], and [`RecvError::Refused`] when the peer refused the duplex.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropped before it returns, it has taken nothing.
    pub fn recv(&mut self) -> Receiving<'_, In> {
        self.receiver.recv()
    }

    /// As `recv`, as a `poll` function.
    ///
    /// # Errors
    ///
    /// As `recv`.
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<In>, RecvError>> {
        self.receiver.poll_recv(context)
    }

    /// Returns the next value if one is there.
    ///
    /// # Errors
    ///
    /// As [`Receiver::try_recv`].
    pub fn try_recv(&mut self) -> Result<In, TryRecvError> {
        self.receiver.try_recv()
    }
}

impl<Out: Serialize, In> Sink<Out> for Duplex<Out, In> {
    calls_of_every_sink!(Duplex<Out, In>);

    fn start_send(mut self: Pin<&mut Self>, value: Out) -> Result<(), SendError> {
        self.sender.start_send(&value)
    }
}

impl<Out, In: DeserializeOwned> Stream for Duplex<Out, In> {
    type Item = Result<In, RecvError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.receiver).poll_next(context)
    }
}
