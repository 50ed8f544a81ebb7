use super::*;
use crate::network::{BridgeSpec, Event, HostSpec, LinkSpec, Read};

const US: u64 = 1_000;

/// A byte takes a microsecond.
const SLOW: LinkSpec = LinkSpec {
    latency: Duration::from_micros(100),
    bytes_per_second: 1_000_000,
    cost_per_packet: Duration::ZERO,
    frame_bytes: 100,
    ..LinkSpec::ETHERNET_10M
};

/// 30 us for a packet that is sent, 20 us for one that is received.
const COSTLY: HostSpec = HostSpec {
    cores: 2,
    speed_permille: 1000,
    send_cost_per_packet: Duration::from_micros(30),
    send_picos_per_byte: 0,
    receive_cost_per_packet: Duration::from_micros(20),
    receive_picos_per_byte: 0,
    foreign: None,
};

const SPANS_MAX: usize = 1_000;

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// Runs until nothing more happens; reads everything.
fn run(network: &mut Network) {
    let mut buffer = [0; 4096];
    while let Some((now, event)) = network.next_event() {
        if let Event::Readable(end) = event {
            while let Ok(Read::Bytes(_)) = network.read(now, end, &mut buffer) {}
        }
    }
}

fn connect(network: &mut Network, from: HostId, to: HostId) -> EndId {
    let port = network.listen(to, 0).unwrap();
    let end = network.dial(network.now(), from, to, port).unwrap();
    run(network);
    end
}

/// A network of these hosts joined by `join`, with a connection from the first to the last, from
/// which on the timeline is kept.
fn joined<const N: usize>(
    spec: HostSpec,
    join: impl FnOnce(&mut Network, &[HostId; N]),
) -> (Network, [HostId; N], EndId) {
    let mut network = Network::new(7);
    let hosts = std::array::from_fn(|at| network.add_host_of(&format!("host{at}"), spec));
    join(&mut network, &hosts);
    let end = connect(&mut network, hosts[0], hosts[N - 1]);
    network.keep_timeline(SPANS_MAX);
    (network, hosts, end)
}

/// The spans as lane, activity, and begin and end in microseconds since the beginning.
fn spans(network: &Network) -> Vec<(Lane, Activity, u64, u64)> {
    let timeline = network.timeline().unwrap();
    let since = |time: Time| {
        assert_eq!((time.0 - timeline.begin.0) % US, 0);
        (time.0 - timeline.begin.0) / US
    };
    let of = |span: &Span| (span.lane, span.activity, since(span.begin), since(span.end));
    timeline.spans().iter().map(of).collect()
}

#[test]
fn a_packet_holds_the_hosts_and_the_wire_one_after_another() {
    let (mut network, [left, right], end) =
        joined(COSTLY, |network, hosts| network.link(hosts[0], hosts[1], SLOW));
    network.write(network.now(), end, &[1; 150]).unwrap();
    run(&mut network);
    let (to, wire) = (end.peer(), Lane::Link { from: left, to: right });
    assert_eq!(
        spans(&network),
        [
            (Lane::Messages(left), Activity::Sending { end, bytes: 150 }, 0, 30),
            (wire, Activity::Frame { to, bytes: 100 }, 30, 130),
            (wire, Activity::Frame { to, bytes: 50 }, 130, 180),
            // The second frame is readable as it arrives.
            (Lane::Messages(right), Activity::Receiving { end: to, bytes: 100 }, 230, 250),
        ]
    );
}

#[test]
fn jobs_have_the_first_free_core_and_lanes_beyond_the_cores() {
    let (mut network, hosts, _) =
        joined(COSTLY, |network, hosts: &[HostId; 2]| network.link(hosts[0], hosts[1], SLOW));
    let [host, _] = hosts;
    let start = network.now();
    let jobs = [100, 300, 200].map(|work| network.compute(start, host, micros(work)));
    run(&mut network);
    let later = network.compute(network.now(), host, micros(10));
    run(&mut network);
    let lane = |index| Lane::Core { host, index };
    // Three share two cores until the first is done, after 150 us; then each has its own.
    assert_eq!(
        spans(&network),
        [
            (lane(0), Activity::Computing(jobs[0]), 0, 150),
            (lane(2), Activity::Computing(jobs[2]), 0, 250),
            (lane(1), Activity::Computing(jobs[1]), 0, 350),
            (lane(0), Activity::Computing(later), 350, 360),
        ]
    );
    let timeline = network.timeline().unwrap();
    let busy: Vec<_> = timeline.spans().iter().map(|span| span.busy).collect();
    assert_eq!(busy, [100, 200, 300, 10].map(micros));
    assert_eq!(timeline.duration(), micros(360));
}

#[test]
fn cancelled_crashed_and_running_jobs_had_their_time() {
    let (mut network, [left, right], _) =
        joined(COSTLY, |network, hosts| network.link(hosts[0], hosts[1], SLOW));
    let start = network.now();
    let one = network.compute(start, left, micros(1000));
    network.compute(start, right, micros(1000));
    for _ in 0..3 {
        network.compute(start, left, micros(1000));
    }
    network.cancel(start.after(micros(100)), one);
    network.crash(start.after(micros(250)), right);
    let _ = network.poll_event(start.after(micros(400)));
    let timeline = network.timeline().unwrap();
    let times: Vec<_> = timeline
        .spans()
        .iter()
        .map(|span| (span.end.0 - span.begin.0, span.busy.as_nanos() as u64))
        .collect();
    // Four on two cores for 100 us, then three for 300 us: the others had 50 + 200 us each.
    let running = (400 * US, 250 * US);
    assert_eq!(times, [(100 * US, 50 * US), (250 * US, 250 * US), running, running, running]);
    assert_eq!(
        timeline.to_table(),
        "host   cores  computing  sending  receiving     busy\n\
         host0      2    100.0 %    0.0 %      0.0 %  100.0 %\n\
         host1      2     31.3 %    0.0 %      0.0 %   31.3 %\n\
         \n\
         wire  frames  contention  busy\n"
    );
}

#[test]
fn contention_stands_before_the_frames_of_a_medium() {
    let spec = LinkSpec { slot_time: micros(50), ..SLOW };
    let (mut network, hosts, end) = joined(HostSpec::default(), |network, hosts: &[HostId; 3]| {
        network.shared_medium(hosts, spec);
    });
    let other = connect(&mut network, hosts[1], hosts[2]);
    network.keep_timeline(SPANS_MAX);
    let start = network.now();
    for end in [end, other] {
        network.write(start, end, &[1; 200]).unwrap();
    }
    run(&mut network);
    let lane = spans(&network)[0].0;
    let frame = |end: EndId| Activity::Frame { to: end.peer(), bytes: 100 };
    assert!(matches!(lane, Lane::Medium(_)));
    assert_eq!(
        spans(&network),
        [
            (lane, frame(end), 0, 100),
            (lane, Activity::Contention, 100, 150),
            (lane, frame(other), 150, 250),
            (lane, Activity::Contention, 250, 300),
            (lane, frame(end), 300, 400),
            (lane, frame(other), 400, 500),
        ]
    );
    let table = network.timeline().unwrap().to_table();
    assert!(table.ends_with("medium 0  66.7 %      16.7 %  83.3 %\n"), "{table}");
}

#[test]
fn a_frame_over_a_bridge_holds_every_wire_of_its_way() {
    let (mut network, [left, right], end) = joined(HostSpec::default(), |network, hosts| {
        let limit = LinkSpec { total_bytes_per_second: 2_000_000, ..SLOW };
        let segments =
            [network.switch(&hosts[..1], limit), network.shared_medium(&hosts[1..], SLOW)];
        let spec = BridgeSpec { bytes_per_second: 10_000_000, ..BridgeSpec::default() };
        network.bridge(segments[0], segments[1], spec);
    });
    network.write(network.now(), end, &[1; 100]).unwrap();
    run(&mut network);
    let spans = spans(&network);
    let [switch, medium] = [0, 1].map(|at| match spans[[0, 4][at]].0 {
        Lane::ToSwitch(segment, _) | Lane::Medium(segment) => segment,
        lane => panic!("{lane:?}"),
    });
    let frame = Activity::Frame { to: end.peer(), bytes: 100 };
    assert_eq!(
        spans,
        [
            (Lane::ToSwitch(switch, Station::Host(left)), frame, 0, 100),
            (Lane::Switch(switch), frame, 100, 150),
            (Lane::FromSwitch(switch, Station::Bridge(0)), frame, 100, 200),
            (Lane::Bridge(0, medium), frame, 200, 210),
            (Lane::Medium(medium), frame, 260, 360),
        ]
    );
    assert_ne!(left, right);
    let table = network.timeline().unwrap().to_table();
    for name in ["host0 -> switch 0", "switch 0 -> bridge 0", "bridge 0 -> segment 1", "medium 1"] {
        assert!(table.contains(&format!("\n{name} ")), "{table}");
    }
}

/// A network in which much happens at once.
fn busy(spans_max: Option<usize>) -> Network {
    let mut network = Network::new(7);
    let names = ["a \"quoted\" \\ name", "b\n", "c", "d"];
    let hosts = names.map(|name| network.add_host_of(name, COSTLY));
    network.switch(&hosts, LinkSpec { jitter: micros(30), ..SLOW });
    network.shared_medium(&hosts, SLOW);
    let ends: Vec<_> = [(0, 1), (1, 2), (2, 0), (3, 0), (0, 0)]
        .map(|(from, to)| connect(&mut network, hosts[from], hosts[to]))
        .into();
    if let Some(spans_max) = spans_max {
        network.keep_timeline(spans_max);
    }
    let mut random = crate::network::Random::new(7);
    for _ in 0..200 {
        let now = network.now().after(micros(random.below(200)));
        while network.poll_event(now).is_some() {}
        let end = random.pick(&ends);
        let end = if random.one_in(2) { end } else { end.peer() };
        let bytes = random.range(1, 400) as usize;
        network.write(now, end, &vec![1; bytes]).unwrap();
        let job = network.compute(now, random.pick(&hosts), micros(random.below(900)));
        if random.one_in(4) {
            network.cancel(now.after(micros(50)), job);
        }
    }
    run(&mut network);
    network
}

#[test]
fn spans_of_a_lane_do_not_overlap_and_busy_times_are_theirs() {
    let timeline = busy(Some(1_000_000)).timeline().unwrap();
    let mut by_lane: BTreeMap<Lane, Vec<Span>> = BTreeMap::new();
    for span in timeline.spans() {
        assert!(span.begin < span.end && span.busy.as_nanos() as u64 <= span.end.0 - span.begin.0);
        by_lane.entry(span.lane).or_default().push(*span);
    }
    assert!(by_lane.len() > 12 && timeline.spans().len() > 1000);
    for spans in by_lane.values_mut() {
        spans.sort_by_key(|span| span.begin);
        for pair in spans.windows(2) {
            assert!(pair[0].end <= pair[1].begin, "{pair:?}");
        }
    }
    for (lane, busy) in timeline.busy() {
        assert_eq!(busy.sum(), by_lane[&lane].iter().map(|span| span.busy).sum::<Duration>());
        assert!(busy.sum() <= timeline.duration());
    }
}

#[test]
fn a_timeline_changes_nothing_and_is_the_same_again() {
    let networks = [None, Some(1_000_000), Some(1_000_000)].map(busy);
    assert_eq!(networks[0].digest(), networks[1].digest());
    assert_eq!(networks[0].timeline(), None);
    let [one, other] = [1, 2].map(|at| networks[at].timeline().unwrap());
    assert_eq!(one.to_trace_json(), other.to_trace_json());
    assert_eq!(one.to_table(), other.to_table());
}

#[test]
fn spans_beyond_the_limit_are_counted_and_in_the_busy_times() {
    let (all, some) =
        (busy(Some(1_000_000)).timeline().unwrap(), busy(Some(10)).timeline().unwrap());
    assert_eq!(some.spans(), &all.spans()[..10]);
    assert_eq!(some.spans_dropped(), all.spans().len() as u64 - 10);
    assert!(some.busy().eq(all.busy()));
    let missing = format!("{} spans", some.spans_dropped());
    assert!(some.to_trace_json().contains(&missing) && some.to_table().contains(&missing));
    assert!(!all.to_trace_json().contains("spans") && !all.to_table().contains("spans"));
}

#[test]
fn trace_events_are_json_with_a_lane_for_each_core_and_wire() {
    let timeline = busy(Some(1_000_000)).timeline().unwrap();
    let json: serde_json::Value = serde_json::from_str(&timeline.to_trace_json()).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let named = |kind: &str| -> Vec<&str> {
        let events = events.iter().filter(|event| event["name"] == kind);
        events.map(|event| event["args"]["name"].as_str().unwrap()).collect()
    };
    assert_eq!(named("process_name"), ["wires", "a \"quoted\" \\ name", "b\n", "c", "d"]);
    let lanes = named("thread_name");
    for lane in ["core 0", "core 1", "sharing 0", "I/O", "c -> switch 0", "switch 0 -> d"] {
        assert!(lanes.contains(&lane), "{lane} in {lanes:?}");
    }
    assert_eq!(lanes.len(), timeline.busy().count());
    let times = events.iter().filter(|event| event["ph"] == "X");
    let (waits, spans): (Vec<_>, Vec<_>) = times.partition(|event| event["name"] == "waiting");
    assert_eq!(spans.len(), timeline.spans().len());
    for (event, span) in spans.iter().zip(timeline.spans()) {
        let nanos = |key: &str| (event[key].as_f64().unwrap() * 1e3).round() as u64;
        assert_eq!((nanos("ts"), nanos("dur")), (span.begin.0, span.end.0 - span.begin.0));
    }
    for name in ["computing", "sending", "receiving", "wire"] {
        assert!(spans.iter().any(|event| event["name"] == name), "{name}");
    }
    // Jobs of a lane and its waits follow one another, without a gap.
    let lane = |event: &serde_json::Value| (event["pid"].as_u64(), event["tid"].as_u64());
    let first = spans.iter().find(|event| event["name"] == "computing").unwrap();
    let mut times: Vec<(u64, u64)> = waits
        .iter()
        .chain(&spans)
        .filter(|event| lane(event) == lane(first))
        .map(|event| {
            let nanos = |key: &str| (event[key].as_f64().unwrap() * 1e3).round() as u64;
            (nanos("ts"), nanos("ts") + nanos("dur"))
        })
        .collect();
    times.sort_unstable();
    assert!(times.len() > 2 && times.windows(2).all(|pair| pair[0].1 == pair[1].0), "{times:?}");
}
