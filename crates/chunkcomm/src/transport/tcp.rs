//! TCP, without Nagle's algorithm: packets are gathered above.

use super::{BoxFuture, Listener, Transport, transport_over_readiness};
use crate::Address;
use std::io;
use tokio::net::{TcpListener, TcpStream};

transport_over_readiness!(TcpStream);

/// Connects to the first address of `host` that answers.
pub(crate) async fn connect(host: &str, port: u16) -> io::Result<Box<dyn Transport>> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    Ok(Box::new(stream))
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
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Transport>)
        })
    }

    fn address(&self) -> Address {
        self.address.clone()
    }
}
