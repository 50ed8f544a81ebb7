//! A farm around the ledger, in virtual time: workers that run tasks, and messages on their way.
//!
//! ```text
//!   source ──▶ ledger ──▶ order ~~~▶ queue ──▶ task ──▶ results ~~~▶ ledger
//! ```
//!
//! Messages of a direction keep their order. Workers die, leave, freeze, are cut off for a time, slow
//! down, and say things twice. All follows from a seed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use chunkcomm_testkit::random::Random;

use super::super::Share;
use super::message_of;
use super::oracle::{Checked, State};
use super::workers::{Order, Word, Worker, ranges};

/// Time between two looks for silent workers, in nanoseconds.
const LOOK_NS: u64 = 50_000_000;

/// Events of a run that is alive.
const EVENTS_MAX: u32 = 20_000;

/// Messages and timers from one look at the whole ledger to the next.
const CHECK_EVERY: u64 = 4;

/// Bytes of an input that makes its assignment larger than the buffers that are kept.
const LARGE_BYTES: usize = 80 << 10;

#[derive(Debug)]
pub(super) enum Event {
    Order(usize, Order),
    Word(usize, Word),
    /// A worker has run its task.
    Ran(usize),
    Sent(usize),
    /// The farmer sees that a link is broken, and not yet why.
    Broken(usize),
    Lost(usize, bool),
    Fault(Fault),
    Join,
    /// More tasks are in the source.
    More,
    /// The farmer above gives tasks again that it had back.
    Again(Range<u64>),
    Look,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    Death,
    Leave,
    Freeze,
    Cut,
    Slow,
    /// Results that nobody asked this worker for.
    Stray,
    /// Tasks come back that nobody asked for: those beside a task that does not end.
    GiveBack,
    Join,
    /// A worker gets no more tasks, or some again.
    Keep,
    /// The farmer above wants tasks back.
    Want,
}

/// Limits and numbers of a world.
pub(super) struct Plan {
    pub(super) tasks: u64,
    pub(super) workers: u64,
    pub(super) faults: Vec<Fault>,
    pub(super) poison: BTreeSet<u64>,
    pub(super) deaths_max: u32,
    /// Whether a farmer above numbers the tasks.
    pub(super) is_below: bool,
    pub(super) task_ns: u64,
    pub(super) delay_ns: u64,
}

pub(super) struct World {
    pub(super) random: Random,
    pub(super) plan: Plan,
    farm: Checked,
    now_ns: u64,
    pub(super) events: BTreeMap<(u64, u64), Event>,
    serial: u64,
    pub(super) workers: Vec<Worker>,
    /// Tasks to give out: their ranges, and how often the farmer above gave them out before.
    source: VecDeque<(Range<u64>, u32)>,
    /// Number of tasks that the source shows now.
    shown: u64,
    /// Times that the farmer above took tasks back.
    above: BTreeMap<u64, u32>,
    wanted: u64,
    looks: bool,
    aside: Vec<(u64, u32)>,
}

impl World {
    pub(super) fn new(mut random: Random, plan: Plan) -> World {
        let mut source = VecDeque::new();
        let mut first = 0;
        while first < plan.tasks {
            let count = if plan.is_below { random.range(1, 20) } else { plan.tasks };
            let end = plan.tasks.min(first + count);
            source.push_back((first..end, 0));
            first = end;
        }
        if plan.is_below && random.one_in(2) {
            source.make_contiguous().reverse();
        }
        let mut world = World {
            farm: Checked::new(plan.deaths_max, plan.tasks as usize),
            random,
            now_ns: 0,
            events: BTreeMap::new(),
            serial: 0,
            workers: Vec::new(),
            source,
            shown: 0,
            above: BTreeMap::new(),
            wanted: 0,
            looks: false,
            aside: Vec::new(),
            plan,
        };
        let span_ns = world.plan.tasks * world.plan.task_ns / world.plan.workers
            + 4 * world.plan.delay_ns
            + 1;
        for fault in world.plan.faults.clone() {
            let at_ns = world.random.below(span_ns + span_ns / 4);
            world.push(at_ns, Event::Fault(fault));
        }
        for _ in 0..world.plan.workers {
            world.push(0, Event::Join);
        }
        world.push(0, Event::More);
        // The last worker comes when all faults are over, and is a good one.
        world.push(2 * span_ns, Event::Join);
        world
    }

    /// Runs until every task has its end; returns the tasks that were set aside, with their deaths.
    pub(super) fn run(mut self) -> Vec<(u64, u32)> {
        let mut count = 0;
        while !self.is_done() {
            let Some((at, event)) = self.events.pop_first() else {
                panic!("nothing more happens, and {} tasks wait", self.farm.ledger().unanswered());
            };
            count += 1;
            assert!(count < EVENTS_MAX, "the run does not end");
            self.now_ns = self.now_ns.max(at.0);
            self.happen(event);
            self.turn();
        }
        // The rest of the words comes too late, and changes nothing.
        while let Some((at, event)) = self.events.pop_first() {
            self.now_ns = self.now_ns.max(at.0);
            if let Event::Word(worker, word) = event {
                self.hear(worker, word);
            }
        }
        self.farm.check();
        let aside = self.aside.iter().map(|&(task, _)| task).collect::<BTreeSet<_>>();
        assert_eq!(aside.len(), self.aside.len(), "a task is set aside once");
        for task in 0..self.plan.tasks {
            let is_aside = aside.contains(&task);
            let end = if is_aside { State::Aside } else { State::Accepted };
            assert_eq!(self.farm.state(task), end, "task {task}");
        }
        self.aside
    }

    fn is_done(&self) -> bool {
        match self.plan.is_below {
            false => self.farm.ledger().is_done(),
            true => (0..self.plan.tasks)
                .all(|task| matches!(self.farm.state(task), State::Accepted | State::Aside)),
        }
    }

    fn push(&mut self, at_ns: u64, event: Event) {
        self.serial += 1;
        self.events.insert((at_ns, self.serial), event);
    }

    pub(super) fn later(&mut self, within_ns: u64, event: Event) {
        let at_ns = self.now_ns + 1 + self.random.below(within_ns);
        self.push(at_ns, event);
    }

    /// Sends a message, to the worker or from it.
    pub(super) fn send(&mut self, worker: usize, event: Event) {
        let direction = usize::from(matches!(event, Event::Word(..)));
        let arrives_ns = self.now_ns + 1 + self.random.below(self.plan.delay_ns);
        let clear_ns = &mut self.workers[worker].clear_ns[direction];
        *clear_ns = arrives_ns.max(*clear_ns);
        let at_ns = *clear_ns;
        self.push(at_ns, event);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Order(worker, order) => self.take(worker, order),
            Event::Word(worker, word) => self.hear(worker, word),
            Event::Ran(worker) => self.ran(worker),
            Event::Sent(worker) => {
                if !self.workers[worker].lost && self.workers[worker].stalled {
                    self.workers[worker].stalled = false;
                    self.farm.stalled(worker, false);
                }
            }
            Event::Broken(worker) => {
                if !self.workers[worker].lost {
                    self.workers[worker].stalled = false;
                    self.farm.stalled(worker, true);
                }
            }
            Event::Lost(worker, blame) => {
                self.workers[worker].lost = true;
                let aside = self.farm.lost(worker, blame);
                self.aside.extend(aside);
                // Another process takes its place.
                self.later(10 * self.plan.delay_ns, Event::Join);
            }
            Event::Fault(fault) => self.fault(fault),
            Event::Join => self.join(false),
            Event::More => {
                self.shown += 1 + self.random.below(self.plan.tasks);
                if self.shown < self.plan.tasks {
                    let dry = if self.random.one_in(3) { 100 } else { 4 };
                    self.later(dry * self.plan.task_ns, Event::More);
                }
            }
            Event::Again(range) => {
                let again = range.clone().map(|task| self.above[&task]).max().unwrap_or_default();
                self.source.push_back((range, again));
            }
            Event::Look => {
                self.looks = false;
                while let Some((worker, range)) = self.farm.poll_straggler(self.now_ns) {
                    self.assign(worker, range);
                }
            }
        }
    }

    fn share(&mut self) -> Share {
        Share {
            pieces: self.random.range(1, 5) as u32,
            grain: self.random.range(1, 9) as u32 * if self.random.one_in(9) { 20 } else { 1 },
        }
    }

    fn join(&mut self, kept_off: bool) {
        let (share, threads) = (self.share(), self.random.range(1, 4) as u32);
        self.farm.join(share, threads, kept_off);
        let farms = self.random.one_in(5);
        self.workers.push(Worker { alive: true, farms, slowness: 1, ..Worker::default() });
    }

    /// One turn of the farmer, as `Run` takes it.
    fn turn(&mut self) {
        self.farm.count_pieces();
        for range in self.farm.give_up(self.wanted) {
            self.wanted = self.wanted.saturating_sub(range.end - range.start);
            range.clone().for_each(|task| *self.above.entry(task).or_default() += 1);
            self.later(20 * self.plan.delay_ns, Event::Again(range));
        }
        let ended = self.farm.ledger().has_ended();
        self.farm.source(false, ended);
        while let Some(worker) = self.farm.poll_free() {
            if let Some(range) = self.farm.reissue(worker, self.now_ns) {
                self.assign(worker, range);
            } else if let Some(range) = self.next_tasks(worker) {
                self.assign(worker, range);
            }
        }
        self.farm.count_pieces();
        self.farm.check_none_waits(!self.farm.ledger().has_ended() && self.left() > 0);
        while let Some((worker, count)) = self.farm.poll_victim(self.now_ns) {
            self.send(worker, Event::Order(worker, Order::TakeBack(count)));
        }
        if self.farm.is_in_tail() && !self.looks {
            self.looks = true;
            self.push(self.now_ns + LOOK_NS, Event::Look);
        }
        if self.serial.is_multiple_of(CHECK_EVERY) {
            self.farm.check();
        }
    }

    /// Number of tasks that the source shows and has not given.
    fn left(&self) -> u64 {
        let all: u64 = self.source.iter().map(|(range, _)| range.end - range.start).sum();
        if self.plan.is_below {
            all
        } else {
            all.min(self.shown.saturating_sub(self.plan.tasks - all))
        }
    }

    /// Takes the next tasks of the source for this worker, if it has any.
    fn next_tasks(&mut self, worker: usize) -> Option<Range<u64>> {
        if !self.plan.is_below && self.left() > 0 && self.random.one_in(40) {
            // Its result is in the journal.
            let task = self.farm.skip();
            let front = self.source.front_mut().map(|(range, _)| range.next());
            assert_eq!(front, Some(Some(task)));
        }
        self.source.retain(|(range, _)| !range.is_empty());
        let grain = u64::from(self.farm.ledger().grain(worker));
        let count = grain.min(self.left());
        let given = match self.source.front_mut().filter(|_| count > 0) {
            Some((range, attempt)) => {
                let given = range.start..range.end.min(range.start + count);
                range.start = given.end;
                Some((given, *attempt))
            }
            None => None,
        };
        self.source.retain(|(range, _)| !range.is_empty());
        let count = given.as_ref().map_or(0, |(given, _)| given.end - given.start);
        if count < grain && self.left() == 0 {
            let ended = self.source.is_empty() && !self.plan.is_below;
            self.farm.source(!ended, ended);
        }
        let (given, attempt) = given?;
        let bytes = if self.random.one_in(200) { LARGE_BYTES } else { 0 };
        let buffer = self.farm.buffer();
        let message = message_of(buffer, given.clone(), attempt, bytes);
        self.farm.assign(worker, given.clone(), attempt, message, self.now_ns);
        Some(given)
    }

    fn assign(&mut self, worker: usize, range: Range<u64>) {
        if self.random.one_in(20) {
            self.farm.stalled(worker, true);
            self.workers[worker].stalled = true;
            self.later(4 * self.plan.delay_ns, Event::Sent(worker));
        }
        self.send(worker, Event::Order(worker, Order::Tasks(range)));
    }

    fn fault(&mut self, fault: Fault) {
        let able = |worker: &Worker| worker.alive && !worker.frozen;
        let able: Vec<usize> =
            (0..self.workers.len()).filter(|&at| able(&self.workers[at])).collect();
        if able.is_empty() {
            return;
        }
        let at = self.random.pick(&able);
        match fault {
            Fault::Death => self.die(at, true),
            Fault::Leave => self.die(at, false),
            Fault::Freeze => self.workers[at].frozen = true,
            Fault::Cut => {
                let until_ns = self.now_ns + self.random.below(30 * self.plan.task_ns);
                let clear_ns = &mut self.workers[at].clear_ns;
                *clear_ns = clear_ns.map(|before_ns| before_ns.max(until_ns));
            }
            Fault::Slow => self.workers[at].slowness = self.random.range(2, 100),
            Fault::Stray => {
                let first = self.random.below(self.plan.tasks);
                let range = first..self.plan.tasks.min(first + 1 + self.random.below(9));
                self.send(at, Event::Word(at, Word::Done(range)));
            }
            Fault::GiveBack => {
                let given: Vec<u64> = self.workers[at].queue.drain(..).collect();
                for range in ranges(&given) {
                    self.send(at, Event::Word(at, Word::Returned(range)));
                }
            }
            Fault::Join => {
                let kept_off = self.random.one_in(2);
                self.join(kept_off);
            }
            Fault::Keep => {
                let kept_off = !self.farm.is_kept_off(at);
                self.farm.keep_off(at, kept_off);
            }
            Fault::Want => {
                let mut count = self.random.below(self.plan.tasks);
                self.wanted = 0;
                while let Some((worker, asked)) = self.farm.poll_spare(count, self.now_ns) {
                    self.send(worker, Event::Order(worker, Order::TakeBack(asked)));
                    self.wanted += asked;
                    count -= asked;
                }
            }
        }
    }

    /// The farmer hears a worker.
    fn hear(&mut self, at: usize, word: Word) {
        if self.workers[at].lost && self.random.one_in(2) {
            // Its end is known, and the other half is refused.
            return;
        }
        match word {
            Word::Done(range) => {
                let busy_ns = (range.end - range.start) * self.plan.task_ns;
                self.farm.answer(at, range, busy_ns, self.now_ns);
                if self.workers[at].lost || self.random.one_in(4) {
                    // The word about a late task.
                    return;
                }
                let (share, threads) = (self.share(), self.random.range(1, 4) as u32);
                self.farm.set(at, share, self.plan.task_ns, threads);
            }
            Word::Returned(range) => self.farm.returned(at, range, self.now_ns),
            Word::Aside(task) => {
                let held = self.farm.state(task) == State::Held;
                self.farm.aside(at, task, self.plan.deaths_max);
                if held && self.farm.state(task) == State::Aside {
                    self.aside.push((task, self.plan.deaths_max));
                }
            }
        }
    }
}
