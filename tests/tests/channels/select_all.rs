//! One receiver for many peers.

use bytes::Bytes;
use chunkcomm::channel::SELECT_TURN_BYTES;
use chunkcomm::{Node, Receiver, RecvError, SelectAll, Sender};
use chunkcomm_testkit::{Pair, limited, on_both, on_one_thread, pair, tcp};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Returns a node that several others dial.
async fn star<T>(peers: usize) -> (Node, Vec<(Node, Sender<T>)>, Vec<Receiver<T>>)
where
    T: Serialize + DeserializeOwned,
{
    let hub = Node::builder().name("hub").listen(tcp()).build().await.unwrap();
    let (mut senders, mut receivers) = (Vec::new(), Vec::new());
    for index in 0..peers {
        let node = Node::builder().name(format!("peer-{index}")).build().await.unwrap();
        let peer = node.connect(&hub.addresses()[0]).await.unwrap();
        senders.push((node.clone(), node.open(&peer, "in").await.unwrap()));
        let (from, receiver) = limited(hub.accept("in")).await.unwrap();
        assert_eq!(from.name(), format!("peer-{index}"));
        receivers.push(receiver);
    }
    (hub, senders, receivers)
}

#[test]
fn a_fast_peer_does_not_starve_a_slow_one() {
    on_both(|| async {
        let (_hub, mut senders, receivers) = star::<u64>(3).await;
        let counts = [1000, 10, 10];
        for ((_, sender), count) in senders.iter_mut().zip(counts) {
            sender.send_all(0..count).await.unwrap();
            limited(sender.sync()).await.unwrap();
        }
        let mut all = SelectAll::new();
        for receiver in receivers {
            all.add(receiver);
        }
        assert_eq!(all.open(), 3);
        // Everything has arrived: one message of each peer in turn.
        let mut next = [0; 3];
        for round in 0..30 {
            let (index, number) = limited(all.recv()).await.unwrap().unwrap();
            assert_eq!(number, next[index], "round {round}");
            next[index] += 1;
        }
        assert_eq!(next, [10, 10, 10]);
        drop(senders);
        while let Some((index, number)) = limited(all.recv()).await.unwrap() {
            assert_eq!(number, next[index]);
            next[index] += 1;
        }
        assert_eq!(next, counts);
        assert_eq!(all.open(), 0);
    });
}

#[test]
fn large_messages_pay_with_turns_that_they_pass() {
    on_both(|| async {
        let (_hub, mut senders, receivers) = star::<Vec<u8>>(2).await;
        let large = vec![1; 12 * SELECT_TURN_BYTES as usize];
        for _ in 0..2 {
            senders[0].1.send(&large).await.unwrap();
        }
        for _ in 0..100 {
            senders[1].1.send(&vec![2]).await.unwrap();
        }
        limited(senders[1].1.sync()).await.unwrap();
        limited(senders[0].1.sync()).await.unwrap();
        let mut all = SelectAll::new();
        for receiver in receivers {
            all.add(receiver);
        }
        let mut taken = [0u32; 2];
        while taken[0] < 2 {
            let (index, _) = limited(all.recv()).await.unwrap().unwrap();
            taken[index] += 1;
        }
        // A large message makes its peer pass eleven turns or so.
        assert!((10..=14).contains(&taken[1]), "{taken:?}");
    });
}

#[test]
fn it_waits_for_whoever_comes_and_receivers_may_be_added_later() {
    on_both(|| async {
        let pair = pair().await;
        let (mut one, receiver) = pair.channel::<u32>("one").await;
        let mut all = SelectAll::new();
        assert_eq!(limited(all.recv()).await.unwrap(), None, "nobody will ever come");
        assert_eq!(all.add(receiver), 0);
        let waits = tokio::spawn(async move {
            let first = all.recv().await;
            (all, first.unwrap())
        });
        tokio::task::yield_now().await;
        one.send(&1).await.unwrap();
        let (mut all, first) = limited(waits).await.unwrap();
        assert_eq!(first, Some((0, 1)));
        let (mut two, receiver) = pair.channel::<u32>("two").await;
        two.send(&2).await.unwrap();
        limited(two.sync()).await.unwrap();
        assert_eq!(all.add(receiver), 1);
        assert_eq!(limited(all.recv()).await.unwrap(), Some((1, 2)));
        drop(one);
        two.send(&3).await.unwrap();
        assert_eq!(limited(all.recv()).await.unwrap(), Some((1, 3)));
        drop(two);
        assert_eq!(limited(all.recv()).await.unwrap(), None);
    });
}

#[test]
fn a_lost_peer_is_named_and_the_others_go_on() {
    on_both(|| async {
        let (_hub, mut senders, receivers) = star::<u32>(3).await;
        let mut all = SelectAll::new();
        for receiver in receivers {
            all.add(receiver);
        }
        senders[1].1.send(&7).await.unwrap();
        limited(senders[1].1.sync()).await.unwrap();
        senders[1].1.peer().abort();
        assert_eq!(limited(all.recv()).await.unwrap(), Some((1, 7)));
        let (index, error) = limited(all.recv()).await.unwrap_err();
        assert_eq!(index, 1);
        assert!(matches!(error, RecvError::Lost { .. }) && error.to_string().contains("peer-1"));
        senders[0].1.send(&8).await.unwrap();
        assert_eq!(limited(all.recv()).await.unwrap(), Some((0, 8)));
        assert_eq!(all.open(), 2);
    });
}

#[test]
fn messages_that_need_the_links_memory_come_through_it_too() {
    on_both(|| async {
        let (_hub, senders, receivers) = star::<String>(3).await;
        let mut all = SelectAll::new();
        for receiver in receivers {
            all.add(receiver);
        }
        for (node, mut sender) in senders {
            tokio::spawn(async move {
                let _node = node;
                for _ in 0..2 {
                    sender.send(&"l".repeat(6_000_000)).await.unwrap();
                    sender.send(&"s".repeat(6)).await.unwrap();
                }
            });
        }
        let mut taken = [0; 3];
        while let Some((index, text)) = limited(all.recv()).await.unwrap() {
            assert_eq!(text.len(), [6_000_000, 6][taken[index] % 2]);
            taken[index] += 1;
        }
        assert_eq!(taken, [4; 3]);
    });
}

#[test]
fn nothing_is_lost_or_doubled_under_load() {
    on_both(|| async {
        let (_hub, senders, receivers) = star::<(u8, u32)>(4).await;
        let mut all = SelectAll::new();
        for receiver in receivers {
            all.add(receiver);
        }
        for (index, (node, mut sender)) in senders.into_iter().enumerate() {
            tokio::spawn(async move {
                let _node = node;
                for number in 0..5000 {
                    sender.send(&(index as u8, number)).await.unwrap();
                }
            });
        }
        let mut next = [0; 4];
        while let Some((index, (from, number))) = limited(all.recv()).await.unwrap() {
            assert_eq!((usize::from(from), number), (index, next[index]));
            next[index] += 1;
        }
        assert_eq!(next, [5000; 4]);
    });
}

#[test]
fn a_select_all_that_is_dropped_ends_its_senders() {
    on_one_thread(async {
        let pair: Pair = pair().await;
        let (mut sender, receiver) = pair.channel::<u32>("gathered").await;
        let mut all = SelectAll::new();
        all.add(receiver);
        drop(all);
        limited(sender.closed()).await;
        pair.is_well("after").await;
    });
}

#[test]
fn it_takes_bytes_as_well() {
    on_both(|| async {
        let pair = pair().await;
        let mut all = SelectAll::new();
        let (mut fast, from_fast) = pair.bytes("fast").await;
        let (mut slow, from_slow) = pair.bytes("slow").await;
        all.add(from_fast);
        all.add(from_slow);
        for number in 0..100u8 {
            fast.send(Bytes::from(vec![number; 10])).await.unwrap();
        }
        for number in 0..2u8 {
            slow.send(Bytes::from(vec![number; 20_000])).await.unwrap();
        }
        limited(fast.sync()).await.unwrap();
        limited(slow.sync()).await.unwrap();
        let (mut next, mut turns) = ([0u8; 2], Vec::new());
        drop((fast, slow));
        while let Some((index, bytes)) = limited(all.recv()).await.unwrap() {
            assert_eq!(bytes, vec![next[index]; [10, 20_000][index]]);
            next[index] += 1;
            turns.push(index);
        }
        assert_eq!((next, all.open()), ([100, 2], 0));
        // A message of 20,000 bytes passes four turns.
        let second = turns.iter().enumerate().filter(|(_, index)| **index == 1).nth(1).unwrap().0;
        assert!((4..=9).contains(&second), "{turns:?}");
    });
}
