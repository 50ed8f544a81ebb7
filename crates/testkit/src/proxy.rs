//! A TCP proxy with faults: it stands between nodes and treats their connections as networks do.
//!
//! Every connection is a [`Wire`] of two lanes, *forth* (from the side that dialled) and *back*. A
//! lane's [`Conduct`] decides the treatment of its bytes: delayed, slowed down, stalled, thrown
//! away, one bit turned, or the connection cut after a number of bytes. It can be set for the next
//! connection, and changed at any time for open ones.

mod lane;
mod wire;

pub use lane::{Conduct, Lane};
pub use wire::{Conducts, Cut, Direction, Wire};

use super::raw::socket_address;
use chunkcomm::{Address, Node};
use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
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
    /// The address to dial instead of the target.
    pub address: Address,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    target: Mutex<SocketAddr>,
    wires: Mutex<Vec<Arc<Wire>>>,
    next: Mutex<VecDeque<Conducts>>,
    delay: Duration,
    /// Whether new connections are dropped.
    closed: AtomicBool,
    /// Whether the bytes of all connections vanish.
    swallows: AtomicBool,
    /// Count of events, so that a scenario can wait for the next one.
    events: watch::Sender<u64>,
}

impl Proxy {
    /// Starts a proxy in front of `node`.
    pub fn before(node: &Node) -> Self {
        Self::start(socket_address(node)).unwrap()
    }

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
        let address = listener.local_addr()?.into();
        let shared = Arc::new(Shared {
            target: Mutex::new(target),
            wires: Mutex::default(),
            next: Mutex::default(),
            delay,
            closed: AtomicBool::new(false),
            swallows: AtomicBool::new(false),
            events: watch::channel(0).0,
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, accepting })
    }

    /// Returns all connections since the start, in the order of dialling.
    pub fn wires(&self) -> Vec<Arc<Wire>> {
        self.shared.wires.lock().unwrap().clone()
    }

    /// Returns the connection that was dialled last.
    pub fn newest(&self) -> Option<Arc<Wire>> {
        self.shared.wires.lock().unwrap().last().cloned()
    }

    /// Cuts every open connection; returns their number.
    pub fn cut_all(&self, how: Cut) -> usize {
        let wires = self.wires();
        wires.iter().filter(|wire| wire.is_live()).map(|wire| wire.cut(how)).count()
    }

    /// Ends every open connection where it is.
    pub fn cut(&self) {
        self.cut_all(Cut::Close);
    }

    /// Sets whether new connections are dropped.
    pub fn close(&self, closed: bool) {
        self.shared.closed.store(closed, Ordering::SeqCst);
    }

    /// Sets whether all connections are blackholes, those of today and new ones.
    pub fn swallow(&self, swallows: bool) {
        self.shared.swallows.store(swallows, Ordering::SeqCst);
        for wire in self.wires() {
            for lane in [&wire.forth, &wire.back] {
                lane.set(|conduct| conduct.blackhole = swallows);
            }
        }
    }

    /// Passes new connections on to `to`.
    pub fn redirect(&self, to: SocketAddr) {
        *self.shared.target.lock().unwrap() = to;
    }

    /// Returns the number of bytes passed on so far.
    pub fn passed(&self) -> u64 {
        self.wires().iter().map(|wire| wire.forth.passed() + wire.back.passed()).sum()
    }

    /// Sets the conduct of the connections that are dialled next, one after the other. Those after
    /// them behave well again.
    pub fn arm_next(&self, conducts: impl IntoIterator<Item = Conducts>) {
        self.shared.next.lock().unwrap().extend(conducts);
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
    /// Registers a connection before its first byte passes.
    fn admit(&self) -> Arc<Wire> {
        let mut conducts = self.next.lock().unwrap().pop_front().unwrap_or_default();
        let mut wires = self.wires.lock().unwrap();
        for conduct in [&mut conducts.forth, &mut conducts.back] {
            conduct.delay += self.delay;
            conduct.blackhole |= self.swallows.load(Ordering::SeqCst);
        }
        let wire = Arc::new(Wire::new(wires.len(), conducts, self.events.clone()));
        wires.push(Arc::clone(&wire));
        drop(wires);
        wire.tell();
        wire
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((dialler, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        if shared.closed.load(Ordering::SeqCst) {
            continue;
        }
        let wire = shared.admit();
        let target = *shared.target.lock().unwrap();
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
