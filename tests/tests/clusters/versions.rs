//! Releases whose ranges of versions differ, in one cluster. Their ranges are made up.

use crate::joining::{LONG, cluster, config, end_all};
use crate::processes::{Programs, programs};
use chunkcomm::{ChannelOptions, Experiment, Lane, Node, channel};
use chunkcomm_cluster::call::ServiceOptions;
use chunkcomm_cluster::cluster::{Cluster, ClusterConfig};
use chunkcomm_cluster::proto::cluster::{Down, Up};
use chunkcomm_cluster::{NodeBuilderExt, NodeExt};
use chunkcomm_testkit::{free_port, limited, on_both, on_one_thread};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};

type Versions = RangeInclusive<u16>;

const OLD: Versions = 1..=1;
const BOTH: Versions = 1..=2;
const NEW: Versions = 2..=2;

/// A word of a later version. The encoding of words begins with the number of their variant.
const LATER: u32 = 99;

/// The duplex between a member and its manager.
fn line() -> ChannelOptions {
    channel("chunkcomm.cluster.up").lane(Lane::Express).schema("chunkcomm.cluster.up/1")
}

/// A node of a release that speaks these versions of the words between members.
fn speaking(versions: Versions, programs: &Programs, config: ClusterConfig) -> ClusterConfig {
    let builder = Node::builder().processes(&programs.registry);
    config.node(builder).versions(versions)
}

/// A node of a release that speaks these versions of packets, and all of the words.
fn packing(versions: Versions, programs: &Programs, config: ClusterConfig) -> ClusterConfig {
    let builder = Node::builder().processes(&programs.registry);
    config.node(builder.experiment(Experiment { versions, ..Experiment::default() }))
}

async fn releases(versions: &[Versions], programs: &Programs) -> (Vec<Cluster>, u16) {
    let next = AtomicUsize::new(0);
    // Ranks join in order.
    let its = || versions[next.fetch_add(1, Ordering::Relaxed)].clone();
    cluster(versions.len() as u32, |config| speaking(its(), programs, config)).await
}

/// Channels, calls and processes from each to each, and a barrier.
async fn all_work_together(nodes: &[Cluster], programs: &Programs) {
    let mut services = Vec::new();
    for node in nodes {
        let rank = node.rank();
        let who = move |()| async move { Ok::<u32, String>(rank) };
        services.push(node.serve("who", ServiceOptions::default(), who).await.unwrap());
    }
    for from in nodes {
        for to in nodes {
            let peer = from.peer(to.rank()).await.unwrap();
            let mut sender = from.node().open::<u32>(&peer, "channel").await.unwrap();
            sender.send(&from.rank()).await.unwrap();
            let (_, mut receiver) = limited(to.node().accept::<u32>("channel")).await.unwrap();
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some(from.rank()));
            let client = from.call_client_at::<(), u32>(to.rank(), "who").await.unwrap();
            assert_eq!(limited(client.call(&())).await.unwrap(), to.rank());
            let (writer, value) = from.node().value().unwrap();
            let process = from.instantiate(to.rank(), &programs.rank, writer).await.unwrap();
            assert_eq!(limited(value.get()).await.unwrap(), &to.rank());
            limited(process).await.unwrap();
        }
    }
    for service in services {
        limited(service.close(LONG)).await.unwrap();
    }
    let barriers: Vec<_> = nodes
        .iter()
        .map(|node| {
            let node = node.clone();
            tokio::spawn(async move { node.barrier().await })
        })
        .collect();
    for one in barriers {
        assert_eq!(limited(one).await.unwrap(), Ok(()));
    }
}

#[test]
fn a_release_among_others_is_exchanged_while_the_cluster_runs() {
    on_both(|| async {
        for manager in [OLD, BOTH] {
            let programs = programs();
            let (mut nodes, port) = releases(&[manager, OLD, BOTH], &programs).await;
            all_work_together(&nodes, &programs).await;
            limited(nodes[1].leave(LONG)).await.unwrap();
            let new = speaking(BOTH, &programs, config(Some(1), 3, port));
            nodes[1] = limited(Cluster::join(new)).await.unwrap();
            all_work_together(&nodes, &programs).await;
            end_all(&nodes).await;
        }
    });
}

#[test]
fn the_version_of_the_packets_is_not_that_of_the_words() {
    on_one_thread(async {
        let programs = programs();
        let ranges = [BOTH, OLD, BOTH];
        let next = AtomicUsize::new(0);
        let its = || ranges[next.fetch_add(1, Ordering::Relaxed)].clone();
        let (nodes, _) = cluster(3, |config| packing(its(), &programs, config)).await;
        for (from, to, version) in [(0, 1, 1), (1, 2, 1), (2, 0, 2)] {
            let peer = nodes[from].peer(to).await.unwrap();
            assert_eq!(peer.protocol_version(), version);
        }
        all_work_together(&nodes, &programs).await;
        end_all(&nodes).await;
    });
}

#[test]
fn without_a_common_version_of_the_words_the_error_names_their_layer() {
    on_one_thread(async {
        let programs = programs();
        let (nodes, port) = releases(&[OLD, OLD], &programs).await;
        limited(nodes[1].leave(LONG)).await.unwrap();
        let join = Cluster::join(speaking(NEW, &programs, config(Some(1), 2, port)));
        let text = limited(join).await.unwrap_err().to_string();
        let why = "no common version of chunkcomm.cluster: we speak 2 to 2, the peer 1 to 1";
        assert!(text.contains(why), "{text}");
        let refused = nodes[0].node().refusals().pop().unwrap();
        let why = "no common version of chunkcomm.cluster: we speak 1 to 1, the peer 2 to 2";
        assert!(refused.contains(why), "{refused}");
        end_all(&nodes[..1]).await;
    });
}

#[test]
fn without_a_common_version_of_the_packets_the_error_has_both_ranges() {
    on_one_thread(async {
        let programs = programs();
        let (nodes, port) = cluster(2, |config| packing(OLD, &programs, config)).await;
        limited(nodes[1].leave(LONG)).await.unwrap();
        let join = Cluster::join(packing(NEW, &programs, config(Some(1), 2, port)));
        let text = limited(join).await.unwrap_err().to_string();
        assert!(text.contains("we speak 2 to 2, the peer 1 to 1"), "{text}");
        let refused = nodes[0].node().refusals().pop().unwrap();
        assert!(refused.contains("we speak 1 to 1, the peer 2 to 2"), "{refused}");
        end_all(&nodes[..1]).await;
    });
}

/// A running cluster goes on.
#[test]
fn a_word_of_a_version_that_was_not_agreed_on_ends_its_line() {
    on_one_thread(async {
        let (nodes, port) = cluster(2, |config| config).await;
        let address: chunkcomm::Address = format!("127.0.0.1:{port}").parse().unwrap();
        let node = Node::builder().build().await.unwrap();
        let peer = limited(node.connect(&address)).await.unwrap();
        let line = node.open_duplex::<u32, Down>(&peer, line()).await;
        let (mut up, _down) = line.unwrap().split();
        up.send_now(&LATER).await.unwrap();
        limited(up.closed()).await;
        let (first, second) = tokio::join!(nodes[0].barrier(), nodes[1].barrier());
        assert_eq!((first, second), (Ok(()), Ok(())));
        end_all(&nodes).await;
    });
}

/// Its member reports why it gave the manager up.
#[test]
fn a_manager_that_says_what_was_not_agreed_on_is_given_up() {
    on_one_thread(async {
        let port = free_port();
        let address: chunkcomm::Address = format!("127.0.0.1:{port}").parse().unwrap();
        let manager = Node::builder().listen(address).build().await.unwrap();
        let joining = Cluster::join(config(Some(1), 2, port));
        let saying = async {
            let line = manager.accept_duplex::<u32, Up>(line());
            let (_, mut line) = line.await.unwrap();
            let first = line.recv().await.unwrap();
            assert!(matches!(first, Some(Up::Ready(_))), "{first:?}");
            line.sender().send_now(&LATER).await.unwrap();
            line
        };
        let (joined, _line) = limited(async { tokio::join!(joining, saying) }).await;
        let text = joined.unwrap_err().to_string();
        assert!(text.contains("the type has no variant of this index"), "{text}");
    });
}
