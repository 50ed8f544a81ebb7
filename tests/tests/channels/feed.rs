//! Feeds and their subscribers.

use chunkcomm::error::FeedError;
use chunkcomm::feed::{FeedOptions, Reach, Sources, Subscription};
use chunkcomm::{Address, LinkEvent, Node, Peer, RecvError, channel, feed};
use chunkcomm_testkit::proxy::Proxy;
use chunkcomm_testkit::random::seeded;
use chunkcomm_testkit::{limited, memory, on_both, on_one_thread, pair_of, tcp, until, until_some};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

/// A message with a number and some bytes.
type Message = (u64, Vec<u8>);

async fn server(address: Address) -> Node {
    Node::builder().name("server").listen(address).build().await.unwrap()
}

/// Subscribes from a node of its own.
async fn subscriber<T>(server: &Node, name: &str) -> Subscription<T>
where
    T: Serialize + DeserializeOwned + Send + 'static,
{
    let client = Node::builder().build().await.unwrap();
    limited(client.subscribe(name, &server.addresses()[0])).await.unwrap()
}

/// Returns the numbers of the messages up to the end.
async fn numbers(mut subscription: Subscription<Message>) -> (Vec<u64>, u64) {
    let mut numbers = Vec::new();
    while let Some((number, bytes)) = limited(subscription.recv()).await.unwrap() {
        assert!(bytes.iter().all(|byte| *byte == number as u8));
        numbers.push(number);
    }
    (numbers, subscription.skipped())
}

fn message(number: u64, bytes: u64) -> Message {
    (number, vec![number as u8; bytes as usize])
}

#[test]
fn every_subscriber_gets_all_messages_in_order() {
    on_both(|| async {
        let seed = 62;
        println!("seed {seed}");
        let mut random = seeded(seed);
        for address in [tcp(), memory()] {
            let server = server(address).await;
            let mut sender = server.feed::<Message>(feed("all").backlog(40_000)).unwrap();
            sender.send(&message(0, 5)).await.unwrap();
            let mut reading = Vec::new();
            for _ in 0..3 {
                let subscription = subscriber(&server, "all").await;
                reading.push(tokio::spawn(numbers(subscription)));
            }
            assert_eq!(sender.subscriber_count(), 3);
            for number in 1..5_000 {
                // Some are above the backlog, and some are not copied.
                let bytes = match random.below(200) {
                    0 => 50_000,
                    1..10 => 8_150 + random.below(100),
                    _ => random.below(300),
                };
                limited(sender.send(&message(number, bytes))).await.unwrap();
            }
            drop(sender);
            for reading in reading {
                let (numbers, skipped) = limited(reading).await.unwrap();
                assert!(numbers.into_iter().eq(1..5_000));
                assert_eq!(skipped, 0);
            }
        }
    });
}

/// Counts how often values are encoded.
#[derive(Deserialize)]
struct Counted(Vec<u8>);

static ENCODED: AtomicU64 = AtomicU64::new(0);

impl Serialize for Counted {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ENCODED.fetch_add(1, Ordering::Relaxed);
        self.0.serialize(serializer)
    }
}

#[test]
fn a_message_is_encoded_once() {
    on_one_thread(async {
        let server = server(memory()).await;
        let mut sender = server.feed::<Counted>(feed("once").backlog(20_000)).unwrap();
        let mut subscriptions = Vec::new();
        for _ in 0..8 {
            subscriptions.push(subscriber::<Counted>(&server, "once").await);
        }
        let before = ENCODED.load(Ordering::Relaxed);
        for number in 0..200 {
            limited(sender.send(&Counted(vec![7; number * 100]))).await.unwrap();
            for subscription in &mut subscriptions {
                let Counted(bytes) = limited(subscription.recv()).await.unwrap().unwrap();
                assert_eq!(bytes, vec![7; number * 100]);
            }
        }
        assert_eq!(ENCODED.load(Ordering::Relaxed) - before, 200);
    });
}

/// Feeds `count` messages to two subscribers that read and to one that does not; returns that one. The two
/// get all.
async fn one_is_stopped(options: FeedOptions, count: u64) -> Subscription<Message> {
    let server = server(tcp()).await;
    let mut sender = server.feed::<Message>(options).unwrap();
    let stopped = subscriber(&server, "stopped").await;
    let mut reading = Vec::new();
    for _ in 0..2 {
        reading.push(subscriber::<Message>(&server, "stopped").await);
    }
    for number in 0..count {
        limited(sender.send(&message(number, 100))).await.unwrap();
        if number % 50 == 49 {
            for subscription in &mut reading {
                for expected in number - 49..=number {
                    let received = limited(subscription.recv()).await.unwrap();
                    assert_eq!(received, Some(message(expected, 100)));
                }
            }
        }
    }
    drop(sender);
    for subscription in &mut reading {
        assert_eq!(limited(subscription.recv()).await.unwrap(), None);
        assert_eq!(subscription.skipped(), 0);
    }
    stopped
}

#[test]
fn a_stopped_subscriber_misses_messages_and_is_told_how_many() {
    on_both(|| async {
        let stopped = one_is_stopped(feed("stopped").backlog(20_000).skip(), 10_000).await;
        let (numbers, skipped) = numbers(stopped).await;
        assert!(numbers.is_sorted(), "they are in order");
        assert_eq!(numbers.first(), Some(&0));
        assert_eq!(numbers.last(), Some(&9_999), "the oldest are left out");
        assert_eq!(numbers.len() as u64 + skipped, 10_000);
        // It is told before it gets the messages behind the gap, and is behind by its backlog at most.
        assert!(skipped > 9_000, "{skipped}");
    });
}

#[test]
fn a_stopped_subscriber_is_ended_and_told_so() {
    on_both(|| async {
        let mut stopped = one_is_stopped(feed("stopped").backlog(20_000).end(), 10_000).await;
        let mut count = 0;
        let error = loop {
            match limited(stopped.recv()).await {
                Ok(received) => assert_eq!(received, Some(message(count, 100))),
                Err(error) => break error,
            }
            count += 1;
        };
        assert!((100..=300).contains(&count), "{count}");
        assert!(matches!(error, FeedError::Behind { .. }), "{error}");
        assert_eq!(limited(stopped.recv()).await.unwrap(), None);
    });
}

#[test]
fn the_smallest_backlog_lets_all_messages_through() {
    on_both(|| async {
        for address in [tcp(), memory()] {
            let server = server(address).await;
            let mut sender = server.feed::<Message>(feed("small").backlog(0)).unwrap();
            let reading: Vec<_> = [
                subscriber(&server, "small").await,
                subscriber(&server, "small").await,
                subscriber(&server, "small").await,
            ]
            .map(|it| tokio::spawn(numbers(it)))
            .into();
            until(|| sender.subscriber_count() == 3).await;
            for number in 0..4_000 {
                sender.send(&message(number, number % 2_900)).await.unwrap();
            }
            drop(sender);
            for reading in reading {
                let (numbers, skipped) = reading.await.unwrap();
                assert_eq!((numbers, skipped), ((0..4_000).collect(), 0));
            }
        }
    });
}

#[test]
fn the_account_of_a_lost_subscriber_counts_each_message_of_a_batch() {
    on_both(|| async {
        let server = server(tcp()).await;
        let mut events = server.events();
        let mut sender = server.feed::<u64>(feed("batch").backlog(400_000)).unwrap();
        let stopped: Subscription<u64> = subscriber(&server, "batch").await;
        until(|| sender.subscriber_count() == 1).await;
        for number in 0..20_000 {
            sender.send(&number).await.unwrap();
        }
        // With the word that welcomes it.
        let accounted = |link: &chunkcomm::explain::LinkReport| {
            link.sending.iter().map(|it| it.sent + it.staged).sum::<u64>()
        };
        until_some(|| async {
            let report = server.explain().await;
            (report.links.iter().map(accounted).sum::<u64>() == 20_001).then_some(())
        })
        .await;
        let report = server.explain().await;
        assert!(report.links[0].sending.iter().any(|it| it.staged > 10_000), "{report}");
        drop(sender);
        let unacknowledged = loop {
            match limited(events.next()).await.unwrap() {
                LinkEvent::Connected { peer, .. } => peer.abort(),
                LinkEvent::Ended { unacknowledged, .. } => break unacknowledged,
                _ => {}
            }
        };
        let [lost] = &*unacknowledged else { panic!("{unacknowledged:?}") };
        assert_eq!(lost.account.accepted, 20_001);
        drop(stopped);
    });
}

#[test]
fn a_feed_waits_for_its_slowest_subscriber() {
    on_both(|| async {
        let server = server(tcp()).await;
        let mut sender = server.feed::<Message>(feed("waits").backlog(20_000)).unwrap();
        let mut stopped = subscriber(&server, "waits").await;
        let mut reading = subscriber(&server, "waits").await;
        let mut sent = 0;
        let soon = Duration::from_millis(200);
        while tokio::time::timeout(soon, sender.send(&message(sent, 100))).await.is_ok() {
            sent += 1;
        }
        assert!((100..=300).contains(&sent), "{sent}");
        for number in 0..sent {
            assert_eq!(limited(reading.recv()).await.unwrap(), Some(message(number, 100)));
        }
        for number in 0..sent {
            assert_eq!(limited(stopped.recv()).await.unwrap(), Some(message(number, 100)));
        }
        limited(sender.send(&message(sent, 100))).await.unwrap();
        for subscription in [&mut stopped, &mut reading] {
            assert_eq!(limited(subscription.recv()).await.unwrap(), Some(message(sent, 100)));
        }
        // One that leaves holds nobody up.
        while tokio::time::timeout(soon, sender.send(&message(0, 100))).await.is_ok() {}
        drop(stopped);
        tokio::spawn(numbers(reading));
        limited(sender.send(&message(0, 100))).await.unwrap();
    });
}

#[test]
fn late_subscribers_get_the_last_messages_first() {
    on_both(|| async {
        let server = server(tcp()).await;
        let mut sender = server.feed::<Message>(feed("late").keep(3).backlog(30_000)).unwrap();
        for number in 0..2_000 {
            sender.send(&message(number, 100)).await.unwrap();
        }
        let mut late = subscriber(&server, "late").await;
        sender.send(&message(2_000, 9_000)).await.unwrap();
        let mut later = subscriber(&server, "late").await;
        drop(sender);
        for number in 1_997..=2_000 {
            let bytes = if number == 2_000 { 9_000 } else { 100 };
            let expected = Some(message(number, bytes));
            assert_eq!(limited(late.recv()).await.unwrap(), expected);
            if number > 1_997 {
                assert_eq!(limited(later.recv()).await.unwrap(), expected);
            }
        }
        for mut subscription in [late, later] {
            assert_eq!(limited(subscription.recv()).await.unwrap(), None);
        }
        // As many as fit in half of the backlog.
        let mut sender = server.feed::<Message>(feed("much").keep(1_000).backlog(20_000)).unwrap();
        for number in 0..2_000 {
            sender.send(&message(number, 100)).await.unwrap();
        }
        let much = subscriber(&server, "much").await;
        drop(sender);
        let (numbers, skipped) = numbers(much).await;
        assert!((80..=100).contains(&numbers.len()), "{}", numbers.len());
        assert_eq!((numbers.last(), skipped), (Some(&1_999), 0));
    });
}

#[test]
fn subscribers_that_leave_or_are_lost_are_removed() {
    on_both(|| async {
        let server = server(tcp()).await;
        let mut sender = server.feed::<u64>("leave").unwrap();
        let one = subscriber::<u64>(&server, "leave").await;
        let two = subscriber::<u64>(&server, "leave").await;
        let mut three = subscriber::<u64>(&server, "leave").await;
        assert_eq!(sender.subscriber_count(), 3);
        drop(one);
        until(|| sender.subscriber_count() == 2).await;
        two.origin().unwrap().0.declare_dead("the test");
        // It does not arrive, which is no loss that the node reports.
        sender.send(&5).await.unwrap();
        until(|| sender.subscriber_count() == 1).await;
        sender.send(&7).await.unwrap();
        for expected in [5, 7] {
            assert_eq!(limited(three.recv()).await.unwrap(), Some(expected));
        }
        three.origin().unwrap().0.declare_dead("the test");
        let error = limited(three.recv()).await.unwrap_err();
        assert!(matches!(error, FeedError::Recv(RecvError::Lost { .. })), "{error}");
        until(|| sender.subscriber_count() == 0).await;
        server.close(Duration::from_secs(20)).await.unwrap();
    });
}

#[test]
fn a_connection_that_comes_back_loses_nothing() {
    on_both(|| async {
        let seed = 63;
        println!("seed {seed}");
        let mut random = seeded(seed);
        let server = server(tcp()).await;
        let proxy = Proxy::before(&server);
        let client = Node::builder().build().await.unwrap();
        for options in [feed("cut"), feed("cut").skip()] {
            let mut sender = server.feed::<Message>(options).unwrap();
            let subscription =
                limited(client.subscribe::<Message>("cut", &proxy.address)).await.unwrap();
            let reading = tokio::spawn(numbers(subscription));
            let mut next = 0;
            for _ in 0..20 {
                for _ in 0..random.below(200) {
                    limited(sender.send(&message(next, random.below(200)))).await.unwrap();
                    next += 1;
                }
                proxy.cut();
                tokio::time::sleep(Duration::from_millis(random.below(20))).await;
            }
            drop(sender);
            let (numbers, skipped) = limited(reading).await.unwrap();
            assert!(numbers.into_iter().eq(0..next));
            assert_eq!(skipped, 0);
        }
    });
}

#[test]
fn a_name_is_free_when_its_feed_is_dropped() {
    on_both(|| async {
        let server = server(tcp()).await;
        for round in 0..50_u64 {
            let mut sender = server.feed::<u64>("free").unwrap();
            let taken = server.feed::<u64>("free").unwrap_err();
            assert!(matches!(taken, FeedError::Taken { .. }), "{taken}");
            let mut subscription = subscriber::<u64>(&server, "free").await;
            sender.send(&round).await.unwrap();
            drop((sender.clone(), sender));
            let mut again = server.feed::<u64>("free").unwrap();
            again.send(&1_000).await.unwrap();
            assert_eq!(limited(subscription.recv()).await.unwrap(), Some(round));
            assert_eq!(limited(subscription.recv()).await.unwrap(), None);
        }
    });
}

#[test]
fn a_subscriber_may_come_first_and_may_have_another_type() {
    on_both(|| async {
        let pair = pair_of(tcp(), Node::builder().name("a"), Node::builder()).await;
        let early = channel("first").within(Duration::from_millis(50));
        let error = limited(pair.b.subscribe::<u64>(early, &pair.peer)).await.unwrap_err();
        assert!(matches!(error, FeedError::Late { .. }), "{error}");
        let (node, peer) = (pair.b.clone(), pair.peer.clone());
        let waits = tokio::spawn(async move { node.subscribe::<u64>("first", &peer).await });
        tokio::time::sleep(Duration::from_millis(20)).await;
        let mut sender = pair.a.feed::<u64>("first").unwrap();
        let mut subscription = limited(waits).await.unwrap().unwrap();
        let error = limited(pair.b.subscribe::<String>("first", &pair.peer)).await.unwrap_err();
        assert!(matches!(error, FeedError::Recv(RecvError::Refused(_))), "{error}");
        sender.send(&1).await.unwrap();
        assert_eq!(limited(subscription.recv()).await.unwrap(), Some(1));
        let error = limited(pair.b.subscribe::<u64>("", &pair.peer)).await.unwrap_err();
        assert!(matches!(error, FeedError::Open(_)), "{error}");
        let error = pair.a.feed::<u64>("").unwrap_err();
        assert!(matches!(error, FeedError::Open(_)), "{error}");
    });
}

#[test]
fn all_messages_arrive_although_the_node_closes_right_behind_them() {
    on_both(|| async {
        for address in [tcp(), memory()] {
            for round in 0..20_u64 {
                let pair = pair_of(address.clone(), Node::builder(), Node::builder()).await;
                let mut sender = pair.a.feed::<Message>("last").unwrap();
                let last = limited(pair.b.subscribe("last", &pair.peer)).await.unwrap();
                let reading = tokio::spawn(numbers(last));
                for number in 0..round * 100 {
                    limited(sender.send(&message(number, 100))).await.unwrap();
                }
                let sender = (round % 2 == 0).then_some(sender);
                limited(pair.a.close(Duration::from_secs(20))).await.unwrap();
                if let Some(mut sender) = sender {
                    let error = limited(async {
                        loop {
                            match sender.send(&message(0, 0)).await {
                                Ok(()) => tokio::task::yield_now().await,
                                Err(error) => return error,
                            }
                        }
                    });
                    assert!(matches!(error.await, FeedError::Closed));
                }
                let (numbers, _) = limited(reading).await.unwrap();
                assert!(numbers.into_iter().eq(0..round * 100), "round {round}");
            }
        }
    });
}

#[test]
fn all_feeds_of_a_node_whose_names_begin_alike() {
    on_both(|| async {
        let server = server(tcp()).await;
        let mut all = subscriber::<u64>(&server, "orders.*").await;
        let mut soup = server.feed::<u64>("orders.soup").unwrap();
        let mut price = server.feed::<u64>("price").unwrap();
        until(|| soup.subscriber_count() == 1).await;
        price.send(&1).await.unwrap();
        soup.send(&2).await.unwrap();
        assert_eq!(limited(all.recv()).await.unwrap(), Some(2));
        assert_eq!(all.origin().unwrap().1, "orders.soup");
        let mut bread = server.feed::<u64>("orders.bread").unwrap();
        until(|| bread.subscriber_count() == 1).await;
        bread.send(&3).await.unwrap();
        assert_eq!(limited(all.recv()).await.unwrap(), Some(3));
        assert_eq!(all.origin().unwrap().1, "orders.bread");
        // All end, and one comes again.
        drop((price, soup, bread));
        let mut soup = server.feed::<u64>("orders.soup").unwrap();
        until(|| soup.subscriber_count() == 1).await;
        soup.send(&4).await.unwrap();
        assert_eq!(limited(all.recv()).await.unwrap(), Some(4));
        // One of another type is told, and the others go on.
        let text = server.feed::<String>("orders.text").unwrap();
        let error = limited(all.recv()).await.unwrap_err();
        assert!(matches!(error, FeedError::Recv(RecvError::Refused(_))), "{error}");
        soup.send(&5).await.unwrap();
        assert_eq!(limited(all.recv()).await.unwrap(), Some(5));
        drop(all);
        until(|| soup.subscriber_count() == 0).await;
        assert_eq!(text.subscriber_count(), 0);
        server.close(Duration::from_secs(20)).await.unwrap();
    });
}

#[test]
fn a_burst_on_one_thread_leaves_no_fast_reader_behind() {
    on_one_thread(async {
        for options in
            [feed("burst").backlog(64 * 1024).skip(), feed("burst").backlog(64 * 1024).end()]
        {
            let server = server(tcp()).await;
            let mut sender = server.feed::<Message>(options).unwrap();
            let reading = tokio::spawn(numbers(subscriber(&server, "burst").await));
            for number in 0..10_000 {
                sender.send(&message(number, 100)).await.unwrap();
            }
            drop(sender);
            let (numbers, skipped) = limited(reading).await.unwrap();
            assert_eq!((numbers.len(), skipped), (10_000, 0));
        }
    });
}

#[test]
fn a_large_message_leaves_out_none_that_wait_with_it() {
    on_both(|| async {
        let server = server(tcp()).await;
        let mut feed = server.feed::<Message>(feed("large").backlog(256 * 1024).skip()).unwrap();
        let mut seen = subscriber::<Message>(&server, "large").await;
        for _ in 0..8 {
            for bytes in [10, 300_000] {
                feed.send(&message(7, bytes)).await.unwrap();
            }
            for bytes in [10, 300_000] {
                let message = limited(seen.recv()).await.unwrap();
                assert_eq!(message.map(|it| it.1.len()), Some(bytes as usize));
            }
            assert_eq!(seen.skipped(), 0);
        }
    });
}

#[test]
fn a_sender_hears_that_the_runtime_of_its_feed_has_ended() {
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
    };
    let (its, others) = (runtime(), runtime());
    let (mut sender, stopped) = its.block_on(async {
        let server = server(tcp()).await;
        let sender = server.feed::<Message>(feed("gone").backlog(4_096)).unwrap();
        let client = others.spawn(async move { subscriber::<Message>(&server, "gone").await });
        (sender, client.await.unwrap())
    });
    let sending = others.spawn(async move {
        loop {
            if let Err(error) = sender.send(&message(0, 100)).await {
                return error;
            }
        }
    });
    std::thread::sleep(Duration::from_millis(200));
    its.shutdown_background();
    let error = others.block_on(limited(sending)).unwrap();
    assert!(matches!(error, FeedError::Closed), "{error}");
    drop(stopped);
}

/// Feeds that a test tells of.
struct Told {
    names: mpsc::UnboundedReceiver<Vec<&'static str>>,
    peer: Peer,
}

impl Sources for Told {
    type Id = ();

    async fn next(&mut self) -> Option<Vec<((), String)>> {
        let names = self.names.recv().await?;
        Some(names.into_iter().map(|name| ((), name.to_owned())).collect())
    }

    fn reach(&self) -> Reach<()> {
        let peer = self.peer.clone();
        Arc::new(move |()| {
            let peer = peer.clone();
            Box::pin(async move { Some(peer) })
        })
    }
}

#[test]
fn a_name_that_vanishes_and_comes_back_is_followed_once() {
    on_both(|| async {
        let pair = pair_of(tcp(), Node::builder().name("a"), Node::builder()).await;
        let mut sender = pair.a.feed::<u64>("here").unwrap();
        let (tell, names) = mpsc::unbounded_channel();
        let told = Told { names, peer: pair.peer.clone() };
        let mut subscription = Subscription::<u64>::gathering(&pair.b, "*", told).unwrap();
        tell.send(vec!["here"]).unwrap();
        until(|| sender.subscriber_count() == 1).await;
        for names in [vec![], vec!["here"], vec![], vec!["here"]] {
            tell.send(names).unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        for number in 0..3 {
            sender.send(&number).await.unwrap();
            assert_eq!(limited(subscription.recv()).await.unwrap(), Some(number));
        }
        assert_eq!(sender.subscriber_count(), 1);
        // Gone, and there again once its feed has ended.
        tell.send(vec![]).unwrap();
        drop(sender);
        let mut sender = pair.a.feed::<u64>("here").unwrap();
        tell.send(vec!["here"]).unwrap();
        until(|| sender.subscriber_count() == 1).await;
        sender.send(&7).await.unwrap();
        assert_eq!(limited(subscription.recv()).await.unwrap(), Some(7));
    });
}

#[test]
fn a_gathered_subscriber_that_was_ended_comes_again_once_it_was_told() {
    on_both(|| async {
        let server = server(tcp()).await;
        let mut sender = server.feed::<Message>(feed("orders.soup").backlog(4_096).end()).unwrap();
        let mut all = subscriber::<Message>(&server, "orders.*").await;
        for round in 0..3 {
            until(|| sender.subscriber_count() == 1).await;
            while sender.subscriber_count() == 1 {
                sender.send(&message(round, 100)).await.unwrap();
            }
            // It stays away while its user does not read.
            tokio::time::sleep(Duration::from_millis(300)).await;
            assert_eq!(sender.subscriber_count(), 0, "round {round}");
            let error = loop {
                match limited(all.recv()).await {
                    Ok(received) => assert_eq!(received, Some(message(round, 100))),
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, FeedError::Behind { .. }), "{error}");
        }
    });
}
