//! TCP, without Nagle's algorithm: packets are gathered above.

use super::{BoxFuture, Listener, Transport, transport_over_readiness};
use crate::Address;
#[cfg(target_os = "linux")]
use crate::proto::limits::DEAD_MS_DEFAULT;
use crate::proto::liveness::KeepAlive;
use std::io;
use tokio::net::{TcpListener, TcpStream};

/// Number of connections that may wait to be accepted. The standard library's 128 are few for peers
/// that come back together: the system tries those beyond it again after a second. Connections from
/// strangers only pass in less (`node/slots.rs`).
#[cfg(target_os = "linux")]
const BACKLOG: i32 = 1024;

transport_over_readiness!(TcpStream, |it: &TcpStream| it.peer_addr().ok().map(Address::from));

/// Connects to the first address of `host` that answers. Without `keep_alive`, only probes show
/// that the peer is gone.
pub(crate) async fn connect(
    host: &str,
    port: u16,
    keep_alive: Option<&KeepAlive>,
) -> io::Result<Box<dyn Transport>> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    if let Some(keep_alive) = keep_alive {
        watch(&stream, keep_alive)?;
    }
    Ok(Box::new(stream))
}

/// Makes the connection fail once the peer's system has stopped answering. By default the kernel
/// would try for a quarter of an hour, and for ever while nothing is to be sent. The kernel counts
/// in whole seconds; with a timeout it does not count its probes.
#[cfg(target_os = "linux")]
fn watch(stream: &TcpStream, keep_alive: &KeepAlive) -> io::Result<()> {
    use rustix::net::sockopt;
    use std::time::Duration;
    let whole = |time: Duration| Duration::from_secs(time.as_secs().clamp(1, 32_767));
    sockopt::set_tcp_keepidle(stream, whole(keep_alive.idle))?;
    sockopt::set_tcp_keepintvl(stream, whole(keep_alive.interval))?;
    let timeout_ms = u32::try_from(keep_alive.timeout.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(stream, timeout_ms)?;
    sockopt::set_socket_keepalive(stream, true)?;
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn watch(_stream: &TcpStream, _keep_alive: &KeepAlive) -> io::Result<()> {
    Ok(())
}

/// Bounds the time for which sent bytes stay unacknowledged. The accepting end need not probe,
/// since the dialler does; so it learns that nobody takes its bytes.
#[cfg(target_os = "linux")]
fn bound_what_is_sent(stream: &TcpStream) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_tcp_user_timeout(stream, DEAD_MS_DEFAULT as u32)?)
}

#[cfg(not(target_os = "linux"))]
fn bound_what_is_sent(_stream: &TcpStream) -> io::Result<()> {
    Ok(())
}

/// Lengthens the queue of a listening socket: a second `listen` changes it.
#[cfg(target_os = "linux")]
fn lengthen_queue(listener: &TcpListener) -> io::Result<()> {
    Ok(rustix::net::listen(listener, BACKLOG)?)
}

#[cfg(not(target_os = "linux"))]
fn lengthen_queue(_listener: &TcpListener) -> io::Result<()> {
    Ok(())
}

/// Listens on `host` and `port` (0: the system chooses). `portable` leaves out features of Linux
/// alone.
pub(crate) async fn listen(host: &str, port: u16, portable: bool) -> io::Result<Box<dyn Listener>> {
    let listener = TcpListener::bind((host, port)).await?;
    if !portable {
        lengthen_queue(&listener)?;
    }
    let address = Address::from(listener.local_addr()?);
    Ok(Box::new(Tcp { listener, address, portable }))
}

struct Tcp {
    listener: TcpListener,
    address: Address,
    portable: bool,
}

impl Listener for Tcp {
    fn accept(&self) -> BoxFuture<'_, io::Result<Box<dyn Transport>>> {
        Box::pin(async move {
            let (stream, _) = self.listener.accept().await?;
            stream.set_nodelay(true)?;
            if !self.portable {
                bound_what_is_sent(&stream)?;
            }
            Ok(Box::new(stream) as Box<dyn Transport>)
        })
    }

    fn address(&self) -> Address {
        self.address.clone()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::proto::limits::{PROBE_MS_DEFAULT, SUSPECT_MS_DEFAULT};
    use crate::proto::liveness::Silence;
    use crate::transport::Below;
    use crate::transport::exact::{read_exact, write_all};
    use rustix::net::sockopt;
    use std::os::fd::OwnedFd;
    use std::task::{Context, Poll, Waker};
    use std::time::{Duration, Instant};

    #[tokio::test]
    async fn many_wait_to_be_accepted() {
        let limit = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap_or_default();
        if limit.trim().parse().is_ok_and(|limit: i32| limit < 256) {
            return;
        }
        let listener = listen("127.0.0.1", 0, false).await.unwrap();
        let Address::Tcp { port, .. } = listener.address() else { panic!("not TCP") };
        let mut waiting = Vec::new();
        for _ in 0..200 {
            // Where there is no room, this fails after the system's two minutes.
            waiting.push(TcpStream::connect(("127.0.0.1", port)).await.unwrap());
        }
    }

    /// Makes a connection; returns the dialler's end, then the acceptor's.
    async fn connection(portable: bool) -> [Box<dyn Transport>; 2] {
        let listener = listen("127.0.0.1", 0, portable).await.unwrap();
        let Address::Tcp { port, .. } = listener.address() else { panic!("not TCP") };
        let [probe, suspect, dead] =
            [PROBE_MS_DEFAULT, SUSPECT_MS_DEFAULT, DEAD_MS_DEFAULT].map(Duration::from_millis);
        let keep_alive = Silence { probe, suspect, dead }.keep_alive();
        let keep_alive = (!portable).then_some(&keep_alive);
        let (dialled, accepted) =
            tokio::join!(connect("127.0.0.1", port, keep_alive), listener.accept());
        [dialled.unwrap(), accepted.unwrap()]
    }

    /// Returns the sockets of a connection.
    async fn sockets(portable: bool) -> [OwnedFd; 2] {
        connection(portable).await.map(|transport| match transport.into_below() {
            Ok(Below::Socket(socket)) => socket,
            _ => panic!("no socket"),
        })
    }

    /// Reads without giving the runtime a turn.
    fn read_now(transport: &mut dyn Transport, buffer: &mut [u8]) -> usize {
        let mut context = Context::from_waker(Waker::noop());
        let started = Instant::now();
        loop {
            match transport.poll_read_now(&mut context, buffer) {
                Poll::Ready(read) => return read.unwrap(),
                Poll::Pending => assert!(started.elapsed() < Duration::from_secs(10), "nothing"),
            }
        }
    }

    #[tokio::test]
    async fn what_arrived_is_read_before_the_runtime_has_looked() {
        let [mut near, mut far] = connection(false).await;
        let mut buffer = [0; 8];
        // The runtime knows both ends as ready from here on.
        write_all(&mut *far, b"first").await.unwrap();
        read_exact(&mut *near, &mut buffer[..5]).await.unwrap();
        let mut context = Context::from_waker(Waker::noop());
        assert!(near.poll_read(&mut context, &mut buffer).is_pending());
        write_all(&mut *far, b"word").await.unwrap();
        assert!(near.poll_read(&mut context, &mut buffer).is_pending(), "the runtime has looked");
        let read = read_now(&mut *near, &mut buffer);
        assert_eq!(&buffer[..read], b"word");
        // The runtime's later report of these bytes does no harm.
        tokio::task::yield_now().await;
        write_all(&mut *far, b"later").await.unwrap();
        read_exact(&mut *near, &mut buffer[..5]).await.unwrap();
        assert_eq!(&buffer[..5], b"later");
        drop(far);
        assert_eq!(read_now(&mut *near, &mut buffer), 0, "the end is seen, too");
    }

    #[tokio::test]
    async fn a_connection_that_was_dialled_is_asked_for_by_the_system() {
        let [dialled, accepted] = sockets(false).await;
        assert!(sockopt::socket_keepalive(&dialled).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&dialled).unwrap(), Duration::from_secs(2));
        assert_eq!(sockopt::tcp_keepintvl(&dialled).unwrap(), Duration::from_secs(1));
        assert_eq!(sockopt::tcp_user_timeout(&dialled).unwrap(), 4000);
        assert!(!sockopt::socket_keepalive(&accepted).unwrap());
        assert_eq!(sockopt::tcp_user_timeout(&accepted).unwrap(), 10_000);
    }

    #[tokio::test]
    async fn by_portable_means_the_system_is_left_as_it_is() {
        for socket in sockets(true).await {
            assert!(!sockopt::socket_keepalive(&socket).unwrap());
            assert_eq!(sockopt::tcp_user_timeout(&socket).unwrap(), 0);
            assert!(sockopt::tcp_nodelay(&socket).unwrap());
        }
    }
}
