//! [`BytesDuplex`]: a duplex for the user's own bytes, in messages or as a stream.

use super::bytes_receiver::BytesReceiver;
use super::bytes_sender::BytesSender;
use super::calls::{calls_of_every_duplex, calls_of_every_sink};
use super::tx::Waiting;
use crate::driver::memory::{SLICE_BYTES, Slices, freed_apart};
use crate::error::{CloseError, RecvError, SendError, TryRecvError, TrySendError};
use crate::node::Peer;
use crate::stats::{ChannelStats, ReceivingStats};
use bytes::Bytes;
use futures_core::Stream;
use futures_sink::Sink;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Sends messages of bytes to one peer and receives such messages from it.
///
/// [`Node::open_duplex_bytes`](crate::Node::open_duplex_bytes) makes one end,
/// [`Node::accept_duplex_bytes`](crate::Node::accept_duplex_bytes) the other; see
/// [`Duplex`](crate::Duplex). It has a type of its own because it has no codec: large messages travel
/// without a copy, as with [`BytesSender`].
///
/// # As a stream of bytes
///
/// `AsyncRead` and `AsyncWrite` of tokio treat the messages as one stream of bytes. A write accepts
/// at most 8 KiB as one message. Packets gather small writes: they need no buffer in front.
/// `shutdown` ends our direction. An empty message is no end of the stream.
///
/// A read that finds less room than the next message leaves the rest for the next read or `recv`.
///
/// ```
/// use chunkcomm::Node;
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let node = Node::builder().build().await?;
/// let mut ours = node.open_duplex_bytes(&node.local().await?, "shell").await?;
/// ours.write_all(b"hello").await?;
/// ours.shutdown().await?;
///
/// let (_, mut theirs) = node.accept_duplex_bytes("shell").await?;
/// let mut text = String::new();
/// theirs.read_to_string(&mut text).await?;
/// assert_eq!(text, "hello");
/// # Ok(())
/// # }
/// ```
#[must_use = "both directions end when a duplex is dropped"]
#[derive(Debug)]
pub struct BytesDuplex {
    sender: BytesSender,
    receiver: BytesReceiver,
    /// The rest of a message that was read in part.
    rest: Bytes,
    /// The bytes that reads have copied since other tasks ran.
    reads: Slices,
}

/// Most bytes that a read copies: half of a slice, so that each has room in one.
const READ_BYTES_MAX: usize = SLICE_BYTES / 2;

impl BytesDuplex {
    pub(crate) fn new(sender: BytesSender, receiver: BytesReceiver) -> BytesDuplex {
        BytesDuplex { sender, receiver, rest: Bytes::new(), reads: Slices::default() }
    }

    calls_of_every_duplex!(BytesSender);

    /// Parts the two directions. Dropping one half leaves the other.
    ///
    /// The rest of a message that `AsyncRead` has read in part comes with them. It is empty for
    /// all who do not use `AsyncRead`.
    pub fn split(self) -> (BytesSender, BytesReceiver, Bytes) {
        (self.sender, self.receiver, self.rest)
    }

    /// Accepts `message`; waits while the outbox is full.
    ///
    /// # Errors
    ///
    /// As [`BytesSender::send`].
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, nothing was accepted.
    pub async fn send(&mut self, message: Bytes) -> Result<(), SendError> {
        self.sender.send(message).await
    }

    /// Accepts `message` if there is room for it now.
    ///
    /// # Errors
    ///
    /// As [`BytesSender::try_send`].
    pub fn try_send(&mut self, message: &Bytes) -> Result<(), TrySendError> {
        self.sender.try_send(message)
    }

    /// Accepts `message` without waiting, as [`Self::poll_ready`] has promised.
    ///
    /// # Errors
    ///
    /// As [`BytesSender::start_send`].
    pub fn start_send(&mut self, message: Bytes) -> Result<(), SendError> {
        self.sender.start_send(message)
    }

    /// Waits for the next message; `None` when the peer is done and all was taken. After a read in
    /// part it returns the rest of that message.
    ///
    /// # Errors
    ///
    /// As [`BytesReceiver::recv`], and [`RecvError::Refused`] when the peer refused the duplex.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropped before it returns, it has taken nothing.
    pub async fn recv(&mut self) -> Result<Option<Bytes>, RecvError> {
        match self.take_rest() {
            Some(rest) => Ok(Some(rest)),
            None => self.receiver.recv().await,
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
        match self.take_rest() {
            Some(rest) => Poll::Ready(Ok(Some(rest))),
            None => self.receiver.poll_recv(context),
        }
    }

    /// Returns the next message, or the rest of one that was read in part, if one is there.
    ///
    /// # Errors
    ///
    /// As [`BytesReceiver::try_recv`].
    pub fn try_recv(&mut self) -> Result<Bytes, TryRecvError> {
        self.take_rest().map_or_else(|| self.receiver.try_recv(), Ok)
    }

    fn take_rest(&mut self) -> Option<Bytes> {
        if self.rest.is_empty() { None } else { Some(std::mem::take(&mut self.rest)) }
    }
}

impl Sink<Bytes> for BytesDuplex {
    calls_of_every_sink!(BytesDuplex);

    fn start_send(mut self: Pin<&mut Self>, message: Bytes) -> Result<(), SendError> {
        self.sender.start_send(message)
    }
}

impl Stream for BytesDuplex {
    type Item = Result<Bytes, RecvError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(ready!(self.poll_recv(context)).transpose())
    }
}

impl AsyncRead for BytesDuplex {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let budget = ready!(tokio::task::coop::poll_proceed(context));
        while this.rest.is_empty() && buffer.remaining() > 0 {
            match ready!(this.receiver.poll_recv(context)) {
                Ok(Some(message)) => this.rest = freed_apart(message),
                Ok(None) => break,
                Err(error) => return Poll::Ready(Err(read_error(error))),
            }
        }
        let bytes = this.rest.len().min(buffer.remaining()).min(READ_BYTES_MAX);
        ready!(this.reads.poll_worked(context, bytes));
        budget.made_progress();
        buffer.put_slice(&this.rest.split_to(bytes));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for BytesDuplex {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let budget = ready!(tokio::task::coop::poll_proceed(context));
        let tx = self.sender.tx();
        let message = &bytes[..bytes.len().min(tx.with(|end| end.inline_bytes_max()))];
        let staged = ready!(tx.poll_stage(context, &Waiting::Slice(message)));
        budget.made_progress();
        Poll::Ready(staged.map(|()| message.len()).map_err(write_error))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.sender.poll_flush(context).map_err(write_error)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.sender.poll_close(context).map_err(write_error)
    }
}

fn read_error(error: RecvError) -> io::Error {
    let kind = match &error {
        RecvError::Lost { .. } => io::ErrorKind::ConnectionReset,
        RecvError::Refused(_) => io::ErrorKind::ConnectionRefused,
        _ => io::ErrorKind::InvalidData,
    };
    io::Error::new(kind, error)
}

fn write_error(error: SendError) -> io::Error {
    let kind = match &error {
        SendError::Lost(_) => io::ErrorKind::ConnectionReset,
        SendError::Refused(_) => io::ErrorKind::ConnectionRefused,
        SendError::Terminated(_) | SendError::Closed => io::ErrorKind::BrokenPipe,
        _ => io::ErrorKind::InvalidInput,
    };
    io::Error::new(kind, error)
}
