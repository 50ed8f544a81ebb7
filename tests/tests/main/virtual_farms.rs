//! Several farms in a cluster, and farms that are left alone, in virtual time.

use chunkcomm::host;
use chunkcomm_cluster::{Cluster, ClusterConfig, Registry};
use chunkcomm_farm::{Farm, RunError, StartError, Tree, serve_in};
use chunkcomm_simulation::{HostId, LinkSpec, Network, each_seed, run};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const DEADLINE: Duration = Duration::from_secs(60);

fn switched(seed: u64, count: usize) -> (Network, Vec<HostId>) {
    let mut network = Network::new(seed);
    let add = |index| network.add_host(&format!("host-{index}"));
    let hosts: Vec<HostId> = (0..count).map(add).collect();
    network.switch(&hosts, LinkSpec::default());
    (network, hosts)
}

async fn join() -> Cluster {
    Cluster::join(ClusterConfig::new()).await.unwrap()
}

/// A registry with a function that takes a millisecond and adds this number.
fn adding(number: u64) -> (Registry, chunkcomm_cluster::Function<u64, u64>) {
    let mut registry = Registry::new();
    let function = registry.register("add", move |to: u64| {
        host::spend(MS);
        to + number
    });
    (registry, function)
}

/// Ranks 0 and 1 farm, rank 0 twice; ranks 2 to 5 work for each. A farm that ends is followed by
/// another one of its name on another rank.
#[test]
fn several_farms_share_the_nodes_of_a_cluster() {
    async fn farm(cluster: &Cluster, name: &str, number: u64, tree: Tree) {
        let (registry, add) = adding(number);
        let builder = Farm::builder(registry).name(name).nodes(2..6).tree(tree);
        let mut farm = builder.start_in(cluster).await.unwrap();
        let outcome = farm.run(&add, 0..200).await.unwrap();
        assert_eq!(outcome.results, (number..200 + number).collect::<Vec<_>>(), "{name}");
        assert_eq!(outcome.stats.workers.iter().map(|it| it.tasks).sum::<u64>(), 200);
        farm.finish(DEADLINE).await.unwrap();
    }
    each_seed(0..10, |seed| {
        let (network, hosts) = switched(seed, 6);
        run(network, async |simulation| {
            let members = simulation.launch(&hosts, |rank| async move {
                let cluster = join().await;
                match rank {
                    0 => {
                        let first = farm(&cluster, "a", 1, Tree::FanOut(2));
                        let second = farm(&cluster, "b", 2, Tree::FanOut(2));
                        tokio::join!(first, second);
                        cluster.provide("done").await.unwrap();
                    }
                    1 => {
                        farm(&cluster, "c", 3, Tree::Off).await;
                        cluster.provider("done").await.unwrap();
                        farm(&cluster, "a", 1, Tree::Off).await;
                    }
                    _ => {
                        let (registries, rounds) = ([1, 2, 3].map(|it| adding(it).0), [2, 1, 1]);
                        let serve = async |at: usize| {
                            for _ in 0..rounds[at] {
                                let serving = serve_in(&cluster, &registries[at]);
                                serving.farm(["a", "b", "c"][at]).threads(1).await.unwrap();
                            }
                        };
                        tokio::join!(serve(0), serve(1), serve(2));
                    }
                }
                cluster.end(DEADLINE).await.unwrap();
            });
            for member in members {
                member.await.unwrap();
            }
        });
    });
}

#[test]
fn a_name_has_one_farm() {
    let (network, hosts) = switched(1, 3);
    run(network, async |simulation| {
        let members = simulation.launch(&hosts, |rank| async move {
            let cluster = join().await;
            let (registry, _) = adding(rank as u64);
            if rank == 2 {
                let barriers = async {
                    cluster.barrier().await.unwrap();
                    cluster.barrier().await.unwrap();
                };
                let (served, ()) = tokio::join!(serve_in(&cluster, &registry), barriers);
                served.unwrap();
            } else if rank == 0 {
                let farm = Farm::builder(registry.clone()).nodes([2]).start_in(&cluster).await;
                cluster.barrier().await.unwrap();
                let same = Farm::builder(registry).nodes([2]).start_in(&cluster).await;
                let told = same.unwrap_err().to_string();
                assert_eq!(
                    told,
                    "rank 0 has a farm named \"default\", a second one needs another name"
                );
                cluster.barrier().await.unwrap();
                drop(farm.unwrap());
            } else {
                cluster.barrier().await.unwrap();
                let absent = Farm::builder(registry.clone()).nodes([7]).start_in(&cluster).await;
                let told = absent.unwrap_err().to_string();
                assert_eq!(told, "a farm with nodes 0: allowed is ranks of other present nodes");
                let error =
                    Farm::builder(registry).nodes([2]).start_in(&cluster).await.unwrap_err();
                assert!(matches!(error, StartError::Taken { rank: 0, .. }), "{error}");
                cluster.barrier().await.unwrap();
            }
            cluster.end(DEADLINE).await.unwrap();
        });
        for member in members {
            member.await.unwrap();
        }
    });
}

/// A node below a sub-farmer stops to serve, which only the sub-farmer knows, and this one dies.
#[test]
fn a_run_does_not_wait_for_ever_for_a_node_that_left() {
    let (network, hosts) = switched(1, 3);
    run(network, async |simulation| {
        let mut members = simulation.launch(&hosts, |rank| async move {
            let cluster = join().await;
            let (registry, add) = adding(1);
            match rank {
                0 => {
                    let builder = Farm::builder(registry).tree(Tree::FanOut(2)).deaths_max(1000);
                    let mut farm = builder.start_in(&cluster).await.unwrap();
                    let error = farm.run(&add, 0..60_000).await.unwrap_err();
                    assert!(matches!(error, RunError::Lost { .. }), "{error}");
                }
                2 => {
                    let served =
                        host::timeout(300 * MS, serve_in(&cluster, &registry).into_future()).await;
                    assert!(served.is_err(), "{served:?}");
                    cluster.finished().await;
                }
                _ => serve_in(&cluster, &registry).await.unwrap(),
            }
            cluster.end(DEADLINE).await.unwrap_or_default();
        });
        simulation.sleep(600 * MS).await;
        simulation.crash(hosts[1]);
        drop(members.remove(1));
        for member in members {
            member.await.unwrap();
        }
    });
}
