//! Sessions that outlive their connections.

use chunkcomm::error::LinkCause;
use chunkcomm::proto::packet::{AppendRecords, ChannelKind, Header, Item, Lane};
use chunkcomm::proto::resume::{Kind, Resume};
use chunkcomm::{LinkEvent, Node, NodeBuilder, SendError, Sender, Silence};
use chunkcomm_testkit::proxy::Proxy;
use chunkcomm_testkit::random::seeded;
use chunkcomm_testkit::raw::{RawPeer, again, socket_address};
use chunkcomm_testkit::{NEVER, Pair, limited, on_both, on_one_thread, stays, tcp, until};
use std::time::Duration;
use tokio::net::TcpStream;

/// Returns a node that gives up early.
fn hasty() -> NodeBuilder {
    let ms = Duration::from_millis;
    Node::builder().silence(Silence { probe: ms(20), suspect: ms(100), dead: ms(2_000) })
}

/// Returns two nodes with a proxy between them.
async fn apart(a: NodeBuilder, b: NodeBuilder) -> (Pair, Proxy) {
    let a = a.name("a").listen(tcp()).build().await.unwrap();
    let b = b.name("b").build().await.unwrap();
    let proxy = Proxy::before(&a);
    let peer = b.connect(&proxy.address).await.unwrap();
    (Pair { a, b, peer }, proxy)
}

#[test]
fn a_stream_survives_cuts_at_any_byte_in_both_directions() {
    on_both(|| async {
        let (pair, proxy) = apart(Node::builder(), Node::builder()).await;
        let (mut there, mut from_b) = pair.channel::<(u64, Vec<u8>)>("there").await;
        let (mut back, mut from_a) = pair.back::<u64>("back").await;
        let mut random = seeded(11);
        let sizes: Vec<usize> = (0..400)
            .map(|at| if at % 40 == 7 { 600_000 } else { random.below(2000) as usize })
            .collect();
        let expected = sizes.clone();
        let sending = tokio::spawn(async move {
            for (at, size) in sizes.into_iter().enumerate() {
                there.send(&(at as u64, vec![at as u8; size])).await.unwrap();
            }
            there.sync().await.unwrap();
            there.stats()
        });
        let echoing = tokio::spawn(async move {
            for number in 0..50_000u64 {
                back.send(&number).await.unwrap();
            }
            back.sync().await.unwrap();
        });
        let cutting = tokio::spawn(async move {
            let mut random = seeded(12);
            for _ in 0..25 {
                let until_bytes = proxy.passed() + random.below(200_000);
                let passed = until(|| proxy.passed() >= until_bytes);
                let _ = tokio::time::timeout(Duration::from_millis(200), passed).await;
                proxy.cut();
            }
            proxy
        });
        let numbers = tokio::spawn(async move {
            for number in 0..50_000u64 {
                assert_eq!(limited(from_a.recv()).await.unwrap(), Some(number));
            }
        });
        for (at, size) in expected.into_iter().enumerate() {
            let (number, bytes) = limited(from_b.recv()).await.unwrap().unwrap();
            assert_eq!((number, bytes.len()), (at as u64, size));
            assert!(bytes.iter().all(|byte| *byte == at as u8));
        }
        let stats = limited(sending).await.unwrap();
        assert_eq!((stats.accepted, stats.acknowledged), (400, 400));
        limited(numbers).await.unwrap();
        limited(echoing).await.unwrap();
        let _proxy = limited(cutting).await.unwrap();
        let resumes = || pair.peer.stats().resumes;
        until(|| resumes() > 0).await;
        assert_eq!(pair.peer.stats().packets_duplicate, 0);
        pair.is_well("after").await;
    });
}

#[test]
fn what_was_accepted_while_there_was_no_connection_arrives() {
    on_both(|| async {
        let (pair, proxy) = apart(Node::builder(), Node::builder()).await;
        let (mut sender, mut receiver) = pair.channel::<u64>("away").await;
        sender.send(&0).await.unwrap();
        assert_eq!(limited(receiver.recv()).await.unwrap(), Some(0));
        proxy.close(true);
        proxy.cut();
        for number in 1..100 {
            sender.send(&number).await.unwrap();
        }
        let closing = tokio::spawn(async move { (pair.b.close(NEVER).await, pair) });
        stays("closing waits for a connection", || !closing.is_finished()).await;
        proxy.close(false);
        for number in 1..100 {
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some(number));
        }
        assert_eq!(limited(receiver.recv()).await.unwrap(), None);
        let (closed, _pair) = limited(closing).await.unwrap();
        closed.unwrap();
    });
}

#[test]
fn a_silent_peer_is_dead_in_time_and_the_error_has_the_account() {
    on_both(|| async {
        let (pair, proxy) = apart(Node::builder(), hasty()).await;
        let (mut sender, _receiver) = pair.channel::<u64>("silent").await;
        sender.send_all(0..10u64).await.unwrap();
        limited(sender.sync()).await.unwrap();
        proxy.swallow(true);
        sender.send_all(0..5u64).await.unwrap();
        let SendError::Lost(lost) = limited(sender.closed()).await else { panic!("not lost") };
        assert_eq!((lost.account.accepted, lost.account.acknowledged), (15, 10));
        let LinkCause::Dead { silence_ms: 2_000, .. } = lost.link.cause() else {
            panic!("{}", lost.link)
        };
        assert_eq!(lost.link.peer(), "a");
    });
}

#[test]
fn a_peer_that_comes_back_after_its_death_is_told_so() {
    on_both(|| async {
        let (pair, proxy) = apart(hasty(), Node::builder()).await;
        let (mut sender, mut receiver) = pair.channel::<u64>("late").await;
        sender.send(&1).await.unwrap();
        assert_eq!(limited(receiver.recv()).await.unwrap(), Some(1));
        proxy.close(true);
        proxy.cut();
        // The node that waits to be dialled gives up first.
        let dead = limited(receiver.peer().closed()).await;
        assert!(matches!(dead.cause(), LinkCause::Dead { .. }), "{dead}");
        assert!(pair.peer.is_alive());
        proxy.close(false);
        let told = limited(pair.peer.closed()).await;
        assert!(matches!(told.cause(), LinkCause::Forgotten), "{told}");
        let again = pair.b.connect(&proxy.address).await.unwrap();
        Pair { a: pair.a, b: pair.b, peer: again }.is_well("anew").await;
    });
}

#[test]
fn another_process_in_the_place_of_the_peer_ends_the_session() {
    on_one_thread(async {
        let (pair, proxy) = apart(Node::builder(), Node::builder()).await;
        let other = Node::builder().name("other").listen(tcp()).build().await.unwrap();
        let (mut sender, _receiver) = pair.channel::<u64>("restarted").await;
        sender.send(&1).await.unwrap();
        limited(sender.sync()).await.unwrap();
        proxy.redirect(socket_address(&other));
        proxy.cut();
        let error = limited(pair.peer.closed()).await;
        assert!(matches!(error.cause(), LinkCause::Restarted), "{error}");
        assert!(error.to_string().contains("another process answers where a was"), "{error}");
    });
}

#[test]
fn giving_a_session_up_is_told_at_once() {
    on_both(|| async {
        let (pair, _proxy) = apart(Node::builder(), Node::builder()).await;
        let (_sender, receiver) = pair.channel::<u64>("given up").await;
        receiver.peer().abort();
        let told = limited(pair.peer.closed()).await;
        assert!(matches!(told.cause(), LinkCause::Forgotten), "{told}");
    });
}

async fn dial(node: &Node) -> RawPeer {
    RawPeer::greet(TcpStream::connect(socket_address(node)).await.unwrap()).await
}

/// Returns the node's answer to `word` on a new connection.
async fn answer(node: &Node, word: impl FnOnce(&RawPeer) -> Resume) -> (RawPeer, Option<Resume>) {
    let mut raw = dial(node).await;
    let word = word(&raw);
    raw.bytes(&word.encode()).await;
    let answer = raw.word().await;
    (raw, answer)
}

#[test]
fn connections_are_taken_for_the_session_and_attempt_that_they_name() {
    on_one_thread(async {
        let node = Node::builder().listen(tcp()).build().await.unwrap();
        let mut first = RawPeer::connect(&node).await;
        first.open(1, "named").await;
        let (_, mut receiver) = limited(node.accept_bytes("named")).await.unwrap();
        let kind = |answer: &Option<Resume>| answer.map(|word| word.kind);
        // A word for another session, and one for another process in this one's place.
        let wrong = |raw: &RawPeer| Resume { session: 8, ..again(raw, 2, 0) };
        assert_eq!(kind(&answer(&node, wrong).await.1), Some(Kind::Unknown));
        let wrong = |raw: &RawPeer| Resume { addressee: 5, ..again(raw, 2, 0) };
        assert_eq!(kind(&answer(&node, wrong).await.1), Some(Kind::Unknown));
        assert_eq!(kind(&answer(&node, |raw| again(raw, 1, 0)).await.1), Some(Kind::Stale));
        // A word that only the node may say.
        let wrong = |raw: &RawPeer| Resume { kind: Kind::Agreed, ..again(raw, 2, 0) };
        assert_eq!(kind(&answer(&node, wrong).await.1), None);
        until(|| node.refusals().iter().any(|text| text.contains("about a session"))).await;
        // A later connection takes the place of one that still stands.
        let (mut fifth, agreed) = answer(&node, |raw| again(raw, 5, 0)).await;
        assert_eq!(agreed.map(|it| (it.kind, it.received, it.attempt)), Some((Kind::Agreed, 1, 5)));
        first.hung_up().await;
        assert_eq!(kind(&answer(&node, |raw| again(raw, 4, 0)).await.1), Some(Kind::Stale));
        let header = Header { sequence: 2, ..Header::default() };
        fifth
            .packet_as(header, |body| {
                body.run(1, 3, 1);
                body.extend_from_slice(&[2, 7, 8]);
            })
            .await;
        assert_eq!(limited(receiver.recv()).await.unwrap().unwrap()[..], [7, 8]);
        assert!(receiver.peer().is_alive());
    });
}

#[test]
fn a_packet_that_broke_off_goes_on_where_it_did() {
    on_one_thread(async {
        let node = Node::builder().listen(tcp()).build().await.unwrap();
        let mut packet = Vec::new();
        packet.open(
            1,
            Lane::Bulk,
            ChannelKind::Bytes,
            chunkcomm_testkit::raw::bytes_fingerprint(),
            "cut",
        );
        packet.run(1, 3, 1);
        packet.extend_from_slice(&[2, 7, 7]);
        packet.run(1, 3, 1);
        packet.extend_from_slice(&[2, 8, 8]);
        packet.fragment(1, 9000, 9000);
        packet.extend((0..9000u32).map(|at| at as u8));
        let header = Header { body_bytes: packet.len() as u32, sequence: 1, ..Header::default() };
        packet.splice(..0, header.encode());
        let mut events = node.events();
        let mut raw = RawPeer::connect(&node).await;
        let Some(LinkEvent::Connected { peer }) = limited(events.next()).await else { panic!() };
        let mut attempt = 1;
        let mut random = seeded(3);
        let mut sent = 0;
        while sent < packet.len() {
            // Each time a little more of the packet comes.
            sent = (sent + random.below(900) as usize).min(packet.len());
            let reads = peer.stats().reads;
            raw.bytes(&packet[..sent]).await;
            if sent == packet.len() {
                break;
            }
            attempt += 1;
            // Waits until the part was read, so that the parts differ.
            until(|| peer.stats().reads > reads).await;
            let (next, agreed) = answer(&node, |raw| again(raw, attempt, 0)).await;
            assert_eq!(agreed.map(|it| (it.kind, it.received)), Some((Kind::Agreed, 0)));
            raw = next;
        }
        let (_, mut receiver) = limited(node.accept_bytes("cut")).await.unwrap();
        assert_eq!(limited(receiver.recv()).await.unwrap().unwrap()[..], [7, 7]);
        assert_eq!(limited(receiver.recv()).await.unwrap().unwrap()[..], [8, 8]);
        let large = limited(receiver.recv()).await.unwrap().unwrap();
        assert!(large.iter().enumerate().all(|(at, byte)| *byte == at as u8));
        assert_eq!(large.len(), 9000);
        assert!(attempt > 5, "only {attempt} connections");
        // The whole packet comes once more, as from a peer that does not know that it came.
        let (mut raw, agreed) = answer(&node, |raw| again(raw, attempt + 1, 0)).await;
        assert_eq!(agreed.map(|it| (it.kind, it.received)), Some((Kind::Agreed, 1)));
        assert_eq!(peer.stats().packets_duplicate, 0);
        raw.bytes(&packet).await;
        until(|| peer.stats().packets_duplicate == 1).await;
    });
}

#[test]
fn a_peer_that_lost_what_it_acknowledged_or_has_what_was_not_sent_ends_the_session() {
    on_one_thread(async {
        for (received, text) in [(0, "though"), (1 << 40, "was the last one sent")] {
            let node = Node::builder().listen(tcp()).build().await.unwrap();
            let mut raw = RawPeer::connect(&node).await;
            raw.open(1, "hint").await;
            let (back, _receiver) = limited(node.accept_bytes("hint")).await.unwrap();
            let mut sender: Sender<u64> = node.open(&back, "numbers").await.unwrap();
            sender.send(&1).await.unwrap();
            raw.find(|item| matches!(item, Item::Run { .. }).then_some(())).await.unwrap();
            raw.packet_as(Header { ack: 1, ..Header::default() }, |_| ()).await;
            until(|| sender.stats().acknowledged == 1).await;
            let (_, agreed) = answer(&node, |raw| again(raw, 2, received)).await;
            assert_eq!(agreed.map(|word| word.kind), Some(Kind::Agreed));
            let error = limited(back.closed()).await;
            assert!(matches!(error.cause(), LinkCause::Protocol(_)), "{error}");
            assert!(error.to_string().contains(text), "{error}");
        }
    });
}
