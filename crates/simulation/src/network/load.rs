//! Foreign load: jobs of others on the cores of a host, which come and go by the seed.

use super::{HostId, Network, Random};
use chunkcomm_proto::Time;
use std::time::Duration;

/// Number that separates the chance of foreign load from the rest of a network's.
const SALT: u64 = 0x6c6f_6164_2066_726f;

/// Foreign load that comes and goes.
///
/// A time with load and a time without follow each other. Each is drawn evenly between nothing
/// and twice its mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForeignLoad {
    /// Foreign jobs while there is load. Each takes part in the sharing of the cores without end.
    pub jobs: u32,
    /// Mean of a time with load, at least a microsecond.
    pub mean_on: Duration,
    /// Mean of a time without load, at least a microsecond.
    pub mean_off: Duration,
}

impl ForeignLoad {
    /// Shortest mean: a host looks at each change of its load.
    pub(super) const MEAN_MIN: Duration = Duration::from_micros(1);
}

/// The foreign load of a host.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// Jobs that the caller set.
    set: u32,
    changing: Option<Changing>,
}

/// A load that comes and goes.
#[derive(Debug)]
struct Changing {
    spec: ForeignLoad,
    random: Random,
    is_on: bool,
    /// Time of the next change.
    until: Time,
}

impl Load {
    /// Returns the load of a host of this number that begins now.
    ///
    /// # Panics
    ///
    /// A mean is too short.
    pub(super) fn new(spec: Option<ForeignLoad>, seed: u64, host: HostId, now: Time) -> Load {
        let changing = spec.map(|spec| {
            let least = ForeignLoad::MEAN_MIN;
            let fits = spec.mean_on >= least && spec.mean_off >= least;
            assert!(fits, "the means of foreign load are at least {least:?}");
            let mut random = Random::fork(seed, SALT ^ u64::from(host.number()));
            let (on, off) = (nanos(spec.mean_on), nanos(spec.mean_off));
            let is_on = random.below(on.saturating_add(off)) < on;
            let mut changing = Changing { spec, random, is_on, until: now };
            changing.draw();
            changing
        });
        Load { set: 0, changing }
    }

    /// Lets the changes up to `now` happen; returns the foreign jobs from then on.
    fn jobs_at(&mut self, now: Time) -> u32 {
        let Some(changing) = &mut self.changing else { return self.set };
        while changing.until <= now && changing.until < Time(u64::MAX) {
            changing.is_on = !changing.is_on;
            changing.draw();
        }
        let comes = if changing.is_on { changing.spec.jobs } else { 0 };
        self.set.saturating_add(comes)
    }

    fn next_change(&self) -> Option<Time> {
        self.changing.as_ref().map(|changing| changing.until)
    }
}

impl Changing {
    /// Draws how long the present state lasts.
    fn draw(&mut self) {
        let mean = nanos(if self.is_on { self.spec.mean_on } else { self.spec.mean_off });
        let lasts = self.random.below(mean.saturating_mul(2).saturating_add(1));
        self.until = self.until.after(Duration::from_nanos(lasts));
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Foreign load.
impl Network {
    /// Sets how many foreign jobs share the cores of `host` from now on, beside its own and beside
    /// those of [`HostSpec::foreign`](super::HostSpec::foreign); 0 at the beginning. They never
    /// end.
    pub fn load(&mut self, now: Time, host: HostId, jobs: u32) {
        self.advance(now);
        self.hosts[host.index()].load.set = jobs;
        self.apply_load(host);
        self.watch_cores(host);
    }

    /// Lets the foreign load of a host be what it is now. Comes before each new job: while a host
    /// has none, its load changes unseen.
    pub(super) fn apply_load(&mut self, host: HostId) {
        let (now, this) = (self.now, &mut self.hosts[host.index()]);
        let jobs = this.load.jobs_at(now);
        this.cores.set_foreign(now, jobs);
    }

    /// Sets the host's alarm to the end of its next job, or to a change of load before it.
    pub(super) fn watch_cores(&mut self, host: HostId) {
        let this = &self.hosts[host.index()];
        let done = this.cores.next_time();
        let change = this.load.next_change().filter(|_| done.is_some());
        let next = done.into_iter().chain(change).min();
        self.scheduled.set_alarm(host, next.filter(|at| *at < Time(u64::MAX)));
    }
}
