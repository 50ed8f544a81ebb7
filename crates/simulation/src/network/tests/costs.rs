//! Costs of packets at their hosts.

use super::*;

/// A byte costs its sender 0.2 us and its receiver 0.1 us.
const COSTLY: HostSpec = HostSpec {
    cores: 1,
    speed_permille: 1000,
    send_cost_per_packet: Duration::from_micros(30),
    send_picos_per_byte: 200_000,
    receive_cost_per_packet: Duration::from_micros(20),
    receive_picos_per_byte: 100_000,
    foreign: None,
};

const FREE: HostSpec = HostSpec {
    send_cost_per_packet: Duration::ZERO,
    send_picos_per_byte: 0,
    receive_cost_per_packet: Duration::ZERO,
    receive_picos_per_byte: 0,
    ..COSTLY
};

/// Nanoseconds of [`COSTLY`] for a packet of these bytes.
fn send_cost(bytes: u64) -> u64 {
    30 * US + bytes * 200
}

fn receive_cost(bytes: u64) -> u64 {
    20 * US + bytes * 100
}

/// Nanoseconds of [`SLOW`] for a packet of these bytes.
fn way(bytes: u64) -> u64 {
    (50 + bytes + 100) * US
}

fn pair(left: HostSpec, right: HostSpec) -> (Lab, EndId) {
    let mut network = Network::new(7);
    let hosts = [network.add_host_of("left", left), network.add_host_of("right", right)];
    network.link(hosts[0], hosts[1], SLOW);
    let mut lab = Lab::new(network);
    let end = lab.connect(hosts[0], hosts[1]);
    (lab, end)
}

/// Begins a computing job that outlasts every packet.
fn compute(lab: &mut Lab, end: EndId) {
    let host = lab.network.host_of(end).unwrap();
    lab.network.compute(lab.network.now(), host, Duration::from_secs(10));
}

#[test]
fn a_packet_takes_the_costs_of_both_hosts_beside_its_way() {
    for (left, right) in [(COSTLY, COSTLY), (COSTLY, FREE), (FREE, COSTLY)] {
        // Packets of up to a quarter of the window.
        for bytes in [1, 99, 100, 101, 499, 500] {
            let (mut lab, end) = pair(left, right);
            let start = lab.network.now();
            lab.write(end, &vec![1; bytes as usize]);
            lab.run();
            let mut nanos = way(bytes);
            nanos += if left == FREE { 0 } else { send_cost(bytes) };
            nanos += if right == FREE { 0 } else { receive_cost(bytes) };
            assert_eq!(lab.got(end.peer(), start), (bytes as usize, nanos));
        }
    }
}

#[test]
fn costs_are_the_hosts_own_time_whatever_its_speed() {
    for speed_permille in [1, 250, 7_000] {
        let (mut lab, end) = pair(HostSpec { speed_permille, ..COSTLY }, COSTLY);
        let start = lab.network.now();
        lab.write(end, &[1; 100]);
        lab.run();
        let nanos = send_cost(100) + way(100) + receive_cost(100);
        assert_eq!(lab.got(end.peer(), start), (100, nanos));
    }
}

#[test]
fn a_computing_job_doubles_the_costs_on_one_core_and_not_on_two() {
    for (cores, times) in [(1, 2), (2, 1)] {
        let (mut lab, end) = pair(HostSpec { cores, ..COSTLY }, HostSpec { cores, ..COSTLY });
        compute(&mut lab, end);
        compute(&mut lab, end.peer());
        let start = lab.network.now();
        lab.write(end, &[1; 200]);
        lab.run();
        let nanos = times * (send_cost(200) + receive_cost(200)) + way(200);
        assert_eq!(lab.got(end.peer(), start), (200, nanos), "{cores} cores");
    }
}

#[test]
fn a_packet_takes_its_costs_from_a_computing_job() {
    for (cores, taken) in [(1, 1), (2, 0)] {
        let (mut lab, end) = pair(HostSpec { cores, ..COSTLY }, HostSpec { cores, ..COSTLY });
        let start = lab.network.now();
        let work = Duration::from_millis(1);
        let jobs = [end, end.peer()]
            .map(|end| lab.network.compute(start, lab.network.host_of(end).unwrap(), work));
        lab.write(end, &[1; 200]);
        lab.run();
        let costs = [send_cost(200), receive_cost(200)];
        for (job, cost) in jobs.into_iter().zip(costs) {
            let done = lab.saw(Event::Computed(job)).unwrap();
            assert_eq!(done.0 - start.0, MS + taken * cost, "{cores} cores");
        }
    }
}

#[test]
fn packets_of_a_host_cost_one_after_another_in_both_directions() {
    let (mut lab, end) = pair(COSTLY, FREE);
    let start = lab.network.now();
    // It arrives at 160 us, while the host spends the costs of its own two, until 180 us.
    lab.write(end.peer(), &[2; 10]);
    lab.write(end, &[1; 300]);
    lab.write(end, &[1; 300]);
    lab.run();
    assert_eq!(lab.got(end, start), (10, 2 * send_cost(300) + receive_cost(10)));
    // The wire is busy from when the first packet is handled.
    assert_eq!(lab.got(end.peer(), start), (600, send_cost(300) + 2 * 350 * US + 100 * US));
}

#[test]
fn a_stream_is_as_fast_as_its_slowest_place() {
    const PACKETS: u64 = 50;
    for (cost, slowest) in [(10, way(10) - 100 * US), (500, 500 * US + 10 * 100)] {
        let right = HostSpec { receive_cost_per_packet: Duration::from_micros(cost), ..COSTLY };
        let (mut lab, end) = pair(COSTLY, right);
        let start = lab.network.now();
        for _ in 0..PACKETS {
            lab.write(end, &[1; 10]);
        }
        lab.run();
        let once = send_cost(10) + way(10) + cost * US + 10 * 100;
        assert_eq!(lab.got(end.peer(), start), (500, once + (PACKETS - 1) * slowest));
    }
}

#[test]
fn a_packet_beyond_the_window_is_received_in_parts_that_cost_once() {
    let (mut lab, end) = pair(FREE, COSTLY);
    let start = lab.network.now();
    assert_eq!(lab.write(end, &[1; 3000]), 3000);
    lab.run();
    // A part of a quarter of the window is received while the next one arrives.
    let nanos = way(3000) + 500 * 100;
    assert_eq!(lab.got(end.peer(), start), (3000, nanos));
}

/// A packet costs its receiver 20 us, however large it is.
pub(super) const PACKETS_ALONE: HostSpec = HostSpec {
    send_cost_per_packet: Duration::ZERO,
    send_picos_per_byte: 0,
    receive_picos_per_byte: 0,
    ..COSTLY
};

#[test]
fn bytes_that_cost_nothing_are_readable_as_they_arrive() {
    let first = 20 * US + way(100);
    for (right, readable) in [(PACKETS_ALONE, 100), (COSTLY, 0)] {
        let (mut lab, end) = pair(FREE, right);
        let start = lab.network.now();
        lab.write(end, &[1; 450]);
        lab.run_until(Time(start.0 + first));
        assert_eq!(lab.network.readable(end.peer()) + lab.got(end.peer(), start).0, readable);
        lab.run();
        // The packet has its cost while the second frame arrives.
        let last = if readable > 0 { way(450) } else { way(450) + receive_cost(450) };
        assert_eq!(lab.got(end.peer(), start), (450, last));
    }
}

/// As [`SLOW`], with one frame a packet, of more than two parts.
pub(super) const LARGE: LinkSpec = LinkSpec {
    cost_per_packet: Duration::ZERO,
    frame_bytes: 20_000,
    queue_bytes: 50_000,
    window_bytes: 80_000,
    ..SLOW
};

/// Two hosts that are joined by [`LARGE`], and a connection between them.
fn large(spec: HostSpec) -> (Lab, EndId) {
    let mut network = Network::new(7);
    let hosts = ["left", "right"].map(|name| network.add_host_of(name, spec));
    network.link(hosts[0], hosts[1], LARGE);
    let mut lab = Lab::new(network);
    let end = lab.connect(hosts[0], hosts[1]);
    (lab, end)
}

#[test]
fn a_large_frame_arrives_in_parts() {
    let (mut lab, end) = large(PACKETS_ALONE);
    let start = lab.network.now();
    assert_eq!(lab.write(end, &[1; 20_000]), 20_000);
    // The first part has the packet's cost.
    for (bytes, arrived) in [(8211, 0), (8212, 8192), (16_383, 8192), (16_384, 16_384)] {
        lab.run_until(Time(start.0 + (100 + bytes) * US));
        assert_eq!(lab.got(end.peer(), start).0, arrived);
    }
    lab.run();
    assert_eq!(lab.got(end.peer(), start), (20_000, 20_100 * US));
}

#[test]
fn connections_take_turns_by_whole_frames() {
    let (mut lab, end) = large(PACKETS_ALONE);
    let hosts = [end, end.peer()].map(|end| lab.network.host_of(end).unwrap());
    let other = lab.connect(hosts[0], hosts[1]);
    let start = lab.network.now();
    for end in [end, other] {
        assert_eq!(lab.write(end, &[1; 40_000]), 40_000);
    }
    // The second connection's first part comes behind the first one's frame.
    for (bytes, arrived) in [(28_211, [20_000, 0]), (28_212, [20_000, 8192])] {
        lab.run_until(Time(start.0 + (100 + bytes) * US));
        assert_eq!([end, other].map(|end| lab.got(end.peer(), start).0), arrived);
    }
    lab.run();
    assert_eq!(lab.got(other.peer(), start), (40_000, 80_100 * US));
}

#[test]
fn the_end_of_a_stream_comes_behind_its_bytes() {
    let (mut lab, end) = pair(COSTLY, COSTLY);
    let start = lab.network.now();
    lab.write(end, &[1; 10]);
    lab.network.finish(start, end);
    lab.run();
    assert_eq!(lab.got(end.peer(), start), (10, send_cost(10) + way(10) + receive_cost(10)));
    let now = lab.network.now();
    assert_eq!(lab.network.read(now, end.peer(), &mut [0; 8]), Ok(Read::End));
}

#[test]
fn arrived_bytes_are_readable_once_their_connection_breaks() {
    // The first packet waits for the thread; then 100 bytes of the second wait for its rest.
    for (micros, readable, on_the_way) in [(310, 150, 100), (460, 250, 150)] {
        let (mut lab, end) = pair(FREE, COSTLY);
        let start = lab.network.now();
        lab.write(end, &[1; 150]);
        lab.write(end, &[1; 250]);
        let cut = Time(start.0 + micros * US);
        lab.run_until(cut);
        assert!(lab.got(end.peer(), start).0 < readable);
        assert_eq!(lab.network.on_the_way(end.peer()), on_the_way);
        lab.network.cut(cut, end, Duration::MAX, Duration::ZERO);
        lab.run();
        assert_eq!(lab.got(end.peer(), start), (readable, micros * US));
        assert_eq!(lab.saw(Event::Broken(end.peer())), Some(cut));
        let now = lab.network.now();
        assert_eq!(lab.network.read(now, end.peer(), &mut [0; 8]), Err(NetworkError::Broken));
    }
}

#[test]
fn a_lost_rest_holds_no_bytes_back() {
    let (mut lab, end) = pair(COSTLY, COSTLY);
    let start = lab.network.now();
    lab.write(end, &[1; 300]);
    lab.network.lose(start, end.peer(), 130);
    lab.run();
    let nanos = send_cost(300) + (50 + 200 + 100) * US + receive_cost(130);
    assert_eq!(lab.got(end.peer(), start), (130, nanos));
}

#[test]
fn leaving_before_bytes_are_received_breaks_the_connection() {
    let (mut lab, end) = pair(FREE, COSTLY);
    let start = lab.network.now();
    lab.write(end, &[1; 10]);
    let arrived = Time(start.0 + way(10) + US);
    lab.run_until(arrived);
    lab.network.leave(arrived, end.peer());
    lab.run();
    assert!(lab.saw(Event::Broken(end)).is_some());
    assert_eq!(lab.got(end.peer(), start).0, 0);
}

#[test]
fn a_crash_drops_the_packets_of_its_host() {
    let (mut lab, end) = pair(COSTLY, COSTLY);
    let host = lab.network.host_of(end).unwrap();
    let start = lab.network.now();
    for _ in 0..3 {
        lab.write(end, &[1; 10]);
    }
    lab.network.crash(Time(start.0 + 40 * US), host);
    lab.network.restart(Time(start.0 + 50 * US), host);
    lab.run();
    assert_eq!(lab.got(end.peer(), start).0, 0, "the first went to its interface and no further");
    let again = lab.connect(host, lab.network.host_of(end.peer()).unwrap());
    let start = lab.network.now();
    lab.write(again, &[1; 10]);
    lab.run();
    assert_eq!(lab.got(again.peer(), start), (10, send_cost(10) + way(10) + receive_cost(10)));
}
