//! The memory kept for sending again is bounded. While it is full, nothing new leaves and senders
//! wait. Acknowledgements and credit leave all the same, and afterwards everything that was
//! accepted arrives once.
//!
//! The channels are of the express lane: of bulk data less is on its way than may be kept.

use chunkcomm::explain::LinkReport;
use chunkcomm::proto::limits::{PACKET_BYTES_TUNED, RESEND_BYTES_MIN};
use chunkcomm::proto::packet::{AppendRecords, FLAG_ACK_NOW, Header, Item};
use chunkcomm::{
    BytesSender, ChannelOptions, Lane, Limits, Node, NodeBuilder, Sender, Silence, TrySendError,
    channel,
};
use chunkcomm_testkit::proxy::Proxy;
use chunkcomm_testkit::raw::RawPeer;
use chunkcomm_testkit::{Pair, all, cancelled, limited, on_both, on_one_thread, tcp};
use std::time::Duration;
use tokio::net::TcpListener;

/// Returns a node that keeps little, and gives nobody up meanwhile.
fn settings() -> NodeBuilder {
    let [probe, suspect, dead] = [60, 120, 240].map(Duration::from_secs);
    Node::builder()
        .limits(Limits { resend_bytes_max: RESEND_BYTES_MIN, ..Limits::default() })
        .silence(Silence { probe, suspect, dead })
}

fn express(name: &str) -> ChannelOptions {
    channel(name).lane(Lane::Express)
}

/// Returns the node's only link.
async fn link(node: &Node) -> LinkReport {
    limited(node.explain()).await.links.remove(0)
}

/// Whether as much is kept as may be; it may exceed the bound by one packet at most.
fn is_full(link: &LinkReport) -> bool {
    let full = link.waits_for.as_deref() == Some("acknowledgements: as much is kept as may be");
    assert_eq!(full, link.kept_bytes >= RESEND_BYTES_MIN, "{link}");
    assert!(link.kept_bytes <= RESEND_BYTES_MIN + PACKET_BYTES_TUNED, "{link}");
    full
}

/// Checks that the channel has credit, and that its accepted messages yet do not leave.
fn waits_for_the_ring(link: &LinkReport, channel: &str) {
    let report = link.sending.iter().find(|it| it.channel == channel).unwrap();
    // Somebody may wait in `send` by now.
    let its_turn = report.waits_for.as_ref().is_none_or(|it| it.starts_with("its turn"));
    assert!(its_turn && report.credit_bytes > 0, "{link}");
    assert!(report.staged > 0, "{link}");
}

const MESSAGE_BYTES: usize = 200;

fn message(number: u32) -> [u8; MESSAGE_BYTES] {
    let mut message = [number as u8; MESSAGE_BYTES];
    message[..4].copy_from_slice(&number.to_le_bytes());
    message
}

/// Sends until as much is kept as may be and the channel accepts no more; the peer reads and
/// acknowledges nothing. Returns the number of messages accepted, the last packet, and the messages
/// that came.
async fn fill(node: &Node, sender: &mut BytesSender, raw: &mut RawPeer) -> (u32, u64, Vec<u32>) {
    let (mut accepted, mut last, mut came) = (0, 0, Vec::new());
    loop {
        let next = message(accepted).to_vec().into();
        match sender.try_send(&next) {
            Ok(()) => {
                accepted += 1;
                continue;
            }
            Err(TrySendError::Full) if is_full(&link(node).await) => {}
            Err(TrySendError::Full) => {
                read_on(raw, &mut last, &mut came).await;
                continue;
            }
            Err(error) => panic!("{error}"),
        }
        // Bytes written by then are read, too.
        read_on(raw, &mut last, &mut came).await;
        if last == link(node).await.sent && sender.try_send(&next).is_err() {
            return (accepted, last, came);
        }
    }
}

/// Reads the packets that are there; notes the number of the last packet and those of the messages.
async fn read_on(raw: &mut RawPeer, last: &mut u64, came: &mut Vec<u32>) {
    let reading = raw.find(|item| {
        note(&item, last, came);
        None::<()>
    });
    let _ = tokio::time::timeout(Duration::from_millis(1), reading).await;
}

fn note(item: &Item<'_>, last: &mut u64, came: &mut Vec<u32>) {
    match item {
        Item::Packet(header) if header.sequence > 0 => *last = header.sequence,
        Item::Run { bytes, .. } => {
            for framed in bytes.chunks(1 + MESSAGE_BYTES) {
                let number = u32::from_le_bytes(framed[1..5].try_into().unwrap());
                assert_eq!(framed[1..], message(number));
                came.push(number);
            }
        }
        _ => {}
    }
}

#[test]
fn acks_and_credit_pass_a_full_ring_and_nothing_else_does() {
    on_one_thread(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().into();
        let node = settings().build().await.unwrap();
        let (peer, mut raw) = tokio::join!(node.connect(&address), RawPeer::accept(&listener));
        let peer = peer.unwrap();
        let mut sender = node.open_bytes(&peer, express("full")).await.unwrap();
        raw.packet_as(Header::default(), |body| body.credit(1, 4 << 20)).await;
        let (accepted, last, mut came) = fill(&node, &mut sender, &mut raw).await;
        let full = link(&node).await;
        waits_for_the_ring(&full, "full");
        assert!(came.len() * MESSAGE_BYTES > RESEND_BYTES_MIN / 2);
        assert!(cancelled(1, sender.send_slice(&message(accepted))).await.is_none());
        // The other way everything goes on, without packet numbers of its own.
        raw.open(1, "there").await;
        for _ in 0..2 {
            raw.packet(|body| {
                body.run(1, 6001, 1);
                body.extend([250, 110, 23]);
                body.extend([0; 5998]);
            })
            .await;
        }
        let (_, mut receiver) = limited(node.accept_bytes("there")).await.unwrap();
        for _ in 0..2 {
            assert_eq!(limited(receiver.recv()).await.unwrap().unwrap().len(), 5998);
        }
        // Messages taken are reported before anybody waits.
        assert!(cancelled(1, receiver.recv()).await.is_none());
        let (mut acknowledged, mut granted) = (false, false);
        let passes = raw.find(|item| {
            match item {
                Item::Packet(header) => {
                    assert_eq!(header.sequence, 0, "a packet that is to be kept");
                    acknowledged |= header.ack == 3;
                }
                Item::Credit { channel: 1, .. } => granted = true,
                _ => {}
            }
            (acknowledged && granted).then_some(())
        });
        limited(passes).await.unwrap();
        let still = link(&node).await;
        assert!(is_full(&still) && still.sent == last, "{still}");
        // With room again the rest comes, in order and once.
        raw.packet_as(Header { ack: last, ..Header::default() }, |_| ()).await;
        let closing = tokio::spawn(sender.close(Duration::from_secs(60)));
        let mut last = last;
        loop {
            let before = last;
            let ended = raw.find(|item| {
                note(&item, &mut last, &mut came);
                match item {
                    Item::End { .. } => Some(true),
                    _ => (last > before).then_some(false),
                }
            });
            let ended = limited(ended).await.unwrap();
            // The packet before the last has arrived as a whole.
            let ack = if ended { last } else { last - 1 };
            raw.packet_as(Header { ack, ..Header::default() }, |_| ()).await;
            if ended {
                break;
            }
        }
        limited(closing).await.unwrap().unwrap();
        assert_eq!(came, (0..accepted).collect::<Vec<_>>());
    });
}

#[test]
fn questions_and_their_answers_pass_a_full_ring() {
    on_one_thread(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().into();
        // The node asks soon, and gives nobody up meanwhile.
        let [probe, suspect, dead] = [1, 120, 240].map(Duration::from_secs);
        let builder = settings().silence(Silence { probe, suspect, dead });
        let node = builder.build().await.unwrap();
        let (peer, mut raw) = tokio::join!(node.connect(&address), RawPeer::accept(&listener));
        let peer = peer.unwrap();
        let mut sender = node.open_bytes(&peer, express("full")).await.unwrap();
        raw.packet_as(Header::default(), |body| body.credit(1, 4 << 20)).await;
        let (_, last, _) = fill(&node, &mut sender, &mut raw).await;
        let unnumbered = |item: Item<'_>| match item {
            Item::Packet(header) => {
                assert_eq!(header.sequence, 0, "a packet that is to be kept");
                Some(header.flags & FLAG_ACK_NOW != 0)
            }
            _ => None,
        };
        // A question to the silent peer is not among the packets that it has not acknowledged.
        while !limited(raw.find(unnumbered)).await.unwrap() {}
        // The peer's question is answered, too.
        raw.packet_as(Header { flags: FLAG_ACK_NOW, ..Header::default() }, |_| ()).await;
        while limited(raw.find(unnumbered)).await.unwrap() {}
        let still = link(&node).await;
        assert!(is_full(&still) && still.sent == last, "{still}");
    });
}

/// A number, and bytes that make the message long.
type Message = (u32, Vec<u8>);

fn long(number: u32) -> Message {
    (number, vec![number as u8; 5000])
}

/// Opens one channel after the other, and sends on it as long as it accepts anything, until as much
/// is kept as may be.
async fn fill_channels(pair: &Pair) -> Vec<(Sender<Message>, u32)> {
    let mut channels = Vec::new();
    loop {
        let name = format!("{}", channels.len());
        let mut sender = pair.b.open(&pair.peer, express(&name)).await.unwrap();
        let mut accepted = 0;
        while sender.try_send(&long(accepted)).is_ok() {
            accepted += 1;
            tokio::task::yield_now().await;
        }
        channels.push((sender, accepted));
        if is_full(&link(&pair.b).await) {
            return channels;
        }
        assert!(channels.len() < 250, "it is never full: {}", link(&pair.b).await);
    }
}

#[test]
fn a_full_resend_ring_makes_send_wait_and_after_a_cut_everything_arrives_once() {
    on_both(|| async {
        let a = settings().name("a").listen(tcp()).build().await.unwrap();
        let b = settings().name("b").build().await.unwrap();
        let proxy = Proxy::before(&a);
        let peer = b.connect(&proxy.address).await.unwrap();
        let pair = Pair { a, b, peer };
        pair.is_well("before").await;
        proxy.swallow(true);
        let channels = fill_channels(&pair).await;
        let mut late = pair.b.open(&pair.peer, express("late")).await.unwrap();
        let mut accepted = 0;
        loop {
            match late.try_send(&long(accepted)) {
                Ok(()) => accepted += 1,
                Err(TrySendError::Full) => break,
                Err(error) => panic!("{error}"),
            }
        }
        let sending = tokio::spawn(async move {
            late.send(&long(accepted)).await.unwrap();
        });
        let full = link(&pair.b).await;
        assert!(is_full(&full));
        waits_for_the_ring(&full, "late");
        assert!(!sending.is_finished());
        proxy.swallow(false);
        proxy.cut();
        let mut expected = Vec::new();
        for (number, (sender, accepted)) in channels.into_iter().enumerate() {
            drop(sender);
            expected.push((number.to_string(), accepted));
        }
        expected.push(("late".to_owned(), accepted + 1));
        for (name, accepted) in expected {
            let (_, mut receiver) = limited(pair.a.accept::<Message>(&name)).await.unwrap();
            let came = all(&mut receiver).await;
            assert!(came == (0..accepted).map(long).collect::<Vec<_>>(), "channel {name}");
        }
        limited(sending).await.unwrap();
        let stats = pair.peer.stats();
        assert!(stats.resumes > 0 && stats.packets_resent > 0, "{stats:?}");
        assert!(!is_full(&link(&pair.b).await));
    });
}
