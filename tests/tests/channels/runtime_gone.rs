//! A node whose runtime has ended: no call waits on it for ever.

use chunkcomm::{AcceptError, ConnectError, Receiver, SelectAll, Sender};
use chunkcomm_cluster::NodeExt;
use chunkcomm_testkit::{Pair, limited, pair};
use std::future::Future;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

/// Runs `test` with each kind of runtime for the nodes; `test` itself runs on another.
fn beside<F: Future<Output = ()>>(test: impl Fn(Runtime) -> F) {
    let one = || Builder::new_current_thread().enable_all().build().unwrap();
    let two = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for nodes in [one(), two] {
        one().block_on(limited(test(nodes)));
    }
}

/// The waiting tasks, by name.
type Waits = Vec<(&'static str, JoinHandle<()>)>;

/// Spawns a wait under its name.
fn begins<F>(waits: &mut Waits, name: &'static str, wait: F)
where
    F: Future<Output = ()> + Send + 'static,
{
    waits.push((name, tokio::spawn(wait)));
}

/// Makes nodes and channels that the runtime `nodes` drives. Another thread makes them, since a
/// runtime that blocks cannot begin within another.
async fn on<T: Send + 'static>(
    nodes: Runtime,
    make: impl Future<Output = T> + Send + 'static,
) -> (Runtime, T) {
    tokio::task::spawn_blocking(move || {
        let made = nodes.block_on(make);
        (nodes, made)
    })
    .await
    .unwrap()
}

#[test]
fn every_wait_of_a_node_ends_when_its_runtime_does() {
    beside(async |nodes| {
        let (nodes, (pair, open, gathered)) = on(nodes, async {
            let pair = pair().await;
            let (open, gathered) = (pair.channel("open").await, pair.channel("gathered").await);
            (pair, open, gathered)
        })
        .await;
        let mut waits = Vec::new();
        let node = pair.a.clone();
        begins(&mut waits, "accept", async move {
            let error = node.accept::<u64>("nobody's").await.unwrap_err();
            assert!(matches!(error, AcceptError::RuntimeGone), "{error}");
            assert!(error.to_string().contains("runtime"), "{error}");
        });
        let node = pair.a.clone();
        begins(&mut waits, "accept_bytes", async move {
            let error = node.accept_bytes("nobody's").await.unwrap_err();
            assert!(matches!(error, AcceptError::RuntimeGone), "{error}");
        });
        let node = pair.b.clone();
        begins(&mut waits, "connect", async move {
            let nobody = chunkcomm_testkit::memory();
            let error = node.connect_within(&nobody, Duration::MAX).await.unwrap_err();
            assert!(matches!(error, ConnectError::RuntimeGone), "{error}");
        });
        let (_end, mut arriving) = pair.a.travelling_sender::<u64>().unwrap();
        begins(&mut waits, "a travelling end", async move {
            let error = arriving.recv().await.unwrap_err();
            assert!(error.to_string().contains("runtime"), "{error}");
        });
        waits_on_channels(&mut waits, &pair, open);
        waits_on_others(&mut waits, &pair, gathered.1);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        for (name, wait) in &waits {
            assert!(!wait.is_finished(), "{name} does not wait");
        }
        nodes.shutdown_background();
        for (name, wait) in waits {
            let ended = tokio::time::timeout(Duration::from_secs(20), wait).await;
            ended.unwrap_or_else(|_| panic!("{name} hangs")).unwrap();
        }
        nothing_begins(&pair).await;
    });
}

fn waits_on_channels(
    waits: &mut Waits,
    pair: &Pair,
    (mut sender, mut receiver): (Sender<u64>, Receiver<u64>),
) {
    let peer = pair.peer.clone();
    begins(waits, "closed", async move {
        peer.closed().await;
    });
    begins(waits, "closed of a sender", async move {
        sender.closed().await;
    });
    begins(waits, "recv", async move {
        receiver.recv().await.unwrap_err();
    });
}

/// Begins a call, and a `SelectAll` of this receiver.
fn waits_on_others(waits: &mut Waits, pair: &Pair, receiver: Receiver<u64>) {
    // A service and processes run on the runtime in which they are made: here on one that lasts.
    let service = pair.a.serve("slow", |(): ()| std::future::pending::<Result<(), String>>());
    let client = pair.b.call_client::<(), ()>(&pair.peer, "slow").unwrap();
    begins(waits, "a call", async move {
        client.call(&()).await.unwrap_err();
        drop(service);
    });
    let mut all = SelectAll::new();
    all.add(receiver);
    begins(waits, "a SelectAll", async move {
        all.recv().await.unwrap_err();
    });
}

/// Checks that later calls are refused, and that nothing waits.
async fn nothing_begins(pair: &Pair) {
    let error = limited(pair.a.accept::<u64>("later")).await.unwrap_err();
    assert!(matches!(error, AcceptError::RuntimeGone), "{error}");
    let error = limited(pair.b.connect(&pair.a.addresses()[0])).await.unwrap_err();
    assert!(matches!(error, ConnectError::RuntimeGone), "{error}");
    assert!(limited(pair.b.open::<u64>(&pair.peer, "later")).await.is_err());
    let error = limited(pair.a.local()).await.unwrap_err();
    assert!(matches!(error, ConnectError::RuntimeGone), "{error}");
    limited(pair.a.explain()).await;
    let _ = limited(pair.b.close(Duration::from_secs(5))).await;
    let error = limited(pair.b.accept::<u64>("closed")).await.unwrap_err();
    assert!(matches!(error, AcceptError::Closed), "{error}");
}
