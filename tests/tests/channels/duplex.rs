//! Duplexes: two channels that are opened, accepted and ended as one.

use bytes::Bytes;
use chunkcomm::channel::Landing;
use chunkcomm::error::{LinkCause, RefusalReason};
use chunkcomm::layer::Link;
use chunkcomm::proto::packet::Item;
use chunkcomm::{
    AcceptError, Address, BytesDuplex, Duplex, Lane, LinkError, Node, RecvError, SelectAll,
    SendError, TryRecvError, channel,
};
use chunkcomm_testkit::raw::RawPeer;
use chunkcomm_testkit::{
    Pair, at_last, cancelled, fill, limited, memory, on_both, on_one_thread, packets_of, pair,
    pair_of, until, waiting, windows_of,
};
use futures_core::Stream;
use futures_sink::Sink;
use std::future::{Future, poll_fn};
use std::io::ErrorKind;
use std::pin::Pin;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;

const COUNT: u64 = 3000;
const SOON: Duration = Duration::from_secs(20);

/// Opens a duplex from `b` to `a`, which accepts it.
async fn both<Out, In>(pair: &Pair, name: &str) -> (Duplex<Out, In>, Duplex<In, Out>)
where
    Out: serde::Serialize + serde::de::DeserializeOwned,
    In: serde::Serialize + serde::de::DeserializeOwned,
{
    let ours = pair.b.open_duplex(&pair.peer, name).await.unwrap();
    let (peer, theirs) = limited(pair.a.accept_duplex(name)).await.unwrap();
    assert_eq!(peer.name(), "b");
    (ours, theirs)
}

async fn both_of_bytes(pair: &Pair, name: &str) -> (BytesDuplex, BytesDuplex) {
    let ours = pair.b.open_duplex_bytes(&pair.peer, name).await.unwrap();
    let (_, theirs) = limited(pair.a.accept_duplex_bytes(name)).await.unwrap();
    (ours, theirs)
}

/// Returns a text whose length depends on its number; some travel in fragments.
fn text(number: u64) -> String {
    "x".repeat([0, 10, 300, 9000][number as usize % 4])
}

#[test]
fn many_messages_go_both_ways_at_once() {
    on_both(|| async {
        let pair = pair().await;
        let (ours, theirs) = both::<u64, (u64, String)>(&pair, "numbers").await;
        let (mut sender, mut receiver) = ours.split();
        let sending = tokio::spawn(async move {
            for number in 0..COUNT {
                sender.send(&number).await.unwrap();
            }
        });
        let answering = tokio::spawn(async move {
            let mut theirs = theirs;
            while let Some(number) = theirs.recv().await.unwrap() {
                theirs.send(&(number, text(number))).await.unwrap();
            }
            assert_eq!((theirs.name(), theirs.peer().name()), ("numbers", "b"));
            let (sent, taken) = theirs.stats();
            assert_eq!((sent.accepted, taken.messages), (COUNT, COUNT));
            theirs.close(SOON).await.unwrap();
        });
        for number in 0..COUNT {
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some((number, text(number))));
        }
        assert_eq!(limited(receiver.recv()).await.unwrap(), None);
        assert_eq!((receiver.name(), receiver.peer().name()), ("numbers", "a"));
        limited(sending).await.unwrap();
        limited(answering).await.unwrap();
    });
}

#[test]
fn what_is_sent_before_the_peer_accepts_waits_for_it() {
    on_both(|| async {
        let pair = pair().await;
        let mut ours: Duplex<u64, String> = pair.b.open_duplex(&pair.peer, "early").await.unwrap();
        ours.send(&7).await.unwrap();
        limited(ours.sync()).await.unwrap();
        assert!(matches!(ours.try_recv(), Err(TryRecvError::Empty)));
        // The report has the receiver that waits.
        let answered = waiting(async move { (ours.recv().await, ours) }).await;
        let report = limited(pair.b.explain()).await;
        let receiving = report.links.iter().flat_map(|link| &link.receiving);
        assert_eq!(receiving.filter(|it| it.channel == "early" && it.awaited).count(), 1);
        let (_, mut theirs) = limited(pair.a.accept_duplex::<String, u64>("early")).await.unwrap();
        assert_eq!(limited(theirs.recv()).await.unwrap(), Some(7));
        theirs.send(&"seven".to_owned()).await.unwrap();
        let (answer, _ours) = limited(answered).await.unwrap();
        assert_eq!(answer.unwrap().unwrap(), "seven");
    });
}

#[test]
fn several_duplexes_of_a_name_keep_their_ways_apart() {
    on_one_thread(async {
        let pair = pair().await;
        let other = Node::builder().name("b").build().await.unwrap();
        let peer = other.connect(&pair.a.addresses()[0]).await.unwrap();
        let mut ours = Vec::new();
        for number in 0..20_u64 {
            let (node, peer) =
                if number % 2 == 0 { (&pair.b, &pair.peer) } else { (&other, &peer) };
            let mut one: Duplex<u64, u64> = node.open_duplex(peer, "same").await.unwrap();
            one.send(&number).await.unwrap();
            ours.push(one);
        }
        let mut theirs = Vec::new();
        for _ in &ours {
            theirs.push(limited(pair.a.accept_duplex::<u64, u64>("same")).await.unwrap().1);
        }
        for one in theirs.iter_mut().rev() {
            let number = limited(one.recv()).await.unwrap().unwrap();
            one.send(&(number + 100)).await.unwrap();
        }
        for (number, one) in ours.iter_mut().enumerate() {
            assert_eq!(limited(one.recv()).await.unwrap(), Some(number as u64 + 100));
        }
    });
}

#[test]
fn a_node_has_duplexes_with_itself() {
    on_both(|| async {
        let node = Node::builder().build().await.unwrap();
        let peer = node.local().await.unwrap();
        let local = || channel("local").lane(Lane::Express).schema("numbers");
        let ours = node.open_duplex::<u64, u64>(&peer, local()).await;
        let mut ours = ours.unwrap();
        let theirs = node.accept_duplex::<u64, u64>(local());
        let (_, mut theirs) = limited(theirs).await.unwrap();
        for number in 0..10 {
            ours.send(&number).await.unwrap();
            assert_eq!(limited(theirs.recv()).await.unwrap(), Some(number));
            theirs.send(&(number * 2)).await.unwrap();
            assert_eq!(limited(ours.recv()).await.unwrap(), Some(number * 2));
        }
    });
}

#[test]
fn a_mismatch_in_either_direction_is_one_error_with_both_types() {
    on_both(|| async {
        let pair = pair().await;
        for (name, early_end) in [("both alive", false), ("our direction ended", true)] {
            let mut ours: Duplex<u64, String> = pair.b.open_duplex(&pair.peer, name).await.unwrap();
            ours.send(&1).await.unwrap();
            limited(ours.sync()).await.unwrap();
            let (mut sender, mut receiver) = ours.split();
            if early_end {
                limited(sender.close(SOON)).await.unwrap();
                sender = pair.b.open(&pair.peer, "other").await.unwrap();
            }
            // Only the way back differs.
            let error = limited(pair.a.accept_duplex::<u8, u64>(name)).await.unwrap_err();
            let AcceptError::Mismatch { channel, reason, .. } = &error else { panic!("{error}") };
            assert_eq!(channel, name);
            let RefusalReason::TypeMismatch { sender: there, receiver: here } = reason else {
                panic!("{error}")
            };
            assert_eq!((&there[..], &here[..]), ("duplex<u64, str>", "duplex<u64, u8>"));
            let RecvError::Refused(refused) = limited(receiver.recv()).await.unwrap_err() else {
                panic!("not refused")
            };
            assert_eq!((&refused.reason, refused.peer.as_str()), (reason, "a"));
            if !early_end {
                let error = limited(sender.closed()).await;
                let SendError::Refused(refused) = error else { panic!("{error}") };
                assert_eq!(&refused.reason, reason);
            }
        }
    });
}

#[test]
fn a_duplex_is_no_channel_of_one_direction() {
    on_one_thread(async {
        let pair = pair().await;
        let mut ours: Duplex<u64, u64> = pair.b.open_duplex(&pair.peer, "one").await.unwrap();
        let error = limited(pair.a.accept::<u64>("one")).await.unwrap_err();
        assert!(error.to_string().contains("duplex<u64, u64>"), "{error}");
        assert!(matches!(limited(ours.recv()).await, Err(RecvError::Refused(_))));
        assert!(matches!(ours.send(&1).await, Err(SendError::Refused(_))));

        let mut sender = pair.b.open::<u64>(&pair.peer, "two").await.unwrap();
        let error = limited(pair.a.accept_duplex::<u64, u64>("two")).await.unwrap_err();
        assert!(error.to_string().contains("duplex<u64, u64>"), "{error}");
        assert!(matches!(limited(sender.closed()).await, SendError::Refused(_)));

        let mut ours = pair.b.open_duplex_bytes(&pair.peer, "three").await.unwrap();
        let error = limited(pair.a.accept_duplex::<u64, u64>("three")).await.unwrap_err();
        let AcceptError::Mismatch { reason: RefusalReason::KindMismatch, .. } = error else {
            panic!("{error}")
        };
        assert!(matches!(limited(ours.recv()).await, Err(RecvError::Refused(_))));
        let error = limited(ours.read_u8()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
        pair.is_well("after").await;
    });
}

/// Checks that the peer of `left` is gone, after the peer sent `messages`.
async fn is_left(left: &mut Duplex<u64, u64>, messages: u64) {
    for number in 0..messages {
        assert_eq!(limited(left.recv()).await.unwrap(), Some(number));
    }
    assert_eq!(limited(left.recv()).await.unwrap(), None);
    assert!(matches!(limited(left.sender().closed()).await, SendError::Terminated(_)));
}

#[test]
fn dropping_either_end_ends_both_directions_behind_what_was_accepted() {
    on_both(|| async {
        let pair = pair().await;
        let (mut ours, mut theirs) = both::<u64, u64>(&pair, "opener").await;
        ours.sender().send_all(0..COUNT).await.unwrap();
        drop(ours);
        is_left(&mut theirs, COUNT).await;
        let (mut ours, mut theirs) = both::<u64, u64>(&pair, "acceptor").await;
        theirs.sender().send_all(0..COUNT).await.unwrap();
        drop(theirs);
        is_left(&mut ours, COUNT).await;
        // One half does not end the other.
        let (ours, mut theirs) = both::<u64, u64>(&pair, "half").await;
        let (sender, mut receiver) = ours.split();
        drop(sender);
        assert_eq!(limited(theirs.recv()).await.unwrap(), None);
        theirs.send(&9).await.unwrap();
        assert_eq!(limited(receiver.recv()).await.unwrap(), Some(9));
    });
}

#[test]
fn a_peer_that_drops_its_end_at_once_leaves_nobody_waiting() {
    on_both(|| async {
        let pair = pair().await;
        for _ in 0..50 {
            let mut ours: Duplex<u64, u64> =
                pair.b.open_duplex(&pair.peer, "at once").await.unwrap();
            drop(limited(pair.a.accept_duplex::<u64, u64>("at once")).await.unwrap());
            is_left(&mut ours, 0).await;
        }
    });
}

#[test]
fn an_opener_that_is_gone_before_the_peer_accepts_ends_its_way_back() {
    on_both(|| async {
        let pair = pair().await;
        for closes in [false, true] {
            let ours: Duplex<u64, u64> = pair.b.open_duplex(&pair.peer, "gone").await.unwrap();
            let (mut sender, mut receiver) = ours.split();
            sender.send_all(0..10).await.unwrap();
            drop(sender);
            if closes {
                receiver.close();
            }
            let receiver = closes.then_some(receiver);
            let (_, mut theirs) = limited(pair.a.accept_duplex::<u64, u64>("gone")).await.unwrap();
            is_left(&mut theirs, 10).await;
            drop(theirs);
            if let Some(mut receiver) = receiver {
                assert_eq!(limited(receiver.recv()).await.unwrap(), None);
            }
        }
    });
}

#[test]
fn closing_waits_for_what_was_accepted() {
    on_both(|| async {
        let pair = pair().await;
        let (mut ours, mut theirs) = both::<u64, u64>(&pair, "close").await;
        ours.sender().send_all(0..COUNT).await.unwrap();
        let closing = tokio::spawn(ours.close(SOON));
        is_left(&mut theirs, COUNT).await;
        limited(closing).await.unwrap().unwrap();
    });
}

#[test]
fn closing_frees_a_peer_that_waits_in_send() {
    on_both(|| async {
        let small = || Node::builder().limits(windows_of(256 * 1024)).experiment(packets_of(1024));
        let pair = pair_of(memory(), small(), small()).await;
        let (mut ours, mut theirs) = both::<String, String>(&pair, "full").await;
        let accepted = fill(ours.sender(), &text(2)).await;
        fill(theirs.sender(), &text(2)).await;
        let peer = tokio::spawn(async move {
            let error = loop {
                if let Err(error) = theirs.send(&text(2)).await {
                    break error;
                }
            };
            assert!(matches!(error, SendError::Terminated(_)), "{error}");
            stream_all(&mut theirs).await.len() as u64
        });
        limited(ours.close(SOON)).await.unwrap();
        assert_eq!(limited(peer).await.unwrap(), accepted);
    });
}

/// Returns the cause by which a wait in `recv` for a peer that does not accept ends, when `ends` runs.
async fn cause_of(pair: &Pair, ends: impl Future<Output = ()>) -> LinkError {
    let mut ours: Duplex<u64, u64> = pair.b.open_duplex(&pair.peer, "nobody").await.unwrap();
    ours.send(&1).await.unwrap();
    limited(ours.sync()).await.unwrap();
    let received = waiting(async move { ours.recv().await }).await;
    let (received, ()) = tokio::join!(limited(received), ends);
    match received.unwrap() {
        Err(RecvError::Lost { link, arrived: 0, channel }) => {
            assert_eq!(&channel[..], "nobody");
            link
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_wait_for_a_peer_that_never_accepts_ends_with_node_or_session() {
    on_both(|| async {
        let one = pair().await;
        let close = async |node: &Node| drop(node.close(SOON).await);
        assert!(cause_of(&one, close(&one.b)).await.is_closed());
        let one = pair().await;
        let cause = cause_of(&one, close(&one.a)).await;
        assert!(matches!(cause.cause(), LinkCause::ClosedByPeer), "{cause}");
        let one = pair().await;
        cause_of(&one, async { one.peer.abort() }).await;
        // Nor is anything opened after the session's end.
        let one = pair().await;
        let mut ours: Duplex<u64, u64> = one.b.open_duplex(&one.peer, "late").await.unwrap();
        ours.send(&5).await.unwrap();
        limited(ours.sync()).await.unwrap();
        one.peer.abort();
        assert!(matches!(limited(ours.recv()).await, Err(RecvError::Lost { .. })));
        until(|| Link::all_of(&one.a).is_empty()).await;
        let (_, mut theirs) = limited(one.a.accept_duplex::<u64, u64>("late")).await.unwrap();
        assert_eq!(limited(theirs.recv()).await.unwrap(), Some(5), "it had arrived");
        assert!(matches!(limited(theirs.recv()).await, Err(RecvError::Lost { .. })));
        assert!(matches!(theirs.send(&1).await, Err(SendError::Lost(_))));
    });
}

#[test]
fn every_call_may_be_dropped_at_each_wait() {
    on_both(|| async {
        let small = || Node::builder().limits(windows_of(256 * 1024)).experiment(packets_of(1024));
        let pair = pair_of(memory(), small(), small()).await;
        let mut ours: Duplex<(u64, String), u64> =
            at_last!(pair.b.open_duplex(&pair.peer, "dropped")).unwrap();
        let accepting = pair.a.clone();
        let answering = tokio::spawn(async move {
            let accepted = at_last!(accepting.accept_duplex::<u64, (u64, String)>("dropped"));
            let (_, mut theirs) = accepted.unwrap();
            for number in 0..300 {
                assert_eq!(at_last!(theirs.recv()).unwrap(), Some((number, text(number))));
                at_last!(theirs.send(&number)).unwrap();
            }
            at_last!(theirs.flush()).unwrap();
            assert_eq!(at_last!(theirs.recv()).unwrap(), None);
            at_last!(theirs.sync()).unwrap();
        });
        for number in 0..300 {
            at_last!(ours.send(&(number, text(number)))).unwrap();
        }
        at_last!(ours.sync()).unwrap();
        let (sender, mut receiver) = ours.split();
        drop(sender);
        for number in 0..300 {
            assert_eq!(at_last!(receiver.recv()).unwrap(), Some(number));
        }
        assert_eq!(at_last!(receiver.recv()).unwrap(), None);
        limited(answering).await.unwrap();
        // A close that is dropped at its first wait ends both directions all the same.
        let (mut ours, mut theirs) = both::<u64, u64>(&pair, "close").await;
        ours.send(&0).await.unwrap();
        drop(cancelled(1, ours.close(SOON)).await);
        is_left(&mut theirs, 1).await;
        let (mut ours, mut theirs) = both_of_bytes(&pair, "bytes").await;
        for number in 0..300 {
            let message = Bytes::from(text(number));
            at_last!(ours.send(message.clone())).unwrap();
            at_last!(ours.sync()).unwrap();
            assert_eq!(at_last!(theirs.recv()).unwrap(), Some(message));
        }
    });
}

/// Returns bytes that repeat late.
fn noise(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| ((at + seed) * 131 / 7 % 251) as u8).collect()
}

#[test]
fn bytes_are_copied_through_it_both_ways() {
    on_both(|| async {
        let pair = pair().await;
        let (mut ours, theirs) = both_of_bytes(&pair, "copy").await;
        let echoing = tokio::spawn(async move {
            let (mut read, mut write) = tokio::io::split(theirs);
            let copied = tokio::io::copy(&mut read, &mut write).await.unwrap();
            write.shutdown().await.unwrap();
            copied
        });
        let sent = noise(1_000_000, 1);
        let (mut read, mut write) = tokio::io::split(&mut ours);
        let mut back = Vec::new();
        let writing = async {
            tokio::io::copy(&mut &sent[..], &mut write).await.unwrap();
            write.write_all(&[]).await.unwrap();
            write.flush().await.unwrap();
            write.shutdown().await.unwrap();
        };
        limited(async { tokio::join!(writing, read.read_to_end(&mut back)).1.unwrap() }).await;
        assert!(back == sent, "{} of {} bytes", back.len(), sent.len());
        assert_eq!(limited(echoing).await.unwrap(), sent.len() as u64);
        let error = ours.write_all(b"more").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe, "{error}");
    });
}

#[test]
fn a_message_that_was_read_in_part_is_not_lost() {
    on_one_thread(async {
        let pair = pair().await;
        let (mut ours, mut theirs) = both_of_bytes(&pair, "parts").await;
        for message in ["", "hello", "there", "", "split"] {
            ours.send(Bytes::from_static(message.as_bytes())).await.unwrap();
        }
        let mut two = [0; 2];
        limited(theirs.read_exact(&mut two)).await.unwrap();
        assert_eq!(&two, b"he");
        assert_eq!(limited(theirs.recv()).await.unwrap().unwrap(), "llo");
        limited(theirs.read_exact(&mut two)).await.unwrap();
        assert_eq!(theirs.try_recv().unwrap(), "ere");
        assert_eq!(limited(theirs.recv()).await.unwrap().unwrap(), "");
        limited(theirs.read_exact(&mut two)).await.unwrap();
        // Reading into no room takes nothing.
        assert_eq!(limited(theirs.read(&mut [])).await.unwrap(), 0);
        let (_sender, mut receiver, rest) = theirs.split();
        assert_eq!(rest, "lit");
        drop(ours);
        assert_eq!(limited(receiver.recv()).await.unwrap(), None);
    });
}

#[test]
fn reads_and_writes_report_a_lost_session() {
    on_one_thread(async {
        let pair = pair().await;
        let (mut ours, _theirs) = both_of_bytes(&pair, "lost").await;
        pair.peer.abort();
        let error = limited(ours.read_u8()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
        let error = limited(ours.write_all(b"more")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    });
}

/// Sends `items` through a sink, one by one, and closes it.
async fn sink_all<I, S: Sink<I, Error = SendError> + Unpin>(sink: &mut S, items: Vec<I>) {
    for item in items {
        limited(poll_fn(|context| Pin::new(&mut *sink).poll_ready(context))).await.unwrap();
        Pin::new(&mut *sink).start_send(item).unwrap();
    }
    limited(poll_fn(|context| Pin::new(&mut *sink).poll_flush(context))).await.unwrap();
    limited(poll_fn(|context| Pin::new(&mut *sink).poll_close(context))).await.unwrap();
}

/// Returns all items of a stream.
async fn stream_all<S: Stream + Unpin>(stream: &mut S) -> Vec<S::Item> {
    let mut items = Vec::new();
    while let Some(item) =
        limited(poll_fn(|context| Pin::new(&mut *stream).poll_next(context))).await
    {
        items.push(item);
    }
    items
}

#[test]
fn it_is_a_sink_and_a_stream() {
    on_both(|| async {
        let pair = pair().await;
        let (mut ours, mut theirs) = both::<u64, String>(&pair, "futures").await;
        sink_all(&mut ours, (0..100).collect()).await;
        let numbers = stream_all(&mut theirs).await.into_iter().map(Result::unwrap);
        assert!(numbers.eq(0..100));
        // The other direction goes on.
        sink_all(&mut theirs, vec!["done".to_owned()]).await;
        let texts = stream_all(&mut ours).await.into_iter().map(Result::unwrap);
        assert!(texts.eq(["done"]));
        let (mut ours, mut theirs) = both_of_bytes(&pair, "bytes").await;
        let words = || ["one", "two"].map(|word| Bytes::from_static(word.as_bytes()));
        sink_all(&mut ours, words().to_vec()).await;
        let got = stream_all(&mut theirs).await.into_iter().map(Result::unwrap);
        assert!(got.eq(words()));
    });
}

/// Bytes that have landed, and their end.
type Landed = (Vec<u8>, Result<(), RecvError>);

/// A landing in memory of 100 bytes, which hands out what has landed.
struct Ground(Vec<u8>, usize, oneshot::Sender<Landed>);

impl Landing for Ground {
    fn room(&mut self) -> &mut [u8] {
        &mut self.0[self.1..]
    }

    fn advance(&mut self, bytes: usize) {
        self.1 += bytes;
    }

    fn end(mut self: Box<Self>, outcome: Result<(), RecvError>) {
        self.0.truncate(self.1);
        let _ = self.2.send((self.0, outcome));
    }
}

fn ground() -> (Box<Ground>, oneshot::Receiver<Landed>) {
    let (done, landed) = oneshot::channel();
    (Box::new(Ground(vec![0; 100], 0, done)), landed)
}

#[test]
fn a_way_back_that_is_not_open_yet_is_a_receiver_like_others() {
    on_both(|| async {
        let pair = pair().await;
        // With a landing.
        let ours = pair.b.open_duplex_bytes(&pair.peer, "landing").await.unwrap();
        let (_sender, receiver, _) = ours.split();
        let (landing, landed) = ground();
        receiver.land(landing);
        let (_, mut theirs) = limited(pair.a.accept_duplex_bytes("landing")).await.unwrap();
        theirs.send(Bytes::from_static(b"hello")).await.unwrap();
        drop(theirs);
        let (bytes, outcome) = limited(landed).await.unwrap();
        outcome.unwrap();
        assert_eq!(bytes, b"hello");
        // Among others.
        let one: Duplex<u64, u64> = pair.b.open_duplex(&pair.peer, "select").await.unwrap();
        let (_sender, receiver) = one.split();
        let mut all = SelectAll::new();
        all.add(receiver);
        let (_, mut theirs) = limited(pair.a.accept_duplex::<u64, u64>("select")).await.unwrap();
        theirs.send(&3).await.unwrap();
        assert_eq!(limited(all.recv()).await.unwrap(), Some((0, 3)));
    });
}

#[test]
fn a_landing_learns_that_the_way_back_will_not_be_opened() {
    on_both(|| async {
        for (refused, late) in [(true, false), (true, true), (false, false), (false, true)] {
            let pair = pair().await;
            let ours = pair.b.open_duplex_bytes(&pair.peer, "nobody").await.unwrap();
            let (_sender, mut receiver, _) = ours.split();
            let ends = async || match refused {
                true => drop(limited(pair.a.accept_bytes("nobody")).await.unwrap_err()),
                false => pair.peer.abort(),
            };
            let (landing, landed) = ground();
            if late {
                ends().await;
                limited(receiver.recv()).await.unwrap_err();
                receiver.land(landing);
            } else {
                receiver.land(landing);
                ends().await;
            }
            let error = limited(landed).await.unwrap().1.unwrap_err();
            assert_eq!(matches!(error, RecvError::Refused(_)), refused, "{error}");
        }
    });
}

#[test]
fn a_way_back_of_another_type_ends_the_session() {
    on_one_thread(async {
        for (name, ends) in [("\0duplex/1", true), ("\0duplex/9", false), ("\0duplex/x", false)] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address: Address = listener.local_addr().unwrap().to_string().parse().unwrap();
            let node = Node::builder().build().await.unwrap();
            let (peer, mut raw) = tokio::join!(node.connect(&address), RawPeer::accept(&listener));
            let peer = peer.unwrap();
            let mut ours: Duplex<u64, u64> = node.open_duplex(&peer, "ours").await.unwrap();
            raw.open(1, name).await;
            if ends {
                assert!(matches!(limited(ours.recv()).await, Err(RecvError::Lost { .. })));
                assert!(!peer.is_alive());
            } else {
                // Nobody waits for that one: it is refused.
                let refused = raw.find(|item| match item {
                    Item::Refuse { channel, .. } => Some(channel),
                    _ => None,
                });
                assert_eq!(limited(refused).await, Some(1));
                assert!(peer.is_alive());
            }
        }
    });
}

#[test]
fn an_unanswered_duplex_is_given_back_answered_or_ended() {
    on_both(|| async {
        let pair = pair().await;
        let mut ours = pair.b.open_duplex_bytes(&pair.peer, "later").await.unwrap();
        ours.send(Bytes::from_static(b"first")).await.unwrap();
        for _ in 0..3 {
            let (_, held) = limited(pair.a.accept_unanswered_bytes("later")).await.unwrap();
            held.give_back();
        }
        let (peer, mut held) = limited(pair.a.accept_unanswered_bytes("later")).await.unwrap();
        assert_eq!(peer.name(), "b");
        assert_eq!(limited(held.receiver().recv()).await.unwrap().unwrap(), b"first"[..]);
        let mut theirs = held.answer();
        theirs.send(Bytes::from_static(b"second")).await.unwrap();
        assert_eq!(limited(ours.recv()).await.unwrap().unwrap(), b"second"[..]);

        let mut ours = pair.b.open_duplex_bytes(&pair.peer, "never").await.unwrap();
        drop(limited(pair.a.accept_unanswered_bytes("never")).await.unwrap());
        assert!(limited(ours.recv()).await.unwrap().is_none(), "the way back has ended");
        assert!(matches!(limited(ours.sender().closed()).await, SendError::Terminated(_)));
        pair.is_well("after").await;
    });
}
