//! The cores of a host, shared by its jobs: processor sharing (L. Kleinrock, "Time-Shared
//! Systems: A Theoretical Treatment", JACM 14, 1967, section 3).
//!
//! `n` jobs on `c` cores proceed side by side, each at `min(1, c / n)` of the host's speed. All
//! have the same share, so one number says how far each of them is: the *progress* of a job that
//! was there from the beginning (A. Demers, S. Keshav, S. Shenker, "Analysis and Simulation of a
//! Fair Queueing Algorithm", SIGCOMM 1989, section 2: virtual time).
//!
//! ```text
//! a job comes    its tag = progress + its work
//! a job is done  progress = the smallest tag
//!
//! progress      0 ───── one job ─────> 4 ── two jobs, half as fast ──> 6
//! time          0                      4                               8
//! ```
//!
//! So a job that comes or goes costs O(log n), however many others there are. Foreign jobs, which
//! never end, are only counted.

use chunkcomm_proto::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// Parts of a picosecond's work: a multiple of all numbers up to 16, so that the shares of up to
/// 16 jobs are exact. With more jobs a change of their number loses less than a part.
const PARTS: u128 = 720_720;

/// Picoseconds in a nanosecond.
const PICOS: u128 = 1_000;

/// Most cores of a host.
pub(super) const CORES_MAX: u32 = 4096;

/// Highest speed of a host: a thousand times the reference machine.
pub(super) const SPEED_PERMILLE_MAX: u32 = 1_000_000;

// Progress over all of time fits into 128 bits, and so does its product with a number of jobs.
const _: () = assert!(
    (u64::MAX as u128) * PARTS * (SPEED_PERMILLE_MAX as u128) * (CORES_MAX as u128) < u128::MAX / 4
);
const _: () = assert!((u64::MAX as u128) * PICOS * PARTS < u128::MAX / (u32::MAX as u128) / 4);
const _: () = assert!(SPEED_PERMILLE_MAX as u128 / 1_000 <= PICOS);

/// Work in parts of a picosecond of the reference machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Work(u128);

impl Work {
    /// Returns the work that takes the reference machine this long.
    pub(super) fn of_nanos(nanos: u64) -> Work {
        Work(u128::from(nanos) * PICOS * PARTS)
    }

    /// Returns the work that takes cores of this speed `picos` picoseconds.
    pub(super) fn at_speed(picos: u128, speed_permille: u32) -> Work {
        // At most half a year, so that the work fits as that of all of time does.
        let picos = picos.min(u128::from(u64::MAX));
        Work((picos * u128::from(speed_permille) * PARTS).div_ceil(1_000))
    }

    /// Returns the time that a core of this speed needs, rounded down.
    pub(super) fn time_at(self, speed_permille: u32) -> Duration {
        let nanos = self.0 / (u128::from(speed_permille) * PARTS);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// The place of a job: its tag, then its number, so that equals go in the order in which they came.
type Place = (u128, u64);

/// Cores and the jobs on them. `J` names a job.
///
/// Order of calls: [`Cores::take_done`] at each time that [`Cores::next_time`] names, before any
/// other call at that time.
#[derive(Debug)]
pub(super) struct Cores<J> {
    count: u32,
    speed_permille: u32,
    /// Progress at `since`, the time of the last change.
    progress: u128,
    since: Time,
    /// Jobs of others, which never end.
    foreign: u32,
    jobs: BTreeMap<Place, (J, Work)>,
    places: BTreeMap<J, Place>,
    added: u64,
}

impl<J: Copy + Ord> Cores<J> {
    /// Makes idle cores.
    ///
    /// # Panics
    ///
    /// There is no core or no speed, or more than [`CORES_MAX`] or [`SPEED_PERMILLE_MAX`].
    pub(super) fn new(count: u32, speed_permille: u32) -> Cores<J> {
        assert!((1..=CORES_MAX).contains(&count), "a host has 1 to {CORES_MAX} cores");
        let speeds = 1..=SPEED_PERMILLE_MAX;
        assert!(speeds.contains(&speed_permille), "a speed is 1 to {SPEED_PERMILLE_MAX} permille");
        Cores {
            count,
            speed_permille,
            progress: 0,
            since: Time(0),
            foreign: 0,
            jobs: BTreeMap::new(),
            places: BTreeMap::new(),
            added: 0,
        }
    }

    /// Returns the number of cores.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Begins a job that is not there yet.
    pub(super) fn add(&mut self, now: Time, job: J, work: Work) {
        self.settle(now);
        self.added += 1;
        let place = (self.progress + work.0, self.added);
        self.jobs.insert(place, (job, work));
        let before = self.places.insert(job, place);
        debug_assert!(before.is_none(), "a job is there once");
    }

    /// Drops a job; returns the work that was done on it, if it was there.
    pub(super) fn remove(&mut self, now: Time, job: J) -> Option<Work> {
        let done = self.done(now, job);
        let place = self.places.remove(&job)?;
        self.settle(now);
        self.jobs.remove(&place);
        done
    }

    /// Returns the work that is done on a job.
    pub(super) fn done(&self, now: Time, job: J) -> Option<Work> {
        let place = self.places.get(&job)?;
        let (_, Work(work)) = self.jobs.get(place)?;
        let left = place.0.saturating_sub(self.progress_at(now));
        Some(Work(work.saturating_sub(left)))
    }

    /// Returns all jobs, in their order.
    pub(super) fn jobs(&self) -> Vec<J> {
        self.places.keys().copied().collect()
    }

    /// Sets the number of foreign jobs that share the cores from now on.
    pub(super) fn set_foreign(&mut self, now: Time, jobs: u32) {
        if jobs != self.foreign {
            self.settle(now);
            self.foreign = jobs;
        }
    }

    /// Returns the time at which the next job is done, if nothing changes before; the end of time
    /// stands for never.
    pub(super) fn next_time(&self) -> Option<Time> {
        let ((tag, _), _) = self.jobs.first_key_value()?;
        let left = tag.saturating_sub(self.progress);
        let nanos = (left * self.sharers()).div_ceil(self.capacity());
        Some(Time(self.since.0.saturating_add(u64::try_from(nanos).unwrap_or(u64::MAX))))
    }

    /// Takes a job that is done by `now`, and its work.
    pub(super) fn take_done(&mut self, now: Time) -> Option<(J, Work)> {
        if self.next_time()? > now {
            return None;
        }
        self.settle(now);
        let (_, (job, work)) = self.jobs.pop_first()?;
        self.places.remove(&job);
        Some((job, work))
    }

    /// Brings the progress up to `now`, before the number of jobs changes.
    fn settle(&mut self, now: Time) {
        debug_assert!(now >= self.since);
        // Without jobs nobody remembers it.
        self.progress = if self.jobs.is_empty() { 0 } else { self.progress_at(now) };
        self.since = now;
    }

    /// Returns the progress at `now`, while there are jobs.
    fn progress_at(&self, now: Time) -> u128 {
        let nanos = u128::from(now.0 - self.since.0);
        self.progress + nanos * self.capacity() / self.sharers()
    }

    fn sharers(&self) -> u128 {
        self.jobs.len() as u128 + u128::from(self.foreign)
    }

    /// Returns the parts of work that all jobs and foreign ones are given in a nanosecond.
    fn capacity(&self) -> u128 {
        let busy = self.sharers().min(u128::from(self.count));
        // A permille of a nanosecond is a picosecond.
        busy * u128::from(self.speed_permille) * PARTS
    }
}

#[cfg(test)]
mod tests;
