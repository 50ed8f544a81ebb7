//! What a peer said last is heard, although nothing can be written to it any more.

use crate::support::raw::RawPeer;
use crate::support::{limited, on_one_thread, tcp};
use chunkcomm::proto::packet::{AppendRecords, Item};
use chunkcomm::{LinkCause, Node};

/// The runtime looks for what has arrived only now and then: the node's write fails before it
/// knows that there is something to read. So one round would mostly do.
const ROUNDS: usize = 5;

#[test]
fn a_goodbye_is_heard_by_a_node_whose_write_failed_first() {
    on_one_thread(async {
        for _ in 0..ROUNDS {
            let node = Node::builder().listen(tcp()).build().await.unwrap();
            let mut raw = RawPeer::connect(&node).await;
            raw.open(1, "there").await;
            let (peer, _receiver) = limited(node.accept_bytes("there")).await.unwrap();
            let mut sender = node.open_bytes(&peer, "back").await.unwrap();
            sender.send_slice_now(b"first").await.unwrap();
            limited(raw.find(|item| matches!(item, Item::Run { .. }).then_some(()))).await.unwrap();
            // It closes, and its socket is reset behind that: nothing of this waits, so that
            // the node does not run in between.
            raw.packet(AppendRecords::bye).await;
            raw.stream.set_zero_linger().unwrap();
            drop(raw);
            sender.send_slice_now(b"second").await.unwrap();
            let error = limited(peer.closed()).await;
            assert!(matches!(error.cause(), LinkCause::ClosedByPeer), "{error}");
        }
    });
}
