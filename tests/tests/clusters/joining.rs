//! Clusters within one process: nodes by our own variables, on loopback.

use chunkcomm::{Credential, LossKind, Node, Policy, channel};
use chunkcomm_cluster::cluster::{
    BarrierError, Change, Cluster, ClusterConfig, Death, End, EndError, JoinError, NameError,
    Refusal,
};
use chunkcomm_cluster::{NodeExt, Registry, ValueWriter};
use chunkcomm_testkit::{at_last, free_port, limited, on_both, on_one_thread};
use std::time::Duration;

pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) fn config(rank: Option<u32>, size: u32, port: u16) -> ClusterConfig {
    let manager = format!("127.0.0.1:{port}");
    let mut variables = vec![("CHUNKCOMM_MANAGER", manager)];
    if let Some(rank) = rank {
        variables.push(("CHUNKCOMM_RANK", rank.to_string()));
        variables.push(("CHUNKCOMM_SIZE", size.to_string()));
    }
    let config = ClusterConfig::new().environment(variables.into_iter().collect());
    config.ready_within(LONG)
}

/// All nodes of a cluster, by rank.
pub(crate) async fn cluster(
    size: u32,
    with: impl Fn(ClusterConfig) -> ClusterConfig,
) -> (Vec<Cluster>, u16) {
    let port = free_port();
    let joining: Vec<_> = (0..size)
        .map(|rank| tokio::spawn(Cluster::join(with(config(Some(rank), size, port)))))
        .collect();
    let mut nodes = Vec::new();
    for one in joining {
        nodes.push(limited(one).await.unwrap().unwrap());
    }
    (nodes, port)
}

pub(crate) async fn end_all(nodes: &[Cluster]) {
    let ending: Vec<_> = nodes
        .iter()
        .map(|node| {
            let node = node.clone();
            tokio::spawn(async move { node.end(LONG).await })
        })
        .collect();
    for one in ending {
        limited(one).await.unwrap().unwrap();
    }
}

/// Waits until `known` holds on all nodes.
async fn until_known(nodes: &[Cluster], known: impl Fn(&Cluster) -> bool) {
    limited(async {
        while !nodes.iter().all(&known) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Of a cluster that a user starts without a launcher: it listens at a Unix socket, with a credential of its own.
#[cfg(unix)]
#[test]
fn a_later_node_comes_to_a_socket_with_the_credential_of_the_cluster() {
    on_both(|| async {
        let alone = ClusterConfig::new().environment([("", ""); 0].into_iter().collect());
        let first = Cluster::join(alone.nodes(1)).await.unwrap();
        let manager = first.member(0).unwrap().addresses[0].clone();
        assert!(manager.starts_with("unix:"), "{manager}");
        let later = || {
            let variables = [("CHUNKCOMM_MANAGER", manager.clone())];
            ClusterConfig::new().environment(variables.into_iter().collect()).ready_within(LONG)
        };
        let refused = limited(Cluster::join(later())).await.unwrap_err();
        assert!(matches!(refused, JoinError::Admission(_)), "{refused}");
        let credential = first.credential().unwrap().clone();
        let second = limited(Cluster::join(later().credential(credential))).await.unwrap();
        assert_eq!((second.rank(), second.size()), (1, 1));
        let revealed = [&first, &second].map(|node| node.credential().unwrap().reveal());
        assert_eq!(revealed[0], revealed[1]);
        limited(second.leave(LONG)).await.unwrap();
        limited(first.end(LONG)).await.unwrap();
    });
}

#[test]
fn nodes_know_and_reach_each_other_and_end_together() {
    on_both(|| async {
        let (nodes, _) = cluster(3, |config| config).await;
        for (rank, node) in nodes.iter().enumerate() {
            assert_eq!((node.rank() as usize, node.size()), (rank, 3));
            let ranks: Vec<u32> = node.members().iter().map(|it| it.id.rank).collect();
            assert_eq!(ranks, [0, 1, 2]);
        }
        for from in &nodes {
            for to in &nodes {
                let peer = from.peer(to.rank()).await.unwrap();
                // The second time it is the same link.
                assert_eq!(from.peer(to.rank()).await.unwrap().incarnation(), peer.incarnation());
                let mut sender = from.node().open::<u32>(&peer, "who").await.unwrap();
                sender.send(&from.rank()).await.unwrap();
                drop(sender);
                let (back, mut receiver) = limited(to.node().accept::<u32>("who")).await.unwrap();
                assert_eq!(limited(receiver.recv()).await.unwrap(), Some(from.rank()));
                assert_eq!(to.member_of(&back).unwrap().id, from.id());
            }
        }
        let error = nodes[0].peer(3).await.unwrap_err();
        assert_eq!(error.to_string(), "there is no rank 3 in the cluster, which 3 nodes started");
        end_all(&nodes).await;
        assert_eq!(nodes[1].finished().await, End::Finished { by: None });
    });
}

#[test]
fn a_barrier_is_passed_when_all_have_come() {
    on_one_thread(async {
        let (nodes, _) = cluster(3, |config| config).await;
        for _ in 0..10 {
            let late = nodes[2].clone();
            let early: Vec<_> = nodes[..2]
                .iter()
                .map(|node| {
                    let node = node.clone();
                    tokio::spawn(async move { node.barrier().await })
                })
                .collect();
            // The words of the others are with the manager when this returns.
            late.provide("a word").await.unwrap();
            late.withdraw("a word");
            assert!(early.iter().all(|one| !one.is_finished()));
            limited(late.barrier()).await.unwrap();
            for one in early {
                limited(one).await.unwrap().unwrap();
            }
        }
        end_all(&nodes).await;
    });
}

#[test]
fn what_is_dropped_early_is_asked_for_again() {
    on_one_thread(async {
        let (nodes, _) = cluster(2, |config| config).await;
        for _ in 0..5 {
            let other = nodes[1].clone();
            let there = tokio::spawn(async move { other.barrier().await });
            let here: Result<(), BarrierError> = at_last!(nodes[0].barrier());
            assert_eq!((here, limited(there).await.unwrap()), (Ok(()), Ok(())));
        }
        let peer = at_last!(nodes[0].peer(1)).unwrap();
        assert_eq!(nodes[0].member_of(&peer).unwrap().id, nodes[1].id());
        at_last!(nodes[1].provide("sorter")).unwrap();
        let found: Result<_, NameError> = at_last!(nodes[0].provider("sorter"));
        assert_eq!(found.unwrap(), nodes[1].id());
        end_all(&nodes).await;
    });
}

#[test]
fn names_are_known_to_everybody_until_their_node_goes() {
    on_one_thread(async {
        let (nodes, _) = cluster(3, |config| config).await;
        let waits = nodes[0].clone();
        let waiting = tokio::spawn(async move { waits.provider("sorter").await });
        nodes[2].provide("sorter").await.unwrap();
        nodes[1].provide("sorter").await.unwrap();
        assert_eq!(limited(waiting).await.unwrap().unwrap(), nodes[2].id());
        assert_eq!(nodes[1].providers("sorter"), [nodes[1].id(), nodes[2].id()]);
        let error = nodes[0].provide("").await.unwrap_err();
        assert!(matches!(error, NameError::Refused { .. }), "{error}");
        let mut changes = nodes[0].changes();
        limited(nodes[2].leave(LONG)).await.unwrap();
        assert_eq!(limited(changes.next()).await, Some(Change::Left(nodes[2].id())));
        assert_eq!(nodes[0].providers("sorter"), [nodes[1].id()]);
        let error = nodes[0].peer(2).await.unwrap_err();
        assert_eq!(error.kind(), LossKind::Left, "{error}");
        assert!(matches!(nodes[0].leave(LONG).await, Err(EndError::Manager)));
        end_all(&nodes[..2]).await;
    });
}

#[test]
fn a_death_is_told_to_all_and_fails_the_barrier_once() {
    on_both(|| async {
        let (mut nodes, _) = cluster(3, |config| config).await;
        let dead = nodes.remove(1);
        let id = dead.id();
        let mut changes = nodes[1].changes();
        let waits: Vec<_> = nodes
            .iter()
            .map(|node| {
                let node = node.clone();
                tokio::spawn(async move { node.barrier().await })
            })
            .collect();
        // An end without a goodbye is a death.
        drop(dead);
        for one in waits {
            assert_eq!(limited(one).await.unwrap(), Err(BarrierError::Died(vec![id])));
        }
        let Some(Change::Died(death)) = limited(changes.next()).await else { panic!("no death") };
        assert_eq!(death.id, id);
        for node in &nodes {
            assert_eq!(node.deaths(), std::slice::from_ref(&death));
            let error = node.peer(1).await.unwrap_err();
            assert_eq!(error.cause::<Death>().map(|it| it.id), Some(id), "{error}");
        }
        let (first, second) = tokio::join!(nodes[0].barrier(), nodes[1].barrier());
        assert_eq!((first, second), (Ok(()), Ok(())));
        end_all(&nodes).await;
    });
}

#[test]
fn nodes_come_later_and_take_the_ranks_of_the_dead() {
    on_one_thread(async {
        let (mut nodes, port) = cluster(2, |config| config).await;
        let mut changes = nodes[0].changes();
        let later = limited(Cluster::join(config(None, 0, port))).await.unwrap();
        assert_eq!((later.rank(), later.size(), later.members().len()), (2, 2, 3));
        let joined = limited(changes.next()).await;
        assert!(matches!(&joined, Some(Change::Joined(it)) if it.id == later.id()), "{joined:?}");
        let dead = nodes.remove(1);
        let id = dead.id();
        // Its rank is taken while it lives.
        let error = limited(Cluster::join(config(Some(1), 2, port))).await.unwrap_err();
        assert!(matches!(&error, JoinError::Refused(Refusal::Taken(it)) if it.id == id), "{error}");
        drop(dead);
        limited(changes.next()).await;
        let again = limited(Cluster::join(config(Some(1), 2, port))).await.unwrap();
        assert_eq!(again.rank(), 1);
        assert_ne!(again.id(), id);
        assert_eq!(again.deaths()[0].id, id);
        nodes[0].peer(1).await.unwrap();
        nodes.extend([again, later]);
        end_all(&nodes).await;
    });
}

/// Links other than those to rank 0 are dialled at IP addresses: no pod's name can be resolved
/// here.
#[test]
fn pods_reach_each_other_before_their_names_are_published() {
    on_one_thread(async {
        let (port, credential) = (free_port(), Credential::generate().unwrap());
        let joining = (0..3).map(|index: u32| {
            let variables = [
                ("JOB_COMPLETION_INDEX", index.to_string()),
                ("CHUNKCOMM_SIZE", "3".to_owned()),
                ("HOSTNAME", format!("sorting-{index}")),
                ("CHUNKCOMM_SERVICE", "invalid".to_owned()),
                ("CHUNKCOMM_MANAGER", format!("127.0.0.1:{port}")),
            ];
            let config = ClusterConfig::new().environment(variables.into_iter().collect());
            let config = config.credential(credential.clone()).ready_within(LONG);
            tokio::spawn(Cluster::join(config))
        });
        let mut nodes = Vec::new();
        for one in joining.collect::<Vec<_>>() {
            nodes.push(limited(one).await.unwrap().unwrap());
        }
        let at = nodes[0].member(2).unwrap().addresses;
        assert!(at[0].starts_with("tcp://sorting-2.invalid:"), "{at:?}");
        let peer = limited(nodes[1].peer(2)).await.unwrap();
        assert_eq!(peer.name(), "rank-2");
        // Ranks of one host that met at TCP addresses, with a credential.
        #[cfg(target_os = "linux")]
        assert_eq!(peer.way(), chunkcomm::explain::Way::SameHost);
        end_all(&nodes).await;
    });
}

#[test]
fn who_is_not_there_is_named() {
    on_one_thread(async {
        let port = free_port();
        let soon = |rank| config(Some(rank), 4, port).ready_within(Duration::from_secs(3));
        let (first, third) = tokio::join!(Cluster::join(soon(0)), Cluster::join(soon(2)));
        for error in [first.unwrap_err(), third.unwrap_err()] {
            let text = error.to_string();
            let waited = text.strip_prefix("not ready within ").expect("the reason");
            let waited = waited.strip_suffix(" ms: ranks 1, 3").expect("who is missing");
            assert!(waited.parse::<u64>().unwrap() >= 3000, "{text}");
        }
        let error = limited(Cluster::join(soon(1))).await.unwrap_err();
        assert!(matches!(error, JoinError::NoManager { .. }), "{error}");
    });
}

#[test]
fn ranks_that_disagree_about_the_size_all_hear_of_it() {
    on_one_thread(async {
        let port = free_port();
        // Rank 2 may come when the others have given up already.
        let (first, second, third) = tokio::join!(
            Cluster::join(config(Some(0), 3, port)),
            Cluster::join(config(Some(1), 2, port)),
            Cluster::join(config(Some(2), 3, port)),
        );
        for error in [first.unwrap_err(), second.unwrap_err(), third.unwrap_err()] {
            let text = "rank 1 was told that the cluster has 2 nodes, rank 0 that it has 3";
            assert_eq!(error.to_string(), text);
        }
    });
}

/// Two versions of a program. The newer one counts longer texts, sends more on a channel of its
/// own, and implements the registered function differently; its types are the same.
#[test]
fn versions_with_the_same_functions_take_turns() {
    on_one_thread(async {
        let version = |number: u64| {
            let mut registry = Registry::new();
            registry.register("count", move |text: String| text.len() as u64 * number);
            if number > 1 {
                registry.register("extra", |number: u32| number);
            }
            registry
        };
        let mut same = Registry::new();
        same.register("count", |text: String| text.chars().count() as u64);
        let (mut nodes, port) = cluster(3, |config| config.registry(&version(1))).await;
        // Each old node in turn is exchanged for a newer one.
        for rank in [2, 1] {
            let old = nodes.remove(rank as usize);
            limited(old.leave(LONG)).await.unwrap();
            let config = config(Some(rank), 3, port).registry(&same);
            let new = limited(Cluster::join(config)).await.unwrap();
            nodes.insert(rank as usize, new);
        }
        limited(nodes[1].leave(LONG)).await.unwrap();
        nodes.remove(1);
        // The error for an additional or a missing function names both sides.
        let error = Cluster::join(config(Some(1), 3, port).registry(&version(2))).await;
        let text = error.unwrap_err().to_string();
        assert_eq!(text, "rank 1 has function \"extra\" (u32 -> u32), which rank 0 lacks");
        let mut other = Registry::new();
        other.register("count", |text: String| text.len() as u32);
        let error = Cluster::join(config(None, 0, port).registry(&other)).await.unwrap_err();
        let text = "function \"count\" is str -> u32 on a node that comes later, and str -> \
                    u64 on rank 0";
        assert_eq!(error.to_string(), text);
        assert!(matches!(error, JoinError::Refused(Refusal::Functions { rank: None, .. })));
        end_all(&nodes).await;
    });
}

#[test]
fn nodes_of_two_programs_are_one_cluster() {
    on_both(|| async {
        let (mut first, mut second) = (Registry::new(), Registry::new());
        let here = first.process("here", |_, writer: ValueWriter<u32>| async move {
            Ok(writer.write(&1).await?)
        });
        second.process("there", |_, _: String| async { Ok(()) });
        let of = |rank: u32, config: ClusterConfig| match rank {
            0 | 1 => config.program("first").registry(&first),
            _ => config.program("second").registry(&second),
        };
        let next = std::sync::atomic::AtomicU32::new(0);
        // Ranks join in order.
        let rank = || next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (mut nodes, port) = cluster(4, |config| of(rank(), config)).await;
        let ends = async |from: &Cluster, to: u32| {
            let (writer, _value) = from.node().value().unwrap();
            limited(from.instantiate(to, &here, writer).await.unwrap()).await
        };
        ends(&nodes[0], 1).await.unwrap();
        let error = ends(&nodes[0], 2).await.unwrap_err();
        assert_eq!(error.to_string(), "rank-2 has no process \"here\"");
        // Nodes of the second program are compared with each other.
        limited(nodes.pop().unwrap().leave(LONG)).await.unwrap();
        let other = config(Some(3), 4, port).program("second").registry(&first);
        let error = limited(Cluster::join(other)).await.unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("rank 3 has process \"here\" (of "), "{text}");
        assert!(text.ends_with("), which rank 2 lacks"), "{text}");
        nodes.push(limited(Cluster::join(of(3, config(Some(3), 4, port)))).await.unwrap());
        end_all(&nodes).await;
    });
}

/// Functions and processes have separate names; a process has no result.
#[test]
fn nodes_with_other_processes_are_refused() {
    on_one_thread(async {
        let registry = |input: u32| {
            let mut registry = Registry::new();
            registry.register("work", |number: u32| number);
            match input {
                0 => return registry,
                1 => drop(registry.process("work", |_, _: u32| async { Ok(()) })),
                _ => drop(registry.process("work", |_, _: String| async { Ok(()) })),
            }
            registry
        };
        let (nodes, port) = cluster(2, |config| config.registry(&registry(1))).await;
        limited(nodes[1].leave(LONG)).await.unwrap();
        for (input, text) in [
            (0, "rank 0 has process \"work\" (of u32), which rank 1 lacks"),
            (2, "process \"work\" is of str on rank 1, and of u32 on rank 0"),
        ] {
            let config = config(Some(1), 2, port).registry(&registry(input));
            let error = limited(Cluster::join(config)).await.unwrap_err();
            assert_eq!(error.to_string(), text);
        }
        let config = config(Some(1), 2, port).registry(&registry(1));
        let again = limited(Cluster::join(config)).await.unwrap();
        end_all(&[nodes[0].clone(), again]).await;
    });
}

#[test]
fn who_says_something_else_to_the_manager_is_told_both_kinds_of_words() {
    on_one_thread(async {
        let both_are_named = |text: &str| {
            let named = ["chunkcomm.cluster.up/0", "chunkcomm.cluster.up/1"];
            assert!(named.iter().all(|it| text.contains(it)), "{text}");
        };
        let port = free_port();
        let address: chunkcomm::Address = format!("127.0.0.1:{port}").parse().unwrap();
        let manager = Node::builder().listen(address.clone()).build().await.unwrap();
        let up = channel("chunkcomm.cluster.up").schema("chunkcomm.cluster.up/0");
        let (refused, error) = tokio::join!(
            manager.accept::<u8>(up.clone()),
            limited(Cluster::join(config(Some(1), 2, port))),
        );
        both_are_named(&refused.unwrap_err().to_string());
        both_are_named(&error.unwrap_err().to_string());
        limited(manager.close(LONG)).await.unwrap();
        // A running cluster goes on.
        let (nodes, port) = cluster(2, |config| config).await;
        let address: chunkcomm::Address = format!("127.0.0.1:{port}").parse().unwrap();
        let old = Node::builder().build().await.unwrap();
        let peer = limited(old.connect(&address)).await.unwrap();
        let mut line = old.open::<u8>(&peer, up).await.unwrap();
        line.send_now(&0).await.unwrap();
        both_are_named(&limited(line.closed()).await.to_string());
        let (first, second) = tokio::join!(nodes[0].barrier(), nodes[1].barrier());
        assert_eq!((first, second), (Ok(()), Ok(())));
        end_all(&nodes).await;
    });
}

#[test]
fn without_their_manager_nodes_end_with_an_error() {
    on_one_thread(async {
        let (mut nodes, _) = cluster(3, |config| config).await;
        let peer = nodes[1].peer(2).await.unwrap();
        drop(nodes.remove(0));
        for node in &nodes {
            let end = limited(node.finished()).await;
            assert!(matches!(end, End::ManagerLost { .. }), "{end:?}");
            let error = limited(node.barrier()).await.unwrap_err();
            assert!(error.to_string().starts_with("the manager (rank 0) is gone"), "{error}");
            assert!(matches!(limited(node.end(LONG)).await, Err(EndError::Ended(_))));
        }
        // No wait for a node of the ended cluster is left.
        limited(peer.closed()).await;
    });
}

#[test]
fn a_manager_that_comes_back_is_told_who_is_there() {
    on_one_thread(async {
        let wait = |config: ClusterConfig| config.rejoin_window(LONG);
        let (mut nodes, port) = cluster(5, wait).await;
        let founders: Vec<_> = nodes.iter().map(Cluster::id).collect();
        nodes[2].provide("sorter").await.unwrap();
        // One node died and one left before; nobody waits for them.
        limited(nodes.pop().unwrap().leave(LONG)).await.unwrap();
        drop(nodes.pop());
        until_known(&nodes, |it| it.members().len() == 3 && it.deaths().len() == 1).await;
        let death = nodes[1].deaths()[0].clone();
        let link = nodes[1].peer(2).await.unwrap();
        let mut changes = nodes[1].changes();
        let first = nodes.remove(0);
        let old = first.id();
        // Rank 0 waits at a barrier; the old manager has heard of it, and the new one must hear of
        // it.
        let waits = nodes[0].clone();
        let waiting = tokio::spawn(async move { waits.barrier().await });
        first.provide("a word").await.unwrap();
        drop(first);
        // The tasks end when they run next.
        while std::net::TcpListener::bind(("127.0.0.1", port)).is_err() {
            tokio::task::yield_now().await;
        }
        let back = limited(Cluster::join(wait(config(Some(0), 5, port)))).await.unwrap();
        assert_eq!(limited(changes.next()).await, Some(Change::ManagerLost));
        assert_eq!(limited(changes.next()).await, Some(Change::ManagerBack));
        let died = limited(changes.next()).await;
        assert!(matches!(&died, Some(Change::Died(it)) if it.id == old), "{died:?}");
        assert!(link.is_alive(), "links between others stay");
        assert_eq!(back.providers("sorter"), [nodes[1].id()]);
        assert_ne!(back.id(), old);
        let (here, there) = tokio::join!(back.barrier(), nodes[1].barrier());
        let died = Err(BarrierError::Died(vec![old, death.id]));
        assert_eq!((&here, &there, &limited(waiting).await.unwrap()), (&died, &died, &died));
        let (here, there, third) =
            tokio::join!(back.barrier(), nodes[0].barrier(), nodes[1].barrier());
        assert_eq!((here, there, third), (Ok(()), Ok(()), Ok(())));
        // A later node can ask for everything that happened before.
        let later = limited(Cluster::join(wait(config(None, 0, port)))).await.unwrap();
        assert_eq!(later.deaths()[0], death);
        assert_eq!(later.deaths()[1].id, old);
        assert_eq!(later.providers("sorter"), [nodes[1].id()]);
        nodes.push(later);
        nodes.push(back);
        assert!(nodes.iter().all(|node| node.founders() == founders));
        end_all(&nodes).await;
    });
}

/// Another program listens where the manager was; its node takes the link and no line.
#[test]
fn a_new_manager_that_says_nothing_is_waited_for_within_the_window() {
    on_one_thread(async {
        let wait = |config: ClusterConfig| config.rejoin_window(Duration::from_secs(1));
        let (mut nodes, port) = cluster(2, wait).await;
        drop(nodes.remove(0));
        while std::net::TcpListener::bind(("127.0.0.1", port)).is_err() {
            tokio::task::yield_now().await;
        }
        let address: chunkcomm::Address = format!("127.0.0.1:{port}").parse().unwrap();
        let _silent = Node::builder().listen(address).build().await.unwrap();
        let end = limited(nodes[0].finished()).await;
        assert!(matches!(end, End::ManagerLost { .. }), "{end:?}");
    });
}

/// On nodes that hold back messages, behind a channel that nobody takes from.
#[test]
fn words_of_the_system_wait_for_nothing() {
    on_both(|| async {
        let builder = Node::builder().policy(Policy::Linger(LONG * 60)).age_bound(LONG * 60);
        let (nodes, _) = cluster(3, |config| config.node(builder.clone())).await;
        let peer = nodes[1].peer(0).await.unwrap();
        let mut bulk = nodes[1].node().open::<[u64; 16]>(&peer, "bulk").await.unwrap();
        while bulk.try_send(&[7; 16]).is_ok() {
            tokio::task::yield_now().await;
        }
        assert!(
            nodes[1].node().explain().await.links.iter().any(|link| {
                link.sending.iter().any(|it| it.channel == "bulk" && it.staged > 0)
            })
        );
        let (a, b, c) = limited(async {
            tokio::join!(nodes[0].barrier(), nodes[1].barrier(), nodes[2].barrier())
        })
        .await;
        assert_eq!((a, b, c), (Ok(()), Ok(()), Ok(())));
        limited(nodes[1].provide("name")).await.unwrap();
        limited(until_known(&nodes, |it| it.providers("name") == [nodes[1].id()])).await;
        nodes[1].finish();
        for node in &nodes {
            limited(node.finished()).await;
        }
    });
}

#[test]
fn anybody_may_ask_for_the_stop() {
    on_one_thread(async {
        let (nodes, _) = cluster(2, |config| config).await;
        nodes[1].finish();
        let by = Some(nodes[1].id());
        for node in &nodes {
            assert_eq!(limited(node.finished()).await, End::Finished { by });
        }
        end_all(&nodes).await;
    });
}

#[test]
fn nodes_with_another_credential_are_told_so() {
    on_one_thread(async {
        let port = free_port();
        let with = |rank| {
            let made = Credential::generate().unwrap();
            config(Some(rank), 2, port).credential(made).ready_within(Duration::from_secs(2))
        };
        let (first, second) = tokio::join!(Cluster::join(with(0)), Cluster::join(with(1)));
        let (first, second) = (first.unwrap_err().to_string(), second.unwrap_err().to_string());
        // Rank 0 names the missing node, and the reason for the refused connections.
        assert!(first.contains(": rank 1; rank 0 refused connections: "), "{first}");
        for error in [&first, &second] {
            assert!(error.contains("credential") && !error.contains("0ns"), "{error}");
        }
        assert!(second.starts_with("rank 0 cannot be joined: "), "{second}");
    });
}

#[test]
fn beyond_this_machine_a_credential_is_needed() {
    on_one_thread(async {
        let variables = [
            ("CHUNKCOMM_RANK", "0"),
            ("CHUNKCOMM_SIZE", "2"),
            ("CHUNKCOMM_MANAGER", "first.lab:17700"),
        ];
        let config = ClusterConfig::new().environment(variables.into_iter().collect());
        let error = Cluster::join(config).await.unwrap_err();
        assert!(matches!(error, JoinError::NeedsCredential { .. }), "{error}");
        assert!(error.to_string().contains("CHUNKCOMM_CREDENTIAL_FILE"), "{error}");
    });
}
