//! Every future of the public face, dropped at each place where it can wait. Nothing accepted is
//! lost, nothing is doubled, and a cancelled call can be made again.

use bytes::Bytes;
use chunkcomm::channel::{SendingEnd, any_ready, send_bytes_to_all, send_to_all};
use chunkcomm::{Address, Lane, Node, Receiver, RecvError, SelectAll, SendError, Sender, channel};
use chunkcomm_cluster::launch::Launcher;
use chunkcomm_testkit::{
    Pair, all, at_last, cancelled, fill, limited, memory, on_both, on_one_thread, packets_of,
    pair_of, windows_of,
};
use futures_core::Stream;
use futures_sink::Sink;
use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

/// Returns nodes whose outboxes and windows are so small that everything waits.
async fn tight() -> Pair {
    let small = || Node::builder().limits(windows_of(256 * 1024)).experiment(packets_of(1024));
    pair_of(memory(), small(), small()).await
}

/// Returns a size: some are small, some fill a packet, some travel in fragments.
fn size(number: u32) -> usize {
    [10, 300, 0, 700, 6000, 25, 8180, 8200, 90_000, 400][number as usize % 10]
}

const COUNT: u32 = 300;

/// Returns the message of a number; text, since that is fast to decode.
fn value(number: u32) -> (u32, String) {
    let letter = char::from(b'a' + (number % 26) as u8);
    (number, letter.to_string().repeat(size(number)))
}

async fn takes_all(mut receiver: Receiver<(u32, String)>) {
    for number in 0..COUNT {
        let got = limited(receiver.recv()).await.unwrap();
        assert!(got == Some(value(number)), "message {number}");
    }
    assert_eq!(limited(receiver.recv()).await.unwrap(), None);
}

#[test]
fn send_and_send_now() {
    on_both(|| async {
        let pair = tight().await;
        let (mut sender, receiver) = pair.channel("send").await;
        let taking = tokio::spawn(takes_all(receiver));
        for number in 0..COUNT {
            let message = value(number);
            if number % 3 == 0 {
                at_last!(sender.send_now(&message)).unwrap();
            } else {
                at_last!(sender.send(&message)).unwrap();
            }
            assert_eq!(sender.stats().accepted, u64::from(number) + 1);
        }
        drop(sender);
        limited(taking).await.unwrap();
    });
}

#[test]
fn send_of_a_clone() {
    on_both(|| async {
        let pair = tight().await;
        let (mut sender, receiver) = pair.channel("clone").await;
        let mut clone = sender.clone();
        let taking = tokio::spawn(takes_all(receiver));
        for number in 0..COUNT {
            let message = value(number);
            let sender = if number % 2 == 0 { &mut sender } else { &mut clone };
            at_last!(sender.send(&message)).unwrap();
        }
        drop((sender, clone));
        limited(taking).await.unwrap();
    });
}

#[test]
fn send_all() {
    on_both(|| async {
        let pair = tight().await;
        let (mut sender, receiver) = pair.channel("all").await;
        let taking = tokio::spawn(takes_all(receiver));
        at_last!({
            // Messages accepted before the future was dropped stay accepted.
            let accepted = sender.stats().accepted as u32;
            sender.send_all((accepted..COUNT).map(value))
        })
        .unwrap();
        assert_eq!(sender.stats().accepted, u64::from(COUNT));
        drop(sender);
        limited(taking).await.unwrap();
    });
}

#[test]
fn reserve_and_the_calls_of_a_sink() {
    on_both(|| async {
        let pair = tight().await;
        let (mut sender, receiver) = pair.channel("reserve").await;
        let taking = tokio::spawn(takes_all(receiver));
        for number in 0..COUNT {
            let message = value(number);
            if number % 2 == 0 && size(number) < 600 {
                let permit = at_last!(sender.reserve(size(number) + 12)).unwrap();
                permit.send(&message).unwrap();
            } else {
                at_last!(poll_fn(|context| Pin::new(&mut sender).poll_ready(context))).unwrap();
                Pin::new(&mut sender).start_send(message).unwrap();
            }
            if number % 50 == 0 {
                at_last!(poll_fn(|context| Pin::new(&mut sender).poll_flush(context))).unwrap();
                assert_eq!(sender.stats().written, u64::from(number) + 1);
            }
        }
        at_last!(poll_fn(|context| Sink::poll_close(Pin::new(&mut sender), context))).unwrap();
        drop(sender);
        limited(taking).await.unwrap();
    });
}

#[test]
fn flush_and_sync() {
    on_both(|| async {
        let pair = tight().await;
        let (mut sender, receiver) = pair.channel("flush").await;
        let taking = tokio::spawn(takes_all(receiver));
        for number in 0..COUNT {
            sender.send(&value(number)).await.unwrap();
            if number % 20 == 0 {
                at_last!(sender.flush()).unwrap();
                assert_eq!(sender.stats().written, u64::from(number) + 1);
            } else if number % 20 == 10 {
                at_last!(sender.sync()).unwrap();
                assert_eq!(sender.stats().acknowledged, u64::from(number) + 1);
            }
        }
        drop(sender);
        limited(taking).await.unwrap();
    });
}

#[test]
fn the_close_of_a_sender() {
    on_both(|| async {
        for waits in 0..6 {
            let pair = tight().await;
            let (mut sender, receiver) = pair.channel("close").await;
            let taking = tokio::spawn(takes_all(receiver));
            for number in 0..COUNT {
                limited(sender.send(&value(number))).await.unwrap();
            }
            // If the close is dropped early, the channel ends as if the sender had been dropped.
            cancelled(waits, sender.close(Duration::from_secs(20))).await;
            limited(taking).await.unwrap();
        }
    });
}

#[test]
fn closed_of_a_sender_and_of_a_peer() {
    on_both(|| async {
        let pair = tight().await;
        let (mut sender, receiver) = pair.channel::<u32>("closed").await;
        for waits in 0..2 {
            assert!(cancelled(waits, sender.closed()).await.is_none());
            assert!(cancelled(waits, pair.peer.closed()).await.is_none());
        }
        sender.send(&1).await.unwrap();
        drop(receiver);
        assert!(matches!(limited(sender.closed()).await, SendError::Terminated(_)));
        pair.peer.abort();
        limited(pair.peer.closed()).await;
    });
}

/// Sends everything, with all its waits.
fn sends_all(mut sender: Sender<(u32, String)>) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        for number in 0..COUNT {
            limited(sender.send(&value(number))).await.unwrap();
            if number % 7 == 0 {
                tokio::task::yield_now().await;
            }
        }
    })
}

#[test]
fn recv_recv_many_and_the_stream() {
    on_both(|| async {
        let pair = tight().await;
        let (sender, mut receiver) = pair.channel("recv").await;
        let sending = sends_all(sender);
        let mut next = 0;
        loop {
            let mut got = Vec::new();
            match next % 3 {
                0 => got.extend(at_last!(receiver.recv()).unwrap()),
                1 => {
                    at_last!(receiver.recv_many(&mut got, 5)).unwrap();
                }
                _ => {
                    let item =
                        at_last!(poll_fn(|context| Pin::new(&mut receiver).poll_next(context)));
                    got.extend(item.transpose().unwrap());
                }
            }
            if got.is_empty() {
                break;
            }
            for message in got {
                assert!(message == value(next), "message {next}");
                next += 1;
            }
        }
        assert_eq!(next, COUNT);
        limited(sending).await.unwrap();
    });
}

#[test]
fn the_recv_of_select_all() {
    on_both(|| async {
        let pair = tight().await;
        let mut all = SelectAll::new();
        for name in ["one", "two"] {
            let (sender, receiver) = pair.channel(name).await;
            all.add(receiver);
            sends_all(sender);
        }
        let mut next = [0, 0];
        while let Some((index, message)) = at_last!(all.recv()).unwrap() {
            assert!(message == value(next[index]), "message {} of {index}", next[index]);
            next[index] += 1;
        }
        assert_eq!(next, [COUNT; 2]);
    });
}

#[test]
fn bytes_both_ends() {
    on_both(|| async {
        let pair = tight().await;
        let (mut sender, mut receiver) = pair.bytes("bytes").await;
        let sending = tokio::spawn(async move {
            for number in 0..COUNT {
                let (_, text) = value(number);
                let bytes = text.into_bytes();
                match number % 3 {
                    0 => at_last!(sender.send(Bytes::from(bytes.clone()))).unwrap(),
                    1 => at_last!(sender.send_slice(&bytes)).unwrap(),
                    _ => at_last!(sender.send_slice_now(&bytes)).unwrap(),
                }
                assert_eq!(sender.stats().accepted, u64::from(number) + 1);
                if number % 40 == 0 {
                    at_last!(sender.flush()).unwrap();
                    at_last!(sender.sync()).unwrap();
                }
                assert!(cancelled(number % 2, sender.closed()).await.is_none());
            }
            cancelled(2, sender.close(Duration::from_secs(20))).await;
        });
        for number in 0..COUNT {
            let (_, expected) = value(number);
            // A message that is begun in a buffer which is then dropped is not lost, wherever the
            // future is dropped.
            let got = if number % 2 == 0 {
                at_last!(receiver.recv_into(vec![0; 100_000])).unwrap().unwrap()
            } else {
                at_last!(receiver.recv()).unwrap().unwrap().to_vec()
            };
            assert!(got == expected.as_bytes(), "message {number}");
        }
        assert!(at_last!(receiver.recv_into(Vec::new())).unwrap().is_none());
        limited(sending).await.unwrap();
    });
}

#[test]
fn the_further_calls_of_bytes() {
    on_both(|| async {
        let pair = tight().await;
        let (mut sender, mut receiver) = pair.bytes("bytes").await;
        let text = |number| Bytes::from(value(number).1);
        let sending = tokio::spawn(async move {
            while (sender.stats().accepted as u32) < COUNT {
                let number = sender.stats().accepted as u32;
                match number % 4 {
                    0 => at_last!(sender.send_now(text(number))).unwrap(),
                    1 if size(number) < 600 => {
                        let permit = at_last!(sender.reserve(size(number))).unwrap();
                        permit.send(&text(number)).unwrap();
                    }
                    2 => {
                        at_last!(poll_fn(|context| Pin::new(&mut sender).poll_ready(context)))
                            .unwrap();
                        Pin::new(&mut sender).start_send(text(number)).unwrap();
                        at_last!(poll_fn(|context| Pin::new(&mut sender).poll_flush(context)))
                            .unwrap();
                    }
                    _ => {
                        at_last!({
                            // Messages accepted before the future was dropped stay accepted.
                            let accepted = sender.stats().accepted as u32;
                            sender.send_all((accepted..(number + 5).min(COUNT)).map(text))
                        })
                        .unwrap();
                    }
                }
            }
            at_last!(poll_fn(|context| Sink::poll_close(Pin::new(&mut sender), context))).unwrap();
            at_last!(sender.sync()).unwrap();
        });
        let mut next = 0;
        loop {
            let mut got = Vec::new();
            if next % 2 == 0 {
                at_last!(receiver.recv_many(&mut got, 3)).unwrap();
            } else {
                let item = at_last!(poll_fn(|context| Pin::new(&mut receiver).poll_next(context)));
                got.extend(item.transpose().unwrap());
            }
            if got.is_empty() {
                break;
            }
            for message in got {
                assert!(message == text(next), "message {next}");
                next += 1;
            }
        }
        assert_eq!(next, COUNT);
        limited(sending).await.unwrap();
    });
}

#[test]
fn the_close_of_a_bytes_sender() {
    on_both(|| async {
        let mut waits = 0;
        loop {
            let pair = tight().await;
            let (mut sender, mut receiver) = pair.bytes("close").await;
            let taking = tokio::spawn(async move {
                for number in 0..COUNT {
                    let got = limited(receiver.recv()).await.unwrap().unwrap();
                    assert!(got == value(number).1.as_bytes(), "message {number}");
                }
                assert!(limited(receiver.recv()).await.unwrap().is_none());
            });
            for number in 0..COUNT {
                limited(sender.send(Bytes::from(value(number).1))).await.unwrap();
            }
            // If the close is dropped early, the channel ends as if the sender had been dropped.
            let closed = cancelled(waits, sender.close(Duration::from_secs(20))).await;
            limited(taking).await.unwrap();
            if let Some(closed) = closed {
                break closed.unwrap();
            }
            waits += 1;
        }
    });
}

#[test]
fn a_sink_whose_room_a_clone_takes() {
    on_both(|| async {
        let pair = tight().await;
        let (mut sender, receiver) = pair.channel("held").await;
        let taking = tokio::spawn(takes_all(receiver));
        let mut next = 0;
        while next < COUNT {
            at_last!(poll_fn(|context| Pin::new(&mut sender).poll_ready(context))).unwrap();
            let mut clone = sender.clone();
            while next < COUNT - 1 && clone.try_send(&value(next)).is_ok() {
                next += 1;
            }
            Pin::new(&mut sender).start_send(value(next)).unwrap();
            next += 1;
            match next % 4 {
                0 => at_last!(sender.flush()).unwrap(),
                1 => at_last!(sender.sync()).unwrap(),
                2 => drop(at_last!(sender.reserve(10)).unwrap()),
                _ if next < COUNT => {
                    at_last!(sender.send(&value(next))).unwrap();
                    next += 1;
                }
                _ => {}
            }
        }
        at_last!(poll_fn(|context| Sink::poll_close(Pin::new(&mut sender), context))).unwrap();
        assert_eq!(sender.stats().accepted, u64::from(COUNT));
        limited(taking).await.unwrap();
    });
}

#[test]
fn the_recv_of_select_all_of_bytes() {
    on_both(|| async {
        let pair = tight().await;
        let mut all = SelectAll::new();
        for name in ["one", "two"] {
            let (mut sender, receiver) = pair.bytes(name).await;
            all.add(receiver);
            tokio::spawn(async move {
                for number in 0..COUNT {
                    limited(sender.send(Bytes::from(value(number).1))).await.unwrap();
                }
            });
        }
        let mut next = [0, 0];
        while let Some((index, message)) = at_last!(all.recv()).unwrap() {
            assert!(message == value(next[index]).1.as_bytes(), "{} of {index}", next[index]);
            next[index] += 1;
        }
        assert_eq!(next, [COUNT; 2]);
    });
}

#[test]
fn send_bytes_to_all_and_any_ready_of_several_kinds() {
    on_both(|| async {
        let pair = tight().await;
        let (mut senders, mut taking) = (Vec::new(), Vec::new());
        for name in ["one", "two", "three"] {
            let (sender, mut receiver) = pair.bytes(name).await;
            senders.push(sender);
            taking.push(tokio::spawn(async move {
                for number in 0..COUNT {
                    let got = limited(receiver.recv()).await.unwrap().unwrap();
                    assert!(got == value(number).1.as_bytes(), "message {number}");
                }
            }));
        }
        let (mut typed, _from_typed) = pair.channel::<u32>("typed").await;
        fill(&mut typed, &1).await;
        for number in 0..COUNT {
            let [one, two, three] = &mut senders[..] else { unreachable!() };
            let mut ends: [&mut (dyn SendingEnd + Sync); 4] = [&mut typed, one, two, three];
            assert!(at_last!(any_ready(&mut ends, 300)).unwrap() > 0);
            let message = Bytes::from(value(number).1);
            at_last!({
                let behind = senders
                    .iter()
                    .position(|sender| sender.stats().accepted == u64::from(number))
                    .unwrap_or(senders.len());
                send_bytes_to_all(&mut senders[behind..], &message)
            })
            .unwrap();
        }
        for task in taking {
            limited(task).await.unwrap();
        }
    });
}

#[test]
fn the_exits_of_children() {
    on_both(|| async {
        let nobody = Address::Memory("nobody".into());
        let shell = Launcher::new(nobody).program("/bin/sh").args(["-c", "exit $CHUNKCOMM_INDEX"]);
        let mut children = shell.spawn(3).unwrap();
        let mut codes = [None; 3];
        while let Some(exit) = at_last!(children.exited()) {
            assert_eq!(codes[exit.index].replace(exit.status.unwrap().code()), None);
        }
        assert_eq!(codes, [0, 1, 2].map(|code| Some(Some(code))));
    });
}

#[test]
fn any_ready_and_send_to_all() {
    on_both(|| async {
        let pair = tight().await;
        let (mut senders, mut taking) = (Vec::new(), Vec::new());
        for name in ["one", "two", "three"] {
            let (sender, receiver) = pair.channel(name).await;
            senders.push(sender);
            taking.push(tokio::spawn(takes_all(receiver)));
        }
        for number in 0..COUNT {
            let message = value(number);
            at_last!(any_ready(&mut senders, 300)).unwrap();
            // The senders that accepted before the future was dropped are the first ones.
            at_last!({
                let behind = senders
                    .iter()
                    .position(|sender| sender.stats().accepted == u64::from(number))
                    .unwrap_or(senders.len());
                send_to_all(&mut senders[behind..], &message)
            })
            .unwrap();
            for sender in &senders {
                assert_eq!(sender.stats().accepted, u64::from(number) + 1);
            }
        }
        drop(senders);
        for task in taking {
            limited(task).await.unwrap();
        }
    });
}

#[test]
fn open_and_accept() {
    on_both(|| async {
        let pair = tight().await;
        for round in 0..20u32 {
            let a = pair.a.clone();
            let (typed, bytes) = (format!("typed {round}"), format!("bytes {round}"));
            let names = (typed.clone(), bytes.clone());
            let accepting = tokio::spawn(async move {
                let typed = at_last!(a.accept::<u32>(&names.0)).unwrap();
                let bytes = at_last!(a.accept_bytes(&names.1)).unwrap();
                (typed.1, bytes.1)
            });
            for _ in 0..round % 4 {
                tokio::task::yield_now().await;
            }
            let mut values: Sender<u32> = at_last!(pair.b.open(&pair.peer, &typed)).unwrap();
            let mut raw = at_last!(pair.b.open_bytes(&pair.peer, &bytes)).unwrap();
            values.send(&round).await.unwrap();
            raw.send_slice(b"raw").await.unwrap();
            let (mut receiver, mut from_raw) = limited(accepting).await.unwrap();
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some(round));
            assert_eq!(limited(from_raw.recv()).await.unwrap().unwrap()[..], *b"raw");
        }
    });
}

#[test]
fn open_and_accept_with_options() {
    on_both(|| async {
        let pair = tight().await;
        let options = |name: &str| channel(name).lane(Lane::Express).schema("the same");
        for round in 0..20u32 {
            let a = pair.a.clone();
            let (typed, bytes) = (format!("typed {round}"), format!("bytes {round}"));
            let names = (typed.clone(), bytes.clone());
            let accepting = tokio::spawn(async move {
                let typed = at_last!(a.accept::<u64>(options(&names.0))).unwrap();
                let bytes = at_last!(a.accept_bytes(options(&names.1))).unwrap();
                (typed.1, bytes.1)
            });
            for _ in 0..round % 4 {
                tokio::task::yield_now().await;
            }
            let mut values: Sender<(u32, u32)> =
                at_last!(pair.b.open(&pair.peer, options(&typed))).unwrap();
            let mut raw = at_last!(pair.b.open_bytes(&pair.peer, options(&bytes))).unwrap();
            values.send(&(round, 0)).await.unwrap();
            raw.send_slice(b"raw").await.unwrap();
            let (mut receiver, mut from_raw) = limited(accepting).await.unwrap();
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some(u64::from(round)));
            assert_eq!(limited(from_raw.recv()).await.unwrap().unwrap()[..], *b"raw");
        }
    });
}

#[test]
fn an_accept_that_is_dropped_while_it_refuses_has_refused() {
    on_both(|| async {
        let pair = tight().await;
        for waits in 1..4 {
            let mut sender: Sender<u32> = pair.b.open(&pair.peer, "wrong").await.unwrap();
            sender.send(&1).await.unwrap();
            limited(sender.flush()).await.unwrap();
            // The channel of `is_well` was opened later and has arrived, so this open waits there.
            // The accept refuses before its first wait, for whatever reason it wakes.
            pair.is_well(&format!("later {waits}")).await;
            let refused = limited(cancelled(waits, pair.a.accept::<u64>("wrong"))).await;
            assert!(!matches!(refused, Some(Ok(_))));
            assert!(matches!(limited(sender.closed()).await, SendError::Refused(_)));
        }
        pair.is_well("after").await;
    });
}

#[test]
fn build_connect_and_local() {
    on_both(|| async {
        let address = memory();
        let a = loop_build(|| Node::builder().name("a").listen(address.clone())).await;
        let b = loop_build(|| Node::builder().name("b")).await;
        let peer = at_last!(b.connect(&a.addresses()[0])).unwrap();
        Pair { a, b: b.clone(), peer }.is_well("connected").await;
        let myself = at_last!(b.local()).unwrap();
        let mut sender: Sender<u8> = b.open(&myself, "myself").await.unwrap();
        let (_, mut receiver) = limited(b.accept::<u8>("myself")).await.unwrap();
        sender.send(&1).await.unwrap();
        assert_eq!(limited(receiver.recv()).await.unwrap(), Some(1));
    });
}

/// Builds a node, dropped at each wait; the address of a node that was given up is free again.
async fn loop_build(settings: impl Fn() -> chunkcomm::NodeBuilder) -> Node {
    let mut waits = 0;
    for _ in 0..1000 {
        match cancelled(waits, settings().build()).await {
            Some(Ok(node)) => return node,
            // The dropped node is still being built and let go.
            Some(Err(_)) => {}
            None => waits += 1,
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("the address stays taken");
}

#[test]
fn the_close_of_a_node() {
    on_both(|| async {
        for waits in 0..6 {
            let pair = tight().await;
            let (mut sender, mut receiver) = pair.channel::<u32>("close").await;
            sender.send_all(0..50u32).await.unwrap();
            let done = cancelled(waits, pair.b.close(Duration::from_secs(20))).await;
            if waits == 0 {
                assert!(done.is_none() && pair.peer.is_alive());
                drop(sender);
            }
            // If the close is dropped early, closing goes on.
            assert_eq!(all(&mut receiver).await, (0..50).collect::<Vec<_>>());
            if waits > 0 {
                assert!(limited(pair.peer.closed()).await.is_closed());
            }
        }
    });
}

#[test]
fn a_wait_that_was_dropped_is_woken_for_the_next_one() {
    on_one_thread(async {
        let pair = tight().await;
        let (mut sender, mut receiver) = pair.channel::<u32>("again").await;
        // The first wait is dropped by another task than the one that waits then.
        let waited = tokio::spawn(async move {
            assert!(cancelled(1, receiver.recv()).await.is_none());
            receiver
        });
        let mut receiver = waited.await.unwrap();
        let waits = tokio::spawn(async move { receiver.recv().await });
        tokio::task::yield_now().await;
        sender.send(&5).await.unwrap();
        assert_eq!(limited(waits).await.unwrap().unwrap(), Some(5));
        let lost: Result<Option<u32>, RecvError> = Ok(None);
        assert!(lost.is_ok());
    });
}
