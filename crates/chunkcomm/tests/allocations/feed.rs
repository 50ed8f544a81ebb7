//! A feed: no allocation a subscriber, and no copy of a large message for each.

use crate::{alone, on_one_thread};
use chunkcomm::feed::{Feed, Subscription};
use chunkcomm::{Address, Node, feed};
use chunkcomm_testkit::counting::{ALLOCATIONS, LARGE_ALLOCATIONS, LARGE_BYTES_MIN};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::atomic::Ordering;

const SUBSCRIBERS: usize = 8;

struct Fed<T> {
    feed: Feed<T>,
    subscriptions: Vec<Subscription<T>>,
}

impl<T: Serialize + DeserializeOwned + PartialEq + Send + 'static> Fed<T> {
    async fn new(backlog: u64) -> Fed<T> {
        let loopback: Address = "127.0.0.1:0".parse().unwrap();
        let server = Node::builder().listen(loopback).build().await.unwrap();
        let feed = server.feed(feed("counted").backlog(backlog)).unwrap();
        let mut subscriptions = Vec::new();
        for _ in 0..SUBSCRIBERS {
            let client = Node::builder().build().await.unwrap();
            let address = &server.addresses()[0];
            subscriptions.push(client.subscribe("counted", address).await.unwrap());
        }
        Fed { feed, subscriptions }
    }

    /// Feeds `count` times this message to all.
    async fn pass(&mut self, message: &T, count: usize) {
        let Fed { feed, subscriptions } = self;
        let mut turns = 0;
        while turns < count {
            let turn = (count - turns).min(1_000);
            let sending = async {
                for _ in 0..turn {
                    feed.send(message).await.unwrap();
                }
            };
            let receiving = async {
                for subscription in subscriptions.iter_mut() {
                    for _ in 0..turn {
                        assert!(subscription.recv().await.unwrap().unwrap() == *message);
                    }
                }
            };
            tokio::join!(sending, receiving);
            turns += turn;
        }
    }
}

#[test]
fn a_message_of_a_feed_costs_a_subscriber_no_allocation() {
    let _turn = alone();
    on_one_thread(async {
        let mut fed = Fed::<(u64, u64)>::new(256 * 1024).await;
        fed.pass(&(1, 2), 20_000).await;
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        fed.pass(&(1, 2), 50_000).await;
        let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
        println!("{allocations} allocations for 50000 messages to {SUBSCRIBERS}");
        assert!(allocations < 50_000 * SUBSCRIBERS as u64 / 100, "{allocations} allocations");
    });
}

#[test]
fn a_large_message_of_a_feed_is_not_copied_for_each_subscriber() {
    let _turn = alone();
    on_one_thread(async {
        const MESSAGES: usize = 100;
        let mut fed = Fed::<String>::new(64 << 20).await;
        let message = "x".repeat(2 * LARGE_BYTES_MIN);
        fed.pass(&message, 5).await;
        let before = LARGE_ALLOCATIONS.load(Ordering::Relaxed);
        fed.pass(&message, MESSAGES).await;
        let allocations = (LARGE_ALLOCATIONS.load(Ordering::Relaxed) - before) as usize;
        // Each subscriber has a string of its own.
        let beside = allocations.saturating_sub(MESSAGES * SUBSCRIBERS);
        println!("{beside} large allocations for {MESSAGES} messages beside those received");
        // One is the feed's, some are of receivers that find no memory to use again.
        assert!(beside < 6 * MESSAGES, "{beside} large allocations for {MESSAGES} messages");
    });
}
