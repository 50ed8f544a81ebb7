//! Values that are published and watched.

use chunkcomm::error::WatchError;
use chunkcomm::watch::{Publisher, WatchReceiver};
use chunkcomm::{Address, Node, NodeBuilder, channel};
use chunkcomm_testkit::proxy::Proxy;
use chunkcomm_testkit::random::seeded;
use chunkcomm_testkit::{at_last, limited, memory, on_both, on_one_thread, pair_of, tcp, until};
use std::time::Duration;

async fn server(builder: NodeBuilder, address: Address) -> Node {
    builder.name("server").listen(address).build().await.unwrap()
}

/// Waits until the value is this one; returns the number of values that were seen on the way.
async fn until_it_is(receiver: &mut WatchReceiver<u64>, last: u64) -> u64 {
    let (mut seen, mut before) = (0, 0);
    loop {
        let value = *receiver.borrow_and_update();
        assert!(value >= before, "{value} after {before}");
        if value == last {
            return seen;
        }
        (before, seen) = (value, seen + 1);
        limited(receiver.changed()).await.unwrap();
    }
}

#[test]
fn every_watcher_ends_with_the_last_value() {
    on_both(|| async {
        let server = server(Node::builder(), tcp()).await;
        let sender = server.publish("value", 0_u64).unwrap();
        let mut watched = Box::pin(sender.watched());
        let before = tokio::time::timeout(Duration::from_millis(20), &mut watched).await;
        assert!(before.is_err(), "nobody watches");
        let mut watching = Vec::new();
        for at in 0..3 {
            let client = Node::builder().build().await.unwrap();
            let address = &server.addresses()[0];
            let mut receiver = limited(client.watch::<u64>("value", address)).await.unwrap();
            assert!(receiver.has_changed(), "the first value is new");
            assert_eq!((*receiver.borrow(), receiver.borrow().number()), (0, 0));
            watching.push(tokio::spawn(async move {
                let seen = until_it_is(&mut receiver, 20_000).await;
                assert_eq!(receiver.borrow().number(), 20_000);
                (at, seen)
            }));
        }
        limited(watched).await;
        limited(sender.watched()).await;
        until(|| sender.receiver_count() == 3).await;
        for value in 1..=20_000 {
            assert_eq!(sender.send_replace(value).unwrap(), value - 1);
            if value % 100 == 0 {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!((*sender.borrow(), sender.borrow().number()), (20_000, 20_000));
        for watching in watching {
            let (at, seen) = limited(watching).await.unwrap();
            assert!(seen < 20_000, "watcher {at} saw {seen}");
        }
        until(|| sender.receiver_count() == 0).await;
    });
}

/// A watcher that does not look costs two values and a message, however many values there are.
#[test]
fn a_million_values_before_a_watcher_that_does_not_look() {
    on_one_thread(async {
        let pair = pair_of(memory(), Node::builder(), Node::builder()).await;
        let sender = pair.a.publish("many", [0_u64; 16]).unwrap();
        let mut receiver = limited(pair.b.watch::<[u64; 16]>("many", &pair.peer)).await.unwrap();
        let before = pair.peer.stats().messages_received;
        for value in 1..=1_000_000 {
            sender.send_replace([value; 16]).unwrap();
            if value % 10_000 == 0 {
                tokio::task::yield_now().await;
            }
        }
        while receiver.borrow_and_update()[0] < 1_000_000 {
            limited(receiver.changed()).await.unwrap();
        }
        let came = pair.peer.stats().messages_received - before;
        assert!(came <= 200, "{came} of 1000000 values travelled");
    });
}

#[test]
fn a_watcher_may_come_first_and_come_back() {
    on_both(|| async {
        let server = server(Node::builder(), tcp()).await;
        let address = server.addresses()[0].clone();
        let client = Node::builder().build().await.unwrap();
        let early =
            client.watch::<String>(channel("late").within(Duration::from_millis(50)), &address);
        let error = limited(early).await.unwrap_err();
        assert!(matches!(error, WatchError::Late { .. }), "{error}");
        assert_eq!(error.to_string(), "no value of channel \"late\" came within 50ms");
        let (watcher, to) = (client.clone(), address.clone());
        let waits = tokio::spawn(async move { watcher.watch::<String>("late", &to).await });
        tokio::time::sleep(Duration::from_millis(20)).await;
        let sender = server.publish("late", "one".to_owned()).unwrap();
        let first = limited(waits).await.unwrap().unwrap();
        assert_eq!(*first.borrow(), "one");
        drop(first);
        sender.send_replace("two".to_owned()).unwrap();
        let again =
            limited(client.watch::<String>("late", Publisher::at(&address).peer_name("server")));
        assert_eq!(*again.await.unwrap().borrow(), "two");
    });
}

#[test]
fn the_end_of_the_publisher_is_told_and_a_name_can_be_used_again() {
    on_both(|| async {
        let pair = pair_of(tcp(), Node::builder().name("a"), Node::builder()).await;
        let sender = pair.a.publish("ends", 1_u64).unwrap();
        let taken = pair.a.publish("ends", 1_u64).unwrap_err();
        assert!(matches!(taken, WatchError::Taken { .. }));
        assert_eq!(taken.to_string(), "this node publishes a value under \"ends\" already");
        let mut receiver = limited(pair.b.watch::<u64>("ends", &pair.peer)).await.unwrap();
        let mut other = receiver.clone();
        sender.send_replace(2).unwrap();
        until_it_is(&mut receiver, 2).await;
        drop((sender.clone(), sender));
        let error = limited(receiver.changed()).await.unwrap_err();
        assert!(matches!(error, WatchError::Ended), "{error}");
        // A clone has seen nothing yet.
        limited(other.changed()).await.unwrap();
        assert!(matches!(limited(other.changed()).await, Err(WatchError::Ended)));
        assert_eq!(*other.borrow(), 2);
        let next = {
            let again = || async { pair.a.publish("ends", 3_u64).ok() };
            chunkcomm_testkit::until_some(again).await
        };
        let receiver = limited(pair.b.watch::<u64>("ends", &pair.peer)).await.unwrap();
        assert_eq!((*receiver.borrow(), *next.borrow()), (3, 3));
    });
}

#[test]
fn another_type_is_refused_on_both_sides() {
    on_one_thread(async {
        let pair = pair_of(tcp(), Node::builder().name("a"), Node::builder()).await;
        let sender = pair.a.publish("typed", 1_u64).unwrap();
        let error = limited(pair.b.watch::<String>("typed", &pair.peer)).await.unwrap_err();
        assert!(matches!(error, WatchError::Refused(_)), "{error}");
        // Others are served all the same.
        let receiver = limited(pair.b.watch::<u64>("typed", &pair.peer)).await.unwrap();
        assert_eq!(*receiver.borrow(), *sender.borrow());
        let error = limited(pair.b.watch::<u64>("", &pair.peer)).await.unwrap_err();
        assert!(matches!(error, WatchError::Open(_)), "{error}");
        let error = pair.a.publish("", 1_u64).unwrap_err();
        assert!(matches!(error, WatchError::Open(_)), "{error}");
    });
}

#[test]
fn the_end_of_our_own_node_ends_the_watch() {
    on_both(|| async {
        let pair = pair_of(tcp(), Node::builder(), Node::builder()).await;
        let _sender = pair.a.publish("closed", 1_u64).unwrap();
        let mut receiver = limited(pair.b.watch::<u64>("closed", &pair.peer)).await.unwrap();
        receiver.borrow_and_update();
        pair.b.close(Duration::from_secs(5)).await.unwrap();
        let error = limited(receiver.changed()).await.unwrap_err();
        assert!(matches!(error, WatchError::Closed), "{error}");
    });
}

#[test]
fn cuts_and_restarts_of_the_publisher() {
    on_both(|| async {
        let seed = 31;
        println!("seed {seed}");
        let mut random = seeded(seed);
        let first = server(Node::builder(), tcp()).await;
        let address = first.addresses()[0].clone();
        let proxy = Proxy::before(&first);
        let client = Node::builder().build().await.unwrap();
        let sender = first.publish("cut", 0_u64).unwrap();
        let mut behind = limited(client.watch::<u64>("cut", &proxy.address)).await.unwrap();
        let mut beside = limited(client.watch::<u64>("cut", &address)).await.unwrap();
        for round in 1..=20_u64 {
            for value in 1..=random.below(200) {
                sender.send_replace(1_000 * round + value).unwrap();
            }
            if random.below(2) == 0 {
                proxy.cut();
            }
            sender.send_replace(1_000 * round + 900).unwrap();
            until_it_is(&mut behind, 1_000 * round + 900).await;
            until_it_is(&mut beside, 1_000 * round + 900).await;
        }
        // As if it was killed: it tells nobody of an end.
        client.declare_dead(first.incarnation(), "the test");
        std::mem::forget(sender);
        first.close(Duration::from_millis(200)).await.ok();
        drop(first);
        let again = || async {
            let builder = Node::builder().name("server").listen(address.clone());
            builder.build().await.ok()
        };
        let second = chunkcomm_testkit::until_some(again).await;
        let sender = second.publish("cut", 7_u64).unwrap();
        limited(beside.changed()).await.unwrap();
        assert_eq!((*beside.borrow(), beside.borrow().number()), (7, 0));
        drop(sender);
        assert!(matches!(limited(beside.changed()).await, Err(WatchError::Ended)));
    });
}

#[test]
fn cancelled_calls_can_be_made_again() {
    on_both(|| async {
        let pair = pair_of(memory(), Node::builder(), Node::builder()).await;
        let sender = pair.a.publish("again", 0_u64).unwrap();
        let mut receiver = at_last!(pair.b.watch::<u64>("again", &pair.peer)).unwrap();
        receiver.borrow_and_update();
        for value in 1..=100 {
            sender.send_replace(value).unwrap();
            at_last!(receiver.changed()).unwrap();
            assert_eq!(*receiver.borrow(), value);
        }
    });
}

#[test]
fn a_node_watches_its_own_value() {
    on_both(|| async {
        let node = Node::builder().build().await.unwrap();
        let sender = node.publish("own", 1_u64).unwrap();
        let local = node.local().await.unwrap();
        let mut receiver = limited(node.watch::<u64>("own", &local)).await.unwrap();
        sender.send_replace(2).unwrap();
        until_it_is(&mut receiver, 2).await;
        drop(sender);
        assert!(matches!(limited(receiver.changed()).await, Err(WatchError::Ended)));
    });
}

/// Both have dialled the watcher.
#[test]
fn of_two_nodes_of_one_name_the_one_that_is_meant_is_watched() {
    on_both(|| async {
        let node = Node::builder().name("a").listen(tcp()).build().await.unwrap();
        let mut twins = Vec::new();
        for number in 0..2_u64 {
            let twin = Node::builder().name("twin").build().await.unwrap();
            let peer = limited(twin.connect(&node.addresses()[0])).await.unwrap();
            let hello = twin.open::<u64>(&peer, "hello").await.unwrap();
            let value = twin.publish("value", number).unwrap();
            let (from, _) = limited(node.accept::<u64>("hello")).await.unwrap();
            twins.push((twin, hello, value, from));
        }
        for (number, (.., from)) in twins.iter().enumerate() {
            let receiver = limited(node.watch::<u64>("value", from)).await.unwrap();
            assert_eq!(*receiver.borrow(), number as u64);
        }
    });
}

/// Of the options of a channel, those that a watch has no use for have no effect.
#[test]
fn other_options_do_not_count() {
    on_both(|| async {
        let pair = pair_of(tcp(), Node::builder().name("a"), Node::builder().name("b")).await;
        let options = || channel("options").within(Duration::from_millis(20)).settled().backlog(1);
        let local = pair.a.local().await.unwrap();
        let sender = pair.a.publish(options().from_peer(&local), 1_u64).unwrap();
        tokio::time::sleep(Duration::from_millis(60)).await;
        let options = options().within(Duration::from_secs(20));
        let mut receiver = limited(pair.b.watch::<u64>(options, &pair.peer)).await.unwrap();
        sender.send_replace(2).unwrap();
        until_it_is(&mut receiver, 2).await;
    });
}

/// The value before it may not be acknowledged by then.
#[test]
fn the_last_value_and_the_end_arrive_although_the_node_closes_right_behind_them() {
    on_both(|| async {
        for address in [tcp(), memory()] {
            for round in 0..20_u64 {
                let pair = pair_of(address.clone(), Node::builder(), Node::builder()).await;
                let sender = pair.a.publish("last", 0_u64).unwrap();
                let mut seen = limited(pair.b.watch::<u64>("last", &pair.peer)).await.unwrap();
                assert_eq!(*seen.borrow_and_update(), 0);
                for value in 1..=round {
                    sender.send_replace(value).unwrap();
                }
                drop(sender);
                limited(pair.a.close(Duration::from_secs(20))).await.unwrap();
                while limited(seen.changed()).await.is_ok() {}
                assert!(matches!(limited(seen.changed()).await, Err(WatchError::Ended)));
                assert_eq!(*seen.borrow(), round);
            }
        }
    });
}

/// It is no end: the publisher may come again.
#[test]
fn a_node_that_closes_sends_the_present_value_and_waits_for_no_later_one() {
    on_both(|| async {
        let pair = pair_of(tcp(), Node::builder(), Node::builder()).await;
        let sender = pair.a.publish("present", 0_u64).unwrap();
        let mut seen = limited(pair.b.watch::<u64>("present", &pair.peer)).await.unwrap();
        seen.borrow_and_update();
        sender.send_replace(1).unwrap();
        let node = pair.a.clone();
        let closing = tokio::spawn(async move { node.close(Duration::from_secs(20)).await });
        // A publisher without an end.
        for value in 2.. {
            if closing.is_finished() {
                break;
            }
            sender.send_replace(value).unwrap();
            tokio::task::yield_now().await;
        }
        limited(closing).await.unwrap().unwrap();
        limited(seen.changed()).await.unwrap();
        assert!(*seen.borrow() >= 1);
    });
}

#[test]
fn a_name_is_free_when_its_publisher_is_dropped() {
    on_both(|| async {
        let pair = pair_of(tcp(), Node::builder().name("a"), Node::builder()).await;
        for round in 0..50_u64 {
            let sender = pair.a.publish("free", round).unwrap();
            let watching = pair.b.watch::<u64>("free", &pair.peer);
            let mut receiver = limited(watching).await.unwrap();
            assert_eq!(*receiver.borrow_and_update(), round);
            if round % 2 == 0 {
                tokio::task::yield_now().await;
            }
            drop(sender);
            let again = pair.a.publish("free", round + 1_000).unwrap();
            // The one who watches learns of the end, who comes sees the new value.
            assert!(matches!(limited(receiver.changed()).await, Err(WatchError::Ended)));
            let receiver = limited(pair.b.watch::<u64>("free", &pair.peer)).await.unwrap();
            assert_eq!(*receiver.borrow(), round + 1_000);
            drop(again);
        }
    });
}
