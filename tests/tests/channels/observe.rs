//! Reports of a node about itself: explanations, events, counters.

use bytes::Bytes;
use chunkcomm::explain::{Explanation, LinkReport};
use chunkcomm::proto::packet::{AppendRecords, Header, Item};
use chunkcomm::stats::ReceivingStats;
use chunkcomm::{Node, Policy};
use chunkcomm_cluster::NodeExt;
use chunkcomm_testkit::events::Events;
use chunkcomm_testkit::proxy::Proxy;
use chunkcomm_testkit::raw::RawPeer;
use chunkcomm_testkit::{
    Pair, fill, limited, on_both, on_one_thread, pair, pair_of, tcp, until, until_some,
};

async fn of(node: &Node) -> LinkReport {
    let explanation: Explanation = limited(node.explain()).await;
    assert_eq!(explanation.links.len(), 1, "{explanation}");
    explanation.links[0].clone()
}

#[test]
fn a_channel_without_credit_and_one_that_nobody_reads_are_named() {
    on_both(|| async {
        let pair = pair().await;
        let (mut sender, mut receiver) = pair.channel::<u64>("stuck").await;
        let accepted = fill(&mut sender, &1).await;
        let here = of(&pair.b).await;
        assert_eq!((here.peer.as_str(), here.state.as_str()), ("a", "connected"));
        let channel = &here.sending[0];
        assert_eq!((channel.channel.as_str(), channel.staged > 0), ("stuck", true));
        assert!(channel.waits_for.as_ref().unwrap().contains("credit"), "{here}");
        assert!(channel.oldest.is_some() && channel.sent + channel.staged == accepted);
        let there = limited(async {
            loop {
                let there = of(&pair.a).await;
                if there.receiving[0].unread_bytes > 8 * 1024 {
                    return there;
                }
            }
        })
        .await;
        assert!(!there.receiving[0].awaited);
        assert!(there.to_string().contains("nobody takes them"), "{there}");
        assert!(!pair.b.explain().await.is_quiet());
        drop(sender);
        for _ in 0..accepted {
            limited(receiver.recv()).await.unwrap();
        }
        assert_eq!(limited(receiver.recv()).await.unwrap(), None);
        let mut quiet = false;
        while !quiet {
            quiet = pair.b.explain().await.is_quiet();
        }
    });
}

#[test]
fn the_numbers_of_packets_are_those_on_the_wire() {
    on_one_thread(async {
        let node = Node::builder().listen(tcp()).build().await.unwrap();
        let mut raw = RawPeer::connect(&node).await;
        raw.open(1, "by hand").await;
        raw.packet(|body| body.open_credit(1 << 20)).await;
        let (peer, _receiver) = limited(node.accept_bytes("by hand")).await.unwrap();
        let mut sender = limited(node.open_bytes(&peer, "counted")).await.unwrap();
        let mut last = 0;
        while last < 5 {
            limited(sender.send_now(Bytes::from_static(b"one"))).await.unwrap();
            let number = raw.find(|item| match item {
                Item::Packet(header) if header.sequence > last => Some(header.sequence),
                _ => None,
            });
            last = limited(number).await.unwrap();
        }
        raw.packet_as(Header { ack: last - 2, ..Header::default() }, |_| ()).await;
        let link = limited(async {
            loop {
                let link = of(&node).await;
                if link.acknowledged > 0 {
                    return link;
                }
            }
        })
        .await;
        assert_eq!((link.sent, link.acknowledged, link.received), (last, last - 2, 2), "{link}");
        let [sending] = &link.sending[..] else { panic!("{link}") };
        assert_eq!((sending.staged, sending.sent), (0, last));
        assert!((1..last).contains(&sending.acknowledged), "{link}");
    });
}

async fn cut_off() -> (Pair, Proxy) {
    let a = Node::builder().name("a").listen(tcp()).build().await.unwrap();
    let b = Node::builder().name("b").build().await.unwrap();
    let proxy = Proxy::before(&a);
    let peer = b.connect(&proxy.address).await.unwrap();
    let pair = Pair { a, b, peer };
    pair.is_well("before").await;
    proxy.close(true);
    proxy.cut();
    (pair, proxy)
}

#[test]
fn a_link_that_is_cut_off_says_so_and_why() {
    on_one_thread(async {
        let (pair, proxy) = cut_off().await;
        let in_trouble = |it: &LinkReport| it.state == "cut off" && it.trouble.is_some();
        let report = until_some(|| async { Some(of(&pair.b).await).filter(in_trouble) }).await;
        assert_eq!(report.waits_for.as_deref(), Some("the peer to answer"), "{report}");
        let there = of(&pair.a).await;
        assert_eq!(there.waits_for.as_deref(), Some("the peer to dial again"), "{there}");
        proxy.close(false);
        let is_back = |it: &LinkReport| it.state == "connected";
        let report = until_some(|| async { Some(of(&pair.b).await).filter(is_back) }).await;
        assert!(report.attempt > 1);
    });
}

#[test]
fn a_node_whose_runtime_is_blocked_is_explained_all_the_same() {
    let pair = on_one_thread(async {
        pair_of(tcp(), Node::builder().io_thread(), Node::builder().io_thread()).await
    });
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let block = pair.a.clone();
    // A landing that does not return blocks the runtime that drives its link.
    let (mut sender, receiver) = on_one_thread(pair.bytes("block"));
    struct Blocks(std::sync::mpsc::Receiver<()>, Vec<u8>);
    impl chunkcomm::channel::Landing for Blocks {
        fn room(&mut self) -> &mut [u8] {
            let _ = self.0.recv();
            &mut self.1
        }
        fn advance(&mut self, _bytes: usize) {}
        fn end(self: Box<Self>, _outcome: Result<(), chunkcomm::RecvError>) {}
    }
    receiver.land(Box::new(Blocks(held, vec![0; 100])));
    sender.try_send(&Bytes::from_static(b"come")).unwrap();
    on_one_thread(async {
        let mut report = of(&block).await;
        while !report.state.contains("does not run") {
            report = of(&block).await;
        }
    });
    drop(hold);
}

#[test]
fn lost_connections_and_what_was_not_acknowledged_are_logged() {
    let events = Events::default();
    let seen = |text: &str| events.count(&[text]) > 0;
    let _guard = events.listen();
    on_one_thread(async {
        let (pair, proxy) = cut_off().await;
        until(|| seen("the connection was lost")).await;
        let mut sender = pair.b.open::<u64>(&pair.peer, "unheard").await.unwrap();
        sender.send(&1).await.unwrap();
        proxy.close(false);
        until(|| seen("the session goes on")).await;
        proxy.close(true);
        proxy.cut();
        sender.send(&1).await.unwrap();
        pair.peer.abort();
        limited(pair.peer.closed()).await;
        until(|| seen("not acknowledged") && seen("unheard")).await;
    });
    for span in ["span connect node=\"b\" address=", "span session peer=a number="] {
        assert!(seen(span), "{span} in {events:?}");
    }
    assert!(events.count(&["WARN", "of 2"]) > 0, "{events:?}");
}

#[test]
fn nothing_is_told_of_a_message() {
    let events = Events::default();
    let _guard = events.listen();
    on_one_thread(async {
        let pair = pair().await;
        let (mut sender, mut receiver) = pair.channel::<u64>("silent").await;
        let service = pair.a.serve("twice", |it: u64| async move { Ok::<_, String>(it * 2) });
        let _service = service.unwrap();
        let client = pair.b.call_client::<u64, u64>(&pair.peer, "twice").unwrap();
        limited(client.call(&1)).await.unwrap();
        let before = events.count(&[]);
        assert!(before > 0);
        for number in 0..1000 {
            sender.send(&number).await.unwrap();
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some(number));
            assert_eq!(limited(client.call(&number)).await.unwrap(), number * 2);
        }
        sender.send_all(0..10_000u64).await.unwrap();
        for _ in 0..10_000 {
            limited(receiver.recv()).await.unwrap();
        }
        assert_eq!(events.count(&[]), before, "{events:?}");
    });
}

/// Explains until `seen` is in the text; returns that explanation.
async fn named(node: &Node, seen: &str) -> Explanation {
    let has = |it: &Explanation| it.to_string().contains(seen);
    until_some(|| async { Some(node.explain().await).filter(has) }).await
}

#[test]
fn every_wait_has_a_name() {
    on_both(|| async {
        let pair = pair().await;
        // A listener that says nothing.
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = silent.local_addr().unwrap().into();
        let connecting = tokio::spawn({
            let node = pair.b.clone();
            async move { node.connect(&address).await }
        });
        let accepting = tokio::spawn({
            let node = pair.b.clone();
            async move { node.accept::<u64>("nobody opens").await.map(|_| ()) }
        });
        let address = silent.local_addr().unwrap();
        named(&pair.b, &format!("waits for tcp://{address} to connect, since")).await;
        named(&pair.b, "waits for a peer to open channel \"nobody opens\", since").await;
        // A handler that does not answer.
        let service = pair.a.serve("slow", |(): ()| std::future::pending::<Result<(), String>>());
        let client = pair.b.call_client::<(), ()>(&pair.peer, "slow").unwrap();
        let calls: Vec<_> = (0..3)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move { client.call(&()).await })
            })
            .collect();
        named(&pair.b, "3 calls of \"slow\" wait for an answer of a").await;
        let report = pair.b.calls_in_flight();
        assert_eq!((report.len(), report[0].in_flight), (1, 3));
        for task in calls {
            task.abort();
        }
        connecting.abort();
        accepting.abort();
        until_some(|| async { pair.b.explain().await.waits.is_empty().then_some(()) }).await;
        drop(service);
    });
}

#[test]
fn who_waits_for_an_acknowledgement_is_named() {
    on_one_thread(async {
        let (pair, _proxy) = cut_off().await;
        let mut sender = pair.b.open::<u64>(&pair.peer, "unheard").await.unwrap();
        sender.send(&1).await.unwrap();
        let syncing = tokio::spawn(async move { sender.sync().await });
        let explanation = named(&pair.b, "somebody").await;
        assert!(!explanation.is_quiet(), "{explanation}");
        syncing.abort();
    });
}

#[test]
fn a_channel_counts_the_writes_of_its_packets() {
    on_both(|| async {
        let pair =
            pair_of(tcp(), Node::builder(), Node::builder().policy(Policy::Unbuffered)).await;
        let (mut one, mut from_one) = pair.bytes("one").await;
        let (mut two, mut from_two) = pair.bytes("two").await;
        for _ in 0..100 {
            one.send_slice(&[1; 16]).await.unwrap();
        }
        limited(one.sync()).await.unwrap();
        let stats = one.stats();
        assert_eq!((stats.packets, stats.writes), (100, 100), "{stats:?}");
        // A packet needs several writes when the socket is full, which depends on the system.
        let sending = tokio::spawn(async move {
            two.send(Bytes::from(vec![2; 30_000_000])).await.unwrap();
            limited(two.sync()).await.unwrap();
            two.stats()
        });
        assert_eq!(limited(from_two.recv()).await.unwrap().unwrap().len(), 30_000_000);
        let stats = limited(sending).await.unwrap();
        assert!(stats.writes >= stats.packets && stats.packets > 100, "{stats:?}");
        assert_eq!(one.stats().writes, 100, "the packets of another channel");
        until(|| pair.peer.stats().writes >= 100 + stats.writes).await;
        assert_eq!(limited(from_one.recv()).await.unwrap().unwrap()[..], [1; 16]);
    });
}

#[test]
fn a_receiver_counts_what_was_taken() {
    on_both(|| async {
        let pair = pair().await;
        let (mut values, mut from_values) = pair.channel::<u64>("values").await;
        assert_eq!(from_values.stats(), ReceivingStats::default());
        values.send_all(0..1000u64).await.unwrap();
        limited(values.sync()).await.unwrap();
        for taken in 1..=1000 {
            limited(from_values.recv()).await.unwrap().unwrap();
            let stats = from_values.stats();
            assert_eq!((stats.messages, stats.bytes), (taken, taken * 9));
            assert!((1..=taken).contains(&stats.runs));
        }
        assert_eq!(from_values.stats().bytes, values.stats().bytes);
        let (mut raw, mut from_raw) = pair.bytes("raw").await;
        for size in [10, 8192, 8193, 1_000_000] {
            raw.send(Bytes::from(vec![1; size])).await.unwrap();
            assert_eq!(limited(from_raw.recv()).await.unwrap().unwrap().len(), size);
        }
        let stats = from_raw.stats();
        assert_eq!((stats.messages, stats.large_messages, stats.runs), (4, 2, 2));
        assert_eq!(stats.bytes, 11 + 8195 + 8193 + 1_000_000);
        assert_eq!(stats.messages_per_run_mean(), 1.0);
    });
}
