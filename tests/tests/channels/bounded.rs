//! Memory is bounded, and a slow channel stops nobody else.

use bytes::Bytes;
use chunkcomm::proto::limits::WINDOW_BYTES_INITIAL;
use chunkcomm::{Limits, Node, Policy};
use chunkcomm_testkit::{
    Pair, all, fill, limited, memory, on_both, on_one_thread, packets_of, pair_of, settled, tcp,
    until, windows_of,
};
use std::time::Duration;

#[test]
fn a_channel_that_is_never_read_accepts_its_window_and_its_ring() {
    on_both(|| async {
        for policy in [Policy::Chunked, Policy::Unbuffered] {
            let settings = Node::builder().policy(policy).experiment(packets_of(4096));
            let pair = pair_of(tcp(), Node::builder(), settings).await;
            let (mut sender, mut receiver) = pair.channel::<u8>("unread").await;
            // A message is a byte of length and one of value.
            let bytes = 2 * fill(&mut sender, &1).await;
            let most = WINDOW_BYTES_INITIAL + 4096;
            assert!(bytes <= most, "{bytes} bytes of {most} were accepted");
            assert!(bytes >= WINDOW_BYTES_INITIAL, "{bytes} bytes");
            pair.is_well("beside").await;
            drop(sender);
            assert_eq!(all(&mut receiver).await.len() as u64, bytes / 2);
        }
    });
}

#[test]
fn an_unread_channel_of_large_messages_is_bounded_too() {
    on_both(|| async {
        let small =
            Node::builder().limits(Limits { message_bytes_max: 1 << 20, ..windows_of(256 * 1024) });
        let pair = pair_of(tcp(), small, Node::builder()).await;
        let (mut sender, mut receiver) = pair.bytes("unread").await;
        let mut accepted = 0u64;
        let message = Bytes::from(vec![6; 300_000]);
        let sending = async {
            loop {
                sender.send(message.clone()).await.unwrap();
                accepted += 1;
            }
        };
        let endless: Result<(), _> =
            tokio::time::timeout(Duration::from_millis(100), sending).await;
        assert!(endless.is_err());
        // The sender has 1 MiB of large messages; the receiver has the window and one message.
        assert!(accepted * 300_000 <= (1 << 20) + (256 << 10) + 3 * 300_000, "{accepted}");
        drop(sender);
        for _ in 0..accepted {
            assert_eq!(limited(receiver.recv()).await.unwrap().unwrap(), message);
        }
        assert!(limited(receiver.recv()).await.unwrap().is_none());
    });
}

#[test]
fn windows_together_stay_within_the_links_budget() {
    on_one_thread(async {
        // Half is for the first 16 KiB of eight channels.
        let small = Node::builder().limits(windows_of(256 * 1024));
        let pair = pair_of(tcp(), small, Node::builder().experiment(packets_of(4096))).await;
        let mut channels = Vec::new();
        for number in 0..8 {
            let (mut sender, mut receiver) = pair.channel::<u8>(&format!("{number}")).await;
            // Windows grow with the bytes that are taken.
            let taking = tokio::spawn(async move {
                for _ in 0..200_000 {
                    limited(receiver.recv()).await.unwrap();
                }
                receiver
            });
            sender.send_all((0..200_000u32).map(|_| 1u8)).await.unwrap();
            channels.push((sender, taking.await.unwrap()));
        }
        let mut bytes = 0;
        for (sender, _) in &mut channels {
            bytes += 2 * fill(sender, &1).await;
        }
        assert!(bytes <= 256 * 1024 + 8 * 4096, "{bytes} bytes are held");
        assert!(bytes >= 8 * WINDOW_BYTES_INITIAL);
    });
}

/// Checks that messages pass on a channel beside `pair`'s others while those are stuck.
async fn passes(pair: &Pair, name: &str, count: u64) {
    let (mut sender, mut receiver) = pair.channel::<(u64, [u64; 16])>(name).await;
    let sending = tokio::spawn(async move {
        for number in 0..count {
            sender.send(&(number, [number; 16])).await.unwrap();
        }
    });
    for number in 0..count {
        let (got, _) = limited(receiver.recv()).await.unwrap().unwrap();
        assert_eq!(got, number);
    }
    limited(sending).await.unwrap();
}

#[test]
fn a_slow_receiver_makes_its_own_sender_wait_and_no_other() {
    on_both(|| async {
        for address in [tcp(), memory()] {
            let pair = pair_of(address, Node::builder(), Node::builder()).await;
            let mut stuck = Vec::new();
            for number in 0..5 {
                let (mut sender, receiver) = pair.channel::<u64>(&format!("stuck {number}")).await;
                let accepted = fill(&mut sender, &number).await;
                stuck.push((sender, receiver, accepted));
            }
            passes(&pair, "beside", 20_000).await;
            for (sender, mut receiver, accepted) in stuck {
                drop(sender);
                assert_eq!(all(&mut receiver).await.len() as u64, accepted);
            }
        }
    });
}

#[test]
fn large_messages_on_several_channels_at_once_all_arrive() {
    on_both(|| async {
        let small = || {
            Node::builder().limits(Limits { message_bytes_max: 4 << 20, ..windows_of(512 * 1024) })
        };
        let pair = pair_of(tcp(), small(), small()).await;
        let mut tasks = Vec::new();
        for channel in 0..6u8 {
            let (mut sender, mut receiver) = pair.bytes(&format!("{channel}")).await;
            tasks.push(tokio::spawn(async move {
                for size in [3_000_000, 20_000, 100, 4 << 20, 70_000] {
                    sender.send(Bytes::from(vec![channel; size])).await.unwrap();
                }
            }));
            tasks.push(tokio::spawn(async move {
                for size in [3_000_000, 20_000, 100, 4 << 20, 70_000] {
                    let message = limited(receiver.recv()).await.unwrap().unwrap();
                    assert!(message == vec![channel; size]);
                }
                assert!(limited(receiver.recv()).await.unwrap().is_none());
            }));
        }
        for task in tasks {
            limited(task).await.unwrap();
        }
    });
}

#[test]
fn large_messages_that_nobody_takes_do_not_stop_other_channels() {
    on_both(|| async {
        for size in [100_000usize, 1_000_000, 10_000_000] {
            let pair = pair_of(tcp(), Node::builder(), Node::builder()).await;
            let (mut unread, mut late) = pair.bytes("unread").await;
            let message = Bytes::from(vec![1; size]);
            unread.send(message.clone()).await.unwrap();
            // The message has arrived as far as it may.
            settled(|| late.peer().stats().packet_bytes_received).await;
            passes(&pair, "small", 1000).await;
            let (mut sender, mut receiver) = pair.bytes("large").await;
            let same = message.clone();
            let sending = tokio::spawn(async move {
                for _ in 0..3 {
                    sender.send(same.clone()).await.unwrap();
                }
            });
            for _ in 0..3 {
                assert!(limited(receiver.recv()).await.unwrap().unwrap() == message);
            }
            limited(sending).await.unwrap();
            assert!(limited(late.recv()).await.unwrap().unwrap() == message);
        }
    });
}

#[test]
fn large_messages_whose_receiver_is_dropped_make_room_for_others() {
    on_both(|| async {
        let small = Node::builder().limits(windows_of(64 * 1024));
        let pair = pair_of(tcp(), small, Node::builder()).await;
        let message = Bytes::from(vec![1; 5_000_000]);
        for round in 0..4 {
            let (mut sender, receiver) = pair.bytes(&format!("dropped {round}")).await;
            sender.send(message.clone()).await.unwrap();
            sender.send(message.clone()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(round)).await;
            drop(receiver);
            limited(sender.closed()).await;
        }
        let (mut sender, mut receiver) = pair.bytes("last").await;
        sender.send(message.clone()).await.unwrap();
        assert!(limited(receiver.recv()).await.unwrap().unwrap() == message);
    });
}

#[test]
fn both_ways_at_once_with_small_windows() {
    on_both(|| async {
        for address in [tcp(), memory()] {
            let small =
                || Node::builder().limits(windows_of(64 * 1024)).experiment(packets_of(4096));
            let pair = pair_of(address, small(), small()).await;
            let (there, from_b) = pair.bytes("there").await;
            let (back, from_a) = pair.bytes_back("back").await;
            let mut tasks = Vec::new();
            for (mut sender, mut receiver) in [(there, from_b), (back, from_a)] {
                tasks.push(tokio::spawn(async move {
                    for number in 0..4 {
                        for size in [3_000_000, 100] {
                            sender.send(Bytes::from(vec![number; size])).await.unwrap();
                        }
                    }
                }));
                tasks.push(tokio::spawn(async move {
                    for number in 0..4 {
                        for size in [3_000_000, 100] {
                            let message = limited(receiver.recv()).await.unwrap().unwrap();
                            assert!(message == vec![number; size]);
                        }
                    }
                }));
            }
            for task in tasks {
                limited(task).await.unwrap();
            }
        }
    });
}

#[test]
fn both_ways_at_once_though_nobody_reads_at_first() {
    on_both(|| async {
        // More than sockets or pipes hold: a node that only wrote would be stuck.
        let pair = pair_of(tcp(), Node::builder(), Node::builder()).await;
        let (mut there, from_b) = pair.bytes("there").await;
        let (mut back, from_a) = pair.bytes_back("back").await;
        there.send(vec![1; 20_000_000].into()).await.unwrap();
        back.send(vec![2; 20_000_000].into()).await.unwrap();
        for (mut receiver, byte) in [(from_b, 1), (from_a, 2)] {
            let message = limited(receiver.recv()).await.unwrap().unwrap();
            assert!(message == vec![byte; 20_000_000]);
        }
    });
}

#[test]
fn a_window_that_is_used_up_is_counted_as_a_wait_for_credit() {
    on_one_thread(async {
        let pair = pair_of(tcp(), Node::builder(), Node::builder()).await;
        let (mut sender, _receiver) = pair.channel::<u64>("credit").await;
        fill(&mut sender, &1).await;
        let (mut other, mut taken) = pair.channel::<u64>("other").await;
        other.send(&2).await.unwrap();
        assert_eq!(limited(taken.recv()).await.unwrap(), Some(2));
        until(|| pair.peer.stats().credit_waits > 0).await;
        until(|| sender.stats().credit_waits > 0).await;
        assert_eq!(other.stats().credit_waits, 0, "it is the channel's own");
    });
}
