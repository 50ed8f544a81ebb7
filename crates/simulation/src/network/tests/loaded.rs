//! Foreign load on the cores of hosts.

use super::*;

const LOAD: ForeignLoad = ForeignLoad {
    jobs: 1,
    mean_on: Duration::from_micros(100),
    mean_off: Duration::from_micros(100),
};

fn host(seed: u64, spec: HostSpec) -> (Network, HostId) {
    let mut network = Network::new(seed);
    let host = network.add_host_of("host", spec);
    (network, host)
}

/// Returns the nanoseconds from `start` until the only job is done.
fn takes(network: &mut Network, start: Time) -> u64 {
    let Some((at, Event::Computed(_))) = network.next_event() else { panic!("it is never done") };
    assert_eq!(network.next_event(), None);
    at.0 - start.0
}

#[test]
fn a_job_with_one_foreign_job_on_one_core_takes_twice_as_long() {
    for (cores, foreign, times) in [(1, 0, 1), (1, 1, 2), (1, 3, 4), (2, 1, 1), (2, 3, 2)] {
        let (mut network, host) = host(7, HostSpec { cores, ..HostSpec::default() });
        network.load(Time(0), host, foreign);
        network.compute(Time(0), host, Duration::from_micros(300));
        let took = takes(&mut network, Time(0));
        assert_eq!(took, times * 300 * US, "{foreign} foreign jobs on {cores} cores");
    }
}

#[test]
fn load_counts_from_when_it_is_set() {
    let (mut network, host) = host(7, HostSpec::default());
    network.compute(Time(0), host, Duration::from_micros(300));
    network.load(Time(100 * US), host, 1);
    network.load(Time(300 * US), host, 3);
    network.load(Time(500 * US), host, 0);
    // 100 us alone, a half of 200 us, a quarter of 200 us; 50 us are left.
    assert_eq!(takes(&mut network, Time(0)), 550 * US);
}

#[test]
fn load_slows_the_costs_of_packets() {
    let mut network = Network::new(7);
    let spec = HostSpec { send_cost_per_packet: Duration::from_micros(30), ..HostSpec::default() };
    let hosts = [network.add_host_of("left", spec), network.add_host("right")];
    network.link(hosts[0], hosts[1], SLOW);
    let mut lab = Lab::new(network);
    let end = lab.connect(hosts[0], hosts[1]);
    let start = lab.network.now();
    lab.network.load(start, hosts[0], 2);
    lab.write(end, &[1; 10]);
    lab.run();
    assert_eq!(lab.got(end.peer(), start), (10, (3 * 30 + 50 + 10 + 100) * US));
}

#[test]
fn load_by_the_seed_takes_its_mean_share() {
    // A job has all of the core for half of the time, and half of it for the other half.
    let spec = HostSpec { foreign: Some(LOAD), ..HostSpec::default() };
    let mut all = BTreeSet::new();
    for seed in 0..20 {
        let run = || {
            let (mut network, host) = host(seed, spec);
            network.compute(Time(0), host, Duration::from_millis(300));
            takes(&mut network, Time(0))
        };
        let took = run();
        assert_eq!(run(), took, "a seed is a run");
        assert!(took.abs_diff(400 * MS) < 400 * MS / 25, "{took}");
        all.insert(took);
    }
    assert_eq!(all.len(), 20, "seeds differ");
}

#[test]
fn hosts_of_a_seed_are_loaded_at_times_of_their_own() {
    let spec = HostSpec { foreign: Some(LOAD), ..HostSpec::default() };
    let (mut network, one) = host(7, spec);
    let other = network.add_host_of("other", spec);
    let jobs = [one, other].map(|host| network.compute(Time(0), host, Duration::from_millis(3)));
    let done = [network.next_event().unwrap(), network.next_event().unwrap()];
    assert_ne!(done[0].0, done[1].0);
    assert!(jobs.iter().all(|job| done.iter().any(|(_, it)| *it == Event::Computed(*job))));
}

#[test]
fn load_of_a_host_without_jobs_is_no_event_and_does_not_depend_on_looking() {
    let spec = HostSpec { foreign: Some(LOAD), ..HostSpec::default() };
    let begin = Time(10 * MS);
    let run = |looks: u64| {
        let (mut network, host) = host(7, spec);
        assert_eq!(network.next_time(), None);
        for look in 0..looks {
            network.load(Time(look * begin.0 / looks), host, 0);
        }
        network.compute(begin, host, Duration::from_millis(3));
        takes(&mut network, begin)
    };
    assert_eq!(run(0), run(77));
}

#[test]
#[should_panic(expected = "at least 1µs")]
fn load_that_changes_without_a_pause_is_refused() {
    let load = ForeignLoad { mean_off: Duration::ZERO, ..LOAD };
    host(7, HostSpec { foreign: Some(load), ..HostSpec::default() });
}
