//! Groups whose making is dropped, given up or late at some ranks.

use crate::virtual_cluster::{join, on_each, switched};
use chunkcomm::LossKind;
use chunkcomm::host::{self, Instant};
use chunkcomm_cluster::Cluster;
use chunkcomm_examples::cluster_options::with_all_founders;
use chunkcomm_group::{Algorithm, Group, GroupError, Op, Pair};
use chunkcomm_simulation::{LinkSpec, Network, run};
use chunkcomm_testkit::cancelled;
use std::error::Error;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(60);

async fn world(cluster: &Cluster) -> Group {
    Group::world(cluster).await.unwrap()
}

/// Checks that a call of the group ends because this rank has dropped it.
async fn is_without(mut group: Group, rank: usize) {
    let error = group.barrier().await.unwrap_err().cause;
    // The one that waits for it says so to the others.
    let text = error.to_string();
    assert!(text.contains(&format!("rank {rank} ")) && text.contains("gone"), "{text}");
}

/// Checks that all three ranks of a group still count alike.
async fn is_whole(group: &mut Group) {
    assert_eq!(group.all_reduce(vec![1_u64], Op::sum()).await.unwrap(), [3]);
    let mut copy = group.duplicate().await.unwrap();
    assert_eq!(copy.all_reduce(vec![2_u64], Op::sum()).await.unwrap(), [6]);
    let mut parted = group.split(Some(7), 0).await.unwrap().unwrap();
    assert_eq!(parted.all_reduce(vec![3_u64], Op::sum()).await.unwrap(), [9]);
}

#[test]
fn a_dropped_split_is_a_dropped_group_and_the_parent_goes_on() {
    for (seed, dropper) in (0..).zip([0, 1, 2]) {
        for waits in 0..4 {
            on_each(seed, 3, &[], move |rank, cluster| async move {
                let mut group = world(&cluster).await;
                if rank == dropper {
                    let _ = cancelled(waits, group.split(Some(0), 0)).await;
                    drop(group.split_by_host());
                } else {
                    let parted = group.split(Some(0), 0).await.unwrap().unwrap();
                    is_without(parted, dropper).await;
                    assert_eq!(group.split_by_host().await.unwrap().size(), 1);
                }
                is_whole(&mut group).await;
            });
        }
    }
}

#[test]
fn a_dropped_world_duplicate_or_shrink_is_a_dropped_group() {
    on_each(3, 3, &[], |rank, cluster| async move {
        if rank == 1 {
            drop(Group::world(&cluster));
        } else {
            is_without(world(&cluster).await, 1).await;
        }
        let mut group = world(&cluster).await;
        if rank == 2 {
            drop(group.duplicate());
        } else {
            is_without(group.duplicate().await.unwrap(), 2).await;
        }
        is_whole(&mut group).await;
        if rank == 1 {
            drop(group.shrink());
            // One that ends meanwhile would be gone already.
            host::sleep(DEADLINE).await;
        } else {
            let (rest, _) = group.shrink().await.unwrap();
            assert_eq!(rest.size(), 3);
            is_without(rest, 1).await;
        }
    });
}

#[test]
fn calls_take_their_numbers_in_the_order_of_the_methods() {
    on_each(4, 3, &[], |rank, cluster| async move {
        let mut group = world(&cluster).await;
        let split = group.split(Some(rank as u32 % 2), 0);
        let copy = group.duplicate();
        let barrier = group.barrier();
        // Awaited in another order at each rank.
        let (mut parted, mut copy) = if rank == 0 {
            barrier.await.unwrap();
            let copy = copy.await.unwrap();
            (split.await.unwrap().unwrap(), copy)
        } else {
            let parted = split.await.unwrap().unwrap();
            barrier.await.unwrap();
            (parted, copy.await.unwrap())
        };
        assert_eq!(copy.all_reduce(vec![1_u64], Op::sum()).await.unwrap(), [3]);
        let own = parted.all_reduce(vec![1_u64], Op::sum()).await.unwrap();
        assert_eq!(own, [if rank == 1 { 1 } else { 2 }]);
        is_whole(&mut group).await;
    });
}

/// The two groups of ranks 0 to 2 and rank 3.
async fn sides(cluster: &Cluster) -> (Group, Group) {
    let mut world = world(cluster).await;
    let part = world.split(Some(u32::from(world.rank() == 3)), 0).await.unwrap().unwrap();
    (world, part)
}

#[test]
fn a_time_out_around_a_meeting_leaves_later_ones_right() {
    on_each(5, 4, &[], |rank, cluster| async move {
        let (_world, mut ours) = sides(&cluster).await;
        if rank == 3 {
            host::sleep(Duration::from_secs(2)).await;
        } else {
            let met = host::timeout(Duration::from_millis(500), ours.meet("code")).await;
            assert!(met.is_err(), "nobody came");
        }
        let mut pair = ours.meet("code").await.unwrap();
        pair.barrier().await.unwrap();
        if rank < 3 {
            is_whole(&mut ours).await;
        }
    });
}

#[test]
fn a_rank_that_drops_its_meeting_is_gone_to_the_others() {
    let drops =
        [1, 2, 0].into_iter().flat_map(|dropper| (0..10).map(move |waits| (dropper, waits)));
    let mut without = 0;
    for (seed, (dropper, waits)) in (0..).zip(drops) {
        let all = Arc::new(Mutex::new(Vec::new()));
        let every = Arc::clone(&all);
        on_each(seed, 4, &[], move |rank, cluster| {
            let every = Arc::clone(&every);
            async move {
                let (_world, mut ours) = sides(&cluster).await;
                if rank == dropper {
                    let _ = cancelled(waits, ours.meet("code")).await;
                } else {
                    let met = if rank == 3 {
                        host::sleep(Duration::from_secs(1)).await;
                        ours.meet_within("code", Duration::from_secs(3)).await
                    } else {
                        ours.meet("code").await.map(Some)
                    };
                    let met = match met {
                        Err(GroupError::Lost { rank: 0, loss })
                            if loss.kind() == LossKind::Left =>
                        {
                            None
                        }
                        met => met.unwrap(),
                    };
                    every.lock().unwrap().push(met.is_some());
                    if let Some(mut pair) = met {
                        let error = pair.barrier().await.unwrap_err().to_string();
                        let named = format!("rank {dropper} ");
                        assert!(error.contains(&named) && error.contains("gone"), "{error}");
                    }
                }
                if rank < 3 {
                    is_whole(&mut ours).await;
                }
                let mut pair = ours.meet("again").await.unwrap();
                pair.barrier().await.unwrap();
            }
        });
        let all = all.lock().unwrap();
        let of = format!("rank {dropper} after {waits} polls: {all:?}");
        assert!(all.len() == 3 && all.iter().all(|it| *it == all[0]), "{of}");
        // A meeting that its rank 0 leaves while it waits is over.
        assert!(all[0] || dropper == 0, "{of}");
        without += usize::from(!all[0]);
    }
    assert!(without > 0);
}

#[test]
fn a_meeting_within_a_limit_is_met_at_all_ranks_or_at_none() {
    const LIMIT: Duration = Duration::from_millis(500);
    // Around the limit in steps of the network's latency, and with two limits that end together.
    let lates = (0..24).map(|step| 499_000 + 90 * step).chain([0, 250_000, 2_000_000]);
    let mut outcomes = [0, 0];
    for (seed, late_us) in (0..).zip(lates) {
        let all = Arc::new(Mutex::new(Vec::new()));
        let every = Arc::clone(&all);
        on_each(seed, 4, &[], move |rank, cluster| {
            let every = Arc::clone(&every);
            async move {
                let (_world, mut ours) = sides(&cluster).await;
                let late = Duration::from_micros(late_us);
                if rank == 3 {
                    host::sleep(late).await;
                }
                // That of the group which comes late is over at once, at some seeds.
                let limit = if rank == 3 && seed % 2 == 0 { Duration::ZERO } else { LIMIT };
                let met = ours.meet_within("code", limit).await.unwrap();
                every.lock().unwrap().push(met.is_some());
                if let Some(mut pair) = met {
                    pair.barrier().await.unwrap();
                }
                let mut pair = ours.meet("again").await.unwrap();
                pair.barrier().await.unwrap();
            }
        });
        let all = all.lock().unwrap();
        assert!(all.len() == 4 && all.iter().all(|it| *it == all[0]), "{seed}, {late_us}: {all:?}");
        outcomes[usize::from(all[0])] += 1;
    }
    assert!(outcomes.iter().all(|count| *count > 2), "both happen: {outcomes:?}");
}

#[test]
fn ranks_that_meet_another_name_or_for_another_time_differ() {
    for other in 0..2 {
        on_each(other, 2, &[], move |rank, cluster| async move {
            let mut group = world(&cluster).await;
            let limit = Duration::from_secs(1);
            let met = match (rank, other) {
                (0, _) => group.meet_within("code", limit).await.map(|it| it.is_some()),
                (_, 0) => group.meet("code").await.map(|_| true),
                _ => group.meet_within("other", limit).await.map(|it| it.is_some()),
            };
            let Err(GroupError::Differs(difference)) = met else { panic!("{met:?}") };
            let [zero, one] = &difference.calls;
            assert!(zero.ends_with("the name within a limit \"code\""), "{zero}");
            let says = if other == 0 { "the name \"code\"" } else { "limit \"other\"" };
            assert!(one.ends_with(says), "{one}");
        });
    }
}

#[test]
fn a_wait_that_is_over_leaves_the_next_one_of_its_name() {
    on_each(6, 2, &[], |rank, cluster| async move {
        let mut all = world(&cluster).await;
        let mut own = all.split(Some(rank as u32), 0).await.unwrap().unwrap();
        if rank == 1 {
            host::sleep(Duration::from_secs(5)).await;
            own.meet("code").await.unwrap().barrier().await.unwrap();
            return;
        }
        let (mut twin, mut third) =
            (own.duplicate().await.unwrap(), own.duplicate().await.unwrap());
        let mut first = Box::pin(own.meet("code"));
        assert!(host::timeout(Duration::from_secs(1), first.as_mut()).await.is_err());
        // The twin meets it, and the third waits before the first has looked.
        drop(twin.meet("code").await.unwrap());
        let mut last = Box::pin(third.meet("code"));
        assert!(host::timeout(Duration::from_secs(1), last.as_mut()).await.is_err());
        drop(first.await.unwrap());
        last.await.unwrap().barrier().await.unwrap();
    });
}

/// A death that some ranks have heard of before they make their world, and others have not.
#[test]
fn ranks_of_one_host_stay_together_after_a_death() {
    let mut network = Network::new(7);
    let hosts = ["host-0", "host-1"].map(|name| network.add_host(name));
    network.switch(&hosts, LinkSpec::default());
    let [one, two] = hosts;
    run(network, async |simulation| {
        // Rank 1, which dies, is the first of its host.
        let members = simulation.launch(&[one, two, two, two], |rank| async move {
            let cluster = join().await;
            if rank == 1 {
                // Without a word.
                return;
            }
            // Rank 2 makes its group first.
            let early = if rank == 2 { Some(world(&cluster).await) } else { None };
            while cluster.deaths().is_empty() {
                host::sleep(Duration::from_millis(10)).await;
            }
            let group = match early {
                Some(group) => group,
                None => world(&cluster).await,
            };
            let (mut group, _) = group.shrink().await.unwrap();
            let on_host = group.split_by_host().await.unwrap();
            assert_eq!(on_host.size(), if rank == 0 { 1 } else { 2 }, "{rank}");
            // The error names the death.
            let _ = cluster.end(DEADLINE).await;
        });
        for member in members {
            member.await.unwrap();
        }
    });
}

/// Rank 1 says its last words to rank 2 and leaves, while its packets to rank 2 are held up.
#[test]
fn the_last_words_of_a_rank_that_left_are_heard() {
    let (network, hosts) = switched(8, 3, LinkSpec::default());
    run(network, async |simulation| {
        let members = simulation.launch(&hosts, |rank| async move {
            let cluster = join().await;
            let mut group = world(&cluster).await;
            group.set_algorithm(Algorithm::Direct);
            // Each pair has a link then; rank 1 has said nothing in the second group.
            group.all_gather(vec![rank as u64]).await.unwrap();
            let mut last = group.duplicate().await.unwrap();
            host::sleep(Duration::from_secs(2)).await;
            let said = last.broadcast(1, vec![if rank == 1 { 7_u64 } else { 0 }; 3]).await;
            assert_eq!(said.unwrap(), [7; 3], "{rank}");
            if rank == 1 {
                drop((group, last));
                cluster.leave(DEADLINE).await.unwrap();
            } else {
                cluster.end(DEADLINE).await.unwrap();
            }
        });
        simulation.sleep(Duration::from_secs(1)).await;
        simulation.with(|network, now| network.partition(now, hosts[1], hosts[2]));
        simulation.sleep(Duration::from_secs(5)).await;
        simulation.with(|network, now| network.heal(now, hosts[1], hosts[2]));
        for member in members {
            member.await.unwrap();
        }
    });
}

/// No death is waited for, whether the rank has said something in the group or not.
#[test]
fn a_rank_that_left_with_its_group_is_gone_soon() {
    for (seed, calls) in [(10, 0), (11, 2)] {
        let (network, hosts) = switched(seed, 3, LinkSpec::default());
        run(network, async |simulation| {
            let members = simulation.launch(&hosts, |rank| async move {
                let cluster = join().await;
                let mut group = world(&cluster).await;
                for _ in 0..calls {
                    group.barrier().await.unwrap();
                }
                if rank == 1 {
                    cluster.leave(DEADLINE).await.unwrap();
                    return;
                }
                let began = Instant::now();
                let error = group.all_gather(vec![rank as u64]).await.unwrap_err().to_string();
                assert!(error.contains("rank 1 ") && error.contains("gone"), "{error}");
                assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
                cluster.end(DEADLINE).await.unwrap();
            });
            for member in members {
                member.await.unwrap();
            }
        });
    }
}

#[test]
fn a_dropped_group_does_not_keep_its_cluster_alive() {
    let (network, hosts) = switched(9, 2, LinkSpec::default());
    run(network, async |simulation| {
        let members = simulation.launch(&hosts, |rank| async move {
            let cluster = join().await;
            // Rank 0 never speaks to rank 1, which would answer it.
            drop(world(&cluster).await);
            host::sleep(Duration::from_secs(1)).await;
            if rank == 0 {
                let died = async {
                    while cluster.deaths().is_empty() {
                        host::sleep(Duration::from_millis(10)).await;
                    }
                };
                host::timeout(DEADLINE, died).await.unwrap();
            } else {
                drop(cluster);
                host::sleep(2 * DEADLINE).await;
            }
        });
        for member in members {
            member.await.unwrap();
        }
    });
}

/// The other group never comes, since a rank of it died before it met.
#[test]
fn work_that_needs_all_founders_ends_where_it_meets_no_group() {
    for (seed, dead) in (0..).zip([2, 3]) {
        let dies_at = Duration::from_secs(1);
        on_each(seed, 4, &[(dead, dies_at)], move |rank, cluster| async move {
            let forms = async {
                let sends = u32::from(rank < 2);
                let mut ours = world(&cluster).await.split(Some(sends), 0).await?.unwrap();
                if rank == dead {
                    pending::<()>().await;
                }
                Ok::<Pair, Box<dyn Error>>(ours.meet("halves").await?)
            };
            let formed = async {
                if rank == 0 {
                    let formed = with_all_founders(&cluster, forms).await;
                    cluster.finish();
                    formed
                } else {
                    forms.await
                }
            };
            let formed = host::timeout(DEADLINE, formed).await;
            let formed = formed.unwrap_or_else(|_| panic!("rank {rank} waits without {dead}"));
            let error = formed.err().unwrap().to_string();
            assert!(rank != 0 || error.starts_with(&format!("rank {dead} is gone")), "{error}");
        });
    }
}
