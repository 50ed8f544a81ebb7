//! Schedule of the tasks: a pure state machine, O(1) an event.
//!
//! A worker holds at most its *depth* of unanswered assignments: with 1 it waits for
//! the next one (no prefetch), with 2 the next one is there when the first is done
//! (double buffering). Workers with room stand in a line and get one assignment a
//! turn, so that the first tasks are spread evenly.
//!
//! ```text
//!              handle_joined             assign (depth reached, or stalled)
//!   Absent ───────────────▶ Waiting in line ─────────────────────▶ Busy
//!                              ▲                                     │
//!                              └─────── handle_answer, set_depth, ◀──┘
//!                                       handle_sent
//! ```
//!
//! Order of calls: `handle_*` for the events of the workers. Then
//! [`Schedule::poll_free`] until it returns `None`, each time followed by
//! [`Schedule::assign`] with the number of tasks for the worker, or by
//! [`Schedule::handle_tasks_end`].

use std::collections::VecDeque;
use std::ops::Range;

/// An answer without an assignment, or from a worker that this farm does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotAsked;

#[derive(Clone, Debug, Default)]
struct Slot {
    joined: bool,
    in_line: bool,
    /// Whether the last assignment is not on its way yet; no other is given before.
    stalled: bool,
    depth: u32,
    outstanding: u32,
}

impl Slot {
    fn has_room(&self) -> bool {
        self.joined && !self.stalled && self.outstanding < self.depth
    }
}

/// The assignments of one run.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    slots: Vec<Slot>,
    line: VecDeque<usize>,
    next: u64,
    outstanding: u64,
    tasks_ended: bool,
}

impl Schedule {
    /// Returns a schedule for workers 0 to `workers` - 1, none of which has joined.
    pub(crate) fn new(workers: usize) -> Schedule {
        Schedule {
            slots: vec![Slot::default(); workers],
            line: VecDeque::with_capacity(workers),
            next: 0,
            outstanding: 0,
            tasks_ended: false,
        }
    }

    /// Adds a worker, which may hold `depth` assignments, at least one.
    pub(crate) fn handle_joined(&mut self, worker: usize, depth: u32) {
        self.slots[worker].joined = true;
        self.set_depth(worker, depth);
    }

    /// Takes a worker's answer to one assignment.
    pub(crate) fn handle_answer(&mut self, worker: usize) -> Result<(), NotAsked> {
        let slot = self.slots.get_mut(worker).filter(|slot| slot.outstanding > 0);
        slot.ok_or(NotAsked)?.outstanding -= 1;
        self.outstanding -= 1;
        self.stand_in_line(worker);
        Ok(())
    }

    /// Removes a lost worker; returns the number of its unanswered assignments.
    pub(crate) fn handle_lost(&mut self, worker: usize) -> u32 {
        let slot = &mut self.slots[worker];
        slot.joined = false;
        let lost = std::mem::take(&mut slot.outstanding);
        self.outstanding -= u64::from(lost);
        lost
    }

    /// Ends the tasks: there are no more.
    pub(crate) fn handle_tasks_end(&mut self) {
        self.tasks_ended = true;
    }

    /// Stops the assignments to a worker whose last one waits to be sent, until
    /// [`handle_sent`](Schedule::handle_sent).
    pub(crate) fn handle_stalled(&mut self, worker: usize) {
        self.slots[worker].stalled = true;
    }

    /// Allows assignments to the worker again: the waiting one was sent.
    pub(crate) fn handle_sent(&mut self, worker: usize) {
        self.slots[worker].stalled = false;
        self.stand_in_line(worker);
    }

    /// Sets the number of assignments that the worker may hold, at least one.
    pub(crate) fn set_depth(&mut self, worker: usize, depth: u32) {
        self.slots[worker].depth = depth.max(1);
        self.stand_in_line(worker);
    }

    /// Returns the worker whose turn it is, while there are tasks and a worker with room.
    /// The worker stays first in line until it is assigned something.
    pub(crate) fn poll_free(&mut self) -> Option<usize> {
        if self.tasks_ended {
            return None;
        }
        while let Some(&worker) = self.line.front() {
            if self.slots[worker].has_room() {
                return Some(worker);
            }
            self.slots[worker].in_line = false;
            self.line.pop_front();
        }
        None
    }

    /// Assigns the next `count` tasks to the worker whose turn it is; returns their
    /// indices.
    pub(crate) fn assign(&mut self, count: u32) -> Range<u64> {
        let worker = self.line.pop_front().expect("poll_free named a worker");
        let slot = &mut self.slots[worker];
        slot.in_line = false;
        slot.outstanding += 1;
        assert!(slot.outstanding <= slot.depth, "a worker was given more than it may hold");
        self.outstanding += 1;
        self.stand_in_line(worker);
        let first = self.next;
        self.next += u64::from(count);
        first..self.next
    }

    /// Returns the number of tasks assigned so far, which are those with lower indices.
    pub(crate) fn assigned(&self) -> u64 {
        self.next
    }

    /// Whether nothing is left to assign and every assignment was answered.
    pub(crate) fn is_done(&self) -> bool {
        self.tasks_ended && self.outstanding == 0
    }

    fn stand_in_line(&mut self, worker: usize) {
        let slot = &mut self.slots[worker];
        if slot.has_room() && !slot.in_line {
            slot.in_line = true;
            self.line.push_back(worker);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn give(schedule: &mut Schedule, count: u32) -> Option<(usize, Range<u64>)> {
        let worker = schedule.poll_free()?;
        Some((worker, schedule.assign(count)))
    }

    #[test]
    fn the_first_tasks_are_spread_evenly() {
        let mut schedule = Schedule::new(2);
        schedule.handle_joined(0, 2);
        schedule.handle_joined(1, 2);
        let given: Vec<_> = std::iter::from_fn(|| give(&mut schedule, 3)).collect();
        assert_eq!(given, [(0, 0..3), (1, 3..6), (0, 6..9), (1, 9..12)]);
        schedule.handle_answer(1).unwrap();
        assert_eq!(give(&mut schedule, 3), Some((1, 12..15)));
        assert_eq!(give(&mut schedule, 3), None);
    }

    #[test]
    fn a_stalled_worker_gets_nothing_until_its_assignment_is_sent() {
        let mut schedule = Schedule::new(1);
        schedule.handle_joined(0, 4);
        give(&mut schedule, 1).unwrap();
        schedule.handle_stalled(0);
        assert_eq!(schedule.poll_free(), None);
        schedule.handle_sent(0);
        assert_eq!(schedule.poll_free(), Some(0));
    }

    #[test]
    fn a_run_is_done_when_all_is_answered() {
        let mut schedule = Schedule::new(1);
        schedule.handle_joined(0, 2);
        give(&mut schedule, 1).unwrap();
        schedule.handle_tasks_end();
        assert_eq!(schedule.poll_free(), None);
        assert!(!schedule.is_done());
        schedule.handle_answer(0).unwrap();
        assert!(schedule.is_done());
        assert_eq!(schedule.handle_answer(0), Err(NotAsked));
        assert_eq!(schedule.handle_answer(7), Err(NotAsked));
    }

    #[derive(Clone, Debug)]
    enum Event {
        Join(usize, u32),
        Answer(usize),
        Lose(usize),
        Stall(usize),
        Sent(usize),
        Depth(usize, u32),
        Give(u32),
        End,
    }

    const WORKERS: usize = 4;

    fn event() -> impl Strategy<Value = Event> {
        let worker = 0..WORKERS;
        prop_oneof![
            2 => (worker.clone(), 1..5u32).prop_map(|(w, depth)| Event::Join(w, depth)),
            8 => worker.clone().prop_map(Event::Answer),
            1 => worker.clone().prop_map(Event::Lose),
            1 => worker.clone().prop_map(Event::Stall),
            1 => worker.clone().prop_map(Event::Sent),
            1 => (worker, 1..5u32).prop_map(|(w, depth)| Event::Depth(w, depth)),
            12 => (1..8u32).prop_map(Event::Give),
            1 => Just(Event::End),
        ]
    }

    /// The same rules without a line or counters: plain lists, searched.
    #[derive(Default)]
    struct Oracle {
        joined: [bool; WORKERS],
        stalled: [bool; WORKERS],
        depth: [u32; WORKERS],
        held: [Vec<Range<u64>>; WORKERS],
        next: u64,
        ended: bool,
    }

    impl Oracle {
        fn has_room(&self, worker: usize) -> bool {
            self.joined[worker]
                && !self.stalled[worker]
                && (self.held[worker].len() as u32) < self.depth[worker]
        }

        fn give(&mut self, schedule: &mut Schedule, count: u32) {
            let free = schedule.poll_free();
            let may = (0..WORKERS).any(|worker| self.has_room(worker)) && !self.ended;
            assert_eq!(free.is_some(), may, "work is given exactly when it can be");
            if let Some(worker) = free {
                assert!(self.has_room(worker));
                let range = schedule.assign(count);
                assert_eq!(range, self.next..self.next + u64::from(count));
                self.next = range.end;
                self.held[worker].push(range);
            }
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_simple_oracle(events in prop::collection::vec(event(), 1..200)) {
            let mut schedule = Schedule::new(WORKERS);
            let mut oracle = Oracle::default();
            for event in events {
                match event {
                    Event::Join(worker, depth) => {
                        schedule.handle_joined(worker, depth);
                        oracle.joined[worker] = true;
                        oracle.depth[worker] = depth;
                    }
                    Event::Answer(worker) => {
                        let held = oracle.held[worker].pop().is_some();
                        prop_assert_eq!(schedule.handle_answer(worker).is_ok(), held);
                    }
                    Event::Lose(worker) => {
                        let lost = oracle.held[worker].drain(..).count();
                        oracle.joined[worker] = false;
                        prop_assert_eq!(schedule.handle_lost(worker) as usize, lost);
                    }
                    Event::Stall(worker) => {
                        schedule.handle_stalled(worker);
                        oracle.stalled[worker] = true;
                    }
                    Event::Sent(worker) => {
                        schedule.handle_sent(worker);
                        oracle.stalled[worker] = false;
                    }
                    Event::Depth(worker, depth) => {
                        schedule.set_depth(worker, depth);
                        oracle.depth[worker] = depth;
                    }
                    Event::Give(count) => oracle.give(&mut schedule, count),
                    Event::End => {
                        schedule.handle_tasks_end();
                        oracle.ended = true;
                    }
                }
                prop_assert_eq!(schedule.assigned(), oracle.next);
                let done = oracle.ended && oracle.held.iter().all(Vec::is_empty);
                prop_assert_eq!(schedule.is_done(), done);
            }
        }
    }
}
