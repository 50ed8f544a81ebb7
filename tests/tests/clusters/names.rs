//! Names of nodes.

use crate::joining::{LONG, cluster, config, end_all};
use chunkcomm::Node;
use chunkcomm_cluster::cluster::{Change, Cluster, ClusterConfig, Member, NameError, NodeId};
use chunkcomm_testkit::{at_last, limited, on_both, on_one_thread};

fn called(name: &str, config: ClusterConfig) -> ClusterConfig {
    config.node(Node::builder().name(name)).rejoin_window(LONG)
}

/// A cluster whose nodes have these names, rank by rank; no name where it is empty.
async fn named(names: &[&str]) -> (Vec<Cluster>, u16) {
    let next = std::sync::atomic::AtomicUsize::new(0);
    // Ranks join in order.
    let name = || names[next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)];
    cluster(names.len() as u32, |config| called(name(), config)).await
}

fn rank_of(found: Result<Member, NameError>) -> u32 {
    found.unwrap().id.rank
}

async fn until_gone(node: &Cluster, name: &str) {
    let mut changes = node.changes();
    while !node.members_named(name).is_empty() {
        limited(changes.next()).await;
    }
}

#[test]
fn all_know_each_other_by_name_as_soon_as_they_are_members() {
    on_both(|| async {
        let (mut nodes, port) = named(&["head", "", "sorter"]).await;
        for node in &nodes {
            assert_eq!(rank_of(node.member_named("head")), 0);
            let sorter = node.member_named("sorter").unwrap();
            assert_eq!(sorter.id, nodes[2].id());
            assert_eq!(sorter.to_string(), {
                let Member { pid, host, .. } = &sorter;
                format!("rank 2 \"sorter\" (process {pid} on {host})")
            });
            // The default name for people is no given name.
            assert_eq!(node.member(1).unwrap().name, None);
            let error = node.member_named("rank-1").unwrap_err();
            assert_eq!(error.to_string(), "no node of the cluster is called \"rank-1\"");
        }
        assert_eq!(nodes[1].node().name(), "rank-1");
        assert_eq!(nodes[1].peer(2).await.unwrap().name(), "sorter");
        // A later node is known by name as soon as it is known.
        let mut changes = nodes[1].changes();
        let later = limited(Cluster::join(called("late", config(None, 0, port)))).await.unwrap();
        let Some(Change::Joined(joined)) = limited(changes.next()).await else { panic!() };
        assert_eq!((joined.id, joined.name.as_deref()), (later.id(), Some("late")));
        assert_eq!(rank_of(nodes[1].member_named("late")), 3);
        assert_eq!(rank_of(later.member_named("sorter")), 2);
        nodes.push(later);
        end_all(&nodes).await;
    });
}

#[test]
fn several_of_one_name_are_an_error_that_has_them_all() {
    on_one_thread(async {
        let (mut nodes, _) = named(&["head", "worker", "worker"]).await;
        let error = nodes[0].member_named("worker").unwrap_err();
        assert_eq!(error.to_string(), "2 nodes are called \"worker\": ranks [1, 2]");
        let ranks: Vec<u32> =
            nodes[0].members_named("worker").iter().map(|it| it.id.rank).collect();
        assert_eq!(ranks, [1, 2]);
        limited(nodes[1].leave(LONG)).await.unwrap();
        nodes.remove(1);
        limited(async {
            while nodes[0].members_named("worker").len() > 1 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert_eq!(rank_of(nodes[0].member_named("worker")), 2);
        end_all(&nodes).await;
    });
}

#[test]
fn the_name_of_a_dead_node_says_so_until_another_has_it() {
    on_one_thread(async {
        let (mut nodes, port) = named(&["head", "sorter", "other"]).await;
        let dead = nodes.remove(1);
        let id = dead.id();
        drop(dead);
        until_gone(&nodes[1], "sorter").await;
        let error = nodes[1].member_named("sorter").unwrap_err();
        assert!(matches!(&error, NameError::Dead { death, .. } if death.id == id), "{error}");
        let text = error.to_string();
        assert!(text.starts_with("\"sorter\", rank 1 is gone: "), "{text}");
        // At another rank.
        let mut changes = nodes[1].changes();
        let again = limited(Cluster::join(called("sorter", config(None, 0, port)))).await.unwrap();
        assert!(matches!(limited(changes.next()).await, Some(Change::Joined(_))));
        assert_eq!(rank_of(nodes[1].member_named("sorter")), again.rank());
        assert_eq!(again.rank(), 3);
        nodes.push(again);
        // A node that leaves takes its name with it.
        limited(nodes[1].leave(LONG)).await.unwrap();
        until_gone(&nodes[0], "other").await;
        let error = nodes[0].member_named("other").unwrap_err();
        assert!(matches!(error, NameError::Nobody { .. }), "{error}");
        nodes.remove(1);
        end_all(&nodes).await;
    });
}

#[test]
fn a_new_manager_knows_the_names() {
    on_one_thread(async {
        let (mut nodes, port) = named(&["head", "sorter", "dead", ""]).await;
        let dead = nodes.remove(2);
        drop(dead);
        until_gone(&nodes[1], "dead").await;
        let first = nodes.remove(0);
        drop(first);
        // The tasks end when they run next.
        while std::net::TcpListener::bind(("127.0.0.1", port)).is_err() {
            tokio::task::yield_now().await;
        }
        let back = called("second head", config(Some(0), 4, port));
        let back = limited(Cluster::join(back)).await.unwrap();
        until_gone(&nodes[1], "head").await;
        nodes.insert(0, back);
        let later = limited(Cluster::join(called("late", config(None, 0, port)))).await.unwrap();
        limited(async {
            while nodes.iter().any(|node| node.members().len() < 4) {
                tokio::task::yield_now().await;
            }
        })
        .await;
        nodes.push(later);
        for node in &nodes {
            assert_eq!(rank_of(node.member_named("second head")), 0);
            assert_eq!(rank_of(node.member_named("sorter")), 1);
            assert_eq!(node.member(3).unwrap().name, None);
            assert!(node.member_named("head").is_err());
        }
        // Nodes that were members before know the names of the dead.
        for node in &nodes[1..3] {
            for (name, rank) in [("head", 0), ("dead", 2)] {
                let error = node.member_named(name).unwrap_err();
                let NameError::Dead { death, .. } = error else { panic!("{error}") };
                assert_eq!(death.id.rank, rank);
            }
        }
        end_all(&nodes).await;
    });
}

/// Two nodes ask for each name at once, and the manager is one of them or neither.
#[test]
fn of_nodes_that_ask_at_once_one_gets_the_name() {
    on_both(|| async {
        let (nodes, _) = named(&["", "", ""]).await;
        for round in 0..50 {
            let name = format!("name {round}");
            let asking = nodes.iter().map(|node| {
                let (node, name) = (node.clone(), name.clone());
                tokio::spawn(async move { node.provide_sole(&name).await })
            });
            let mut granted = Vec::new();
            let mut refused = Vec::new();
            for (node, asked) in nodes.iter().zip(asking.collect::<Vec<_>>()) {
                match limited(asked).await.unwrap() {
                    Ok(()) => granted.push(node.id()),
                    Err(error) => refused.push(error),
                }
            }
            let [by] = granted[..] else { panic!("{granted:?}") };
            let held = NameError::Held { name: name.clone(), by };
            assert_eq!(refused, [held.clone(), held.clone()]);
            let text = format!("{name:?} is not provided: {by} provides it");
            assert_eq!(held.to_string(), text);
            for node in &nodes {
                let again = limited(node.provide_sole(&name)).await;
                assert_eq!(again, Err(held.clone()), "also at its provider");
                if node.id() != by {
                    assert_eq!(limited(node.provide(&name)).await, Err(held.clone()));
                }
                assert_eq!(node.providers(&name), [by]);
            }
        }
        end_all(&nodes).await;
    });
}

#[test]
fn a_name_is_free_when_its_provider_withdraws_it_leaves_dies_or_drops_its_question() {
    on_one_thread(async {
        let (mut nodes, _) = named(&["", "", "", ""]).await;
        let free = async |nodes: &[Cluster], gone: NodeId| {
            limited(nodes[0].withdrawn("one", gone)).await;
            limited(nodes[0].provide_sole("one")).await.unwrap();
            nodes[0].withdraw("one");
        };
        let one = &nodes[1];
        limited(one.provide_sole("one")).await.unwrap();
        one.withdraw("one");
        free(&nodes, one.id()).await;
        // At whatever moment the question is dropped; the last one is not.
        at_last!(async {
            limited(nodes[0].withdrawn("one", nodes[0].id())).await;
            while nodes[1].provide_sole("one").await.is_err() {
                tokio::task::yield_now().await;
            }
        });
        nodes[1].withdraw("one");
        free(&nodes, nodes[1].id()).await;
        for leaves in [true, false] {
            let goes = nodes.remove(1);
            let id = goes.id();
            while limited(goes.provide_sole("one")).await.is_err() {
                tokio::task::yield_now().await;
            }
            limited(nodes[0].provider("one")).await.unwrap();
            if leaves {
                limited(goes.leave(LONG)).await.unwrap();
            }
            drop(goes);
            free(&nodes, id).await;
        }
        end_all(&nodes).await;
    });
}

#[test]
fn a_new_manager_leaves_a_name_to_its_sole_provider() {
    on_one_thread(async {
        let (mut nodes, port) = named(&["", "", ""]).await;
        limited(nodes[1].provide_sole("one")).await.unwrap();
        let (by, first) = (nodes[1].id(), nodes.remove(0));
        let held = NameError::Held { name: "one".to_owned(), by };
        let lost = nodes[0].clone();
        let mut lost = tokio::spawn(async move { lost.withdrawn("one", by).await });
        drop(first);
        while std::net::TcpListener::bind(("127.0.0.1", port)).is_err() {
            tokio::task::yield_now().await;
        }
        let back = limited(Cluster::join(called("", config(Some(0), 3, port)))).await.unwrap();
        assert_eq!(limited(back.provide_sole("one")).await, Err(held.clone()));
        assert_eq!(limited(nodes[1].provide_sole("one")).await, Err(held.clone()));
        assert_eq!(limited(nodes[0].provide_sole("one")).await, Err(held));
        assert!(!lost.is_finished(), "it has the name all the time");
        nodes[0].withdraw("one");
        limited(&mut lost).await.unwrap();
        limited(back.withdrawn("one", by)).await;
        limited(back.provide_sole("one")).await.unwrap();
        nodes.insert(0, back);
        end_all(&nodes).await;
    });
}
