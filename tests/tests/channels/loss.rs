//! Lost connections, aborted sessions and closing.

use chunkcomm::error::LinkCause;
use chunkcomm::{
    CloseError, Node, OpenError, Peer, Receiver, RecvError, SendError, Sender, Silence,
    TryRecvError,
};
use chunkcomm_testkit::raw::RawPeer;
use chunkcomm_testkit::{
    Pair, all, fill, limited, memory, on_both, on_one_thread, pair, pair_of, tcp, until, waiting,
    windows_of,
};
use std::time::Duration;
use tokio::net::TcpListener;

const SOON: Duration = Duration::from_millis(50);
const LATE: Duration = Duration::from_secs(20);

/// A node with a runtime of its own, which can be killed.
struct Mortal {
    node: Node,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Mortal {
    fn new() -> Mortal {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let node = runtime.block_on(async {
            Node::builder().name("mortal").listen(tcp()).build().await.unwrap()
        });
        Mortal { node, runtime: Some(runtime) }
    }

    fn kill(&mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }
}

#[test]
fn a_killed_peer_gives_senders_an_account() {
    let mut mortal = Mortal::new();
    on_one_thread(async {
        let node = Node::builder().name("survivor").build().await.unwrap();
        let peer = node.connect(&mortal.node.addresses()[0]).await.unwrap();
        let mut sender: Sender<u64> = node.open(&peer, "account").await.unwrap();
        sender.send_all(0..100u64).await.unwrap();
        limited(sender.sync()).await.unwrap();
        mortal.kill();
        let error = limited(peer.closed()).await;
        assert_eq!(error.peer(), "mortal");
        assert!(!error.is_closed() && !peer.is_alive());
        let SendError::Lost(lost) = limited(sender.closed()).await else { panic!("not lost") };
        assert_eq!((lost.account.accepted, lost.account.acknowledged), (100, 100));
        assert_eq!((lost.channel.as_str(), lost.account.unknown()), ("account", 0));
        let text = sender.send(&1).await.unwrap_err().to_string();
        assert!(text.contains("mortal") && text.contains("100 are acknowledged"), "{text}");
        let error = node.open::<u64>(&peer, "again").await.unwrap_err();
        assert!(matches!(error, OpenError::Connect(_)), "{error}");
        // The killed node's own ends know as well.
        let error = limited(mortal.node.accept::<u64>("account")).await;
        if let Ok((there, _)) = error {
            assert!(matches!(limited(there.closed()).await.cause(), LinkCause::DriverGone));
        }
    });
}

#[test]
fn receivers_get_everything_that_had_arrived_and_then_lost() {
    on_both(|| async {
        for blocking in [false, true] {
            let pair = pair().await;
            let (mut sender, mut receiver) = pair.channel::<u64>("arrived").await;
            sender.send_all(0..500u64).await.unwrap();
            limited(sender.sync()).await.unwrap();
            pair.peer.abort();
            limited(receiver.peer().closed()).await;
            for number in 0..500 {
                assert_eq!(limited(receiver.recv()).await.unwrap(), Some(number));
            }
            let error = if blocking {
                let Err(TryRecvError::Failed(error)) = receiver.try_recv() else { panic!() };
                error
            } else {
                limited(receiver.recv()).await.unwrap_err()
            };
            let RecvError::Lost { channel, link, arrived } = &error else { panic!("{error}") };
            assert_eq!(*arrived, 500);
            assert!(error.to_string().contains("500 messages had arrived"), "{error}");
            assert_eq!((&**channel, link.peer()), ("arrived", "b"));
            // The channel stays lost.
            assert!(matches!(limited(receiver.recv()).await, Err(RecvError::Lost { .. })));
        }
    });
}

#[test]
fn an_aborted_session_says_what_is_unknown() {
    on_both(|| async {
        let pair = pair().await;
        let (mut sender, _receiver) = pair.channel::<u64>("unknown").await;
        sender.send_all(0..10u64).await.unwrap();
        limited(sender.sync()).await.unwrap();
        let more = fill(&mut sender, &1).await;
        pair.peer.abort();
        let SendError::Lost(lost) = limited(sender.closed()).await else { panic!("not lost") };
        assert_eq!(lost.account.accepted, 10 + more);
        assert!(lost.account.acknowledged >= 10);
        assert!(lost.account.unknown() > 0, "{}", lost.account);
        assert!(matches!(lost.link.cause(), LinkCause::Closed));
    });
}

#[test]
fn waiting_calls_end_when_the_session_is_lost() {
    on_both(|| async {
        let pair = pair().await;
        let (mut full, from_full) = pair.channel::<u64>("full").await;
        let (_silent, mut from_silent) = pair.channel::<u64>("silent").await;
        fill(&mut full, &1).await;
        let mut second = full.clone();
        let mut third = full.clone();
        let sending = waiting(async move { full.send(&1).await.unwrap_err() }).await;
        let syncing = waiting(async move { second.sync().await.unwrap_err() }).await;
        let reserving = waiting(async move { third.reserve(8).await.map(drop).unwrap_err() }).await;
        let receiving = waiting(async move { from_silent.recv().await.unwrap_err() }).await;
        pair.peer.abort();
        for task in [sending, syncing, reserving] {
            let error = limited(task).await.unwrap();
            assert!(matches!(error, SendError::Lost(_)), "{error}");
        }
        assert!(matches!(limited(receiving).await.unwrap(), RecvError::Lost { .. }));
        drop(from_full);
    });
}

#[test]
fn a_later_open_dials_again_and_begins_a_new_session() {
    on_both(|| async {
        let pair = pair().await;
        let (mut old, mut from_old) = pair.channel::<u64>("old").await;
        old.send(&1).await.unwrap();
        limited(old.sync()).await.unwrap();
        pair.peer.abort();
        limited(pair.peer.closed()).await;
        let mut new: Sender<u64> = pair.b.open(&pair.peer, "new").await.unwrap();
        assert!(new.peer().is_alive() && !pair.peer.is_alive());
        new.send(&2).await.unwrap();
        let (from, mut receiver) = limited(pair.a.accept::<u64>("new")).await.unwrap();
        assert_eq!(limited(receiver.recv()).await.unwrap(), Some(2));
        assert!(from.is_alive());
        // The old session's channels stay lost.
        assert!(matches!(old.send(&3).await, Err(SendError::Lost(_))));
        assert_eq!(limited(from_old.recv()).await.unwrap(), Some(1));
        assert!(matches!(limited(from_old.recv()).await, Err(RecvError::Lost { .. })));
        // The second open on the same peer shares the new session.
        let also: Sender<u64> = pair.b.open(&pair.peer, "also").await.unwrap();
        assert_eq!(also.peer().stats().packets_received, new.peer().stats().packets_received);
    });
}

#[test]
fn who_did_not_dial_cannot_dial_again() {
    on_one_thread(async {
        let pair = pair().await;
        let (_sender, receiver) = pair.channel::<u64>("hint").await;
        let back: Peer = receiver.peer().clone();
        pair.peer.abort();
        limited(back.closed()).await;
        let error = pair.a.open::<u64>(&back, "back").await.unwrap_err();
        assert!(matches!(error, OpenError::Lost(_)), "{error}");
    });
}

#[test]
fn connecting_twice_is_one_session() {
    on_both(|| async {
        let pair = pair().await;
        let again = pair.b.connect(&pair.a.addresses()[0]).await.unwrap();
        assert_eq!(again.incarnation(), pair.peer.incarnation());
        let (mut sender, mut receiver) = (
            pair.b.open::<u8>(&again, "same").await.unwrap(),
            limited(pair.a.accept::<u8>("same")).await.unwrap().1,
        );
        sender.send(&1).await.unwrap();
        assert_eq!(limited(receiver.recv()).await.unwrap(), Some(1));
        until(|| pair.peer.stats().messages_sent == 1).await;
    });
}

#[test]
fn closing_a_node_ends_its_channels_in_order() {
    on_both(|| async {
        for address in [tcp(), memory()] {
            let pair = pair_of(address, Node::builder(), Node::builder()).await;
            let (mut sender, mut receiver) = pair.channel::<u64>("closing").await;
            sender.send_all(0..1000u64).await.unwrap();
            limited(pair.b.close(LATE)).await.unwrap();
            assert_eq!(all(&mut receiver).await.len(), 1000);
            let SendError::Lost(lost) = sender.send(&1).await.unwrap_err() else { panic!() };
            assert!(lost.link.is_closed());
            assert_eq!(lost.account.unknown(), 0);
            assert!(limited(receiver.peer().closed()).await.is_closed());
            assert!(pair.b.connect_within(&pair.a.addresses()[0], Duration::ZERO).await.is_err());
            assert!(pair.b.accept::<u64>("closed").await.is_err());
            assert!(pair.b.local().await.is_err());
        }
    });
}

#[test]
fn closing_waits_for_a_receiver_that_is_behind() {
    on_both(|| async {
        let pair = pair().await;
        let (mut sender, mut receiver) = pair.channel::<u64>("behind").await;
        let accepted = fill(&mut sender, &1).await;
        // The window is used up: the other messages are staged at the sender.
        let closing = waiting(async move {
            let outcome = pair.b.close(LATE).await;
            (pair, outcome)
        })
        .await;
        assert_eq!(all(&mut receiver).await.len() as u64, accepted);
        let (_pair, outcome) = limited(closing).await.unwrap();
        outcome.unwrap();
    });
}

#[test]
fn dropping_a_node_sends_what_was_accepted() {
    on_both(|| async {
        let pair = pair().await;
        let (mut sender, mut receiver) = pair.channel::<u64>("dropped").await;
        let accepted = fill(&mut sender, &1).await;
        let Pair { a, b, peer } = pair;
        drop((sender, peer, b));
        assert_eq!(all(&mut receiver).await.len() as u64, accepted);
        drop(a);
    });
}

#[test]
fn both_nodes_may_close_at_the_same_time() {
    on_both(|| async {
        for _ in 0..20 {
            let pair = pair().await;
            let (mut there, mut from_b) = pair.channel::<u64>("there").await;
            let (mut back, mut from_a) = pair.back::<u64>("back").await;
            there.send_all(0..100u64).await.unwrap();
            back.send_all(0..100u64).await.unwrap();
            limited(async { tokio::try_join!(there.sync(), back.sync()) }).await.unwrap();
            let (one, other) =
                limited(async { tokio::join!(pair.a.close(LATE), pair.b.close(LATE)) }).await;
            one.unwrap();
            other.unwrap();
            for receiver in [&mut from_b, &mut from_a] {
                for number in 0..100 {
                    assert_eq!(limited(receiver.recv()).await.unwrap(), Some(number));
                }
            }
        }
    });
}

/// Returns a node that dialled a peer which said hello and then reads nothing.
async fn deaf() -> (Node, Peer, RawPeer, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().into();
    let node = Node::builder().build().await.unwrap();
    let (peer, raw) = tokio::join!(node.connect(&address), RawPeer::accept(&listener));
    (node, peer.unwrap(), raw, listener)
}

fn account(error: &CloseError) -> Vec<(String, u64, u64)> {
    let line = |it: &chunkcomm::error::Unacknowledged| {
        assert_eq!(it.peer, "raw");
        (it.channel.clone(), it.account.accepted, it.account.acknowledged)
    };
    error.channels.iter().map(line).collect()
}

#[test]
fn closing_a_channel_to_a_peer_that_does_not_answer_gives_an_account() {
    on_both(|| async {
        let (node, peer, _raw, _listener) = deaf().await;
        let mut sender: Sender<u64> = node.open(&peer, "deaf").await.unwrap();
        sender.send_all(0..10u64).await.unwrap();
        let error = limited(sender.close(SOON)).await.unwrap_err();
        assert_eq!(account(&error), [("deaf".to_owned(), 10, 0)]);
        assert!(error.to_string().contains("channel \"deaf\" to raw"), "{error}");
    });
}

#[test]
fn closing_a_node_with_a_peer_that_does_not_answer_gives_an_account_of_its_channels() {
    on_both(|| async {
        let (node, peer, mut raw, _listener) = deaf().await;
        let mut one: Sender<u64> = node.open(&peer, "one").await.unwrap();
        let mut two: Sender<Vec<u8>> = node.open(&peer, "two").await.unwrap();
        let mut done: Sender<u64> = node.open(&peer, "done").await.unwrap();
        // This channel's message is in the first packets, which are acknowledged.
        done.send(&1).await.unwrap();
        limited(done.flush()).await.unwrap();
        while done.stats().acknowledged == 0 {
            // Acknowledges never more than was sent: the counts are a little behind.
            let ack = peer.stats().message_packets_sent;
            let header = chunkcomm::proto::packet::Header { ack, ..Default::default() };
            raw.packet_as(header, |_| ()).await;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        one.send_all(0..10u64).await.unwrap();
        two.send(&vec![1; 1_000_000]).await.unwrap();
        two.send(&vec![1; 1]).await.unwrap();
        let error = limited(node.close(SOON)).await.unwrap_err();
        let mut channels = account(&error);
        channels.sort();
        assert_eq!(channels, [("one".to_owned(), 10, 0), ("two".to_owned(), 2, 0)]);
        assert!(matches!(limited(peer.closed()).await.cause(), LinkCause::CloseDeadline));
    });
}

#[test]
fn a_peer_that_stops_reading_bounds_its_sender_and_harms_no_other_link() {
    on_both(|| async {
        let (node, peer, _raw, _listener) = deaf().await;
        let other = Node::builder().name("a").listen(tcp()).build().await.unwrap();
        let well = node.connect(&other.addresses()[0]).await.unwrap();
        let mut sender: Sender<u64> = node.open(&peer, "deaf").await.unwrap();
        let accepted = fill(&mut sender, &1).await;
        // The bound is the window, the ring, and the rings from which it grew.
        assert!(accepted * 9 <= 16 * 1024 + 86 * 1024, "{accepted} accepted");
        let pair = Pair { a: other, b: node, peer: well };
        pair.is_well("beside").await;
        limited(pair.b.close(SOON)).await.unwrap_err();
    });
}

#[test]
fn a_peer_that_hangs_up_within_a_message_loses_only_that() {
    on_both(|| async {
        use chunkcomm::proto::packet::AppendRecords;
        let ms = Duration::from_millis;
        let hasty =
            Node::builder().silence(Silence { probe: ms(20), suspect: ms(100), dead: ms(400) });
        let node = hasty.listen(tcp()).build().await.unwrap();
        let mut raw = RawPeer::connect(&node).await;
        raw.open(1, "cut").await;
        raw.packet(|body| {
            body.run(1, 6, 2);
            body.extend_from_slice(&[2, 7, 7, 2, 8, 8]);
        })
        .await;
        // A fragment of a message whose second half never comes.
        raw.packet(|body| {
            body.fragment(1, 20_000, 10_000);
            body.extend_from_slice(&[9; 10_000]);
        })
        .await;
        let (_, mut receiver) = limited(node.accept_bytes("cut")).await.unwrap();
        drop(raw);
        assert_eq!(limited(receiver.recv()).await.unwrap().unwrap()[..], [7, 7]);
        assert_eq!(limited(receiver.recv()).await.unwrap().unwrap()[..], [8, 8]);
        let error = limited(receiver.recv()).await.unwrap_err();
        assert!(matches!(error, RecvError::Lost { .. }), "{error}");
    });
}

#[test]
fn opens_that_wait_for_memory_learn_that_the_session_is_lost() {
    on_one_thread(async {
        let small = Node::builder().limits(windows_of(64 * 1024));
        let pair = pair_of(tcp(), small, Node::builder()).await;
        let mut senders: Vec<Sender<u8>> = Vec::new();
        for _ in 0..5 {
            senders.push(pair.b.open(&pair.peer, "waits").await.unwrap());
        }
        let (_, receiver): (Peer, Receiver<u8>) = limited(pair.a.accept("waits")).await.unwrap();
        pair.peer.abort();
        for sender in &mut senders {
            assert!(matches!(limited(sender.closed()).await, SendError::Lost(_)));
        }
        drop(receiver);
    });
}
