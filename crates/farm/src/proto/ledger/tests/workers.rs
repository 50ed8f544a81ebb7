//! The workers of a world: they take orders, run tasks, and tell.

use std::collections::VecDeque;
use std::ops::Range;

use super::world::{Event, World};

#[derive(Debug)]
pub(super) enum Order {
    Tasks(Range<u64>),
    TakeBack(u64),
}

#[derive(Clone, Debug)]
pub(super) enum Word {
    Done(Range<u64>),
    Returned(Range<u64>),
    Aside(u64),
}

#[derive(Default)]
pub(super) struct Worker {
    pub(super) alive: bool,
    pub(super) frozen: bool,
    /// Whether the farmer knows that it is lost.
    pub(super) lost: bool,
    /// Whether it is a sub-farmer: tasks kill workers below it.
    pub(super) farms: bool,
    pub(super) stalled: bool,
    pub(super) slowness: u64,
    pub(super) queue: VecDeque<u64>,
    pub(super) running: Option<u64>,
    pub(super) results: Vec<u64>,
    /// Times before which nothing arrives, to the worker and from it.
    pub(super) clear_ns: [u64; 2],
}

impl World {
    /// A worker takes an order.
    pub(super) fn take(&mut self, at: usize, order: Order) {
        let worker = &mut self.workers[at];
        if !worker.alive || worker.frozen {
            return;
        }
        match order {
            Order::Tasks(range) => {
                worker.queue.extend(range);
                self.begin(at);
            }
            Order::TakeBack(count) => {
                let kept = worker.queue.len().saturating_sub(count as usize);
                let given: Vec<u64> = worker.queue.drain(kept..).collect();
                for range in ranges(&given) {
                    self.send(at, Event::Word(at, Word::Returned(range)));
                }
                self.send(at, Event::Word(at, Word::Returned(0..0)));
            }
        }
    }

    /// A worker begins its next task, if it has none.
    fn begin(&mut self, at: usize) {
        while self.workers[at].running.is_none() {
            let Some(task) = self.workers[at].queue.pop_front() else { return self.report(at) };
            match (self.plan.poison.contains(&task), self.workers[at].farms) {
                (true, true) => self.send(at, Event::Word(at, Word::Aside(task))),
                (true, false) => return self.die(at, true),
                _ => self.workers[at].running = Some(task),
            }
        }
        let within_ns = 2 * self.plan.task_ns * self.workers[at].slowness;
        self.later(within_ns, Event::Ran(at));
    }

    pub(super) fn ran(&mut self, at: usize) {
        let worker = &mut self.workers[at];
        if !worker.alive || worker.frozen {
            return;
        }
        worker.results.extend(worker.running.take());
        if self.random.one_in(3) {
            self.report(at);
        }
        self.begin(at);
    }

    /// A worker sends the results that it has.
    fn report(&mut self, at: usize) {
        let results = std::mem::take(&mut self.workers[at].results);
        let mut ranges = ranges(&results);
        if self.workers[at].farms {
            ranges.reverse();
        }
        for range in ranges {
            let word = Word::Done(range);
            if self.random.one_in(30) {
                self.send(at, Event::Word(at, word.clone()));
            }
            self.send(at, Event::Word(at, word));
        }
    }

    pub(super) fn die(&mut self, at: usize, blame: bool) {
        self.workers[at].alive = false;
        if self.random.one_in(2) {
            // Its last words are lost with it.
            self.events.retain(|_, event| !matches!(event, Event::Word(of, _) if *of == at));
        }
        if self.random.one_in(3) {
            self.later(self.plan.delay_ns, Event::Broken(at));
        }
        self.later(4 * self.plan.delay_ns, Event::Lost(at, blame));
    }
}

/// Returns numbers as ranges, in their order.
pub(super) fn ranges(numbers: &[u64]) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some(last) if last.end == number => last.end += 1,
            _ => ranges.push(number..number + 1),
        }
    }
    ranges
}
