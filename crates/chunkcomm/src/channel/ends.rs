//! What the calls over many ends ask of one, whatever it carries.

use super::bytes_receiver::BytesReceiver;
use super::bytes_sender::BytesSender;
use super::receiver::Receiver;
use super::sender::Sender;
use crate::error::{RecvError, SendError, TryRecvError};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A sender of any kind: [`Sender`], [`BytesSender`], or a reference to one, so
/// that senders of different types stand in one slice as
/// `&mut dyn SendingEnd`. Not for implementing elsewhere.
pub trait SendingEnd: sealed::Sends + Send {}

/// A receiver of any kind: [`Receiver`] or [`BytesReceiver`]. Not for implementing
/// elsewhere.
pub trait ReceivingEnd: sealed::Receives + Send {}

pub(crate) mod sealed {
    use super::{Arc, Context, Poll, RecvError, SendError, TryRecvError};

    /// What is waited for at senders.
    pub trait Sends {
        /// Ready when a message of `bytes` is accepted without waiting.
        fn poll_room(
            &mut self,
            context: &mut Context<'_>,
            bytes: usize,
        ) -> Poll<Result<(), SendError>>;
    }

    /// How a gather takes from a receiver.
    pub trait Receives {
        /// What comes.
        type Item;

        /// A message that is at hand, with its bytes.
        fn take_counted(&mut self) -> Option<(u64, Result<Self::Item, RecvError>)>;

        /// The next message if one is there.
        fn try_next(&mut self) -> Result<Self::Item, TryRecvError>;

        /// From now on `tell` is called when something comes, and once at the start.
        fn notify(&mut self, tell: Arc<dyn Fn() + Send + Sync>);
    }
}

impl<T> SendingEnd for Sender<T> {}

impl<T> sealed::Sends for Sender<T> {
    fn poll_room(
        &mut self,
        context: &mut Context<'_>,
        bytes: usize,
    ) -> Poll<Result<(), SendError>> {
        self.tx().poll_reserve(context, bytes)
    }
}

impl SendingEnd for BytesSender {}

impl sealed::Sends for BytesSender {
    fn poll_room(
        &mut self,
        context: &mut Context<'_>,
        bytes: usize,
    ) -> Poll<Result<(), SendError>> {
        self.tx().poll_reserve(context, bytes)
    }
}

impl<S: SendingEnd + ?Sized> SendingEnd for &mut S {}

impl<S: SendingEnd + ?Sized> sealed::Sends for &mut S {
    fn poll_room(
        &mut self,
        context: &mut Context<'_>,
        bytes: usize,
    ) -> Poll<Result<(), SendError>> {
        (**self).poll_room(context, bytes)
    }
}

impl<T: DeserializeOwned> ReceivingEnd for Receiver<T> {}

impl<T: DeserializeOwned> sealed::Receives for Receiver<T> {
    type Item = T;

    fn take_counted(&mut self) -> Option<(u64, Result<T, RecvError>)> {
        Receiver::take_counted(self)
    }

    fn try_next(&mut self) -> Result<T, TryRecvError> {
        self.try_recv()
    }

    fn notify(&mut self, tell: Arc<dyn Fn() + Send + Sync>) {
        self.end().notify(tell);
    }
}

impl ReceivingEnd for BytesReceiver {}

impl sealed::Receives for BytesReceiver {
    type Item = Bytes;

    fn take_counted(&mut self) -> Option<(u64, Result<Bytes, RecvError>)> {
        let message = self.take()?;
        Some((message.len() as u64, Ok(message)))
    }

    fn try_next(&mut self) -> Result<Bytes, TryRecvError> {
        self.try_recv()
    }

    fn notify(&mut self, tell: Arc<dyn Fn() + Send + Sync>) {
        self.end().notify(tell);
    }
}
