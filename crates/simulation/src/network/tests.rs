mod any_order;
mod bridged;
mod computing;
mod costs;
mod going_wrong;
mod loaded;
mod shared;

use super::*;
use std::collections::BTreeMap;
use std::time::Duration;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// A byte takes a microsecond, so that times are easily read.
const SLOW: LinkSpec = LinkSpec {
    latency: Duration::from_micros(100),
    jitter: Duration::ZERO,
    bytes_per_second: 1_000_000,
    cost_per_packet: Duration::from_micros(50),
    frame_bytes: 100,
    queue_bytes: 3000,
    window_bytes: 2000,
    slot_time: Duration::ZERO,
    total_bytes_per_second: u64::MAX,
};

/// A network whose readers read everything at once, except the lazy ones.
struct Lab {
    network: Network,
    events: Vec<(Time, Event)>,
    /// Bytes read at each end, and the time of the last read.
    read: BTreeMap<EndId, (Vec<u8>, Time)>,
    lazy: BTreeSet<EndId>,
}

impl Lab {
    fn new(network: Network) -> Lab {
        Lab { network, events: Vec::new(), read: BTreeMap::new(), lazy: BTreeSet::new() }
    }

    /// Two hosts, `left` and `right`, with a link, and a connection between them.
    fn pair(spec: LinkSpec) -> (Lab, EndId) {
        let mut network = Network::new(7);
        let (left, right) = (network.add_host("left"), network.add_host("right"));
        network.link(left, right, spec);
        let mut lab = Lab::new(network);
        let end = lab.connect(left, right);
        (lab, end)
    }

    fn connect(&mut self, from: HostId, to: HostId) -> EndId {
        let port = self.network.listen(to, 0).unwrap();
        let end = self.network.dial(self.network.now(), from, to, port).unwrap();
        self.run();
        assert!(self.events.iter().any(|(_, event)| *event == Event::Connected(end)));
        self.events.clear();
        end
    }

    fn read_all(&mut self, end: EndId) {
        let now = self.network.now();
        let mut buffer = [0; 333];
        let (bytes, last) = self.read.entry(end).or_default();
        while let Ok(Read::Bytes(count)) = self.network.read(now, end, &mut buffer) {
            bytes.extend_from_slice(&buffer[..count]);
            *last = now;
        }
    }

    fn handle(&mut self, now: Time, event: Event) {
        self.events.push((now, event));
        if let Event::Readable(end) | Event::Broken(end) = event
            && !self.lazy.contains(&end)
        {
            self.read_all(end);
        }
    }

    /// Runs until nothing more happens.
    fn run(&mut self) {
        while let Some((now, event)) = self.network.next_event() {
            self.handle(now, event);
        }
    }

    fn run_until(&mut self, until: Time) {
        while let Some((_, event)) = self.network.poll_event(until) {
            self.handle(self.network.now(), event);
        }
    }

    fn write(&mut self, end: EndId, bytes: &[u8]) -> usize {
        self.network.write(self.network.now(), end, bytes).unwrap()
    }

    /// Returns how many bytes arrived, and how long after `since` the last did.
    fn got(&self, end: EndId, since: Time) -> (usize, u64) {
        self.read.get(&end).map_or((0, 0), |(bytes, at)| (bytes.len(), at.0 - since.0))
    }

    fn saw(&self, event: Event) -> Option<Time> {
        self.events.iter().find(|(_, it)| *it == event).map(|(at, _)| *at)
    }
}

#[test]
fn a_connection_takes_two_latencies() {
    let mut network = Network::new(7);
    let (left, right) = (network.add_host("left"), network.add_host("right"));
    network.link(left, right, SLOW);
    network.listen(right, 80).unwrap();
    let end = network.dial(Time(5), left, right, 80).unwrap();
    let incoming = Event::Incoming { host: right, port: 80, end: end.peer() };
    assert_eq!(network.next_event(), Some((Time(100 * US + 5), incoming)));
    assert_eq!(network.next_event(), Some((Time(200 * US + 5), Event::Connected(end))));
    assert_eq!(network.next_event(), None);
}

#[test]
fn nobody_nowhere_and_twice_are_told() {
    let mut network = Network::new(7);
    let hosts = ["a", "b", "c"].map(|name| network.add_host(name));
    network.link(hosts[0], hosts[1], SLOW);
    assert_eq!(network.dial(Time(0), hosts[0], hosts[2], 1), Err(NetworkError::NoWay));
    let end = network.dial(Time(0), hosts[0], hosts[1], 1).unwrap();
    assert_eq!(network.next_event(), Some((Time(200 * US), Event::Refused(end))));
    assert_eq!(network.write(Time(200 * US), end, b"x"), Err(NetworkError::Broken));
    assert_eq!(network.listen(hosts[1], 1), Ok(1));
    assert_eq!(network.listen(hosts[1], 1), Err(NetworkError::PortTaken));
    network.unlisten(hosts[1], 1);
    assert_eq!(network.listen(hosts[1], 1), Ok(1));
    assert_ne!(network.listen(hosts[1], 0), network.listen(hosts[1], 0));
    assert!(network.dial(Time(200 * US), hosts[2], hosts[2], 1).is_ok(), "a host reaches itself");
}

#[test]
fn a_packet_takes_cost_bytes_and_latency() {
    for bytes in [1, 99, 100, 101, 1000, 2000] {
        let (mut lab, end) = Lab::pair(SLOW);
        let start = lab.network.now();
        assert_eq!(lab.write(end, &vec![1; bytes]), bytes);
        lab.run();
        let nanos = (50 + bytes as u64 + 100) * US;
        assert_eq!(lab.got(end.peer(), start), (bytes, nanos));
    }
}

#[test]
fn each_packet_of_a_queue_costs() {
    let (mut lab, end) = Lab::pair(SLOW);
    let start = lab.network.now();
    for _ in 0..10 {
        lab.write(end, &[1; 30]);
    }
    lab.run();
    assert_eq!(lab.got(end.peer(), start), (300, (10 * (50 + 30) + 100) * US));
}

#[test]
fn the_directions_of_a_link_do_not_disturb_each_other() {
    let (mut lab, end) = Lab::pair(SLOW);
    let start = lab.network.now();
    lab.write(end, &[1; 1000]);
    lab.write(end.peer(), &[2; 1000]);
    lab.run();
    let expected = (1000, (50 + 1000 + 100) * US);
    assert_eq!(lab.got(end, start), expected);
    assert_eq!(lab.got(end.peer(), start), expected);
}

#[test]
fn a_shared_medium_carries_one_frame_at_a_time_in_turns() {
    let mut network = Network::new(7);
    let hosts = ["a", "b", "c", "d"].map(|name| network.add_host(name));
    network.shared_medium(&hosts, LinkSpec { cost_per_packet: Duration::ZERO, ..SLOW });
    let mut lab = Lab::new(network);
    let ends = [lab.connect(hosts[0], hosts[1]), lab.connect(hosts[2], hosts[3])];
    let start = lab.network.now();
    for end in ends {
        lab.write(end, &[1; 1000]);
    }
    lab.run();
    // Alone each would take 1000 us; the first is one frame ahead.
    assert_eq!(lab.got(ends[0].peer(), start), (1000, (1900 + 100) * US));
    assert_eq!(lab.got(ends[1].peer(), start), (1000, (2000 + 100) * US));
}

#[test]
fn hosts_spend_the_cost_of_packets_side_by_side() {
    let mut network = Network::new(7);
    let hosts = ["a", "b", "c"].map(|name| network.add_host(name));
    network.shared_medium(&hosts, SLOW);
    let mut lab = Lab::new(network);
    let ends = [lab.connect(hosts[0], hosts[2]), lab.connect(hosts[1], hosts[2])];
    let start = lab.network.now();
    for end in ends {
        lab.write(end, &[1; 10]);
    }
    lab.run();
    assert_eq!(lab.got(ends[0].peer(), start), (10, (50 + 10 + 100) * US));
    assert_eq!(lab.got(ends[1].peer(), start), (10, (50 + 20 + 100) * US));
}

#[test]
fn a_switch_is_as_fast_as_its_busiest_wire() {
    let mut network = Network::new(7);
    let hosts = ["a", "b", "c", "d"].map(|name| network.add_host(name));
    network.switch(&hosts, LinkSpec { cost_per_packet: Duration::ZERO, ..SLOW });
    let mut lab = Lab::new(network);
    let apart = [lab.connect(hosts[0], hosts[1]), lab.connect(hosts[2], hosts[3])];
    let start = lab.network.now();
    for end in apart {
        lab.write(end, &[1; 1000]);
    }
    lab.run();
    for end in apart {
        assert_eq!(lab.got(end.peer(), start), (1000, (1000 + 100) * US));
    }
    // Two senders, one receiver: its wire is shared.
    let both = [lab.connect(hosts[0], hosts[3]), lab.connect(hosts[1], hosts[3])];
    let start = lab.network.now();
    for end in both {
        lab.write(end, &[1; 1000]);
    }
    lab.run();
    assert_eq!(lab.got(both[1].peer(), start), (1000, (2000 + 100) * US));
}

#[test]
fn a_writer_waits_for_a_third_of_the_queue() {
    let (mut lab, end) = Lab::pair(SLOW);
    assert_eq!(lab.write(end, &[1; 4000]), 3000);
    assert_eq!(lab.write(end, &[1; 1000]), 0);
    let start = lab.network.now();
    lab.run();
    assert_eq!(lab.saw(Event::Writable(end)), Some(Time(start.0 + (50 + 1000) * US)));
    assert_eq!(lab.got(end.peer(), start).0, 3000);
    assert_eq!(lab.write(end, &[1; 1000]), 1000);
}

#[test]
fn a_reader_that_does_not_read_stops_the_sender_at_its_window() {
    let (mut lab, end) = Lab::pair(SLOW);
    lab.lazy.insert(end.peer());
    assert_eq!(lab.write(end, &[1; 3000]), 3000);
    lab.run();
    assert_eq!(lab.write(end, &[1; 3000]), 2000, "what passed the window made room");
    lab.run();
    lab.read_all(end.peer());
    assert_eq!(lab.got(end.peer(), Time(0)).0, 2000, "exactly a window");
    lab.lazy.clear();
    lab.run();
    assert_eq!(lab.got(end.peer(), Time(0)).0, 5000);
}

#[test]
fn events_by_a_time_leave_the_rest_for_calls_before_it() {
    let (mut lab, end) = Lab::pair(SLOW);
    let start = lab.network.now();
    lab.write(end, &[1; 10]);
    let arrives = Time(start.0 + (50 + 10 + 100) * US);
    assert_eq!(lab.network.next_event_by(Time(arrives.0 - 1)), None);
    // Later than the last call, and earlier than the limit.
    lab.network.write(Time(arrives.0 - 1), end.peer(), &[2; 10]).unwrap();
    let readable = Event::Readable(end.peer());
    assert_eq!(lab.network.next_event_by(Time(u64::MAX)), Some((arrives, readable)));
    assert_eq!(lab.network.now(), arrives);
    assert_eq!(lab.network.readable(end.peer()), 10);
    let mut all = vec![0; 3];
    let read = lab.network.read_to(arrives, end.peer(), 4, &mut all);
    assert_eq!((read, all), (Ok(Read::Bytes(4)), vec![0, 0, 0, 1, 1, 1, 1]));
}

/// Returns the result of a seed under jitter: the digest and the deliveries.
fn jittered(seed: u64) -> (u64, Vec<Delivery>) {
    let mut network = Network::new(seed);
    network.keep_deliveries();
    let hosts = ["a", "b"].map(|name| network.add_host(name));
    network.link(hosts[0], hosts[1], LinkSpec { jitter: Duration::from_micros(30), ..SLOW });
    let mut lab = Lab::new(network);
    let end = lab.connect(hosts[0], hosts[1]);
    for size in 1..20 {
        lab.write(end, &vec![1; size * 7]);
    }
    lab.run();
    (lab.network.digest(), lab.network.deliveries().to_vec())
}

#[test]
fn a_seed_is_a_run() {
    let (digest, deliveries) = jittered(7);
    assert!(deliveries.len() > 20);
    assert_eq!(jittered(7), (digest, deliveries));
    assert_ne!(jittered(8).0, digest);
}

#[test]
#[should_panic(expected = "time went back")]
fn time_does_not_go_back() {
    let (mut lab, end) = Lab::pair(SLOW);
    let _ = lab.network.write(Time(0), end, b"x");
}
