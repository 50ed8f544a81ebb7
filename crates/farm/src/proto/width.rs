//! Number of virtual workers: places for tasks that a worker has begun, most of which wait.
//!
//! A thread goes on with a task that has waited rather than begin another. When a task blocks its
//! thread, another thread begins a task. So more tasks are begun only while the others wait, about
//! as many as keep the threads busy:
//!
//! ```text
//!   threads x (1 + time that a task waits / time that it computes)      up to the bound
//! ```
//!
//! Nothing measures these times. A thread without a task to go on with begins one. If all virtual
//! workers have a task then, their number doubles ([`Width::handle_idle`]). The farmer is told the
//! number, and gives out tasks for it. The number falls again when fewer tasks are begun for a
//! while.

/// Most virtual workers of a thread where their number is measured. They keep a thread busy with
/// tasks that wait for 15 times as long as they compute. More would balance worse, since a begun
/// task is not moved. Each dead worker would cost more repeated work.
pub(crate) const AUTO_MAX: u32 = 16;

/// Number of ended tasks for each virtual worker, after which a number that was too large falls.
const PATIENCE: u32 = 4;

/// Controller of a worker's number of virtual workers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Width {
    threads: u32,
    bound: u32,
    wanted: u32,
    /// Number that the farmer knows.
    told: u32,
    /// Most tasks begun at a time since `ended` was 0.
    peak: u32,
    ended: u32,
    is_fixed: bool,
}

impl Width {
    /// Begins with one virtual worker a thread, or with `each` where that is set.
    pub(crate) fn new(threads: u32, each: Option<u32>) -> Width {
        let bound = threads.saturating_mul(each.unwrap_or(AUTO_MAX).max(1));
        let (is_fixed, told) = (each.is_some(), threads);
        let wanted = if is_fixed { bound } else { threads };
        Width { threads, bound, wanted, told, peak: 0, ended: 0, is_fixed }
    }

    /// Returns the most tasks that may be begun at a time.
    pub(crate) fn bound(&self) -> u32 {
        self.bound
    }

    /// Notes another run: the farmer assumes the number of threads.
    pub(crate) fn handle_run(&mut self) {
        self.told = self.threads;
    }

    /// Notes that a thread has no task to go on with, while this number of tasks are begun.
    pub(crate) fn handle_idle(&mut self, begun: u32) {
        self.peak = self.peak.max(begun.saturating_add(1));
        if begun >= self.wanted && !self.is_fixed {
            self.wanted = begun.saturating_mul(2).min(self.bound);
        }
    }

    /// Notes the end of this number of tasks.
    pub(crate) fn handle_ended(&mut self, tasks: u32) {
        self.ended = self.ended.saturating_add(tasks);
        if self.is_fixed || self.ended < self.wanted.saturating_mul(PATIENCE) {
            return;
        }
        self.wanted = self.wanted.min(self.peak.saturating_mul(2)).max(self.threads);
        (self.peak, self.ended) = (0, 0);
    }

    /// Whether the farmer assumes more than the threads.
    pub(crate) fn is_told(&self) -> bool {
        self.told > self.threads
    }

    /// Returns the number of virtual workers, if the farmer assumes another.
    pub(crate) fn poll_told(&mut self) -> Option<u32> {
        (std::mem::replace(&mut self.told, self.wanted) != self.wanted).then_some(self.wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tasks that wait for `waits` times as long as they compute, on one thread without end.
    fn settled(mut width: Width, waits: u32) -> u32 {
        for _ in 0..1_000 {
            width.handle_idle(waits.min(width.wanted));
            width.handle_ended(1);
        }
        width.wanted
    }

    #[test]
    fn the_number_grows_while_all_wait_and_falls_again() {
        let mut width = Width::new(2, None);
        assert_eq!((width.poll_told(), width.bound()), (None, 32));
        // Tasks that do not wait have ended before the next begins.
        (0..2).for_each(|begun| width.handle_idle(begun));
        assert_eq!(width.poll_told(), None);
        let mut told = Vec::new();
        for begun in 2..40 {
            width.handle_idle(begun);
            told.extend(width.poll_told());
        }
        assert_eq!(told, [4, 8, 16, 32]);
        for _ in 0..10_000 {
            width.handle_idle(3);
            width.handle_ended(1);
        }
        assert_eq!(width.poll_told(), Some(8));
    }

    #[test]
    fn it_settles_near_the_time_that_tasks_wait() {
        for (waits, least, most) in [(0, 1, 2), (1, 2, 4), (3, 4, 8), (15, 16, 16), (99, 16, 16)] {
            let wanted = settled(Width::new(1, None), waits);
            assert!((least..=most).contains(&wanted), "{waits}: {wanted}");
        }
    }

    #[test]
    fn a_number_that_is_set_is_told_at_every_run() {
        let mut width = Width::new(2, Some(3));
        (0..100).for_each(|begun| width.handle_idle(begun));
        (0..100).for_each(|_| width.handle_ended(1));
        assert_eq!((width.poll_told(), width.poll_told()), (Some(6), None));
        width.handle_run();
        assert_eq!(width.poll_told(), Some(6));
        assert_eq!(Width::new(u32::MAX, Some(3)).bound(), u32::MAX);
    }
}
