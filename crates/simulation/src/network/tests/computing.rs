//! Jobs of hosts.

use super::*;

/// A network with one host of `cores` cores, at a time that is not 0.
fn host(cores: u32, speed_permille: u32) -> (Network, HostId, Time) {
    let mut network = Network::new(7);
    let host =
        network.add_host_of("host", HostSpec { cores, speed_permille, ..HostSpec::default() });
    let start = Time(12_345);
    assert_eq!(network.poll_event(start), None);
    (network, host, start)
}

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// Returns the jobs that are done, each with the microseconds since `start`.
fn done(network: &mut Network, start: Time) -> Vec<(u64, JobId)> {
    let mut done = Vec::new();
    while let Some((at, event)) = network.next_event() {
        let Event::Computed(job) = event else { panic!("{event:?}") };
        assert_eq!((at.0 - start.0) % US, 0);
        done.push(((at.0 - start.0) / US, job));
    }
    done
}

#[test]
fn a_job_alone_takes_its_work() {
    for (speed, takes) in [(1000, 300), (250, 1200), (3000, 100)] {
        let (mut network, host, start) = host(2, speed);
        let job = network.compute(start, host, micros(300));
        assert_eq!(done(&mut network, start), [(takes, job)], "speed {speed}");
    }
}

#[test]
fn equal_jobs_take_their_work_by_their_share_of_the_cores() {
    for (cores, jobs, takes) in [(1, 3, 900), (2, 3, 450), (4, 3, 300), (4, 10, 750)] {
        let (mut network, host, start) = host(cores, 1000);
        let begun: Vec<_> = (0..jobs).map(|_| network.compute(start, host, micros(300))).collect();
        let expected: Vec<_> = begun.into_iter().map(|job| (takes, job)).collect();
        assert_eq!(done(&mut network, start), expected, "{jobs} jobs on {cores} cores");
    }
}

#[test]
fn hosts_compute_side_by_side() {
    let (mut network, host, start) = host(1, 1000);
    let other =
        network.add_host_of("other", HostSpec { speed_permille: 500, ..HostSpec::default() });
    let jobs = [host, other].map(|host| network.compute(start, host, micros(300)));
    assert_eq!(done(&mut network, start), [(300, jobs[0]), (600, jobs[1])]);
}

#[test]
fn a_cancelled_job_leaves_its_core_to_the_others_and_no_event() {
    let (mut network, host, start) = host(1, 1000);
    let jobs = [300, 300].map(|work| network.compute(start, host, micros(work)));
    let cancelled = start.after(micros(200));
    network.cancel(cancelled, jobs[1]);
    network.cancel(cancelled, jobs[1]);
    assert_eq!(done(&mut network, start), [(400, jobs[0])]);
    network.cancel(network.now(), jobs[0]);
    assert_eq!(network.next_time(), None);
}

#[test]
fn a_crash_drops_the_jobs_of_its_host() {
    let (mut network, host, start) = host(1, 1000);
    network.compute(start, host, micros(300));
    network.crash(start.after(micros(100)), host);
    assert_eq!(network.next_time(), None);
    network.compute(start.after(micros(150)), host, micros(300));
    assert_eq!(network.next_time(), None, "it does not run");
    network.restart(start.after(micros(200)), host);
    let job = network.compute(start.after(micros(200)), host, micros(300));
    assert_eq!(done(&mut network, start), [(500, job)]);
}

#[test]
fn a_job_without_work_is_done_at_once_and_an_endless_one_never() {
    let (mut network, host, start) = host(1, 1000);
    let job = network.compute(start, host, Duration::ZERO);
    assert_eq!(network.poll_event(start), Some((start, Event::Computed(job))));
    network.compute(start, host, Duration::MAX);
    assert_eq!(network.next_event(), None);
}

#[test]
fn jobs_and_frames_are_done_in_the_order_of_time() {
    let (mut lab, end) = Lab::pair(SLOW);
    let host = lab.network.host_of(end).unwrap();
    let start = lab.network.now();
    let jobs = [159, 161].map(|work| lab.network.compute(start, host, micros(work)));
    lab.network.cancel(start, jobs[0]);
    let soon = lab.network.compute(start, lab.network.host_of(end.peer()).unwrap(), micros(159));
    lab.write(end, &[1; 10]);
    lab.run();
    let events: Vec<_> = lab.events.iter().map(|(at, it)| ((at.0 - start.0) / US, *it)).collect();
    let readable = Event::Readable(end.peer());
    assert_eq!(
        events,
        [(159, Event::Computed(soon)), (160, readable), (161, Event::Computed(jobs[1]))]
    );
}
