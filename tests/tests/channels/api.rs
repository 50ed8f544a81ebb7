//! Every call of typed senders and receivers.

use chunkcomm::channel::{any_ready, send_to_all};
use chunkcomm::proto::packet::Item;
use chunkcomm::{
    Lane, Node, OpenError, Policy, Receiver, RecvError, SendError, Sender, TryRecvError,
    TrySendError, channel,
};
use chunkcomm_testkit::raw::{RawPeer, bytes_fingerprint};
use chunkcomm_testkit::{
    NEVER, all, fill, limited, memory, on_both, on_one_thread, packets_of, pair, pair_of, stays,
    tcp, until, waiting, windows_of,
};
use futures_core::Stream;
use futures_sink::Sink;
use serde::{Deserialize, Serialize};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;

#[test]
fn try_send_says_full_and_accepts_again_when_the_receiver_took_something() {
    on_both(|| async {
        let pair = pair().await;
        let (mut sender, mut receiver) = pair.channel::<u64>("full").await;
        let mut accepted = fill(&mut sender, &1).await;
        assert!(matches!(sender.try_send(&1), Err(TrySendError::Full)));
        assert_eq!(sender.stats().accepted, accepted);
        for _ in 0..accepted - 100 {
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some(1));
        }
        until(|| sender.try_send(&2).is_ok()).await;
        accepted += 1;
        drop(sender);
        let rest = all(&mut receiver).await;
        assert_eq!(rest.len() as u64, 101);
        assert_eq!(rest.last(), Some(&2), "{accepted} accepted");
    });
}

#[test]
fn send_waits_while_the_outbox_is_full_and_goes_on() {
    on_both(|| async {
        let pair = pair().await;
        let (mut sender, mut receiver) = pair.channel::<u64>("wait").await;
        let accepted = fill(&mut sender, &0).await;
        let waits = waiting(async move {
            sender.send(&7).await.unwrap();
            sender
        })
        .await;
        stays("nothing was taken, so there is no room", || !waits.is_finished()).await;
        for _ in 0..accepted {
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some(0));
        }
        assert_eq!(limited(receiver.recv()).await.unwrap(), Some(7));
        let sender = limited(waits).await.unwrap();
        assert!(sender.stats().send_waits > 0);
    });
}

#[test]
fn send_all_accepts_values_and_references_and_counts_them() {
    on_both(|| async {
        let pair = pair().await;
        let (mut sender, mut receiver) = pair.channel::<u32>("all").await;
        let sending = tokio::spawn(async move {
            assert_eq!(sender.send_all(0..10_000u32).await.unwrap(), 10_000);
            let more = [10_000, 10_001];
            assert_eq!(sender.send_all(&more).await.unwrap(), 2);
            assert_eq!(sender.send_all(std::iter::empty::<u32>()).await.unwrap(), 0);
        });
        assert_eq!(all(&mut receiver).await, (0..10_002).collect::<Vec<_>>());
        limited(sending).await.unwrap();
    });
}

#[test]
fn send_all_says_how_many_it_accepted_before_it_failed() {
    on_one_thread(async {
        let pair = pair().await;
        let (mut sender, receiver) = pair.channel::<u32>("some").await;
        let dropped = AtomicU32::new(0);
        let mut receiver = Some(receiver);
        let values = std::iter::from_fn(|| {
            if dropped.fetch_add(1, Ordering::Relaxed) == 500 {
                receiver = None;
            }
            Some(1u32)
        });
        let error = limited(sender.send_all(values)).await.unwrap_err();
        assert!(matches!(error.error, SendError::Terminated(_)), "{error}");
        assert!(error.accepted >= 500);
        assert_eq!(error.accepted as u64, sender.stats().accepted);
    });
}

#[test]
fn a_permit_sends_without_waiting() {
    on_both(|| async {
        let pair = pair().await;
        let (mut sender, mut receiver) = pair.channel::<[u64; 4]>("permit").await;
        let free = sender.capacity();
        let permit = limited(sender.reserve(32)).await.unwrap();
        permit.send(&[1; 4]).unwrap();
        assert!(sender.capacity() <= free);
        assert_eq!(limited(receiver.recv()).await.unwrap(), Some([1; 4]));
        // A permit that is not used costs nothing.
        let _ = limited(sender.reserve(8000)).await.unwrap();
        let accepted = fill(&mut sender, &[2; 4]).await;
        let reserving = tokio::spawn(async move {
            sender.reserve(32).await.unwrap().send(&[3; 4]).unwrap();
        });
        for _ in 0..accepted {
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some([2; 4]));
        }
        assert_eq!(limited(receiver.recv()).await.unwrap(), Some([3; 4]));
        limited(reserving).await.unwrap();
    });
}

#[test]
fn more_than_a_channel_ever_has_room_for_cannot_be_reserved() {
    on_one_thread(async {
        for packet_bytes in [1024, 64 * 1024] {
            let settings = Node::builder().experiment(packets_of(packet_bytes));
            let pair = pair_of(tcp(), Node::builder(), settings).await;
            let (mut sender, _receiver) = pair.channel::<u64>("much").await;
            let error = limited(sender.reserve(100_000)).await.unwrap_err();
            assert!(!error.to_string().contains("peer"), "{error}");
            let SendError::TooLargeToReserve { bytes: 100_000, bytes_max } = error else {
                panic!("{error}")
            };
            // Room up to that bound can be had.
            let _ = limited(sender.reserve(bytes_max)).await.unwrap();
            sender.send(&1).await.unwrap();
        }
    });
}

#[test]
fn plain_threads_send_and_receive() {
    let (mut sender, mut receiver, pair) = on_one_thread(async {
        let pair = pair_of(tcp(), Node::builder().io_thread(), Node::builder().io_thread()).await;
        let (sender, receiver) = pair.channel::<(u32, String)>("threads").await;
        (sender, receiver, pair)
    });
    let sending = std::thread::spawn(move || {
        for number in 0..50_000u32 {
            sender.blocking_send(&(number, "z".repeat(number as usize % 30))).unwrap();
        }
        sender.blocking_send(&(50_000, "large".repeat(100_000))).unwrap();
    });
    for number in 0..50_000u32 {
        let (got, text) = receiver.blocking_recv().unwrap().unwrap();
        assert_eq!((got, text.len()), (number, number as usize % 30));
    }
    let (_, text) = receiver.blocking_recv().unwrap().unwrap();
    assert_eq!(text.len(), 500_000);
    assert!(receiver.blocking_recv().unwrap().is_none());
    sending.join().unwrap();
    on_one_thread(pair.b.close(Duration::from_secs(5))).unwrap();
}

async fn feed<T: Serialize>(sender: &mut Sender<T>, value: T) {
    poll_fn(|context| Pin::new(&mut *sender).poll_ready(context)).await.unwrap();
    Pin::new(&mut *sender).start_send(value).unwrap();
}

#[test]
fn a_sink_accepts_items_and_flushes_and_a_stream_gives_them() {
    on_both(|| async {
        // Messages wait until they are flushed.
        let settings = Node::builder().policy(Policy::Linger(NEVER));
        let pair = pair_of(tcp(), Node::builder(), settings).await;
        let mut sender: Sender<Vec<u8>> = pair.b.open(&pair.peer, "sink").await.unwrap();
        let sizes = [1usize, 100, 8000, 9000, 100_000, 2, 3_000_000, 4];
        let sending = tokio::spawn(async move {
            for size in sizes {
                feed(&mut sender, vec![1; size]).await;
            }
            poll_fn(|context| Pin::new(&mut sender).poll_flush(context)).await.unwrap();
            assert_eq!(sender.stats().written, sizes.len() as u64);
            feed(&mut sender, vec![2; 5]).await;
            poll_fn(|context| Pin::new(&mut sender).poll_close(context)).await.unwrap();
        });
        let (_, mut receiver) = limited(pair.a.accept::<Vec<u8>>("sink")).await.unwrap();
        let mut next =
            async || limited(poll_fn(|context| Pin::new(&mut receiver).poll_next(context))).await;
        for size in sizes {
            assert_eq!(next().await.unwrap().unwrap().len(), size);
        }
        assert_eq!(next().await.unwrap().unwrap(), [2; 5]);
        assert!(next().await.is_none());
        limited(sending).await.unwrap();
    });
}

#[test]
fn an_item_that_the_sink_was_not_ready_for_is_not_accepted() {
    on_one_thread(async {
        let pair = pair().await;
        let (mut sender, _receiver) = pair.channel::<u64>("not ready").await;
        let accepted = fill(&mut sender, &1).await;
        let error = Pin::new(&mut sender).start_send(2).unwrap_err();
        assert!(matches!(error, SendError::NotReady));
        assert_eq!(sender.stats().accepted, accepted);
    });
}

#[test]
fn flush_is_written_and_sync_is_acknowledged() {
    on_both(|| async {
        let settings = Node::builder().policy(Policy::Linger(NEVER));
        let pair = pair_of(tcp(), Node::builder(), settings).await;
        let mut sender: Sender<u64> = pair.b.open(&pair.peer, "sync").await.unwrap();
        limited(sender.sync()).await.unwrap();
        for round in 1..=20 {
            sender.send(&1).await.unwrap();
            sender.send(&2).await.unwrap();
            limited(sender.flush()).await.unwrap();
            assert_eq!(sender.stats().written, 3 * round - 1);
            sender.send(&3).await.unwrap();
            limited(sender.sync()).await.unwrap();
            let stats = sender.stats();
            assert_eq!((stats.accepted, stats.acknowledged), (3 * round, 3 * round));
        }
    });
}

#[test]
fn close_waits_for_the_last_acknowledgement() {
    on_both(|| async {
        let settings = Node::builder().policy(Policy::Linger(NEVER));
        let pair = pair_of(tcp(), Node::builder(), settings).await;
        for name in ["empty", "few"] {
            let mut sender: Sender<u64> = pair.b.open(&pair.peer, name).await.unwrap();
            if name == "few" {
                sender.send_all(0..100u64).await.unwrap();
            }
            limited(sender.close(NEVER)).await.unwrap();
            let (_, mut receiver) = limited(pair.a.accept::<u64>(name)).await.unwrap();
            let expected = if name == "few" { 100 } else { 0 };
            assert_eq!(all(&mut receiver).await.len(), expected);
        }
    });
}

#[test]
fn clones_share_one_order_of_acceptance() {
    on_both(|| async {
        let pair = pair().await;
        let (mut one, mut receiver) = pair.channel::<(u8, u32)>("clones").await;
        let mut two = one.clone();
        let mut three = two.clone();
        for number in 0..300u32 {
            one.send(&(1, number)).await.unwrap();
            two.send(&(2, number)).await.unwrap();
            three.try_send(&(3, number)).unwrap();
        }
        drop(one);
        drop(two);
        for number in 0..300 {
            for clone in 1..=3 {
                assert_eq!(limited(receiver.recv()).await.unwrap(), Some((clone, number)));
            }
        }
        assert!(matches!(receiver.try_recv(), Err(TryRecvError::Empty)), "a clone is alive");
        limited(three.close(NEVER)).await.unwrap();
        assert_eq!(limited(receiver.recv()).await.unwrap(), None);
    });
}

#[test]
fn clones_on_several_tasks_lose_nothing_and_each_keeps_its_order() {
    on_both(|| async {
        let pair = pair().await;
        let (sender, mut receiver) = pair.channel::<(u8, u32)>("tasks").await;
        for clone in 0..4u8 {
            let mut sender = sender.clone();
            tokio::spawn(async move {
                for number in 0..5000 {
                    sender.send(&(clone, number)).await.unwrap();
                }
            });
        }
        drop(sender);
        let mut next = [0u32; 4];
        while let Some((clone, number)) = limited(receiver.recv()).await.unwrap() {
            assert_eq!(number, next[usize::from(clone)]);
            next[usize::from(clone)] += 1;
        }
        assert_eq!(next, [5000; 4]);
    });
}

#[test]
fn a_clone_that_closes_leaves_the_others_open() {
    on_one_thread(async {
        let pair = pair().await;
        let (mut one, mut receiver) = pair.channel::<u8>("one closes").await;
        let mut two = one.clone();
        two.send(&1).await.unwrap();
        limited(two.close(NEVER)).await.unwrap();
        one.send(&2).await.unwrap();
        drop(one);
        assert_eq!(all(&mut receiver).await, [1, 2]);
    });
}

#[test]
fn recv_many_takes_what_is_there_up_to_a_number() {
    on_both(|| async {
        let pair = pair().await;
        let (mut sender, mut receiver) = pair.channel::<u32>("many").await;
        let mut values = Vec::new();
        assert_eq!(receiver.recv_many(&mut values, 0).await.unwrap(), 0);
        sender.send_all(0..10u32).await.unwrap();
        limited(sender.sync()).await.unwrap();
        assert_eq!(limited(receiver.recv_many(&mut values, 4)).await.unwrap(), 4);
        assert_eq!(limited(receiver.recv_many(&mut values, 100)).await.unwrap(), 6);
        assert_eq!(values, (0..10).collect::<Vec<_>>());
        drop(sender);
        assert_eq!(limited(receiver.recv_many(&mut values, 100)).await.unwrap(), 0);
    });
}

#[test]
fn try_recv_says_empty_and_ended() {
    on_one_thread(async {
        let pair = pair().await;
        let (mut sender, mut receiver) = pair.channel::<u32>("try").await;
        assert!(matches!(receiver.try_recv(), Err(TryRecvError::Empty)));
        sender.send(&1).await.unwrap();
        limited(sender.close(NEVER)).await.unwrap();
        assert_eq!(receiver.try_recv().unwrap(), 1);
        assert!(matches!(receiver.try_recv(), Err(TryRecvError::Ended)));
        assert!(matches!(receiver.try_recv(), Err(TryRecvError::Ended)));
        assert_eq!(limited(receiver.recv()).await.unwrap(), None);
    });
}

#[test]
fn a_dropped_receiver_ends_its_sender_by_name() {
    on_both(|| async {
        let pair = pair().await;
        let (mut sender, receiver) = pair.channel::<u32>("gone").await;
        sender.send(&1).await.unwrap();
        drop(receiver);
        let error = limited(sender.closed()).await;
        assert!(matches!(error, SendError::Terminated(_)));
        let text = error.to_string();
        assert!(text.contains("\"gone\"") && text.contains('a'), "{text}");
        assert!(matches!(sender.send(&2).await, Err(SendError::Terminated(_))));
        assert!(matches!(sender.try_send(&2), Err(TrySendError::Failed(SendError::Terminated(_)))));
        assert!(matches!(sender.reserve(1).await, Err(SendError::Terminated(_))));
        pair.is_well("others").await;
    });
}

#[test]
fn a_dropped_receiver_wakes_a_sender_that_waits_for_room() {
    on_both(|| async {
        let pair = pair().await;
        for large in [false, true] {
            let (mut sender, receiver) = pair.channel::<Vec<u8>>("stuck").await;
            let message = vec![1; if large { 600_000 } else { 100 }];
            fill(&mut sender, &message).await;
            let waits = waiting(async move { sender.send(&message).await }).await;
            drop(receiver);
            let error = limited(waits).await.unwrap().unwrap_err();
            assert!(matches!(error, SendError::Terminated(_)), "{error}");
        }
        pair.is_well("others").await;
    });
}

#[test]
fn what_was_accepted_before_the_sender_was_dropped_arrives() {
    on_both(|| async {
        let pair = pair_of(memory(), Node::builder(), Node::builder()).await;
        for count in [0u32, 1, 5000] {
            let (mut sender, mut receiver) = pair.channel::<u32>("dropped").await;
            let mut accepted = 0;
            while accepted < count && sender.try_send(&accepted).is_ok() {
                accepted += 1;
            }
            drop(sender);
            assert_eq!(all(&mut receiver).await, (0..accepted).collect::<Vec<_>>());
        }
    });
}

#[test]
fn any_ready_names_the_first_sender_with_room() {
    on_both(|| async {
        let pair = pair().await;
        let (one, mut from_one) = pair.channel::<u64>("one").await;
        let (two, mut from_two) = pair.channel::<u64>("two").await;
        let mut senders = [one, two];
        assert_eq!(limited(any_ready(&mut senders, 8)).await.unwrap(), 0);
        let in_one = fill(&mut senders[0], &1).await;
        assert_eq!(limited(any_ready(&mut senders, 8)).await.unwrap(), 1);
        let in_two = fill(&mut senders[1], &2).await;
        let waits = tokio::spawn(async move {
            let ready = any_ready(&mut senders, 8).await;
            (senders, ready)
        });
        stays("no sender has room", || !waits.is_finished()).await;
        for _ in 0..in_two {
            assert_eq!(limited(from_two.recv()).await.unwrap(), Some(2));
        }
        let (mut senders, ready) = limited(waits).await.unwrap();
        assert_eq!(ready.unwrap(), 1);
        drop(from_two);
        limited(senders[1].closed()).await;
        let (index, error) = limited(any_ready(&mut senders, 8)).await.unwrap_err();
        assert!(index == 1 && matches!(error, SendError::Terminated(_)), "{index}: {error}");
        for _ in 0..in_one {
            assert_eq!(limited(from_one.recv()).await.unwrap(), Some(1));
        }
    });
}

/// A value that counts how often it is encoded.
#[derive(Deserialize)]
struct Counted(Vec<u8>);

static ENCODED: AtomicU32 = AtomicU32::new(0);

impl Serialize for Counted {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ENCODED.fetch_add(1, Ordering::SeqCst);
        serializer.serialize_newtype_struct("Counted", &self.0)
    }
}

#[test]
fn send_to_all_encodes_once() {
    on_one_thread(async {
        let pair = pair().await;
        let mut senders = Vec::new();
        let mut receivers: Vec<Receiver<Counted>> = Vec::new();
        for name in ["x", "y", "z"] {
            let (sender, receiver) = pair.channel(name).await;
            senders.push(sender);
            receivers.push(receiver);
        }
        for size in [10, 8000, 300_000] {
            ENCODED.store(0, Ordering::SeqCst);
            limited(send_to_all(&mut senders, &Counted(vec![9; size]))).await.unwrap();
            assert_eq!(ENCODED.load(Ordering::SeqCst), 1);
            for receiver in &mut receivers {
                assert_eq!(limited(receiver.recv()).await.unwrap().unwrap().0.len(), size);
            }
        }
        drop(receivers.remove(1));
        limited(senders[1].closed()).await;
        let error = limited(send_to_all(&mut senders, &Counted(vec![]))).await.unwrap_err();
        assert!(matches!(&error.failed[..], [(1, SendError::Terminated(_))]), "{error}");
    });
}

#[test]
fn accept_before_the_open_and_after_it() {
    on_both(|| async {
        let pair = pair().await;
        let a = pair.a.clone();
        let before = waiting(async move { a.accept::<u32>("early").await }).await;
        let mut sender: Sender<u32> = pair.b.open(&pair.peer, "early").await.unwrap();
        sender.send(&1).await.unwrap();
        let (_, mut receiver) = limited(before).await.unwrap().unwrap();
        assert_eq!(limited(receiver.recv()).await.unwrap(), Some(1));

        // Data follow the open before anybody accepts it, and the sender may be gone.
        let mut sender: Sender<u32> = pair.b.open(&pair.peer, "late").await.unwrap();
        sender.send_all(0..100u32).await.unwrap();
        limited(sender.close(NEVER)).await.unwrap();
        let (_, mut receiver) = limited(pair.a.accept::<u32>("late")).await.unwrap();
        assert_eq!(all(&mut receiver).await, (0..100).collect::<Vec<_>>());
    });
}

#[test]
fn channels_of_one_name_are_accepted_in_the_order_they_were_opened() {
    on_both(|| async {
        let pair = pair().await;
        for number in 0..10u32 {
            let mut sender: Sender<u32> = pair.b.open(&pair.peer, "same").await.unwrap();
            sender.send(&number).await.unwrap();
        }
        for number in 0..10u32 {
            let (_, mut receiver) = limited(pair.a.accept::<u32>("same")).await.unwrap();
            assert_eq!(all(&mut receiver).await, [number]);
        }
    });
}

#[test]
fn more_channels_than_the_peer_has_memory_for_wait_for_their_turn() {
    on_both(|| async {
        // Half of 64 KiB is for the first 16 KiB of channels: two at a time.
        let small = Node::builder().limits(windows_of(64 * 1024));
        let pair = pair_of(tcp(), small, Node::builder()).await;
        let opened = async || {
            let mut sender: Sender<u32> = pair.b.open(&pair.peer, "turn").await.unwrap();
            sender.send(&1).await.unwrap();
            sender
        };
        let mut senders = std::collections::VecDeque::new();
        for _ in 0..5 {
            senders.push_back(opened().await);
        }
        for _ in 0..5 {
            let (_, mut receiver) = limited(pair.a.accept::<u32>("turn")).await.unwrap();
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some(1));
            drop(senders.pop_front());
            assert_eq!(limited(receiver.recv()).await.unwrap(), None);
        }
        pair.is_well("after").await;
    });
}

#[test]
fn an_express_channel_leaves_before_what_bulk_channels_staged_earlier() {
    on_one_thread(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().into();
        let settings = Node::builder().experiment(packets_of(2048));
        let node = settings.build().await.unwrap();
        let (peer, mut raw) = tokio::join!(node.connect(&address), RawPeer::accept(&listener));
        let peer = peer.unwrap();
        let mut bulk = Vec::new();
        for name in ["one", "two", "three", "four", "five"] {
            bulk.push(node.open_bytes(&peer, name).await.unwrap());
        }
        let options = channel("express").lane(Lane::Express);
        let mut express = node.open_bytes(&peer, options).await.unwrap();
        // The driver has not run since: all these messages wait when they fill a packet.
        for sender in &mut bulk {
            for _ in 0..15 {
                sender.send_slice(&[1; 100]).await.unwrap();
            }
        }
        express.send_slice(b"first").await.unwrap();
        let first = raw.find(|item| match item {
            Item::Run { channel, .. } => Some(channel),
            Item::Open(opening) => {
                assert_eq!(opening.fingerprint, bytes_fingerprint());
                None
            }
            _ => None,
        });
        assert_eq!(limited(first).await, Some(6), "the express channel is the sixth");
    });
}

#[test]
fn names_of_channels_have_limits() {
    on_one_thread(async {
        let pair = pair().await;
        for name in [String::new(), "n".repeat(256)] {
            let error = pair.b.open::<u8>(&pair.peer, &name).await.unwrap_err();
            assert!(matches!(error, OpenError::Name { bytes } if bytes == name.len()), "{error}");
        }
        let longest = "\u{e4}".repeat(127) + "x";
        let (mut sender, mut receiver) = pair.channel::<u8>(&longest).await;
        sender.send(&1).await.unwrap();
        assert_eq!(limited(receiver.recv()).await.unwrap(), Some(1));
        assert_eq!(receiver.name(), longest);
    });
}

#[test]
fn a_message_that_is_not_of_the_type_concerns_itself_only() {
    on_one_thread(async {
        let pair = pair().await;
        // The schema's name is the same by mistake: the messages do not decode.
        let options = || channel("promise").schema("the same, we promise");
        let mut sender: Sender<u8> = pair.b.open(&pair.peer, options()).await.unwrap();
        let accepted = pair.a.accept::<bool>(options());
        let (_, mut receiver) = limited(accepted).await.unwrap();
        for value in [1, 2, 0] {
            sender.send(&value).await.unwrap();
        }
        assert_eq!(limited(receiver.recv()).await.unwrap(), Some(true));
        let error = limited(receiver.recv()).await.unwrap_err();
        assert!(matches!(error, RecvError::Decode { .. }));
        assert!(error.to_string().contains("\"promise\""), "{error}");
        assert_eq!(limited(receiver.recv()).await.unwrap(), Some(false));
    });
}

#[test]
fn counters_of_both_ends_agree() {
    on_both(|| async {
        let pair = pair().await;
        let (mut sender, mut receiver) = pair.channel::<u64>("count").await;
        sender.send_all(0..1000u64).await.unwrap();
        limited(sender.close(NEVER)).await.unwrap();
        all(&mut receiver).await;
        let there = receiver.peer().clone();
        until(|| there.stats().messages_received == 1000).await;
        until(|| pair.peer.stats().messages_sent == 1000).await;
        let (sent, got) = (pair.peer.stats(), there.stats());
        until(|| pair.peer.stats().packets_received == there.stats().packets_sent).await;
        until(|| there.stats().packets_received == pair.peer.stats().packets_sent).await;
        assert!(got.packet_bytes_received >= 9 * 1000 && sent.packet_bytes_sent >= 9 * 1000);
        assert!(got.reads > 0 && sent.writes > 0 && sent.credit_waits == 0);
        let both = sent.plus(&got);
        assert_eq!(both.messages_sent, 1000);
        assert_eq!(both.packets_sent, sent.packets_sent + got.packets_sent);
    });
}

#[test]
fn a_channels_counters_are_its_own() {
    on_both(|| async {
        let pair = pair_of(tcp(), Node::builder(), Node::builder()).await;
        let (mut sender, _receiver) = pair.channel::<u64>("counted").await;
        let (mut other, _other_receiver) = pair.channel::<u64>("other").await;
        sender.send_all(0..1000u64).await.unwrap();
        other.send(&1).await.unwrap();
        limited(sender.sync()).await.unwrap();
        limited(other.sync()).await.unwrap();
        let (stats, others) = (sender.stats(), other.stats());
        assert_eq!((stats.accepted, stats.written, stats.acknowledged), (1000, 1000, 1000));
        // Eight bytes and the byte of their length.
        assert_eq!((stats.bytes, others.bytes), (9 * 1000, 9));
        assert_eq!((others.packets, others.messages_per_packet_max), (1, 1));
        let flushes: u64 = stats.flushes.iter().map(|(_, count)| count).sum();
        assert!(flushes >= stats.packets && stats.packets >= 1, "{stats:?}");
        assert!(stats.messages_per_packet_max as f64 >= stats.messages_per_packet_mean());
    });
}
