//! [`BytesReceiver`]: the user's own bytes, without codec, from one peer.

use super::Turn;
use super::blocking::block_on;
use super::calls::calls_of_every_receiver;
use super::receiver::outcome_of;
use crate::driver::landing::Landing;
use crate::driver::memory::FreedVec;
use crate::driver::taking::{Delivery, Found, Next, RxEnd};
use crate::error::{RecvError, TryRecvError};
use crate::node::Peer;
use crate::stats::ReceivingStats;
use bytes::Bytes;
use std::fmt;
use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Receives messages of bytes from one peer, in order.
#[must_use = "a sender is stopped when its receiver is dropped"]
pub struct BytesReceiver {
    end: RxEnd,
    peer: Peer,
    /// The channel's fingerprint, as its sender opened it; `None` in a duplex that was answered by
    /// the accept.
    fingerprint: Option<u64>,
    turn: Turn,
}

impl fmt::Debug for BytesReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BytesReceiver")
            .field("channel", &self.end.shared.name)
            .field("peer", &self.peer.name())
            .finish_non_exhaustive()
    }
}

impl BytesReceiver {
    calls_of_every_receiver!();

    pub(crate) fn new(end: RxEnd, peer: Peer, fingerprint: Option<u64>) -> BytesReceiver {
        BytesReceiver { end, peer, fingerprint, turn: Turn::default() }
    }

    pub(crate) fn end(&mut self) -> &mut RxEnd {
        &mut self.end
    }

    /// Rules out that the channel is given back: its way back is about to be opened.
    pub(crate) fn stay(&mut self) {
        self.fingerprint = None;
    }

    /// Takes a message that is there, for a caller who asks for one.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Bytes> {
        self.end.ask();
        self.take_next()
    }

    /// As `take`, within the same call.
    #[inline]
    fn take_next(&mut self) -> Option<Bytes> {
        Some(match self.end.take()? {
            Found::Small(bytes) => Bytes::copy_from_slice(bytes),
            Found::SmallOf(bytes, range) => bytes.slice(range),
            Found::Large(bytes) => Bytes::from(bytes),
        })
    }

    /// Waits for the next message; `None` when the sender is done and all was taken. A
    /// message that lies in a reading buffer keeps that buffer alive.
    ///
    /// # Errors
    ///
    /// [`RecvError::Lost`] after everything that had arrived.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropped before it returns, it has taken nothing.
    pub async fn recv(&mut self) -> Result<Option<Bytes>, RecvError> {
        if self.turn.over() {
            tokio::task::coop::consume_budget().await;
        }
        match self.take() {
            Some(message) => Ok(Some(message)),
            None => poll_fn(|context| self.poll_recv(context)).await,
        }
    }

    /// As `recv`, as a `poll` function.
    ///
    /// # Errors
    ///
    /// As `recv`.
    pub fn poll_recv(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, RecvError>> {
        loop {
            if let Some(message) = self.take() {
                return Poll::Ready(Ok(Some(message)));
            }
            if let Next::Ended(outcome) = ready!(self.end.poll_next(context)) {
                return Poll::Ready(outcome_of(&self.end, outcome));
            }
        }
    }

    /// Calls `look` with the bytes of the next message, if one is there, and returns its
    /// result; without copy.
    ///
    /// # Errors
    ///
    /// [`TryRecvError::Empty`] when none is there now, [`TryRecvError::Ended`]
    /// when none will come.
    pub fn try_recv_with<R>(&mut self, look: impl FnOnce(&[u8]) -> R) -> Result<R, TryRecvError> {
        let mut look = Some(look);
        self.end.ask();
        loop {
            // The call also leaves a run that has no more messages.
            let seen = self.end.take_with(|bytes| look.take().map(|look| look(bytes)));
            if let Some(Some(seen)) = seen {
                return Ok(seen);
            }
            nothing_yet(&mut self.end)?;
        }
    }

    /// As [`try_recv_with`](Self::try_recv_with), as a `poll` function; `None` at the end of the stream.
    ///
    /// # Errors
    ///
    /// As `recv`.
    pub fn poll_recv_with<R>(
        &mut self,
        context: &mut Context<'_>,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Poll<Result<Option<R>, RecvError>> {
        let mut look = Some(look);
        self.end.ask();
        loop {
            let seen = self.end.take_with(|bytes| look.take().map(|look| look(bytes)));
            if let Some(Some(seen)) = seen {
                return Poll::Ready(Ok(Some(seen)));
            }
            if let Next::Ended(outcome) = ready!(self.end.poll_next(context)) {
                return Poll::Ready(outcome_of(&self.end, outcome));
            }
        }
    }

    /// Returns the next message if one is there.
    ///
    /// # Errors
    ///
    /// As `try_recv_with`.
    pub fn try_recv(&mut self) -> Result<Bytes, TryRecvError> {
        loop {
            if let Some(message) = self.take() {
                return Ok(message);
            }
            nothing_yet(&mut self.end)?;
        }
    }

    /// Waits for the first message, appends up to `max` messages that are there to `messages`
    /// and returns their number. 0 only at the end of the stream, or when `max` is 0.
    ///
    /// # Errors
    ///
    /// As `recv`.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropped before it returns, it has taken nothing.
    pub async fn recv_many(
        &mut self,
        messages: &mut Vec<Bytes>,
        max: usize,
    ) -> Result<usize, RecvError> {
        if max == 0 {
            return Ok(0);
        }
        tokio::task::coop::consume_budget().await;
        let Some(first) = poll_fn(|context| self.poll_recv(context)).await? else { return Ok(0) };
        messages.push(first);
        let mut count = 1;
        while count < max
            && let Some(message) = self.take_next()
        {
            messages.push(message);
            count += 1;
        }
        Ok(count)
    }

    /// As `recv`, for plain threads: the thread sleeps while it waits.
    ///
    /// # Errors
    ///
    /// As `recv`.
    pub fn blocking_recv(&mut self) -> Result<Option<Bytes>, RecvError> {
        match self.take() {
            Some(message) => Ok(Some(message)),
            None => block_on(poll_fn(|context| self.poll_recv(context))),
        }
    }

    /// Receives the next message in the caller's memory; `None` at the end of the stream.
    ///
    /// `buffer.len()` bytes are the room for the message. The buffer comes back with the
    /// message's length. A large message that begins to arrive after the call goes from the
    /// socket straight into the buffer. It does not count in the memory of the link. One that began
    /// before comes back in other memory. The link then keeps the buffer for the next one, until it has
    /// carried none for a second.
    ///
    /// # Errors
    ///
    /// [`RecvError::BufferTooSmall`] leaves the message to be taken; the buffer
    /// is lost. [`RecvError::Lost`] as for `recv`.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it loses the buffer, but no message.
    pub async fn recv_into(&mut self, buffer: Vec<u8>) -> Result<Option<Vec<u8>>, RecvError> {
        self.next_into(buffer, copied, |message| message).await
    }

    /// Receives the next message and returns what `look` makes of it; `None` at the end of the stream.
    ///
    /// A large message comes into `buffer` as by [`recv_into`](Self::recv_into). `look` sees another where it lies,
    /// and the buffer stays as it is. After the end and an error the buffer is empty.
    ///
    /// # Errors
    ///
    /// As `recv_into`.
    ///
    /// # Cancel safety
    ///
    /// As `recv_into`; the buffer is empty then.
    pub async fn recv_into_with<R>(
        &mut self,
        buffer: &mut Vec<u8>,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, RecvError> {
        let mut look = Some(look);
        let mut see = |message: &[u8]| look.take().expect("it sees one message")(message);
        let small = |memory, message: &[u8]| (memory, Some(see(message)));
        let next = self.next_into(mem::take(buffer), small, |message| (message, None)).await?;
        Ok(next.map(|(memory, seen)| {
            *buffer = memory;
            seen.unwrap_or_else(|| see(buffer))
        }))
    }

    /// Receives the next message: a `large` one in the caller's memory, a `small` one beside it.
    async fn next_into<R>(
        &mut self,
        buffer: Vec<u8>,
        small: impl FnOnce(Vec<u8>, &[u8]) -> R,
        large: impl FnOnce(Vec<u8>) -> R,
    ) -> Result<Option<R>, RecvError> {
        let room = buffer.len();
        self.end.ask();
        let mut buffer = FreedVec(buffer);
        loop {
            let kept = self.end.give_into(buffer.into_inner()).map(FreedVec);
            let next = poll_fn(|context| self.end.poll_next(context)).await;
            buffer = kept.or_else(|| self.end.take_back_into().map(FreedVec)).unwrap_or_default();
            if let Next::Ended(outcome) = next {
                return outcome_of(&self.end, outcome);
            }
            if let Some(bytes) = self.end.peek_bytes().filter(|bytes| *bytes > room) {
                return Err(RecvError::BufferTooSmall { bytes, buffer_bytes: room });
            }
            self.end.keep_unless_needed(&mut buffer.0);
            match self.end.take() {
                Some(Found::Large(message)) => return Ok(Some(large(message))),
                Some(Found::Small(message)) => {
                    return Ok(Some(small(buffer.into_inner(), message)));
                }
                Some(Found::SmallOf(bytes, range)) => {
                    return Ok(Some(small(buffer.into_inner(), &bytes[range])));
                }
                // The bytes are no message: the session is about to end.
                None => {}
            }
        }
    }

    /// Gives the channel back as if it had not been accepted.
    ///
    /// The next `accept` of its name gets it, before channels that were opened later. Messages
    /// that were taken do not come again. If the node is closed, the sender is stopped, as when
    /// the receiver is dropped.
    ///
    /// For code that waits for a channel's first message and may itself be dropped
    /// meanwhile: dropping the receiver would stop the sender. The receiver of a duplex is only
    /// dropped: its peer already has the way back, unless it is an
    /// [`UnansweredDuplex`](super::UnansweredDuplex).
    pub fn give_back(self) {
        let BytesReceiver { end, peer, fingerprint, .. } = self;
        if let Some(fingerprint) = fingerprint {
            peer.node().give_back(end, fingerprint);
        }
    }

    /// Puts the bytes of all further messages into `landing`, in order and concatenated.
    ///
    /// Bytes of large messages go there straight from the socket, without copy. A message that
    /// landed is consumed, and on a channel with settling it is also settled.
    pub fn land(self, landing: Box<dyn Landing>) {
        self.end.land(landing);
    }
}

/// Looks for the next run of messages; an error when none has come since.
fn nothing_yet(end: &mut RxEnd) -> Result<(), TryRecvError> {
    match end.next() {
        Next::Message => Ok(()),
        Next::Empty => Err(TryRecvError::Empty),
        Next::Ended(outcome) => Err(match outcome_of::<()>(end, outcome) {
            Err(error) => TryRecvError::Failed(error),
            Ok(_) => TryRecvError::Ended,
        }),
    }
}

/// Copies `message` into the caller's vector.
fn copied(mut buffer: Vec<u8>, message: &[u8]) -> Vec<u8> {
    buffer.clear();
    buffer.extend_from_slice(message);
    buffer
}

impl futures_core::Stream for BytesReceiver {
    type Item = Result<Bytes, RecvError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(ready!(self.poll_recv(context)).transpose())
    }
}
