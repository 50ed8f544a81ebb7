use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// A byte a microsecond, so that times are easily read.
const SLOW: LinkSpec = LinkSpec {
    latency: Duration::from_micros(100),
    jitter: Duration::ZERO,
    bytes_per_second: 1_000_000,
    cost_per_packet: Duration::from_micros(50),
    frame_bytes: 100,
    queue_bytes: 3000,
    window_bytes: 2000,
};

/// A network whose readers read everything at once, unless told not to.
struct Lab {
    network: Network,
    events: Vec<(Time, Event)>,
    /// What was read at each end, and when last.
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

    /// Until nothing happens any more.
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

    /// How many bytes came, and how long after `since` the last.
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
fn what_was_written_before_leaving_arrives() {
    let (mut lab, end) = Lab::pair(SLOW);
    lab.write(end, &[1; 3000]);
    lab.network.leave(lab.network.now(), end);
    lab.run();
    assert_eq!(lab.got(end.peer(), Time(0)).0, 3000);
    let now = lab.network.now();
    assert_eq!(lab.network.read(now, end.peer(), &mut [0; 8]), Ok(Read::End));
    // The other direction has nobody: the first bytes break it.
    lab.write(end.peer(), b"late");
    lab.run();
    assert!(lab.saw(Event::Broken(end.peer())).is_some());
    assert_eq!(lab.network.write(lab.network.now(), end.peer(), b"x"), Err(NetworkError::Broken));
    lab.network.leave(lab.network.now(), end.peer());
    assert!(lab.network.connections.iter().all(Option::is_none), "nothing is left of it");
}

#[test]
fn leaving_with_bytes_unread_breaks_the_connection() {
    let (mut lab, end) = Lab::pair(SLOW);
    lab.lazy.insert(end.peer());
    lab.write(end, b"unread");
    lab.run();
    lab.network.leave(lab.network.now(), end.peer());
    lab.run();
    assert!(lab.saw(Event::Broken(end)).is_some());
}

#[test]
fn half_a_connection_can_end() {
    let (mut lab, end) = Lab::pair(SLOW);
    lab.write(end, &[1; 500]);
    lab.network.finish(lab.network.now(), end);
    assert_eq!(lab.network.write(lab.network.now(), end, b"x"), Err(NetworkError::Finished));
    lab.run();
    lab.write(end.peer(), &[2; 700]);
    lab.run();
    assert_eq!((lab.got(end.peer(), Time(0)).0, lab.got(end, Time(0)).0), (500, 700));
}

#[test]
fn a_one_way_partition_holds_one_way_until_it_heals() {
    let (mut lab, end) = Lab::pair(SLOW);
    let [left, right] = [end, end.peer()].map(|end| lab.network.host_of(end).unwrap());
    let start = lab.network.now();
    lab.network.partition(start, left, right);
    lab.write(end, &[1; 100]);
    lab.write(end.peer(), &[2; 3000]);
    lab.run_until(Time(start.0 + 10 * MS));
    assert_eq!(lab.got(end.peer(), start).0, 0);
    assert_eq!(lab.got(end, start).0, 2000, "a window, whose acknowledgements are lost");
    lab.network.heal(Time(start.0 + 10 * MS), left, right);
    // Behind what was held, though it is sent when nothing is any more.
    lab.write(end, &[3; 100]);
    lab.run();
    assert_eq!(lab.got(end, start).0, 3000);
    let (bytes, _) = &lab.read[&end.peer()];
    assert_eq!(bytes[..], [[1; 100], [3; 100]].concat()[..]);
    assert_eq!(lab.got(end.peer(), start).1, 10 * MS + (50 + 100 + 100) * US);
}

#[test]
fn a_stall_delays_everything_behind_it() {
    let (mut lab, end) = Lab::pair(SLOW);
    let start = lab.network.now();
    lab.network.stall(start, end.peer(), Duration::from_millis(5));
    lab.write(end, &[1; 100]);
    lab.run();
    assert_eq!(lab.got(end.peer(), start), (100, 5 * MS));
}

#[test]
fn a_cut_is_noticed_at_either_end_in_its_own_time() {
    let (mut lab, end) = Lab::pair(SLOW);
    lab.write(end, &[1; 1000]);
    let start = lab.network.now();
    let cut = Time(start.0 + (50 + 250 + 100) * US);
    lab.run_until(cut);
    assert_eq!(lab.got(end.peer(), start).0, 200, "full frames only");
    let ms = Duration::from_millis;
    lab.network.cut(cut, end, ms(3), ms(1));
    assert_eq!(lab.write(end, b"into the void"), 13);
    lab.run();
    assert_eq!(lab.saw(Event::Broken(end)), Some(cut.after(ms(3))));
    assert_eq!(lab.saw(Event::Broken(end.peer())), Some(cut.after(ms(1))));
    // What was on its way then arrived before it was noticed.
    assert_eq!(lab.got(end.peer(), start).0, 300);
    let now = lab.network.now();
    assert_eq!(lab.network.read(now, end.peer(), &mut [0; 8]), Err(NetworkError::Broken));
}

#[test]
fn a_crashed_host_is_silent_and_a_restarted_one_knows_nobody() {
    let (mut lab, end) = Lab::pair(SLOW);
    let host = lab.network.host_of(end.peer()).unwrap();
    let from = lab.network.host_of(end).unwrap();
    lab.network.crash(lab.network.now(), host);
    lab.write(end, b"anybody there?");
    let silent = lab.network.dial(lab.network.now(), from, host, 80).unwrap();
    lab.run();
    assert_eq!(lab.events, [], "not a word");
    lab.network.restart(lab.network.now(), host);
    lab.run();
    assert!(lab.saw(Event::Broken(end)).is_some());
    assert!(lab.saw(Event::Connected(silent)).is_none());
    lab.connect(from, host);
}

#[test]
fn a_cut_can_break_a_frame_anywhere() {
    for kept in [0, 1, 99, 100, 150, 250, 1000] {
        let (mut lab, end) = Lab::pair(SLOW);
        let start = lab.network.now();
        lab.write(end, &[1; 1000]);
        // One frame arrived, one is on its way, one is being put on the wire.
        let cut = Time(start.0 + (50 + 240) * US);
        lab.run_until(cut);
        let (here, there) = (lab.got(end.peer(), start).0, lab.network.on_the_way(end.peer()));
        assert_eq!((here, there), (100, 200));
        lab.network.lose(cut, end.peer(), kept);
        lab.network.cut(cut, end, Duration::MAX, Duration::from_millis(1));
        lab.run();
        // The third one never left as a whole.
        assert_eq!(lab.got(end.peer(), start).0, 100 + kept.min(100), "{kept} kept");
        assert_eq!(lab.saw(Event::Broken(end.peer())), Some(cut.after(Duration::from_millis(1))));
        assert_eq!(lab.saw(Event::Broken(end)), None, "who is never told never knows");
    }
}

#[test]
fn behind_what_was_lost_nothing_comes_but_the_break() {
    let (mut lab, end) = Lab::pair(SLOW);
    lab.write(end, &[1; 300]);
    lab.network.lose(lab.network.now(), end.peer(), 7);
    lab.network.finish(lab.network.now(), end);
    lab.run();
    assert_eq!(lab.got(end.peer(), Time(0)).0, 7);
    let now = lab.network.now();
    assert_eq!(lab.network.read(now, end.peer(), &mut [0; 8]), Ok(Read::Nothing), "no end of it");
    // The other direction is whole.
    lab.write(end.peer(), &[2; 300]);
    lab.run();
    assert_eq!(lab.got(end, Time(0)).0, 300);
    lab.network.give_up(lab.network.now(), end);
    lab.run();
    assert!(lab.saw(Event::Broken(end.peer())).is_some());
}

#[test]
fn a_stall_for_ever_tells_nobody_until_a_system_gives_up() {
    let (mut lab, end) = Lab::pair(SLOW);
    lab.network.stall(lab.network.now(), end, Duration::MAX);
    lab.write(end, b"one way");
    lab.write(end.peer(), b"the other");
    lab.run();
    assert_eq!((lab.got(end.peer(), Time(0)).0, lab.got(end, Time(0)).0), (7, 0));
    assert!(lab.events.iter().all(|(_, event)| *event == Event::Readable(end.peer())));
    let gives_up = lab.network.now();
    lab.network.give_up(gives_up, end);
    lab.run();
    assert_eq!(lab.saw(Event::Broken(end)), Some(gives_up));
    // That way is free: the peer is told.
    let told = gives_up.after(Duration::from_micros(100));
    assert_eq!(lab.saw(Event::Broken(end.peer())), Some(told));
    assert_eq!(lab.network.write(lab.network.now(), end, b"x"), Err(NetworkError::Broken));
}

#[test]
fn a_dial_can_be_accepted_late_and_by_then_be_given_up() {
    for gives_up in [false, true] {
        let mut network = Network::new(7);
        let (left, right) = (network.add_host("left"), network.add_host("right"));
        network.link(left, right, SLOW);
        network.listen(right, 80).unwrap();
        let end = network.dial(Time(0), left, right, 80).unwrap();
        network.stall(Time(0), end.peer(), Duration::from_millis(4));
        if gives_up {
            network.leave(Time(3 * MS), end);
        }
        let accepted = Event::Incoming { host: right, port: 80, end: end.peer() };
        assert_eq!(network.next_event(), Some((Time(4 * MS), accepted)));
        let then = match gives_up {
            false => (Time(4 * MS + 100 * US), Event::Connected(end)),
            true => (Time(4 * MS), Event::Broken(end.peer())),
        };
        assert_eq!(network.next_event(), Some(then));
    }
}

#[test]
fn events_by_a_time_leave_the_rest_for_calls_before_it() {
    let (mut lab, end) = Lab::pair(SLOW);
    let start = lab.network.now();
    lab.write(end, &[1; 10]);
    let arrives = Time(start.0 + (50 + 10 + 100) * US);
    assert_eq!(lab.network.next_event_by(Time(arrives.0 - 1)), None);
    // Later than that, and earlier than the limit.
    lab.network.write(Time(arrives.0 - 1), end.peer(), &[2; 10]).unwrap();
    let readable = Event::Readable(end.peer());
    assert_eq!(lab.network.next_event_by(Time(u64::MAX)), Some((arrives, readable)));
    assert_eq!(lab.network.now(), arrives);
    assert_eq!(lab.network.readable(end.peer()), 10);
    let mut all = vec![0; 3];
    let read = lab.network.read_to(arrives, end.peer(), 4, &mut all);
    assert_eq!((read, all), (Ok(Read::Bytes(4)), vec![0, 0, 0, 1, 1, 1, 1]));
}

/// What a seed gives under jitter: the digest and the deliveries.
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

    /// Reads at most so much; false when there was nothing.
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
    fn streams_are_whole_and_in_order_whatever_happens(seed in any::<u64>(), acts in acts()) {
        let (mut network, spec) =
            (Network::new(seed), LinkSpec { jitter: Duration::from_micros(200), ..SLOW });
        let (a, b) = (network.add_host("a"), network.add_host("b"));
        network.shared_medium(&[a, b], spec);
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
