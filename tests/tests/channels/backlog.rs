//! The backlog of a channel: bytes that are accepted and not consumed, over both ends.

use bytes::Bytes;
use chunkcomm::channel::try_send_to_all;
use chunkcomm::{Node, Receiver, Sender, TryRecvError, TrySendError, channel};
use chunkcomm_testkit::proxy::Proxy;
use chunkcomm_testkit::random::seeded;
use chunkcomm_testkit::{
    Pair, all, at_last, limited, memory, on_both, on_one_thread, pair_of, tcp, until,
};
use std::time::Duration;

/// Opens a channel with a backlog of this many bytes.
async fn bounded<T>(pair: &Pair, name: &str, bytes: u64) -> (Sender<T>, Receiver<T>)
where
    T: serde::Serialize + serde::de::DeserializeOwned,
{
    let sender = limited(pair.b.open(&pair.peer, channel(name).backlog(bytes))).await.unwrap();
    (sender, limited(pair.a.accept(name)).await.unwrap().1)
}

/// Sends until the sender is full; returns the number of accepted messages.
fn fill(sender: &mut Sender<Fixed>) -> u64 {
    let mut accepted = 0;
    while sender.try_send(&[1; 8]).is_ok() {
        accepted += 1;
    }
    accepted
}

/// A value of 8 bytes, and 9 with its prefix.
type Fixed = [u8; 8];

#[test]
fn a_receiver_is_never_behind_by_more_than_the_backlog() {
    on_both(|| async {
        let seed = 7;
        println!("seed {seed}");
        for (at, bytes) in [4096_u64, 10_000, 65_536, 300_000].into_iter().enumerate() {
            let address = if at % 2 == 0 { tcp() } else { memory() };
            let pair = pair_of(address, Node::builder(), Node::builder()).await;
            let (mut sender, mut receiver) = bounded::<Fixed>(&pair, "feed", bytes).await;
            let mut random = seeded(seed + at as u64);
            let (mut accepted, mut taken, mut most) = (0_u64, 0_u64, 0);
            while taken < 3 * bytes {
                let message = accepted.to_le_bytes();
                while sender.try_send(&message).is_ok() {
                    // Equal messages: their order is the subject of other tests.
                    accepted += 1;
                    most = most.max(9 * (accepted - taken));
                    assert!(9 * (accepted - taken) <= bytes, "{accepted} accepted, {taken} taken");
                    if random.below(bytes / 5) == 0 {
                        break;
                    }
                }
                for _ in 0..random.below(bytes / 50) {
                    let Ok(_) = receiver.try_recv() else { break };
                    taken += 1;
                }
                tokio::task::yield_now().await;
            }
            assert!(most > bytes - bytes / 4, "{most} of {bytes} were used");
        }
    });
}

#[test]
fn a_full_backlog_has_room_when_an_eighth_of_it_was_taken() {
    on_both(|| async {
        let pair = pair_of(tcp(), Node::builder(), Node::builder()).await;
        let (mut sender, mut receiver) = bounded::<Fixed>(&pair, "eighth", 9 * 8_000).await;
        assert_eq!(fill(&mut sender), 8_000);
        assert!(matches!(sender.try_send(&[1; 8]), Err(TrySendError::Full)));
        for _ in 0..1_100 {
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some([1; 8]));
        }
        // An acknowledgement may have told of fewer before; less than an eighth is untold.
        let mut more = 0;
        while more < 1_100 - 1_000 {
            limited(sender.send(&[1; 8])).await.unwrap();
            more += 1 + fill(&mut sender);
        }
        assert!(more <= 1_100, "{more} more");
        drop(sender);
        assert_eq!(all(&mut receiver).await.len() as u64, 8_000 - 1_100 + more);
    });
}

#[test]
fn a_sender_that_waits_is_in_the_report() {
    on_one_thread(async {
        let pair = pair_of(tcp(), Node::builder(), Node::builder()).await;
        let (mut sender, mut receiver) = bounded::<Fixed>(&pair, "waits", 4096).await;
        fill(&mut sender);
        let sending = tokio::spawn(async move { sender.send(&[2; 8]).await });
        let told = || async {
            let report = pair.b.explain().await.to_string();
            report.contains("of at most 4096 bytes are not taken").then_some(())
        };
        chunkcomm_testkit::until_some(told).await;
        all(&mut receiver).await;
        limited(sending).await.unwrap().unwrap();
    });
}

#[test]
fn a_larger_message_goes_alone() {
    on_both(|| async {
        let pair = pair_of(tcp(), Node::builder(), Node::builder()).await;
        let (mut sender, mut receiver) = bounded::<Vec<u8>>(&pair, "values", 5000).await;
        // Just below and above the backlog, above a staged message, above the window.
        for bytes in [4_980, 4_999, 5_001, 8_300, 100_000, 1_000_000] {
            let message = vec![7; bytes];
            limited(sender.send(&message)).await.unwrap();
            let full = sender.try_send(&vec![8; 30]);
            assert!(matches!(full, Err(TrySendError::Full)), "behind {bytes} bytes");
            let next = sender.clone();
            let behind = tokio::spawn(async move {
                let mut next = next;
                next.send(&vec![9; 5_200]).await
            });
            assert_eq!(limited(receiver.recv()).await.unwrap().unwrap().len(), bytes);
            assert_eq!(limited(receiver.recv()).await.unwrap().unwrap().len(), 5_200);
            limited(behind).await.unwrap().unwrap();
            // The report of the last one.
            assert!(matches!(receiver.try_recv(), Err(TryRecvError::Empty)));
        }
        let options = channel("bytes").backlog(4096);
        let mut sender = pair.b.open_bytes(&pair.peer, options).await.unwrap();
        let (_, mut receiver) = limited(pair.a.accept_bytes("bytes")).await.unwrap();
        let message = Bytes::from(vec![5; 50_000]);
        for _ in 0..20 {
            let receiving = async { limited(receiver.recv_into(vec![0; 60_000])).await.unwrap() };
            let (sent, got) = tokio::join!(sender.send(message.clone()), receiving);
            sent.unwrap();
            assert!(got.is_some());
        }
    });
}

#[test]
fn one_side_of_a_duplex_is_bounded_by_each_end() {
    on_both(|| async {
        let pair = pair_of(tcp(), Node::builder(), Node::builder()).await;
        let there = channel("both").backlog(4096);
        let mut asks = pair.b.open_duplex::<Fixed, Fixed>(&pair.peer, there).await.unwrap();
        let back = channel("both").backlog(9 * 1000);
        let (_, mut answers) = limited(pair.a.accept_duplex::<Fixed, Fixed>(back)).await.unwrap();
        let mut counts = [0; 2];
        while asks.try_send(&[1; 8]).is_ok() {
            counts[0] += 1;
        }
        while answers.try_send(&[1; 8]).is_ok() {
            counts[1] += 1;
        }
        assert_eq!(counts, [4096 / 9, 1000]);
    });
}

/// Receiver, cuts and sender go on at random; every message arrives once, in order.
#[test]
fn a_backlog_survives_cuts() {
    on_both(|| async {
        let seed = 23;
        println!("seed {seed}");
        let a = Node::builder().name("a").listen(tcp()).build().await.unwrap();
        let b = Node::builder().name("b").build().await.unwrap();
        let proxy = Proxy::before(&a);
        let peer = b.connect(&proxy.address).await.unwrap();
        let pair = Pair { a, b, peer };
        let (mut sender, mut receiver) = bounded::<(u32, String)>(&pair, "cut", 6000).await;
        let sending = tokio::spawn(async move {
            let mut random = seeded(seed);
            for number in 0..3_000 {
                let size = if number % 100 == 17 { 20_000 } else { random.below(400) as usize };
                sender.send(&(number, "x".repeat(size))).await.unwrap();
            }
            sender.sync().await.unwrap();
        });
        let cutting = tokio::spawn(async move {
            let mut random = seeded(seed + 1);
            for _ in 0..15 {
                let until_bytes = proxy.passed() + random.below(60_000);
                let passed = until(|| proxy.passed() >= until_bytes);
                let _ = tokio::time::timeout(Duration::from_millis(200), passed).await;
                proxy.cut();
            }
            proxy
        });
        for expected in 0..3_000 {
            let (number, _) = limited(receiver.recv()).await.unwrap().unwrap();
            assert_eq!(number, expected);
        }
        limited(sending).await.unwrap();
        drop(limited(cutting).await.unwrap());
    });
}

#[test]
fn a_cancelled_send_leaves_the_backlog_as_it_was() {
    on_both(|| async {
        let pair = pair_of(memory(), Node::builder(), Node::builder()).await;
        let (mut sender, mut receiver) = bounded::<(u32, String)>(&pair, "cancelled", 4096).await;
        let taking = tokio::spawn(async move {
            for expected in 0..400 {
                assert_eq!(limited(receiver.recv()).await.unwrap().unwrap().0, expected);
            }
        });
        for number in 0..400_u32 {
            let message = (number, "y".repeat([3, 700, 4_200][number as usize % 3]));
            at_last!(sender.send(&message)).unwrap();
        }
        limited(taking).await.unwrap();
    });
}

#[test]
fn a_slow_receiver_is_skipped_and_named() {
    on_both(|| async {
        let pair = pair_of(tcp(), Node::builder(), Node::builder()).await;
        let (fast, mut quick) = bounded::<Fixed>(&pair, "fast", 1 << 20).await;
        let (slow, _lazy) = bounded::<Fixed>(&pair, "slow", 9 * 500).await;
        let (gone, receiver) = bounded::<Fixed>(&pair, "gone", 4096).await;
        drop(receiver);
        let mut senders = [fast, slow, gone];
        limited(senders[2].closed()).await;
        for number in 0..2_000 {
            let skipped = try_send_to_all(&mut senders, &[3; 8]);
            let slow = skipped
                .iter()
                .any(|(index, error)| *index == 1 && matches!(error, TrySendError::Full));
            assert_eq!(slow, number >= 500, "message {number}");
            assert!(matches!(skipped.last(), Some((2, TrySendError::Failed(_)))));
            assert_eq!(skipped.len(), 1 + usize::from(slow));
        }
        for _ in 0..2_000 {
            assert_eq!(limited(quick.recv()).await.unwrap(), Some([3; 8]));
        }
    });
}
