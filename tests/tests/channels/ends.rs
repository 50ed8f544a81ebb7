//! Calls that meet an end: of a run, a channel, a session, a runtime.

use bytes::Bytes;
use chunkcomm::channel::Landing;
use chunkcomm::{BytesSender, Limits, Node, RecvError, SendError};
use chunkcomm_testkit::proxy::Proxy;
use chunkcomm_testkit::random::seeded;
use chunkcomm_testkit::{at_last, limited, memory, on_both, pair, pair_of, until, windows_of};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(5);

#[test]
fn a_run_that_recv_into_took_to_its_end_is_reported_before_it_waits() {
    on_both(|| async {
        let pair = pair().await;
        let (mut sender, mut receiver) = pair.bytes("runs").await;
        let sending = tokio::spawn(async move {
            for number in 0..5000u32 {
                sender.send(Bytes::from(vec![number as u8; 100])).await.unwrap();
            }
            sender.close(SOON).await.unwrap();
        });
        // Many messages wait as one run by now.
        until(|| receiver.peer().stats().messages_received >= 100).await;
        for number in 0..5000u32 {
            let message = limited(receiver.recv_into(vec![0; 200])).await.unwrap().unwrap();
            assert_eq!(message, [number as u8; 100]);
        }
        limited(sending).await.unwrap();
    });
}

#[test]
fn a_channel_opened_while_its_session_is_aborted_learns_of_it() {
    on_both(|| async {
        let pair = pair().await;
        pair.peer.abort();
        if let Ok(mut sender) = pair.b.open_bytes(&pair.peer, "late").await {
            let _ = sender.send(Bytes::from_static(b"lost")).await;
            limited(pair.peer.closed()).await;
            // If the session had ended before, it is dialled anew: the new one is well.
            if !sender.peer().is_alive() {
                limited(sender.closed()).await;
            }
        }
    });
}

struct Sum(Arc<Mutex<(usize, Option<bool>)>>, [u8; 64]);

impl Landing for Sum {
    fn room(&mut self) -> &mut [u8] {
        &mut self.1
    }

    fn advance(&mut self, bytes: usize) {
        self.0.lock().unwrap().0 += bytes;
    }

    fn end(self: Box<Self>, outcome: Result<(), RecvError>) {
        self.0.lock().unwrap().1 = Some(outcome.is_ok());
    }
}

#[test]
fn a_landing_chosen_after_the_session_ended_gets_what_had_arrived() {
    on_both(|| async {
        let pair = pair().await;
        let mut sender = pair.b.open_bytes(&pair.peer, "land").await.unwrap();
        sender.send(Bytes::from_static(b"hello")).await.unwrap();
        limited(sender.sync()).await.unwrap();
        drop(sender);
        limited(pair.b.close(SOON)).await.unwrap();
        let (peer, receiver) = pair.a.accept_bytes("land").await.unwrap();
        limited(peer.closed()).await;
        let sum = Arc::default();
        receiver.land(Box::new(Sum(Arc::clone(&sum), [0; 64])));
        until(|| sum.lock().unwrap().1.is_some()).await;
        assert_eq!(*sum.lock().unwrap(), (5, Some(true)));
    });
}

#[test]
fn nothing_is_opened_while_a_node_closes() {
    on_both(|| async {
        let pair = pair().await;
        let (mut sender, _receiver) = pair.bytes("before").await;
        sender.send(Bytes::from_static(b"hello")).await.unwrap();
        let node = pair.b.clone();
        let closing = tokio::spawn(async move { node.close(SOON).await });
        // Learns of it while the other thread is still closing.
        until(|| pair.b.is_closed()).await;
        assert!(pair.b.accept_bytes("after").await.is_err());
        assert!(pair.b.open_bytes(&pair.peer, "after").await.is_err());
        limited(closing).await.unwrap().unwrap();
    });
}

#[test]
fn a_refused_channel_that_had_ended_gives_its_window_back() {
    on_both(|| async {
        // Two initial windows, no more.
        let small = Node::builder().limits(windows_of(64 * 1024));
        let pair = pair_of(memory(), small, Node::builder()).await;
        for _ in 0..6 {
            let mut sender = pair.b.open_bytes(&pair.peer, "kinds").await.unwrap();
            sender.send(Bytes::from_static(b"hello")).await.unwrap();
            limited(sender.sync()).await.unwrap();
            limited(sender.close(SOON)).await.unwrap();
            assert!(limited(pair.a.accept::<u32>("kinds")).await.is_err());
        }
    });
}

#[test]
fn a_node_with_a_thread_of_its_own_closes_where_no_runtime_is() {
    let idle = std::task::Waker::noop();
    let mut context = std::task::Context::from_waker(idle);
    let mut run = |mut future: std::pin::Pin<Box<dyn Future<Output = Node>>>| loop {
        if let std::task::Poll::Ready(node) = future.as_mut().poll(&mut context) {
            return node;
        }
        std::thread::yield_now();
    };
    let node = run(Box::pin(async { Node::builder().io_thread().build().await.unwrap() }));
    run(Box::pin(async move {
        node.close(SOON).await.unwrap();
        node
    }));
}

#[test]
fn what_is_accepted_while_another_thread_closes_the_node_arrives() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    for round in 0..60u64 {
        let (pair, mut sender, mut receiver) = runtime.block_on(async {
            let own = || Node::builder().io_thread();
            let pair = pair_of(chunkcomm_testkit::tcp(), own(), own()).await;
            let (sender, receiver) = pair.channel::<u64>("race").await;
            (pair, sender, receiver)
        });
        let sending = std::thread::spawn(move || {
            let mut accepted = 0;
            loop {
                match sender.try_send(&accepted) {
                    Ok(()) => accepted += 1,
                    Err(chunkcomm::TrySendError::Full) => std::thread::yield_now(),
                    Err(_) => return accepted,
                }
            }
        });
        let received = runtime.block_on(async {
            let node = pair.b.clone();
            let closing = tokio::spawn(async move {
                tokio::time::sleep(Duration::from_micros(200 * (round % 10))).await;
                node.close(Duration::from_secs(20)).await
            });
            let mut received = 0;
            while let Ok(Some(number)) = limited(receiver.recv()).await {
                assert_eq!(number, received);
                received += 1;
            }
            limited(closing).await.unwrap().unwrap();
            received
        });
        let accepted = sending.join().unwrap();
        // The message during whose acceptance the node closed may have left all the same.
        assert!(received == accepted || received == accepted + 1, "{received} of {accepted}");
    }
}

/// Sends messages of these sizes until nothing more is wanted. Returns the numbers of messages
/// accepted and, in the end, acknowledged.
async fn send_until_stopped(mut sender: BytesSender, sizes: [usize; 3]) -> (u64, u64) {
    let error = loop {
        let number = sender.stats().accepted;
        let mut message = vec![number as u8; sizes[number as usize % 3]];
        message[..8].copy_from_slice(&number.to_le_bytes());
        if let Err(error) = sender.send(message.into()).await {
            break error;
        }
    };
    assert!(matches!(error, SendError::Terminated(_)), "{error}");
    // Close waits for messages on their way: it learns that they arrived or were given up.
    let accepted = sender.stats().accepted;
    let acknowledged = match sender.close(SOON).await {
        Ok(()) => accepted,
        Err(left) => left.channels[0].account.acknowledged,
    };
    (accepted, acknowledged)
}

fn is_message(bytes: &[u8], number: u64, sizes: [usize; 3]) -> bool {
    let rest = &bytes[8..];
    bytes.len() == sizes[number as usize % 3]
        && bytes[..8] == number.to_le_bytes()
        && rest.iter().all(|byte| *byte == number as u8)
}

#[test]
fn a_receiver_that_closed_takes_all_that_is_acknowledged_and_no_more() {
    on_both(|| async {
        let small = || {
            Node::builder().limits(Limits { message_bytes_max: 1 << 20, ..windows_of(256 * 1024) })
        };
        let pair = pair_of(chunkcomm_testkit::tcp(), small(), small()).await;
        let proxied = Proxy::before(&pair.a);
        let through = Node::builder().build().await.unwrap();
        let peer = through.connect(&proxied.address).await.unwrap();
        let mut random = seeded(5);
        let mut given_up = 0;
        // Small messages, some in fragments, some that wait for the memory of the link.
        for sizes in [[16; 3], [16, 30_000, 100], [900_000, 16, 400_000]].repeat(8) {
            let name = format!("{}", random.next_u64());
            let sender = through.open_bytes(&peer, &name).await.unwrap();
            let sending = tokio::spawn(send_until_stopped(sender, sizes));
            let (_, mut receiver) = limited(pair.a.accept_bytes(&name)).await.unwrap();
            let mut taken = 0;
            for _ in 0..random.below(20) {
                let message = limited(receiver.recv()).await.unwrap().unwrap();
                assert!(is_message(&message, taken, sizes), "message {taken}");
                taken += 1;
            }
            receiver.close();
            if random.below(3) == 0 {
                proxied.cut();
            }
            receiver.close();
            while let Some(message) = at_last!(receiver.recv()).unwrap() {
                assert!(is_message(&message, taken, sizes), "message {taken}");
                taken += 1;
            }
            let (accepted, acknowledged) = limited(sending).await.unwrap();
            assert_eq!(acknowledged, taken, "of {accepted}");
            given_up += accepted - acknowledged;
            receiver.close();
            assert!(limited(receiver.recv()).await.unwrap().is_none());
        }
        assert!(given_up > 0);
        // No memory of the link is left behind.
        let (mut sender, mut receiver) = pair.bytes("after").await;
        sender.send(Bytes::from(vec![7; 1 << 20])).await.unwrap();
        assert_eq!(limited(receiver.recv()).await.unwrap().unwrap().len(), 1 << 20);
    });
}

#[test]
fn closed_receivers_give_their_windows_back_drained_or_dropped() {
    on_both(|| async {
        // Two initial windows, no more.
        let small = Node::builder().limits(windows_of(64 * 1024));
        let pair = pair_of(memory(), small, Node::builder()).await;
        for round in 0..12u64 {
            let (mut sender, mut receiver) = pair.channel::<u64>("windows").await;
            sender.send_all(0..100u64).await.unwrap();
            limited(sender.sync()).await.unwrap();
            receiver.close();
            if round % 2 == 0 {
                for number in 0..100 {
                    assert_eq!(limited(receiver.recv()).await.unwrap(), Some(number));
                }
                assert_eq!(limited(receiver.recv()).await.unwrap(), None);
            }
            drop(receiver);
            let error = limited(sender.closed()).await;
            assert!(matches!(error, SendError::Terminated(_)), "{error}");
        }
    });
}

#[test]
fn a_receiver_that_closed_learns_that_the_session_ended_behind_what_had_arrived() {
    on_both(|| async {
        let pair = pair().await;
        let (mut sender, mut receiver) = pair.channel::<u64>("lost").await;
        sender.send_all(0..100u64).await.unwrap();
        limited(sender.sync()).await.unwrap();
        receiver.peer().abort();
        receiver.close();
        for number in 0..100 {
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some(number));
        }
        let error = limited(receiver.recv()).await.unwrap_err();
        assert!(matches!(error, RecvError::Lost { arrived: 100, .. }), "{error}");
    });
}
