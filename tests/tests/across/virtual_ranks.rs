//! Clusters in virtual time with several ranks a host.

use super::virtual_cluster::{join, switched};
use chunkcomm::host;
use chunkcomm_cluster::Cluster;
use chunkcomm_cluster::cluster::Change;
use chunkcomm_simulation::{HostId, LinkSpec, Network, run};
use std::collections::BTreeSet;
use std::future::pending;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(60);

/// A network of four hosts, and an entry of each for each of its four ranks.
fn four_times_four(seed: u64, in_turns: bool) -> (Network, Vec<HostId>) {
    let (network, hosts) = switched(seed, 4, LinkSpec::default());
    let host_of = |rank: usize| hosts[if in_turns { rank % 4 } else { rank / 4 }];
    (network, (0..16).map(host_of).collect())
}

/// Sends this node's rank to all others, and returns what came from them.
async fn exchange(cluster: &Cluster, others: &[u32]) -> BTreeSet<u32> {
    let node = cluster.node();
    for &rank in others {
        let peer = cluster.peer(rank).await.unwrap();
        let mut sender = node.open::<u32>(&peer, "ranks").await.unwrap();
        sender.send(&cluster.rank()).await.unwrap();
        sender.close(DEADLINE).await.unwrap();
    }
    let mut came = BTreeSet::new();
    for _ in others {
        let (_, mut receiver) = node.accept::<u32>("ranks").await.unwrap();
        came.insert(receiver.recv().await.unwrap().unwrap());
    }
    came
}

#[test]
fn sixteen_ranks_on_four_hosts_join_and_all_talk() {
    for in_turns in [false, true] {
        let once = || {
            let (network, places) = four_times_four(7, in_turns);
            run(network, async |simulation| {
                let members = simulation.launch(&places, |rank| async move {
                    let cluster = join().await;
                    assert_eq!((cluster.rank() as usize, cluster.size()), (rank, 16));
                    let others: Vec<u32> = (0..16).filter(|it| *it != cluster.rank()).collect();
                    // At once: everybody accepts while it sends.
                    let sends = exchange(&cluster, &others).await;
                    assert_eq!(sends, others.iter().copied().collect());
                    let members = cluster.members();
                    let own = host::virtual_name();
                    assert_eq!(own.as_ref(), members.get(rank).map(|member| &member.host));
                    cluster.barrier().await.unwrap();
                    cluster.end(DEADLINE).await.unwrap();
                    members
                });
                let mut all = Vec::new();
                for member in members {
                    all.push(member.await.unwrap());
                }
                for members in &all {
                    let name = |host| simulation.with(|it, _| it.host_name(host).to_owned());
                    let hosts: Vec<_> = places.iter().map(|host| name(*host)).collect();
                    assert!(members.iter().map(|member| &member.host).eq(&hosts), "{members:?}");
                    let places = members.iter().map(|member| (&member.host, member.pid));
                    assert_eq!(places.collect::<BTreeSet<_>>().len(), 16);
                    let simulated = |address: &String| address.starts_with("sim:");
                    assert!(members.iter().all(|member| member.addresses.iter().all(simulated)));
                }
                simulation.with(|network, now| (network.digest(), now))
            })
        };
        assert_eq!(once(), once());
    }
}

/// One process of a host is killed; its neighbours hear of it as all others do, and go on. Rank 1
/// shares a host with rank 0, where the manager is.
#[test]
fn the_death_of_one_rank_is_no_death_of_its_host() {
    for victim in [1, 6] {
        let once = || {
            let (network, places) = four_times_four(3, false);
            run(network, async |simulation| {
                let mut members = simulation.launch(&places, |rank| async move {
                    let cluster = join().await;
                    let mut changes = cluster.changes();
                    cluster.barrier().await.unwrap();
                    if rank == victim {
                        return pending().await;
                    }
                    let died = loop {
                        match changes.next().await {
                            Some(Change::Died(death)) => break death.id.rank,
                            Some(_) => {}
                            None => panic!("rank {rank}: {:?}", cluster.ended()),
                        }
                    };
                    // The first barrier behind a death names it.
                    cluster.barrier().await.unwrap_err();
                    let left: Vec<_> = cluster.members().iter().map(|it| it.id.rank).collect();
                    let others: Vec<_> =
                        left.into_iter().filter(|it| *it as usize != rank).collect();
                    let came = exchange(&cluster, &others).await;
                    cluster.barrier().await.unwrap();
                    cluster.end(DEADLINE).await.unwrap();
                    assert_eq!(came, others.into_iter().collect());
                    (died as usize, came.len())
                });
                simulation.sleep(Duration::from_secs(1)).await;
                simulation.kill_rank(victim);
                assert!(members.remove(victim).await.unwrap_err().is_cancelled());
                for member in members {
                    assert_eq!(member.await.unwrap(), (victim, 14));
                }
                simulation.with(|network, now| (network.digest(), now))
            })
        };
        assert_eq!(once(), once());
    }
}

/// Waits for another rank 9, unless this is it; returns its process and this one's host.
async fn wait_for_the_ninth(is_first: bool) -> (u32, String) {
    let cluster = join().await;
    let mut changes = cluster.changes();
    if cluster.rank() == 9 && is_first {
        return pending().await;
    }
    let mut is_there = cluster.rank() == 9;
    while !is_there {
        let change = changes.next().await.unwrap();
        is_there = matches!(change, Change::Joined(member) if member.id.rank == 9);
    }
    // The others learn of the death here.
    let _ = cluster.barrier().await;
    let pid = cluster.member(9).unwrap().pid;
    let _ = cluster.end(DEADLINE).await;
    (pid, host::virtual_name().unwrap())
}

#[test]
fn a_killed_rank_joins_again_as_another_process_of_its_host() {
    let (network, places) = four_times_four(5, true);
    run(network, async |simulation| {
        let mut members = simulation.launch(&places, |_| wait_for_the_ninth(true));
        simulation.sleep(Duration::from_secs(1)).await;
        simulation.kill_rank(9);
        drop(members.remove(9));
        // Longer than the manager waits for the dead.
        simulation.sleep(Duration::from_secs(20)).await;
        let (pid, host) = simulation.spawn_rank(9, wait_for_the_ninth(false)).await.unwrap();
        assert_eq!(host, "host-1");
        for member in members {
            assert_eq!(member.await.unwrap().0, pid);
        }
    });
}
