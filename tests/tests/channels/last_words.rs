//! The last words of a peer or a receiver are heard: though nothing can be written to it any more,
//! and though it says first that it has gone.

use chunkcomm::error::LinkCause;
use chunkcomm::proto::packet::{AppendRecords, ChannelKind, Header, Item, Lane};
use chunkcomm::{CloseError, Node, SendError};
use chunkcomm_testkit::raw::{RawPeer, bytes_fingerprint};
use chunkcomm_testkit::{limited, on_both, on_one_thread, tcp};
use std::time::Duration;
use tokio::net::TcpListener;

/// Rounds of a test. The runtime looks for arrived bytes only now and then, so the node's write
/// fails before it knows that there is something to read. One round would mostly do.
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
            // The peer closes, and its socket is reset behind that. Nothing of this waits, so the
            // node does not run in between.
            raw.packet(AppendRecords::bye).await;
            raw.stream.set_zero_linger().unwrap();
            drop(raw);
            sender.send_slice_now(b"second").await.unwrap();
            let error = limited(peer.closed()).await;
            assert!(matches!(error.cause(), LinkCause::ClosedByPeer), "{error}");
        }
    });
}

/// Closes a channel with one message. Its receiver says that it has gone before it acknowledges
/// anything. Then it acknowledges all packets but the last `packets_short`.
async fn closed_after_terminate(packets_short: u64) -> Result<(), CloseError> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().into();
    let node = Node::builder().build().await.unwrap();
    let (peer, mut raw) = tokio::join!(node.connect(&address), RawPeer::accept(&listener));
    let mut sender = node.open_bytes(&peer.unwrap(), "taken").await.unwrap();
    sender.send_slice_now(b"one").await.unwrap();
    sender.flush().await.unwrap();
    let closing = tokio::spawn(sender.close(Duration::from_secs(5)));
    let mut last = 0;
    let ended = raw.find(|item| match item {
        Item::Packet(header) => {
            last = header.sequence;
            None
        }
        item => matches!(item, Item::End { .. }).then_some(()),
    });
    limited(ended).await.unwrap();
    raw.packet(|body| {
        body.terminate(1);
        body.open(1, Lane::Bulk, ChannelKind::Bytes, bytes_fingerprint(), "x");
    })
    .await;
    // By then the node has seen the first of these two records.
    let _opened = limited(node.accept_bytes("x")).await.unwrap();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    raw.packet_as(Header { ack: last - packets_short, ..Header::default() }, |_| ()).await;
    if packets_short > 1 {
        raw.packet(AppendRecords::bye).await;
    }
    limited(closing).await.unwrap()
}

#[test]
fn what_a_receiver_took_before_it_went_away_is_acknowledged_to_close() {
    on_both(|| async {
        closed_after_terminate(0).await.unwrap();
        let error = closed_after_terminate(2).await.unwrap_err();
        let channel = &error.channels[0];
        assert_eq!((channel.account.accepted, channel.account.acknowledged), (1, 0));
        assert!(matches!(channel.cause, Some(SendError::Terminated(_))), "{error}");
        // Only the end is missing, which nobody needs.
        closed_after_terminate(1).await.unwrap();
    });
}
