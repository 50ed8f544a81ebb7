//! Costs of a small call of a group that is warm: allocations, messages, openings; turns of others beside many.

use std::time::Duration;

use chunkcomm_cluster::Cluster;
use chunkcomm_group::{Group, Op, Parts};
use chunkcomm_testkit::limited;

use crate::clusters::{end_all, join_all};
use crate::memory::turns_of;
use crate::{ALONE, allocations};

const WARM_CALLS: u64 = 100;
const CALLS: u64 = 200;

/// Batches of calls, of which the one with the fewest allocations counts.
const BATCHES: u64 = 5;

/// One call at each rank: the sum over all, in the vector that the rank had.
async fn call_all(groups: &mut [Group], vectors: &mut [Vec<u64>]) {
    let expected = groups.len() as u64;
    let mut calls: [_; 4] = Default::default();
    for (call, (group, vector)) in calls.iter_mut().zip(groups.iter_mut().zip(vectors.iter_mut())) {
        vector[0] = 1;
        *call = Some(group.all_reduce(std::mem::take(vector), Op::sum()));
    }
    for (call, vector) in calls.iter_mut().zip(vectors.iter_mut()) {
        *vector = call.take().unwrap().await.unwrap();
        assert_eq!(*vector, [expected]);
    }
}

/// Messages that each node has sent, and all its channels that are open.
async fn sent_and_open(clusters: &[Cluster]) -> Vec<(u64, usize)> {
    let mut all = Vec::new();
    for cluster in clusters {
        let report = cluster.node().explain().await;
        let channels = report.links.iter().map(|it| it.sending.len() + it.receiving.len());
        let mut sent = 0;
        for rank in (0..cluster.size()).filter(|rank| *rank != cluster.rank()) {
            sent += cluster.peer(rank).await.unwrap().stats().messages_sent;
        }
        all.push((sent, channels.sum::<usize>()));
    }
    all
}

#[tokio::test]
async fn a_small_all_reduce_of_a_warm_group_allocates_nothing() {
    let _alone = ALONE.lock().await;
    for (size, messages_max) in [(2_u32, 1), (3, 3), (4, 2)] {
        let clusters = join_all(size).await;
        let mut groups = Vec::new();
        for cluster in &clusters {
            groups.push(Group::world(cluster).await.unwrap());
        }
        let mut vectors = vec![vec![0_u64]; groups.len()];
        for _ in 0..WARM_CALLS {
            call_all(&mut groups, &mut vectors).await;
        }
        let warm = sent_and_open(&clusters).await;
        let mut counts = Vec::new();
        for _ in 0..BATCHES {
            let before = allocations();
            for _ in 0..CALLS {
                call_all(&mut groups, &mut vectors).await;
            }
            counts.push(allocations() - before);
        }
        println!("{size} ranks: allocations in batches of {CALLS} calls: {counts:?}");
        let calls = CALLS * BATCHES;
        for ((before, opened), (after, open)) in warm.iter().zip(sent_and_open(&clusters).await) {
            let sent = after - before;
            println!("{sent} messages in {calls} calls");
            // A few are the cluster's.
            assert!((calls..=messages_max * calls + 20).contains(&sent), "{sent} messages");
            assert_eq!(*opened, open);
        }
        assert_eq!(counts.iter().min(), Some(&0), "{size} ranks: {counts:?}");
        drop(groups);
        end_all(&clusters).await;
    }
}

/// Calls that nobody awaits are taken in, and go on, some at a time.
#[tokio::test]
async fn others_run_between_many_calls() {
    const CALLS: u64 = 30_000;
    let _alone = ALONE.lock().await;
    for size in [1, 2] {
        let clusters = join_all(size).await;
        let mut groups = Vec::new();
        for cluster in &clusters {
            groups.push(Group::world(cluster).await.unwrap());
        }
        for group in &mut groups {
            (0..CALLS).for_each(|call| drop(group.all_reduce(vec![call], Op::sum())));
        }
        let lasts: Vec<_> = groups.iter_mut().map(Group::barrier).collect();
        let all = async {
            for last in lasts {
                last.await.unwrap();
            }
        };
        let ((), turns) = turns_of(all).await;
        println!("{size} ranks: {turns} turns");
        // They take 10 ms at least.
        assert!(turns >= 4, "{turns} turns");
        drop(groups);
        end_all(&clusters).await;
    }
}

/// One exchange of blocks that flow, of 32 KiB.
async fn exchange_all(groups: &mut [Group]) {
    const LENGTH: usize = 4096;
    let size = groups.len();
    let parts = || Parts::even(vec![7_u64; size * LENGTH], size);
    let calls: Vec<_> = groups.iter_mut().map(|group| group.all_to_all(parts())).collect();
    for call in calls {
        assert!(call.await.unwrap().result.data == vec![7; size * LENGTH]);
    }
}

/// One exchange of blocks that travel with their lengths.
async fn small_exchange(groups: &mut [Group]) {
    let size = groups.len();
    let parts = || Parts::even(vec![7_u64; size], size);
    let calls: Vec<_> = groups.iter_mut().map(|group| group.all_to_all(parts())).collect();
    for call in calls {
        assert!(call.await.unwrap().result.data == vec![7; size]);
    }
}

/// Waits for credit of all nodes.
async fn credit_waits(clusters: &[Cluster]) -> u64 {
    let mut waits = 0;
    for cluster in clusters {
        for rank in (0..cluster.size()).filter(|rank| *rank != cluster.rank()) {
            waits += cluster.peer(rank).await.unwrap().stats().credit_waits;
        }
    }
    waits
}

/// Transfers of a call take the lines of the last one, which are opened once and have a large window.
#[tokio::test]
async fn large_calls_of_a_warm_group_open_nothing_and_wait_for_no_credit() {
    let _alone = ALONE.lock().await;
    let clusters = join_all(3).await;
    let mut groups = Vec::new();
    for cluster in &clusters {
        groups.push(Group::world(cluster).await.unwrap());
    }
    // All have their channels of words.
    small_exchange(&mut groups).await;
    let words = open_channels(&clusters).await;
    for _ in 0..10 {
        exchange_all(&mut groups).await;
    }
    let (open, waits) = (open_channels(&clusters).await, credit_waits(&clusters).await);
    for _ in 0..20 {
        exchange_all(&mut groups).await;
    }
    assert_eq!(open_channels(&clusters).await, open);
    let waits = credit_waits(&clusters).await - waits;
    assert!(waits < 10, "{waits} waits for credit in 120 transfers");
    assert!(open > words, "lines stay: {words} channels before, {open} now");
    // At rest they end.
    limited(async {
        while open_channels(&clusters).await > words {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    exchange_all(&mut groups).await;
    drop(groups);
    end_all(&clusters).await;
}

async fn open_channels(clusters: &[Cluster]) -> usize {
    sent_and_open(clusters).await.iter().map(|(_, open)| open).sum()
}
