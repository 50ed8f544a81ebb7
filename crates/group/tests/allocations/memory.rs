//! Much memory beside the tasks of a runtime of one thread: it is freed by others, and copied in slices.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use chunkcomm::host::memory::{Piecewise, SLICE_BYTES};
use chunkcomm::{BytesSender, Node};
use chunkcomm_group::{Exchanged, Group, Op, Parts, Region};
use chunkcomm_testkit::counting::{
    LARGE_ALLOCATIONS, LARGE_BYTES_MIN, assert_freed_elsewhere, freed_here, watch_this_thread,
};

use crate::ALONE;
use crate::clusters::{end_all, join_all};

/// Elements of 24 MiB: more than is freed beside the tasks.
const LEN: usize = 3 << 20;
const BYTES: usize = LEN * size_of::<u64>();

const LONG: Duration = Duration::from_secs(60);

#[derive(Clone)]
#[repr(align(64))]
struct Aligned(#[expect(dead_code, reason = "they are bytes")] [u8; 64]);

#[tokio::test]
async fn much_memory_is_freed_in_pieces() {
    let _alone = ALONE.lock().await;
    watch_this_thread();
    freed_here();
    for spare in [0, LEN] {
        let mut memory = vector();
        memory.reserve_exact(spare);
        drop(Piecewise(memory));
        let freed = freed_here();
        assert!((1..=SLICE_BYTES).contains(&freed), "{freed} bytes at once");
    }
    drop(Piecewise(vec![(); LEN]));
    // The system's allocator would move these again and again.
    drop(Piecewise(vec![Aligned([0; 64]); BYTES / 64]));
    assert_eq!(freed_here(), BYTES);
}

/// Drops what the program has as a program with much memory would.
async fn drop_elsewhere<T: Send + 'static>(held: T) {
    tokio::task::spawn_blocking(move || drop(held)).await.unwrap();
}

fn vector() -> Vec<u64> {
    (0..LEN as u64).collect()
}

async fn calls(groups: &mut [Group]) {
    for length in [LEN, LEN + 1] {
        let parts: Vec<_> =
            groups.iter_mut().map(|it| it.all_gather(vec![7_u64; length])).collect();
        for call in parts {
            let gathered = call.await.unwrap();
            let (own, all) = (&gathered.input, &gathered.result.data);
            assert_eq!((own.len(), all.len()), (length, 2 * length));
            assert!(all.iter().all(|it| *it == 7));
            drop_elsewhere(gathered).await;
        }
        assert_freed_elsewhere("all_gather");
    }
    let sums: Vec<_> = groups.iter_mut().map(|it| it.all_reduce(vector(), Op::sum())).collect();
    for call in sums {
        let sum = call.await.unwrap();
        assert_eq!(sum[LEN - 1], 2 * (LEN as u64 - 1));
        drop_elsewhere(sum).await;
    }
    assert_freed_elsewhere("all_reduce");
    let scans: Vec<_> =
        groups.iter_mut().map(|it| it.exclusive_scan(vector(), Op::sum())).collect();
    for (rank, call) in scans.into_iter().enumerate() {
        let sum = call.await.unwrap();
        assert_eq!(sum[LEN - 1], rank as u64 * (LEN as u64 - 1));
        drop_elsewhere(sum).await;
    }
    assert_freed_elsewhere("exclusive_scan");
    let halves = || Parts::even(vector(), 2);
    let own: Vec<_> = groups.iter_mut().map(|it| it.reduce_scatter(halves(), Op::sum())).collect();
    for (rank, call) in own.into_iter().enumerate() {
        let exchanged = call.await.unwrap();
        assert_eq!(exchanged.result[0], 2 * (rank * LEN / 2) as u64);
        drop_elsewhere(exchanged).await;
    }
    assert_freed_elsewhere("reduce_scatter");
    // Nobody waits for it, so the group drops the data.
    groups.iter_mut().for_each(|it| drop(it.broadcast(1, vec![5_u64; LEN])));
    for call in groups.iter_mut().map(Group::barrier).collect::<Vec<_>>() {
        call.await.unwrap();
    }
    assert_freed_elsewhere("a dropped call");
}

#[tokio::test]
async fn a_result_lies_in_the_memory_that_was_given() {
    let _alone = ALONE.lock().await;
    let clusters = join_all(2).await;
    let mut groups = Vec::new();
    for cluster in &clusters {
        groups.push(Group::world(cluster).await.unwrap());
    }
    let (small, slice) = (2, SLICE_BYTES / size_of::<u64>());
    let none = Vec::with_capacity(2 * LEN);
    // Of the result's length, longer, a little shorter; and for elements that come without a flow.
    let kept = [(LEN, vec![1; 2 * LEN]), (LEN, vec![1; 3 * LEN]), (small, vec![1; LEN])];
    let mut short = vec![1; 2 * LEN];
    short.truncate(2 * LEN - slice);
    let cases = kept.into_iter().chain([(LEN, short)]).map(|case| (case, true));
    for ((length, given), is_kept) in cases.chain([((LEN, none), false)]) {
        let mut calls = Vec::new();
        for group in &mut groups {
            let mut data = Vec::with_capacity(given.capacity());
            data.extend_from_slice(&given);
            let at = data.as_ptr().addr();
            let into = Parts { data, counts: Vec::new() };
            calls.push((at, group.all_gather_into(vec![7_u64; length], into)));
        }
        for (at, call) in calls {
            let all = call.await.unwrap().result.data;
            assert_eq!(all.len(), 2 * length);
            assert!(all.iter().all(|it| *it == 7));
            assert!(!is_kept || all.as_ptr().addr() == at, "{length} elements");
        }
    }
    drop(groups);
    end_all(&clusters).await;
}

/// Memory of data that came before their receiver had memory for them serves the next call.
#[tokio::test]
async fn repeated_calls_use_memory_again() {
    const CALLS: u64 = 20;
    let _alone = ALONE.lock().await;
    let clusters = join_all(2).await;
    let mut groups = Vec::new();
    for cluster in &clusters {
        groups.push(Group::world(cluster).await.unwrap());
    }
    let length = 2 * LARGE_BYTES_MIN / size_of::<u64>();
    let mut memory: Vec<_> =
        (0..2).map(|_| [Parts::even(vec![7_u64; 2 * length], 2), Parts::default()]).collect();
    let mut large = 0;
    for call in 0..2 * CALLS {
        if call == CALLS {
            large = LARGE_ALLOCATIONS.load(Ordering::Relaxed);
        }
        let given = mem::take(&mut memory).into_iter().zip(&mut groups);
        let calls: Vec<_> =
            given.map(|([parts, into], group)| group.all_to_all_into(parts, into)).collect();
        for call in calls {
            let Exchanged { input, result } = call.await.unwrap();
            assert!(result.data.iter().all(|it| *it == 7));
            memory.push([input, result]);
        }
    }
    let large = LARGE_ALLOCATIONS.load(Ordering::Relaxed) - large;
    assert!(large < CALLS, "{large} large allocations in {CALLS} calls of two ranks");
    drop(groups);
    end_all(&clusters).await;
}

#[tokio::test]
async fn what_calls_leave_is_freed_by_other_threads() {
    let _alone = ALONE.lock().await;
    watch_this_thread();
    let clusters = join_all(2).await;
    let mut groups = Vec::new();
    for cluster in &clusters {
        groups.push(Group::world(cluster).await.unwrap());
    }
    freed_here();
    calls(&mut groups).await;
    drop(groups);
    end_all(&clusters).await;
    assert_freed_elsewhere("the end of the groups");
}

async fn pair() -> (Node, Node, chunkcomm::Peer) {
    let near = Node::builder().listen("tcp://127.0.0.1:0".parse().unwrap());
    let near = near.build().await.unwrap();
    let far = Node::builder().build().await.unwrap();
    let peer = far.connect(&near.addresses()[0]).await.unwrap();
    (near, far, peer)
}

#[tokio::test]
async fn what_a_region_leaves_is_freed_by_other_threads() {
    let _alone = ALONE.lock().await;
    watch_this_thread();
    freed_here();
    drop(Region::new(vec![0_u64; LEN]));
    assert_freed_elsewhere("a region");
}

async fn send(sender: &mut BytesSender, round: u8) {
    sender.send(Bytes::from(vec![round; BYTES])).await.unwrap();
    sender.sync().await.unwrap();
}

#[tokio::test]
async fn what_messages_leave_is_freed_by_other_threads() {
    let _alone = ALONE.lock().await;
    watch_this_thread();
    let (near, far, peer) = pair().await;
    let mut sender = far.open_bytes(&peer, "bytes").await.unwrap();
    let (_, mut receiver) = near.accept_bytes("bytes").await.unwrap();
    freed_here();
    for round in 1..=3 {
        let ((), taken) = tokio::join!(send(&mut sender, round), receiver.recv());
        let taken = taken.unwrap().unwrap();
        assert!(taken.iter().all(|byte| *byte == round));
        drop_elsewhere(taken).await;
        assert_freed_elsewhere("a message");
    }
    let buffer = vec![0; BYTES - 1];
    let (_, small) = tokio::join!(send(&mut sender, 4), receiver.recv_into(buffer));
    assert!(small.is_err());
    assert_freed_elsewhere("a buffer that is too small");
    let buffer = vec![0; 2 * BYTES];
    drop_elsewhere(receiver.recv_into(buffer).await.unwrap()).await;
    assert_freed_elsewhere("a buffer that came too late");
    drop((sender, receiver));
    for node in [near, far] {
        node.close(LONG).await.unwrap();
    }
    assert_freed_elsewhere("the end of the nodes");
}

/// Counts how often another task runs while `future` does.
pub(crate) async fn turns_of<R>(future: impl Future<Output = R>) -> (R, u64) {
    let turns = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&turns);
    let others = tokio::spawn(async move {
        loop {
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    let result = future.await;
    others.abort();
    (result, turns.load(Ordering::Relaxed))
}

/// In a group of one no link has a part in it.
#[tokio::test]
async fn others_run_between_the_slices_of_a_call() {
    let _alone = ALONE.lock().await;
    let clusters = join_all(1).await;
    let mut group = Group::world(&clusters[0]).await.unwrap();
    // One may be over before the others' first turn.
    let slices = (BYTES / SLICE_BYTES) as u64 - 1;
    let (gathered, turns) = turns_of(group.all_gather(vector())).await;
    let Exchanged { input: own, result: all } = gathered.unwrap();
    assert!(own == all.data);
    assert!(turns >= slices, "{turns} turns");
    let (all, turns) = turns_of(group.all_to_all(all)).await;
    assert!(all.unwrap().result.data == own && turns >= slices, "{turns} turns");
    let (sum, turns) = turns_of(group.all_reduce(vector(), Op::sum())).await;
    assert!(sum.unwrap() == own && turns >= slices, "{turns} turns");
    let (sum, turns) = turns_of(group.scan(vector(), Op::sum())).await;
    assert!(sum.unwrap() == own && turns >= slices, "{turns} turns");
    let (sum, turns) = turns_of(group.exclusive_scan(vector(), Op::sum())).await;
    assert!(sum.unwrap() == vec![0; LEN] && turns >= slices, "{turns} turns");
    let parts = Parts::even(vector(), 1);
    let (own_part, turns) = turns_of(group.reduce_scatter(parts, Op::sum())).await;
    assert!(own_part.unwrap().result == own && turns >= 2 * slices, "{turns} turns");
    let (gathered, turns) = turns_of(group.gather(0, vector())).await;
    assert!(gathered.unwrap().result.unwrap().data == own && turns >= slices, "{turns} turns");
    drop(group);
    end_all(&clusters).await;
}
