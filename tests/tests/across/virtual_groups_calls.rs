//! Calls of groups in virtual time: which of them count as finished, differ, or are too many.

use crate::virtual_cluster::on_each;
use chunkcomm_cluster::Cluster;
use chunkcomm_pipeline::{Flow, Group, GroupError, Op};
use chunkcomm_testkit::cancelled;
use serde::{Deserialize, Serialize};

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
            let GroupError::Rank { rank: 1, why } = &cause else { panic!("{cause}") };
            let expected = "its value of type Small cannot be read: ";
            assert!(why.starts_with(expected) && why.contains("six and more"), "{why}");
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
            assert!(matches!(error.cause, GroupError::Rank { rank: 1, .. }), "{error}");
        }
        let (mut group, last) = group.shrink().await.unwrap();
        assert_eq!(last, 0);

        let called = group.gather_values(0, Small(if rank == 1 { 9 } else { 1 })).await;
        let cause = match called {
            Ok(_) => why_broken(&mut group).await,
            Err(error) => error.cause,
        };
        let GroupError::Rank { rank: 0, why } = &cause else { panic!("{cause}") };
        assert!(why.contains("panicked") && why.contains("no digit"), "{why}");
    });
}
