//! Share of a slow link that a bulk transfer leaves to others, in the model's time.

use super::{connect, node};
use bytes::Bytes;
use chunkcomm::{BytesReceiver, BytesSender, Lane, Node, Peer, channel};
use chunkcomm_simulation::{LinkSpec, Network, Simulation};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bytes of the buffers of a kernel that takes everything that it is given.
const BUFFER_BYTES: usize = 4 << 20;

const MESSAGE_BYTES: usize = 1 << 20;

struct Pair {
    simulation: Simulation,
    left: Node,
    right: Node,
    peer: Peer,
}

impl Pair {
    async fn channel(&self, lane: Lane, name: &str) -> (BytesSender, BytesReceiver) {
        let options = channel(name).lane(lane);
        let sender = self.left.open_bytes(&self.peer, options).await.unwrap();
        let (_, receiver) = self.right.accept_bytes(name).await.unwrap();
        (sender, receiver)
    }

    /// Sends messages of `bytes` without end, and takes them; returns the count of bytes taken.
    async fn load(&self, name: &str, bytes: usize) -> Arc<AtomicU64> {
        let (mut sender, mut receiver) = self.channel(Lane::Bulk, name).await;
        let message = Bytes::from(vec![7; bytes]);
        tokio::spawn(async move { while sender.send(message.clone()).await.is_ok() {} });
        let taken = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&taken);
        tokio::spawn(async move {
            while let Ok(Some(message)) = receiver.recv().await {
                let bytes = message.len() as u64;
                count.fetch_add(bytes, Ordering::Relaxed);
            }
        });
        taken
    }
}

fn on_link<T>(spec: LinkSpec, program: impl AsyncFnOnce(Pair) -> T) -> T {
    let mut network = Network::new(7);
    let hosts = ["left", "right"].map(|name| network.add_host(name));
    network.link(hosts[0], hosts[1], spec);
    chunkcomm_simulation::run(network, async |simulation| {
        let (left, right) =
            (node(&simulation, hosts[0], "left").await, node(&simulation, hosts[1], "right").await);
        let peer = connect(&left, &right).await;
        program(Pair { simulation, left, right, peer }).await
    })
}

/// Returns the longest time that 16 bytes took beside a transfer, and the transfer's part of the
/// link's rate meanwhile.
fn beside_a_transfer(spec: LinkSpec, warm: Duration, turns: u64) -> (Duration, f64) {
    on_link(spec, async |pair| {
        let (mut sender, mut receiver) = pair.channel(Lane::Express, "express").await;
        let taken = pair.load("bulk", MESSAGE_BYTES).await;
        let read = || taken.load(Ordering::Relaxed);
        pair.simulation.sleep(warm).await;
        let (before, start) = (read(), pair.simulation.now());
        let mut longest = Duration::ZERO;
        for turn in 0..turns {
            pair.simulation.sleep(Duration::from_micros(30_000 + 1_777 * (turn % 13))).await;
            let sent = pair.simulation.now();
            sender.send(Bytes::from_static(&[1; 16])).await.unwrap();
            receiver.recv().await.unwrap().unwrap();
            longest = longest.max(pair.simulation.now() - sent);
        }
        let bytes = (read() - before) as f64;
        let rate = bytes / (pair.simulation.now() - start).as_secs_f64();
        (longest, rate / spec.bytes_per_second as f64)
    })
}

fn link(megabits: u64, latency: Duration) -> LinkSpec {
    LinkSpec {
        latency,
        bytes_per_second: megabits * 125_000,
        queue_bytes: BUFFER_BYTES,
        window_bytes: BUFFER_BYTES,
        ..LinkSpec::ETHERNET_1G
    }
}

#[test]
fn a_small_express_message_overtakes_a_large_transfer() {
    // 4 MiB of the transfer would take 335 ms.
    let spec = link(100, Duration::from_micros(100));
    let (longest, rate) = beside_a_transfer(spec, Duration::from_secs(1), 80);
    println!("100 Mbit/s, 0.1 ms: at most {longest:?} beside {rate:.3} of the rate");
    assert!(longest < Duration::from_millis(8), "{longest:?}");
    assert!(rate > 0.95, "{rate}");
}

#[test]
fn a_long_way_is_filled_and_no_more_than_that() {
    let spec = link(100, Duration::from_millis(40));
    let (longest, rate) = beside_a_transfer(spec, Duration::from_secs(4), 40);
    println!("100 Mbit/s, 40 ms: at most {longest:?} beside {rate:.3} of the rate");
    // The bound is the latency, and a queue of a round trip.
    assert!(longest < Duration::from_millis(40 + 80 + 30), "{longest:?}");
    assert!(rate > 0.9, "{rate}");
}

#[test]
fn a_fast_link_is_filled() {
    let spec = link(2_000, Duration::from_micros(50));
    let (longest, rate) = beside_a_transfer(spec, Duration::from_millis(100), 10);
    println!("2 Gbit/s, 0.05 ms: at most {longest:?} beside {rate:.3} of the rate");
    // A transfer that waits for 40 ms after each express message has 0.66.
    assert!(rate > 0.98, "{rate}");
    assert!(longest < Duration::from_millis(6), "{longest:?}");
}

#[test]
fn packets_of_a_fast_link_are_full() {
    let latency = Duration::from_micros(50);
    let mean = on_link(link(2_000, latency), async |pair| {
        let _taken = pair.load("small messages", 1_000).await;
        pair.simulation.sleep(Duration::from_millis(50)).await;
        let before = pair.peer.stats();
        pair.simulation.sleep(Duration::from_millis(50)).await;
        let after = pair.peer.stats();
        let bytes = after.packet_bytes_sent - before.packet_bytes_sent;
        bytes / (after.packets_sent - before.packets_sent)
    });
    println!("{mean} bytes a packet");
    assert!(mean > 60_000, "{mean}");
}

#[test]
fn bulk_channels_share_a_link_by_bytes() {
    on_link(link(100, Duration::from_micros(100)), async |pair| {
        let large = pair.load("large", MESSAGE_BYTES).await;
        let small = pair.load("small", 100).await;
        pair.simulation.sleep(Duration::from_secs(5)).await;
        let got = [large, small].map(|it| it.load(Ordering::Relaxed));
        println!("{got:?}");
        assert!(got[0].abs_diff(got[1]) < 4 << 20, "{got:?}");
        assert!(got[0] + got[1] > 50_000_000, "{got:?}");
    });
}
