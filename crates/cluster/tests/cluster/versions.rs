//! Releases whose ranges of versions differ, in one cluster.

use crate::joining::{LONG, cluster, config, end_all};
use crate::processes::{Programs, programs};
use chunkcomm::proto::hello::{VERSION_MAX, VERSION_MIN};
use chunkcomm::{ChannelOptions, Lane, Node, channel};
use chunkcomm_cluster::call::ServiceOptions;
use chunkcomm_cluster::cluster::{Cluster, ClusterConfig};
use chunkcomm_cluster::proto::cluster::{Down, NodeId, Up};
use chunkcomm_cluster::{NodeBuilderExt, NodeExt};
use chunkcomm_testkit::{free_port, limited, on_both, on_one_thread};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};

type Versions = RangeInclusive<u16>;

/// Versions of the words between members, of a release before their names.
const OLD: Versions = 1..=1;
const ALL: Versions = 1..=2;

/// The duplex between a member and its manager.
const LINE: &str = "chunkcomm.cluster.up";

fn line() -> ChannelOptions {
    channel(LINE).lane(Lane::Express).schema(format!("{LINE}/4"))
}

/// Versions of packets.
const OLD_PACKETS: Versions = VERSION_MIN..=VERSION_MIN;

/// A node of a release that speaks these versions of the words between members.
fn speaking(versions: Versions, programs: &Programs, config: ClusterConfig) -> ClusterConfig {
    let builder = Node::builder().processes(&programs.registry);
    config.node(builder.name("called")).versions(versions)
}

/// A node of a release that speaks these versions of packets, and all of the words.
fn packing(versions: Versions, programs: &Programs, config: ClusterConfig) -> ClusterConfig {
    let builder = Node::builder().processes(&programs.registry);
    config.node(builder.name("called").protocol_versions(versions))
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

/// Ranks known by name at each node.
fn named(nodes: &[Cluster]) -> Vec<Vec<u32>> {
    let ranks = |node: &Cluster| node.members_named("called").iter().map(|it| it.id.rank).collect();
    nodes.iter().map(ranks).collect()
}

#[test]
fn an_older_release_among_newer_ones_is_exchanged_while_the_cluster_runs() {
    on_both(|| async {
        let programs = programs();
        let (mut nodes, port) = releases(&[ALL, OLD, ALL], &programs).await;
        all_work_together(&nodes, &programs).await;
        // Words of the new version go only to nodes that speak it.
        assert_eq!(named(&nodes), [vec![0, 2], vec![], vec![0, 2]]);
        limited(nodes[1].leave(LONG)).await.unwrap();
        let new = speaking(ALL, &programs, config(Some(1), 3, port));
        nodes[1] = limited(Cluster::join(new)).await.unwrap();
        all_work_together(&nodes, &programs).await;
        assert_eq!(named(&nodes), [[0, 1, 2], [0, 1, 2], [0, 1, 2]]);
        end_all(&nodes).await;
    });
}

#[test]
fn newer_members_work_with_an_older_manager() {
    on_one_thread(async {
        let programs = programs();
        let (nodes, _) = releases(&[OLD, ALL, ALL], &programs).await;
        all_work_together(&nodes, &programs).await;
        assert_eq!(named(&nodes), [const { Vec::<u32>::new() }; 3]);
        end_all(&nodes).await;
    });
}

#[test]
fn the_version_of_the_packets_is_not_that_of_the_words() {
    on_one_thread(async {
        let programs = programs();
        let of_packets = [VERSION_MAX, VERSION_MIN, VERSION_MAX];
        let next = AtomicUsize::new(0);
        let its = || VERSION_MIN..=of_packets[next.fetch_add(1, Ordering::Relaxed)];
        let (nodes, _) = cluster(3, |config| packing(its(), &programs, config)).await;
        for (from, to, version) in [(0, 1, VERSION_MIN), (1, 2, VERSION_MIN), (2, 0, VERSION_MAX)] {
            let peer = nodes[from].peer(to).await.unwrap();
            assert_eq!(peer.protocol_version(), version);
        }
        all_work_together(&nodes, &programs).await;
        assert_eq!(named(&nodes), [[0, 1, 2], [0, 1, 2], [0, 1, 2]]);
        end_all(&nodes).await;
    });
}

#[test]
fn without_a_common_version_of_the_words_the_error_names_their_layer() {
    on_one_thread(async {
        let programs = programs();
        let (nodes, port) = releases(&[OLD, OLD], &programs).await;
        limited(nodes[1].leave(LONG)).await.unwrap();
        let join = Cluster::join(speaking(2..=2, &programs, config(Some(1), 2, port)));
        let text = limited(join).await.unwrap_err().to_string();
        let why = "no common version of chunkcomm.cluster: we speak 2 to 2, the peer 1 to 1";
        assert!(text.contains(why), "{text}");
        let refused = nodes[0].node().refusals().pop().unwrap();
        let why = "no common version of chunkcomm.cluster: we speak 1 to 1, the peer 2 to 2";
        assert!(refused.contains(why), "{refused}");
        end_all(&nodes[..1]).await;
        let none = Cluster::join(speaking(2..=3, &programs, config(Some(0), 1, free_port()))).await;
        let text = none.unwrap_err().to_string();
        assert!(text.contains("2 to 3 of chunkcomm.cluster"), "{text}");
    });
}

#[test]
fn without_a_common_version_of_the_packets_the_error_has_both_ranges() {
    on_one_thread(async {
        let programs = programs();
        let old = |config| packing(OLD_PACKETS, &programs, config);
        let (nodes, port) = cluster(2, old).await;
        limited(nodes[1].leave(LONG)).await.unwrap();
        let new = VERSION_MAX..=VERSION_MAX;
        let join = Cluster::join(packing(new, &programs, config(Some(1), 2, port)));
        let text = limited(join).await.unwrap_err().to_string();
        let ranges = format!(
            "we speak {VERSION_MAX} to {VERSION_MAX}, the peer {VERSION_MIN} to {VERSION_MIN}"
        );
        assert!(text.contains(&ranges), "{text}");
        let refused = nodes[0].node().refusals().pop().unwrap();
        let ranges = format!(
            "we speak {VERSION_MIN} to {VERSION_MIN}, the peer {VERSION_MAX} to {VERSION_MAX}"
        );
        assert!(refused.contains(&ranges), "{refused}");
        end_all(&nodes[..1]).await;
        let none = Node::builder().protocol_versions(VERSION_MAX..=VERSION_MAX + 1).build().await;
        assert!(none.unwrap_err().to_string().contains("protocol_versions"));
    });
}

/// The error names the version; a running cluster goes on.
#[test]
fn a_word_of_a_version_that_was_not_agreed_on_ends_the_link() {
    on_one_thread(async {
        let (nodes, port) = cluster(2, |config| config).await;
        let address: chunkcomm::Address = format!("127.0.0.1:{port}").parse().unwrap();
        // No layer of a cluster started with it, so it speaks the oldest version.
        let old = Node::builder().build().await.unwrap();
        let peer = limited(old.connect(&address)).await.unwrap();
        let line = old.open_duplex::<Up, Down>(&peer, line()).await;
        let (mut up, _down) = line.unwrap().split();
        up.send_now(&Up::Called("early".to_owned())).await.unwrap();
        limited(peer.closed()).await;
        let (first, second) = tokio::join!(nodes[0].barrier(), nodes[1].barrier());
        assert_eq!((first, second), (Ok(()), Ok(())));
        end_all(&nodes).await;
    });
}

/// A manager sends a word of a version that was not agreed on: its member reports why it gave the
/// manager up.
#[test]
fn a_manager_that_says_what_was_not_agreed_on_is_given_up() {
    on_one_thread(async {
        let (port, programs) = (free_port(), programs());
        let address: chunkcomm::Address = format!("127.0.0.1:{port}").parse().unwrap();
        let manager = Node::builder().listen(address).build().await.unwrap();
        let joining = Cluster::join(speaking(OLD, &programs, config(Some(1), 2, port)));
        let saying = async {
            let line = manager.accept_duplex::<Down, Up>(line());
            let (_, mut line) = line.await.unwrap();
            let first = line.recv().await.unwrap();
            assert!(matches!(first, Some(Up::Ready(_))), "{first:?}");
            let id = NodeId { rank: 0, incarnation: manager.incarnation() };
            let word = Down::Called(vec![(id, "head".to_owned())]);
            line.sender().send_now(&word).await.unwrap();
            line
        };
        let (joined, _line) = limited(async { tokio::join!(joining, saying) }).await;
        let text = joined.unwrap_err().to_string();
        assert!(text.contains("a word of version 2, where 1 was agreed on"), "{text}");
    });
}
