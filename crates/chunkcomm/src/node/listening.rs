//! Connections that come to a node, until they are peers.

use super::admission::Admission;
use super::hello::{self, OwnHello, Side};
use super::slots::{Slot, Slots};
use super::{NodeShared, resume};
use crate::Address;
use crate::descriptors::with_limit;
use crate::driver::clock;
use crate::driver::tasks;
use crate::error::HelloCause;
use crate::explain::Way;
use crate::proto::causes::with_causes;
use crate::transport::{Listener, Transport};
use std::io;
use std::sync::Weak;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;

/// Most connections on their way to a session at the same time, at each address: 64.
const HELLOS_MAX: usize = 64;

/// Rest of the accept loop after an error: 20 ms. The causes, such as no more file
/// descriptors, pass.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Connections in a row that were gone before they were accepted, after which the accept loop
/// rests as well: 64. A system that returns such errors for ever would keep it busy. The
/// system's queue of 1024 such connections still passes in a third of a second.
const GONE_IN_A_ROW_MAX: u32 = 64;

/// An address at which a node listens.
pub(super) struct Listening {
    pub(super) listener: Box<dyn Listener>,
    /// Dropped after the listener: then the address is free.
    pub(super) _is_taken: watch::Receiver<()>,
}

/// Accepts connections until the node is gone; no error ends it.
pub(super) async fn accept_loop(listening: Listening, node: Weak<NodeShared>) {
    let listener = &*listening.listener;
    let address = listener.address();
    let Some(way) = node.upgrade().map(|it| it.same_host.way_to(&address)) else { return };
    let slots = Slots::new(HELLOS_MAX);
    let mut errors = Errors::default();
    loop {
        let connection = match listener.accept().await {
            Ok(connection) => connection,
            Err(error) => {
                errors.rest_after(error, &address, &node).await;
                continue;
            }
        };
        errors = Errors::default();
        let (slot, mut loss) = slots.take().await;
        let Some(shared) = node.upgrade() else { return };
        let (own, admission) =
            (shared.same_host.offered(shared.own, &address), shared.admission.at(&address));
        drop(shared);
        let node = node.clone();
        let welcoming = async move {
            let welcomed = tokio::select! {
                biased;
                () = loss.happens() => Err(HelloCause::GaveWay),
                welcomed = welcome(connection, &own, &admission, &slot, &node, way) => welcomed,
            };
            // The dialler of a Unix socket may have given it up, and has TCP.
            let is_given_up = |cause: &HelloCause| {
                use HelloCause::{GaveWay, Io, NoProof, ProofTimeout, Timeout};
                let went = matches!(cause, Io(_) | NoProof(_) | Timeout | ProofTimeout | GaveWay);
                way == Way::SameHost && went
            };
            if let (Err(cause), Some(shared)) = (welcomed, node.upgrade())
                && !is_given_up(&cause)
            {
                shared.table.refuse(with_causes(&cause));
            }
            drop(slot);
        };
        tasks::spawn_boxed(&Handle::current(), Box::pin(welcoming));
    }
}

/// Errors of `accept` since it last returned a connection.
#[derive(Default)]
struct Errors {
    gone_in_a_row: u32,
    warned: bool,
}

impl Errors {
    async fn rest_after(&mut self, error: io::Error, address: &Address, node: &Weak<NodeShared>) {
        // A connection that was gone before it was accepted must not hold up the next one.
        if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset)
            && self.gone_in_a_row < GONE_IN_A_ROW_MAX
        {
            self.gone_in_a_row += 1;
            return tokio::task::yield_now().await;
        }
        self.gone_in_a_row = 0;
        if !std::mem::replace(&mut self.warned, true)
            && let Some(shared) = node.upgrade()
        {
            let error = with_limit(error);
            let what = format!("no connection can be accepted at {address} for now: {error}");
            shared.table.cannot_accept(what);
        }
        clock::pause(ACCEPT_PAUSE).await;
    }
}

/// Admits a connection, then gives it to the session that the peer names.
async fn welcome(
    connection: Box<dyn Transport>,
    own: &OwnHello,
    admission: &Admission,
    slot: &Slot,
    node: &Weak<NodeShared>,
    way: Way,
) -> Result<(), HelloCause> {
    let connected = clock::now();
    let admitted = hello::admit(connection, own, admission, Side::Acceptor(slot)).await?;
    let (mut connection, theirs, agreement) = admitted;
    // Without proofs and TLS every peer is still a stranger here.
    let is_member = admission.proves() || admission.protects();
    let time = if is_member { resume::DEADLINE } else { hello::strangers_time(connected) };
    let Some(word) = resume::first_word(&mut *connection, time).await? else { return Ok(()) };
    slot.proved();
    match node.upgrade() {
        // In a box, like everything that is for peers only: a stranger must not cost its memory.
        Some(shared) => Box::pin(shared.answer(connection, &(theirs, agreement), word, way)).await,
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Node;
    use crate::proto::hello::{Hello, LAYERS_MAX, Name};
    use crate::transport::{BoxFuture, memory};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

    /// Bytes that remain of 4 KiB for a stranger, beside its place, its socket and the runtime's
    /// memory of a task: some hundred bytes.
    const STRANGER_BYTES_MAX: usize = 4096 - 1024;

    #[tokio::test]
    async fn a_stranger_costs_what_was_promised() {
        let (connection, _other) = memory::pipe();
        let hello = Hello::new(Name::truncated("a cluster"), Name::truncated("a node"), 1);
        let own = OwnHello { hello, layer_names: [""; LAYERS_MAX] };
        let admission = Admission::default();
        let (slot, _loss) = Slots::new(HELLOS_MAX).take().await;
        let node = Weak::new();
        let welcome = welcome(connection, &own, &admission, &slot, &node, Way::Other);
        let bytes = size_of_val(&welcome) + size_of_val(&admission);
        assert!(bytes <= STRANGER_BYTES_MAX, "{bytes}");
    }

    /// A listener whose `accept` fails at once while `told` has an error.
    struct Failing {
        below: Box<dyn Listener>,
        told: Arc<Told>,
    }

    #[derive(Default)]
    struct Told {
        /// The system's number of the error; 0 for none.
        error: AtomicI32,
        calls: AtomicU64,
    }

    impl Told {
        fn calls(&self) -> u64 {
            self.calls.load(Ordering::Relaxed)
        }
    }

    impl Listener for Failing {
        fn accept(&self) -> BoxFuture<'_, io::Result<Box<dyn Transport>>> {
            let calls = self.told.calls.fetch_add(1, Ordering::Relaxed);
            assert!(calls < 10_000_000, "it spins: time stands still meanwhile");
            match self.told.error.load(Ordering::Relaxed) {
                0 => self.below.accept(),
                error => Box::pin(async move { Err(io::Error::from_raw_os_error(error)) }),
            }
        }

        fn address(&self) -> Address {
            self.below.address()
        }
    }

    /// Time for which a connection is watched; a node that dials has more.
    const PATIENCE: Duration = Duration::from_secs(4);

    /// Connects another honest peer.
    async fn connects() -> Result<(), crate::ConnectError> {
        let peer = Node::builder().build().await.unwrap();
        peer.connect(&Address::Memory("failing".to_owned())).await.map(drop)
    }

    #[tokio::test(start_paused = true)]
    async fn no_error_ends_the_loop_or_makes_it_spin() {
        let node = Node::builder().name("a").build().await.unwrap();
        let told = Arc::new(Told::default());
        let below = memory::listen("failing").unwrap();
        let listener = Failing { below, told: Arc::clone(&told) };
        let (_taken, is_taken) = watch::channel(());
        let listening = Listening { listener: Box::new(listener), _is_taken: is_taken };
        let accepting = tasks::spawn(accept_loop(listening, Arc::downgrade(&node.shared)));
        connects().await.unwrap();
        // All error numbers of Linux.
        for error in 1..=133 {
            told.error.store(error, Ordering::Relaxed);
            // The loop has waited for this connection since before it could fail.
            connects().await.unwrap();
            let before = told.calls();
            let waits = connects();
            tokio::pin!(waits);
            assert!(tokio::time::timeout(PATIENCE, &mut waits).await.is_err(), "errno {error}");
            let calls = told.calls() - before;
            let rests = (PATIENCE.as_millis() / ACCEPT_PAUSE.as_millis()) as u64;
            let calls_a_rest = match io::Error::from_raw_os_error(error).kind() {
                io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset => {
                    u64::from(GONE_IN_A_ROW_MAX) + 1
                }
                _ => 1,
            };
            let asked = calls / calls_a_rest;
            assert!((rests / 2..rests + 2).contains(&asked), "errno {error}: {calls} calls");
            told.error.store(0, Ordering::Relaxed);
            waits.await.unwrap();
        }
        assert!(!accepting.is_finished());
        // Nobody was refused otherwise.
        let told =
            |why: &String| why.starts_with("no connection can be accepted at memory:failing");
        assert!(node.refusals().iter().all(told), "{:?}", node.refusals());
        accepting.abort();
    }
}
