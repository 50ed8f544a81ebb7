//! Clusters, calls and farms in virtual time while hosts die, links are cut and networks part.

use chunkcomm::host;
use chunkcomm_cluster::Registry;
use chunkcomm_cluster::cluster::Change;
use chunkcomm_cluster::prelude::*;
use chunkcomm_farm::{Farm, serve_in};
use chunkcomm_simulation::{HostId, LinkSpec, Random, Simulation, each_seed, run};
use std::time::Duration;

use super::virtual_cluster::{join, switched};

const MS: Duration = Duration::from_millis(1);

/// Time after which a member is dead whose connection is lost, and some more.
const DEATH: Duration = Duration::from_secs(11);

/// The same for a host that is off, when nothing waits for it: it is asked every 30 s.
const SILENT_DEATH: Duration = Duration::from_secs(41);

/// The way in which a host ends.
fn end(simulation: &Simulation, host: HostId, crashes: bool) {
    if crashes {
        simulation.crash(host);
    } else {
        simulation.kill(host);
    }
}

#[test]
fn a_dead_member_is_reported_by_all_others() {
    each_seed(0..40, |seed| {
        let mut random = Random::new(seed);
        let size = 3 + random.below(6) as usize;
        let victim = 1 + random.below(size as u64 - 1) as usize;
        let (crashes, after) = (random.one_in(2), Duration::from_micros(random.below(50_000)));
        let (network, hosts) = switched(seed, size, LinkSpec::default());
        run(network, async |simulation| {
            let mut members = simulation.launch(&hosts, |rank| async move {
                let cluster = join().await;
                let mut changes = cluster.changes();
                cluster.barrier().await.unwrap();
                if rank == victim {
                    return std::future::pending().await;
                }
                let started = host::Instant::now();
                let died = loop {
                    match changes.next().await {
                        Some(Change::Died(death)) => break death,
                        Some(_) => {}
                        None => panic!("rank {rank} is a member no more: {:?}", cluster.ended()),
                    }
                };
                assert_eq!(died.id.rank as usize, victim, "seed {seed}");
                let told_after = started.elapsed();
                cluster.end(DEATH).await.unwrap();
                told_after
            });
            simulation.sleep(100 * MS + after).await;
            end(&simulation, hosts[victim], crashes);
            drop(members.remove(victim));
            for member in members {
                let told_after = member.await.unwrap();
                // A killed process closes its connections; a host that is off says nothing.
                let most = if crashes { SILENT_DEATH } else { DEATH };
                assert!(told_after < most, "seed {seed}: told after {told_after:?}");
            }
        });
    });
}

/// Workers are killed, hosts lose power, and the last worker is spared.
#[test]
fn a_farm_loses_no_task_when_workers_die() {
    each_seed(0..60, |seed| {
        let mut random = Random::new(seed);
        let workers = 2 + random.below(5) as usize;
        let (tasks, longest) = (random.below(400), 1 + random.below(20));
        let (network, hosts) = switched(seed, workers + 1, LinkSpec::default());
        run(network, async |simulation| {
            let mut members = simulation.launch(&hosts, |rank| async move {
                let mut registry = Registry::new();
                let function = registry.register("work", move |number: u64| {
                    host::spend(MS * (1 + number % longest) as u32);
                    number * 3
                });
                let cluster = join().await;
                if rank == 0 {
                    // The nodes die at random: no task is to blame.
                    let builder = Farm::builder(registry).deaths_max(100);
                    let mut farm = builder.start_in(&cluster).await.unwrap();
                    let outcome = farm.run(&function, 0..tasks).await.unwrap();
                    let expected: Vec<_> = (0..tasks).map(|number| number * 3).collect();
                    assert_eq!(outcome.results, expected, "seed {seed}");
                    drop(farm);
                } else {
                    // The farm may be done before all have come to it.
                    let _ = serve_in(&cluster, &registry).await;
                }
                let _ = cluster.end(DEATH).await;
            });
            simulation.sleep(100 * MS).await;
            let mut alive: Vec<usize> = (1..=workers).collect();
            while alive.len() > 1 && !random.one_in(4) {
                simulation.sleep(Duration::from_micros(random.below(200_000))).await;
                let victim = alive.swap_remove(random.below(alive.len() as u64) as usize);
                end(&simulation, hosts[victim], random.one_in(2));
            }
            for rank in (1..=workers).rev().filter(|rank| !alive.contains(rank)) {
                drop(members.remove(rank));
            }
            for member in members {
                member.await.unwrap();
            }
        });
    });
}

#[test]
fn messages_and_calls_survive_cuts_and_partitions() {
    each_seed(0..30, |seed| {
        let mut random = Random::new(seed);
        let size = 2 + random.below(4) as usize;
        let (network, hosts) = switched(seed, size, LinkSpec::default());
        run(network, async |simulation| {
            let members = simulation.launch(&hosts, |rank| async move {
                let cluster = join().await;
                let serve = async |number: u64| Ok::<_, String>(number + 1);
                let _service = cluster.node().serve("next", serve).unwrap();
                cluster.barrier().await.unwrap();
                let to = cluster.peer(((rank + 1) % size) as u32).await.unwrap();
                let client = cluster.node().call_client::<u64, u64>(&to, "next").unwrap();
                for number in 0..300 {
                    assert_eq!(client.call(&number).await.unwrap(), number + 1);
                    host::sleep(MS).await;
                }
                cluster.barrier().await.unwrap();
                cluster.end(DEATH).await.unwrap();
            });
            // Faults that no session dies of: each lasts less than its silence.
            for _ in 0..8 {
                simulation.sleep(Duration::from_micros(random.below(40_000))).await;
                cut_or_part(&simulation, &hosts, &mut random).await;
            }
            for member in members {
                member.await.unwrap();
            }
        });
    });
}

/// Cuts the connections of a host, or parts two hosts for less than their silence.
pub(super) async fn cut_or_part(simulation: &Simulation, hosts: &[HostId], random: &mut Random) {
    let pick = |random: &mut Random| hosts[random.below(hosts.len() as u64) as usize];
    let (from, to) = (pick(random), pick(random));
    if random.one_in(2) {
        simulation.with(|network, now| {
            for end in network.ends_of(from) {
                network.cut(now, end, Duration::ZERO, Duration::from_millis(3));
            }
        });
    } else if from != to {
        simulation.with(|network, now| network.partition(now, from, to));
        simulation.sleep(Duration::from_millis(random.below(800))).await;
        simulation.with(|network, now| network.heal(now, from, to));
    }
}
