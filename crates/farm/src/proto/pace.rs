//! Amount of work that a worker holds, where it is measured.
//!
//! An assignment and its answer cost each side some 50 to 100 us, mostly to wake up. So an
//! assignment takes [`TARGET_NS`], or [`FARMER_NS`] for each worker if that is more, since the
//! farmer pays for all workers. It takes [`LONG_TARGET_NS`] where the number of tasks left is
//! known, but not in a tree. Near the end it takes less.
//!
//! A worker holds k assignments of t seconds each. It stays busy while the first answer travels to
//! the farmer and an assignment back, if
//!
//! ```text
//!   k >= 1 + (round trip + farmer's delay) / t
//! ```
//!
//! The farmer's delay is not measured, so the round trip counts twice. A worker holds at least two
//! assignments, and more only up to 10 ms of work: its tasks are missing elsewhere at the end. (LAN
//! farm study, section 4: double buffering is k = 2.)
//!
//! Near a known end assignments shrink: each has half of the remaining tasks of its worker
//! (factoring). So all workers end at nearly the same time. An assignment never shrinks below what
//! the farmer can keep up with.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::ledger::Share;

/// Number of tasks in an assignment. A worker gets one task while no task has been timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Grain {
    /// This number, at least 1.
    Fixed(u32),
    /// As many as take this long on the worker's threads, by the measured time of tasks:
    ///
    /// | while | time |
    /// |---|---|
    /// | the number of tasks is known | 30 ms |
    /// | it is not known, or in a tree | 10 ms |
    /// | 0.1 ms for each worker is more | that |
    /// | the end is near | half of what is left for the worker (factoring), at least 25 us for each worker, in a tree 0.1 ms |
    ///
    /// At most 16 times the largest assignment that was answered, and 65,536 tasks.
    #[default]
    Auto,
}

/// Text that is no value of a setting.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("allowed are {allowed}")]
#[non_exhaustive]
pub struct NoSetting {
    /// Allowed values.
    pub allowed: &'static str,
}

impl FromStr for Grain {
    type Err = NoSetting;

    /// Parses `auto`, or a number of tasks.
    fn from_str(text: &str) -> Result<Grain, NoSetting> {
        match text.parse() {
            Ok(tasks) if tasks > 0 => Ok(Grain::Fixed(tasks)),
            Err(_) if text == "auto" => Ok(Grain::Auto),
            _ => Err(NoSetting { allowed: "auto and whole numbers from 1" }),
        }
    }
}

impl fmt::Display for Grain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Grain::Fixed(tasks) => tasks.fmt(f),
            Grain::Auto => f.write_str("auto"),
        }
    }
}

impl Grain {
    /// Returns the number that was set, or 1.
    pub(crate) fn fixed(self) -> u32 {
        if let Grain::Fixed(tasks) = self { tasks } else { 1 }
    }
}

/// Time that an assignment should take, in nanoseconds.
const TARGET_NS: f64 = 10e6;
/// Time of an assignment where the number of tasks left is known, but not in a tree. Two ledgers
/// give out assignments in a tree, and each holds some back from the others.
/// - less: the exchanges cost more, with 10 ms 2 % of two cores
/// - more: the links' acknowledgements, due after 40 ms, leave in packets of their own, and cost as much
const LONG_TARGET_NS: f64 = 30e6;
/// The farmer's time for an assignment and its answer, in nanoseconds.
const FARMER_NS: f64 = 100e3;
/// Most workers to which a farmer can give assignments of the wanted length.
pub(crate) const NODES_OF_A_FARMER: usize = (TARGET_NS / FARMER_NS) as usize;
/// Smallest number of assignments at a worker, double buffering: with one it waits for each.
const DEPTH_MIN: f64 = 2.0;
/// Largest number of assignments at a worker: beyond it packets are full and only memory is taken.
const DEPTH_MAX: f64 = 4096.0;
/// Most work worth holding at a worker, in nanoseconds, beyond double buffering.
const HELD_NS_MAX: f64 = 10e6;
/// Smallest assignment at the end of a run, in shares of the farmer's time for all workers.
const LAST: f64 = 0.25;
/// Smallest assignment at the end of a run in a tree. Tasks pass two ledgers there, and both shrink
/// assignments. With 0.25, 1000 workers of tasks of 0.5 ms waited for a fifth of their last 25 ms.
const LAST_IN_TREE: f64 = 1.0;
/// Largest ratio of an assignment's tasks to the largest answered one: the first tasks may be the
/// short ones.
const GROWTH: u32 = 16;
/// Most tasks of an assignment.
const GRAIN_MAX: u32 = 1 << 16;
/// Weight of a new answer in the mean, which follows about the last 8 answers.
const MEAN_SHARE: f64 = 1.0 / 8.0;

/// Follows the time of a worker's tasks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The set number of assignments; `None` if it is measured.
    depth: Option<u32>,
    grain: Grain,
    round_trip_ns: f64,
    threads: f64,
    in_tree: bool,
    task_ns: Option<f64>,
}

/// Most tasks of an assignment, from the largest that any worker has answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Growth(u32);

impl Growth {
    pub(crate) fn new() -> Growth {
        Growth(1)
    }

    /// Takes the number of tasks of an answer.
    #[inline]
    pub(crate) fn handle_answer(&mut self, tasks: u32) {
        self.0 = self.0.max(tasks.saturating_mul(GROWTH)).min(GRAIN_MAX);
    }
}

impl Pace {
    /// Begins with the worker's threads, and the round trip measured when it joined. Depth and
    /// grain are measured where they are not set.
    pub(crate) fn new(depth: Option<u32>, grain: Grain, round_trip_ns: u64, threads: u32) -> Pace {
        let threads = f64::from(threads.max(1));
        let round_trip_ns = round_trip_ns as f64;
        Pace { depth, grain, round_trip_ns, threads, in_tree: false, task_ns: None }
    }

    /// Notes that the worker is a sub-farmer, or below one.
    pub(crate) fn in_tree(mut self) -> Pace {
        self.in_tree = true;
        self
    }

    /// Whether the number of tasks in an assignment is measured.
    pub(crate) fn is_measured(&self) -> bool {
        !matches!(self.grain, Grain::Fixed(_))
    }

    pub(crate) fn set_threads(&mut self, threads: u32) {
        self.threads = f64::from(threads.max(1));
    }

    /// Takes the time `busy_ns` of this number of tasks.
    #[inline]
    pub(crate) fn handle_answer(&mut self, tasks: u32, busy_ns: u64) {
        let task_ns = busy_ns as f64 / f64::from(tasks.max(1));
        let mean = self.task_ns.map_or(task_ns, |mean| mean + (task_ns - mean) * MEAN_SHARE);
        self.task_ns = Some(mean.max(1.0));
    }

    /// Returns the number of tasks a second; 0 before the first answer.
    pub(crate) fn speed(&self) -> f64 {
        self.task_ns.map_or(0.0, |task_ns| 1e9 * self.threads / task_ns)
    }

    /// Returns the mean time of a task; `None` before the first answer.
    pub(crate) fn task_ns(&self) -> Option<f64> {
        self.task_ns
    }

    /// Returns the share of the worker, one of `workers`; `left` is the number of tasks that remain
    /// for it, where it is known.
    #[inline]
    pub(crate) fn share(&self, growth: Growth, left: Option<u64>, workers: usize) -> Share {
        let grain = match self.grain {
            Grain::Fixed(grain) => grain,
            Grain::Auto => {
                let task_ns = self.task_ns.unwrap_or(f64::MAX);
                let farmer_ns = FARMER_NS * workers as f64 * self.threads;
                let is_long = left.is_some() && !self.in_tree;
                let target = if is_long { LONG_TARGET_NS } else { TARGET_NS };
                let target = farmer_ns.max(target * self.threads);
                let last = if self.in_tree { LAST_IN_TREE } else { LAST };
                let half = left.map_or(f64::MAX, |left| left as f64 / 2.0);
                // Smaller assignments at the end cost more than they balance.
                let wanted = (target / task_ns).min(half.max(last * farmer_ns / task_ns));
                (wanted as u32).clamp(1, growth.0)
            }
        };
        let depth = match self.depth {
            Some(depth) => depth,
            None => self.measured_depth(grain),
        };
        Share { pieces: depth.max(1), grain: grain.max(1) }
    }

    fn measured_depth(&self, grain: u32) -> u32 {
        // One task at work for each thread, and one assignment that waits.
        let smallest = DEPTH_MIN.max((self.threads / f64::from(grain)).ceil() + 1.0);
        let Some(task_ns) = self.task_ns else { return smallest as u32 };
        // Several threads share the work of an assignment.
        let piece_ns = task_ns * f64::from(grain) / self.threads;
        let wanted = 1.0 + (2.0 * self.round_trip_ns / piece_ns).ceil();
        // A float too large for the integer becomes its maximum.
        wanted.min(HELD_NS_MAX / piece_ns).min(DEPTH_MAX).max(smallest) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(depth: Option<u32>, grain: Grain, round_trip_ns: u64, task_ns: u64) -> Share {
        let (mut pace, mut growth) = (Pace::new(depth, grain, round_trip_ns, 1), Growth::new());
        for _ in 0..50 {
            let tasks = pace.share(growth, None, 1).grain;
            pace.handle_answer(tasks, task_ns * u64::from(tasks));
            growth.handle_answer(tasks);
        }
        pace.share(growth, None, 1)
    }

    const ONE: Grain = Grain::Fixed(1);

    #[test]
    fn with_one_task_an_assignment_the_depth_covers_two_round_trips() {
        let depth = |round_trip_ns, task_ns| settled(None, ONE, round_trip_ns, task_ns).pieces;
        assert_eq!(Pace::new(None, ONE, 100_000, 1).share(Growth::new(), None, 1).pieces, 2);
        assert_eq!(depth(100_000, 50_000_000), 2);
        assert_eq!(depth(100_000, 1_000_000), 2);
        assert_eq!(depth(100_000, 10_000), 21);
        assert_eq!(depth(50_000, 200), 501);
        assert_eq!(depth(100_000, 0), 4096);
        assert_eq!(depth(u64::MAX, 1_000_000), 10, "10 ms of work");
    }

    #[test]
    fn assignments_grow_to_their_target() {
        let share = |task_ns| settled(None, Grain::Auto, 100_000, task_ns);
        assert_eq!(share(10_000), Share { pieces: 2, grain: 1_000 });
        assert_eq!(share(20_000_000), Share { pieces: 2, grain: 1 });
        assert_eq!(share(1).grain, GRAIN_MAX);
        let mut pace = Pace::new(None, Grain::Auto, 100_000, 1);
        pace.handle_answer(1_000, 1_000_000_000);
        let grain = |workers| pace.share(Growth(GRAIN_MAX), None, workers).grain;
        assert_eq!((grain(100), grain(1_000)), (10, 100));
        let mut pace = Pace::new(None, Grain::Auto, 100_000, 1);
        let mut growth = Growth::new();
        assert_eq!(pace.share(growth, None, 1).grain, 1);
        pace.handle_answer(1, 1_000);
        growth.handle_answer(1);
        assert_eq!(pace.share(growth, None, 1).grain, 16, "not at once");
    }

    #[test]
    fn assignments_shrink_near_the_end() {
        let mut pace = Pace::new(None, Grain::Auto, 100_000, 1);
        pace.handle_answer(1_000, 10_000_000);
        let grain = |left| pace.share(Growth(GRAIN_MAX), Some(left), 1).grain;
        assert_eq!((grain(1_000_000), grain(100), grain(1), grain(0)), (3_000, 50, 2, 2));
        let grain = |left| pace.in_tree().share(Growth(GRAIN_MAX), Some(left), 1).grain;
        assert_eq!((grain(1_000_000), grain(100), grain(1)), (1_000, 50, 10), "in a tree");
    }

    #[test]
    fn the_mean_follows_a_change() {
        let mut pace = Pace::new(None, ONE, 100_000, 1);
        (0..100).for_each(|_| pace.handle_answer(1, 1_000_000));
        assert_eq!(pace.share(Growth::new(), None, 1).pieces, 2);
        (0..100).for_each(|_| pace.handle_answer(1, 10_000));
        assert_eq!(pace.share(Growth::new(), None, 1).pieces, 21);
    }

    #[test]
    fn more_threads_hold_more() {
        let pace = Pace::new(None, Grain::Auto, 100_000, 4);
        assert_eq!(pace.share(Growth::new(), None, 1), Share { pieces: 5, grain: 1 });
        // They share large assignments.
        let mut pace = Pace::new(None, Grain::Fixed(100), 100_000, 4);
        pace.handle_answer(100, 100_000_000);
        assert_eq!(pace.share(Growth::new(), None, 1).pieces, 2);
    }

    #[test]
    fn grains_survive_their_text() {
        for grain in [Grain::Fixed(1), Grain::Fixed(77), Grain::Auto] {
            assert_eq!(grain.to_string().parse(), Ok(grain));
        }
        for text in ["", "0", "-1", "Auto", "guided"] {
            assert!(text.parse::<Grain>().is_err(), "{text:?}");
        }
    }
}
