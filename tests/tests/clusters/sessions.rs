//! Sessions of members: one for two nodes, whichever of them dialled.

use crate::joining::{LONG, cluster, end_all};
use crate::processes::programs;
use chunkcomm::layer::Link;
use chunkcomm::{Address, Node, Peer, channel};
use chunkcomm_cluster::call::ServiceOptions;
use chunkcomm_cluster::cluster::{Cluster, EndError};
use chunkcomm_cluster::{NodeBuilderExt, NodeExt};
use chunkcomm_testkit::{limited, on_both, until};
use std::sync::Arc;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

/// Sessions of this node with the node of that rank.
fn sessions(from: &Cluster, rank: u32) -> Vec<Peer> {
    let incarnation = from.member(rank).unwrap().id.incarnation;
    let links = Link::all_of(from.node()).into_iter();
    let its = links.filter(|link| link.incarnation() == incarnation && link.is_alive());
    its.map(|link| link.peer(from.node())).collect()
}

fn address_of(node: &Cluster) -> Address {
    node.node().addresses()[0].clone()
}

/// Sends a word over `peer`; returns the peer that it came from, as node `to` sees it.
async fn talk(from: &Node, peer: &Peer, to: &Node) -> Peer {
    let mut sender = limited(from.open::<u32>(peer, "talk")).await.unwrap();
    sender.send(&7).await.unwrap();
    let (back, mut receiver) = limited(to.accept::<u32>("talk")).await.unwrap();
    assert_eq!(limited(receiver.recv()).await.unwrap(), Some(7));
    limited(sender.close(LONG)).await.unwrap();
    back
}

#[test]
fn four_nodes_that_all_dial_all_at_the_same_time_have_six_sessions() {
    on_both(|| async {
        const SIZE: u32 = 4;
        let (nodes, _) = cluster(SIZE, |config| config).await;
        let (mut talking, together) = (JoinSet::new(), Arc::new(Barrier::new(3 * 12)));
        for (from, to) in (0..SIZE).flat_map(|from| (0..SIZE).map(move |to| (from, to))) {
            if from == to {
                continue;
            }
            // Several calls of one node for one other, too.
            for number in 0..3 {
                let (node, together) = (nodes[from as usize].clone(), Arc::clone(&together));
                talking.spawn(async move {
                    together.wait().await;
                    let peer = node.peer(to).await.unwrap();
                    let name = format!("words {number}");
                    let mut sender = node.node().open::<u32>(&peer, &*name).await.unwrap();
                    sender.send(&from).await.unwrap();
                    sender.sync().await.unwrap();
                    let from_it = channel(&*name).from_peer(&peer);
                    let (back, mut words) = node.node().accept::<u32>(from_it).await.unwrap();
                    assert_eq!(words.recv().await.unwrap(), Some(to));
                    assert_eq!(node.member_of(&back).unwrap().id.rank, to);
                    assert_eq!(back, node.peer(to).await.unwrap());
                    assert_eq!(back, peer);
                });
            }
        }
        while let Some(talked) = limited(talking.join_next()).await {
            talked.unwrap();
        }
        for node in &nodes {
            for to in (0..SIZE).filter(|to| *to != node.rank()) {
                assert_eq!(sessions(node, to).len(), 1, "{} with {to}", node.rank());
            }
        }
        end_all(&nodes).await;
    });
}

#[test]
fn of_two_sessions_both_nodes_prefer_the_same_and_channels_stay() {
    on_both(|| async {
        let (nodes, _) = cluster(3, |config| config).await;
        let (one, two) = (&nodes[1], &nodes[2]);
        // The program's own sessions, one by each.
        let ours = limited(one.node().connect(&address_of(two))).await.unwrap();
        let theirs = limited(two.node().connect(&address_of(one))).await.unwrap();
        let mut open = Vec::new();
        for (from, peer, to) in [(one, &ours, two), (two, &theirs, one)] {
            let sender = from.node().open::<u32>(peer, "stays").await.unwrap();
            open.push((sender, limited(to.node().accept::<u32>("stays")).await.unwrap().1));
        }
        assert_eq!((sessions(one, 2).len(), sessions(two, 1).len()), (2, 2));
        let (there, back) = (one.peer(2).await.unwrap(), two.peer(1).await.unwrap());
        // One session, begun by the smaller incarnation.
        assert_eq!(talk(one.node(), &there, two.node()).await, back);
        assert_eq!(talk(two.node(), &back, one.node()).await, there);
        let is_ours = one.id().incarnation < two.id().incarnation;
        assert_eq!((there == ours, back == theirs), (is_ours, !is_ours));
        for (sender, receiver) in &mut open {
            sender.send(&1).await.unwrap();
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some(1));
            // A message without an acknowledgement would be a loss of the session.
            limited(sender.sync()).await.unwrap();
        }
        // When it has ended, both take the other.
        there.abort();
        limited(async { (there.closed().await, back.closed().await) }).await;
        let (there, back) = (one.peer(2).await.unwrap(), two.peer(1).await.unwrap());
        assert_eq!((there == ours, back == theirs), (!is_ours, is_ours));
        // When both have ended, either dials anew.
        for (dialler, other) in [(one, two), (two, one)] {
            let old = other.peer(dialler.rank()).await.unwrap();
            old.abort();
            until(|| sessions(one, 2).len() + sessions(two, 1).len() == 0).await;
            let peer = limited(dialler.peer(other.rank())).await.unwrap();
            assert!(peer.dialled().is_some());
            let back = talk(dialler.node(), &peer, other.node()).await;
            assert!(back != old && back == other.peer(dialler.rank()).await.unwrap());
            assert_eq!((sessions(one, 2).len(), sessions(two, 1).len()), (1, 1));
        }
        end_all(&nodes).await;
    });
}

#[test]
fn calls_and_processes_go_both_ways_over_one_session() {
    on_both(|| async {
        let programs = programs();
        let (nodes, _) =
            cluster(3, |config| config.node(Node::builder().processes(&programs.registry))).await;
        let (one, two) = (&nodes[1], &nodes[2]);
        let mut services = Vec::new();
        for node in [one, two] {
            let rank = node.rank();
            let serving = node.serve("who", ServiceOptions::default(), move |(): ()| async move {
                Ok::<u32, String>(rank)
            });
            services.push(serving.await.unwrap());
        }
        // One of them dials.
        limited(one.peer(2)).await.unwrap();
        let of_one = limited(two.call_client_at::<(), u32>(1, "who")).await.unwrap();
        let of_two = limited(one.call_client_at::<(), u32>(2, "who")).await.unwrap();
        for again in [false, true] {
            assert_eq!(limited(of_one.call(&())).await.unwrap(), 1);
            assert_eq!(limited(of_two.call(&())).await.unwrap(), 2);
            for (from, to) in [(one, two), (two, one)] {
                let (writer, value) = from.node().value().unwrap();
                let process = from.instantiate(to.rank(), &programs.rank, writer).await.unwrap();
                assert_eq!(limited(value.get()).await.unwrap(), &to.rank());
                limited(process).await.unwrap();
            }
            assert_eq!((sessions(one, 2).len(), sessions(two, 1).len()), (1, 1));
            if !again {
                // The clients dial anew, also that of the node that was dialled. An acknowledgement
                // may be on its way: what it is for counts as lost.
                one.peer(2).await.unwrap().abort();
                until(|| sessions(one, 2).len() + sessions(two, 1).len() == 0).await;
            }
        }
        limited(services.remove(0).close(LONG)).await.unwrap();
        drop(services);
        let (one, two, three) = limited(async {
            tokio::join!(nodes[0].end(LONG), nodes[1].end(LONG), nodes[2].end(LONG))
        })
        .await;
        for ended in [one, two, three] {
            assert!(matches!(ended, Ok(()) | Err(EndError::Close(_))), "{ended:?}");
        }
    });
}
