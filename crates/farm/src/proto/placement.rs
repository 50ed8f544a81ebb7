//! Placement of a function's tasks: beside the worker's I/O loop or in it.
//!
//! A task that computes for long must not run where packets are read and written: the worker would
//! neither take new work nor answer. Such a task runs on a compute thread. But handing a task to
//! another thread and back costs 5 to 50 us, since that thread sleeps and an idle core halts. A
//! farm of tiny tasks would spend its time on handing over. Tasks are therefore measured. A
//! function begins on the compute thread, moves into the loop when its tasks turn out tiny, and
//! back when one does not.

/// Mean time of a task, in nanoseconds, below which its function runs in the loop: 20 us. A
/// hand-over costs as much as such a task.
const INLINE_MEAN_NS_MAX: f64 = 20_000.0;
/// Mean time of a task, in nanoseconds, above which its function leaves the loop: 40 us. Twice the
/// other bound, so that a function near it does not move to and fro.
const INLINE_MEAN_NS_LEAVE: f64 = 40_000.0;
/// Time of a single task, in nanoseconds, that sends its function out of the loop at once: 500 us.
/// Nothing was read or written in that time.
const INLINE_TASK_NS_MAX: f64 = 500_000.0;
/// Number of tasks measured before a function moves into the loop: the first ones run
/// with cold caches.
const SAMPLES_MIN: u32 = 16;
/// Weight of a new assignment in the mean, which follows about the last 8.
const MEAN_SHARE: f64 = 1.0 / 8.0;

/// The place where the next assignment of a function runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// On the compute thread.
    Thread,
    /// In the I/O loop.
    Loop,
}

/// Measures one function's tasks and places them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placement {
    place: Place,
    mean_ns: f64,
    samples: u32,
    /// Whether the function never moves into the loop.
    kept: bool,
}

impl Placement {
    pub(crate) fn new() -> Placement {
        Placement { place: Place::Thread, mean_ns: 0.0, samples: 0, kept: false }
    }

    /// Returns where the next assignment runs.
    #[inline]
    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// Returns the number of tasks that take about `target_ns`, at least 1; 1 before the first
    /// measurement.
    #[inline]
    pub(crate) fn tasks_in(&self, target_ns: f64) -> u32 {
        if self.samples == 0 { 1 } else { ((target_ns / self.mean_ns.max(1.0)) as u32).max(1) }
    }

    /// Keeps the function on the compute thread from now on: it looks at its context.
    pub(crate) fn keep_on_thread(&mut self) {
        (self.place, self.kept) = (Place::Thread, true);
    }

    /// Takes the time `busy_ns` of `tasks` tasks that ran one after the other.
    #[inline]
    pub(crate) fn handle_done(&mut self, tasks: u32, busy_ns: u64) {
        let task_ns = busy_ns as f64 / f64::from(tasks.max(1));
        let share = if self.samples == 0 { 1.0 } else { MEAN_SHARE };
        self.mean_ns += (task_ns - self.mean_ns) * share;
        self.samples = self.samples.saturating_add(tasks);
        self.place = match self.place {
            Place::Loop if task_ns > INLINE_TASK_NS_MAX || self.mean_ns > INLINE_MEAN_NS_LEAVE => {
                self.samples = 0;
                Place::Thread
            }
            Place::Thread
                if !self.kept
                    && self.samples >= SAMPLES_MIN
                    && self.mean_ns < INLINE_MEAN_NS_MAX =>
            {
                Place::Loop
            }
            unchanged => unchanged,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(times: &[(u32, u64)]) -> Placement {
        let mut placement = Placement::new();
        times.iter().for_each(|&(tasks, ns)| placement.handle_done(tasks, ns));
        placement
    }

    #[test]
    fn a_function_that_is_kept_stays_on_its_thread() {
        let mut placement = after(&[(100, 100)]);
        assert_eq!(placement.place(), Place::Loop);
        placement.keep_on_thread();
        placement.handle_done(100, 100);
        assert_eq!(placement.place(), Place::Thread);
    }

    #[test]
    fn tiny_tasks_move_into_the_loop_once_enough_were_seen() {
        assert_eq!(Placement::new().place(), Place::Thread);
        assert_eq!(after(&[(1, 200); 15]).place(), Place::Thread);
        assert_eq!(after(&[(1, 200); 16]).place(), Place::Loop);
        assert_eq!(after(&[(16, 3_200)]).place(), Place::Loop, "tasks count, not assignments");
    }

    #[test]
    fn long_tasks_stay_on_their_thread() {
        assert_eq!(after(&[(1, 50_000); 100]).place(), Place::Thread);
        assert_eq!(after(&[(1, 30_000); 100]).place(), Place::Thread, "between the two bounds");
    }

    #[test]
    fn a_task_that_turns_out_long_leaves_at_once() {
        let mut placement = after(&[(1, 200); 50]);
        placement.handle_done(1, 600_000);
        assert_eq!(placement.place(), Place::Thread);
        (0..15).for_each(|_| placement.handle_done(1, 200));
        assert_eq!(placement.place(), Place::Thread, "it has to prove itself again");
        placement.handle_done(1, 200);
        (0..20).for_each(|_| placement.handle_done(1, 200));
        assert_eq!(placement.place(), Place::Loop);
    }

    #[test]
    fn a_slower_mean_leaves_too() {
        let mut placement = after(&[(1, 10_000); 50]);
        assert_eq!(placement.place(), Place::Loop);
        (0..4).for_each(|_| placement.handle_done(1, 35_000));
        assert_eq!(placement.place(), Place::Loop);
        (0..20).for_each(|_| placement.handle_done(1, 90_000));
        assert_eq!(placement.place(), Place::Thread);
    }
}
