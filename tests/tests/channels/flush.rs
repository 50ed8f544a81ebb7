//! When packets leave: each reason in a setting where no other can hold.

use chunkcomm::proto::packet::{AppendRecords, HEADER_BYTES, Header, Item};
use chunkcomm::stats::FlushCounts;
use chunkcomm::stats::FlushReason;
use chunkcomm::{
    AGE_BOUND_VARIABLE, Lane, Node, NodeBuilder, NodeError, Policy, Receiver, Sender, TryRecvError,
    channel,
};
use chunkcomm_testkit::raw::RawPeer;
use chunkcomm_testkit::{
    NEVER, Pair, itself, limited, memory, on_both, on_one_thread, packets_of, pair_of, tcp, until,
};
use std::time::Duration;
use tokio::net::TcpListener;

/// Messages of 16 bytes.
type Small = (u64, u64);

/// Returns a node whose packets wait unless there is another reason.
fn waits() -> NodeBuilder {
    Node::builder().policy(Policy::Linger(NEVER)).experiment(packets_of(16 * 1024))
}

/// Checks that only `reason` was ever counted at `b`.
async fn only(pair: &Pair, reason: FlushReason) {
    only_since(FlushCounts::default(), pair, reason).await;
}

/// Checks that only `reason` was counted at `b` since the counts `before`.
async fn only_since(before: FlushCounts, pair: &Pair, reason: FlushReason) {
    until(|| pair.peer.stats().flushes.get(reason) > before.get(reason)).await;
    for (other, count) in pair.peer.stats().flushes.iter() {
        let same = count == before.get(other);
        assert!(other == reason || same, "{} beside {}", other.name(), reason.name());
    }
}

/// Returns the counts at `b` once it has sent `messages` messages.
async fn counted(pair: &Pair, messages: u64) -> FlushCounts {
    until(|| pair.peer.stats().messages_sent == messages).await;
    pair.peer.stats().flushes
}

async fn open(settings: NodeBuilder, name: &str) -> (Pair, Sender<Small>) {
    let pair = pair_of(tcp(), Node::builder(), settings).await;
    let sender = pair.b.open(&pair.peer, name).await.unwrap();
    (pair, sender)
}

/// Receives the first message. The receiver is to live on: its end would also end the sender.
async fn arrives(pair: &Pair, name: &str) -> Receiver<Small> {
    let (_, mut receiver) = limited(pair.a.accept::<Small>(name)).await.unwrap();
    assert_eq!(limited(receiver.recv()).await.unwrap(), Some((0, 0)));
    receiver
}

#[test]
fn urgent_a_message_that_is_sent_now() {
    on_both(|| async {
        let (pair, mut sender) = open(waits(), "urgent").await;
        sender.send_now(&(0, 0)).await.unwrap();
        let _receiver = arrives(&pair, "urgent").await;
        only(&pair, FlushReason::Urgent).await;
    });
}

#[test]
fn urgent_takes_everything_before_it_on_its_channel_along() {
    on_both(|| async {
        let (pair, mut sender) = open(waits(), "before").await;
        for number in 0..10 {
            sender.send(&(number, 0)).await.unwrap();
        }
        sender.send_now(&(10, 0)).await.unwrap();
        let (_, mut receiver) = limited(pair.a.accept::<Small>("before")).await.unwrap();
        for number in 0..=10 {
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some((number, 0)));
        }
        only(&pair, FlushReason::Urgent).await;
    });
}

/// Returns a message of which six, with their prefixes, fill a packet of 16 KiB. The node is woken
/// at every second one of a channel.
fn sixth() -> Vec<u8> {
    vec![7; 2677]
}

/// Returns a channel whose ring has grown, with nothing of it on its way.
async fn grown(pair: &Pair, name: &str) -> (Sender<Vec<u8>>, Receiver<Vec<u8>>) {
    let mut sender = pair.b.open(&pair.peer, name).await.unwrap();
    for _ in 0..6 {
        sender.send(&sixth()).await.unwrap();
    }
    limited(sender.sync()).await.unwrap();
    let (_, mut receiver) = limited(pair.a.accept(name)).await.unwrap();
    for _ in 0..6 {
        assert_eq!(limited(receiver.recv()).await.unwrap(), Some(sixth()));
    }
    // Messages taken are reported when none is left.
    assert!(matches!(receiver.try_recv(), Err(TryRecvError::Empty)));
    (sender, receiver)
}

#[test]
fn full_the_rest_of_the_packet_holds_no_message() {
    on_both(|| async {
        let pair = pair_of(tcp(), Node::builder(), waits()).await;
        let (mut sender, mut receiver) = grown(&pair, "full").await;
        let before = pair.peer.stats().flushes;
        for _ in 0..6 {
            sender.send(&sixth()).await.unwrap();
        }
        for _ in 0..6 {
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some(sixth()));
        }
        only_since(before, &pair, FlushReason::Full).await;
    });
}

#[test]
fn fit_the_next_message_does_not_fit_in_the_rest() {
    on_both(|| async {
        let pair = pair_of(tcp(), Node::builder(), waits()).await;
        let (mut one, mut from_one) = grown(&pair, "one").await;
        let (mut two, _from_two) = grown(&pair, "two").await;
        let before = counted(&pair, 12).await;
        // Five messages leave a rest in which no other fits, and do not fill the packet.
        let message = vec![8; 2950];
        for sender in [&mut one, &mut two] {
            for _ in 0..4 {
                sender.send(&message).await.unwrap();
            }
        }
        assert_eq!(limited(from_one.recv()).await.unwrap(), Some(message));
        only_since(before, &pair, FlushReason::Fit).await;
    });
}

#[test]
fn fit_a_message_that_waits_for_room_in_the_outbox_does_not_fit_either() {
    on_both(|| async {
        for packet_bytes in [1024, 4096, 16 * 1024, 64 * 1024] {
            let settings = waits().experiment(packets_of(packet_bytes));
            let pair = pair_of(tcp(), Node::builder(), settings).await;
            let mut sender: Sender<Vec<u8>> = pair.b.open(&pair.peer, "room").await.unwrap();
            let sending = tokio::spawn(async move {
                for number in 0..200u8 {
                    sender.send(&vec![number; packet_bytes.min(8000) / 3]).await.unwrap();
                }
                sender
            });
            let (_, mut receiver) = limited(pair.a.accept::<Vec<u8>>("room")).await.unwrap();
            for number in 0..150u8 {
                let message = limited(receiver.recv()).await.unwrap().unwrap();
                assert_eq!(message[0], number, "packets of {packet_bytes}");
            }
            drop(limited(sending).await.unwrap());
        }
    });
}

#[test]
fn old_the_oldest_message_waited_for_the_age_bound() {
    on_both(|| async {
        let linger = Policy::Linger(Duration::from_millis(3));
        let (pair, mut sender) = open(Node::builder().policy(linger), "old").await;
        sender.send(&(0, 0)).await.unwrap();
        let _receiver = arrives(&pair, "old").await;
        only(&pair, FlushReason::Old).await;
        let waited = pair.peer.stats().queueing_delay_us_max;
        assert!(waited >= 3000, "{waited} us");
        let stats = sender.stats();
        assert_eq!(stats.flushes.get(FlushReason::Old), stats.packets, "{stats:?}");
        assert_eq!(stats.queueing_delay_us_max, waited, "{stats:?}");
        assert!(stats.queueing_delay_us_total >= waited, "{stats:?}");
    });
}

#[test]
fn old_a_runtime_that_was_busy_for_the_age_bound() {
    on_one_thread(async {
        let settings = Node::builder().age_bound(Duration::from_millis(1));
        let pair = pair_of(tcp(), Node::builder(), settings).await;
        let (mut sender, mut receiver) = pair.channel::<Small>("busy").await;
        until(|| pair.peer.stats().message_packets_sent == 1).await;
        // If the machine was busy, the open was old, too.
        let flushes = pair.peer.stats().flushes;
        let old = flushes.get(FlushReason::Old);
        assert_eq!(flushes.get(FlushReason::Idle) + old, 1, "the open");
        sender.send(&(0, 0)).await.unwrap();
        // The driver has not run since the message was staged.
        std::thread::sleep(Duration::from_millis(3));
        assert_eq!(limited(receiver.recv()).await.unwrap(), Some((0, 0)));
        until(|| pair.peer.stats().message_packets_sent == 2).await;
        assert_eq!(pair.peer.stats().flushes.get(FlushReason::Old), old + 1);
    });
}

/// Lets a message wait 3 ms for the driver to run; returns whether it was too old then.
async fn was_too_old(settings: NodeBuilder) -> bool {
    let pair = pair_of(memory(), Node::builder(), settings).await;
    let (mut sender, mut receiver) = pair.channel::<Small>("environment").await;
    sender.send(&(0, 0)).await.unwrap();
    limited(sender.sync()).await.unwrap();
    let before = pair.peer.stats().flushes.get(FlushReason::Old);
    sender.send(&(1, 0)).await.unwrap();
    std::thread::sleep(Duration::from_millis(3));
    limited(sender.sync()).await.unwrap();
    assert_eq!(limited(receiver.recv()).await.unwrap(), Some((0, 0)));
    assert_eq!(limited(receiver.recv()).await.unwrap(), Some((1, 0)));
    until(|| pair.peer.stats().messages_sent == 2).await;
    pair.peer.stats().flushes.get(FlushReason::Old) > before
}

/// The test is its own child process, since no other test may see the variable.
#[test]
fn old_is_what_the_environment_says() {
    let Ok(bound) = std::env::var(AGE_BOUND_VARIABLE) else {
        for bound in ["1", "60000", "0", "60001", "soon", ""] {
            let name = "flush::old_is_what_the_environment_says";
            let output = itself(name).env(AGE_BOUND_VARIABLE, bound).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("1 passed"), "{bound:?}: {text}");
        }
        return;
    };
    on_one_thread(async {
        let set = Node::builder().age_bound(Duration::from_millis(1));
        match bound.as_str() {
            "1" => assert!(was_too_old(Node::builder()).await),
            "60000" => {
                assert!(!was_too_old(Node::builder()).await);
                assert!(was_too_old(set).await, "what the program says counts more");
            }
            _ => {
                let text = Node::builder().build().await.unwrap_err().to_string();
                assert!(text.contains(AGE_BOUND_VARIABLE) && text.contains("1 to 60000"), "{text}");
                set.build().await.unwrap();
            }
        }
    });
}

#[test]
fn idle_nothing_else_is_runnable() {
    on_both(|| async {
        let (pair, mut sender) = open(Node::builder().age_bound(NEVER), "idle").await;
        sender.send(&(0, 0)).await.unwrap();
        let _receiver = arrives(&pair, "idle").await;
        only(&pair, FlushReason::Idle).await;
    });
}

#[test]
fn explicit_the_caller_asked() {
    on_both(|| async {
        let (pair, mut sender) = open(waits(), "explicit").await;
        sender.send(&(0, 0)).await.unwrap();
        limited(sender.flush()).await.unwrap();
        assert_eq!(sender.stats().written, 1);
        let _receiver = arrives(&pair, "explicit").await;
        only(&pair, FlushReason::Explicit).await;
    });
}

#[test]
fn close_the_channel_ends() {
    on_both(|| async {
        let (pair, mut sender) = open(waits(), "close").await;
        sender.send(&(0, 0)).await.unwrap();
        drop(sender);
        let (_, mut receiver) = limited(pair.a.accept::<Small>("close")).await.unwrap();
        assert_eq!(limited(receiver.recv()).await.unwrap(), Some((0, 0)));
        assert_eq!(limited(receiver.recv()).await.unwrap(), None);
        only(&pair, FlushReason::Close).await;
    });
}

#[test]
fn close_the_node_ends() {
    on_both(|| async {
        let (pair, mut sender) = open(waits(), "node").await;
        sender.send(&(0, 0)).await.unwrap();
        limited(pair.b.close(Duration::from_secs(5))).await.unwrap();
        let _receiver = arrives(&pair, "node").await;
        only(&pair, FlushReason::Close).await;
    });
}

#[test]
fn a_packet_with_messages_has_exactly_one_reason() {
    on_both(|| async {
        let (pair, mut sender) = open(Node::builder(), "one").await;
        let (_, mut receiver) = limited(pair.a.accept::<Small>("one")).await.unwrap();
        let taking =
            tokio::spawn(async move { while limited(receiver.recv()).await.unwrap().is_some() {} });
        for number in 0..5000 {
            match number % 100 {
                0 => sender.send_now(&(number, 0)).await.unwrap(),
                50 => sender.flush().await.unwrap(),
                _ => sender.send(&(number, 0)).await.unwrap(),
            }
        }
        limited(sender.close(Duration::from_secs(5))).await.unwrap();
        taking.await.unwrap();
        until(|| {
            let stats = pair.peer.stats();
            let counted: u64 = stats.flushes.iter().map(|(_, count)| count).sum();
            counted == stats.message_packets_sent && stats.messages_sent == 4950
        })
        .await;
    });
}

#[test]
fn unbuffered_is_one_packet_and_one_write_a_message() {
    on_both(|| async {
        let (pair, mut sender) = open(Node::builder().policy(Policy::Unbuffered), "single").await;
        let (_, mut receiver) = limited(pair.a.accept::<Small>("single")).await.unwrap();
        for number in 0..500 {
            sender.send(&(number, 0)).await.unwrap();
        }
        for number in 0..500 {
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some((number, 0)));
        }
        limited(sender.sync()).await.unwrap();
        until(|| pair.peer.stats().messages_sent == 500).await;
        let stats = pair.peer.stats();
        assert_eq!(stats.messages_per_packet_max, 1);
        assert!(stats.message_packets_sent >= 500, "{stats:?}");
        assert!(stats.writes >= 500, "{stats:?}");
    });
}

#[test]
fn chunked_gathers_what_a_loop_sends() {
    on_both(|| async {
        let (pair, mut sender) = open(Node::builder(), "loop").await;
        let (_, mut receiver) = limited(pair.a.accept::<Small>("loop")).await.unwrap();
        let sending = tokio::spawn(async move {
            for number in 0..50_000 {
                sender.send(&(number, 0)).await.unwrap();
            }
            sender.sync().await.unwrap();
        });
        for number in 0..50_000 {
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some((number, 0)));
        }
        limited(sending).await.unwrap();
        until(|| pair.peer.stats().messages_sent == 50_000).await;
        let stats = pair.peer.stats();
        assert!(stats.messages_per_packet_mean() >= 10.0, "{stats:?}");
        assert!(stats.messages_per_packet_max >= 100, "{stats:?}");
        assert!(stats.writes < 5_000, "{stats:?}");
    });
}

/// Checks that one unit of tokio's budget pays for many tiny messages. Otherwise the budget is used
/// up, and the packet leaves, when it is half full.
#[test]
fn a_loop_beside_its_driver_fills_packets_with_tiny_messages() {
    on_one_thread(async {
        const MESSAGES: u64 = 200_000;
        let pair = pair_of(tcp(), Node::builder(), Node::builder()).await;
        // On the bulk lane less than a packet may be on its way where a receiver is slow.
        let options = channel("tiny").lane(Lane::Express);
        let mut sender = pair.b.open::<[u8; 8]>(&pair.peer, options).await.unwrap();
        let (_, mut receiver) = limited(pair.a.accept::<[u8; 8]>("tiny")).await.unwrap();
        let sending = tokio::spawn(async move {
            for number in 0..MESSAGES {
                sender.send(&number.to_le_bytes()).await.unwrap();
            }
            sender.sync().await.unwrap();
        });
        for number in 0..MESSAGES {
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some(number.to_le_bytes()));
        }
        limited(sending).await.unwrap();
        until(|| pair.peer.stats().messages_sent == MESSAGES).await;
        let stats = pair.peer.stats();
        // 64 KiB hold 7281 of these messages.
        assert!(stats.messages_per_packet_max > 6_000, "{stats:?}");
    });
}

/// Returns the sizes on the wire of packets with messages, from a node with packets of
/// `packet_bytes_max` that has more to send than one holds.
async fn packet_sizes(packet_bytes_max: usize) -> Vec<usize> {
    const MESSAGES: u32 = 5_000;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().into();
    let node = Node::builder().experiment(packets_of(packet_bytes_max)).build().await.unwrap();
    let (peer, mut raw) = tokio::join!(node.connect(&address), RawPeer::accept(&listener));
    let mut sender: Sender<Vec<u8>> = node.open(&peer.unwrap(), "sizes").await.unwrap();
    let sending = tokio::spawn(async move {
        for _ in 0..MESSAGES {
            sender.send(&vec![1; 90]).await.unwrap();
        }
        sender.flush().await.unwrap();
    });
    raw.packet_as(Default::default(), |body| body.credit(1, 1 << 30)).await;
    let mut sizes = Vec::new();
    let (mut size, mut messages) = (0, 0);
    while messages < MESSAGES {
        let seen = raw.find(|item| match item {
            Item::Packet(header) => Some((header.body_bytes as usize + HEADER_BYTES, 0, 0)),
            Item::Run { messages, .. } => Some((0, messages, 0)),
            Item::PacketEnd { sequence, .. } => Some((0, 0, sequence)),
            _ => None,
        });
        let (bytes, more, ended) = limited(seen).await.unwrap();
        if bytes > 0 {
            size = bytes;
        }
        if more > 0 {
            messages += more;
            sizes.push(size);
        }
        // Unacknowledged bytes are bounded, so each packet is acknowledged.
        if ended > 0 {
            raw.packet_as(Header { ack: ended, ..Header::default() }, |_| ()).await;
        }
    }
    limited(sending).await.unwrap();
    sizes
}

#[test]
fn the_packet_size_is_what_was_set() {
    on_one_thread(async {
        // The link keeps packets of these sizes however slow it is found to be.
        for packet_bytes_max in [1024, 4096, 16 * 1024] {
            let sizes = packet_sizes(packet_bytes_max).await;
            let largest = *sizes.iter().max().unwrap();
            assert!(largest <= packet_bytes_max, "{largest} of {packet_bytes_max}");
            assert!(largest >= packet_bytes_max / 2, "{largest} of {packet_bytes_max}");
        }
    });
}

#[test]
fn an_impossible_packet_size_is_refused_with_what_is_allowed() {
    on_one_thread(async {
        for bytes in [0, 1023, 1024 * 1024 + 1] {
            let error = Node::builder().experiment(packets_of(bytes)).build().await.unwrap_err();
            assert!(matches!(error, NodeError::Setting { name: "packet_bytes_max", .. }));
            assert!(error.to_string().contains("1024 to 1048576"), "{error}");
        }
    });
}

#[test]
fn messages_larger_than_a_packet_pass_however_small_it_is() {
    on_both(|| async {
        let settings = || Node::builder().experiment(packets_of(1024));
        let pair = pair_of(memory(), settings(), settings()).await;
        let (mut sender, mut receiver) = pair.channel::<Vec<u8>>("small").await;
        let sizes = [0usize, 700, 900, 1100, 3000, 8000, 8184, 8185, 9000, 100_000];
        let sending = tokio::spawn(async move {
            for size in sizes {
                sender.send(&vec![3; size]).await.unwrap();
            }
        });
        for size in sizes {
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some(vec![3; size]));
        }
        limited(sending).await.unwrap();
    });
}

#[test]
fn an_idle_channel_is_cheap_and_its_ring_grows_with_use() {
    on_one_thread(async {
        let (pair, mut sender) = open(Node::builder(), "ring").await;
        let before = sender.stats().ring_bytes;
        assert!(before <= 2048, "{before}");
        let (_, _receiver) = limited(pair.a.accept::<Small>("ring")).await.unwrap();
        while sender.try_send(&(0, 0)).is_ok() {}
        let after = sender.stats().ring_bytes;
        assert!(after > 32 * 1024 && after <= 64 * 1024, "{after}");
    });
}
