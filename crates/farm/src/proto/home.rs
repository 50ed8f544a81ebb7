//! Decision whether the farmer's own node works too, because tasks do not pay to be sent.
//!
//! The farm is measured as a whole. Its workers together are busy with tasks for less than half of
//! the time of one core, and wait for messages most of the time. A core at home then does more than
//! all of them, since its tasks need no wire. A task that takes longer on the wire than to compute
//! stays at home. The wire still carries as many tasks as it can.

/// Sums over the workers of a run since its begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) now_ns: u64,
    /// Number of tasks that were answered, and of answers.
    pub(crate) tasks: u64,
    pub(crate) answers: u64,
    /// Thread time in tasks, for messages with tasks, and for tasks, in nanoseconds.
    pub(crate) busy_ns: u64,
    pub(crate) for_wire_ns: u64,
    pub(crate) for_farmer_ns: u64,
    /// Threads of the workers now.
    pub(crate) threads: u64,
}

/// Shortest time between two looks, in nanoseconds: 100 ms.
const LOOK_NS: u64 = 100_000_000;
/// Fewest answers between two looks, for each thread: the time of a task counts only once it is
/// answered.
const ANSWERS: u64 = 4;
/// Shortest mean time of a task that may stay at home, in nanoseconds: 10 us. A shorter task costs
/// the farmer about as much at home as on a wire.
const TASK_NS_MIN: u64 = 10_000;

/// Decides from time to time whether tasks pay to be sent.
#[derive(Debug)]
pub(crate) struct Home {
    /// Sums at the last look; `None` when nothing is to be decided.
    last: Option<Spent>,
    works: bool,
}

impl Home {
    /// Begins a run; without a worker at home there is nothing to decide.
    pub(crate) fn new(has_worker: bool) -> Home {
        Home { last: has_worker.then(Spent::default), works: false }
    }

    /// Whether the worker at home takes part.
    pub(crate) fn works(&self) -> bool {
        self.works
    }

    /// Whether it is time to look.
    #[inline]
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        self.last.is_some_and(|last| now_ns >= last.now_ns.saturating_add(LOOK_NS))
    }

    /// Returns whether the worker at home is to take part from now on.
    pub(crate) fn handle_look(&mut self, spent: Spent) -> bool {
        let Some(last) = self.last else { return false };
        if spent.answers - last.answers < ANSWERS * spent.threads {
            return false;
        }
        let of = |sum: fn(&Spent) -> u64| sum(&spent).saturating_sub(sum(&last));
        let (busy_ns, for_wire_ns) = (of(|it| it.busy_ns), of(|it| it.for_wire_ns));
        self.works = busy_ns / of(|it| it.tasks).max(1) >= TASK_NS_MIN
            && busy_ns < of(|it| it.now_ns) / 2
            && for_wire_ns > busy_ns.saturating_add(of(|it| it.for_farmer_ns));
        self.last = (!self.works).then_some(spent);
        self.works
    }

    /// Notes that a worker died at its tasks: no further task of the run goes to the farmer's node.
    pub(crate) fn handle_death(&mut self) {
        *self = Home { last: None, works: false };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two threads that were at this many tasks of 1 ms in 100 ms.
    fn spent(tasks: u64) -> Spent {
        let (busy_ns, for_farmer_ns) = (tasks * 1_000_000, 0);
        let for_wire_ns = 2 * LOOK_NS - busy_ns;
        Spent {
            now_ns: LOOK_NS,
            tasks,
            answers: tasks,
            busy_ns,
            for_wire_ns,
            for_farmer_ns,
            threads: 2,
        }
    }

    #[test]
    fn a_farm_that_does_less_than_half_a_core_has_its_farmer_work() {
        let mut home = Home::new(true);
        assert!(!home.is_due(LOOK_NS - 1) && home.is_due(LOOK_NS));
        assert!(home.handle_look(spent(49)) && home.works());
        assert!(!home.is_due(u64::MAX), "it is decided");
        home.handle_death();
        assert!(!home.works() && !home.is_due(u64::MAX));
        assert!(!Home::new(true).handle_look(spent(50)));
        assert!(!Home::new(false).is_due(u64::MAX));
    }

    #[test]
    fn looks_are_about_the_time_since_the_last_one() {
        let mut home = Home::new(true);
        assert!(!home.handle_look(spent(90)));
        let more = spent(20);
        let next = Spent {
            now_ns: 2 * LOOK_NS,
            tasks: 110,
            answers: 110,
            busy_ns: 110_000_000,
            for_wire_ns: spent(90).for_wire_ns + more.for_wire_ns,
            ..more
        };
        assert!(!home.is_due(next.now_ns - 1) && home.is_due(next.now_ns));
        assert!(home.handle_look(next));
    }

    #[test]
    fn few_answers_tiny_tasks_and_a_slow_source_say_nothing() {
        let not = |spent| !Home::new(true).handle_look(spent);
        assert!(not(Spent { answers: 7, ..spent(49) }), "long tasks are not answered yet");
        assert!(not(Spent { tasks: 4_901, ..spent(49) }));
        assert!(not(Spent { for_wire_ns: 50, for_farmer_ns: 100_000_000, ..spent(49) }));
    }
}
