use super::*;
use proptest::prelude::*;

fn nanos(nanos: u64) -> Work {
    Work::of_nanos(nanos)
}

/// Runs until nothing is left; returns each job with the time at which it was done.
fn drain(cores: &mut Cores<usize>) -> Vec<(u64, usize)> {
    let mut done = Vec::new();
    while let Some(at) = cores.next_time() {
        while let Some((job, _)) = cores.take_done(at) {
            done.push((at.0, job));
        }
    }
    done
}

#[test]
fn a_job_alone_takes_its_work_by_the_speed() {
    for (speed, takes) in [(1000, 3_000), (2000, 1_500), (500, 6_000), (3, 1_000_000)] {
        let mut cores = Cores::new(4, speed);
        cores.add(Time(10), 0, nanos(3_000));
        assert_eq!(drain(&mut cores), [(10 + takes, 0)], "speed {speed}");
    }
}

#[test]
fn equal_jobs_share_the_cores_and_end_in_the_order_in_which_they_came() {
    for jobs in 1..=40 {
        for count in 1..=20 {
            let mut cores = Cores::new(count, 1000);
            for job in 0..jobs {
                cores.add(Time(0), job, nanos(720_720));
            }
            let takes = (720_720 * jobs as u64).div_ceil(u64::from(count)).max(720_720);
            let expected: Vec<_> = (0..jobs).map(|job| (takes, job)).collect();
            assert_eq!(drain(&mut cores), expected, "{jobs} jobs on {count} cores");
        }
    }
}

#[test]
fn a_job_that_comes_later_slows_the_first_from_then_on() {
    let mut cores = Cores::new(1, 1000);
    cores.add(Time(0), 0, nanos(600));
    cores.add(Time(400), 1, nanos(300));
    // 200 are left of the first, at half the speed; then 100 of the second, alone.
    assert_eq!(drain(&mut cores), [(800, 0), (900, 1)]);
}

#[test]
fn foreign_jobs_take_their_share_and_never_end() {
    for (count, foreign, takes) in [(1, 1, 1200), (1, 2, 1800), (2, 1, 600), (2, 3, 1200)] {
        let mut cores = Cores::new(count, 1000);
        cores.set_foreign(Time(0), foreign);
        cores.add(Time(0), 0, nanos(600));
        assert_eq!(drain(&mut cores), [(takes, 0)], "{foreign} foreign on {count} cores");
    }
}

#[test]
fn a_job_that_goes_leaves_its_share_to_the_others() {
    let mut cores = Cores::new(1, 1000);
    cores.add(Time(0), 0, nanos(600));
    cores.add(Time(0), 1, nanos(600));
    assert_eq!(cores.done(Time(400), 0), Some(nanos(200)));
    assert_eq!(cores.remove(Time(400), 1), Some(nanos(200)));
    assert_eq!(cores.remove(Time(400), 1), None);
    assert_eq!(drain(&mut cores), [(800, 0)]);
}

#[test]
fn no_work_is_done_at_once_and_endless_work_never() {
    let mut cores = Cores::new(1, 1);
    cores.add(Time(5), 0, nanos(0));
    cores.add(Time(5), 1, nanos(u64::MAX));
    assert_eq!(cores.take_done(Time(5)), Some((0, nanos(0))));
    assert_eq!(cores.next_time(), Some(Time(u64::MAX)));
}

#[derive(Debug, Clone)]
enum Act {
    Add { nanos: u64 },
    Remove { job: usize },
    Foreign { jobs: u32 },
    Pass { nanos: u64 },
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        3 => (0..3_000u64).prop_map(|nanos| Act::Add { nanos }),
        1 => (0..40usize).prop_map(|job| Act::Remove { job }),
        1 => (0..5u32).prop_map(|jobs| Act::Foreign { jobs }),
        3 => (0..2_000u64).prop_map(|nanos| Act::Pass { nanos }),
    ];
    // The shares of 16 jobs are exact, with up to 4 foreign ones among them.
    let add = |act: &Act| matches!(act, Act::Add { .. });
    proptest::collection::vec(act, 1..40)
        .prop_filter("at most 12 jobs", move |acts| acts.iter().filter(|it| add(it)).count() <= 12)
}

/// A job of the oracle: what is left of it, in parts.
struct Slow {
    job: usize,
    left: i128,
    begun: u64,
    work: u64,
}

/// Processor sharing by hand: every job is looked at whenever something changes.
struct Oracle {
    count: u128,
    speed: u128,
    now: u64,
    foreign: u128,
    jobs: Vec<Slow>,
    /// Parts that the cores gave, and that the jobs needed.
    given: i128,
    needed: i128,
    most: u128,
    done: Vec<(u64, usize)>,
}

impl Oracle {
    /// Parts that each job is given in a nanosecond.
    fn rate(&self) -> i128 {
        let sharers = self.sharers();
        (sharers.min(self.count) * self.speed * PARTS / sharers) as i128
    }

    fn sharers(&self) -> u128 {
        self.jobs.len() as u128 + self.foreign
    }

    fn give(&mut self, nanos: u64) {
        if self.jobs.is_empty() {
            return;
        }
        let each = self.rate() * i128::from(nanos);
        self.given += each * self.jobs.len() as i128;
        self.jobs.iter_mut().for_each(|job| job.left -= each);
    }

    fn pass(&mut self, until: u64) {
        loop {
            let least = self.jobs.iter().map(|job| job.left.max(0)).min();
            let ends = least.map(|left| {
                let rate = self.rate();
                self.now + u64::try_from((left + rate - 1) / rate).unwrap()
            });
            let Some(at) = ends.filter(|at| *at <= until) else { break };
            self.give(at - self.now);
            self.now = at;
            self.take_done();
        }
        self.give(until - self.now);
        self.now = until;
    }

    fn take_done(&mut self) {
        let ready = |job: &Slow| job.left <= 0;
        while let Some(first) = self.jobs.iter().filter(|job| ready(job)).map(|job| job.left).min()
        {
            let at = self.jobs.iter().position(|job| job.left == first).unwrap();
            let job = self.jobs.remove(at);
            let (took, alone) = (self.now - job.begun, job.work * 1000 / self.speed as u64);
            let crowd = u64::try_from(self.most.div_ceil(self.count)).unwrap();
            assert!(took >= alone, "faster than alone");
            // Each end of another rounds up a nanosecond.
            assert!(took <= (alone + 1) * crowd + 16, "{took} ns for {alone} among {}", self.most);
            self.done.push((self.now, job.job));
        }
    }
}

proptest! {
    #[test]
    fn shares_are_those_of_an_oracle_and_no_core_idles_while_a_job_waits(
        count in 1..6u32, speed in 1..3_000u32, acts in acts(),
    ) {
        let mut cores = Cores::new(count, speed);
        let mut oracle = Oracle {
            count: u128::from(count), speed: u128::from(speed), now: 0, foreign: 0, jobs: Vec::new(),
            given: 0, needed: 0, most: 0, done: Vec::new(),
        };
        let (mut done, mut added) = (Vec::new(), 0);
        let mut pass = |cores: &mut Cores<usize>, until: u64| {
            while let Some(at) = cores.next_time().filter(|at| at.0 <= until) {
                while let Some((job, _)) = cores.take_done(at) {
                    done.push((at.0, job));
                }
            }
        };
        for act in acts.into_iter().chain([Act::Pass { nanos: 1 << 40 }]) {
            let now = oracle.now;
            match act {
                Act::Add { nanos } => {
                    cores.add(Time(now), added, Work::of_nanos(nanos));
                    let left = i128::try_from(Work::of_nanos(nanos).0).unwrap();
                    oracle.jobs.push(Slow { job: added, left, begun: now, work: nanos });
                    oracle.needed += left;
                    added += 1;
                }
                Act::Foreign { jobs } => {
                    cores.set_foreign(Time(now), jobs);
                    oracle.foreign = u128::from(jobs);
                }
                Act::Remove { job } => {
                    let at = oracle.jobs.iter().position(|it| it.job == job);
                    let done = cores.remove(Time(now), job);
                    prop_assert_eq!(done.is_some(), at.is_some());
                    if let Some(at) = at {
                        let left = oracle.jobs.remove(at);
                        let all = i128::try_from(Work::of_nanos(left.work).0).unwrap();
                        prop_assert_eq!(done.unwrap().0 as i128, all - left.left.max(0));
                        oracle.needed -= left.left;
                    }
                }
                Act::Pass { nanos } => {
                    pass(&mut cores, now + nanos);
                    oracle.pass(now + nanos);
                }
            }
            oracle.most = oracle.most.max(oracle.sharers());
            pass(&mut cores, oracle.now);
            oracle.pass(oracle.now);
        }
        prop_assert_eq!(&done, &oracle.done);
        // A job is done at a whole nanosecond, so it may be given less than one more than it needs.
        let most = i128::try_from(done.len()).unwrap() * i128::from(speed) * PARTS as i128;
        let over = oracle.given - oracle.needed;
        prop_assert!((0..=most).contains(&over), "{} parts too many", over);
    }
}
