//! The traits of channel ends, by which calls over many ends use ends of any kind.

use super::bytes_receiver::BytesReceiver;
use super::bytes_sender::BytesSender;
use super::receiver::Receiver;
use super::sender::Sender;
use crate::error::{RecvError, SendError, TryRecvError};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A sender of any kind: [`Sender`], [`BytesSender`], or a reference to one. Senders of
/// different types can stand in one slice, as `&mut dyn SendingEnd`. Not for implementing
/// elsewhere.
pub trait SendingEnd: sealed::Sends + Send {}

/// A receiver of any kind: [`Receiver`] or [`BytesReceiver`]. Not for implementing
/// elsewhere.
pub trait ReceivingEnd: sealed::Receives + Send {}

pub(crate) mod sealed {
    use super::{Arc, Context, Poll, RecvError, SendError, TryRecvError};

    /// The wait for room at a sender.
    pub trait Sends {
        /// Waits until a message of `bytes` bytes is accepted without waiting.
        fn poll_room(
            &mut self,
            context: &mut Context<'_>,
            bytes: usize,
        ) -> Poll<Result<(), SendError>>;
    }

    /// The calls by which a `SelectAll` takes from a receiver.
    pub trait Receives {
        /// The messages that are received.
        type Item;

        /// Takes a message that is at hand, with its size in bytes.
        fn take_counted(&mut self) -> Option<(u64, Result<Self::Item, RecvError>)>;

        /// Takes the next message if one is there.
        fn try_next(&mut self) -> Result<Self::Item, TryRecvError>;

        /// Calls `tell` once at the start, and from now on whenever something comes.
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
