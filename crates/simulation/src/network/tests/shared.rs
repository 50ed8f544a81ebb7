//! Switches with a limit, and contention on a shared medium.

use super::*;

/// As [`SLOW`], with packets that cost nothing.
const BARE: LinkSpec = LinkSpec { cost_per_packet: Duration::ZERO, ..SLOW };

/// Ethernet of 10 Mbit/s with full frames, whose packets cost nothing: hosts always want to send.
const CONTENDED: LinkSpec = LinkSpec {
    cost_per_packet: Duration::ZERO,
    slot_time: Duration::from_nanos(51_200),
    ..LinkSpec::ETHERNET_10M
};

/// Hosts named by their numbers, not joined yet.
fn hosts(count: usize) -> (Network, Vec<HostId>) {
    let mut network = Network::new(7);
    let hosts = (0..count).map(|at| network.add_host(&at.to_string())).collect();
    (network, hosts)
}

#[test]
fn pairs_on_a_switch_together_are_as_fast_as_its_limit() {
    const LIMIT: u64 = 2_500_000;
    for pairs in 1..=8 {
        let (mut network, hosts) = hosts(pairs * 2);
        network.switch(&hosts, LinkSpec { total_bytes_per_second: LIMIT, ..BARE });
        let mut lab = Lab::new(network);
        let ends: Vec<_> = hosts.chunks(2).map(|pair| lab.connect(pair[0], pair[1])).collect();
        let start = lab.network.now();
        for end in &ends {
            lab.write(*end, &[1; 1000]);
        }
        lab.run();
        let last = ends.iter().map(|end| lab.got(end.peer(), start)).max().unwrap();
        // Each wire carries a byte in 1 us, the whole switch one in 0.4 us.
        let frame = 100 * US;
        let bound = (1000 * US).max(pairs as u64 * 400 * US);
        assert_eq!(last.0, 1000);
        let late = last.1.abs_diff(bound + 100 * US);
        assert!(late <= frame, "{pairs} pairs: {} ns instead of {bound} and the latency", last.1);
    }
}

#[test]
fn a_limit_below_one_wire_holds_a_single_sender() {
    let (mut network, hosts) = hosts(2);
    network.switch(&hosts, LinkSpec { total_bytes_per_second: 500_000, ..BARE });
    let mut lab = Lab::new(network);
    let end = lab.connect(hosts[0], hosts[1]);
    let start = lab.network.now();
    lab.write(end, &[1; 1000]);
    lab.run();
    assert_eq!(lab.got(end.peer(), start), (1000, (2000 + 100) * US));
}

/// Returns the bytes that each of `count` hosts, which always want to send, bring over a medium
/// within `window`. The receiver sends nothing but reports.
fn saturated(count: usize, spec: LinkSpec, window: Duration) -> Vec<usize> {
    let (mut network, hosts) = hosts(count + 1);
    network.shared_medium(&hosts, spec);
    let mut lab = Lab::new(network);
    let ends: Vec<_> = hosts[1..].iter().map(|host| lab.connect(*host, hosts[0])).collect();
    let until = lab.network.now().after(window);
    // One more than there is room for: the rest is asked for.
    let full = vec![1; spec.queue_bytes + 1];
    for end in &ends {
        lab.write(*end, &full);
    }
    while let Some((at, event)) = lab.network.next_event_by(until) {
        if let Event::Writable(end) = event {
            lab.network.write(at, end, &full).unwrap();
        }
        lab.handle(at, event);
    }
    ends.iter().map(|end| lab.read[&end.peer()].0.len()).collect()
}

#[test]
fn a_saturated_medium_loses_what_the_formula_says() {
    for frame_bytes in [1460, 100] {
        let spec = LinkSpec { frame_bytes, ..CONTENDED };
        // P, the time of a full frame, in slots.
        let frame = spec.wire_nanos(frame_bytes) as f64 / 51_200.0;
        let mut before = f64::INFINITY;
        for stations in [1, 2, 3, 5, 10, 32] {
            let bytes = saturated(stations, spec, Duration::from_secs(4)).iter().sum::<usize>();
            let share = bytes as f64 / 4.0 / spec.bytes_per_second as f64;
            let q = stations as f64;
            let acquires = (1.0 - 1.0 / q).powf(q - 1.0);
            let formula = frame / (frame + (1.0 - acquires) / acquires);
            println!(
                "{frame_bytes} B, {stations} stations: {share:.4}, by the formula {formula:.4}"
            );
            assert!((share / formula - 1.0).abs() < 0.02, "{stations}: {share}, not {formula}");
            assert!(share < before);
            before = share;
        }
    }
}

#[test]
fn two_hosts_on_a_medium_get_half_each() {
    for spec in [CONTENDED, LinkSpec { slot_time: Duration::ZERO, ..CONTENDED }] {
        let bytes = saturated(2, spec, Duration::from_secs(4));
        let half = (bytes[0] + bytes[1]) / 2;
        assert!(bytes[0].abs_diff(half) * 20 < half, "{bytes:?}");
    }
}

#[test]
fn a_host_alone_on_a_medium_loses_nothing() {
    let spec = LinkSpec { slot_time: Duration::from_micros(50), ..BARE };
    let (mut network, hosts) = hosts(3);
    network.shared_medium(&hosts, spec);
    let mut lab = Lab::new(network);
    let ends = [lab.connect(hosts[0], hosts[2]), lab.connect(hosts[1], hosts[2])];
    let start = lab.network.now();
    lab.write(ends[0], &[1; 1000]);
    lab.run();
    assert_eq!(lab.got(ends[0].peer(), start), (1000, (1000 + 100) * US));
    // Two that want to send: A = 1/2, so a slot is lost before each frame while both do.
    let start = lab.network.now();
    for end in ends {
        lab.write(end, &[1; 300]);
    }
    lab.run();
    // The first finds the medium idle, and the last is alone.
    assert_eq!(lab.got(ends[1].peer(), start), (300, (600 + 4 * 50 + 100) * US));
}
