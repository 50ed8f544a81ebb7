//! Streams of messages, over every transport, on both runtimes.

use chunkcomm::{Address, Node};
use chunkcomm_testkit::random::seeded;
use chunkcomm_testkit::{all, free_path, limited, memory, on_both, on_one_thread, pair_of, tcp};
use std::time::Duration;

fn unix(name: &str) -> Address {
    Address::Unix(free_path(name))
}

async fn stream_over(address: Address) {
    let pair = pair_of(address, Node::builder(), Node::builder()).await;
    let mut sender = pair.b.open::<(u64, String)>(&pair.peer, "numbers").await.unwrap();
    let sending = tokio::spawn(async move {
        for number in 0..20_000u64 {
            sender.send(&(number, "x".repeat((number % 50) as usize))).await.unwrap();
        }
        sender.sync().await.unwrap();
        sender.stats()
    });
    let (from, mut receiver) = pair.a.accept::<(u64, String)>("numbers").await.unwrap();
    assert_eq!(from.name(), "b");
    assert_eq!((receiver.name(), receiver.peer().name()), ("numbers", "b"));
    for expected in 0..20_000u64 {
        let (number, text) = limited(receiver.recv()).await.unwrap().unwrap();
        assert_eq!((number, text.len() as u64), (expected, expected % 50));
    }
    assert_eq!(limited(receiver.recv()).await.unwrap(), None);
    let stats = limited(sending).await.unwrap();
    assert_eq!((stats.accepted, stats.acknowledged), (20_000, 20_000));
    limited(pair.b.close(Duration::from_secs(5))).await.unwrap();
    limited(pair.a.close(Duration::from_secs(5))).await.unwrap();
}

#[test]
fn a_stream_arrives_in_order_and_ends() {
    for (name, one) in [("one", true), ("two", false)] {
        let run = |address: fn(&str) -> Address| {
            if one {
                on_one_thread(stream_over(address(name)));
            } else {
                chunkcomm_testkit::on_two_threads(stream_over(address(name)));
            }
        };
        run(|_| tcp());
        run(|_| memory());
        run(unix);
    }
}

/// Checks stretches of messages of one length and of different lengths, with a large one now and
/// then. Short messages of one length take a way of their own at both ends.
#[test]
fn many_at_once_of_any_lengths_arrive_in_order() {
    on_both(|| async {
        let pair = pair_of(tcp(), Node::builder(), Node::builder()).await;
        let mut sender = pair.b.open::<Vec<u8>>(&pair.peer, "lengths").await.unwrap();
        let mut random = seeded(11);
        let mut values = Vec::new();
        while values.len() < 20_000 {
            let alike = 1 + random.below(300) as usize;
            let mut length = random.below(260) as usize;
            for _ in 0..alike {
                match random.below(1000) {
                    0 => length = random.below(30_000) as usize,
                    1..=20 => length = random.below(300) as usize,
                    _ => {}
                }
                values.push(vec![values.len() as u8; length]);
            }
        }
        let sent = values.clone();
        let sending = tokio::spawn(async move {
            assert_eq!(sender.send_all(&sent).await.unwrap(), sent.len());
        });
        let (_, mut receiver) = pair.a.accept::<Vec<u8>>("lengths").await.unwrap();
        let mut got = Vec::new();
        while limited(receiver.recv_many(&mut got, 1 + random.below(500) as usize)).await.unwrap()
            > 0
        {}
        limited(sending).await.unwrap();
        assert!(got == values, "{} of {} came", got.len(), values.len());
    });
}

#[test]
fn messages_of_any_size_arrive_whole() {
    on_both(|| async {
        let pair = pair_of(tcp(), Node::builder(), Node::builder()).await;
        let mut sender = pair.b.open::<(u8, String)>(&pair.peer, "sizes").await.unwrap();
        let sizes =
            [0usize, 1, 240, 241, 8182, 8183, 8184, 70_000, 1_000_000, 10_000_000, 3, 5_000_000];
        let sending = tokio::spawn(async move {
            for (index, size) in sizes.into_iter().enumerate() {
                sender.send(&(index as u8, "y".repeat(size))).await.unwrap();
            }
            sender.close(Duration::from_secs(10)).await.unwrap();
        });
        let (_, mut receiver) = pair.a.accept::<(u8, String)>("sizes").await.unwrap();
        for (index, size) in sizes.into_iter().enumerate() {
            let (number, text) = limited(receiver.recv()).await.unwrap().unwrap();
            assert_eq!((usize::from(number), text.len()), (index, size));
        }
        assert_eq!(limited(receiver.recv()).await.unwrap(), None);
        limited(sending).await.unwrap();
    });
}

#[test]
fn many_channels_share_a_link_and_each_keeps_its_order() {
    on_both(|| async {
        let pair = pair_of(tcp(), Node::builder(), Node::builder()).await;
        let mut receiving = Vec::new();
        for channel in 0..40u64 {
            let (mut sender, mut receiver) =
                pair.channel::<(u64, u64)>(&format!("channel {channel}")).await;
            tokio::spawn(async move {
                for number in 0..500 {
                    sender.send(&(channel, number)).await.unwrap();
                }
            });
            receiving.push(tokio::spawn(async move {
                let values = all(&mut receiver).await;
                assert_eq!(values, (0..500).map(|number| (channel, number)).collect::<Vec<_>>());
            }));
        }
        for task in receiving {
            limited(task).await.unwrap();
        }
    });
}

#[test]
fn a_node_is_its_own_peer_through_memory() {
    on_both(|| async {
        let node = Node::builder().name("alone").build().await.unwrap();
        let peer = node.local().await.unwrap();
        assert_eq!(peer.name(), "alone");
        let mut sender = node.open::<u32>(&peer, "to myself").await.unwrap();
        let (from, mut receiver) = limited(node.accept::<u32>("to myself")).await.unwrap();
        assert_eq!(from.name(), "alone");
        sender.send_all(0..1000u32).await.unwrap();
        drop(sender);
        assert_eq!(all(&mut receiver).await, (0..1000).collect::<Vec<_>>());
        let (mut back, mut here) = (
            node.open::<u32>(&from, "and back").await.unwrap(),
            limited(node.accept::<u32>("and back")).await.unwrap().1,
        );
        back.send(&5).await.unwrap();
        assert_eq!(limited(here.recv()).await.unwrap(), Some(5));
    });
}
