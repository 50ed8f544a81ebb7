//! Groups of nodes and their calls in virtual time.

use crate::virtual_cluster::on_each;
use chunkcomm_cluster::Cluster;
use chunkcomm_group::{Algorithm, Exchanged, Group, GroupError, Op, Parts, Root};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The data of a rank.
fn mine(rank: usize, length: usize) -> Vec<u64> {
    (0..length as u64).map(|index| (rank as u64 + 1) * 1_000 + index * index).collect()
}

/// The ranks' data, one after the other combined with `combine`.
fn fold(ranks: usize, length: usize, combine: impl Fn(u64, u64) -> u64) -> Vec<u64> {
    let each = (0..ranks).map(|rank| mine(rank, length));
    each.reduce(|a, b| a.iter().zip(b).map(|(a, b)| combine(*a, b)).collect()).unwrap()
}

/// An associative operator that is not commutative: affine maps `x -> a x + b` modulo 2^32, as a pair.
pub(crate) fn after(first: &u64, second: &u64) -> u64 {
    let parts = |map: u64| ((map >> 32) as u32, map as u32);
    let ((a, b), (c, d)) = (parts(*first), parts(*second));
    (u64::from(a.wrapping_mul(c)) << 32) | u64::from(b.wrapping_mul(c).wrapping_add(d))
}

/// Compares long vectors without printing them whole.
#[track_caller]
pub(crate) fn same(left: &[u64], right: &[u64], what: impl std::fmt::Display) {
    assert_eq!(left.len(), right.len(), "{what}");
    let first = (0..left.len()).find(|index| left[*index] != right[*index]);
    if let Some(first) = first {
        panic!("{what}: element {first} is {}, not {}", left[first], right[first]);
    }
}

async fn all_calls(mut group: Group, length: usize) -> Result<(), GroupError> {
    let (rank, size) = (group.rank(), group.size());
    let affine = || Op::named("after", after);
    for algorithm in Algorithm::all() {
        group.set_algorithm(algorithm);
        group.barrier().await?;
        for root in 0..size {
            let of = format!("{algorithm}, root {root} of {size}, rank {rank}");
            let data = if rank == root { mine(root, length) } else { vec![0; length] };
            same(&group.broadcast(root, data).await?, &mine(root, length), &of);
            let sum = group.reduce(root, mine(rank, length), Op::sum()).await?;
            let of_all = fold(size, length, u64::wrapping_add);
            same(&sum, &if rank == root { of_all } else { mine(rank, length) }, &of);
            let mapped = group.reduce(root, mine(rank, length), affine()).await?;
            let of_all = fold(size, length, |a, b| after(&a, &b));
            same(&mapped, &if rank == root { of_all } else { mine(rank, length) }, &of);

            let part = |from: usize| mine(from, length + from % 3);
            let Exchanged { input, result: gathered } = group.gather(root, part(rank)).await?;
            same(&input, &part(rank), &of);
            let all: Vec<u64> = (0..size).flat_map(part).collect();
            assert_eq!(gathered.is_some(), rank == root);
            gathered.into_iter().for_each(|gathered| same(&gathered.data, &all, &of));
            let counts: Vec<usize> = (0..size).map(|it| part(it).len()).collect();
            let given = (rank == root).then_some(Parts { data: all, counts });
            let Exchanged { input, result } = group.scatter(root, given.clone()).await?;
            same(&result, &part(rank), &of);
            assert!(input == given, "{of}");
        }
        let of = format!("{algorithm}, rank {rank} of {size}");
        let sum = group.all_reduce(mine(rank, length), Op::sum()).await?;
        same(&sum, &fold(size, length, u64::wrapping_add), &of);
        let mapped = group.all_reduce(mine(rank, length), affine()).await?;
        same(&mapped, &fold(size, length, |a, b| after(&a, &b)), &of);
        let scanned = group.scan(mine(rank, length), affine()).await?;
        same(&scanned, &fold(rank + 1, length, |a, b| after(&a, &b)), &of);
        let before = group.exclusive_scan(mine(rank, length), Op::sum()).await?;
        let none = || vec![0; length];
        let expected = if rank == 0 { none() } else { fold(rank, length, u64::wrapping_add) };
        same(&before, &expected, &of);

        let part = |from: usize| mine(from, length + from % 3);
        let all = group.all_gather(part(rank)).await?.result;
        same(&all.data, &(0..size).flat_map(part).collect::<Vec<_>>(), &of);
        assert_eq!(all.counts, (0..size).map(|it| part(it).len()).collect::<Vec<_>>());
        // Some parts are large where the vectors are.
        let part = |from: usize, to: usize| mine(from * 100 + to, from + length / 3 * to);
        let data = (0..size).flat_map(|to| part(rank, to)).collect();
        let counts = (0..size).map(|to| part(rank, to).len()).collect();
        let received = group.all_to_all(Parts { data, counts }).await?.result;
        let expected: Vec<u64> = (0..size).flat_map(|from| part(from, rank)).collect();
        same(&received.data, &expected, &of);
        let parts = Parts::even(mine(rank, length), size);
        let own = group.reduce_scatter(parts, affine()).await?.result;
        let all = Parts::even(fold(size, length, |a, b| after(&a, &b)), size);
        same(&own, all.part(rank), &of);
    }
    Ok(())
}

async fn world(cluster: &Cluster) -> Group {
    Group::world(cluster).await.unwrap()
}

#[test]
fn every_call_is_what_a_sequential_program_computes() {
    for (size, length) in [(1, 3), (2, 5), (3, 0), (4, 1), (5, 7), (7, 100), (3, 9_001)] {
        on_each(size as u64, size, &[], move |_, cluster| async move {
            all_calls(world(&cluster).await, length).await.unwrap();
        });
    }
}

#[test]
fn values_travel_in_calls() {
    on_each(7, 4, &[], |rank, cluster| async move {
        let mut group = world(&cluster).await;
        let word = |rank: usize| format!("word {rank}");
        let given = (rank == 2).then(|| word(2));
        assert_eq!(group.broadcast_value(2, given).await.unwrap(), word(2));
        let all: Vec<String> = (0..4).map(word).collect();
        assert_eq!(group.all_gather_values(word(rank)).await.unwrap(), all);
        let gathered = group.gather_values(1, word(rank)).await.unwrap();
        assert_eq!(gathered, (rank == 1).then(|| all.clone()));
        let joined = group.reduce_values(3, word(rank), |a, b| a + &b).await.unwrap();
        assert_eq!(joined, (rank == 3).then(|| all.concat()));
    });
}

#[test]
fn groups_are_parted_and_their_calls_do_not_meet() {
    on_each(8, 6, &[], |rank, cluster| async move {
        let mut group = world(&cluster).await;
        let colour = (rank != 5).then_some(rank as u32 % 2);
        let parted = group.split(colour, 10 - rank as u32).await.unwrap();
        let mut library = group.duplicate().await.unwrap();
        // Begun in another order than they end, on three groups.
        let (in_library, in_world) = (library.barrier(), group.barrier());
        if let Some(mut parted) = parted {
            let expected = if rank % 2 == 0 { [4, 2, 0].to_vec() } else { [3, 1].to_vec() };
            let ranks = parted.all_gather(vec![rank as u64]).await.unwrap().result;
            assert_eq!(ranks.data, expected);
            assert_eq!(parted.member(0).rank, expected[0] as u32);
        }
        in_world.await.unwrap();
        in_library.await.unwrap();
        assert_eq!(group.split_by_host().await.unwrap().size(), 1);
    });
}

#[test]
fn elements_are_combined_as_vectors_of_one() {
    on_each(8, 3, &[], |rank, cluster| async move {
        let mut group = world(&cluster).await;
        let mine = rank as u64 + 1;
        // All are under way at once.
        let (sum, most) =
            (group.all_reduce_value(mine, Op::sum()), group.reduce_value(1, mine, Op::max()));
        let (upto, before) =
            (group.scan_value(mine, Op::sum()), group.exclusive_scan_value(mine, Op::sum()));
        assert_eq!(sum.await.unwrap(), 6);
        assert_eq!(most.await.unwrap(), if rank == 1 { 3 } else { mine });
        assert_eq!(upto.await.unwrap(), [1, 3, 6][rank]);
        assert_eq!(before.await.unwrap(), [0, 1, 3][rank]);
        let error = group.all_reduce_value(mine, Op::named("a panic", |_, _| panic!("no"))).await;
        assert_eq!(error.unwrap_err().data, mine);
    });
}

#[test]
fn a_dropped_call_goes_on_without_its_caller() {
    on_each(9, 3, &[], |rank, cluster| async move {
        let mut group = world(&cluster).await;
        let sums = group.all_reduce(vec![rank as u64], Op::sum());
        if rank == 1 {
            drop(sums);
        } else {
            assert_eq!(sums.await.unwrap(), [3]);
        }
        group.barrier().await.unwrap();
    });
}

#[test]
fn ranks_that_call_different_things_get_the_first_pair_that_differs() {
    let differing: [fn(&mut Group, usize); 5] = [
        |group, rank| drop(group.all_reduce(vec![0_u64; 3 + rank / 3], Op::sum())),
        |group, rank| {
            drop(group.broadcast(rank / 3, vec![0_u64; 2]));
        },
        |group, rank| match rank {
            3 => drop(group.barrier()),
            _ => drop(group.scan(vec![1_u64], Op::sum())),
        },
        |group, rank| {
            let op = if rank == 3 { Op::max() } else { Op::min() };
            drop(group.all_reduce(vec![1.0_f64], op));
        },
        |group, rank| match rank {
            3 => drop(group.all_reduce(vec![1.0_f32], Op::sum())),
            _ => drop(group.all_reduce(vec![1_i32], Op::sum())),
        },
    ];
    for (index, differ) in differing.into_iter().enumerate() {
        on_each(index as u64, 4, &[], move |rank, cluster| async move {
            let mut group = world(&cluster).await;
            // A slow rank may hear of the difference before it is through here, a fast one after that.
            let first = group.barrier().await;
            differ(&mut group, rank);
            let mut next = first;
            while next.is_ok() {
                next = group.barrier().await;
            }
            let error = next.unwrap_err();
            let GroupError::Differs(difference) = error.cause else { panic!("{error}") };
            assert_eq!(difference.ranks[1], 3, "{difference}");
        });
    }
}

#[test]
fn a_rank_that_never_calls_is_named() {
    on_each(10, 3, &[], |rank, cluster| async move {
        let mut group = world(&cluster).await;
        if rank == 2 {
            chunkcomm::host::sleep(Duration::from_secs(5)).await;
            group.barrier().await.unwrap();
            return;
        }
        let barrier = group.barrier();
        chunkcomm::host::sleep(Duration::from_secs(1)).await;
        let report = group.explain();
        if rank == 0 {
            assert_eq!(report.to_string(), "rank 0 of 3: call 1, barrier, waits for rank 2");
            let of_node = cluster.node().explain().await.to_string();
            assert!(of_node.contains("rank 2 of the group (rank 2 of the cluster)"), "{of_node}");
        }
        barrier.await.unwrap();
        assert_eq!(group.explain().calls, []);
    });
}

#[test]
fn a_panicking_operator_and_a_wrong_root_are_errors_at_all_ranks() {
    on_each(11, 3, &[], |rank, cluster| async move {
        let mut group = world(&cluster).await;
        let bad = Op::named("bad", move |a: &u64, b: &u64| {
            assert!(rank != 1, "no more");
            a + b
        });
        let error = group.all_reduce(vec![5_u64; 2], bad).await.unwrap_err();
        assert_eq!(error.data, [5, 5]);
        assert!(error.cause.to_string().contains("rank 1"), "{error}");
        assert!(error.cause.to_string().contains("no more"), "{error}");

        let (mut group, _) = group.shrink().await.unwrap();
        assert_eq!(group.size(), 3);
        let root = if rank == 0 { 9 } else { 1 };
        // The root may have sent its data before it hears of the other rank's call.
        let outcome = group.broadcast(root, vec![1_u8]).await;
        assert!(rank != 0 || outcome.is_err());
        let error = match outcome {
            Ok(_) => group.barrier().await.unwrap_err().cause,
            Err(error) => error.cause,
        };
        assert!(error.to_string().contains("no rank 9"), "{error}");
    });
}

#[test]
fn two_groups_meet_and_call_across() {
    on_each(12, 5, &[], |rank, cluster| async move {
        let mut all = world(&cluster).await;
        // Ranks 0 to 2 and 3 to 4.
        let mut part = all.split(Some(u32::from(rank > 2)), 0).await.unwrap().unwrap();
        for length in [1, 10_000] {
            let mut pair = part.meet("halves").await.unwrap();
            let (low, mine) = (rank <= 2, mine(part.rank(), length));
            assert_eq!((pair.size(), pair.their_size()), if low { (3, 2) } else { (2, 3) });
            // The last of the low ones gives, the high ones get.
            let root = if low { Root::Ours(2) } else { Root::Theirs(2) };
            let got = pair.broadcast(root, mine.clone()).await.unwrap();
            let expected = if low { mine.clone() } else { self::mine(2, length) };
            same(&got, &expected, rank);
            // The sum of the low ones at the second of the high ones.
            let root = if low { Root::Theirs(1) } else { Root::Ours(1) };
            let got = pair.reduce(root, mine.clone(), Op::named("after", after)).await.unwrap();
            let of_low = fold(3, length, |a, b| after(&a, &b));
            same(&got, if rank == 4 { &of_low } else { &mine }, rank);
            pair.barrier().await.unwrap();
            let sum = pair.both().all_reduce(vec![1_u64, rank as u64], Op::sum()).await.unwrap();
            assert_eq!(sum, [5, 10]);
            assert_eq!(pair.both().rank(), rank);
        }
    });
}

#[test]
fn a_group_meets_itself_and_one_that_overlaps() {
    on_each(13, 4, &[], |rank, cluster| async move {
        let mut group = world(&cluster).await;
        let mut twin = group.duplicate().await.unwrap();
        let (one, other) = tokio::join!(group.meet("twins"), twin.meet("twins"));
        let (mut one, mut other) = (one.unwrap(), other.unwrap());
        let (given, got) = tokio::join!(
            one.reduce(Root::Theirs(0), vec![rank as u64], Op::sum()),
            other.reduce(Root::Ours(0), vec![100_u64], Op::sum()),
        );
        assert_eq!(given.unwrap(), [rank as u64]);
        assert_eq!(got.unwrap(), [if rank == 0 { 6 } else { 100 }]);

        // Ranks 0 to 2 and 1 to 3: ranks 1 and 2 are in both.
        let mut low = group.split((rank < 3).then_some(0), 0).await.unwrap();
        let mut high = group.split((rank > 0).then_some(0), 0).await.unwrap();
        let low = async {
            let Some(low) = &mut low else { return };
            let mut pair = low.meet("overlap").await.unwrap();
            let data = vec![rank as u64; 2];
            assert_eq!(pair.broadcast(Root::Ours(1), data).await.unwrap(), [rank as u64; 2]);
        };
        let high = async {
            let Some(high) = &mut high else { return };
            let mut pair = high.meet("overlap").await.unwrap();
            assert_eq!(pair.broadcast(Root::Theirs(1), vec![9_u64; 2]).await.unwrap(), [1; 2]);
        };
        tokio::join!(low, high);
    });
}

#[test]
fn measured_costs_are_agreed_and_calls_go_on() {
    on_each(14, 4, &[], |_, cluster| async move {
        let mut group = world(&cluster).await;
        group.measure().await.unwrap();
        let sum = group.all_reduce(vec![1_u64; 20_000], Op::sum()).await.unwrap();
        assert_eq!(sum, vec![4; 20_000]);
    });
}

/// Sums that each rank adds up, call by call; the survivors of deaths go on where all were.
async fn sums_with_deaths(cluster: Cluster, calls: u64) -> Vec<u64> {
    let mut group = world(&cluster).await;
    let mut done: Vec<u64> = Vec::new();
    let mut base = 0;
    while (done.len() as u64) < calls {
        let number = done.len() as u64;
        match group.all_reduce(vec![1_u64, number], Op::sum()).await {
            Ok(sums) => {
                assert_eq!(sums[1], number * sums[0]);
                done.push(sums[0]);
            }
            Err(error) => {
                assert_eq!(error.data, [1, number]);
                let Some((rank, death)) = error.cause.death() else { panic!("{error}") };
                assert_eq!(group.member(rank), death.id);
                let (smaller, last) = group.shrink().await.unwrap();
                group = smaller;
                base += last;
                done.truncate(base as usize);
            }
        }
    }
    done
}

#[test]
fn survivors_shrink_and_go_on_where_all_of_them_were() {
    for moment in 0..8 {
        let at = Duration::from_micros(20_000 + 391 * moment);
        let deaths = [(2, at), (3, at + Duration::from_millis(moment))];
        let all = Arc::new(Mutex::new(Vec::new()));
        let every = Arc::clone(&all);
        on_each(moment, 5, &deaths, move |_, cluster| {
            let every = Arc::clone(&every);
            async move {
                let done = sums_with_deaths(cluster, 1000).await;
                every.lock().unwrap().push(done);
            }
        });
        let all = all.lock().unwrap();
        assert!(all.len() == 3 && all.iter().all(|it| *it == all[0]), "{moment}: {all:?}");
        assert_eq!(all[0].last(), Some(&3), "{moment}");
    }
}
