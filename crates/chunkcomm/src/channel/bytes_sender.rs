//! [`BytesSender`]: the user's own bytes, without codec, to one peer.

use super::Turn;
use super::blocking::block_on;
use super::calls::{calls_of_every_sender, calls_of_every_sink};
use super::tx::{Tx, Waiting};
use crate::driver::memory::{self, Apart};
use crate::driver::staging::{Staged, TxEnd};
use crate::error::{CloseError, SendAllError, SendError, TrySendError};
use crate::node::Peer;
use crate::stats::ChannelStats;
use bytes::Bytes;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Sends messages of bytes to one peer, in order. Messages above 8 KiB travel as
/// their own slice, without copy; smaller ones are copied into the outbox.
///
/// See [`Sender`](crate::Sender) for the meaning of accepted and acknowledged, for
/// clones, and for `Sink`, which is implemented for [`Bytes`].
#[must_use = "a stream ends when its sender is dropped"]
#[derive(Clone)]
pub struct BytesSender {
    tx: Tx,
    turn: Turn,
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

    pub(crate) fn tx(&mut self) -> &mut Tx {
        &mut self.tx
    }

    calls_of_every_sender!();

    /// Waits until there is room for a message of `bytes` bytes; the permit then accepts one
    /// without waiting. Between clones the permit is no promise: another clone may be first.
    ///
    /// # Errors
    ///
    /// [`SendError::TooLargeToReserve`] when `bytes` is more than a channel ever has
    /// room for at once; else the channel ended.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is reserved before it returns.
    pub async fn reserve(&mut self, bytes: usize) -> Result<BytesPermit<'_>, SendError> {
        self.tx.reserve(bytes).await?;
        Ok(BytesPermit { sender: self })
    }

    async fn send_waiting(&mut self, message: Waiting<'_>) -> Result<(), SendError> {
        if self.turn.over() && self.turn.asks(self.tx.is_home()) {
            tokio::task::coop::consume_budget().await;
        }
        match self.tx.stage_waiting(&message)? {
            Staged::Done => Ok(()),
            Staged::Full => self.tx.stage_later(message).await,
        }
    }

    fn send_sleeping(&mut self, message: Waiting<'_>) -> Result<(), SendError> {
        match self.tx.stage_waiting(&message)? {
            Staged::Done => Ok(()),
            Staged::Full => block_on(self.tx.stage_later(message)),
        }
    }

    fn try_send_waiting(&mut self, message: &Waiting<'_>) -> Result<(), TrySendError> {
        match self.tx.stage_waiting(message) {
            Ok(Staged::Done) => Ok(()),
            Ok(Staged::Full) => Err(TrySendError::Full),
            Err(error) => Err(TrySendError::Failed(error)),
        }
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
        // Its memory may be the sender's to free when it does not leave.
        let message = Apart(message);
        self.send_waiting(Waiting::Bytes(&message.0)).await
    }

    /// As `send`, for bytes that are copied in any case: long ones in slices, between which other
    /// tasks run.
    ///
    /// # Errors
    ///
    /// As `send`.
    ///
    /// # Cancel safety
    ///
    /// As `send`.
    pub async fn send_slice(&mut self, message: &[u8]) -> Result<(), SendError> {
        if message.len() > memory::SLICE_BYTES {
            return Box::pin(self.send_copy(message)).await;
        }
        self.send_waiting(Waiting::Slice(message)).await
    }

    async fn send_copy(&mut self, message: &[u8]) -> Result<(), SendError> {
        let copy = memory::copied(message).await;
        self.send(copy.into()).await
    }

    /// As `send`, urgent: the message leaves now, with everything before it on its
    /// channel. It never overtakes its own channel.
    ///
    /// # Errors
    ///
    /// As `send`.
    ///
    /// # Cancel safety
    ///
    /// As `send`.
    pub async fn send_now(&mut self, message: Bytes) -> Result<(), SendError> {
        self.send(message).await?;
        self.tx.with(TxEnd::urgent);
        Ok(())
    }

    /// As `send_now`, for bytes that are copied in any case.
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
        self.tx.with(TxEnd::urgent);
        Ok(())
    }

    /// Accepts all of `messages`, in order, and returns their number.
    ///
    /// # Errors
    ///
    /// As `send`, with the number of those accepted before.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it may have accepted some of the first messages.
    /// [`BytesSender::stats`] counts them.
    pub async fn send_all<I>(&mut self, messages: I) -> Result<usize, SendAllError>
    where
        I: IntoIterator<Item = Bytes>,
    {
        let mut accepted = 0;
        for message in messages {
            let sent = self.send(message).await;
            sent.map_err(|error| SendAllError { accepted, error })?;
            accepted += 1;
        }
        Ok(accepted)
    }

    /// Accepts `message` if there is room for it now.
    ///
    /// # Errors
    ///
    /// [`TrySendError::Full`] when there is no room; else as `send`.
    pub fn try_send(&mut self, message: &Bytes) -> Result<(), TrySendError> {
        self.try_send_waiting(&Waiting::Bytes(message))
    }

    /// Accepts `message` without waiting, as [`Self::poll_ready`] has promised.
    ///
    /// If a clone has taken the room since, the message is kept. The next call that waits stages it;
    /// [`Self::poll_flush`] or [`Self::poll_close`] does so before the end.
    ///
    /// # Errors
    ///
    /// [`SendError::NotReady`] when there is no room and nothing was promised; else as `send`.
    pub fn start_send(&mut self, message: Bytes) -> Result<(), SendError> {
        self.tx.start_send_bytes(message)
    }

    /// As `send`, for plain threads: the thread sleeps while it waits.
    ///
    /// # Errors
    ///
    /// As `send`.
    pub fn blocking_send(&mut self, message: &Bytes) -> Result<(), SendError> {
        self.send_sleeping(Waiting::Bytes(message))
    }

    /// As `send_slice`, for plain threads: the thread sleeps while it waits.
    ///
    /// # Errors
    ///
    /// As `send`.
    pub fn blocking_send_slice(&mut self, message: &[u8]) -> Result<(), SendError> {
        self.send_sleeping(Waiting::Slice(message))
    }
}

/// Room for one message, from [`BytesSender::reserve`].
#[derive(Debug)]
#[must_use]
pub struct BytesPermit<'a> {
    sender: &'a mut BytesSender,
}

impl BytesPermit<'_> {
    /// Accepts `message` without waiting.
    ///
    /// # Errors
    ///
    /// [`TrySendError::Full`] when a clone was first, or `message` needs more bytes than were
    /// reserved and there is no room for them; else as `send`.
    pub fn send(self, message: &Bytes) -> Result<(), TrySendError> {
        self.sender.try_send(message)
    }

    /// As `send`, for bytes that are copied in any case.
    ///
    /// # Errors
    ///
    /// As `send`.
    pub fn send_slice(self, message: &[u8]) -> Result<(), TrySendError> {
        self.sender.try_send_waiting(&Waiting::Slice(message))
    }
}

impl futures_sink::Sink<Bytes> for BytesSender {
    calls_of_every_sink!(BytesSender);

    fn start_send(mut self: Pin<&mut Self>, message: Bytes) -> Result<(), SendError> {
        self.tx.start_send_bytes(message)
    }
}
