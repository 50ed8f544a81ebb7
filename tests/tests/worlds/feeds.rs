//! A value that is watched, channels with a backlog, and feeds, while hosts die and links are cut, by seed.

use chunkcomm::error::FeedError;
use chunkcomm::feed::FeedOptions;
use chunkcomm::{Address, Node, SendError, channel, feed as fed, host};
use chunkcomm_simulation::{HostId, LinkSpec, Network, Random, Simulation, each_seed, run};
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// Longest time that anybody may need in the end: a lost peer is dead after 10 s, a silent one after 40 s.
const LIMIT: Duration = Duration::from_secs(100);

const PORT: u16 = 4000;

fn switched<const N: usize>(seed: u64, names: [&str; N]) -> (Network, [HostId; N]) {
    let mut network = Network::new(seed);
    let hosts = names.map(|name| network.add_host(name));
    network.switch(&hosts, LinkSpec::default());
    (network, hosts)
}

/// Cuts all connections of the first host, or parts it from another one for a while.
async fn disturb(simulation: &Simulation, hosts: &[HostId], random: &mut Random) {
    simulation.sleep(MS * random.below(60) as u32).await;
    let other = hosts[1 + random.below(hosts.len() as u64 - 1) as usize];
    if random.one_in(2) {
        simulation.with(|network, now| {
            for end in network.ends_of(hosts[0]) {
                network.cut(now, end, Duration::ZERO, 3 * MS);
            }
        });
    } else {
        simulation.with(|network, now| network.partition(now, hosts[0], other));
        simulation.sleep(MS * random.below(500) as u32).await;
        simulation.with(|network, now| network.heal(now, hosts[0], other));
    }
}

/// Values of one life of the publisher.
const VALUES: u64 = 300;

async fn publish(address: Address, life: u64) {
    let node = Node::builder().name("publisher").listen(address).build().await.unwrap();
    let sender = node.publish("value", life * VALUES).unwrap();
    for value in 1..VALUES {
        host::sleep(MS).await;
        sender.send_replace(life * VALUES + value).unwrap();
    }
    pending::<()>().await;
}

async fn watch(address: Address, pause: Duration) {
    let node = Node::builder().build().await.unwrap();
    let mut receiver = node.watch::<u64>("value", &address).await.unwrap();
    let mut before = 0;
    loop {
        let value = *receiver.borrow_and_update();
        assert!(value >= before, "{value} after {before}");
        before = value;
        if value == 2 * VALUES - 1 {
            return;
        }
        receiver.changed().await.unwrap();
        host::sleep(pause).await;
    }
}

#[test]
fn the_last_value_arrives_whatever_happens_before() {
    each_seed(0..3, |seed| {
        let mut random = Random::new(seed);
        let names = ["publisher", "fast", "slow", "late", "dead"];
        let (network, hosts) = switched(seed, names);
        run(network, async |simulation| {
            let address = simulation.address(hosts[0], PORT);
            let watch =
                |at: usize, pause| simulation.spawn_on(hosts[at], watch(address.clone(), pause));
            let mut watching = vec![watch(1, Duration::ZERO), watch(2, 30 * MS)];
            drop(watch(4, MS));
            drop(simulation.spawn_on(hosts[0], publish(address.clone(), 0)));
            for _ in 0..3 {
                disturb(&simulation, &hosts, &mut random).await;
            }
            simulation.crash(hosts[4]);
            if random.one_in(2) {
                simulation.kill(hosts[0]);
            } else {
                simulation.crash(hosts[0]);
                simulation.sleep(MS * random.below(3_000) as u32).await;
                simulation.restart(hosts[0]);
            }
            drop(simulation.spawn_on(hosts[0], publish(address.clone(), 1)));
            for _ in 0..3 {
                disturb(&simulation, &hosts[..4], &mut random).await;
            }
            watching.push(watch(3, MS));
            for watching in watching {
                let ended = simulation.within(LIMIT, watching).await;
                ended.expect("the last value does not arrive").unwrap();
            }
        });
    });
}

/// Bytes of a channel that are accepted and not taken.
#[derive(Default)]
struct Feed {
    accepted: AtomicU64,
    taken: AtomicU64,
}

/// Sends numbers in messages of at most `size` bytes until `count` are accepted or the receiver is gone.
async fn feed(
    to: Address,
    bytes_max: u64,
    count: u64,
    feed: Arc<Feed>,
    mut random: Random,
) -> bool {
    let node = Node::builder().build().await.unwrap();
    let peer = node.connect(&to).await.unwrap();
    let mut sender =
        node.open::<(u64, Vec<u8>)>(&peer, channel("feed").backlog(bytes_max)).await.unwrap();
    for number in 0..count {
        let size = if random.one_in(20) { bytes_max } else { random.below(bytes_max / 8) };
        let message = (number, vec![7; size as usize]);
        match sender.send(&message).await {
            Ok(()) => {}
            Err(SendError::Lost(_) | SendError::Terminated(_)) => return false,
            Err(error) => panic!("{error}"),
        }
        // The number costs at least a byte.
        let held = size + 1 + feed.accepted.fetch_add(size + 1, Relaxed) - feed.taken.load(Relaxed);
        assert!(held <= bytes_max || held == size + 1, "{held} of {bytes_max}");
    }
    sender.close(LIMIT).await.unwrap();
    true
}

async fn take(address: Address, count: u64, feed: Arc<Feed>, pause: Duration) {
    let node = Node::builder().listen(address).build().await.unwrap();
    let (_, mut receiver) = node.accept::<(u64, Vec<u8>)>("feed").await.unwrap();
    for expected in 0..count {
        let (number, message) = receiver.recv().await.unwrap().unwrap();
        assert_eq!(number, expected);
        feed.taken.fetch_add(message.len() as u64 + 1, Relaxed);
        if number % 10 == 0 {
            host::sleep(pause).await;
        }
    }
    assert!(receiver.recv().await.unwrap().is_none());
    // The sender learns of it.
    host::sleep(LIMIT).await;
}

#[test]
fn a_backlog_is_kept_whatever_happens() {
    each_seed(0..3, |seed| {
        let mut random = Random::new(seed);
        let (network, hosts) = switched(seed, ["sender", "fast", "slow", "dead"]);
        run(network, async |simulation| {
            let mut feeding = Vec::new();
            for (host, pause) in [(1, Duration::ZERO), (2, 20 * MS), (3, 20 * MS)] {
                let state = Arc::new(Feed::default());
                let address = simulation.address(hosts[host], PORT);
                let bytes_max = [4096, 9_000, 100_000][random.below(3) as usize];
                // The dead one would take for ever.
                let count = if host == 3 { u64::MAX } else { 400 };
                let taking = take(address.clone(), count, Arc::clone(&state), pause);
                drop(simulation.spawn_on(hosts[host], taking));
                let random = Random::new(seed + host as u64);
                let feeding_one = feed(address, bytes_max, count, state, random);
                feeding.push(simulation.spawn_on(hosts[0], feeding_one));
            }
            for _ in 0..5 {
                disturb(&simulation, &hosts, &mut random).await;
            }
            if random.one_in(2) {
                simulation.crash(hosts[3]);
            } else {
                simulation.kill(hosts[3]);
            }
            for (at, feeding) in feeding.into_iter().enumerate() {
                let ended = simulation.within(LIMIT, feeding).await;
                assert_eq!(ended.expect("it waits for ever").unwrap(), at != 2);
            }
        });
    });
}

/// Messages of a feed.
const FED: u64 = 2_000;

async fn feed_all(address: Address, options: FeedOptions, subscribers: usize) {
    let node = Node::builder().listen(address).build().await.unwrap();
    let mut sender = node.feed::<(u64, Vec<u8>)>(options).unwrap();
    while sender.subscriber_count() < subscribers {
        host::sleep(MS).await;
    }
    for number in 0..FED {
        sender.send(&(number, vec![7; (number % 200) as usize])).await.unwrap();
        if number % 8 == 0 {
            host::sleep(MS).await;
        }
    }
    drop(sender);
    host::sleep(LIMIT).await;
}

/// Returns the number of messages that came; `None` if the subscriber was behind.
async fn take_all(address: Address, pause: Duration) -> Option<u64> {
    let node = Node::builder().build().await.unwrap();
    let mut subscription = node.subscribe::<(u64, Vec<u8>)>("feed", &address).await.unwrap();
    let (mut next, mut count, mut skipped) = (0, 0, 0);
    loop {
        match subscription.recv().await {
            Ok(Some((number, _))) => {
                assert_eq!(number - next, subscription.skipped() - skipped);
                (next, count, skipped) = (number + 1, count + 1, subscription.skipped());
            }
            Ok(None) => {
                assert_eq!(next, FED, "the last message is not left out");
                return Some(count);
            }
            Err(FeedError::Behind { .. }) => return None,
            Err(error) => panic!("{error}"),
        }
        if count % 10 == 0 {
            host::sleep(pause).await;
        }
    }
}

#[test]
fn a_feed_keeps_its_promise_whatever_happens() {
    each_seed(0..6, |seed| {
        let mut random = Random::new(seed);
        let (network, hosts) = switched(seed, ["feed", "fast", "slow", "dead"]);
        run(network, async |simulation| {
            let address = simulation.address(hosts[0], PORT);
            let bytes = [5_000, 200_000][random.below(2) as usize];
            let options = fed("feed").backlog(bytes);
            let options = match seed % 3 {
                0 => options.wait(),
                1 => options.skip(),
                _ => options.end(),
            };
            drop(simulation.spawn_on(hosts[0], feed_all(address.clone(), options, 3)));
            let taking = [(1, Duration::ZERO), (2, 20 * MS), (3, 20 * MS)].map(|(host, pause)| {
                simulation.spawn_on(hosts[host], take_all(address.clone(), pause))
            });
            for _ in 0..4 {
                disturb(&simulation, &hosts, &mut random).await;
            }
            if random.one_in(2) {
                simulation.crash(hosts[3]);
            } else {
                simulation.kill(hosts[3]);
            }
            let mut counts = Vec::new();
            for taking in taking.into_iter().take(2) {
                let taken = simulation.within(LIMIT, taking).await;
                counts.push(taken.expect("a subscriber waits for ever").unwrap());
            }
            match seed % 3 {
                0 => assert_eq!(counts, [Some(FED); 2]),
                1 => assert!(counts.iter().all(Option::is_some)),
                // The others may be behind as well while their links are cut.
                _ => assert!(counts.iter().flatten().all(|count| *count == FED)),
            }
        });
    });
}
