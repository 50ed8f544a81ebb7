//! A connected socket of the row's transport.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};

use chunkcomm_testkit::Scratch;

use crate::failure::{Doing, Failure};
use crate::harness::protocol::{Place, Transport};

/// A byte stream between near and far end.
#[derive(Debug)]
pub enum Wire {
    /// TCP without delay, as our transport sets it.
    Tcp(TcpStream),
    /// A Unix socket.
    Unix(UnixStream),
}

impl Wire {
    /// Connects to the address of the far end.
    ///
    /// # Errors
    /// If no far end listens there.
    pub fn connect(place: &Place, address: &str) -> Result<Self, Failure> {
        let doing = format!("connecting to {address}");
        match place.transport {
            Transport::Unix => UnixStream::connect(address).doing(&doing).map(Self::Unix),
            _ => TcpStream::connect(address).and_then(without_delay).doing(&doing),
        }
    }

    /// Makes reads and writes return at once from now on.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nonblocking(true),
            Self::Unix(stream) => stream.set_nonblocking(true),
        }
    }
}

fn without_delay(stream: TcpStream) -> io::Result<Wire> {
    stream.set_nodelay(true)?;
    Ok(Wire::Tcp(stream))
}

impl Read for Wire {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Wire {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

/// Socket on which the far end waits for the near one.
#[derive(Debug)]
pub enum Listener {
    /// TCP on a free port.
    Tcp(TcpListener),
    /// A socket file, removed with the listener.
    Unix(UnixListener, Scratch),
}

impl Listener {
    /// Listens on a free address of the transport.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn bind(place: &Place) -> Result<Self, Failure> {
        match place.transport {
            Transport::Unix => {
                let path = Scratch::new("socket");
                let listener = UnixListener::bind(&path).doing("listening on a unix socket")?;
                Ok(Self::Unix(listener, path))
            }
            _ => TcpListener::bind((place.host.as_str(), 0))
                .doing(&format!("listening on {}", place.host))
                .map(Self::Tcp),
        }
    }

    /// Returns the address to connect to.
    ///
    /// # Errors
    /// If the system does not report it.
    pub fn address(&self) -> Result<String, Failure> {
        match self {
            Self::Tcp(listener) => {
                listener.local_addr().doing("asking for the port").map(|addr| addr.to_string())
            }
            Self::Unix(_, path) => Ok(path.display().to_string()),
        }
    }

    /// Waits for the near end.
    ///
    /// # Errors
    /// If accepting fails.
    pub fn accept(&self) -> Result<Wire, Failure> {
        match self {
            Self::Tcp(listener) => listener
                .accept()
                .and_then(|(stream, _)| without_delay(stream))
                .doing("accepting the near end"),
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept().doing("accepting the near end")?;
                Ok(Wire::Unix(stream))
            }
        }
    }
}
