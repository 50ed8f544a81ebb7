//! Ends that stay at home while their other end travels.

use super::TravellingSender;
use crate::moving::error::TravelError;
use crate::moving::home::Slot;
use crate::moving::moving;
use crate::proto::custody::Fate;
use chunkcomm::layer::block_on;
use chunkcomm::{Node, Receiver, Sender};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// End where the values of a [`TravellingSender`] arrive. The sender need not be connected yet.
///
/// Dropping it ends the sender, as with a [`Receiver`]. A sender that is connected later learns
/// that at its first message.
#[must_use = "the end is lost when its other end is dropped"]
pub struct Arriving<T> {
    slot: Arc<Slot>,
    number: u128,
    node: Node,
    receiver: Option<Receiver<T>>,
    /// Whether its values have ends in them.
    carries: bool,
}

impl<T> fmt::Debug for Arriving<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arriving").field("receiver", &self.receiver).finish_non_exhaustive()
    }
}

impl<T> Drop for Arriving<T> {
    fn drop(&mut self) {
        moving(&self.node).homes.remove(self.number);
    }
}

impl<T> Arriving<T> {
    /// Returns the arriving side of the end with this number; `carries`: its values have ends in
    /// them.
    pub(super) fn new(slot: Arc<Slot>, number: u128, node: Node, carries: bool) -> Arriving<T> {
        Arriving { slot, number, node, receiver: None, carries }
    }
}

impl<T: DeserializeOwned> Arriving<T> {
    /// Waits until the sender has sent something or has ended, and returns the receiver.
    ///
    /// Calls on the receiver cost nothing extra.
    ///
    /// # Errors
    ///
    /// [`TravelError::Dropped`] or [`TravelError::Lost`]: so was the end before it was connected.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn receiver(&mut self) -> Result<&mut Receiver<T>, TravelError> {
        poll_fn(|context| self.poll_receiver(context).map_ok(|_| ())).await?;
        self.receiver.as_mut().ok_or(TravelError::Stray)
    }

    /// Waits as [`Arriving::receiver`], and returns the receiver by value.
    ///
    /// # Errors
    ///
    /// As [`Arriving::receiver`].
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, this end is dropped.
    pub async fn into_receiver(mut self) -> Result<Receiver<T>, TravelError> {
        self.receiver().await?;
        self.receiver.take().ok_or(TravelError::Stray)
    }

    /// Waits for the next value; `None` when the sender is done and all was taken.
    ///
    /// # Errors
    ///
    /// As [`Arriving::receiver`]; [`TravelError::Receive`], as [`Receiver::recv`].
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn recv(&mut self) -> Result<Option<T>, TravelError> {
        match &mut self.receiver {
            Some(receiver) => receiver.recv().await,
            None => self.receiver().await?.recv().await,
        }
        .map_err(TravelError::Receive)
    }

    /// Waits as `recv`, for plain threads: the thread sleeps meanwhile.
    ///
    /// It is not for async code, whose other tasks would sleep too.
    ///
    /// # Errors
    ///
    /// As `recv`.
    pub fn blocking_recv(&mut self) -> Result<Option<T>, TravelError> {
        if self.receiver.is_none() {
            block_on(self.receiver())?;
        }
        match &mut self.receiver {
            Some(receiver) => receiver.blocking_recv().map_err(TravelError::Receive),
            None => Ok(None),
        }
    }

    /// Polls for what `recv` waits for.
    ///
    /// # Errors
    ///
    /// As `recv`.
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<T>, TravelError>> {
        let receiver = ready!(self.poll_receiver(context))?;
        receiver.poll_recv(context).map_err(TravelError::Receive)
    }

    fn poll_receiver(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<&mut Receiver<T>, TravelError>> {
        if self.receiver.is_none() {
            let end = ready!(self.slot.poll_connected(context)).map_err(ended)?;
            self.receiver = Some(end.into_receiver(&self.node, self.carries));
        }
        Poll::Ready(self.receiver.as_mut().ok_or(TravelError::Stray))
    }
}

fn ended(fate: Fate) -> TravelError {
    match fate {
        Fate::Dropped { by } => TravelError::Dropped { by },
        Fate::Lost { why } => TravelError::Lost { why },
        Fate::Connected => TravelError::Lost { why: "it was connected before".to_owned() },
    }
}

/// End that sends the values of a [`TravellingReceiver`](crate::TravellingReceiver). The receiver
/// need not be connected yet.
///
/// Dropping it ends the stream before its first value.
#[must_use = "the end is lost when its other end is dropped"]
pub struct Departing<T> {
    pub(super) there: Arriving<TravellingSender<T>>,
}

impl<T> fmt::Debug for Departing<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Departing").finish_non_exhaustive()
    }
}

impl<T: Serialize + DeserializeOwned> Departing<T> {
    /// Waits until some node has connected the end, and returns the sender to that node.
    ///
    /// # Errors
    ///
    /// As [`Arriving::recv`]: the end was dropped or lost before it was connected. As
    /// [`TravellingSender::connect`]: the node that connected it cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, this end is dropped.
    pub async fn connect(mut self) -> Result<Sender<T>, TravelError> {
        match self.there.recv().await? {
            Some(end) => end.connect().await,
            None => {
                let why = "its receiver ended before it began".to_owned();
                Err(TravelError::Lost { why })
            }
        }
    }
}
