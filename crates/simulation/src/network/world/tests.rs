use super::*;
use crate::network::{Event, ForeignLoad, Read};
use chunkcomm_proto::Time;
use proptest::prelude::*;
use std::collections::BTreeSet;

const DOCS: &str = include_str!("../../../docs/worlds.md");

const EXAMPLE: &str = include_str!("../../../docs/world.toml");

/// Connects pairs of hosts, and reads all that arrives.
struct Pairs {
    network: Network,
    ends: Vec<crate::network::EndId>,
}

impl Pairs {
    fn new(name: &str, count: usize, pairs: &[(usize, usize)]) -> Pairs {
        let (mut network, hosts) = WorldSpec::preset(name).unwrap().build(7, count);
        let mut ends = Vec::new();
        for (from, to) in pairs {
            let port = network.listen(hosts[*to], 0).unwrap();
            let now = network.now();
            ends.push(network.dial(now, hosts[*from], hosts[*to], port).unwrap());
            while network.next_event().is_some() {}
        }
        Pairs { network, ends }
    }

    /// Writes `bytes` at each first end at once; returns the nanoseconds until the last arrived.
    fn transfer(&mut self, bytes: usize) -> u64 {
        let (start, mut last) = (self.network.now(), self.network.now());
        let mut left = vec![bytes; self.ends.len()];
        for (end, left) in self.ends.iter().zip(&mut left) {
            *left -= self.network.write(start, *end, &vec![1; *left]).unwrap();
        }
        let mut buffer = vec![0; 1 << 20];
        while let Some((now, event)) = self.network.next_event() {
            match event {
                Event::Readable(end) => {
                    while let Read::Bytes(_) = self.network.read(now, end, &mut buffer).unwrap() {}
                    last = now;
                }
                Event::Writable(end) => {
                    let at = self.ends.iter().position(|it| *it == end).unwrap();
                    left[at] -= self.network.write(now, end, &vec![1; left[at]]).unwrap();
                }
                _ => {}
            }
        }
        assert!(left.iter().all(|left| *left == 0));
        last.0 - start.0
    }
}

#[test]
fn presets_join_as_many_hosts_as_are_asked_for() {
    for name in WorldSpec::presets() {
        for count in [2, 5, 100] {
            let mut pairs = Pairs::new(name, count, &[(0, count - 1), (count / 2, 0)]);
            assert!(pairs.transfer(100_000) > 0, "{name}");
        }
        let (network, hosts) = WorldSpec::preset(name).unwrap().build(7, 0);
        assert!(hosts.is_empty() && network.next_time().is_none());
    }
    assert_eq!(WorldSpec::default(), WorldSpec::preset("default").unwrap());
    let error = WorldSpec::preset("arpanet").unwrap_err();
    assert!(error.to_string().starts_with("there is no preset \"arpanet\", but default, ether"));
}

#[test]
fn sparcs_take_the_published_times() {
    // LAN, table 2: P4 between two SPARCstation 2.
    for (bytes, millis) in [(16, 1.2), (1 << 10, 2.2), (64 << 10, 71.9)] {
        let took = Pairs::new("ethernet-10m-sparc", 2, &[(0, 1)]).transfer(bytes) as f64 / 1e6;
        println!("{bytes} B: {took:.3} ms, published {millis} ms");
        assert!((took / millis - 1.0).abs() < 0.05, "{bytes} B take {took} ms");
    }
}

#[test]
fn a_beowulf_spends_the_published_time_on_a_message() {
    // Eden, section 3.1: 63.34 us and 0.1 us a word. The next message waits for that time.
    for words in [1, 10, 100, 200] {
        let one = Pairs::new("beowulf-100m", 2, &[(0, 1)]).transfer(words * 4);
        let mut both = Pairs::new("beowulf-100m", 2, &[(0, 1), (0, 1)]);
        let sent = 63_340 + words as u64 * 100;
        assert_eq!(both.transfer(words * 4) - one, sent, "{words} words");
    }
}

/// Returns the bytes a second that a chain of `tasks` carries, all pairs at once.
fn chain(name: &str, tasks: usize) -> f64 {
    const BYTES: usize = 4 << 20;
    let pairs: Vec<_> = (1..tasks).map(|task| (task - 1, task)).collect();
    let nanos = Pairs::new(name, tasks, &pairs).transfer(BYTES);
    (pairs.len() * BYTES) as f64 / (nanos as f64 / 1e9)
}

#[test]
fn chains_stop_to_gain_where_the_paper_says() {
    // Delta, section 3: a Regatta at 27 tasks, a cluster at 16.
    for (name, tasks) in [("regatta", 27), ("pc-cluster-100m", 16)] {
        let few = chain(name, 3) / 2.0;
        let [before, there, beyond] = [tasks - 5, tasks, tasks + 5].map(|count| chain(name, count));
        println!("{name}: {few:.0} a pair; {before:.0}, {there:.0}, {beyond:.0} B/s");
        assert!((before / few / (tasks - 6) as f64 - 1.0).abs() < 0.02);
        assert!((there / few / (tasks - 1) as f64 - 1.0).abs() < 0.03);
        assert!((beyond / there - 1.0).abs() < 0.03);
    }
}

#[test]
fn the_docs_have_each_number_of_each_preset() {
    let sections: BTreeMap<&str, &str> = DOCS
        .split("\n### `")
        .skip(1)
        .map(|section| {
            let (name, rest) = section.split_once('`').unwrap();
            (name, rest)
        })
        .collect();
    assert_eq!(sections.keys().copied().collect::<BTreeSet<_>>(), WorldSpec::presets().collect());
    for (name, text) in PRESETS {
        let rows: BTreeSet<&str> = sections[name]
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
            .inspect(|(key, source)| assert!(source.len() > 3, "{name}: {key} has no source"))
            .map(|(key, _)| key)
            .collect();
        let has_number = |line: &&str| {
            let named = ["name = ", "kind = ", "segments = "];
            line.contains(" = ") && !named.iter().any(|key| line.starts_with(key))
        };
        assert_eq!(rows, text.lines().filter(has_number).collect(), "{name}");
    }
}

#[test]
fn the_example_has_every_key_and_reads_back() {
    let world = WorldSpec::from_toml(EXAMPLE).unwrap();
    assert_eq!(WorldSpec::from_toml(&world.to_toml()).unwrap(), world);
    let keys = |text: &str| -> BTreeSet<String> {
        let keys = text.lines().filter_map(|line| line.split_once(" = "));
        keys.map(|(key, _)| key.to_owned()).filter(|key| !key.starts_with('#')).collect()
    };
    // `foreign` is written as a table of its own.
    let mut written = keys(&world.to_toml());
    written.retain(|key| !["jobs", "mean_on", "mean_off"].contains(&key.as_str()));
    written.insert("foreign".to_owned());
    assert_eq!(keys(EXAMPLE), written);
    assert_eq!(world.work["compress"], Duration::from_micros(1500));
    assert_eq!(world.host_count(), 8);
    let load = world.hosts[1].spec.foreign.unwrap();
    assert_eq!((load.jobs, load.mean_on), (1, Duration::from_secs(20)));
    assert_eq!(world.hosts[0].spec.send_picos_per_byte, 300);
    assert_eq!(world.hosts[2].spec.receive_picos_per_byte, 0);
    let (mut network, hosts) = world.build(7, 10);
    let names: Vec<_> = hosts.iter().map(|host| network.host_name(*host)).collect();
    let all = "farmer0 pc0 pc1 pc2 worker0 worker1 worker2 worker3 worker4 worker5";
    assert_eq!(names.join(" "), all);
    network.listen(hosts[0], 80).unwrap();
    assert!(network.dial(Time(0), hosts[9], hosts[0], 80).is_ok());
    // Nothing joins the office and the lab but the farmer.
    assert!(network.dial(Time(0), hosts[9], hosts[1], 80).is_err());
}

#[test]
fn comments_of_the_example_name_the_defaults() {
    let defaults = WorldSpec::from_toml(
        "[[hosts]]\nname = \"a\"\nsegments = [\"s\"]\n[[segments]]\nname = \"s\"\nkind = \"medium\"\n\
         [[segments]]\nname = \"t\"\nkind = \"switch\"\n[[bridges]]\nbetween = [\"s\", \"t\"]",
    );
    let written = defaults.unwrap().to_toml();
    let mut found = 0;
    for line in EXAMPLE.lines().filter(|line| !line.starts_with('#')) {
        let Some(((key, _), (_, comment))) = line.split_once(" = ").zip(line.split_once("# "))
        else {
            continue;
        };
        let default = comment.split(':').next().unwrap().replace('_', "");
        if !default.starts_with(|c: char| c == '"' || c.is_ascii_digit()) {
            continue;
        }
        found += 1;
        let expected = format!("{key} = {default}");
        assert!(written.lines().any(|line| line == expected), "{expected} in\n{written}");
    }
    assert!(found >= 18, "{found}");
}

/// Replaces a line of the example by another; returns the error.
fn wrong(line: &str, by: &str) -> (usize, String, String) {
    let at = EXAMPLE.lines().position(|it| it.starts_with(line)).unwrap();
    let lines = EXAMPLE.lines().enumerate().map(|(number, it)| if number == at { by } else { it });
    let text: Vec<_> = lines.collect();
    match WorldSpec::from_toml(&text.join("\n")).unwrap_err() {
        WorldError::File { line, text, reason } => {
            println!("line {line}, {text:?}: {reason}");
            assert_eq!(line, at + 1, "{reason}");
            (line, text, reason)
        }
        error => panic!("{error}"),
    }
}

#[test]
fn faults_of_a_file_name_the_key_and_the_line() {
    for (line, by, expected) in [
        ("cores = 8", "kores = 8", "unknown field `kores`"),
        ("cores = 8", "cores = 0", "it is 1 to 4096, not 0"),
        ("cores = 8", "cores = \"eight\"", "invalid type"),
        ("count = 3", "count = -3", "it is 1 to 1048576, not -3"),
        ("speed_permille = 400", "speed_permille = 0.4", "invalid type"),
        ("send_cost_per_packet", "send_cost_per_packet = \"5 us\"", "a time is a number"),
        ("send_cost_per_packet", "send_cost_per_packet = \"0.1ns\"", "is a nanosecond"),
        ("send_cost_per_packet", "send_cost_per_packet = 5", "invalid type"),
        ("render = ", "render = \"10 parsecs\"", "a time is a number and ps, ns, us, ms or s"),
        ("bytes_per_second = 1_186", "bytes_per_second = 0", "bytes a second from 1"),
        ("bytes_per_second = 1_186", "bytes_per_second = \"fast\"", "or \"unlimited\""),
        ("frame_bytes", "frame_bytes = 5_000_000_000", "it is 1 to 4294967295"),
        ("kind = \"switch\"", "kind = \"hub\"", "unknown variant `hub`"),
        ("total_bytes_per_second", "slot_time = \"1us\"", "only a medium has slots"),
        ("slot_time", "total_bytes_per_second = 7", "only a switch has a limit"),
        ("between = ", "between = [\"lab\", \"moon\"]", "there is no segment \"moon\""),
        ("between = ", "between = [\"lab\", \"lab\"]", "a bridge joins two segments"),
        ("segments = [\"office\"]", "segments = [\"attic\"]", "there is no segment \"attic\""),
        ("segments = [\"office\"]", "segments = [\"lab\", \"lab\"]", "on this segment already"),
        ("name = \"pc\"", "name = \"pc1\"", "ends in no digit"),
        ("name = \"pc\"", "name = \"p/c\"", "letters, digits"),
        ("name = \"worker\"", "name = \"pc\"", "hosts before have this name"),
        ("name = \"archive\"", "name = \"lab\"", "a segment before has this name"),
        ("foreign", "foreign = { jobs = 1, mean_on = \"0s\", mean_off = \"1s\" }", "at least 1µs"),
        ("foreign", "foreign = { jobs = 1, mean_on = \"1s\" }", "missing field `mean_off`"),
        ("[work]", "[work", "unclosed table"),
        ("[work]", "[labour]", "unknown field `labour`"),
    ] {
        let (_, text, reason) = wrong(line, by);
        assert!(reason.contains(expected), "{by}: {reason}");
        assert!(!reason.contains('\n') && text == by.trim());
    }
    let error = WorldSpec::from_toml("[[hosts]]\nname = \"a\"").unwrap_err();
    assert_eq!(error.to_string(), "line 1, \"[[hosts]]\": missing field `segments`");
    let error = WorldSpec::from_toml("hosts = []\nsegments = []").unwrap_err();
    assert_eq!(error.to_string(), "line 1, \"hosts = []\": a world has hosts");
}

fn host_specs() -> impl Strategy<Value = HostSpec> {
    let numbers = (1..=4096u32, 1..=1_000_000u32, any::<[u32; 2]>(), any::<[u64; 4]>());
    let foreign = proptest::option::of((any::<u32>(), 1_000..u64::MAX, 1_000..u64::MAX));
    (numbers, foreign).prop_map(|((cores, speed_permille, [a, b], [c, d, ..]), foreign)| HostSpec {
        cores,
        speed_permille,
        send_cost_per_packet: Duration::from_nanos(c),
        send_picos_per_byte: u64::from(a),
        receive_cost_per_packet: Duration::from_nanos(d),
        receive_picos_per_byte: u64::from(b),
        foreign: foreign.map(|(jobs, on, off)| ForeignLoad {
            jobs,
            mean_on: Duration::from_nanos(on),
            mean_off: Duration::from_nanos(off),
        }),
    })
}

fn segments() -> impl Strategy<Value = (SegmentKind, LinkSpec)> {
    let rate = || prop_oneof![Just(u64::MAX), 1..i64::MAX as u64];
    let sizes = [1..=u32::MAX, 1..=u32::MAX, 1..=u32::MAX];
    (any::<[u64; 4]>(), rate(), rate(), sizes, any::<bool>()).prop_map(
        |(times, bytes_per_second, total, [frame, queue, window], is_medium)| {
            let [latency, jitter, cost_per_packet, slot] = times.map(Duration::from_nanos);
            let spec = LinkSpec {
                latency,
                jitter,
                bytes_per_second,
                cost_per_packet,
                frame_bytes: frame as usize,
                queue_bytes: queue as usize,
                window_bytes: window as usize,
                slot_time: if is_medium { slot } else { Duration::ZERO },
                total_bytes_per_second: if is_medium { u64::MAX } else { total },
            };
            (if is_medium { SegmentKind::Medium } else { SegmentKind::Switch }, spec)
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_reads_back(
        hosts in proptest::collection::vec((host_specs(), 1..1000usize), 1..4),
        kinds in proptest::collection::vec(segments(), 2..4),
        bridge in (any::<u64>(), 1..i64::MAX as u64, 1..=u32::MAX),
        work in proptest::collection::btree_map(".{0,8}", any::<u64>(), 0..4),
    ) {
        let segments: Vec<_> = kinds.into_iter().enumerate().map(|(at, (kind, spec))| {
            SegmentSpec { name: format!("segment {at}"), kind, spec }
        }).collect();
        let world = WorldSpec {
            hosts: hosts.into_iter().zip(["a", "b", "c"]).map(|((spec, count), name)| HostGroup {
                name: name.to_owned(), count, segments: vec![segments[0].name.clone()], spec,
            }).collect(),
            bridges: vec![BridgeBetween {
                segments: [segments[0].name.clone(), segments[1].name.clone()],
                spec: BridgeSpec {
                    delay: Duration::from_nanos(bridge.0),
                    bytes_per_second: bridge.1,
                    queue_bytes: bridge.2 as usize,
                },
            }],
            segments,
            work: work.into_iter().map(|(name, work)| (name, Duration::from_nanos(work))).collect(),
        };
        prop_assert_eq!(WorldSpec::from_toml(&world.to_toml()), Ok(world));
    }
}
