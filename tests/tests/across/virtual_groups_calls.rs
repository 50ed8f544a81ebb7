//! Calls of groups in virtual time: which of them count as finished, differ, or are too many.

use crate::virtual_cluster::on_each;
use chunkcomm::host;
use chunkcomm_cluster::Cluster;
use chunkcomm_group::{CollectiveError, Group, GroupError, Op, Pair, Root};
use chunkcomm_pipeline::{Flow, GroupDeltas};
use chunkcomm_testkit::cancelled;
use serde::{Deserialize, Serialize};
use std::time::Duration;

async fn world(cluster: &Cluster) -> Group {
    Group::world(cluster).await.unwrap()
}

/// Makes barriers until one fails.
async fn why_broken(group: &mut Group) -> GroupError {
    loop {
        if let Err(error) = group.barrier().await {
            return error.cause;
        }
    }
}

#[test]
fn calls_that_end_in_another_order_than_they_were_made_count() {
    on_each(1, 3, &[], |_, cluster| async move {
        let mut group = world(&cluster).await;
        let mut large = group.all_reduce(vec![1_u64; 1 << 20], Op::sum());
        group.barrier().await.unwrap();
        assert!(cancelled(1, &mut large).await.is_none(), "the large call ends later");
        large.await.unwrap();
        drop(group.all_gather_values(7_u64));
        // It stands until its ends are dropped.
        let flow = Flow::default();
        let ends = group.all_reduce_delta(vec![1_u64; 100], Op::sum(), flow).await.unwrap();
        for _ in 0..10 {
            group.barrier().await.unwrap();
        }
        assert_eq!(group.calls(), 14);
        let (mut group, last) = group.shrink().await.unwrap();
        assert_eq!(last, 14);
        drop(ends);
        group.barrier().await.unwrap();
    });
}

/// A number whose reading fails from 6 on, and panics from 9 on.
#[derive(Debug, Serialize, Deserialize)]
#[serde(try_from = "u32")]
struct Small(u32);

impl TryFrom<u32> for Small {
    type Error = &'static str;

    fn try_from(number: u32) -> Result<Small, &'static str> {
        assert!(number < 9, "no digit");
        if number < 6 { Ok(Small(number)) } else { Err("six and more are refused") }
    }
}

type CallOfValues = fn(&mut Group, u32);

/// Calls of values whose futures are dropped.
const DROPPED: [CallOfValues; 4] = [
    |group, number| drop(group.all_gather_values(Small(number))),
    |group, number| drop(group.gather_values(2, Small(number))),
    |group, number| drop(group.reduce_values(0, Small(number), |a, _| a)),
    |group, number| {
        let given = (group.rank() == 1).then_some(Small(number));
        drop(group.broadcast_value(1, given));
    },
];

#[test]
fn a_value_that_a_rank_cannot_read_breaks_the_group_at_all_ranks() {
    for (seed, call) in (0..).zip(DROPPED) {
        on_each(seed, 3, &[], move |rank, cluster| async move {
            let mut group = world(&cluster).await;
            group.barrier().await.unwrap();
            call(&mut group, if rank == 1 { 6 } else { 1 });
            let cause = why_broken(&mut group).await;
            let GroupError::Lost { rank: 1, loss } = &cause else { panic!("{cause}") };
            let why = loss.to_string();
            assert!(why.starts_with("its value of type Small cannot be read: "), "{why}");
            let (mut group, last) = group.shrink().await.unwrap();
            assert_eq!((group.size(), last), (3, 1));
            group.barrier().await.unwrap();
        });
    }
}

#[test]
fn the_error_of_a_value_that_cannot_be_read_gives_the_caller_its_own_back() {
    on_each(9, 3, &[], |rank, cluster| async move {
        let mut group = world(&cluster).await;
        let number = if rank == 1 { 7 } else { 1 };
        let called = group.all_gather_values(Small(number)).await;
        // All values that come to rank 1 are right.
        assert!(rank == 1 || called.is_err());
        if let Err(error) = called {
            assert_eq!(error.data.0, number);
            assert!(matches!(error.cause, GroupError::Lost { rank: 1, .. }), "{error}");
        }
        let (mut group, last) = group.shrink().await.unwrap();
        assert_eq!(last, 0);

        let called = group.gather_values(0, Small(if rank == 1 { 9 } else { 1 })).await;
        let cause = match called {
            Ok(_) => why_broken(&mut group).await,
            Err(error) => error.cause,
        };
        let GroupError::Lost { rank: 0, loss } = &cause else { panic!("{cause}") };
        let why = loss.to_string();
        assert!(why.contains("panicked") && why.contains("no digit"), "{why}");
    });
}

/// Ranks 0 and 1, and rank 2, as a pair; rank 1 is far ahead with calls in which it has no part.
async fn pair_with_a_rank_ahead(rank: usize, cluster: &Cluster) -> Pair {
    let mut all = world(cluster).await;
    let mut part = all.split(Some(u32::from(rank == 2)), 0).await.unwrap().unwrap();
    let mut pair = part.meet("sides").await.unwrap();
    if rank == 1 {
        for _ in 0..CALLS_AHEAD {
            pair.broadcast(Root::Ours(0), vec![1_u64]).await.unwrap();
        }
    } else {
        host::sleep(Duration::from_secs(1)).await;
    }
    pair
}

/// More than the calls whose statements a rank remembers.
const CALLS_AHEAD: usize = 100;

#[track_caller]
fn differs_in_the_first(cause: &GroupError) {
    let GroupError::Differs(difference) = cause else { panic!("{cause}") };
    assert!(difference.call == 1 && difference.ranks.contains(&1), "{difference}");
    assert!(difference.to_string().contains("something that ended there long ago"), "{difference}");
}

#[test]
fn a_rank_that_waits_for_one_that_ended_another_call_long_ago_gets_the_difference() {
    on_each(20, 3, &[], |rank, cluster| async move {
        let mut pair = pair_with_a_rank_ahead(rank, &cluster).await;
        if rank != 1 {
            // Rank 2 waits for rank 1, and rank 0 has no part.
            let root = if rank == 0 { Root::Ours(1) } else { Root::Theirs(1) };
            let called = pair.broadcast(root, vec![1_u64]).await;
            assert!(rank == 0 || called.is_err());
            host::sleep(Duration::from_secs(5)).await;
        }
        differs_in_the_first(&why_broken(pair.both()).await);
    });
}

#[test]
fn data_of_another_call_that_come_long_after_it_ended_are_a_difference() {
    on_each(21, 3, &[], |rank, cluster| async move {
        let mut pair = pair_with_a_rank_ahead(rank, &cluster).await;
        if rank != 1 {
            // Rank 2 gives, and needs nobody.
            let root = if rank == 0 { Root::Theirs(0) } else { Root::Ours(0) };
            let _ = pair.broadcast(root, vec![1_u64]).await;
            host::sleep(Duration::from_secs(5)).await;
        }
        differs_in_the_first(&why_broken(pair.both()).await);
    });
}

/// Calls of a rank that may be under way.
const CALLS_MAX: usize = 65_536;

async fn sum(group: &mut Group) -> Result<Vec<u64>, CollectiveError<Vec<u64>>> {
    group.all_reduce(vec![7], Op::sum()).await
}

#[track_caller]
fn is_too_many(cause: &GroupError) {
    let is_it = matches!(cause, GroupError::TooManyCalls { bound: CALLS_MAX, rank: 0, .. });
    assert!(is_it, "{cause}");
}

#[test]
fn a_call_beyond_the_bound_gives_its_data_back_and_breaks_the_group_at_all_ranks() {
    on_each(22, 3, &[], |rank, cluster| async move {
        let mut group = world(&cluster).await;
        // A collective that stands does not count.
        let flow = Flow::default();
        let _ends = group.all_reduce_delta(vec![1_u64; 100], Op::sum(), flow).await.unwrap();
        group.barrier().await.unwrap();
        if rank == 0 {
            for _ in 1..CALLS_MAX {
                drop(group.all_reduce(vec![7_u64], Op::sum()));
            }
            let mut last = group.all_reduce(vec![7_u64], Op::sum());
            // Made before a future is polled: that one would take in the words of the others.
            let mut beyond = group.all_reduce(vec![8_u64], Op::sum());
            let refused = cancelled(1, &mut beyond).await.expect("it is over").unwrap_err();
            assert_eq!(refused.data, [8]);
            assert!(cancelled(1, &mut last).await.is_none(), "it is under way");
            is_too_many(&refused.cause);
            is_too_many(&last.await.unwrap_err().cause);
        }
        let error = sum(&mut group).await.unwrap_err();
        assert_eq!(error.data, [7]);
        is_too_many(&error.cause);
        let (mut group, last) = group.shrink().await.unwrap();
        assert_eq!(last, 2);
        assert_eq!(sum(&mut group).await.unwrap(), [21]);
    });
}

/// The words of rank 0 are more than the others hold, and the last one says that it is broken.
#[test]
fn ranks_that_come_late_hear_of_too_many_calls() {
    on_each(23, 3, &[], |rank, cluster| async move {
        let mut group = world(&cluster).await;
        if rank == 0 {
            while sum_is_under_way(&mut group).await {}
        } else {
            host::sleep(Duration::from_secs(20 * rank as u64)).await;
        }
        let cause = loop {
            if let Err(error) = sum(&mut group).await {
                break error.cause;
            }
        };
        is_too_many(&cause);
        let (mut group, _) = group.shrink().await.unwrap();
        assert_eq!(sum(&mut group).await.unwrap(), [21]);
    });
}

/// Makes a thousand calls and lets their words leave; whether they go on.
async fn sum_is_under_way(group: &mut Group) -> bool {
    for _ in 1..1000 {
        drop(group.all_reduce(vec![7_u64], Op::sum()));
    }
    let is_over = cancelled(1, group.all_reduce(vec![7_u64], Op::sum())).await.is_some();
    host::sleep(Duration::from_millis(1)).await;
    !is_over
}
