//! Collectives that flow, over loopback TCP: their results are those of a sequential fold, in rounds and however
//! the elements are computed.

use chunkcomm_cluster::Cluster;
use chunkcomm_group::{Algorithm, CollectiveError, Group, GroupError, Op};
use chunkcomm_pipeline::{
    AllReduceEnds, DeltaEnd, DeltaReceiver, DeltaSender, Flow, GatherEnds, GroupDeltas, Increment,
    ReduceEnds,
};
use chunkcomm_testkit::{limited, on_both};

use crate::clusters::{end_all, join_all};

/// Lengths: none, odd ones within a block a rank, and several increments.
const LENGTHS: [usize; 4] = [0, 3, 4097, 20_003];
const ROUNDS: u64 = 4;

/// Returns an element that a rank computes: an affine map, whose composition is not commutative.
fn element(rank: usize, round: u64, index: usize) -> [u32; 2] {
    let mixed = (rank as u64 * 7919 + round * 104_729 + index as u64 * 31) as u32;
    [2 * (mixed % 1000) + 1, mixed]
}

fn compose() -> Op<[u32; 2]> {
    Op::named("compose", |a: &[u32; 2], b: &[u32; 2]| {
        [a[0].wrapping_mul(b[0]), a[1].wrapping_mul(b[0]).wrapping_add(b[1])]
    })
}

fn folded(size: usize, round: u64, index: usize) -> [u32; 2] {
    let fold = |a: [u32; 2], b: [u32; 2]| {
        [a[0].wrapping_mul(b[0]), a[1].wrapping_mul(b[0]).wrapping_add(b[1])]
    };
    (0..size).map(|rank| element(rank, round, index)).reduce(fold).unwrap()
}

/// Computes a round of an operand, from the start or from several threads in any order.
async fn compute(sender: &mut DeltaSender<[u32; 2]>, rank: usize, round: u64) {
    if (rank as u64 + round).is_multiple_of(2) {
        while let Some(mut chunk) = sender.next(1000).unwrap() {
            for (index, element_of) in chunk.range().zip(chunk.iter_mut()) {
                *element_of = element(rank, round, index);
            }
            chunk.commit().await.unwrap();
        }
        return;
    }
    let mut parts = sender.parts(3).unwrap();
    parts.reverse();
    let computing = parts.into_iter().map(|mut part| {
        tokio::task::spawn_blocking(move || {
            let range = part.range();
            for (index, element_of) in range.zip(part.iter_mut()) {
                *element_of = element(rank, round, index);
            }
            part.commit();
        })
    });
    for computed in computing.collect::<Vec<_>>() {
        computed.await.unwrap();
    }
}

async fn check(receiver: &mut DeltaReceiver<[u32; 2]>, expected: impl Fn(usize) -> [u32; 2]) {
    let mut shown = 0;
    while let Some((range, elements)) = receiver.next_any().await.unwrap() {
        for (index, found) in range.clone().zip(elements) {
            assert_eq!(*found, expected(index), "element {index}");
        }
        shown += range.len();
    }
    assert_eq!(shown, receiver.len());
}

/// Runs `part` at all ranks of a group, each in a task of its own.
async fn all<F, P>(clusters: &[Cluster], part: P)
where
    P: Fn(Group) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let mut tasks = Vec::new();
    for cluster in clusters {
        tasks.push(tokio::spawn(part(Group::world(cluster).await.unwrap())));
    }
    for task in tasks {
        limited(task).await.unwrap();
    }
}

#[test]
fn reductions_are_the_fold_in_rounds_of_any_order() {
    on_both(|| async {
        for size in [1, 3, 6] {
            let clusters = join_all(size).await;
            for depth in [1, 2] {
                for by in [Algorithm::Chain, Algorithm::Binary, Algorithm::Binomial] {
                    all(&clusters, move |group| reduce_rounds(group, by, depth)).await;
                }
                all(&clusters, move |group| all_reduce_rounds(group, depth)).await;
            }
            end_all(&clusters).await;
        }
    });
}

async fn reduce_rounds(mut group: Group, by: Algorithm, depth: usize) {
    group.set_algorithm(by);
    let (rank, size) = (group.rank(), group.size());
    for (root, length) in LENGTHS.into_iter().enumerate() {
        let root = root % size;
        let flow = Flow::default().depth(depth).increment(Increment::Fixed(20_000));
        let call = group.reduce_delta(root, vec![[0; 2]; length], compose(), flow);
        assert_eq!(call.algorithm(), by);
        let ReduceEnds { operand: mut mine, mut result } = call.await.unwrap();
        assert_eq!(result.is_some(), rank == root);
        for round in 1..=ROUNDS {
            if round > 1 {
                mine.start().await.unwrap();
            }
            compute(&mut mine, rank, round).await;
            if let Some(result) = &mut result {
                if round > 1 {
                    assert!(result.start().await.unwrap());
                }
                check(result, |index| folded(size, round, index)).await;
            }
        }
        mine.finish().await.unwrap();
    }
}

async fn all_reduce_rounds(mut group: Group, depth: usize) {
    let (rank, size) = (group.rank(), group.size());
    for length in LENGTHS {
        let flow = Flow::default().depth(depth);
        let call = group.all_reduce_delta(vec![[0; 2]; length], compose(), flow);
        let AllReduceEnds { operand: mut mine, mut result } = call.await.unwrap();
        for round in 1..=ROUNDS {
            if round > 1 {
                mine.start().await.unwrap();
                assert!(result.start().await.unwrap());
            }
            compute(&mut mine, rank, round).await;
            check(&mut result, |index| folded(size, round, index)).await;
        }
        mine.finish().await.unwrap();
        result.into_buffer().await.unwrap();
        assert_eq!(mine.into_buffer().await.len(), length);
    }
}

#[test]
fn broadcasts_and_gatherings_flow_in_rounds() {
    on_both(|| async {
        for size in [1, 2, 5] {
            let clusters = join_all(size).await;
            for depth in [1, 2] {
                for by in [Algorithm::Chain, Algorithm::Binary, Algorithm::Binomial] {
                    all(&clusters, move |group| broadcast_rounds(group, by, depth)).await;
                }
                all(&clusters, move |group| gather_rounds(group, depth)).await;
            }
            end_all(&clusters).await;
        }
    });
}

async fn broadcast_rounds(mut group: Group, by: Algorithm, depth: usize) {
    group.set_algorithm(by);
    for (root, length) in LENGTHS.into_iter().enumerate() {
        let root = root % group.size();
        let call = group.broadcast_delta(root, vec![[0; 2]; length], Flow::default().depth(depth));
        match call.await.unwrap() {
            DeltaEnd::Sender(mut sender) => {
                for round in 1..=ROUNDS {
                    if round > 1 {
                        sender.start().await.unwrap();
                    }
                    compute(&mut sender, root, round).await;
                }
                sender.finish().await.unwrap();
            }
            DeltaEnd::Receiver(mut receiver) => {
                for round in 1..=ROUNDS {
                    if round > 1 {
                        assert!(receiver.start().await.unwrap());
                    }
                    check(&mut receiver, |index| element(root, round, index)).await;
                }
            }
        }
    }
}

async fn gather_rounds(mut group: Group, depth: usize) {
    let (rank, size) = (group.rank(), group.size());
    for (root, length) in LENGTHS.into_iter().enumerate() {
        let root = root % size;
        let length_of = move |rank: usize| length + rank * 3;
        let flow = Flow::default().depth(depth);
        let call = group.gather_delta(root, vec![[0; 2]; length_of(rank)], flow);
        let GatherEnds { operand: mut mine, mut result, counts } = call.await.unwrap();
        if result.is_some() {
            assert_eq!(counts, (0..size).map(length_of).collect::<Vec<_>>());
        }
        for round in 1..=ROUNDS {
            if round > 1 {
                mine.start().await.unwrap();
            }
            compute(&mut mine, rank, round).await;
            if let Some(result) = &mut result {
                if round > 1 {
                    assert!(result.start().await.unwrap());
                }
                let of = |mut index: usize| {
                    let mut rank = 0;
                    while index >= length_of(rank) {
                        index -= length_of(rank);
                        rank += 1;
                    }
                    element(rank, round, index)
                };
                check(result, of).await;
            }
        }
        mine.finish().await.unwrap();
    }
}

#[test]
fn a_stream_that_is_broadcast_may_end_early() {
    on_both(|| async {
        let clusters = join_all(4).await;
        all(&clusters, |mut group| async move {
            let flow = Flow::default().increment(Increment::Fixed(4096));
            match group.broadcast_delta(2, vec![0_u32; 10_000], flow).await.unwrap() {
                DeltaEnd::Sender(mut sender) => {
                    sender.part(..).unwrap().commit();
                    sender.start().await.unwrap();
                    let mut part = sender.part(..777).unwrap();
                    part.fill(7);
                    part.commit();
                    sender.end().await.unwrap();
                }
                DeltaEnd::Receiver(mut receiver) => {
                    assert!(receiver.start().await.unwrap());
                    assert_eq!(receiver.finish().await.unwrap(), [7; 777]);
                    assert!(!receiver.start().await.unwrap());
                }
            }
        })
        .await;
        end_all(&clusters).await;
    });
}

/// Waits until the group is broken.
async fn broken(group: &mut Group) -> CollectiveError<()> {
    let calling = async {
        loop {
            if let Err(error) = group.barrier().await {
                return error;
            }
        }
    };
    limited(calling).await
}

#[test]
fn a_sender_that_is_dropped_early_breaks_the_group_and_one_dropped_in_order_does_not() {
    on_both(|| async {
        let clusters = join_all(3).await;
        all(&clusters, |mut group| async move {
            let rank = group.rank();
            let flow = Flow::default();
            let call = group.reduce_delta(0, vec![0_u64; 1000], Op::sum(), flow.clone());
            let ReduceEnds { operand: mut mine, result } = call.await.unwrap();
            mine.part(..).unwrap().commit();
            mine.finish().await.unwrap();
            if rank == 2 {
                drop(mine);
            } else {
                // The others go on: they learn who has left.
                mine.start().await.unwrap();
                mine.part(..).unwrap().commit();
                if let Some(mut result) = result {
                    result.start().await.unwrap();
                    let error = result.finish().await.unwrap_err();
                    assert!(error.to_string().contains("it has ended the collective"), "{error}");
                }
            }
            assert_eq!(group.all_reduce(vec![1_u64], Op::sum()).await.unwrap(), [3]);
            let call = group.reduce_delta(0, vec![0_u64; 1000], Op::sum(), flow);
            let mut mine = call.await.unwrap().operand;
            // It fails at ranks that hear of the broken group before.
            let _ = group.barrier().await;
            if rank == 2 {
                mine.part(..10).unwrap().commit();
                drop(mine);
            } else {
                mine.part(..).unwrap().commit();
                let ended = async {
                    while mine.finish().await.is_ok() {
                        mine.start().await?;
                        mine.part(..).unwrap().commit();
                    }
                    mine.finish().await
                };
                let error = limited(ended).await.unwrap_err();
                assert!(error.to_string().contains("rank 2"), "{error}");
            }
            let error = broken(&mut group).await;
            assert!(matches!(error.cause, GroupError::Lost { rank: 2, .. }), "{error}");
        })
        .await;
        end_all(&clusters).await;
    });
}

#[test]
fn an_operator_that_panics_breaks_the_group_with_its_text() {
    on_both(|| async {
        let clusters = join_all(3).await;
        all(&clusters, |mut group| async move {
            let op = Op::named("breaks", |_: &u32, _: &u32| panic!("no sum today"));
            let call = group.reduce_delta(0, vec![0_u32; 5000], op, Flow::default());
            let ends = call.await.unwrap();
            ends.operand.part(..).unwrap().commit();
            let error = broken(&mut group).await;
            assert!(error.to_string().contains("no sum today"), "{error}");
        })
        .await;
        end_all(&clusters).await;
    });
}

#[test]
fn calls_that_differ_and_roots_that_are_none_give_the_data_back() {
    on_both(|| async {
        let clusters = join_all(2).await;
        all(&clusters, |mut group| async move {
            let depth = 1 + group.rank();
            let flow = Flow::default().depth(depth);
            let call = group.reduce_delta(0, vec![depth; 9], Op::sum(), flow);
            let error = call.await.unwrap_err();
            assert_eq!(error.data, vec![depth; 9]);
            assert!(error.to_string().contains("two rounds at a time"), "{error}");
        })
        .await;
        end_all(&clusters).await;
        let clusters = join_all(2).await;
        all(&clusters, |mut group| async move {
            let call = group.gather_delta(7, vec![group.rank() as u8; 9], Flow::default());
            let error = call.await.unwrap_err();
            assert_eq!(error.data.len(), 9);
        })
        .await;
        end_all(&clusters).await;
    });
}
