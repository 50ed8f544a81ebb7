//! A proxy between two nodes that cuts their connections.

use super::raw::socket_address;
use chunkcomm::{Address, Node};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// Passes connections on until it is to cut or to swallow them.
#[derive(Clone)]
pub struct Proxy {
    /// The address to dial instead of the node's.
    pub address: Address,
    state: Arc<State>,
}

struct State {
    to: Mutex<SocketAddr>,
    under_way: Mutex<Vec<AbortHandle>>,
    /// Whether new connections are dropped.
    closed: AtomicBool,
    /// Whether bytes are read and not passed on.
    swallows: AtomicBool,
    passed: AtomicU64,
}

impl Proxy {
    /// Starts a proxy in front of `node`.
    pub async fn before(node: &Node) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().into();
        let state = Arc::new(State {
            to: Mutex::new(socket_address(node)),
            under_way: Mutex::default(),
            closed: AtomicBool::new(false),
            swallows: AtomicBool::new(false),
            passed: AtomicU64::new(0),
        });
        tokio::spawn(accept(listener, Arc::clone(&state)));
        Proxy { address, state }
    }

    /// Ends all connections where they are.
    pub fn cut(&self) {
        for task in self.state.under_way.lock().unwrap().drain(..) {
            task.abort();
        }
    }

    /// Sets whether new connections are dropped.
    pub fn close(&self, closed: bool) {
        self.state.closed.store(closed, Ordering::SeqCst);
    }

    /// Sets whether incoming bytes are swallowed.
    pub fn swallow(&self, swallows: bool) {
        self.state.swallows.store(swallows, Ordering::SeqCst);
    }

    /// Passes new connections on to `to`.
    pub fn redirect(&self, to: SocketAddr) {
        *self.state.to.lock().unwrap() = to;
    }

    /// Returns the number of bytes passed on so far.
    pub fn passed(&self) -> u64 {
        self.state.passed.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    while let Ok((near, _)) = listener.accept().await {
        if state.closed.load(Ordering::SeqCst) {
            continue;
        }
        let task = tokio::spawn(pass_both(near, Arc::clone(&state)));
        state.under_way.lock().unwrap().push(task.abort_handle());
    }
}

async fn pass_both(near: TcpStream, state: Arc<State>) {
    let to = *state.to.lock().unwrap();
    let Ok(far) = TcpStream::connect(to).await else { return };
    for stream in [&near, &far] {
        stream.set_nodelay(true).unwrap();
    }
    let (mut near_read, mut near_write) = near.into_split();
    let (mut far_read, mut far_write) = far.into_split();
    let there = pass(&mut near_read, &mut far_write, &state);
    let back = pass(&mut far_read, &mut near_write, &state);
    tokio::select! {
        () = there => {}
        () = back => {}
    }
}

async fn pass(
    from: &mut (impl AsyncReadExt + Unpin),
    to: &mut (impl AsyncWriteExt + Unpin),
    state: &State,
) {
    let mut buffer = vec![0; 32 * 1024];
    while let Ok(count) = from.read(&mut buffer).await {
        if count == 0 {
            return;
        }
        if state.swallows.load(Ordering::SeqCst) {
            continue;
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
        state.passed.fetch_add(count as u64, Ordering::SeqCst);
    }
}
