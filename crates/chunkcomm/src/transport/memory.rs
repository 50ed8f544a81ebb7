//! An in-memory pipe, for nodes of one process and for a node's channels to itself.

#[cfg(target_os = "linux")]
use super::Below;
use super::{BoxFuture, Listener, Transport};
use crate::Address;
use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::mpsc;

/// Bytes that a pipe holds in each direction, as a socket's buffers would: 256 KiB.
const PIPE_BYTES: usize = 256 * 1024;

/// Largest number of connections that wait to be accepted.
const BACKLOG: usize = 128;

/// Makes a pipe; returns its two ends.
pub(crate) fn pipe() -> (Box<dyn Transport>, Box<dyn Transport>) {
    let (a, b) = tokio::io::duplex(PIPE_BYTES);
    (Box::new(a), Box::new(b))
}

impl Transport for DuplexStream {
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        ready!(AsyncRead::poll_read(Pin::new(self), context, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }

    fn poll_read_two(
        &mut self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>; 2],
    ) -> Poll<io::Result<usize>> {
        let [first, second] = buffers;
        let buffer = if first.is_empty() { second } else { first };
        Transport::poll_read(self, context, buffer)
    }

    fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write_vectored(Pin::new(self), context, buffers)
    }

    fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_shutdown(Pin::new(self), context)
    }

    #[cfg(target_os = "linux")]
    fn into_below(self: Box<Self>) -> io::Result<Below> {
        Ok(Below::Nothing(self))
    }
}

type Names = HashMap<String, mpsc::Sender<DuplexStream>>;

fn names() -> MutexGuard<'static, Names> {
    static NAMES: OnceLock<Mutex<Names>> = OnceLock::new();
    NAMES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connects to the node of this process that listens at `memory:name`.
pub(crate) async fn connect(name: &str) -> io::Result<Box<dyn Transport>> {
    let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
    let listener = names().get(name).cloned().ok_or_else(refused)?;
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    listener.send(theirs).await.map_err(|_| refused())?;
    Ok(Box::new(ours))
}

/// Listens at `memory:name` in this process.
pub(crate) fn listen(name: &str) -> io::Result<Box<dyn Listener>> {
    let (sender, receiver) = mpsc::channel(BACKLOG);
    let mut names = names();
    if names.get(name).is_some_and(|taken| !taken.is_closed()) {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    names.insert(name.to_owned(), sender);
    Ok(Box::new(Memory { name: name.to_owned(), receiver: tokio::sync::Mutex::new(receiver) }))
}

struct Memory {
    name: String,
    receiver: tokio::sync::Mutex<mpsc::Receiver<DuplexStream>>,
}

impl Listener for Memory {
    fn accept(&self) -> BoxFuture<'_, io::Result<Box<dyn Transport>>> {
        Box::pin(async move {
            match self.receiver.lock().await.recv().await {
                Some(stream) => Ok(Box::new(stream) as Box<dyn Transport>),
                None => Err(io::ErrorKind::NotConnected.into()),
            }
        })
    }

    fn address(&self) -> Address {
        Address::Memory(self.name.clone())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        names().remove(&self.name);
    }
}
