//! Much memory beside the tasks of a runtime of one thread: it is freed by others.

use std::time::Duration;

use chunkcomm::Node;
use chunkcomm_group::Group;
use chunkcomm_pipeline::{DeltaEnd, DeltaReceiver, DeltaSender, Flow, GroupDeltas, Increment};
use chunkcomm_testkit::counting::{assert_freed_elsewhere, freed_here, watch_this_thread};

use crate::ALONE;
use crate::clusters::{end_all, join_all};

/// Elements of 24 MiB: more than is freed beside the tasks.
const LEN: usize = 3 << 20;

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn what_a_flow_leaves_is_freed_by_other_threads() {
    let _alone = ALONE.lock().await;
    watch_this_thread();
    let clusters = join_all(2).await;
    let mut groups = Vec::new();
    for cluster in &clusters {
        groups.push(Group::world(cluster).await.unwrap());
    }
    freed_here();
    let flow = || Flow::default().depth(2);
    let flows: Vec<_> =
        groups.iter_mut().map(|it| it.broadcast_delta(0, vec![1_u64; LEN], flow())).collect();
    for call in flows {
        match call.await.unwrap() {
            DeltaEnd::Sender(sender) => drop(sender),
            DeltaEnd::Receiver(receiver) => drop(receiver),
        }
    }
    assert_freed_elsewhere("the ends of a flow");
    drop(groups);
    end_all(&clusters).await;
    assert_freed_elsewhere("the end of the groups");
}

#[tokio::test]
async fn what_transfers_leave_is_freed_by_other_threads() {
    let _alone = ALONE.lock().await;
    watch_this_thread();
    let near = Node::builder().listen("tcp://127.0.0.1:0".parse().unwrap());
    let near = near.build().await.unwrap();
    let far = Node::builder().build().await.unwrap();
    let peer = far.connect(&near.addresses()[0]).await.unwrap();
    freed_here();
    let (memory, increment) = (vec![3_u64; LEN], Increment::default());
    let mut sender = DeltaSender::open(&far, &peer, "delta", memory, increment).await.unwrap();
    let accepted = DeltaReceiver::accept(&near, "delta", vec![0_u64; LEN]).await;
    let mut receiver = accepted.unwrap();
    sender.part(..).unwrap().commit();
    let (sent, landed) = tokio::join!(sender.finish(), receiver.finish());
    sent.unwrap();
    assert_eq!(landed.unwrap()[LEN - 1], 3);
    drop((sender, receiver));
    assert_freed_elsewhere("a delta");
    let sender = DeltaSender::open(&far, &peer, "short", vec![3_u64; 1], increment).await.unwrap();
    assert!(DeltaReceiver::accept(&near, "short", vec![0_u64; LEN]).await.is_err());
    drop(sender);
    assert_freed_elsewhere("a delta that was not accepted");
    for node in [near, far] {
        node.close(LONG).await.unwrap();
    }
    assert_freed_elsewhere("the end of the nodes");
}
