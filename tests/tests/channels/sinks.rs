//! Senders as a `Sink`: no item is lost, whatever clones do, and a closed sink ends once.

use bytes::Bytes;
use chunkcomm::{BytesSender, Node, Policy, SendError, Sender, TrySendError};
use chunkcomm_testkit::{NEVER, all, limited, on_both, on_one_thread, pair, pair_of, tcp};
use futures_sink::Sink;
use std::fmt::Debug;
use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);

async fn ready<I, S>(sink: &mut S)
where
    S: Sink<I> + Unpin,
    S::Error: Debug,
{
    limited(poll_fn(|context| Pin::new(&mut *sink).poll_ready(context))).await.unwrap();
}

async fn flushed<I, S: Sink<I> + Unpin>(sink: &mut S) -> Result<(), S::Error> {
    limited(poll_fn(|context| Pin::new(&mut *sink).poll_flush(context))).await
}

async fn closed<I, S: Sink<I> + Unpin>(sink: &mut S) -> Result<(), S::Error> {
    limited(poll_fn(|context| Pin::new(&mut *sink).poll_close(context))).await
}

/// Sends numbers from `next` on, until there is no room for more.
fn fill(sender: &mut Sender<u64>, next: &mut u64) {
    loop {
        match sender.try_send(next) {
            Ok(()) => *next += 1,
            Err(TrySendError::Full) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Way in which a held item may leave.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Then {
    Flush,
    Sync,
    Send,
    SendAll,
    Reserve,
    SinkReady,
    SinkFlush,
    SinkClose,
    Close,
}

#[test]
fn an_item_whose_room_a_clone_took_waits_for_room() {
    use Then::*;
    for then in [Flush, Sync, Send, SendAll, Reserve, SinkReady, SinkFlush, SinkClose, Close] {
        on_one_thread(async move {
            let pair = pair().await;
            let (mut sender, mut receiver) = pair.channel::<u64>("sink").await;
            ready(&mut sender).await;
            // The driver does not run before the item is there.
            let (mut clone, mut next) = (sender.clone(), 0);
            fill(&mut clone, &mut next);
            Pin::new(&mut sender).start_send(next).unwrap();
            assert_eq!(sender.stats().accepted, next, "{then:?}: it is held");
            let error = Pin::new(&mut sender).start_send(9).unwrap_err();
            assert!(matches!(error, SendError::NotReady));
            assert!(matches!(sender.try_send(&9), Err(TrySendError::Full)), "behind what is held");
            next += 1;
            drop(clone);
            let taking = tokio::spawn(async move { all(&mut receiver).await });
            match then {
                Flush => limited(sender.flush()).await.unwrap(),
                Sync => limited(sender.sync()).await.unwrap(),
                Send => {
                    limited(sender.send(&next)).await.unwrap();
                    next += 1;
                }
                SendAll => {
                    limited(sender.send_all(next..next + 9)).await.unwrap();
                    next += 9;
                }
                Reserve => {
                    limited(sender.reserve(8)).await.unwrap().send(&next).unwrap();
                    next += 1;
                }
                SinkReady => ready(&mut sender).await,
                SinkFlush => flushed(&mut sender).await.unwrap(),
                SinkClose => closed(&mut sender).await.unwrap(),
                Close => {}
            }
            if then == Close {
                limited(sender.close(SOON)).await.unwrap();
            } else {
                assert_eq!(sender.stats().accepted, next, "{then:?}");
                drop(sender);
            }
            assert_eq!(limited(taking).await.unwrap(), (0..next).collect::<Vec<_>>(), "{then:?}");
        });
    }
}

#[test]
fn an_item_of_any_size_is_held_without_copy_or_by_its_encoding() {
    on_one_thread(async {
        for size in [3usize, 8000, 100_000] {
            let pair = pair().await;
            let (mut sender, mut receiver) = pair.bytes("sink").await;
            let item = Bytes::from(vec![7; size]);
            ready(&mut sender).await;
            let (mut clone, mut before) = (sender.clone(), 0);
            let large = Bytes::from(vec![1; 200_000]);
            while clone.try_send(&large).is_ok() {
                before += 1;
            }
            while clone.try_send(&Bytes::from_static(b"small")).is_ok() {
                before += 1;
            }
            Pin::new(&mut sender).start_send(item.clone()).unwrap();
            assert_eq!(sender.stats().accepted, before);
            let sending = tokio::spawn(async move {
                flushed(&mut sender).await.unwrap();
                assert_eq!(sender.stats().written, before + 1);
                drop((sender, clone));
            });
            for _ in 0..before {
                limited(receiver.recv()).await.unwrap().unwrap();
            }
            assert_eq!(limited(receiver.recv()).await.unwrap().unwrap(), item);
            assert!(limited(receiver.recv()).await.unwrap().is_none());
            limited(sending).await.unwrap();
        }
    });
}

#[test]
fn an_item_that_never_finds_room_is_told_of() {
    on_one_thread(async {
        let pair = pair().await;
        let (mut sender, receiver) = pair.channel::<u64>("stuck").await;
        ready(&mut sender).await;
        let (mut clone, mut next) = (sender.clone(), 0);
        fill(&mut clone, &mut next);
        Pin::new(&mut sender).start_send(next).unwrap();
        // The clone takes all room that comes, until there is no credit.
        next += chunkcomm_testkit::fill(&mut clone, &next).await;
        let error = limited(sender.close(Duration::from_millis(20))).await.unwrap_err();
        let account = error.channels[0].account;
        assert!(account.accepted == next + 1 && account.unknown() > 0, "{error}");
        drop((receiver, clone));
    });
}

#[test]
fn closing_a_sink_ends_the_channel_and_a_clone_keeps_it() {
    on_both(|| async {
        let settings = Node::builder().policy(Policy::Linger(NEVER));
        let pair = pair_of(tcp(), Node::builder(), settings).await;
        let mut sender: Sender<u64> = pair.b.open(&pair.peer, "end").await.unwrap();
        let mut clone = sender.clone();
        Pin::new(&mut sender).start_send(1).unwrap();
        closed(&mut sender).await.unwrap();
        clone.send(&2).await.unwrap();
        closed(&mut sender).await.unwrap();
        drop(sender);
        closed(&mut clone).await.unwrap();
        let (_, mut receiver) = limited(pair.a.accept::<u64>("end")).await.unwrap();
        // The sender still lives.
        assert_eq!(all(&mut receiver).await, [1, 2]);
        assert!(matches!(clone.send(&3).await, Err(SendError::Closed)));
        assert!(matches!(limited(clone.closed()).await, SendError::Closed));
        assert!(matches!(limited(clone.reserve(8)).await, Err(SendError::Closed)));
        closed(&mut clone).await.unwrap();
        limited(clone.flush()).await.unwrap();
        limited(clone.sync()).await.unwrap();
        limited(clone.close(SOON)).await.unwrap();
    });
}

#[test]
fn a_closed_sink_can_wait_for_what_it_sent() {
    on_both(|| async {
        let pair = pair().await;
        for round in 0..20 {
            let name = format!("round {round}");
            let mut sender: BytesSender = pair.b.open_bytes(&pair.peer, &name).await.unwrap();
            let (_, mut receiver) = limited(pair.a.accept_bytes(&name)).await.unwrap();
            let taking = tokio::spawn(async move {
                for byte in 0..10 {
                    assert_eq!(
                        limited(receiver.recv()).await.unwrap().unwrap()[..],
                        [byte; 20_000]
                    );
                }
                assert!(limited(receiver.recv()).await.unwrap().is_none());
            });
            for byte in 0..10 {
                ready(&mut sender).await;
                Pin::new(&mut sender).start_send(Bytes::from(vec![byte; 20_000])).unwrap();
            }
            closed(&mut sender).await.unwrap();
            // The channel was closed, not lost.
            limited(sender.sync()).await.unwrap();
            limited(sender.close(SOON)).await.unwrap();
            limited(taking).await.unwrap();
        }
    });
}
