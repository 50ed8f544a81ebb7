//! Redelivering senders with a log on disk: their messages outlive their process.

use chunkcomm::error::LogError;
use chunkcomm::{Address, Fsync, Node, OpenError, Receiver, Redelivery, SendError, Sender};
use chunkcomm_testkit::proc::Program;
use chunkcomm_testkit::random::seeded;
use chunkcomm_testkit::{
    itself, limited, messages_of, on_both, on_one_thread, own_host, packets_of, until, until_some,
};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

const SECONDS: Duration = Duration::from_secs(20);

/// Variable that makes a test of this file the sender: the collector's address, the log and a
/// count.
const SENDER: &str = "CHUNKCOMM_TEST_SENDER";

fn directory(name: &str) -> PathBuf {
    let directory =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("log-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    directory
}

async fn collector(address: &Address) -> Node {
    Node::builder().name("collector").listen(address.clone()).build().await.unwrap()
}

fn anywhere() -> Address {
    format!("{}:0", own_host()).parse().unwrap()
}

/// Returns the message of a number: some are large, and each holds its number.
fn message(number: u64) -> (u64, Vec<u8>) {
    let bytes = match number % 97 {
        13 => 20_000 + number as usize % 50_000,
        size => size as usize,
    };
    (number, vec![number as u8; bytes])
}

async fn open<T: serde::Serialize + serde::de::DeserializeOwned>(
    node: &Node,
    to: &Address,
    log: &Path,
) -> Result<Sender<T>, OpenError> {
    node.open_redelivering("events", Redelivery::to(to).log(log, Fsync::Always))
}

#[test]
fn the_next_sender_goes_on_with_what_is_not_settled() {
    let both = std::sync::atomic::AtomicU32::new(0);
    on_both(|| {
        let run = both.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        async move {
            let log = directory(&format!("next-{run}"));
            let a = collector(&anywhere()).await;
            let to = a.addresses()[0].clone();
            let mut stream = None;
            for round in 0..3 {
                let b = Node::builder().name("sender").build().await.unwrap();
                let mut sender = open(&b, &to, &log).await.unwrap();
                let begun = sender.stats();
                assert_eq!((begun.stored, begun.settled), (round * 100, round * 90));
                assert_eq!(begun.accepted, round * 100);
                for number in round * 100..round * 100 + 100 {
                    sender.send(&message(number)).await.unwrap();
                }
                limited(sender.sync_stored()).await.unwrap();
                let (_, mut receiver) =
                    limited(a.accept::<(u64, Vec<u8>)>("events")).await.unwrap();
                receiver.settle_by_hand();
                for number in round * 90..round * 100 + 100 {
                    assert_eq!(limited(receiver.recv()).await.unwrap(), Some(message(number)));
                    let delivery = receiver.delivery().unwrap();
                    assert_eq!(*stream.get_or_insert(delivery.stream), delivery.stream);
                    assert_eq!(delivery.number, number);
                    assert_eq!(delivery.redelivered, number < round * 100);
                    if number < round * 90 + 90 {
                        receiver.settle();
                    }
                }
                until(|| sender.stats().settled == round * 90 + 90).await;
                // No message is lost: the log has it.
                limited(b.close(SECONDS)).await.unwrap();
                drop((sender, receiver));
            }
            // A sender that closes has all its messages settled.
            let b = Node::builder().name("sender").build().await.unwrap();
            let sender = open::<(u64, Vec<u8>)>(&b, &to, &log).await.unwrap();
            let (_, mut receiver) = limited(a.accept::<(u64, Vec<u8>)>("events")).await.unwrap();
            let closing = tokio::spawn(sender.close(SECONDS));
            for number in 270..300 {
                assert_eq!(limited(receiver.recv()).await.unwrap(), Some(message(number)));
            }
            assert_eq!(limited(receiver.recv()).await.unwrap(), None);
            limited(closing).await.unwrap().unwrap();
            // The log is free again at once.
            let sender = open::<(u64, Vec<u8>)>(&b, &to, &log).await.unwrap();
            assert_eq!((sender.stats().stored, sender.stats().settled), (300, 300));
        }
    });
}

#[test]
fn a_log_is_one_senders_and_of_one_type() {
    on_one_thread(async {
        let log = directory("one");
        let b = Node::builder().build().await.unwrap();
        let to = anywhere();
        let mut sender = open::<u64>(&b, &to, &log).await.unwrap();
        sender.send(&1).await.unwrap();
        let cause = |error| match error {
            OpenError::Log(error) => error,
            error => panic!("{error}"),
        };
        let error = open::<u64>(&b, &to, &log).await.unwrap_err();
        assert!(matches!(cause(error), LogError::InUse { .. }));
        limited(b.close(SECONDS)).await.unwrap();
        assert!(matches!(sender.send(&2).await, Err(SendError::Lost(_))));
        let b = Node::builder().build().await.unwrap();
        let error = open::<String>(&b, &to, &log).await.unwrap_err();
        assert!(matches!(cause(error), LogError::OtherStream { .. }));
        let sender = open::<u64>(&b, &to, &log).await.unwrap();
        assert_eq!(sender.stats().stored, 1);
        // Without a log there is no storing to wait for.
        let mut plain = b.open_redelivering::<u64>("plain", Redelivery::to(&to)).unwrap();
        assert!(matches!(plain.sync_stored().await, Err(SendError::NotLogged)));
    });
}

/// Runs as the other process of [`a_sender_that_is_killed_loses_nothing_that_it_stored`]: sends the
/// messages that were not stored before, up to the number given.
#[test]
fn sender_that_is_killed() {
    let Ok(given) = std::env::var(SENDER) else { return };
    let mut given = given.split('|');
    let to: Address = given.next().unwrap().parse().unwrap();
    let log = PathBuf::from(given.next().unwrap());
    let count: u64 = given.next().unwrap().parse().unwrap();
    on_one_thread(async {
        let node = Node::builder().name("sender").build().await.unwrap();
        let mut sender: Sender<(u64, Vec<u8>)> = open(&node, &to, &log).await.unwrap();
        println!("\nbegun {}", sender.stats().accepted);
        for number in sender.stats().accepted..count {
            sender.send(&message(number)).await.unwrap();
            if number % 64 == 0 {
                sender.sync_stored().await.unwrap();
                println!("\nstored {}", number + 1);
            }
        }
        sender.close(SECONDS).await.unwrap();
        println!("\nstored {count}");
    });
}

#[test]
fn a_sender_that_is_killed_loses_nothing_that_it_stored() {
    on_one_thread(async {
        let mut random = seeded(31);
        let log = directory("killed");
        let a = collector(&anywhere()).await;
        let count = 3000;
        let child = format!("{}|{}|{count}", a.addresses()[0], log.display());
        // State that a collector would store: the number that comes next.
        let (mut consumed, mut stored, mut kills, mut again) = (0, 0, 0, 0);
        while consumed < count {
            let mut command = itself("redelivery_log::sender_that_is_killed");
            let spawned =
                command.arg("--nocapture").env(SENDER, &child).stdout(Stdio::piped()).spawn();
            let mut sender = Program(spawned.unwrap());
            let printed = BufReader::new(sender.0.stdout.take().unwrap());
            let reading = std::thread::spawn(move || {
                let (mut begun, mut stored) = (None, 0);
                for line in printed.lines().map_while(Result::ok) {
                    let number = |word| line.strip_prefix(word)?.parse::<u64>().ok();
                    begun = begun.or_else(|| number("begun "));
                    stored = number("stored ").unwrap_or(stored);
                }
                (begun.expect("it has begun"), stored)
            });
            let (_, mut receiver): (_, Receiver<(u64, Vec<u8>)>) =
                limited(a.accept("events")).await.unwrap();
            receiver.settle_by_hand();
            let mut left = random.below(800) + 20 * kills;
            while left > 0
                && let Some(value) = limited(receiver.recv()).await.unwrap()
            {
                let delivery = receiver.delivery().unwrap();
                assert_eq!(value, message(delivery.number));
                assert!(delivery.number <= consumed, "none is left out");
                assert!(delivery.number == consumed || delivery.redelivered);
                again += u64::from(delivery.number < consumed);
                consumed = consumed.max(delivery.number + 1);
                if random.below(10) == 0 || consumed == count {
                    receiver.settle();
                }
                left -= 1;
            }
            if consumed == count {
                assert!(limited(receiver.recv()).await.unwrap().is_none());
                let waited = tokio::task::spawn_blocking(move || sender.0.wait());
                assert!(waited.await.unwrap().unwrap().success());
            } else {
                drop(sender);
                kills += 1;
            }
            drop(receiver);
            let (begun, stored_now) = reading.join().unwrap();
            assert!(begun >= stored, "{stored} messages were stored, {begun} are there");
            stored = begun.max(stored_now);
        }
        println!("{kills} kills, {again} messages came again");
        assert!(kills > 3 && again > 0);
        assert_eq!(stored, count);
    });
}

#[test]
fn a_log_that_cannot_be_written_ends_the_sender_and_not_what_is_stored() {
    on_one_thread(async {
        let log = directory("gone");
        let a = collector(&anywhere()).await;
        let b = Node::builder().build().await.unwrap();
        let to = Redelivery::to(&a.addresses()[0]).bytes_max(200 << 20).log(&log, Fsync::Never);
        let mut sender = b.open_redelivering::<Vec<u8>>("events", to).unwrap();
        sender.send(&vec![1; 100]).await.unwrap();
        limited(sender.sync_stored()).await.unwrap();
        // The file can still be written, and nobody finds it again.
        std::fs::remove_dir_all(&log).unwrap();
        let large = vec![2; 8 << 20];
        sender.send(&large).await.unwrap();
        let error = limited(sender.sync_stored()).await.unwrap_err();
        let SendError::Log(error) = &error else { panic!("{error}") };
        assert!(matches!(**error, LogError::Io { .. }), "{error}");
        assert!(matches!(sender.send(&Vec::new()).await, Err(SendError::Log(_))));
        let stored = sender.stats().stored;
        assert_eq!(stored, 1);
        let (_, mut receiver) = limited(a.accept::<Vec<u8>>("events")).await.unwrap();
        for number in 0..stored {
            let bytes = if number == 0 { 100 } else { large.len() };
            assert_eq!(limited(receiver.recv()).await.unwrap().map(|it| it.len()), Some(bytes));
        }
        // The account includes the last message.
        let error = limited(b.close(SECONDS)).await.unwrap_err();
        let account = error.channels[0].account;
        assert_eq!(account.accepted, stored + 1, "{error}");
        assert!(account.settles && account.acknowledged <= stored, "{error}");
    });
}

#[test]
fn a_peer_that_takes_less_is_asked_for_no_more_and_small_packets_carry_all() {
    on_one_thread(async {
        let log = directory("less");
        let small = Node::builder().name("small").listen(anywhere());
        let small =
            small.limits(messages_of(50_000)).experiment(packets_of(1024)).build().await.unwrap();
        let b = Node::builder().build().await.unwrap();
        let to = small.addresses()[0].clone();
        let mut sender = open::<Vec<u8>>(&b, &to, &log).await.unwrap();
        // The messages are staged before the node knows how much the peer takes.
        let sizes = [0, 100, 900, 1100, 5000, 8100, 20_000, 3, 50];
        for size in sizes {
            sender.send(&vec![size as u8; size]).await.unwrap();
        }
        let (_, mut receiver) = limited(small.accept::<Vec<u8>>("events")).await.unwrap();
        for size in sizes {
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some(vec![size as u8; size]));
        }
        let error = sender.send(&vec![1; 60_000]).await.unwrap_err();
        assert!(matches!(error, SendError::TooLarge { bytes_max: 50_000, .. }), "{error}");
        let closing = tokio::spawn(sender.close(SECONDS));
        assert_eq!(limited(receiver.recv()).await.unwrap(), None);
        limited(closing).await.unwrap().unwrap();
    });
}

#[test]
fn a_node_that_closes_stores_everything_and_sends_nothing_behind_its_ends() {
    on_both(|| async {
        let log = directory(&format!("closes-{:?}", std::thread::current().id()));
        let a = collector(&anywhere()).await;
        let to = a.addresses()[0].clone();
        let accepting = tokio::spawn({
            let a = a.clone();
            async move {
                let mut taken = 0;
                while let Ok((_, mut receiver)) = a.accept::<(u64, Vec<u8>)>("events").await {
                    while let Ok(Some(value)) = receiver.recv().await {
                        let delivery = receiver.delivery().unwrap();
                        assert_eq!(value, message(delivery.number));
                        assert!(delivery.number <= taken, "none is left out");
                        assert!(delivery.number == taken || delivery.redelivered);
                        taken = taken.max(delivery.number + 1);
                    }
                }
                taken
            }
        });
        let mut next = 0;
        for round in 0..12 {
            let b = Node::builder().name("sender").build().await.unwrap();
            let mut sender = open::<(u64, Vec<u8>)>(&b, &to, &log).await.unwrap();
            assert_eq!(sender.stats().stored, next, "round {round}");
            if round % 2 == 0 {
                until_some(|| async { b.explain().await.links.pop() }).await;
            }
            for _ in 0..50 * (round % 3) {
                sender.send(&message(next)).await.unwrap();
                next += 1;
            }
            // The log is being written.
            limited(b.close(SECONDS)).await.unwrap();
            assert!(matches!(sender.send(&message(next)).await, Err(SendError::Lost(_))));
        }
        let b = Node::builder().name("sender").build().await.unwrap();
        let sender = open::<(u64, Vec<u8>)>(&b, &to, &log).await.unwrap();
        limited(sender.close(SECONDS)).await.unwrap();
        limited(a.close(SECONDS)).await.unwrap();
        assert_eq!(limited(accepting).await.unwrap(), next);
    });
}

#[test]
fn the_counters_of_a_sender_tell_what_its_log_has_written() {
    on_one_thread(async {
        for (fsync, syncs) in [(Fsync::Always, 3), (Fsync::Never, 0)] {
            let log = directory(&format!("counters-{fsync:?}"));
            let b = Node::builder().build().await.unwrap();
            let to = Redelivery::to(&anywhere()).log(&log, fsync);
            let mut sender = b.open_redelivering::<Vec<u8>>("events", to).unwrap();
            for _ in 0..3 {
                sender.send(&vec![7; 1000]).await.unwrap();
                limited(sender.sync_stored()).await.unwrap();
            }
            let stats = sender.stats();
            assert_eq!(stats.log_syncs, syncs, "{fsync:?}");
            assert!((3000..4000).contains(&stats.log_bytes), "{}", stats.log_bytes);
        }
    });
}

#[test]
fn a_stream_whose_node_or_runtime_is_gone_says_so() {
    let log = directory("runtime");
    on_one_thread(async {
        let to = anywhere();
        let b = Node::builder().build().await.unwrap();
        limited(b.close(SECONDS)).await.unwrap();
        let error = open::<u64>(&b, &to, &log).await.unwrap_err();
        assert!(matches!(error, OpenError::Lost(_)), "{error}");
        let error = b.open_redelivering::<u64>("plain", Redelivery::to(&to)).unwrap_err();
        assert!(matches!(error, OpenError::Lost(_)), "{error}");
    });
    for connected in [false, true] {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let (_b, _a, mut sender, mut plain) = runtime.block_on(async {
            let a = collector(&anywhere()).await;
            let to = a.addresses()[0].clone();
            let b = Node::builder().build().await.unwrap();
            // The thread of the earlier round closes its log.
            let mut sender = until_some(|| async { open::<u64>(&b, &to, &log).await.ok() }).await;
            let mut plain = b.open_redelivering::<u64>("plain", Redelivery::to(&to)).unwrap();
            sender.send(&1).await.unwrap();
            plain.send(&1).await.unwrap();
            if connected {
                limited(sender.sync()).await.unwrap();
                limited(plain.sync()).await.unwrap();
            }
            (b, a, sender, plain)
        });
        drop(runtime);
        on_one_thread(async {
            for sender in [&mut sender, &mut plain] {
                let error = limited(sender.sync_settled()).await.unwrap_err();
                assert!(matches!(error, SendError::Lost(_)), "{error}");
            }
        });
    }
}

#[test]
fn many_stored_messages_are_opened_again_at_once() {
    on_one_thread(async {
        let log = directory("many");
        let to = anywhere();
        let open = |b: &Node| {
            let redelivery = Redelivery::to(&to).bytes_max(100_000).log(&log, Fsync::Never);
            b.open_redelivering::<[u64; 4]>("events", redelivery).unwrap()
        };
        let mut accepted = 0;
        for round in 0..3 {
            let b = Node::builder().build().await.unwrap();
            let mut sender = open(&b);
            assert_eq!(sender.stats().stored, accepted);
            // Stores a record each time until the bound is reached, which holds across the
            // restarts.
            while sender.try_send(&[accepted; 4]).is_ok() {
                accepted += 1;
                limited(sender.sync_stored()).await.unwrap();
            }
            assert!((2_000..=100_000 / 33 + 100).contains(&accepted), "{accepted} in {round}");
            limited(b.close(SECONDS)).await.unwrap();
        }
    });
}
