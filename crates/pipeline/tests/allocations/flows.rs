//! Costs of a further round of a collective that flows: allocations and openings.

use chunkcomm_cluster::Cluster;
use chunkcomm_group::{Algorithm, Group, Op};
use chunkcomm_pipeline::{
    AllReduceEnds, DeltaEnd, DeltaReceiver, DeltaSender, Flow, GroupDeltas, Increment, ReduceEnds,
};

use crate::clusters::{end_all, join_all};
use crate::{ALONE, LEN, ROUND_ALLOCATIONS_MAX, allocations};

const RANKS: u32 = 4;
const WARM_ROUNDS: u64 = 50;
const ROUNDS: u64 = 50;

/// Batches of rounds, of which the one with the fewest allocations counts.
const BATCHES: u64 = 4;

#[derive(Clone, Copy, Debug)]
enum What {
    Broadcast,
    Reduce,
    AllReduce,
}

/// The ends of all ranks.
#[derive(Default)]
struct Ends {
    senders: Vec<DeltaSender<u32>>,
    receivers: Vec<DeltaReceiver<u32>>,
}

async fn set_up(groups: &mut [Group], what: What, depth: usize) -> Ends {
    let (mut ends, data) = (Ends::default(), || vec![0_u32; LEN]);
    // One increment: a message costs as much as that of a plain delta.
    let flow = || Flow::default().depth(depth).increment(Increment::Fixed(LEN * 4));
    match what {
        What::Broadcast => {
            let calls: Vec<_> =
                groups.iter_mut().map(|group| group.broadcast_delta(0, data(), flow())).collect();
            for call in calls {
                match call.await.unwrap() {
                    DeltaEnd::Sender(sender) => ends.senders.push(sender),
                    DeltaEnd::Receiver(receiver) => ends.receivers.push(receiver),
                }
            }
        }
        What::Reduce => {
            let call = |group: &mut Group| group.reduce_delta(0, data(), Op::sum(), flow());
            for call in groups.iter_mut().map(call).collect::<Vec<_>>() {
                let ReduceEnds { operand, result } = call.await.unwrap();
                ends.senders.push(operand);
                ends.receivers.extend(result);
            }
        }
        What::AllReduce => {
            let call = |group: &mut Group| group.all_reduce_delta(data(), Op::sum(), flow());
            for call in groups.iter_mut().map(call).collect::<Vec<_>>() {
                let AllReduceEnds { operand, result } = call.await.unwrap();
                ends.senders.push(operand);
                ends.receivers.push(result);
            }
        }
    }
    ends
}

/// One round at all ranks, each of whose elements is the number of the round.
async fn round(ends: &mut Ends, number: u64) {
    for sender in &mut ends.senders {
        if number > 1 {
            sender.start().await.unwrap();
        }
        let mut chunk = sender.next(LEN).unwrap().unwrap();
        chunk.fill(number as u32);
        chunk.commit().await.unwrap();
    }
    for receiver in &mut ends.receivers {
        if number > 1 {
            assert!(receiver.start().await.unwrap());
        }
    }
    let expected = number as u32 * ends.senders.len() as u32;
    for receiver in &mut ends.receivers {
        let sums = receiver.finish().await.unwrap();
        assert!(sums.iter().all(|sum| *sum == expected));
    }
}

/// Returns the number of channels of each node that are open.
async fn open_channels(clusters: &[Cluster]) -> Vec<usize> {
    let mut all = Vec::new();
    for cluster in clusters {
        let report = cluster.node().explain().await;
        all.push(report.links.iter().map(|it| it.sending.len() + it.receiving.len()).sum());
    }
    all
}

async fn counted(what: What, depth: usize, most: u64) {
    let (clusters, mut groups) = (join_all(RANKS).await, Vec::new());
    for cluster in &clusters {
        let mut group = Group::world(cluster).await.unwrap();
        group.set_algorithm(Algorithm::Chain);
        groups.push(group);
    }
    let mut ends = set_up(&mut groups, what, depth).await;
    let mut numbers = 1..;
    for number in numbers.by_ref().take(WARM_ROUNDS as usize) {
        round(&mut ends, number).await;
    }
    let warm = open_channels(&clusters).await;
    let mut counts = Vec::new();
    for _ in 0..BATCHES {
        let before = allocations();
        for number in numbers.by_ref().take(ROUNDS as usize) {
            round(&mut ends, number).await;
        }
        counts.push(allocations() - before);
    }
    let each = *counts.iter().min().unwrap() as f64 / ROUNDS as f64;
    println!("{what:?} of depth {depth}: {each:.2} allocations a round of all ranks; {counts:?}");
    assert!(each <= most as f64, "{what:?} of depth {depth}: {each} allocations a round");
    assert_eq!(warm, open_channels(&clusters).await, "channels of each rank");
    drop((ends, groups));
    end_all(&clusters).await;
}

#[tokio::test]
async fn a_round_of_a_warm_collective_opens_nothing_and_allocates_as_its_deltas_do() {
    let _alone = ALONE.lock().await;
    let edges = u64::from(RANKS) - 1;
    for depth in [1, 2] {
        counted(What::Broadcast, depth, edges * ROUND_ALLOCATIONS_MAX).await;
        counted(What::Reduce, depth, edges * ROUND_ALLOCATIONS_MAX).await;
        // Elements go up the chain and down again.
        counted(What::AllReduce, depth, 2 * edges * ROUND_ALLOCATIONS_MAX).await;
    }
}
