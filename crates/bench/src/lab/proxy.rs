//! A TCP proxy with faults: it stands between the nodes and treats their connections as networks
//! do.
//!
//! Every connection is a [`Wire`] of two lanes, *forth* (from the side that dialled) and *back*. A
//! lane's [`Conduct`] decides the treatment of its bytes: delayed, slowed down, stalled, thrown
//! away, one bit turned, or the connection cut after a number of bytes. It can be set for the next
//! connection, and changed at any time for open ones.

mod lane;
mod wire;

pub use lane::{Conduct, Lane};
pub use wire::{Conducts, Cut, Direction, Wire};

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Connections that may wait to be accepted: a thousand links dial again at the same moment.
const BACKLOG: u32 = 4096;

/// Pause of the proxy after an error, such as no more file descriptors: 10 ms.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// A proxy in front of one address; it ends when this value is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    wires: Mutex<Vec<Arc<Wire>>>,
    next: Mutex<VecDeque<Conducts>>,
    delay: Duration,
    /// Count of events, so that a scenario can wait for the next one.
    events: watch::Sender<u64>,
}

impl Proxy {
    /// Listens on loopback in front of `target`. Needs a tokio runtime, on which the proxy runs.
    ///
    /// # Errors
    /// If the system gives no port.
    pub fn start(target: SocketAddr) -> io::Result<Self> {
        Self::start_apart(target, Duration::ZERO)
    }

    /// As [`Proxy::start`], as if `target` were further away: each byte arrives `delay` later,
    /// either way and on every connection.
    ///
    /// # Errors
    /// If the system gives no port.
    pub fn start_apart(target: SocketAddr, delay: Duration) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let listener = socket.listen(BACKLOG)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            target,
            wires: Mutex::default(),
            next: Mutex::default(),
            delay,
            events: watch::channel(0).0,
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, accepting })
    }

    /// Returns the address to dial instead of the target.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns all connections since the start, in the order of dialling.
    pub fn wires(&self) -> Vec<Arc<Wire>> {
        self.shared.wires().clone()
    }

    /// Returns the connection that was dialled last.
    pub fn newest(&self) -> Option<Arc<Wire>> {
        self.shared.wires().last().cloned()
    }

    /// Cuts every open connection; returns their number.
    pub fn cut_all(&self, how: Cut) -> usize {
        let wires = self.wires();
        wires.iter().filter(|wire| wire.is_live()).map(|wire| wire.cut(how)).count()
    }

    /// Sets the conduct of the connections that are dialled next, one after the other. Those after
    /// them behave well again.
    pub fn arm_next(&self, conducts: impl IntoIterator<Item = Conducts>) {
        lock(&self.shared.next).extend(conducts);
    }

    /// Waits until `is_so` holds, checking after every event; returns false if it does not hold in
    /// time.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn wait_until(&self, limit: Duration, mut is_so: impl FnMut(&Self) -> bool) -> bool {
        let mut events = self.shared.events.subscribe();
        let becomes_so = async {
            loop {
                events.borrow_and_update();
                if is_so(self) || events.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::time::timeout(limit, becomes_so).await.is_ok()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut_all(Cut::Reset);
    }
}

impl Shared {
    fn wires(&self) -> MutexGuard<'_, Vec<Arc<Wire>>> {
        lock(&self.wires)
    }

    /// Registers a connection before its first byte passes.
    fn admit(&self) -> Arc<Wire> {
        let mut conducts = lock(&self.next).pop_front().unwrap_or_default();
        conducts.forth.delay += self.delay;
        conducts.back.delay += self.delay;
        let mut wires = self.wires();
        let wire = Arc::new(Wire::new(wires.len(), conducts, self.events.clone()));
        wires.push(Arc::clone(&wire));
        drop(wires);
        wire.tell();
        wire
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panicking scenario leaves the values whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((dialler, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let wire = shared.admit();
        let target = shared.target;
        tokio::spawn(async move {
            match connect(&dialler, target).await {
                Ok(target) => wire.carry(dialler, target).await,
                // No target listens behind the proxy: the dialler reads the end at once.
                Err(_) => wire.end(),
            }
        });
    }
}

async fn connect(dialler: &TcpStream, target: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(target).await?;
    stream.set_nodelay(true)?;
    dialler.set_nodelay(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests;
