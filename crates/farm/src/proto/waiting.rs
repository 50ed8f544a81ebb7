//! Time of a worker's threads: in tasks, without a task, and the rest.
//!
//! ```text
//!   tasks that the worker holds   3 ┤██      ██
//!   with two threads              2 ┤███▄    ███▄
//!                                 1 ┤████▓▓  ████▓▓      ▓ one thread lacks a task
//!                                 0 ┼──────▒▒──────▒▒─   ▒ both do
//! ```
//!
//! The ledger says how many tasks a worker holds. A thread beyond that number waits for the farmer.
//! The other threads have a task; one that does not run it waits for messages.

/// Thread time of a worker, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    threads: u32,
    /// Number of threads for which there is no task.
    lacking: u32,
    since_ns: u64,
    /// Time until `since_ns`, of all threads and of those that lacked a task.
    all_ns: u64,
    lacked_ns: u64,
}

/// Time of a worker's threads outside of tasks, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waited {
    /// Time without a task, also without one on its way.
    pub(crate) for_farmer_ns: u64,
    pub(crate) for_wire_ns: u64,
}

impl Waiting {
    /// Begins with a worker that has this number of threads and no task.
    pub(crate) fn new(threads: u32, now_ns: u64) -> Waiting {
        Waiting { threads, lacking: threads, since_ns: now_ns, all_ns: 0, lacked_ns: 0 }
    }

    /// Notes the numbers of threads and of tasks from now on; a lost worker has neither.
    #[inline]
    pub(crate) fn note(&mut self, threads: u32, tasks: u64, now_ns: u64) {
        let lacking = u64::from(threads).saturating_sub(tasks) as u32;
        if (threads, lacking) != (self.threads, self.lacking) {
            (self.all_ns, self.lacked_ns) = self.until(now_ns);
            (self.threads, self.lacking, self.since_ns) = (threads, lacking, now_ns);
        }
    }

    /// Returns the time outside of tasks until now; `busy_ns` is the time in tasks.
    pub(crate) fn waited(&self, busy_ns: u64, now_ns: u64) -> Waited {
        let (all_ns, lacked_ns) = self.until(now_ns);
        let rest_ns = all_ns.saturating_sub(busy_ns);
        // A task that another worker has done may run on while the worker holds nothing.
        let for_farmer_ns = lacked_ns.min(rest_ns);
        Waited { for_farmer_ns, for_wire_ns: rest_ns - for_farmer_ns }
    }

    fn until(&self, now_ns: u64) -> (u64, u64) {
        let since_ns = now_ns.saturating_sub(self.since_ns);
        let sum = |before_ns: u64, threads: u32| {
            before_ns.saturating_add(since_ns.saturating_mul(threads.into()))
        };
        (sum(self.all_ns, self.threads), sum(self.lacked_ns, self.lacking))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waited(waiting: &Waiting, busy_ns: u64, now_ns: u64) -> (u64, u64) {
        let Waited { for_farmer_ns, for_wire_ns } = waiting.waited(busy_ns, now_ns);
        (for_farmer_ns, for_wire_ns)
    }

    #[test]
    fn threads_without_a_task_wait_for_the_farmer_and_others_for_the_wire() {
        let mut waiting = Waiting::new(2, 100);
        assert_eq!(waited(&waiting, 0, 110), (20, 0), "both lack a task");
        waiting.note(2, 1, 110);
        assert_eq!(waited(&waiting, 0, 115), (25, 5));
        waiting.note(2, 5, 120);
        waiting.note(2, 4, 125);
        assert_eq!(waited(&waiting, 0, 130), (30, 30));
        assert_eq!(waited(&waiting, 25, 130), (30, 5));
        assert_eq!(waited(&waiting, 50, 130), (10, 0), "at a task that it does not hold");
        assert_eq!(waited(&waiting, 99, 130), (0, 0));
    }

    #[test]
    fn a_lost_worker_waits_no_more_and_more_threads_count_from_then_on() {
        let mut waiting = Waiting::new(1, 0);
        waiting.note(3, 1, 10);
        assert_eq!(waited(&waiting, 0, 20), (10 + 20, 10));
        waiting.note(0, 0, 20);
        assert_eq!(waited(&waiting, 0, 1_000), (30, 10));
    }
}
