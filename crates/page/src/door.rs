//! The connections of the page, bounded in number and in time, so that strangers cannot lock it.
//!
//! | a connection | is closed |
//! |---|---|
//! | that has not shown the token | 10 s after it came |
//! | that has shown it, of which no byte moves | after 30 s |
//! | while more are there than [`CONNECTIONS_MAX`] | the oldest that has not shown the token, else the oldest |

use crate::log::locked;
use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future as _;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep_until};

/// Most connections at a time.
pub(crate) const CONNECTIONS_MAX: usize = 128;

/// Longest time of a connection that does not show the token.
const STRANGE_FOR: Duration = Duration::from_secs(10);

/// Longest time without a byte.
const STILL_FOR: Duration = Duration::from_secs(30);

/// The listener of the page.
pub(crate) struct Door {
    listener: TcpListener,
    places: Arc<Places>,
}

impl Door {
    pub(crate) fn new(listener: TcpListener) -> Door {
        Door { listener, places: Arc::default() }
    }
}

impl Listener for Door {
    type Io = Connection<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection<TcpStream>, SocketAddr) {
        let (stream, address) = Listener::accept(&mut self.listener).await;
        let _ = stream.set_nodelay(true);
        (Connection::new(stream, &self.places), address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Whether a connection has shown the token.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pass(Arc<AtomicBool>);

impl Pass {
    /// Notes that a request had the token.
    pub(crate) fn show(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_shown(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Connected<IncomingStream<'_, Door>> for Pass {
    fn connect_info(stream: IncomingStream<'_, Door>) -> Pass {
        stream.io().pass.clone()
    }
}

/// The connections that are there, the oldest first.
#[derive(Default)]
struct Places(Mutex<VecDeque<Place>>);

struct Place {
    pass: Pass,
    /// Turns the connection out by its drop.
    _stay: oneshot::Sender<Infallible>,
}

impl Places {
    /// Takes a place, if need be that of another connection.
    fn take(&self, pass: &Pass) -> oneshot::Receiver<Infallible> {
        let (stay, turned_out) = oneshot::channel();
        let mut places = locked(&self.0);
        if places.len() >= CONNECTIONS_MAX {
            let strange = places.iter().position(|place| !place.pass.is_shown());
            places.remove(strange.unwrap_or_default());
        }
        places.push_back(Place { pass: pass.clone(), _stay: stay });
        turned_out
    }

    fn leave(&self, pass: &Pass) {
        locked(&self.0).retain(|place| !Arc::ptr_eq(&place.pass.0, &pass.0));
    }
}

/// A connection with a place.
pub(crate) struct Connection<S> {
    stream: S,
    pass: Pass,
    places: Arc<Places>,
    turned_out: oneshot::Receiver<Infallible>,
    came: Instant,
    /// When the last byte was read or written.
    moved: Instant,
    /// Not after the time at which the connection is over.
    alarm: Pin<Box<Sleep>>,
    is_over: bool,
}

impl<S> Drop for Connection<S> {
    fn drop(&mut self) {
        self.places.leave(&self.pass);
    }
}

impl<S> Connection<S> {
    fn new(stream: S, places: &Arc<Places>) -> Connection<S> {
        let (pass, now) = (Pass::default(), Instant::now());
        Connection {
            stream,
            turned_out: places.take(&pass),
            pass,
            places: Arc::clone(places),
            came: now,
            moved: now,
            alarm: Box::pin(sleep_until(now + STRANGE_FOR)),
            is_over: false,
        }
    }

    /// Waits until the connection has lost its place, or its time is over.
    fn poll_over(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        while !self.is_over {
            if Pin::new(&mut self.turned_out).poll(context).is_ready() {
                self.is_over = true;
                break;
            }
            ready!(self.alarm.as_mut().poll(context));
            let until = match self.pass.is_shown() {
                true => self.moved + STILL_FOR,
                false => self.came + STRANGE_FOR,
            };
            self.is_over = until <= Instant::now();
            self.alarm.as_mut().reset(until);
        }
        Poll::Ready(io::ErrorKind::TimedOut.into())
    }

    /// Notes what an operation of the stream has done; one that waits is over with the connection.
    fn watched<T>(
        &mut self,
        done: Poll<io::Result<T>>,
        moves: impl FnOnce(&T) -> bool,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        match &done {
            Poll::Pending => return self.poll_over(context).map(Err),
            Poll::Ready(Ok(value)) if moves(value) => self.moved = Instant::now(),
            Poll::Ready(_) => {}
        }
        done
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let done = Pin::new(&mut self.stream).poll_read(context, into);
        self.watched(done, |()| into.filled().len() > before, context)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watched(done, |count| *count > 0, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.watched(done, |count| *count > 0, context)
    }

    // States are shared by viewers, and not copied for each.
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::time::{advance, timeout};

    type Ended = io::Result<usize>;

    fn connection(places: &Arc<Places>) -> (Connection<DuplexStream>, DuplexStream) {
        let (ours, theirs) = duplex(64);
        (Connection::new(ours, places), theirs)
    }

    /// Returns how a read ends that begins now, and after how many seconds.
    async fn read(connection: &mut Connection<DuplexStream>) -> (Ended, u64) {
        let begun = Instant::now();
        let read = timeout(Duration::from_secs(100), connection.read(&mut [0; 9])).await;
        (read.expect("it is over by then"), begun.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_the_token_has_ten_seconds_whatever_it_sends() {
        let (mut silent, _theirs) = connection(&Arc::default());
        let (ended, after) = read(&mut silent).await;
        assert_eq!((ended.unwrap_err().kind(), after), (io::ErrorKind::TimedOut, 10));
        let (mut slow, mut theirs) = connection(&Arc::default());
        for _ in 0..3 {
            theirs.write_all(b"G").await.unwrap();
            assert_eq!(read(&mut slow).await.0.unwrap(), 1);
            advance(Duration::from_secs(3)).await;
        }
        let (ended, after) = read(&mut slow).await;
        assert_eq!((ended.unwrap_err().kind(), after), (io::ErrorKind::TimedOut, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_with_the_token_ends_after_half_a_minute_without_a_byte() {
        let (mut ours, mut theirs) = connection(&Arc::default());
        ours.pass.show();
        for _ in 0..4 {
            advance(Duration::from_secs(25)).await;
            theirs.write_all(b"G").await.unwrap();
            assert_eq!(read(&mut ours).await.0.unwrap(), 1);
        }
        let (ended, after) = read(&mut ours).await;
        assert_eq!((ended.unwrap_err().kind(), after), (io::ErrorKind::TimedOut, 30));
        // A viewer that reads nothing more.
        let (mut ours, _theirs) = connection(&Arc::default());
        ours.pass.show();
        let begun = Instant::now();
        let written = timeout(Duration::from_secs(100), ours.write_all(&[0; 100])).await;
        assert_eq!(written.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed().as_secs(), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_stranger_makes_room() {
        let places = Arc::default();
        let (mut known, mut theirs) = connection(&places);
        known.pass.show();
        let mut strangers: Vec<_> = (0..CONNECTIONS_MAX).map(|_| connection(&places)).collect();
        assert_eq!(read(&mut strangers[0].0).await.1, 0);
        theirs.write_all(b"G").await.unwrap();
        assert_eq!(read(&mut known).await.0.unwrap(), 1);
        assert_eq!(read(&mut strangers[1].0).await.1, 10);
        drop(strangers);
        assert_eq!(locked(&places.0).len(), 1);
    }
}
