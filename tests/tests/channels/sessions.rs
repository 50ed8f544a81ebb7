//! Bound of the sessions that peers may begin with a node.

use chunkcomm::error::{HelloCause, LinkCause};
use chunkcomm::proto::hello::{FLAG_SOLE_NAME, Hello, Name};
use chunkcomm::proto::packet::AppendRecords as _;
use chunkcomm::proto::resume::{Kind, Resume};
use chunkcomm::{BytesReceiver, ConnectError, Limits, Node, NodeBuilder, NodeError, Peer, Silence};
use chunkcomm_testkit::proxy::Proxy;
use chunkcomm_testkit::raw::{RawPeer, good_hello, socket_address};
use chunkcomm_testkit::{limited, on_both, on_one_thread, tcp, until, until_some};
use std::time::Duration;
use tokio::net::TcpStream;

/// Lets a peer ask for a session by this word; returns the peer and the kind of the answer.
async fn says(node: &Node, kind: Kind, session: u64, attempt: u32) -> (RawPeer, Kind) {
    let stream = TcpStream::connect(socket_address(node)).await.unwrap();
    let mut raw = RawPeer::greet(stream).await;
    let addressee = raw.theirs.incarnation;
    raw.bytes(&Resume { kind, session, attempt, received: 0, addressee }.encode()).await;
    let answer = limited(raw.word()).await.unwrap();
    (raw, answer.kind)
}

async fn begun(node: &Node, session: u64) -> RawPeer {
    let (raw, kind) = says(node, Kind::New, session, 1).await;
    assert_eq!(kind, Kind::Agreed, "session {session}");
    raw
}

async fn node(sessions_max: usize) -> Node {
    let settings = Node::builder()
        .name("a")
        .limits(Limits { sessions_max, ..Limits::default() })
        .listen(tcp());
    settings.build().await.unwrap()
}

/// Returns how many sessions are cut off, and how many there are.
async fn cut_off(node: &Node) -> (usize, usize) {
    let links = node.explain().await.links;
    (links.iter().filter(|link| link.state == "cut off").count(), links.len())
}

async fn until_cut_off(node: &Node, count: usize) {
    until_some(|| async { (cut_off(node).await.0 >= count).then_some(()) }).await;
}

#[test]
fn the_session_that_is_cut_off_for_longest_gives_way_to_a_new_one() {
    on_both(|| async {
        let a = node(3).await;
        let mut raws = Vec::new();
        for session in 1..=3 {
            let mut raw = begun(&a, session).await;
            raw.open(1, "named").await;
            let accepted = limited(a.accept_bytes("named")).await.unwrap();
            raws.push((raw, accepted));
        }
        let (third, second, first) =
            (raws.pop().unwrap(), raws.pop().unwrap(), raws.pop().unwrap());
        // The second session is lost before the first.
        let mut kept = Vec::new();
        for (lost, (raw, accepted)) in [second, first].into_iter().enumerate() {
            drop(raw);
            until_cut_off(&a, lost + 1).await;
            kept.push(accepted);
        }
        let _new = begun(&a, 4).await;
        let error = limited(kept[0].0.closed()).await;
        assert!(matches!(error.cause(), LinkCause::GaveWay { sessions_max: 3 }), "{error}");
        assert!(error.to_string().contains("sessions_max allows 3"), "{error}");
        // The peer of the ended session learns of it when it comes back; the others go on.
        assert_eq!(says(&a, Kind::Again, 2, 2).await.1, Kind::Unknown);
        assert_eq!(says(&a, Kind::Again, 1, 2).await.1, Kind::Agreed);
        assert!(third.1.0.is_alive() && kept[1].0.is_alive());
    });
}

#[test]
fn while_all_are_connected_a_newcomer_is_refused_and_told_why() {
    on_both(|| async {
        let a = node(2).await;
        let first = begun(&a, 1).await;
        let _second = begun(&a, 2).await;
        // The peer may hear of its session before the node counts it.
        until_some(|| async { (a.explain().await.links.len() == 2).then_some(()) }).await;
        let b = Node::builder().name("b").build().await.unwrap();
        let address = a.addresses()[0].clone();
        let error = limited(b.connect_within(&address, Duration::ZERO)).await.unwrap_err();
        let ConnectError::Hello { cause: HelloCause::Full { sessions_max: 2 }, .. } = &error else {
            panic!("{error}")
        };
        assert!(error.to_string().contains("sessions_max"), "{error}");
        until(|| a.refusals().iter().any(|refusal| refusal.contains("sessions_max"))).await;
        // Sessions that the node dials itself do not count.
        let there = Node::builder().listen(tcp()).build().await.unwrap();
        limited(a.connect(&there.addresses()[0])).await.unwrap();
        // The cause may pass, so the connect is tried again.
        let dialling = tokio::spawn({
            let b = b.clone();
            async move { b.connect_within(&address, Duration::MAX).await }
        });
        drop(first);
        limited(dialling).await.unwrap().unwrap();
    });
}

#[test]
fn sessions_that_are_begun_and_cut_do_not_pile_up() {
    on_one_thread(async {
        let a = node(8).await;
        for session in 1..=100 {
            drop(begun(&a, session).await);
            // Waits until the node sees that the connection is gone.
            let all_cut = || async { Some(cut_off(&a).await).filter(|(cut, links)| cut == links) };
            let (cut, links) = until_some(all_cut).await;
            assert!(links <= 8 && cut > 0, "{links} sessions");
        }
    });
}

#[test]
fn sessions_that_are_cut_off_hold_no_more_than_the_limit() {
    on_both(|| async {
        // Each session has a part of a large message, and memory for four times the part.
        let part = vec![7; 10_000];
        let settings = Node::builder()
            .limits(Limits { cut_off_bytes_max: 200_000, ..Limits::default() })
            .listen(tcp());
        let a = settings.build().await.unwrap();
        let mut peers = Vec::new();
        for session in 1..=10 {
            let mut raw = begun(&a, session).await;
            raw.open(1, "named").await;
            raw.packet(|body| {
                body.fragment(1, 1_000_000, part.len() as u32);
                body.extend_from_slice(&part);
            })
            .await;
            let (peer, receiver) = limited(a.accept_bytes("named")).await.unwrap();
            // The part has come when what is behind it was answered.
            until(|| peer.stats().packet_bytes_received > part.len() as u64).await;
            drop(raw);
            peers.push((peer, receiver));
            until_some(|| async {
                let (cut, links) = cut_off(&a).await;
                (cut == links).then_some(())
            })
            .await;
        }
        until(|| peers.iter().filter(|it| it.0.is_alive()).count() <= 4).await;
        let error = limited(peers[0].0.closed()).await;
        let LinkCause::GaveWayForMemory { cut_off_bytes_max: 200_000 } = error.cause() else {
            panic!("{error}")
        };
        assert!(error.to_string().contains("200000 bytes that cut_off_bytes_max"), "{error}");
        assert!(peers[9].0.is_alive());
    });
}

#[test]
fn a_peer_cannot_make_its_dead_session_stay_for_longer() {
    on_both(|| async {
        let ms = Duration::from_millis;
        let settings = Node::builder()
            .silence(Silence { probe: ms(50), suspect: ms(200), dead: ms(400) })
            .listen(tcp());
        let a = settings.build().await.unwrap();
        let hello = Hello { message_bytes_max: u64::MAX, ..good_hello() };
        let mut raw = RawPeer::connect_as(&a, &hello).await;
        raw.open(1, "named").await;
        let (peer, _receiver) = limited(a.accept_bytes("named")).await.unwrap();
        assert_eq!(peer.message_bytes_max(), u64::MAX);
        drop(raw);
        let error = limited(peer.closed()).await;
        assert!(matches!(error.cause(), LinkCause::Dead { silence_ms: 400, .. }), "{error}");
    });
}

/// Begins a session as a node of one name, with these flags; accepts a channel of it.
async fn of_name(a: &Node, incarnation: u128, flags: u32) -> (RawPeer, Peer, BytesReceiver) {
    let node = Name::new("collector").unwrap();
    let hello = Hello { node, incarnation, flags, ..good_hello() };
    let mut raw = RawPeer::connect_as(a, &hello).await;
    raw.open(1, "named").await;
    let (peer, receiver) = limited(a.accept_bytes("named")).await.unwrap();
    (raw, peer, receiver)
}

#[test]
fn the_session_of_a_node_that_was_killed_ends_when_its_successor_comes() {
    on_both(|| async {
        let a = node(8).await;
        let (raw, first, _receiver) = of_name(&a, 1, FLAG_SOLE_NAME).await;
        let (other, several, _also) = of_name(&a, 2, 0).await;
        drop((raw, other));
        until_cut_off(&a, 2).await;
        let (second_raw, second, _receiver) = of_name(&a, 3, FLAG_SOLE_NAME).await;
        let error = limited(first.closed()).await;
        assert!(matches!(error.cause(), LinkCause::Restarted), "{error}");
        // The loss of the connection may be known later than the successor.
        let (_raw, third, _receiver) = of_name(&a, 4, FLAG_SOLE_NAME).await;
        assert!(second.is_alive(), "it is not cut off");
        drop(second_raw);
        let error = limited(second.closed()).await;
        assert!(matches!(error.cause(), LinkCause::Restarted), "{error}");
        assert!(third.is_alive() && several.is_alive());
    });
}

#[test]
fn a_node_says_that_it_is_the_only_one_of_its_name() {
    on_one_thread(async {
        let sole = |builder: NodeBuilder| async {
            let node = builder.listen(tcp()).build().await.unwrap();
            RawPeer::connect(&node).await.theirs.flags & FLAG_SOLE_NAME != 0
        };
        assert!(!sole(Node::builder().name("x")).await);
        assert!(sole(Node::builder().name("x").sole_name()).await);
    });
}

#[test]
fn two_nodes_of_one_name_lose_nothing_when_one_is_cut_off_for_long() {
    on_both(|| async {
        let ms = Duration::from_millis;
        let hasty = || {
            Node::builder().name("twin").silence(Silence {
                probe: ms(100),
                suspect: ms(300),
                dead: ms(5_000),
            })
        };
        let a = hasty().name("a").listen(tcp()).build().await.unwrap();
        let proxy = Proxy::before(&a);
        let first = hasty().build().await.unwrap();
        let peer = limited(first.connect(&proxy.address)).await.unwrap();
        let mut sender = first.open::<u64>(&peer, "numbers").await.unwrap();
        let (there, mut receiver) = limited(a.accept::<u64>("numbers")).await.unwrap();
        let mut back = a.open::<u64>(&there, "back").await.unwrap();
        proxy.close(true);
        proxy.cut();
        until_cut_off(&a, 1).await;
        let second = hasty().build().await.unwrap();
        limited(second.connect(&a.addresses()[0])).await.unwrap();
        for number in 0..100 {
            sender.send(&number).await.unwrap();
            back.send(&number).await.unwrap();
        }
        tokio::time::sleep(ms(2_500)).await;
        proxy.close(false);
        let (_, mut receives) = limited(first.accept::<u64>("back")).await.unwrap();
        for number in 0..100 {
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some(number));
            assert_eq!(limited(receives.recv()).await.unwrap(), Some(number));
        }
    });
}

#[test]
fn none_at_all_is_no_setting() {
    on_one_thread(async {
        let error = Node::builder()
            .limits(Limits { sessions_max: 0, ..Limits::default() })
            .build()
            .await
            .unwrap_err();
        assert!(matches!(error, NodeError::Setting { name: "sessions_max", .. }), "{error}");
    });
}
