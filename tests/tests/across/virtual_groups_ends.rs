//! Groups beside each other, calls that differ, groups and calls that are dropped.

use crate::virtual_cluster::{join, on_each, switched};
use crate::virtual_faults::cut_or_part;
use chunkcomm::host;
use chunkcomm_cluster::Cluster;
use chunkcomm_group::{Algorithm, Group, GroupError, Op, Parts};
use chunkcomm_proto::describe::fnv1a;
use chunkcomm_simulation::{Arrival, Delivery, HostId, LinkSpec, Random, each_seed, run};
use chunkcomm_testkit::cancelled;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

const LARGE: usize = 100 * 1024 / size_of::<u64>();

async fn world(cluster: &Cluster) -> Group {
    Group::world(cluster).await.unwrap()
}

/// Calls of all sizes in a group, among them some that are under way together.
async fn use_it(mut group: Group, first: u64) {
    let (rank, size) = (group.rank() as u64, group.size() as u64);
    for turn in 0..6 {
        let length = if turn % 3 == 2 { LARGE } else { 1 + turn };
        let sums = group.all_reduce(vec![first + rank + turn as u64; length], Op::sum());
        let root = turn % group.size();
        let given = if rank == root as u64 { first } else { 0 };
        let told = group.broadcast(root, vec![given; length]);
        let expected = size * (first + turn as u64) + size * (size - 1) / 2;
        assert!(told.await.unwrap() == vec![first; length]);
        assert!(sums.await.unwrap() == vec![expected; length]);
    }
}

#[test]
fn overlapping_groups_are_used_from_two_tasks_at_once() {
    for seed in 0..4 {
        on_each(seed, 5, &[], |rank, cluster| async move {
            let mut all = world(&cluster).await;
            // Ranks 1, 2 and 3 are in both.
            let lower = all.split((rank <= 3).then_some(0), 0).await.unwrap();
            let upper = all.split((rank >= 1).then_some(0), 9 - rank as u32).await.unwrap();
            let groups = [(100, lower), (200, upper), (300, Some(all))];
            let tasks = groups.into_iter().filter_map(|(first, group)| Some((first, group?)));
            let tasks = tasks.map(|(first, group)| host::spawn(use_it(group, first)));
            for task in tasks.collect::<Vec<_>>() {
                task.await.unwrap();
            }
        });
    }
}

/// A program that returns the error ends its process, and at rank 0 the manager.
#[test]
fn every_rank_hears_of_a_difference_where_each_ends_at_its_error() {
    const SIZE: usize = 4;
    for seed in 0..40 {
        let (network, hosts) = switched(seed, SIZE, LinkSpec::default());
        run(network, async |simulation| {
            let (tells, mut told) = tokio::sync::mpsc::unbounded_channel();
            let _members = simulation.launch(&hosts, |rank| {
                let tells = tells.clone();
                async move {
                    let cluster = join().await;
                    let mut group = world(&cluster).await;
                    let differs = rank == seed as usize % SIZE;
                    // Some have no links with all others yet.
                    let mut called = match seed / 20 {
                        0 => Ok(()),
                        _ => group.barrier().await.map_err(|error| error.cause),
                    };
                    while called.is_ok() {
                        let given = vec![1_u64; 1 + usize::from(differs)];
                        let reduced = group.all_reduce(given, Op::sum()).await;
                        called = reduced.map(drop).map_err(|error| error.cause);
                    }
                    let _ = tells.send((rank, called.unwrap_err()));
                    std::future::pending::<()>().await;
                }
            });
            for _ in 0..SIZE {
                let (rank, cause) = told.recv().await.expect("each tells");
                simulation.kill_rank(rank);
                let is_it = matches!(cause, GroupError::Differs(_));
                assert!(is_it, "seed {seed}, rank {rank}: {cause}");
            }
        });
    }
}

type Differing = fn(&mut Group, usize);

/// Calls of rank 2 that the others do not make; small ones and such as flow.
const DIFFERING: [Differing; 6] = [
    // In another order.
    |group, rank| {
        if rank != 2 {
            drop(group.all_reduce(vec![1_u64], Op::sum()));
        }
        drop(group.scan(vec![1_u64], Op::sum()));
        if rank == 2 {
            drop(group.all_reduce(vec![1_u64], Op::sum()));
        }
    },
    // Flows here, and not there.
    |group, rank| {
        let length = if rank == 2 { LARGE } else { 1 };
        drop(group.all_reduce(vec![1_u64; length], Op::sum()));
    },
    |group, rank| {
        let length = if rank == 2 { LARGE } else { 1 };
        drop(group.broadcast(0, vec![1_u64; length]));
    },
    // Both flow.
    |group, rank| drop(group.broadcast(rank / 2, vec![1_u64; LARGE])),
    |group, rank| drop(group.reduce(0, vec![1_u64; LARGE + rank / 2], Op::sum())),
    // The one flows behind its lengths.
    |group, rank| match rank {
        2 => drop(group.gather(0, vec![1_u64; LARGE])),
        _ => drop(group.all_gather(vec![1_u64; LARGE])),
    },
];

#[test]
fn ranks_that_call_in_another_order_are_named_with_both_calls_and_nobody_hangs() {
    for (index, differ) in DIFFERING.into_iter().enumerate() {
        on_each(index as u64, 3, &[], move |rank, cluster| async move {
            let mut group = world(&cluster).await;
            differ(&mut group, rank);
            // The next call returns it where those before were through.
            let mut called = group.barrier().await;
            while called.is_ok() {
                called = group.barrier().await;
            }
            let GroupError::Differs(difference) = called.unwrap_err().cause else { panic!() };
            assert!(difference.ranks.contains(&2), "case {index}: {difference}");
            assert_ne!(difference.calls[0], difference.calls[1], "case {index}");
            // The group is mended.
            let (mut mended, _) = group.shrink().await.unwrap();
            assert_eq!(mended.all_reduce(vec![1_u64], Op::sum()).await.unwrap(), [3]);
        });
    }
}

#[test]
fn a_rank_that_has_dropped_its_group_is_gone_to_those_that_wait_for_it() {
    for calls in [0, 1, 3] {
        on_each(calls, 4, &[], move |rank, cluster| async move {
            let mut group = world(&cluster).await;
            for _ in 0..calls {
                group.barrier().await.unwrap();
            }
            if rank == 2 {
                drop(group);
                // Its cluster lives on.
                host::sleep(Duration::from_secs(20)).await;
                return;
            }
            let error = group.all_reduce(vec![rank as u64], Op::sum()).await.unwrap_err();
            assert_eq!(error.data, [rank as u64]);
            let text = error.to_string();
            assert!(text.contains("rank 2") && text.contains("gone"), "{rank}: {text}");
            assert!(cluster.ended().is_none());
        });
    }
}

/// Its first word is as of another release.
#[test]
fn a_rank_that_speaks_another_version_is_refused_by_name_of_both() {
    on_each(1, 2, &[], |rank, cluster| async move {
        if rank == 0 {
            let mut group = world(&cluster).await;
            let error = group.barrier().await.unwrap_err();
            let text = error.to_string();
            assert!(
                text.contains("rank 1") && text.contains("version 1, those of this node 2"),
                "{text}"
            );
            return;
        }
        let founders = cluster.founders();
        let incarnations = founders.iter().flat_map(|it| it.incarnation.to_le_bytes());
        let group = fnv1a(&b"world 0".iter().copied().chain(incarnations).collect::<Vec<u8>>());
        let root = cluster.peer_of(founders[0]).await.unwrap();
        let name = format!("chunkcomm-group.{group:016x}/0");
        let mut words = cluster.node().open_bytes(&root, name.as_str()).await.unwrap();
        // Its kind, its rank, no statement, the version.
        let (mut hello, rank) = (vec![0], 1_u64);
        hello.extend(rank.to_le_bytes());
        hello.extend(0_u16.to_le_bytes());
        hello.extend(1_u64.to_le_bytes());
        words.send_slice(&hello).await.unwrap();
        host::sleep(Duration::from_secs(5)).await;
    });
}

/// Its data have landed at the root, and wait there for those of another rank.
#[test]
fn a_rank_whose_data_have_come_may_leave_while_another_is_late() {
    for (late, warm) in [(1, false), (2, false), (1, true), (2, true)] {
        let (network, hosts) = switched(late as u64, 3, LinkSpec::default());
        run(network, async |simulation| {
            let members = simulation.launch(&hosts, move |rank| async move {
                let cluster = join().await;
                let mut group = world(&cluster).await;
                group.set_algorithm(Algorithm::Binomial);
                if warm {
                    group.reduce(0, vec![1_u64; LARGE], Op::sum()).await.unwrap();
                    group.barrier().await.unwrap();
                }
                if rank == late {
                    host::sleep(Duration::from_secs(5)).await;
                }
                let sums = group.reduce(0, vec![rank as u64; LARGE], Op::sum()).await;
                let sums = sums.unwrap_or_else(|error| panic!("rank {rank}, late {late}: {error}"));
                drop(group);
                if rank == 0 {
                    assert!(sums == vec![3; LARGE]);
                } else {
                    cluster.leave(SOON).await.unwrap();
                }
            });
            for member in members {
                member.await.unwrap();
            }
        });
    }
}

/// Its channels are not open by then.
#[test]
fn the_last_words_of_a_dropped_group_arrive_although_its_node_closes_right_behind_them() {
    for seed in 0..4 {
        println!("seed {seed}");
        let (network, hosts) = switched(seed, 3, LinkSpec::default());
        run(network, async |simulation| {
            let members = simulation.launch(&hosts, |rank| async move {
                let cluster = join().await;
                let mut group = world(&cluster).await;
                if rank == 2 {
                    drop(group.broadcast(2, vec![7_u64]));
                    drop(group);
                    cluster.node().close(SOON).await.unwrap();
                    return;
                }
                assert_eq!(group.broadcast(2, vec![0_u64]).await.unwrap(), [7]);
                // An error names the node that closed.
                let _ = cluster.end(SOON).await;
            });
            for member in members {
                member.await.unwrap();
            }
        });
    }
}

#[test]
fn calls_are_dropped_at_each_await_and_the_others_are_unharmed() {
    for (seed, length) in [(0, 3), (1, LARGE)] {
        on_each(seed, 3, &[], move |rank, cluster| async move {
            let mut group = world(&cluster).await;
            for waits in 0..6 {
                let root = waits as usize % 3;
                let drops = (rank + 1) % 3 == root;
                let mine = vec![rank as u64 + 1; length];
                let sums = group.all_reduce(mine.clone(), Op::sum());
                let given = if rank == root { mine.clone() } else { vec![0; length] };
                let told = group.broadcast(root, given);
                let gathered = group.gather(root, mine.clone());
                let exchanged = group.all_to_all(Parts::even(mine.clone(), 3));
                if drops {
                    let _ = cancelled(waits, sums).await;
                    drop(told);
                    let _ = cancelled(waits, gathered).await;
                    let _ = cancelled(waits, exchanged).await;
                    continue;
                }
                assert!(sums.await.unwrap() == vec![6; length]);
                assert!(told.await.unwrap() == vec![root as u64 + 1; length]);
                let gathered = gathered.await.unwrap();
                assert!(gathered.input == mine && gathered.result.is_some() == (rank == root));
                let exchanged = exchanged.await.unwrap();
                assert!(exchanged.input.data == mine);
                assert!(exchanged.result.part(1).iter().all(|it| *it == 2));
            }
            group.barrier().await.unwrap();
        });
    }
}

/// The payload crosses to each other host once, wherever the ranks lie.
#[test]
fn a_broadcast_to_four_hosts_of_four_ranks_crosses_hosts_three_times() {
    const BYTES: usize = 1 << 20;
    for (seed, algorithm) in
        (0..).zip([Algorithm::Chain, Algorithm::Binomial, Algorithm::Binary, Algorithm::Auto])
    {
        let (network, hosts) = switched(seed, 4, LinkSpec::default());
        let places: Vec<HostId> = (0..16).map(|rank| hosts[rank % 4]).collect();
        let crossed = run(network, async |simulation| {
            simulation.with(|network, _| network.keep_deliveries());
            let members = simulation.launch(&places, |_| async move {
                let cluster = join().await;
                let mut group = world(&cluster).await;
                group.set_algorithm(algorithm);
                let data = vec![group.rank() as u8; BYTES];
                assert!(group.broadcast(5, data).await.unwrap() == vec![5; BYTES]);
                // Connections that are closed have no hosts any more.
                host::sleep(Duration::from_secs(10)).await;
                cluster.end(Duration::from_secs(60)).await.unwrap();
            });
            simulation.sleep(Duration::from_secs(5)).await;
            let crossed = simulation.with(|network, _| {
                let crosses =
                    |it: &&Delivery| network.host_of(it.end).is_ok_and(|to| to != it.from);
                let bytes = |it: &Delivery| match it.what {
                    Arrival::Bytes(bytes) => bytes as usize,
                    _ => 0,
                };
                network.deliveries().iter().filter(crosses).map(bytes).sum::<usize>()
            });
            for member in members {
                member.await.unwrap();
            }
            crossed
        });
        // The rest is what the cluster says, and the heads of packets.
        let expected = 3 * BYTES..3 * BYTES + BYTES / 2;
        assert!(expected.contains(&crossed), "{algorithm}: {crossed} bytes between hosts");
    }
}

/// Two of them are under way at once, of which some ranks drop the first, while links break.
#[test]
fn large_calls_go_on_over_lines_that_break_and_beside_each_other() {
    each_seed(0..6, |seed| {
        let (network, hosts) = switched(seed, 4, LinkSpec::default());
        run(network, async |simulation| {
            let members = simulation.launch(&hosts, |rank| async move {
                let cluster = join().await;
                let mut group = world(&cluster).await;
                for turn in 0..16_u64 {
                    let mine = vec![turn + rank as u64; LARGE + turn as usize];
                    let sums = group.all_reduce(mine.clone(), Op::sum());
                    let largest = group.all_reduce(mine, Op::max());
                    if (turn as usize + rank).is_multiple_of(5) {
                        assert!(cancelled(2, sums).await.is_none_or(|it| it.is_ok()));
                    } else {
                        let sums = sums.await.unwrap();
                        assert!(sums.iter().all(|it| *it == 4 * turn + 6), "turn {turn} at {rank}");
                    }
                    let largest = largest.await.unwrap();
                    assert!(largest.iter().all(|it| *it == turn + 3), "turn {turn} at {rank}");
                }
                cluster.end(SOON).await.unwrap();
            });
            let mut random = Random::new(seed);
            for _ in 0..20 {
                simulation.sleep(Duration::from_millis(random.below(40))).await;
                cut_or_part(&simulation, &hosts, &mut random).await;
            }
            for member in members {
                member.await.unwrap();
            }
        });
    });
}
