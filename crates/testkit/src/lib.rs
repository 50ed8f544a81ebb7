//! Helpers that the tests of all crates share. [`Pair`] and [`pair`] give two nodes and their link.
#![allow(clippy::unwrap_used)]

#[cfg(feature = "authority")]
pub mod authority;
pub mod blocking;
pub mod counting;
pub mod events;
mod host;
mod ports;
#[cfg(unix)]
pub mod proc;
pub mod proxy;
pub mod random;
pub mod raw;
mod scratch;
#[cfg(feature = "paused-clock")]
pub mod still;
mod waiting;

pub use host::own_host;
pub use ports::free_port;
pub use scratch::{Scratch, free_path};
pub use waiting::{cancelled, limited, on_both, on_one_thread, on_two_threads};
pub use waiting::{settled, stays, until, until_some, waiting};

use chunkcomm::{Address, BytesReceiver, BytesSender, Experiment, Limits, Node, NodeBuilder};
use chunkcomm::{Peer, Receiver, Sender};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A time that does not come: anything that would wait for it must leave for another reason.
pub const NEVER: Duration = Duration::from_secs(3600);

/// Returns a command of this program, to run one of its tests in a process of its own.
pub fn itself(test: &str) -> std::process::Command {
    let mut program = std::process::Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", test]);
    program
}

/// Returns an address in memory that no other test uses.
pub fn memory() -> Address {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    Address::Memory(format!("test-{}", NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// Returns an address of loopback, at a port that the system chooses.
pub fn tcp() -> Address {
    "127.0.0.1:0".parse().unwrap()
}

/// Returns the default limits, but for the memory of a link's receivers.
pub fn windows_of(bytes: usize) -> Limits {
    Limits { window_bytes_max: bytes, ..Limits::default() }
}

/// Returns the default limits, but for the largest message that the node takes.
pub fn messages_of(bytes: usize) -> Limits {
    Limits { message_bytes_max: bytes, ..Limits::default() }
}

/// Returns the settings of a node whose full packets have this size.
pub fn packets_of(bytes: usize) -> Experiment {
    Experiment { packet_bytes_max: Some(bytes), ..Experiment::default() }
}

/// Node `b`, which dialled node `a`.
pub struct Pair {
    /// The node that listens.
    pub a: Node,
    /// The node that dialled.
    pub b: Node,
    /// Node `a`, as `b` sees it.
    pub peer: Peer,
}

/// Returns two nodes with these settings, connected through `address`.
pub async fn pair_of(address: Address, a: NodeBuilder, b: NodeBuilder) -> Pair {
    let a = a.name("a").listen(address).build().await.unwrap();
    let b = b.name("b").build().await.unwrap();
    let peer = b.connect(&a.addresses()[0]).await.unwrap();
    Pair { a, b, peer }
}

/// Returns two nodes with default settings over TCP.
pub async fn pair() -> Pair {
    pair_of(tcp(), Node::builder(), Node::builder()).await
}

impl Pair {
    /// Opens a channel from `b` to `a`.
    pub async fn channel<T>(&self, name: &str) -> (Sender<T>, Receiver<T>)
    where
        T: Serialize + DeserializeOwned,
    {
        let sender = self.b.open(&self.peer, name).await.unwrap();
        let (_, receiver) = limited(self.a.accept(name)).await.unwrap();
        (sender, receiver)
    }

    /// Opens a channel of bytes from `b` to `a`.
    pub async fn bytes(&self, name: &str) -> (BytesSender, BytesReceiver) {
        let sender = self.b.open_bytes(&self.peer, name).await.unwrap();
        let (_, receiver) = limited(self.a.accept_bytes(name)).await.unwrap();
        (sender, receiver)
    }

    /// Opens a channel of bytes from `a` to `b`.
    pub async fn bytes_back(&self, name: &str) -> (BytesSender, BytesReceiver) {
        let sender = self.a.open_bytes(&self.as_seen_from_a().await, name).await.unwrap();
        let (_, receiver) = limited(self.b.accept_bytes(name)).await.unwrap();
        (sender, receiver)
    }

    /// Returns node `b` as `a` sees it.
    async fn as_seen_from_a(&self) -> Peer {
        let (mut hint, mut here) = self.channel::<u8>("which way").await;
        hint.send(&0).await.unwrap();
        here.recv().await.unwrap();
        here.peer().clone()
    }

    /// Opens a channel from `a` to `b`.
    pub async fn back<T>(&self, name: &str) -> (Sender<T>, Receiver<T>)
    where
        T: Serialize + DeserializeOwned,
    {
        let sender = self.a.open(&self.as_seen_from_a().await, name).await.unwrap();
        let (_, receiver) = limited(self.b.accept(name)).await.unwrap();
        (sender, receiver)
    }

    /// Checks that a channel of the link brings its messages in order.
    pub async fn is_well(&self, name: &str) {
        let (mut sender, mut receiver) = self.channel::<u64>(name).await;
        for number in 0..100 {
            sender.send(&number).await.unwrap();
        }
        drop(sender);
        for number in 0..100 {
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some(number));
        }
        assert_eq!(limited(receiver.recv()).await.unwrap(), None);
    }
}

/// Returns every value until the end of the stream.
pub async fn all<T: DeserializeOwned>(receiver: &mut Receiver<T>) -> Vec<T> {
    let mut values = Vec::new();
    while let Some(value) = limited(receiver.recv()).await.unwrap() {
        values.push(value);
    }
    values
}

/// Fills the channel until nothing more is accepted and it waits for credit, though the runtime
/// runs; returns the number of messages accepted.
pub async fn fill<T: Serialize>(sender: &mut Sender<T>, value: &T) -> u64 {
    let credit_waits = sender.peer().stats().credit_waits;
    let mut accepted = 0;
    let mut full_in_a_row = 0;
    let mut waits = false;
    while full_in_a_row < 10 {
        if !waits {
            // Before the sender waits for credit, there may be room again.
            full_in_a_row = 0;
            waits = sender.peer().stats().credit_waits > credit_waits;
        }
        match sender.try_send(value) {
            Ok(()) => {
                accepted += 1;
                full_in_a_row = 0;
            }
            Err(chunkcomm::TrySendError::Full) => {
                full_in_a_row += 1;
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
    accepted
}
