//! The byte streams to peers. Each kind is one file; the driver knows only [`Transport`]
//! and [`Listener`].

pub(crate) mod exact;
pub(crate) mod memory;
#[cfg(target_os = "linux")]
pub(crate) mod other_process;
pub(crate) mod same_host;
pub(crate) mod shown;
pub(crate) mod spin;
pub(crate) mod tcp;
#[cfg(feature = "tls")]
pub(crate) mod tls;
#[cfg(unix)]
pub(crate) mod unix;
#[cfg(feature = "simulation")]
pub(crate) mod world;

use crate::Address;
use crate::descriptors::with_limit;
use crate::proto::liveness::KeepAlive;
use shown::Shown;
use std::future::Future;
use std::io::{self, IoSlice, IoSliceMut};
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A byte stream in both directions. Reading and writing may wait at the same time, both by the
/// waker that was given last. A read that waits keeps that waker until it is used, and is not asked
/// again before.
pub trait Transport: Send {
    /// Reads into one buffer; 0 bytes mean that the peer has ended its direction.
    ///
    /// # Errors
    ///
    /// The connection is lost.
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>>;

    /// As [`Transport::poll_read`], asking the system itself where that is possible. A runtime
    /// whose tasks are always ready seldom looks for arrived bytes.
    fn poll_read_now(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_read(context, buffer)
    }

    /// Whether a waiting task sleeps until the system wakes it, and could look instead.
    fn sleeps(&self) -> bool {
        false
    }

    /// Reads into the first buffer, and further bytes into the second.
    fn poll_read_two(
        &mut self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>; 2],
    ) -> Poll<io::Result<usize>>;

    /// Writes some of the buffers in order. After `Pending` the caller offers the same bytes again:
    /// some of them may have been taken and wait to be written.
    fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>>;

    /// Tells the peer that nothing more is written.
    fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Returns the address of the peer's end of an accepted connection, if that end has one.
    fn came_from(&self) -> Option<Address> {
        None
    }

    /// Returns the memory of the process at the other end, if it is on this host and may be read.
    fn peer_memory(&self) -> Option<Box<dyn PeerMemory>> {
        None
    }

    /// Returns the certificates that the peer showed.
    fn shown(&self) -> Shown {
        Shown::default()
    }

    /// Takes the transport away from the runtime, for the spinner.
    #[cfg(target_os = "linux")]
    fn into_below(self: Box<Self>) -> io::Result<Below>;
}

/// The memory of another process.
pub trait PeerMemory: Send {
    /// Reads as many bytes as `into` has at `address`, and behind them those of `word` at `word_at`. Returns the
    /// number of bytes that were read; the first that cannot be read ends them.
    ///
    /// # Errors
    ///
    /// Nothing was read: the system forbids it, the process is gone, or nothing is at `address`.
    fn read(
        &self,
        address: u64,
        into: &mut [u8],
        word_at: u64,
        word: &mut [u8; 16],
    ) -> io::Result<usize>;
}

/// The part of a transport below the runtime.
#[cfg(target_os = "linux")]
pub enum Below {
    /// A socket that does not block.
    Socket(OwnedFd),
    /// Nothing that could be looked at; holds the transport itself.
    Nothing(Box<dyn Transport>),
}

/// A future that the traits here may return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The source of connections that peers dial.
pub trait Listener: Send + Sync {
    /// Waits for the next connection.
    fn accept(&self) -> BoxFuture<'_, io::Result<Box<dyn Transport>>>;

    /// Returns the address as bound, with the port that the system chose.
    fn address(&self) -> Address;
}

/// The place from which a node dials: its process, if that is a simulated one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Home {
    #[cfg(feature = "simulation")]
    process: Option<world::Process>,
}

impl Home {
    /// Returns the home of a node that listens here: a process on the host of a simulated address, else
    /// the process that builds the node.
    pub(crate) fn of(listen: &[Address]) -> Home {
        #[cfg(feature = "simulation")]
        {
            let named = listen.iter().find_map(|address| match address {
                Address::Simulated { host, .. } => world::host_named(host),
                _ => None,
            });
            Home { process: named.map(world::Process::polled_on).or_else(world::current_process) }
        }
        #[cfg(not(feature = "simulation"))]
        {
            let _ = listen;
            Home {}
        }
    }

    /// Returns the simulated process.
    #[cfg(feature = "simulation")]
    pub(crate) fn process(self) -> Option<world::Process> {
        self.process
    }
}

/// Connects to `address` from `home`. Where the system can ask the peer's for a sign of life, it
/// does so as `keep_alive` says, if given.
pub(crate) async fn connect(
    address: &Address,
    home: Home,
    keep_alive: Option<&KeepAlive>,
) -> io::Result<Box<dyn Transport>> {
    #[cfg(not(feature = "simulation"))]
    let Home {} = home;
    #[cfg(feature = "simulation")]
    refuse_real(address)?;
    let connected = match address {
        Address::Tcp { host, port } => tcp::connect(host, *port, keep_alive).await,
        #[cfg(unix)]
        Address::Unix(path) => unix::connect(path).await,
        #[cfg(not(unix))]
        Address::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        Address::Memory(name) => memory::connect(name).await,
        #[cfg(feature = "simulation")]
        Address::Simulated { host, port } => world::connect(home.process, host, *port).await,
    };
    connected.map_err(with_limit)
}

/// Refuses the sockets of the system in a simulation.
#[cfg(feature = "simulation")]
fn refuse_real(address: &Address) -> io::Result<()> {
    if world::is_entered() && matches!(address, Address::Tcp { .. } | Address::Unix(_)) {
        let why = format!("{address} is not simulated; addresses of hosts are sim:host/port");
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    Ok(())
}

/// Listens at `address`; `portable` leaves out features of Linux alone.
pub(crate) async fn listen(address: &Address, portable: bool) -> io::Result<Box<dyn Listener>> {
    #[cfg(feature = "simulation")]
    refuse_real(address)?;
    let listener = match address {
        Address::Tcp { host, port } => tcp::listen(host, *port, portable).await,
        #[cfg(unix)]
        Address::Unix(path) => unix::listen(path).await,
        #[cfg(not(unix))]
        Address::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        Address::Memory(name) => memory::listen(name),
        #[cfg(feature = "simulation")]
        Address::Simulated { host, port } => world::listen(host, *port),
    };
    listener.map_err(with_limit)
}

/// Implements [`Transport`] for a tokio stream that can be read and written through readiness.
/// `$came_from` returns the peer's address.
macro_rules! transport_over_readiness {
    ($stream:ty, $came_from:expr) => {
        impl $crate::transport::Transport for $stream {
            fn poll_read(
                &mut self,
                context: &mut std::task::Context<'_>,
                buffer: &mut [u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                // Through `ReadBuf` tokio sees a short read, and saves the system call that would
                // only return `WouldBlock`.
                let mut buffer = tokio::io::ReadBuf::new(buffer);
                let this = std::pin::Pin::new(self);
                std::task::ready!(tokio::io::AsyncRead::poll_read(this, context, &mut buffer))?;
                std::task::Poll::Ready(Ok(buffer.filled().len()))
            }

            #[cfg(target_os = "linux")]
            fn poll_read_now(
                &mut self,
                context: &mut std::task::Context<'_>,
                buffer: &mut [u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                // If the runtime then reports bytes that this read took, it is as after any read
                // that finds less than was reported.
                match rustix::io::read(&*self, &mut *buffer) {
                    Ok(read) => std::task::Poll::Ready(Ok(read)),
                    Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {
                        $crate::transport::Transport::poll_read(self, context, buffer)
                    }
                    Err(error) => std::task::Poll::Ready(Err(error.into())),
                }
            }

            #[cfg(target_os = "linux")]
            fn sleeps(&self) -> bool {
                true
            }

            fn poll_read_two(
                &mut self,
                context: &mut std::task::Context<'_>,
                buffers: &mut [std::io::IoSliceMut<'_>; 2],
            ) -> std::task::Poll<std::io::Result<usize>> {
                loop {
                    std::task::ready!(self.poll_read_ready(context))?;
                    match self.try_read_vectored(buffers) {
                        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                        done => return std::task::Poll::Ready(done),
                    }
                }
            }

            fn poll_write(
                &mut self,
                context: &mut std::task::Context<'_>,
                buffers: &[std::io::IoSlice<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                let this = std::pin::Pin::new(self);
                match buffers {
                    [one] => tokio::io::AsyncWrite::poll_write(this, context, one),
                    many => tokio::io::AsyncWrite::poll_write_vectored(this, context, many),
                }
            }

            fn poll_shutdown(
                &mut self,
                context: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                tokio::io::AsyncWrite::poll_shutdown(std::pin::Pin::new(self), context)
            }

            fn came_from(&self) -> Option<$crate::Address> {
                $came_from(self)
            }

            #[cfg(target_os = "linux")]
            fn peer_memory(&self) -> Option<Box<dyn $crate::transport::PeerMemory>> {
                $crate::transport::other_process::memory_behind(std::os::fd::AsFd::as_fd(self))
            }

            #[cfg(target_os = "linux")]
            fn into_below(self: Box<Self>) -> std::io::Result<$crate::transport::Below> {
                let socket = (*self).into_std()?;
                Ok($crate::transport::Below::Socket(socket.into()))
            }
        }
    };
}
pub(crate) use transport_over_readiness;
