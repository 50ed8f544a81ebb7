//! Channels with a backlog, used in every way at random: the bound holds, and nobody waits for ever.

use bytes::Bytes;
use chunkcomm::channel::Landing;
use chunkcomm::error::RecvError;
use chunkcomm::{BytesReceiver, BytesSender, Node, SelectAll, TrySendError, channel};
use chunkcomm_testkit::proxy::Proxy;
use chunkcomm_testkit::random::{Random, seeded};
use chunkcomm_testkit::{Pair, limited, memory, on_both, on_one_thread, pair_of, tcp, until};
use futures_sink::Sink;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use tokio::sync::oneshot;

/// Messages of a scenario.
const MESSAGES: usize = 300;

/// The messages that are accepted and not taken, by their bytes.
#[derive(Default)]
struct Held {
    sizes: std::collections::VecDeque<u64>,
    bytes: u64,
    taken: usize,
    /// Whether the receiver has given memory for the next message: it is taken when it lies there.
    into: bool,
}

type Shared = Arc<Mutex<Held>>;

/// Notes an accepted message. A message costs at least its bytes and one more.
fn accepted(held: &Shared, size: usize, bytes_max: u64, by_sink: bool) {
    let mut held = held.lock().unwrap();
    let cost = size as u64 + 1;
    held.sizes.push_back(cost);
    held.bytes += cost;
    // The size of a sink's item is not known when the sink is ready.
    let bytes = held.bytes - if held.into { held.sizes[0] } else { 0 };
    let count = held.sizes.len() - usize::from(held.into && held.sizes.len() > 1);
    let before = bytes.saturating_sub(cost);
    let fits = bytes <= bytes_max || count == 1 || by_sink && before < bytes_max;
    assert!(fits, "{} of {bytes_max} bytes in {} messages", held.bytes, held.sizes.len());
}

fn taken(held: &Shared, message: &[u8]) {
    let mut held = held.lock().unwrap();
    let size = held.sizes.pop_front().unwrap();
    held.bytes -= size;
    assert_eq!(message.len() as u64 + 1, size);
    assert!(message.iter().all(|byte| *byte == held.taken as u8), "message {}", held.taken);
    held.taken += 1;
}

/// A size near one of the thresholds of `bytes_max`.
fn size(random: &mut Random, bytes_max: u64) -> usize {
    let around = |random: &mut Random, at: u64| (at + random.below(16)).saturating_sub(8) as usize;
    match random.below(24) {
        0..6 => random.below(12) as usize,
        6..12 => random.below(600) as usize,
        12..14 => around(random, 250),
        14..16 => around(random, 512),
        16..18 => around(random, 8192),
        18..21 => around(random, bytes_max),
        21 => around(random, bytes_max / 8),
        22 => around(random, 16 * 1024),
        _ => random.below(150_000) as usize,
    }
}

async fn ready(sender: &mut BytesSender) {
    limited(poll_fn(|context| Pin::new(&mut *sender).poll_ready(context))).await.unwrap();
}

async fn send(mut sender: BytesSender, held: Shared, bytes_max: u64, seed: u64) {
    let mut random = seeded(seed);
    let mut clone: Option<BytesSender> = None;
    let mut number = 0;
    while number < MESSAGES {
        let size = size(&mut random, bytes_max);
        let message = Bytes::from(vec![number as u8; size]);
        let by = random.below(9);
        match by {
            0 => limited(sender.send(message)).await.unwrap(),
            1 => limited(sender.send_slice(&message)).await.unwrap(),
            2 => loop {
                match sender.try_send(&message) {
                    Ok(()) => break,
                    Err(TrySendError::Full) => tokio::task::yield_now().await,
                    Err(error) => panic!("{error}"),
                }
            },
            3 if size < 4000 => {
                let permit = limited(sender.reserve(size)).await.unwrap();
                permit.send(&message).unwrap();
            }
            4 => {
                ready(&mut sender).await;
                Pin::new(&mut sender).start_send(message).unwrap();
            }
            5 if clone.is_none() && random.below(10) == 0 => {
                clone = Some(sender.clone());
                continue;
            }
            6 if clone.is_some() => {
                limited(clone.as_mut().unwrap().send(message)).await.unwrap();
            }
            7 => limited(sender.send_now(message)).await.unwrap(),
            _ => {
                if let Err(error) = limited(sender.send_all([message])).await {
                    panic!("{error}");
                }
            }
        }
        accepted(&held, size, bytes_max, by == 4);
        number += 1;
        match random.below(60) {
            0 => limited(sender.sync()).await.unwrap(),
            1 => limited(sender.flush()).await.unwrap(),
            _ => {}
        }
    }
}

async fn receive(mut receiver: BytesReceiver, held: Shared, seed: u64) {
    let mut random = seeded(seed);
    loop {
        match random.below(6) {
            0 => match limited(receiver.recv()).await.unwrap() {
                Some(message) => taken(&held, &message),
                None => return,
            },
            1 => match receiver.try_recv() {
                Ok(message) => taken(&held, &message),
                Err(_) => tokio::task::yield_now().await,
            },
            2 => {
                let _ = receiver.try_recv_with(|message| taken(&held, message));
                tokio::task::yield_now().await;
            }
            3 => {
                let mut messages = Vec::new();
                let max = 1 + random.below(30) as usize;
                let count = limited(receiver.recv_many(&mut messages, max)).await.unwrap();
                messages.iter().for_each(|message| taken(&held, message));
                if count == 0 {
                    return;
                }
            }
            4 => {
                let buffer = vec![0; [100, 9_000, 200_000][random.below(3) as usize]];
                held.lock().unwrap().into = true;
                let received = limited(receiver.recv_into(buffer)).await;
                held.lock().unwrap().into = false;
                match received {
                    Ok(Some(message)) => taken(&held, &message),
                    Ok(None) => return,
                    Err(RecvError::BufferTooSmall { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            _ => tokio::task::yield_now().await,
        }
    }
}

#[test]
fn the_bound_holds_however_a_channel_is_used() {
    for seed in 0..30_u64 {
        println!("seed {seed}");
        let scenario = async move {
            let mut random = seeded(seed);
            let bytes_max = [4096, 5000, 8200, 20_000, 100_000, 1 << 20][random.below(6) as usize];
            let address = if random.below(2) == 0 { tcp() } else { memory() };
            let pair = pair_of(address, Node::builder(), Node::builder()).await;
            let mut options = channel("any").backlog(bytes_max);
            if random.below(3) == 0 {
                options = options.settled();
            }
            let sender = pair.b.open_bytes(&pair.peer, options).await.unwrap();
            let (_, receiver) = limited(pair.a.accept_bytes("any")).await.unwrap();
            let held = Shared::default();
            let sending = tokio::spawn(send(sender, Arc::clone(&held), bytes_max, seed + 1_000));
            receive(receiver, Arc::clone(&held), seed + 2_000).await;
            sending.await.unwrap();
            assert_eq!(held.lock().unwrap().taken, MESSAGES);
        };
        on_one_thread(scenario);
    }
}

/// Receivers of a `SelectAll`, each behind a sender that is ahead by its own bound.
#[test]
fn selected_receivers_report_over_cuts() {
    on_both(|| async {
        let seed = 11;
        println!("seed {seed}");
        let a = Node::builder().name("a").listen(tcp()).build().await.unwrap();
        let b = Node::builder().name("b").build().await.unwrap();
        let proxy = Proxy::before(&a);
        let peer = b.connect(&proxy.address).await.unwrap();
        let pair = Pair { a, b, peer };
        let mut select = SelectAll::new();
        let mut sending = Vec::new();
        for (at, bytes_max) in [4096_u64, 9_000, 200_000].into_iter().enumerate() {
            let options = channel("selected").backlog(bytes_max);
            let mut sender = pair.b.open_bytes(&pair.peer, options).await.unwrap();
            select.add(limited(pair.a.accept_bytes("selected")).await.unwrap().1);
            sending.push(tokio::spawn(async move {
                let mut random = seeded(seed + at as u64);
                for number in 0..MESSAGES {
                    let size = size(&mut random, bytes_max).min(40_000);
                    let message = Bytes::from(vec![number as u8; size]);
                    limited(sender.send(message)).await.unwrap();
                }
            }));
        }
        let mut counts = [0; 3];
        let mut random = seeded(seed);
        while let Some((index, message)) = limited(select.recv()).await.unwrap() {
            assert!(message.iter().all(|byte| *byte == counts[index] as u8));
            counts[index] += 1;
            if random.below(60) == 0 {
                proxy.cut();
            }
        }
        assert_eq!(counts, [MESSAGES; 3]);
        for sending in sending {
            sending.await.unwrap();
        }
    });
}

/// Counts the bytes that land.
struct Counting {
    memory: Vec<u8>,
    bytes: usize,
    done: Option<oneshot::Sender<usize>>,
}

impl Landing for Counting {
    fn room(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    fn advance(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    fn end(mut self: Box<Self>, outcome: Result<(), RecvError>) {
        outcome.unwrap();
        let _ = self.done.take().unwrap().send(self.bytes);
    }
}

/// Messages that arrive while a landing is chosen are reported to the last byte: a message above the backlog
/// waits for that.
#[test]
fn a_landing_that_is_chosen_at_any_time_reports_everything() {
    on_both(|| async {
        for seed in 0..60_u64 {
            println!("seed {seed}");
            let mut random = seeded(seed);
            let address = if seed % 2 == 0 { tcp() } else { memory() };
            let pair = pair_of(address, Node::builder(), Node::builder()).await;
            let options = channel("land").backlog(4096);
            let mut sender = pair.b.open_bytes(&pair.peer, options).await.unwrap();
            let (_, receiver) = limited(pair.a.accept_bytes("land")).await.unwrap();
            let sending = tokio::spawn(async move {
                let mut sum = 0;
                for number in 0..200 {
                    let size = if number % 10 == 9 { 6_000 } else { 1 + number };
                    limited(sender.send(Bytes::from(vec![1; size]))).await.unwrap();
                    sum += size;
                }
                sum
            });
            for _ in 0..random.below(6) {
                tokio::task::yield_now().await;
            }
            let (done, landed) = oneshot::channel();
            let memory = vec![0; 10_000];
            receiver.land(Box::new(Counting { memory, bytes: 0, done: Some(done) }));
            let sum = limited(sending).await.unwrap();
            assert_eq!(limited(landed).await.unwrap(), sum);
        }
    });
}

/// A sink may be ahead by the whole bound, and one item more.
#[test]
fn a_sink_fills_the_backlog() {
    on_both(|| async {
        let pair = pair_of(tcp(), Node::builder(), Node::builder()).await;
        let options = channel("sink").backlog(64 * 1024);
        let mut sender = pair.b.open_bytes(&pair.peer, options).await.unwrap();
        let (_, mut receiver) = limited(pair.a.accept_bytes("sink")).await.unwrap();
        let is_ready = |sender: &mut BytesSender| {
            let sender = Pin::new(sender);
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            Sink::<Bytes>::poll_ready(sender, &mut context)
        };
        let mut bytes = 0;
        while let Poll::Ready(ready) = is_ready(&mut sender) {
            ready.unwrap();
            Pin::new(&mut sender).start_send(Bytes::from(vec![1; 99])).unwrap();
            bytes += 100;
        }
        assert!((50_000..=64 * 1024).contains(&bytes), "{bytes}");
        while bytes > 40_000 {
            assert!(limited(receiver.recv()).await.unwrap().is_some());
            bytes -= 100;
        }
        ready(&mut sender).await;
        // The item goes, although it is beyond the bound; then nothing more does.
        Pin::new(&mut sender).start_send(Bytes::from(vec![2; 100_000])).unwrap();
        assert!(is_ready(&mut sender).is_pending());
        assert!(matches!(sender.try_send(&Bytes::new()), Err(TrySendError::Full)));
        drop(sender);
        let mut last = 0;
        while let Some(message) = limited(receiver.recv()).await.unwrap() {
            last = message.len();
        }
        assert_eq!(last, 100_000);
    });
}

/// A large message waits for what is staged before it, which leaves at once for that.
#[test]
fn a_large_message_sends_off_what_is_staged_before_it() {
    on_both(|| async {
        let patient = || Node::builder().age_bound(std::time::Duration::from_secs(5));
        let pair = pair_of(tcp(), patient(), patient()).await;
        let options = channel("off").backlog(50_000);
        let mut sender = pair.b.open_bytes(&pair.peer, options).await.unwrap();
        let (_, mut receiver) = limited(pair.a.accept_bytes("off")).await.unwrap();
        let began = std::time::Instant::now();
        let receiving = tokio::spawn(async move {
            let mut count = 0;
            while limited(receiver.recv()).await.unwrap().is_some() {
                count += 1;
            }
            count
        });
        for _ in 0..5 {
            for _ in 0..10 {
                limited(sender.send(Bytes::from_static(b"small"))).await.unwrap();
            }
            limited(sender.send(Bytes::from(vec![1; 60_000]))).await.unwrap();
        }
        drop(sender);
        assert_eq!(limited(receiving).await.unwrap(), 55);
        assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
    });
}

/// A receiver that stops, or is dropped, ends its sender's wait.
#[test]
fn a_receiver_that_goes_ends_the_wait() {
    on_both(|| async {
        let pair = pair_of(tcp(), Node::builder(), Node::builder()).await;
        for (stops, size) in [(true, 10), (false, 10), (true, 9_000), (false, 9_000)] {
            let options = channel("goes").backlog(4096);
            let mut sender = pair.b.open_bytes(&pair.peer, options).await.unwrap();
            let (_, mut receiver) = limited(pair.a.accept_bytes("goes")).await.unwrap();
            while sender.try_send(&Bytes::from(vec![1; size])).is_ok() {}
            let waits = tokio::spawn(async move {
                let sent = sender.send(Bytes::from(vec![1; 5_000])).await;
                (sent.is_err(), sender)
            });
            until(|| receiver.stats().messages == 0).await;
            if stops {
                receiver.close();
            } else {
                drop(receiver);
            }
            assert!(limited(waits).await.unwrap().0);
        }
    });
}
