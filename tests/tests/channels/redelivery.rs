//! Settling, and senders that send messages again until they are settled.

use chunkcomm::error::RefusalReason;
use chunkcomm::{
    AcceptError, Address, Node, Receiver, Redelivery, SendError, Sender, TrySendError, channel,
};
use chunkcomm_testkit::random::seeded;
use chunkcomm_testkit::{
    limited, messages_of, on_both, on_one_thread, own_host, pair, until, until_some,
};
use std::time::Duration;

const SECONDS: Duration = Duration::from_secs(20);

/// Returns a channel from `b` to `a` whose receiver settles.
async fn settled(pair: &chunkcomm_testkit::Pair) -> (Sender<u64>, Receiver<u64>) {
    let options = channel("settled").settled();
    let sender = pair.b.open(&pair.peer, options).await.unwrap();
    let (_, receiver) = limited(pair.a.accept("settled")).await.unwrap();
    (sender, receiver)
}

#[test]
fn a_message_is_settled_when_the_next_is_asked_for() {
    on_both(|| async {
        let pair = pair().await;
        let (mut sender, mut receiver) = settled(&pair).await;
        for number in 0..10 {
            sender.send(&number).await.unwrap();
        }
        limited(sender.sync()).await.unwrap();
        for number in 0..10 {
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some(number));
        }
        assert!(sender.stats().settled < 10, "the last one may be worked on");
        assert!(receiver.try_recv().is_err());
        limited(sender.sync_settled()).await.unwrap();
        assert_eq!(sender.stats().settled, 10);
    });
}

/// The sender hears of the messages of a packet while its receiver works on one of them, and when it
/// goes.
#[test]
fn the_messages_of_a_packet_are_settled_one_by_one() {
    on_both(|| async {
        let pair = pair().await;
        let (mut sender, mut receiver) = settled(&pair).await;
        sender.send_all(0..1000).await.unwrap();
        limited(sender.sync()).await.unwrap();
        for number in 0..500 {
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some(number));
            if number % 100 == 99 {
                limited(until(|| sender.stats().settled == number)).await;
            }
        }
        // After a pause it tells again.
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(limited(receiver.recv()).await.unwrap(), Some(500));
        limited(until(|| sender.stats().settled == 500)).await;
        drop(receiver);
        limited(sender.closed()).await;
        assert_eq!(sender.stats().settled, 500);
    });
}

/// Values that are taken by one call are settled by the next.
#[test]
fn many_messages_are_settled_when_more_are_asked_for() {
    on_both(|| async {
        let pair = pair().await;
        let (mut sender, mut receiver) = settled(&pair).await;
        let mut values = Vec::new();
        for round in 1..=3 {
            // Two packets, so that one call takes from both.
            for _ in 0..2 {
                sender.send_all(0..200).await.unwrap();
                limited(sender.sync()).await.unwrap();
            }
            assert_eq!(limited(receiver.recv_many(&mut values, 400)).await.unwrap(), 400);
            limited(until(|| sender.stats().settled == (round - 1) * 400)).await;
        }
    });
}

#[test]
fn by_hand_nothing_else_settles() {
    on_both(|| async {
        let pair = pair().await;
        let (mut sender, mut receiver) = settled(&pair).await;
        receiver.settle_by_hand();
        assert_eq!(receiver.delivery(), None);
        for number in 0..10_u64 {
            sender.send(&number).await.unwrap();
            sender.sync().await.unwrap();
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some(number));
            let delivery = receiver.delivery().unwrap();
            assert_eq!((delivery.number, delivery.redelivered), (number, false));
        }
        assert!(receiver.try_recv().is_err());
        sender.sync().await.unwrap();
        assert_eq!(sender.stats().settled, 0);
        receiver.settle();
        limited(sender.sync_settled()).await.unwrap();
        // The last settling is reported although the channel is at its end by then.
        sender.send(&10).await.unwrap();
        let closing = tokio::spawn(sender.close(SECONDS));
        assert_eq!(limited(receiver.recv()).await.unwrap(), Some(10));
        assert_eq!(limited(receiver.recv()).await.unwrap(), None);
        limited(closing).await.unwrap().unwrap();
        receiver.settle();
    });
}

#[test]
fn a_channel_without_settling_says_so() {
    on_one_thread(async {
        let pair = pair().await;
        let (mut sender, mut receiver) = pair.channel::<u64>("plain").await;
        sender.send(&1).await.unwrap();
        assert!(matches!(sender.sync_settled().await, Err(SendError::NotSettled)));
        limited(receiver.recv()).await.unwrap();
        assert_eq!(receiver.delivery(), None);
        receiver.settle();
    });
}

#[test]
fn bytes_that_a_receiver_did_not_settle_come_again() {
    on_both(|| async {
        let pair = pair().await;
        let redelivery = Redelivery::to(&pair.a.addresses()[0]);
        let mut sender = pair.b.open_redelivering_bytes("bytes", redelivery).unwrap();
        let messages = [vec![1; 3], vec![2; 100_000], Vec::new()];
        for message in &messages {
            sender.send(message.clone().into()).await.unwrap();
        }
        for redelivered in [false, true] {
            let (_, mut receiver) = limited(pair.a.accept_bytes("bytes")).await.unwrap();
            receiver.settle_by_hand();
            for (number, message) in messages.iter().enumerate() {
                assert_eq!(limited(receiver.recv()).await.unwrap().unwrap(), message);
                let delivery = receiver.delivery().unwrap();
                assert_eq!((delivery.number, delivery.redelivered), (number as u64, redelivered));
            }
        }
    });
}

/// A node in a runtime of its own, which can be killed.
struct Collector {
    runtime: Option<tokio::runtime::Runtime>,
    node: Option<Node>,
}

impl Collector {
    async fn first() -> Collector {
        Collector::start(&format!("{}:0", own_host()).parse().unwrap()).await
    }

    async fn start(address: &Address) -> Collector {
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(1).enable_all().build().unwrap();
        let address = address.clone();
        let built = runtime.spawn(async move {
            // The address of a killed node is free as soon as its sockets are closed.
            let collector = || Node::builder().name("collector").listen(address.clone()).build();
            until_some(|| async { collector().await.ok() }).await
        });
        let node = built.await.unwrap();
        Collector { runtime: Some(runtime), node: Some(node) }
    }

    fn node(&self) -> &Node {
        self.node.as_ref().unwrap()
    }

    /// Ends the node without a word to anybody.
    fn kill(mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Returns the message of a number: some are large, and each holds its number.
fn message(number: u64) -> (u64, Vec<u8>) {
    let bytes = match number % 97 {
        13 => 20_000 + number as usize % 50_000,
        size => size as usize,
    };
    (number, vec![number as u8; bytes])
}

#[test]
fn every_message_is_settled_though_its_collector_is_killed() {
    on_both(|| async {
        let mut random = seeded(15);
        let mut collector = Collector::first().await;
        let address = collector.node().addresses()[0].clone();
        let service = Node::builder().name("service").build().await.unwrap();
        let redelivery = Redelivery::to(&address).peer_name("collector");
        let mut sender: Sender<(u64, Vec<u8>)> =
            service.open_redelivering("events", redelivery).unwrap();
        let count = 30_000;
        let sending = tokio::spawn(async move {
            for number in 0..count {
                sender.send(&message(number)).await.unwrap();
            }
            sender.sync_settled().await.unwrap();
            let stats = sender.stats();
            assert_eq!((stats.accepted, stats.settled), (count, count));
            sender.close(SECONDS).await.unwrap();
        });
        // State that a collector would store: the number that comes next.
        let (mut stored, mut duplicates, mut stream) = (0, 0, None);
        let mut until_killed = random.below(3000);
        let (_, mut receiver) =
            limited(collector.node().accept::<(u64, Vec<u8>)>("events")).await.unwrap();
        receiver.settle_by_hand();
        while let Some(value) = limited(receiver.recv()).await.unwrap() {
            let delivery = receiver.delivery().unwrap();
            assert_eq!(*stream.get_or_insert(delivery.stream), delivery.stream);
            assert_eq!(value, message(delivery.number));
            assert!(delivery.number <= stored, "none is left out");
            if delivery.number < stored {
                assert!(delivery.redelivered, "a message that comes again is declared");
                duplicates += 1;
            } else {
                stored += 1;
                until_killed = until_killed.saturating_sub(1);
            }
            if random.below(10) == 0 || stored == count {
                receiver.settle();
            }
            if until_killed == 0 {
                until_killed = random.below(3000) + 1;
                drop(receiver);
                if random.below(4) > 0 {
                    collector.kill();
                    collector = Collector::start(&address).await;
                }
                let accepted = limited(collector.node().accept("events")).await.unwrap();
                receiver = accepted.1;
                receiver.settle_by_hand();
            }
        }
        receiver.settle();
        assert_eq!(stored, count);
        assert!(duplicates > 0);
        limited(sending).await.unwrap();
    });
}

#[test]
fn a_sender_accepts_while_its_peer_is_away_as_much_as_it_may_keep() {
    on_one_thread(async {
        let collector = Collector::first().await;
        let address = collector.node().addresses()[0].clone();
        collector.kill();
        let service = Node::builder().build().await.unwrap();
        let redelivery = Redelivery::to(&address).bytes_max(1_000_000);
        let mut sender = service.open_redelivering::<[u64; 4]>("early", redelivery).unwrap();
        let mut accepted = 0_u64;
        loop {
            match sender.try_send(&[accepted; 4]) {
                Ok(()) => accepted += 1,
                Err(TrySendError::Full) => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert!((15_000..=1_000_000 / 33).contains(&accepted), "{accepted} of 33 bytes each");
        // As much may be reserved as is accepted.
        let redelivery = Redelivery::to(&address).bytes_max(1_000_000);
        let mut reserving = service.open_redelivering::<[u64; 4]>("reserved", redelivery).unwrap();
        let mut reserved = 0;
        while tokio::time::timeout(Duration::from_millis(20), reserving.reserve(33)).await.is_ok() {
            reserving.try_send(&[reserved; 4]).unwrap();
            reserved += 1;
        }
        assert!(reserved.abs_diff(accepted) < 20, "{reserved} and {accepted}");
        // A sender that is dropped has done its part.
        drop(sender);
        let collector = Collector::start(&address).await;
        let (_, mut receiver) =
            limited(collector.node().accept::<[u64; 4]>("early")).await.unwrap();
        for number in 0..accepted {
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some([number; 4]));
        }
        assert_eq!(limited(receiver.recv()).await.unwrap(), None);
        drop(service);
    });
}

#[test]
fn what_is_not_settled_in_time_is_accounted_for() {
    on_one_thread(async {
        let collector = Collector::first().await;
        let address = collector.node().addresses()[0].clone();
        let service = Node::builder().build().await.unwrap();
        let open =
            |name: &str| service.open_redelivering::<u64>(name, Redelivery::to(&address)).unwrap();
        let mut sender = open("closed");
        sender.send(&1).await.unwrap();
        let (_, mut receiver) = limited(collector.node().accept::<u64>("closed")).await.unwrap();
        receiver.settle_by_hand();
        assert_eq!(limited(receiver.recv()).await.unwrap(), Some(1));
        let error = sender.close(Duration::from_millis(50)).await.unwrap_err();
        let left = error.channels[0].account;
        assert_eq!((left.accepted, left.acknowledged), (1, 0), "it is not settled");
        let told = error.to_string();
        assert!(told.starts_with("closed with unsettled messages; channel \"closed\""), "{told}");
        assert!(told.ends_with("of 1 messages 0 are settled, 1 unknown"), "{told}");
        let mut sender = open("given up");
        collector.kill();
        sender.send(&1).await.unwrap();
        until(|| !service.refusals().is_empty() || sender.stats().accepted == 1).await;
        let error = limited(service.close(SECONDS)).await.unwrap_err();
        let left = error.channels.iter().find(|it| it.channel == "given up").unwrap();
        assert_eq!(left.account.unknown(), 1, "{error}");
        assert!(matches!(sender.send(&2).await, Err(SendError::Lost(_))));
    });
}

#[test]
fn a_stream_of_another_type_is_refused_for_good() {
    on_one_thread(async {
        let collector = Collector::first().await;
        let service = Node::builder().build().await.unwrap();
        let redelivery = Redelivery::to(&collector.node().addresses()[0]);
        let mut sender = service.open_redelivering::<u64>("numbers", redelivery).unwrap();
        sender.send(&1).await.unwrap();
        limited(collector.node().accept::<String>("numbers")).await.unwrap_err();
        let error = limited(sender.sync_settled()).await.unwrap_err();
        let SendError::Refused(refused) = error else { panic!("{error}") };
        assert!(matches!(refused.reason, RefusalReason::TypeMismatch { .. }));
        // A collector that starts again is not asked again.
        let address = collector.node().addresses()[0].clone();
        collector.kill();
        let collector = Collector::start(&address).await;
        let mut other =
            service.open_redelivering::<u64>("other", Redelivery::to(&address)).unwrap();
        other.send(&1).await.unwrap();
        drop(limited(collector.node().accept::<u64>("other")).await.unwrap());
        let again = collector
            .node()
            .accept::<String>(channel("numbers").within(Duration::from_millis(300)));
        assert!(matches!(again.await, Err(AcceptError::Late { .. })));
    });
}

#[test]
fn a_peer_that_dials_is_followed_by_its_name() {
    on_both(|| async {
        let hub = Collector::first().await;
        let address = hub.node().addresses()[0].clone();
        let redelivery = Redelivery::to_peer("worker");
        let mut sender = hub.node().open_redelivering::<u64>("orders", redelivery).unwrap();
        assert_eq!((sender.peer().name(), sender.peer().address()), ("worker", None));
        for number in 0..100 {
            sender.send(&number).await.unwrap();
        }
        let mut next = 0;
        for round in 1..=5 {
            // The session of another peer is left alone.
            let other = Node::builder().name("other").build().await.unwrap();
            limited(other.connect(&address)).await.unwrap();
            let worker = Node::builder().name("worker").build().await.unwrap();
            limited(worker.connect(&address)).await.unwrap();
            let (_, mut receiver) = limited(worker.accept::<u64>("orders")).await.unwrap();
            receiver.settle_by_hand();
            while next < 20 * round {
                assert_eq!(limited(receiver.recv()).await.unwrap(), Some(next));
                receiver.settle();
                next += 1;
            }
            until(|| sender.stats().settled == next).await;
            drop(receiver);
            limited(worker.close(SECONDS)).await.unwrap();
            limited(other.close(SECONDS)).await.unwrap();
        }
        limited(sender.sync_settled()).await.unwrap();
        // Close is done without a peer.
        limited(sender.close(SECONDS)).await.unwrap();
        limited(hub.node().close(SECONDS)).await.unwrap();
    });
}

#[test]
fn a_message_that_is_too_large_for_the_next_peer_waits_for_another() {
    on_one_thread(async {
        let collector = Collector::first().await;
        let address = collector.node().addresses()[0].clone();
        let service = Node::builder().quiet().build().await.unwrap();
        let mut sender =
            service.open_redelivering::<Vec<u8>>("large", Redelivery::to(&address)).unwrap();
        sender.send(&vec![1; 100_000]).await.unwrap();
        limited(sender.sync()).await.unwrap();
        collector.kill();
        // The address of a killed node is free as soon as its sockets are closed.
        let small = || Node::builder().name("small").limits(messages_of(50_000));
        let built = || async { small().listen(address.clone()).build().await.ok() };
        let small = until_some(built).await;
        let links = || async { small.explain().await.links.len() };
        until_some(|| async { (links().await == 1).then_some(()) }).await;
        let accepting =
            small.accept::<Vec<u8>>(channel("large").within(Duration::from_millis(300)));
        assert!(matches!(accepting.await, Err(AcceptError::Late { .. })));
        // No session was ended for the message.
        assert_eq!(links().await, 1);
        limited(small.close(SECONDS)).await.unwrap();
        let collector = Collector::start(&address).await;
        let (_, mut receiver) = limited(collector.node().accept::<Vec<u8>>("large")).await.unwrap();
        assert_eq!(limited(receiver.recv()).await.unwrap(), Some(vec![1; 100_000]));
        let closing = tokio::spawn(sender.close(SECONDS));
        assert_eq!(limited(receiver.recv()).await.unwrap(), None);
        limited(closing).await.unwrap().unwrap();
    });
}
