//! Channels of the user's own bytes.

use bytes::Bytes;
use chunkcomm::channel::{Landing, SendingEnd, any_ready, send_bytes_to_all};
use chunkcomm::stats::FlushReason;
use chunkcomm::{Node, Policy, RecvError, SendError, TryRecvError, TrySendError, channel};
use chunkcomm_testkit::{
    NEVER, fill, limited, on_both, on_one_thread, pair, pair_of, tcp, until, waiting,
};
use std::future::poll_fn;
use std::time::Duration;
use tokio::sync::oneshot;

const SIZES: [usize; 9] = [0, 1, 249, 250, 8192, 8193, 300_000, 5_000_000, 7];

fn message(index: usize, size: usize) -> Bytes {
    let block: Vec<u8> = (0..1021).map(|at| (at * 31 + index) as u8).collect();
    let mut bytes = block.repeat(size / block.len() + 1);
    bytes.truncate(size);
    bytes.into()
}

#[test]
fn bytes_arrive_as_they_were() {
    on_both(|| async {
        let pair = pair().await;
        let (mut sender, mut receiver) = pair.bytes("bytes").await;
        assert_eq!((sender.name(), sender.peer().name()), ("bytes", "a"));
        assert_eq!((receiver.name(), receiver.peer().name()), ("bytes", "b"));
        let sending = tokio::spawn(async move {
            for (index, size) in SIZES.into_iter().enumerate() {
                sender.send(message(index, size)).await.unwrap();
                sender.send_slice(&message(index, size)).await.unwrap();
                sender.send_slice_now(&message(index, size.min(1000))).await.unwrap();
            }
            sender.flush().await.unwrap();
            sender.sync().await.unwrap();
            sender.close(Duration::from_secs(5)).await.unwrap();
        });
        for (index, size) in SIZES.into_iter().enumerate() {
            for size in [size, size, size.min(1000)] {
                let got = limited(receiver.recv()).await.unwrap().unwrap();
                assert!(got == message(index, size), "{size} bytes");
            }
        }
        assert!(limited(receiver.recv()).await.unwrap().is_none());
        limited(sending).await.unwrap();
    });
}

#[test]
fn recv_into_fills_the_callers_memory() {
    on_both(|| async {
        let pair = pair().await;
        let (mut sender, mut receiver) = pair.bytes("into").await;
        let sending = tokio::spawn(async move {
            for (index, size) in SIZES.into_iter().enumerate() {
                sender.send(message(index, size)).await.unwrap();
            }
        });
        let mut buffer = vec![0xEE; 5_000_000];
        for (index, size) in SIZES.into_iter().enumerate() {
            buffer.resize(5_000_000, 0xEE);
            let memory = buffer.as_ptr() as usize;
            buffer = limited(receiver.recv_into(buffer)).await.unwrap().unwrap();
            assert!(buffer == message(index, size), "{size} bytes");
            if size < 8192 {
                assert_eq!(buffer.as_ptr() as usize, memory, "{size} bytes came in other memory");
            }
        }
        assert!(limited(receiver.recv_into(buffer)).await.unwrap().is_none());
        limited(sending).await.unwrap();
    });
}

#[test]
fn a_large_message_that_is_awaited_lands_in_the_callers_memory() {
    on_both(|| async {
        let pair = pair().await;
        let (mut sender, mut receiver) = pair.bytes("awaited").await;
        let receiving = waiting(async move {
            let buffer = vec![0; 20_000_000];
            let memory = buffer.as_ptr() as usize;
            let buffer = limited(receiver.recv_into(buffer)).await.unwrap().unwrap();
            assert_eq!(buffer.as_ptr() as usize, memory);
            buffer
        })
        .await;
        sender.send(message(3, 20_000_000)).await.unwrap();
        assert!(receiving.await.unwrap() == message(3, 20_000_000));
    });
}

#[test]
fn a_buffer_that_comes_too_late_serves_the_next_message() {
    on_both(|| async {
        let pair = pair().await;
        let (mut sender, mut receiver) = pair.bytes("late").await;
        let mut late = Vec::new();
        for index in 0..3 {
            sender.send(message(index, 1_000_000)).await.unwrap();
            limited(sender.sync()).await.unwrap();
            let buffer = vec![0; 1_000_000 + index];
            let given = buffer.as_ptr() as usize;
            let buffer = limited(receiver.recv_into(buffer)).await.unwrap().unwrap();
            assert!(buffer == message(index, 1_000_000));
            let memory = buffer.as_ptr() as usize;
            assert!(late.last().is_none_or(|last| *last == memory), "it came in new memory");
            // Kept, so that no new memory is where it was.
            std::mem::forget(buffer);
            late.push(given);
        }
    });
}

#[test]
fn a_buffer_that_is_too_small_leaves_the_message_in_place() {
    on_one_thread(async {
        let pair = pair().await;
        let (mut sender, mut receiver) = pair.bytes("room").await;
        for size in [100usize, 100_000] {
            sender.send(message(1, size)).await.unwrap();
            let error = limited(receiver.recv_into(vec![0; size - 1])).await.unwrap_err();
            assert!(
                matches!(error, RecvError::BufferTooSmall { bytes, buffer_bytes }
                    if bytes == size && buffer_bytes == size - 1),
                "{error}"
            );
            let got = limited(receiver.recv_into(vec![0; size])).await.unwrap().unwrap();
            assert!(got == message(1, size));
        }
    });
}

#[test]
fn try_sends_and_receives_say_full_empty_and_ended() {
    on_one_thread(async {
        let pair = pair().await;
        let (mut sender, mut receiver) = pair.bytes("try").await;
        assert!(matches!(receiver.try_recv(), Err(TryRecvError::Empty)));
        let mut accepted = 0u32;
        let error = loop {
            match sender.try_send(&Bytes::copy_from_slice(&accepted.to_le_bytes())) {
                Ok(()) => accepted += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, TrySendError::Full));
        assert!(sender.capacity() < 8);
        let large = Bytes::from(vec![1; 800_000]);
        drop(sender);
        let mut taken = 0u32;
        until(|| {
            loop {
                match receiver.try_recv() {
                    Ok(message) => {
                        assert_eq!(message[..], taken.to_le_bytes());
                        taken += 1;
                    }
                    Err(TryRecvError::Empty) => return false,
                    Err(TryRecvError::Ended) => return true,
                    Err(error) => panic!("{error}"),
                }
            }
        })
        .await;
        assert_eq!(taken, accepted);
        // A message that needs the link's memory also reaches a receiver that only tries.
        let (mut sender, mut receiver) = pair.bytes("largest").await;
        sender.try_send(&Bytes::from(vec![2; 9_000_000])).unwrap();
        until(|| match receiver.try_recv() {
            Ok(message) => message == vec![2; 9_000_000],
            Err(TryRecvError::Empty) => false,
            Err(error) => panic!("{error}"),
        })
        .await;
        // Large messages wait beside the ring, up to 1 MiB or one.
        let (mut sender, mut receiver) = pair.bytes("large").await;
        sender.try_send(&large).unwrap();
        assert!(matches!(sender.try_send(&large), Err(TrySendError::Full)));
        until(|| match receiver.try_recv_with(<[u8]>::len) {
            Ok(size) => size == large.len(),
            Err(TryRecvError::Empty) => false,
            Err(error) => panic!("{error}"),
        })
        .await;
        drop(receiver);
        assert!(matches!(limited(sender.closed()).await, SendError::Terminated(_)));
    });
}

#[test]
fn what_is_looked_at_in_a_poll_comes_in_order_and_then_the_end() {
    on_one_thread(async {
        let pair = pair().await;
        let (mut sender, mut receiver) = pair.bytes("looked at").await;
        let sizes = [3, 0, 200_000, 5];
        let sending = async move {
            for size in sizes {
                sender.send(Bytes::from(vec![7; size])).await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        let looking = async {
            let mut seen = Vec::new();
            while let Some(size) =
                poll_fn(|context| receiver.poll_recv_with(context, <[u8]>::len)).await.unwrap()
            {
                seen.push(size);
            }
            seen
        };
        let ((), seen) = limited(async { tokio::join!(sending, looking) }).await;
        assert_eq!(seen, sizes);
    });
}

#[test]
fn plain_threads_send_and_receive() {
    let (sender, mut receiver, _pair) = on_one_thread(async {
        let on_a_thread = || Node::builder().io_thread();
        let pair = pair_of(tcp(), on_a_thread(), on_a_thread());
        let pair = pair.await;
        let (sender, receiver) = pair.bytes("threads").await;
        (sender, receiver, pair)
    });
    // The runtime on which they were made is gone.
    let sending = std::thread::spawn(move || {
        let mut sender = sender;
        for (index, size) in SIZES.into_iter().enumerate() {
            sender.blocking_send(&message(index, size)).unwrap();
            sender.blocking_send_slice(&message(index, size)).unwrap();
        }
        for number in 0..100_000u32 {
            sender.blocking_send_slice(&number.to_le_bytes()).unwrap();
        }
    });
    for (index, size) in SIZES.into_iter().enumerate() {
        for _ in 0..2 {
            assert!(receiver.blocking_recv().unwrap().unwrap() == message(index, size));
        }
    }
    for number in 0..100_000u32 {
        assert_eq!(receiver.blocking_recv().unwrap().unwrap()[..], number.to_le_bytes());
    }
    assert!(receiver.blocking_recv().unwrap().is_none());
    sending.join().unwrap();
}

/// Bytes that landed, and how the landing ended.
type Ended = (Vec<u8>, Result<(), RecvError>);

/// A landing that puts everything in one vector and sends how it ended.
struct Collect {
    memory: Vec<u8>,
    filled: usize,
    done: oneshot::Sender<Ended>,
}

impl Landing for Collect {
    fn room(&mut self) -> &mut [u8] {
        &mut self.memory[self.filled..]
    }

    fn advance(&mut self, bytes: usize) {
        self.filled += bytes;
    }

    fn end(mut self: Box<Self>, outcome: Result<(), RecvError>) {
        self.memory.truncate(self.filled);
        let _ = self.done.send((self.memory, outcome));
    }
}

#[test]
fn a_landing_gets_everything_in_order_whenever_it_begins() {
    on_both(|| async {
        for before in [0, 2, SIZES.len()] {
            let pair = pair().await;
            // Landed messages are settled.
            let options = channel("land").settled();
            let sender = pair.b.open_bytes(&pair.peer, options).await;
            let mut sender = sender.unwrap();
            let (_, receiver) = limited(pair.a.accept_bytes("land")).await.unwrap();
            let mut expected = Vec::new();
            for (index, size) in SIZES.into_iter().enumerate().take(before) {
                let message = message(index, size.min(3000));
                sender.send(message.clone()).await.unwrap();
                expected.extend_from_slice(&message);
            }
            limited(sender.sync()).await.unwrap();
            let (done, ended) = oneshot::channel();
            receiver.land(Box::new(Collect { memory: vec![0; 9_000_000], filled: 0, done }));
            for (index, size) in SIZES.into_iter().enumerate() {
                let message = message(index, size);
                limited(sender.send(message.clone())).await.unwrap();
                expected.extend_from_slice(&message);
                limited(sender.sync_settled()).await.unwrap();
            }
            drop(sender);
            let (bytes, outcome) = limited(ended).await.unwrap();
            outcome.unwrap();
            assert!(bytes == expected, "{} of {} bytes", bytes.len(), expected.len());
        }
    });
}

#[test]
fn a_landing_without_room_ends_the_sender() {
    on_both(|| async {
        for size in [100usize, 100_000] {
            let pair = pair().await;
            let (mut sender, receiver) = pair.bytes("small").await;
            let (done, ended) = oneshot::channel();
            receiver.land(Box::new(Collect { memory: vec![0; size + 1], filled: 0, done }));
            sender.send(message(1, size)).await.unwrap();
            sender.send(message(2, size)).await.unwrap();
            let (bytes, outcome) = limited(ended).await.unwrap();
            assert!(matches!(outcome, Err(RecvError::LandingFull { .. })));
            assert!(bytes[..size] == message(1, size));
            assert!(matches!(limited(sender.closed()).await, SendError::Terminated(_)));
            pair.is_well("after").await;
        }
    });
}

#[test]
fn a_landing_learns_that_the_link_is_lost() {
    on_both(|| async {
        let pair = pair().await;
        let (mut sender, receiver) = pair.bytes("lost").await;
        let (done, ended) = oneshot::channel();
        receiver.land(Box::new(Collect { memory: vec![0; 1000], filled: 0, done }));
        sender.send(message(1, 500)).await.unwrap();
        limited(sender.sync()).await.unwrap();
        pair.peer.abort();
        let (bytes, outcome) = limited(ended).await.unwrap();
        assert!(bytes == message(1, 500));
        let error = outcome.unwrap_err();
        assert!(error.to_string().contains("\"lost\"") && error.to_string().contains('b'));
    });
}

#[test]
fn a_message_sent_now_leaves_with_what_is_before_it() {
    on_both(|| async {
        let settings = Node::builder().policy(Policy::Linger(NEVER));
        let pair = pair_of(tcp(), Node::builder(), settings).await;
        let mut sender = pair.b.open_bytes(&pair.peer, "now").await.unwrap();
        sender.send(Bytes::from_static(b"first")).await.unwrap();
        sender.send_now(Bytes::from_static(b"urgent")).await.unwrap();
        let (_, mut receiver) = limited(pair.a.accept_bytes("now")).await.unwrap();
        for expected in [&b"first"[..], b"urgent"] {
            assert_eq!(limited(receiver.recv()).await.unwrap().unwrap()[..], *expected);
        }
        assert!(pair.peer.stats().flushes.get(FlushReason::Urgent) <= 1);
        until(|| sender.stats().flushes.get(FlushReason::Urgent) == 1).await;
    });
}

#[test]
fn many_at_once_in_both_directions() {
    on_both(|| async {
        let pair = pair().await;
        let (mut sender, mut receiver) = pair.bytes("many").await;
        let count = 3000;
        let size = |index: usize| SIZES[index % 6];
        let sending = tokio::spawn(async move {
            let all = (0..count).map(|index| message(index, size(index)));
            assert_eq!(sender.send_all(all).await.unwrap(), count);
            assert_eq!(sender.stats().accepted, count as u64);
        });
        let mut next = 0;
        assert_eq!(receiver.recv_many(&mut Vec::new(), 0).await.unwrap(), 0);
        loop {
            let mut got = vec![Bytes::from_static(b"kept")];
            let taken = limited(receiver.recv_many(&mut got, 100)).await.unwrap();
            assert!(taken <= 100 && got.len() == taken + 1);
            if taken == 0 {
                break;
            }
            for bytes in &got[1..] {
                assert!(*bytes == message(next, size(next)), "message {next}");
                next += 1;
            }
        }
        assert_eq!(next, count);
        limited(sending).await.unwrap();
    });
}

#[test]
fn reserved_room_is_there() {
    on_one_thread(async {
        let pair = pair().await;
        let (mut sender, mut receiver) = pair.bytes("reserve").await;
        let error = sender.reserve(100_000).await.unwrap_err();
        assert!(matches!(error, SendError::TooLargeToReserve { bytes: 100_000, .. }));
        sender.reserve(8000).await.unwrap().send(&message(1, 8000)).unwrap();
        sender.reserve(8000).await.unwrap().send_slice(&message(2, 8000)).unwrap();
        let mut count = 2;
        while sender.try_send(&message(3, 8000)).is_ok() {
            count += 1;
        }
        let taking = tokio::spawn(async move {
            let mut taken = 0;
            while let Some(message) = limited(receiver.recv()).await.unwrap() {
                assert_eq!(message.len(), 8000);
                taken += 1;
            }
            taken
        });
        // Once there is room, a clone takes it.
        let mut clone = sender.clone();
        let permit = limited(sender.reserve(8000)).await.unwrap();
        while clone.try_send(&message(3, 8000)).is_ok() {
            count += 1;
        }
        assert!(matches!(permit.send(&message(4, 8000)), Err(TrySendError::Full)));
        drop((sender, clone));
        assert_eq!(limited(taking).await.unwrap(), count);
    });
}

#[test]
fn the_same_bytes_to_all() {
    on_both(|| async {
        let pair = pair().await;
        let (mut senders, mut receivers) = (Vec::new(), Vec::new());
        for name in ["x", "y", "z"] {
            let (sender, receiver) = pair.bytes(name).await;
            senders.push(sender);
            receivers.push(receiver);
        }
        for (index, size) in SIZES.into_iter().enumerate() {
            let sent = message(index, size);
            limited(send_bytes_to_all(&mut senders, &sent)).await.unwrap();
            for receiver in &mut receivers {
                assert!(limited(receiver.recv()).await.unwrap().unwrap() == sent);
            }
        }
        drop(receivers.remove(1));
        limited(senders[1].closed()).await;
        let error = limited(send_bytes_to_all(&mut senders, &Bytes::new())).await.unwrap_err();
        assert!(matches!(&error.failed[..], [(1, SendError::Terminated(_))]), "{error}");
    });
}

#[test]
fn senders_of_any_kind_are_waited_for_together() {
    on_both(|| async {
        let pair = pair().await;
        let (mut numbers, mut from_numbers) = pair.channel::<u64>("numbers").await;
        let (mut texts, _from_texts) = pair.channel::<String>("texts").await;
        let (mut raw, _from_raw) = pair.bytes("raw").await;
        let in_numbers = fill(&mut numbers, &1).await;
        let mut ends: [&mut dyn SendingEnd; 3] = [&mut numbers, &mut texts, &mut raw];
        assert_eq!(limited(any_ready(&mut ends, 100)).await.unwrap(), 1);
        fill(&mut texts, &"text".to_owned()).await;
        let mut ends: [&mut dyn SendingEnd; 3] = [&mut numbers, &mut texts, &mut raw];
        assert_eq!(limited(any_ready(&mut ends, 100)).await.unwrap(), 2);
        let credit_waits = raw.peer().stats().credit_waits;
        until(|| {
            let _ = raw.try_send(&message(1, 90));
            raw.peer().stats().credit_waits > credit_waits
                && raw.try_send(&message(1, 5000)).is_err()
                && raw.capacity() < 100
        })
        .await;
        let taking = tokio::spawn(async move {
            for _ in 0..in_numbers {
                limited(from_numbers.recv()).await.unwrap();
            }
            from_numbers
        });
        let mut ends: [&mut dyn SendingEnd; 3] = [&mut numbers, &mut texts, &mut raw];
        assert_eq!(limited(any_ready(&mut ends, 100)).await.unwrap(), 0);
        drop(limited(taking).await.unwrap());
        assert_eq!(limited(any_ready(&mut [raw.clone()], 0)).await.unwrap(), 0);
    });
}
