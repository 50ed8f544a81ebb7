//! Any operations on a connection, in any order.

use super::*;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Act {
    Write { accepted: bool, bytes: usize },
    Read { accepted: bool, bytes: usize },
    Pass { micros: u64 },
    Partition { back: bool },
    Heal { back: bool },
    Stall { accepted: bool, micros: u64 },
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        4 => (any::<bool>(), 1..500usize)
            .prop_map(|(accepted, bytes)| Act::Write { accepted, bytes }),
        4 => (any::<bool>(), 1..500usize)
            .prop_map(|(accepted, bytes)| Act::Read { accepted, bytes }),
        4 => (0..500u64).prop_map(|micros| Act::Pass { micros }),
        1 => any::<bool>().prop_map(|back| Act::Partition { back }),
        1 => any::<bool>().prop_map(|back| Act::Heal { back }),
        1 => (any::<bool>(), 0..2000u64)
            .prop_map(|(accepted, micros)| Act::Stall { accepted, micros }),
    ];
    proptest::collection::vec(act, 1..80)
}

/// Hosts to which packets cost something in half of the cases.
fn costs() -> impl Strategy<Value = HostSpec> {
    let costs = (0..100u64, 0..500_000u64, 0..100u64, 0..500_000u64);
    proptest::option::of(costs).prop_map(|costs| {
        let (send, send_byte, receive, receive_byte) = costs.unwrap_or_default();
        HostSpec {
            send_cost_per_packet: Duration::from_micros(send),
            send_picos_per_byte: send_byte,
            receive_cost_per_packet: Duration::from_micros(receive),
            receive_picos_per_byte: receive_byte,
            ..HostSpec::default()
        }
    })
}

#[derive(Debug, Clone, Copy)]
enum Shape {
    Medium { slot_micros: u64 },
    Switch { bytes_per_second: u64 },
    Bridged { queue_bytes: usize },
}

fn shapes() -> impl Strategy<Value = Shape> {
    prop_oneof![
        (0..100u64).prop_map(|slot_micros| Shape::Medium { slot_micros }),
        (300_000..3_000_000u64).prop_map(|bytes_per_second| Shape::Switch { bytes_per_second }),
        (50..500usize).prop_map(|queue_bytes| Shape::Bridged { queue_bytes }),
    ]
}

fn join(network: &mut Network, hosts: [HostId; 2], spec: LinkSpec, shape: Shape) {
    match shape {
        Shape::Medium { slot_micros } => {
            let slot_time = Duration::from_micros(slot_micros);
            network.shared_medium(&hosts, LinkSpec { slot_time, ..spec });
        }
        Shape::Switch { bytes_per_second } => {
            let limit = LinkSpec { total_bytes_per_second: bytes_per_second, ..spec };
            network.switch(&hosts, limit);
        }
        Shape::Bridged { queue_bytes } => {
            // With a segment between that no host is on.
            let bridge = BridgeSpec { queue_bytes, ..BridgeSpec::default() };
            let segments = [
                network.shared_medium(&hosts[..1], spec),
                network.switch(&[], spec),
                network.switch(&hosts[1..], spec),
            ];
            network.bridge(segments[0], segments[1], bridge);
            network.bridge(segments[2], segments[1], bridge);
        }
    }
}

/// A connection that is written to and read at random.
struct Streams {
    network: Network,
    ends: [EndId; 2],
    written: [u64; 2],
    read: [u64; 2],
}

impl Streams {
    fn write(&mut self, side: usize, bytes: usize) {
        let from = self.written[side];
        let bytes: Vec<u8> = (from..from + bytes as u64).map(|at| (at % 251) as u8).collect();
        let now = self.network.now();
        self.written[side] += self.network.write(now, self.ends[side], &bytes).unwrap() as u64;
    }

    /// Reads at most `bytes`; returns false when there was nothing.
    fn read(&mut self, side: usize, bytes: usize) -> bool {
        let mut buffer = vec![0; bytes];
        let now = self.network.now();
        let Read::Bytes(count) = self.network.read(now, self.ends[side], &mut buffer).unwrap()
        else {
            return false;
        };
        for byte in &buffer[..count] {
            assert_eq!(u64::from(*byte), self.read[side] % 251, "order at side {side}");
            self.read[side] += 1;
        }
        assert!(self.read[side] <= self.written[1 - side]);
        true
    }

    fn pass(&mut self, time: Duration) {
        let until = self.network.now().after(time);
        while self.network.poll_event(until).is_some() {}
    }
}

proptest! {
    #[test]
    fn streams_are_whole_and_in_order_whatever_happens(
        seed in any::<u64>(), acts in acts(), costs in [costs(), costs()],
        shape in shapes(),
    ) {
        let (mut network, spec) =
            (Network::new(seed), LinkSpec { jitter: Duration::from_micros(200), ..SLOW });
        let (a, b) = (network.add_host_of("a", costs[0]), network.add_host_of("b", costs[1]));
        join(&mut network, [a, b], spec, shape);
        network.listen(b, 1).unwrap();
        let end = network.dial(Time(0), a, b, 1).unwrap();
        let ends = [end, end.peer()];
        let mut streams = Streams { network, ends, written: [0; 2], read: [0; 2] };
        streams.pass(Duration::from_millis(1));
        for act in acts {
            let now = streams.network.now();
            let ways = |back: bool| if back { (b, a) } else { (a, b) };
            match act {
                Act::Write { accepted, bytes } => streams.write(usize::from(accepted), bytes),
                Act::Read { accepted, bytes } => {
                    streams.read(usize::from(accepted), bytes);
                }
                Act::Pass { micros } => streams.pass(Duration::from_micros(micros)),
                Act::Partition { back } => {
                    streams.network.partition(now, ways(back).0, ways(back).1);
                }
                Act::Heal { back } => streams.network.heal(now, ways(back).0, ways(back).1),
                Act::Stall { accepted, micros } => {
                    let end = streams.ends[usize::from(accepted)];
                    streams.network.stall(now, end, Duration::from_micros(micros));
                }
            }
        }
        let now = streams.network.now();
        streams.network.heal(now, a, b);
        streams.network.heal(now, b, a);
        for _ in 0..200 {
            streams.pass(Duration::from_millis(1));
            while streams.read(0, 100) || streams.read(1, 100) {}
        }
        prop_assert_eq!(streams.read, [streams.written[1], streams.written[0]]);
    }
}

/// Hosts on one medium, with packets of each to the next.
fn medium_loads() -> impl Strategy<Value = (u64, Vec<Vec<usize>>)> {
    let packets = proptest::collection::vec(1..4000_usize, 1..12);
    (0..200_u64, proptest::collection::vec(packets, 2..7))
}

proptest! {
    /// While anybody has something to send, the medium carries a frame or is contended for. Nobody
    /// starves: frames of hosts that all have more to send take turns.
    #[test]
    fn a_medium_conserves_its_work_and_starves_nobody((slot_us, loads) in medium_loads()) {
        let spec = LinkSpec {
            latency: Duration::ZERO,
            cost_per_packet: Duration::ZERO,
            bytes_per_second: 1_000_000,
            frame_bytes: 1000,
            slot_time: Duration::from_micros(slot_us),
            queue_bytes: 1 << 20,
            window_bytes: 1 << 20,
            ..LinkSpec::ETHERNET_10M
        };
        let mut network = Network::new(1);
        let hosts: Vec<HostId> =
            (0..loads.len()).map(|at| network.add_host(&format!("h{at}"))).collect();
        network.shared_medium(&hosts, spec);
        let mut ends = Vec::new();
        for (at, host) in hosts.iter().enumerate() {
            let to = hosts[(at + 1) % hosts.len()];
            network.listen(to, 80).unwrap();
            ends.push(network.dial(Time(0), *host, to, 80).unwrap());
        }
        let mut start = Time(0);
        while let Some((at, _)) = network.next_event() {
            start = at;
        }
        network.keep_timeline(1 << 20);
        network.keep_deliveries();
        for (end, load) in ends.iter().zip(&loads) {
            for bytes in load {
                prop_assert_eq!(network.write(start, *end, &vec![7; *bytes]).unwrap(), *bytes);
            }
        }
        while network.next_event().is_some() {}
        let timeline = network.timeline().unwrap();
        let busy: Duration = timeline.busy().map(|(_, busy)| busy.frames + busy.contention).sum();
        let bytes: u64 = loads.iter().flatten().map(|bytes| *bytes as u64).sum();
        let frames: Duration = timeline.busy().map(|(_, busy)| busy.frames).sum();
        prop_assert_eq!(frames, Duration::from_micros(bytes));
        let arrivals: Vec<_> = network
            .deliveries()
            .iter()
            .filter_map(|it| match it.what {
                Arrival::Bytes(bytes) => Some((it.at, it.from, bytes as usize)),
                _ => None,
            })
            .collect();
        let last = arrivals.last().unwrap().0;
        // The medium is never idle before the last byte has passed.
        prop_assert_eq!(Duration::from_nanos(last.0 - start.0), busy);
        // Between two frames of a host that has more, each other one that has more sends at most one.
        let mut left: Vec<usize> = loads.iter().map(|load| load.iter().sum()).collect();
        let mut since = vec![vec![0; hosts.len()]; hosts.len()];
        for (_, from, bytes) in arrivals {
            let sender = hosts.iter().position(|host| *host == from).unwrap();
            for (waiting, counts) in since.iter_mut().enumerate() {
                if waiting != sender && left[waiting] > 0 {
                    counts[sender] += 1;
                    prop_assert!(counts[sender] <= 2, "host {} waits for {}", waiting, sender);
                }
            }
            since[sender].fill(0);
            left[sender] -= bytes;
        }
    }
}
