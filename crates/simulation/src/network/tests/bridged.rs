//! Segments that bridges join.

use super::bridges::Relay;
use super::costs::{LARGE, PACKETS_ALONE};
use super::*;

/// Twice as fast as [`SLOW`], and twice as near.
const QUICK: LinkSpec =
    LinkSpec { latency: Duration::from_micros(50), bytes_per_second: 2_000_000, ..SLOW };

/// A byte in 0.1 us, and 30 us.
const BRIDGE: BridgeSpec = BridgeSpec {
    delay: Duration::from_micros(30),
    bytes_per_second: 10_000_000,
    queue_bytes: 1000,
};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Medium,
    Switch,
}

const KINDS: [Kind; 2] = [Kind::Medium, Kind::Switch];

fn segment(network: &mut Network, kind: Kind, hosts: &[HostId], spec: LinkSpec) -> SegmentId {
    match kind {
        Kind::Medium => network.shared_medium(hosts, spec),
        Kind::Switch => network.switch(hosts, spec),
    }
}

fn hosts<const N: usize>(network: &mut Network) -> [HostId; N] {
    std::array::from_fn(|at| network.add_host(&at.to_string()))
}

/// Two hosts on a slow segment and two on a quick one, with a bridge between them.
fn bridged(kinds: [Kind; 2], bridge: BridgeSpec) -> (Lab, [HostId; 4]) {
    let mut network = Network::new(7);
    let hosts: [HostId; 4] = hosts(&mut network);
    let slow = segment(&mut network, kinds[0], &hosts[..2], SLOW);
    let quick = segment(&mut network, kinds[1], &hosts[2..], QUICK);
    network.bridge(slow, quick, bridge);
    (Lab::new(network), hosts)
}

#[test]
fn a_bridge_takes_in_a_large_frame_as_a_whole() {
    let mut network = Network::new(7);
    let hosts = ["left", "right"].map(|name| network.add_host_of(name, PACKETS_ALONE));
    let segments = hosts.map(|host| network.switch(&[host], LARGE));
    network.bridge(segments[0], segments[1], BridgeSpec { queue_bytes: 20_000, ..BRIDGE });
    let mut lab = Lab::new(network);
    let end = lab.connect(hosts[0], hosts[1]);
    let start = lab.network.now();
    lab.write(end, &[1; 20_000]);
    let takes = 2 * (20_000 + 100) + 2_000 + 30 + 20;
    lab.run_until(Time(start.0 + (takes - 1) * US));
    assert_eq!(lab.got(end.peer(), start).0, 0);
    lab.run();
    assert_eq!(lab.got(end.peer(), start), (20_000, takes * US));
}

#[test]
fn a_packet_takes_both_segments_and_the_bridge() {
    for kinds in KINDS.map(|one| KINDS.map(|other| [one, other])).concat() {
        for bytes in [1, 50, 100] {
            let (mut lab, hosts) = bridged(kinds, BRIDGE);
            let end = lab.connect(hosts[0], hosts[2]);
            let start = lab.network.now();
            lab.write(end, &vec![1; bytes]);
            lab.run();
            let there = bytes as u64;
            let nanos = (50 + there + 100) * US + there * 100 + 30 * US + there * 500 + 50 * US;
            assert_eq!(lab.got(end.peer(), start), (bytes, nanos), "{kinds:?} {bytes} bytes");
            // And back.
            let start = lab.network.now();
            lab.write(end.peer(), &vec![2; bytes]);
            lab.run();
            assert_eq!(lab.got(end, start), (bytes, nanos), "{kinds:?} {bytes} bytes back");
        }
    }
}

#[test]
fn a_connection_over_a_bridge_takes_its_latencies_twice() {
    let (mut lab, hosts) = bridged([Kind::Medium, Kind::Switch], BRIDGE);
    let port = lab.network.listen(hosts[2], 0).unwrap();
    let end = lab.network.dial(Time(0), hosts[0], hosts[2], port).unwrap();
    lab.run();
    assert_eq!(lab.saw(Event::Connected(end)), Some(Time(2 * (100 + 30 + 50) * US)));
}

#[test]
fn frames_of_a_packet_cross_one_behind_the_other() {
    for kinds in KINDS.map(|one| KINDS.map(|other| [one, other])).concat() {
        // A place takes longer for a frame of 100 bytes than the others: it counts ten times.
        let slow_bridge = BridgeSpec { bytes_per_second: 200_000, ..BRIDGE };
        for (bridge, frames) in [(BRIDGE, [10 * 100, 10, 50]), (slow_bridge, [100, 10 * 500, 50])] {
            let (mut lab, hosts) = bridged(kinds, bridge);
            let end = lab.connect(hosts[0], hosts[2]);
            let start = lab.network.now();
            lab.write(end, &[1; 1000]);
            lab.run();
            let nanos = (50 + 100 + 30 + 50 + frames.iter().sum::<u64>()) * US;
            assert_eq!(lab.got(end.peer(), start), (1000, nanos), "{kinds:?} {bridge:?}");
        }
    }
}

#[test]
fn traffic_within_the_segments_does_not_meet() {
    let (mut lab, hosts) = bridged([Kind::Medium; 2], BRIDGE);
    let ends = [lab.connect(hosts[0], hosts[1]), lab.connect(hosts[2], hosts[3])];
    let start = lab.network.now();
    for end in ends {
        lab.write(end, &[1; 1000]);
    }
    lab.run();
    assert_eq!(lab.got(ends[0].peer(), start), (1000, (50 + 1000 + 100) * US));
    assert_eq!(lab.got(ends[1].peer(), start), (1000, (50 + 500 + 50) * US));
}

#[test]
fn a_bridge_takes_its_turn_on_a_medium() {
    let (mut lab, hosts) = bridged([Kind::Medium; 2], BRIDGE);
    let ends = [lab.connect(hosts[0], hosts[1]), lab.connect(hosts[2], hosts[1])];
    let start = lab.network.now();
    lab.write(ends[0], &[1; 1000]);
    lab.run_until(Time(start.0 + 55 * US));
    lab.write(ends[1], &[1; 500]);
    lab.run();
    // All bytes share the medium; the first has its cost before them.
    let (one, other) = (lab.got(ends[0].peer(), start).1, lab.got(ends[1].peer(), start).1);
    assert_eq!(one.max(other), (50 + 1500 + 100) * US);
}

#[test]
fn a_bridge_never_holds_more_than_its_queue_and_loses_nothing() {
    // The slow segment is beyond: everything gathers at the bridge, and then at the hosts.
    for kinds in KINDS.map(|one| KINDS.map(|other| [one, other])).concat() {
        for queue_bytes in [70, 100, 250, 1000] {
            let (mut lab, hosts) = bridged(kinds, BridgeSpec { queue_bytes, ..BRIDGE });
            let ends = [
                lab.connect(hosts[2], hosts[0]),
                lab.connect(hosts[3], hosts[0]),
                lab.connect(hosts[3], hosts[1]),
            ];
            let start = lab.network.now();
            for end in ends {
                lab.write(end, &[1; 1500]);
            }
            let mut most = 0;
            while let Some((now, event)) = lab.network.next_event() {
                lab.handle(now, event);
                let held = lab.network.wires.relays.iter().map(Relay::held_bytes).max();
                most = most.max(held.unwrap());
            }
            assert!(most <= queue_bytes && most > queue_bytes / 2, "{most} of {queue_bytes}");
            for end in ends {
                assert_eq!(lab.got(end.peer(), start).0, 1500);
            }
            assert!(lab.network.wires.relays.iter().all(|relay| relay.held_bytes() == 0));
        }
    }
}

#[test]
fn a_full_bridge_holds_no_frames_within_the_segment() {
    let (mut lab, hosts) = bridged([Kind::Switch; 2], BridgeSpec { queue_bytes: 100, ..BRIDGE });
    let (over, within) = (lab.connect(hosts[2], hosts[0]), lab.connect(hosts[2], hosts[3]));
    let start = lab.network.now();
    lab.write(over, &[1; 1000]);
    lab.write(within, &[1; 1000]);
    lab.run();
    let (_, nanos) = lab.got(within.peer(), start);
    // Both costs, its own bytes, and at most as many frames of the other as it has itself.
    assert!(nanos <= (2 * 50 + 2 * 500 + 50) * US, "{nanos}");
    assert_eq!(lab.got(over.peer(), start).0, 1000);
}

#[test]
fn ways_cross_the_fewest_bridges() {
    let mut network = Network::new(7);
    let hosts: [HostId; 5] = hosts(&mut network);
    let segments: Vec<_> = hosts.iter().map(|host| network.switch(&[*host], QUICK)).collect();
    // A ring of four, and one that nothing joins.
    for at in 0..4 {
        network.bridge(segments[at], segments[(at + 1) % 4], BRIDGE);
    }
    let mut lab = Lab::new(network);
    for (from, to, crossed) in [(0, 1, 1), (0, 2, 2), (2, 0, 2), (3, 0, 1), (1, 3, 2)] {
        let end = lab.connect(hosts[from], hosts[to]);
        let start = lab.network.now();
        lab.write(end, &[1; 10]);
        lab.run();
        let nanos = 50 * US + (crossed + 1) * 55 * US + crossed * 31 * US;
        assert_eq!(lab.got(end.peer(), start), (10, nanos), "{from} to {to}");
    }
    let now = lab.network.now();
    assert_eq!(lab.network.dial(now, hosts[0], hosts[4], 1), Err(NetworkError::NoWay));
    lab.network.bridge(segments[0], segments[4], BRIDGE);
    lab.connect(hosts[4], hosts[2]);
}

#[test]
fn a_ring_of_full_bridges_never_locks_up() {
    let mut network = Network::new(7);
    let hosts: [HostId; 5] = hosts(&mut network);
    let segments: Vec<_> = hosts.iter().map(|host| network.switch(&[*host], SLOW)).collect();
    for at in 0..5 {
        let tight = BridgeSpec { queue_bytes: 150, ..BRIDGE };
        network.bridge(segments[at], segments[(at + 1) % 5], tight);
    }
    let mut lab = Lab::new(network);
    let ends: Vec<_> =
        (0..5).flat_map(|at| [1, 2].map(|far| (hosts[at], hosts[(at + far) % 5]))).collect();
    let ends: Vec<_> = ends.into_iter().map(|(from, to)| lab.connect(from, to)).collect();
    let start = lab.network.now();
    for end in &ends {
        lab.write(*end, &[1; 3000]);
        lab.write(end.peer(), &[2; 3000]);
    }
    lab.run();
    for end in ends.iter().flat_map(|end| [*end, end.peer()]) {
        assert_eq!(lab.got(end, start).0, 3000);
    }
}

#[test]
fn the_smallest_window_of_the_way_holds_in_both_directions() {
    let mut network = Network::new(7);
    let hosts: [HostId; 2] = hosts(&mut network);
    let wide = network.switch(&hosts[..1], SLOW);
    let narrow = network.switch(&hosts[1..], LinkSpec { window_bytes: 500, ..SLOW });
    network.bridge(wide, narrow, BRIDGE);
    let mut lab = Lab::new(network);
    let end = lab.connect(hosts[0], hosts[1]);
    lab.lazy.extend([end, end.peer()]);
    for end in [end, end.peer()] {
        lab.write(end, &[1; 3000]);
    }
    lab.run();
    for end in [end, end.peer()] {
        assert_eq!(lab.network.readable(end), 500);
        lab.lazy.clear();
        lab.read_all(end);
    }
    lab.run();
    assert_eq!((lab.got(end, Time(0)).0, lab.got(end.peer(), Time(0)).0), (3000, 3000));
}

#[test]
fn cuts_and_crashes_give_the_room_in_bridges_back() {
    for crash in [false, true] {
        let bridge = BridgeSpec { queue_bytes: 250, ..BRIDGE };
        let (mut lab, hosts) = bridged([Kind::Medium; 2], bridge);
        let ends = [lab.connect(hosts[2], hosts[0]), lab.connect(hosts[3], hosts[1])];
        let start = lab.network.now();
        for end in ends {
            lab.write(end, &[1; 2000]);
        }
        let breaks = Time(start.0 + 433 * US);
        lab.run_until(breaks);
        match crash {
            false => lab.network.cut(breaks, ends[0], Duration::ZERO, Duration::ZERO),
            true => lab.network.crash(breaks, hosts[2]),
        }
        lab.run();
        assert!(lab.got(ends[0].peer(), start).0 < 2000);
        assert_eq!(lab.got(ends[1].peer(), start).0, 2000);
        assert!(lab.network.wires.relays.iter().all(|relay| relay.held_bytes() == 0));
    }
}

#[test]
#[should_panic(expected = "joins two segments")]
fn a_bridge_from_a_segment_to_itself_is_refused() {
    let mut network = Network::new(7);
    let segment = network.switch(&[], SLOW);
    network.bridge(segment, segment, BRIDGE);
}
