//! [`BytesSender`] and [`BytesReceiver`]: the user's own bytes, without codec.

use super::blocking::block_on;
use super::receiver::outcome_of;
use super::tx::{Tx, Waiting};
use super::{Landing, Turn};
use crate::driver::staging::{Staged, TxEnd};
use crate::driver::taking::{Found, Next, RxEnd};
use crate::error::{CloseError, RecvError, SendError, TryRecvError, TrySendError};
use crate::node::Peer;
use crate::proto::limits::INLINE_BYTES_MAX;
use crate::stats::ChannelStats;
use bytes::Bytes;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Sends messages of bytes to one peer, in order. Messages above 8 KiB travel as
/// their own slice, without copy; smaller ones are copied into the outbox.
///
/// See [`Sender`](crate::Sender) for what accepted and acknowledged mean.
#[derive(Clone)]
pub struct BytesSender {
    tx: Tx,
    turn: Turn,
}

impl Clone for Turn {
    fn clone(&self) -> Turn {
        Turn::default()
    }
}

impl fmt::Debug for BytesSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BytesSender")
            .field("channel", &self.tx.name())
            .field("peer", &self.tx.peer.name())
            .finish_non_exhaustive()
    }
}

impl BytesSender {
    pub(crate) fn new(end: TxEnd, peer: Peer) -> BytesSender {
        BytesSender { tx: Tx::new(end, peer), turn: Turn::default() }
    }

    /// The peer at the other end.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.tx.peer
    }

    /// The channel's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.tx.name()
    }

    /// The channel's counters.
    #[must_use]
    pub fn stats(&self) -> ChannelStats {
        self.tx.stats()
    }

    /// Bytes of small messages that are accepted now without waiting.
    pub fn capacity(&mut self) -> usize {
        self.tx.with(TxEnd::capacity)
    }

    fn stage(&mut self, message: &Bytes) -> Result<Staged, SendError> {
        self.tx.with(|end| {
            if message.len() > INLINE_BYTES_MAX {
                end.stage_large(message)
            } else {
                end.stage_slice(message)
            }
        })
    }

    /// Accepts `message`; waits while the outbox is full.
    ///
    /// # Errors
    ///
    /// [`SendError::TooLarge`] concerns this message alone. After the others
    /// nothing can be sent on the channel any more.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, nothing was accepted.
    pub async fn send(&mut self, message: Bytes) -> Result<(), SendError> {
        if self.turn.over() {
            tokio::task::coop::consume_budget().await;
        }
        match self.stage(&message)? {
            Staged::Done => Ok(()),
            Staged::Full => self.tx.stage_later(waiting(&message)).await,
        }
    }

    /// As `send`, for bytes that are copied in any case.
    ///
    /// # Errors
    ///
    /// As `send`.
    ///
    /// # Cancel safety
    ///
    /// As `send`.
    pub async fn send_slice(&mut self, message: &[u8]) -> Result<(), SendError> {
        if self.turn.over() {
            tokio::task::coop::consume_budget().await;
        }
        match self.tx.with(|end| end.stage_slice(message))? {
            Staged::Done => Ok(()),
            Staged::Full => self.tx.stage_later(Waiting::Slice(message)).await,
        }
    }

    /// As `send_slice`, urgent: the message leaves now, with everything before it
    /// on its channel.
    ///
    /// # Errors
    ///
    /// As `send`.
    ///
    /// # Cancel safety
    ///
    /// As `send`.
    pub async fn send_slice_now(&mut self, message: &[u8]) -> Result<(), SendError> {
        self.send_slice(message).await?;
        self.tx.with(|end| end.urgent());
        Ok(())
    }

    /// Accepts `message` if there is room for it now.
    ///
    /// # Errors
    ///
    /// [`TrySendError::Full`] when there is none; else as `send`.
    pub fn try_send(&mut self, message: &Bytes) -> Result<(), TrySendError> {
        match self.stage(message) {
            Ok(Staged::Done) => Ok(()),
            Ok(Staged::Full) => Err(TrySendError::Full),
            Err(error) => Err(TrySendError::Failed(error)),
        }
    }

    /// As `send`, for plain threads: the thread sleeps while it waits.
    ///
    /// # Errors
    ///
    /// As `send`.
    pub fn blocking_send(&mut self, message: &Bytes) -> Result<(), SendError> {
        match self.stage(message)? {
            Staged::Done => Ok(()),
            Staged::Full => block_on(self.tx.stage_later(waiting(message))),
        }
    }

    /// As `send_slice`, for plain threads: the thread sleeps while it waits.
    ///
    /// # Errors
    ///
    /// As `send`.
    pub fn blocking_send_slice(&mut self, message: &[u8]) -> Result<(), SendError> {
        match self.tx.with(|end| end.stage_slice(message))? {
            Staged::Done => Ok(()),
            Staged::Full => block_on(self.tx.stage_later(Waiting::Slice(message))),
        }
    }

    /// Hands everything accepted so far to the transport.
    ///
    /// # Errors
    ///
    /// The channel ended before.
    ///
    /// # Cancel safety
    ///
    /// Dropped early, what was asked still happens.
    pub async fn flush(&mut self) -> Result<(), SendError> {
        self.tx.flush().await
    }

    /// Waits until everything accepted so far is in the peer's inbox.
    ///
    /// # Errors
    ///
    /// The channel ended before.
    ///
    /// # Cancel safety
    ///
    /// Dropped early, what was asked still happens.
    pub async fn sync(&mut self) -> Result<(), SendError> {
        self.tx.sync().await
    }

    /// Ends the channel and waits until everything accepted is acknowledged.
    ///
    /// # Errors
    ///
    /// Something was not acknowledged after `deadline`.
    ///
    /// # Cancel safety
    ///
    /// Dropped early, the channel ends as if the sender had been dropped.
    pub async fn close(self, deadline: Duration) -> Result<(), CloseError> {
        self.tx.close(deadline).await
    }

    /// Waits until nothing can be sent any more, and says why.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn closed(&mut self) -> SendError {
        poll_fn(|context| self.tx.poll_failed(context)).await
    }
}

fn waiting(message: &Bytes) -> Waiting<'_> {
    if message.len() > INLINE_BYTES_MAX { Waiting::Large(message) } else { Waiting::Slice(message) }
}

/// Receives messages of bytes from one peer, in order.
pub struct BytesReceiver {
    end: RxEnd,
    peer: Peer,
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
    pub(crate) fn new(end: RxEnd, peer: Peer) -> BytesReceiver {
        BytesReceiver { end, peer, turn: Turn::default() }
    }

    /// The peer at the other end.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The channel's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.end.shared.name
    }

    #[inline]
    fn take(&mut self) -> Option<Bytes> {
        Some(match self.end.take()? {
            Found::Small(bytes) => Bytes::copy_from_slice(bytes),
            Found::SmallOf(bytes, range) => bytes.slice(range),
            Found::Large(bytes) => Bytes::from(bytes),
        })
    }

    /// The next message; `None` when the sender is done and all was taken. A
    /// message that lies in a reading buffer keeps that buffer while it lives.
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

    /// As `recv`, in the manner of `poll`.
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

    /// The next message, if one is there, as `look` sees its bytes; without
    /// copy.
    ///
    /// # Errors
    ///
    /// [`TryRecvError::Empty`] when none is there now, [`TryRecvError::Ended`]
    /// when none will come.
    pub fn try_recv_with<R>(&mut self, look: impl FnOnce(&[u8]) -> R) -> Result<R, TryRecvError> {
        let mut look = Some(look);
        loop {
            // A run that holds no message is left behind by this.
            let seen = self.end.take_with(|bytes| look.take().map(|look| look(bytes)));
            if let Some(Some(seen)) = seen {
                return Ok(seen);
            }
            nothing_yet(&mut self.end)?;
        }
    }

    /// The next message if one is there.
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

    /// The next message in the caller's memory: `buffer.len()` bytes are its
    /// room, and it comes back with the message's length. A large message that
    /// begins to arrive after this was called goes from the socket straight into
    /// it, and does not count in the memory of the link. `None` at the end of the
    /// stream.
    ///
    /// # Errors
    ///
    /// [`RecvError::BufferTooSmall`] leaves the message to be taken; the buffer
    /// is lost. [`RecvError::Lost`] as for `recv`.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, no message is lost, the buffer is.
    pub async fn recv_into(&mut self, buffer: Vec<u8>) -> Result<Option<Vec<u8>>, RecvError> {
        let room = buffer.len();
        let mut buffer = buffer;
        loop {
            let kept = self.end.give_into(buffer);
            let next = poll_fn(|context| self.end.poll_next(context)).await;
            buffer = kept.or_else(|| self.end.take_back_into()).unwrap_or_default();
            if let Next::Ended(outcome) = next {
                return outcome_of(&self.end, outcome);
            }
            if let Some(bytes) = self.end.peek_bytes().filter(|bytes| *bytes > room) {
                return Err(RecvError::BufferTooSmall { bytes, buffer_bytes: room });
            }
            match self.end.take() {
                Some(Found::Large(message)) => return Ok(Some(message)),
                Some(Found::Small(message)) => return Ok(Some(copied(buffer, message))),
                Some(Found::SmallOf(bytes, range)) => {
                    return Ok(Some(copied(buffer, &bytes[range])));
                }
                // What came is no message: the session is about to end.
                None => {}
            }
        }
    }

    /// From now on the bytes of all further messages go, in order and
    /// concatenated, into `landing`: those of large messages straight from the
    /// socket, without copy. What lands is consumed.
    pub fn land(self, landing: Box<dyn Landing>) {
        self.end.land(landing);
    }
}

/// Nothing was at hand: an error says that nothing has come since.
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

/// `message` in the caller's vector.
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
