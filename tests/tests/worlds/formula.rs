//! Time of a message by the formula: the cost of its packets, its bytes by the rate, and the
//! latency.

use super::{connect, node};
use chunkcomm::stats::PeerStats;
use chunkcomm::{BytesReceiver, BytesSender, Peer};
use chunkcomm_simulation::{LinkSpec, Network, Simulation};
use std::time::Duration;

/// Step of the programs' clock.
const STEP: Duration = Duration::from_micros(1);

/// Time without messages, longer than the acknowledgements and credit that follow a message.
const QUIET: Duration = Duration::from_secs(1);

/// Bytes after which a channel's window has grown to its largest, and the link knows
/// its rate.
const WARM_BYTES: usize = 16 << 20;

#[derive(Debug, Clone, Copy)]
enum Shape {
    Link,
    Medium,
    Switch,
}

/// Returns the time that packets take by `spec` when they leave one after another.
fn formula(spec: &LinkSpec, before: &PeerStats, after: &PeerStats) -> Duration {
    let writes = u32::try_from(after.writes - before.writes).unwrap();
    let bytes = after.packet_bytes_sent - before.packet_bytes_sent;
    let wire = Duration::from_secs_f64(bytes as f64 / spec.bytes_per_second as f64);
    spec.latency + spec.cost_per_packet * writes + wire
}

struct Pair {
    simulation: Simulation,
    peer: Peer,
    sender: BytesSender,
    receiver: BytesReceiver,
}

impl Pair {
    /// Transfers many messages of `bytes` each without a pause.
    async fn warm(&mut self, bytes: usize) {
        let (sender, receiver) = (&mut self.sender, &mut self.receiver);
        let sending = async {
            for _ in 0..WARM_BYTES / bytes {
                sender.send(vec![7; bytes].into()).await.unwrap();
            }
        };
        let receiving = async {
            for _ in 0..WARM_BYTES / bytes {
                receiver.recv().await.unwrap().unwrap();
            }
        };
        tokio::join!(biased; sending, receiving);
    }

    /// Returns the time of a message of `bytes` bytes, from `send` until `recv`.
    async fn transfer(&mut self, bytes: usize) -> Duration {
        let message = vec![7; bytes];
        let start = self.simulation.now();
        let (sent, received) = (self.sender.send(message.into()), self.receiver.recv());
        let (sent, received) = tokio::join!(biased; sent, received);
        sent.unwrap();
        assert_eq!(received.unwrap().unwrap().len(), bytes);
        self.simulation.now() - start
    }
}

/// Transfers messages of several sizes and compares each with the formula.
fn agrees(shape: Shape, spec: LinkSpec) {
    let mut network = Network::new(7);
    let hosts = ["left", "right", "idle", "other"].map(|name| network.add_host(name));
    match shape {
        Shape::Link => network.link(hosts[0], hosts[1], spec),
        Shape::Medium => {
            network.shared_medium(&hosts, spec);
        }
        Shape::Switch => {
            network.switch(&hosts, spec);
        }
    }
    chunkcomm_simulation::run(network, async |simulation| {
        let (left, right) =
            (node(&simulation, hosts[0], "left").await, node(&simulation, hosts[1], "right").await);
        let peer = connect(&left, &right).await;
        let sender = left.open_bytes(&peer, "transfer").await.unwrap();
        let (_, receiver) = right.accept_bytes("transfer").await.unwrap();
        let mut pair = Pair { simulation: simulation.clone(), peer, sender, receiver };
        pair.warm(256 << 10).await;
        for bytes in [16, 1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20] {
            simulation.sleep(QUIET).await;
            let before = pair.peer.stats();
            let took = pair.transfer(bytes).await;
            simulation.sleep(QUIET).await;
            let expected = formula(&spec, &before, &pair.peer.stats());
            let off = took.abs_diff(expected);
            println!("{shape:?} {bytes} B: {took:?}, by the formula {expected:?}");
            assert!(off <= (expected / 100).max(STEP), "{bytes} B: {took:?}, not {expected:?}");
            // However the packets were cut, they held the message.
            let least = Duration::from_secs_f64(bytes as f64 / spec.bytes_per_second as f64);
            assert!(took > spec.latency + spec.cost_per_packet + least);
        }
    });
}

#[test]
fn shared_ethernet_of_10_megabits() {
    agrees(Shape::Medium, LinkSpec::ETHERNET_10M);
}

#[test]
fn switched_ethernet_of_100_megabits() {
    agrees(Shape::Switch, LinkSpec::ETHERNET_100M);
}

#[test]
fn switched_ethernet_of_a_gigabit() {
    agrees(Shape::Switch, LinkSpec::ETHERNET_1G);
}

#[test]
fn a_link_across_the_world() {
    let spec = LinkSpec {
        latency: Duration::from_millis(80),
        bytes_per_second: 5_000_000,
        cost_per_packet: Duration::ZERO,
        queue_bytes: 4 << 20,
        window_bytes: 8 << 20,
        ..LinkSpec::default()
    };
    agrees(Shape::Link, spec);
}

/// Checks that small messages cost a lambda each in packets of their own, and not when gathered.
#[test]
fn gathering_saves_the_cost_of_packets() {
    let spec = LinkSpec::ETHERNET_10M;
    let stream = |policy| {
        let mut network = Network::new(7);
        let hosts = ["left", "right"].map(|name| network.add_host(name));
        network.shared_medium(&hosts, spec);
        chunkcomm_simulation::run(network, async |simulation| {
            let right = node(&simulation, hosts[1], "right").await;
            let left = chunkcomm::Node::builder().policy(policy).build();
            let left = simulation.on(hosts[0], left).await.unwrap();
            let peer = connect(&left, &right).await;
            let mut sender = left.open::<[u64; 2]>(&peer, "numbers").await.unwrap();
            let (_, mut receiver) = right.accept::<[u64; 2]>("numbers").await.unwrap();
            let start = simulation.now();
            let send = async {
                for number in 0..1000 {
                    sender.send(&[number, 0]).await.unwrap();
                }
                drop(sender);
            };
            let receive = async {
                for number in 0..1000 {
                    assert_eq!(receiver.recv().await.unwrap(), Some([number, 0]));
                }
            };
            tokio::join!(biased; send, receive);
            simulation.now() - start
        })
    };
    let (each, gathered) =
        (stream(chunkcomm::Policy::Unbuffered), stream(chunkcomm::Policy::Chunked));
    println!("1000 messages of 16 bytes: {each:?} one by one, {gathered:?} gathered");
    assert!(each > spec.cost_per_packet * 1000);
    assert!(gathered < each / 10);
}
