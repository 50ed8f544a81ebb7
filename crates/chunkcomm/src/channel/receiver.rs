//! [`Receiver`]: values of one type from one peer.

use super::Turn;
use super::blocking::block_on;
use super::calls::calls_of_every_receiver;
use super::context::arriving_by;
use crate::driver::inbox::Outcome;
use crate::driver::mail::Link;
use crate::driver::taking::{Delivery, Next, RxEnd};
use crate::error::{DecodeFailed, RecvError, TryRecvError};
use crate::node::Peer;
use crate::proto::codec::{self, DecodeError};
use crate::stats::ReceivingStats;
use serde::de::DeserializeOwned;
use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Receives values of `T` from one peer, in the order in which the sender
/// accepted them.
///
/// Values are decoded when they are taken. Dropping the receiver ends the
/// sender: its next call fails. [`Receiver::close`] ends the sender too, and loses
/// nothing that was acknowledged.
///
/// There is no `recv_into`: a value is decoded from where its bytes arrived. For
/// large messages in the caller's own memory there is
/// [`BytesReceiver::recv_into`](crate::BytesReceiver::recv_into).
///
/// Memory: the bytes that the sender was granted, within the budget of the link.
/// These are 16 KiB at first, and up to 4 MiB for a receiver that keeps up.
#[must_use = "a sender is stopped when its receiver is dropped"]
pub struct Receiver<T> {
    end: RxEnd,
    peer: Peer,
    turn: Turn,
    /// Takes all values that are there. `Some` for values with ends in them: an end
    /// arrives when it is decoded.
    drain: Option<fn(&mut Receiver<T>)>,
    /// Whether taking a value is more than decoding it: it has ends, or its receiver settles.
    special: bool,
    types: PhantomData<fn() -> T>,
}

/// Decodes the values that were not taken, so that the ends in them are dropped, too.
impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        if let Some(drain) = self.drain {
            drain(self);
        }
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("channel", &self.end.shared.name)
            .field("peer", &self.peer.name())
            .finish_non_exhaustive()
    }
}

impl<T> Receiver<T> {
    pub(crate) fn end(&mut self) -> &mut RxEnd {
        &mut self.end
    }

    calls_of_every_receiver!();

    #[cold]
    fn decode_error(&self, error: DecodeError) -> RecvError {
        RecvError::Decode(Arc::new(DecodeFailed {
            channel: Arc::clone(&self.end.shared.name),
            peer: self.peer.name().to_owned(),
            error,
        }))
    }

    fn ended<V>(&self, outcome: Outcome) -> Result<Option<V>, RecvError> {
        outcome_of(&self.end, outcome)
    }
}

/// Returns the end of a stream, as `recv` returns it.
pub(crate) fn outcome_of<V>(end: &RxEnd, outcome: Outcome) -> Result<Option<V>, RecvError> {
    outcome.result(&end.shared.name).map(|()| None)
}

impl<T: DeserializeOwned> Receiver<T> {
    /// Returns a receiver; `carries`: its values have ends in them.
    pub(crate) fn new(end: RxEnd, peer: Peer, carries: bool) -> Receiver<T> {
        let drain: fn(&mut Receiver<T>) = |receiver| while receiver.take_next().is_some() {};
        let drain = carries.then_some(drain);
        let special = carries || end.can_settle();
        Receiver { end, peer, turn: Turn::default(), drain, special, types: PhantomData }
    }

    /// Waits for the next value; `None` when the sender is done and all was taken.
    ///
    /// # Errors
    ///
    /// [`RecvError::Decode`] concerns one message, which is gone; the next call
    /// goes on. [`RecvError::Lost`] comes after everything that had arrived.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropped before it returns, it has taken nothing.
    pub fn recv(&mut self) -> Receiving<'_, T> {
        Receiving { receiver: self }
    }

    /// Takes a value that is there, for a caller who asks for one.
    #[inline(always)]
    fn take(&mut self) -> Option<Result<T, RecvError>> {
        if self.special {
            self.end.ask();
            return self.take_next();
        }
        self.decode_next()
    }

    /// Takes a message that is at hand within the task's turn, if `decode` alone says what it is.
    #[inline(always)]
    pub(crate) fn take_at_hand<R>(
        &mut self,
        decode: impl FnOnce(&[u8]) -> Result<R, DecodeError>,
    ) -> Option<Result<R, RecvError>> {
        if self.special || self.turn.over() || !self.end.current_has_more() {
            return None;
        }
        match self.end.take_with(decode)? {
            Ok(value) => Some(Ok(value)),
            Err(error) => Some(Err(self.decode_error(error))),
        }
    }

    /// As `take`, within the same call.
    fn take_next(&mut self) -> Option<Result<T, RecvError>> {
        if self.drain.is_some() {
            return self.take_with_ends().map(|(_, value)| value);
        }
        self.decode_next()
    }

    #[inline(always)]
    fn decode_next(&mut self) -> Option<Result<T, RecvError>> {
        match self.end.take_with(codec::decode::<T>)? {
            Ok(value) => Some(Ok(value)),
            Err(error) => Some(Err(self.decode_error(error))),
        }
    }

    /// As `take`, with the size of the message in bytes. The ends in it arrive at this node.
    #[cold]
    fn take_with_ends(&mut self) -> Option<(u64, Result<T, RecvError>)> {
        let node = self.peer.node();
        let link = Link(Arc::clone(&self.end.link));
        let (bytes, value) = self.end.take_with(|bytes| {
            let value = arriving_by(&node, &link, || codec::decode::<T>(bytes));
            (bytes.len() as u64, value)
        })?;
        Some((bytes, value.map_err(|error| self.decode_error(error))))
    }

    #[cold]
    fn poll_recv_slowly(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<T>, RecvError>> {
        let budget = ready!(tokio::task::coop::poll_proceed(context));
        let received = self.poll_recv(context);
        if received.is_ready() {
            budget.made_progress();
        }
        received
    }

    /// As `recv`, as a `poll` function.
    ///
    /// # Errors
    ///
    /// As `recv`.
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<T>, RecvError>> {
        loop {
            if let Next::Ended(outcome) = ready!(self.end.poll_next(context)) {
                return Poll::Ready(self.ended(outcome));
            }
            if let Some(value) = self.take() {
                return Poll::Ready(value.map(Some));
            }
        }
    }

    /// Returns the next value if one is there.
    ///
    /// # Errors
    ///
    /// [`TryRecvError::Empty`] when none is there now, [`TryRecvError::Ended`]
    /// when none will come; else as `recv`.
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        loop {
            if let Some(value) = self.take() {
                return value.map_err(TryRecvError::Failed);
            }
            match self.end.next() {
                Next::Message => {}
                Next::Empty => return Err(TryRecvError::Empty),
                Next::Ended(outcome) => {
                    return Err(match self.ended::<T>(outcome) {
                        Err(error) => TryRecvError::Failed(error),
                        Ok(_) => TryRecvError::Ended,
                    });
                }
            }
        }
    }

    /// Waits for the first value, appends up to `max` values that are there to `values` and
    /// returns their number. 0 only at the end of the stream, or when `max` is 0. The fastest
    /// way to take many.
    ///
    /// # Errors
    ///
    /// As `recv`. Values appended before the error stay in `values`.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropped before it returns, it has taken nothing.
    pub async fn recv_many(&mut self, values: &mut Vec<T>, max: usize) -> Result<usize, RecvError> {
        if max == 0 {
            return Ok(0);
        }
        tokio::task::coop::consume_budget().await;
        let Some(first) = self.recv().await? else { return Ok(0) };
        values.push(first);
        let mut count = 1;
        while count < max {
            let mut failed = None;
            // Values with ends in them are taken one by one.
            let max = if self.drain.is_some() { count } else { max };
            count += self.end.take_many(max - count, |bytes| match codec::decode::<T>(bytes) {
                Ok(value) => {
                    values.push(value);
                    true
                }
                Err(error) => {
                    failed = Some(error);
                    false
                }
            });
            if let Some(error) = failed {
                return Err(self.decode_error(error));
            }
            if count < max || self.drain.is_some() {
                // The run at hand is used up: into the next one, if it is there.
                match self.take_next() {
                    Some(value) => values.push(value?),
                    None => break,
                }
                count += 1;
            }
        }
        Ok(count)
    }

    /// As `recv`, for plain threads: the thread sleeps while it waits. Not for
    /// async code, whose other tasks would sleep too.
    ///
    /// # Errors
    ///
    /// As `recv`.
    pub fn blocking_recv(&mut self) -> Result<Option<T>, RecvError> {
        match self.take() {
            Some(value) => value.map(Some),
            None => block_on(poll_fn(|context| self.poll_recv(context))),
        }
    }

    /// Takes a value that is there, with the size of its message in bytes.
    pub(crate) fn take_counted(&mut self) -> Option<(u64, Result<T, RecvError>)> {
        if self.special {
            self.end.ask();
            if self.drain.is_some() {
                return self.take_with_ends();
            }
        }
        let decode = |bytes: &[u8]| (bytes.len() as u64, codec::decode::<T>(bytes));
        let (bytes, value) = self.end.take_with(decode)?;
        Some((bytes, value.map_err(|error| self.decode_error(error))))
    }
}

/// The future of [`Receiver::recv`]: written by hand, so that a message that is
/// there costs no more than its decoding.
#[derive(Debug)]
#[must_use = "nothing is received before it is awaited"]
pub struct Receiving<'a, T> {
    receiver: &'a mut Receiver<T>,
}

impl<T: DeserializeOwned> Future for Receiving<'_, T> {
    type Output = Result<Option<T>, RecvError>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let receiver = &mut *self.receiver;
        if !receiver.turn.over()
            && receiver.end.current_has_more()
            && let Some(value) = receiver.take()
        {
            return Poll::Ready(value.map(Some));
        }
        receiver.poll_recv_slowly(context)
    }
}

impl<T: DeserializeOwned> futures_core::Stream for Receiver<T> {
    type Item = Result<T, RecvError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(ready!(self.poll_recv(context)).transpose())
    }
}
