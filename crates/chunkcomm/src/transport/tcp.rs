//! TCP, without Nagle's algorithm: packets are gathered above.

use super::{BoxFuture, Listener, Transport, transport_over_readiness};
use crate::Address;
#[cfg(target_os = "linux")]
use crate::proto::limits::DEAD_MS_DEFAULT;
use std::io;
use tokio::net::{TcpListener, TcpStream};

transport_over_readiness!(TcpStream);

/// Connects to the first address of `host` that answers.
pub(crate) async fn connect(host: &str, port: u16) -> io::Result<Box<dyn Transport>> {
    let stream = TcpStream::connect((host, port)).await?;
    prepare(&stream)?;
    Ok(Box::new(stream))
}

/// No waiting for more bytes, and an error once the peer's system has not
/// acknowledged any for as long as a session lasts: the kernel would try for a
/// quarter of an hour.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    #[cfg(target_os = "linux")]
    rustix::net::sockopt::set_tcp_user_timeout(stream, DEAD_MS_DEFAULT as u32)?;
    Ok(())
}

/// Listens on `host` and `port` (0: the system chooses).
pub(crate) async fn listen(host: &str, port: u16) -> io::Result<Box<dyn Listener>> {
    let listener = TcpListener::bind((host, port)).await?;
    let address = Address::from(listener.local_addr()?);
    Ok(Box::new(Tcp { listener, address }))
}

struct Tcp {
    listener: TcpListener,
    address: Address,
}

impl Listener for Tcp {
    fn accept(&self) -> BoxFuture<'_, io::Result<Box<dyn Transport>>> {
        Box::pin(async move {
            let (stream, _) = self.listener.accept().await?;
            prepare(&stream)?;
            Ok(Box::new(stream) as Box<dyn Transport>)
        })
    }

    fn address(&self) -> Address {
        self.address.clone()
    }
}
