//! A ledger beside a simple list of its tasks. Each call goes to both, and their answers are compared.

use std::collections::BTreeSet;
use std::ops::Range;

use super::super::super::wire::Malformed;
use super::super::balance::{SILENCE_NS_LONG, SILENCE_NS_MIN};
use super::super::holds::KEPT_BYTES_MAX;
use super::super::piece::Piece;
use super::super::{Accepted, Ledger, Mishaps, Share};
use super::tasks;

/// State of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not known to the ledger, or with the farmer above again.
    Away,
    Open,
    Held,
    Accepted,
    Aside,
}

#[derive(Clone, Debug)]
struct Task {
    state: State,
    /// The oldest first.
    holders: Vec<usize>,
    deaths: u32,
    /// How often it was given out before; `None` before the first time.
    attempt: Option<u32>,
}

#[derive(Clone, Debug, Default)]
struct Worker {
    present: bool,
    /// Whether it gets no tasks.
    kept_off: bool,
    stalled: bool,
    /// Whether another did a task that it held, and it has said nothing since.
    robbed: bool,
    asked: bool,
    /// Whether it had nothing to give when it was asked, and got nothing since.
    barren: bool,
    /// Whether it got a suspect when it had nothing, and has had tasks since.
    alone: bool,
    heard_ns: u64,
    tasks: BTreeSet<u64>,
}

impl Worker {
    fn is_idle(&self) -> bool {
        let is_free = self.present && !self.kept_off && !self.stalled && !self.robbed;
        is_free && self.tasks.is_empty()
    }
}

pub(super) struct Checked {
    ledger: Ledger,
    deaths_max: u32,
    /// Deaths from which on a task is tried alone: two, or one if the second may be its last.
    suspected: u32,
    tasks: Vec<Task>,
    workers: Vec<Worker>,
    mishaps: Mishaps,
    /// Most pieces at one time.
    pieces_max: usize,
}

impl Checked {
    pub(super) fn new(deaths_max: u32, tasks: usize) -> Checked {
        let task = Task { state: State::Away, holders: Vec::new(), deaths: 0, attempt: None };
        Checked {
            ledger: Ledger::new(deaths_max),
            deaths_max,
            suspected: if deaths_max > 2 { 2 } else { 1 },
            tasks: vec![task; tasks],
            workers: Vec::new(),
            mishaps: Mishaps::default(),
            pieces_max: 0,
        }
    }

    pub(super) fn state(&self, task: u64) -> State {
        self.tasks[task as usize].state
    }

    pub(super) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(super) fn join(&mut self, share: Share, threads: u32, kept_off: bool) {
        let worker = self.ledger.handle_joined(share, threads);
        assert_eq!(worker, self.workers.len());
        self.workers.push(Worker { present: true, ..Worker::default() });
        self.keep_off(worker, kept_off);
    }

    pub(super) fn keep_off(&mut self, worker: usize, kept_off: bool) {
        self.workers[worker].kept_off = kept_off;
        self.ledger.keep_off(worker, kept_off);
    }

    pub(super) fn is_kept_off(&self, worker: usize) -> bool {
        self.workers[worker].kept_off
    }

    pub(super) fn set(&mut self, worker: usize, share: Share, task_ns: u64, threads: u32) {
        self.ledger.set_share(worker, share, Some(task_ns as f64));
        self.ledger.set_threads(worker, threads);
    }

    pub(super) fn source(&mut self, dry: bool, ended: bool) {
        self.ledger.handle_source(dry, ended);
    }

    pub(super) fn stalled(&mut self, worker: usize, stalled: bool) {
        self.workers[worker].stalled = stalled;
        match stalled {
            true => self.ledger.handle_stalled(worker),
            false => self.ledger.handle_sent(worker),
        }
    }

    pub(super) fn answer(&mut self, worker: usize, range: Range<u64>, busy_ns: u64, now_ns: u64) {
        let count = (range.end - range.start) as u32;
        let told = self.ledger.handle_answer(worker, range.start, count, busy_ns, now_ns);
        if !self.may_tell(worker, &range) {
            return assert_eq!(told, Err(Malformed));
        }
        let accepted: Vec<u64> = match told.expect("it may tell of these tasks") {
            Accepted::All => range.clone().collect(),
            Accepted::Some(parts) => parts.into_iter().flatten().collect(),
        };
        assert_eq!(accepted, self.held_of(worker, &range), "{worker} answered {range:?}");
        self.mishaps.dropped += u64::from(count) - accepted.len() as u64;
        accepted.into_iter().for_each(|task| self.end(worker, task, State::Accepted));
        self.workers[worker].robbed = false;
        self.workers[worker].heard_ns = now_ns;
    }

    pub(super) fn returned(&mut self, worker: usize, range: Range<u64>, now_ns: u64) {
        let count = (range.end - range.start) as u32;
        let told = self.ledger.handle_returned(worker, range.start, count, now_ns);
        if !self.may_tell(worker, &range) {
            return assert_eq!(told, Err(Malformed));
        }
        assert_eq!(told, Ok(()));
        let given = self.held_of(worker, &range);
        self.workers[worker].barren &= range.is_empty();
        self.mishaps.returned += given.len() as u64;
        given.into_iter().for_each(|task| self.let_go(worker, task));
        let teller = &mut self.workers[worker];
        (teller.robbed, teller.heard_ns) = (false, now_ns);
        teller.asked &= !range.is_empty();
    }

    /// Takes the word that workers below this one died of a task.
    pub(super) fn aside(&mut self, worker: usize, task: u64, deaths: u32) {
        let told = self.ledger.handle_aside(worker, task, deaths);
        if !self.may_tell(worker, &(task..task + 1)) {
            return assert_eq!(told, Err(Malformed));
        }
        let held = self.workers[worker].tasks.contains(&task);
        let told = told.expect("it may tell of this task").map(|it| (it.task, it.deaths));
        assert_eq!(told, held.then_some((task, deaths)));
        if held {
            self.end(worker, task, State::Aside);
        }
        self.workers[worker].robbed = false;
    }

    /// Takes the loss of a worker; returns the task that is set aside, and the deaths of it.
    pub(super) fn lost(&mut self, worker: usize, blame: bool) -> Option<(u64, u32)> {
        let told = self.ledger.handle_lost(worker, blame);
        let held: Vec<u64> = self.workers[worker].tasks.iter().copied().collect();
        held.iter().for_each(|&task| self.tasks[task as usize].deaths += u32::from(blame));
        let of = |&task: &u64| (task, self.tasks[task as usize].deaths);
        let is_due = |&(task, deaths): &(u64, u32)| {
            deaths >= self.deaths_max && self.tasks[task as usize].holders.len() == 1
        };
        let certain = if let [task] = &held[..] { Some(of(task)) } else { None };
        let due = certain.filter(|it| blame && is_due(it));
        let aside: Vec<_> = told.iter().map(|it| (it.task, it.deaths)).collect();
        assert_eq!(aside, Vec::from_iter(due), "{worker} held {held:?}");
        for &task in &held {
            if due.is_some() {
                self.end(worker, task, State::Aside);
            } else {
                self.let_go(worker, task);
                self.mishaps.reissued += u64::from(self.state(task) == State::Open);
            }
        }
        self.workers[worker].present = false;
        // The next death tells the task.
        let is_split = |piece: &Piece| piece.count <= 1 || piece.deaths < 2 || !blame;
        let suspects = self.ledger.suspects.iter().map(|&key| &self.ledger.pieces[key]);
        let mut suspects = suspects.filter(|piece| held.contains(&piece.first));
        assert!(suspects.all(is_split), "{worker} died of a part");
        due
    }

    pub(super) fn poll_free(&mut self) -> Option<usize> {
        self.ledger.poll_free()
    }

    /// Gives an open piece to this worker, whose turn it is.
    pub(super) fn reissue(&mut self, worker: usize, now_ns: u64) -> Option<Range<u64>> {
        let (first, count, message) = self.ledger.reissue(now_ns)?;
        let (given, attempt) = tasks(message);
        assert_eq!(given, first..first + u64::from(count));
        for task in given.clone() {
            let task = &mut self.tasks[task as usize];
            assert_eq!(task.state, State::Open);
            task.attempt = task.attempt.map(|before| before + 1);
        }
        self.hold(worker, &given, attempt, now_ns);
        Some(given)
    }

    /// Gives new tasks to this worker, whose turn it is.
    pub(super) fn assign(
        &mut self,
        worker: usize,
        given: Range<u64>,
        attempt: u32,
        message: Vec<u8>,
        now_ns: u64,
    ) {
        let count = (given.end - given.start) as u32;
        let message = self.ledger.assign(given.start, count, attempt, message, now_ns);
        assert_eq!(tasks(message), (given.clone(), attempt));
        for task in given.clone() {
            assert_eq!(self.state(task), State::Away);
            self.tasks[task as usize].attempt = Some(attempt);
            self.tasks[task as usize].deaths = 0;
        }
        self.hold(worker, &given, attempt, now_ns);
    }

    pub(super) fn buffer(&mut self) -> Vec<u8> {
        self.ledger.buffer()
    }

    pub(super) fn skip(&mut self) -> u64 {
        let task = self.ledger.skip();
        self.tasks[task as usize].state = State::Accepted;
        task
    }

    pub(super) fn poll_victim(&mut self, now_ns: u64) -> Option<(usize, u64)> {
        let asked = self.ledger.poll_victim(now_ns)?;
        assert!(self.workers.iter().any(Worker::is_idle), "nobody needs them");
        Some(self.ask(asked))
    }

    pub(super) fn poll_spare(&mut self, count: u64, now_ns: u64) -> Option<(usize, u64)> {
        let asked = self.ledger.poll_spare(count, now_ns)?;
        assert!(asked.1 <= count);
        Some(self.ask(asked))
    }

    fn ask(&mut self, (worker, count): (usize, u64)) -> (usize, u64) {
        let victim = &mut self.workers[worker];
        assert!(victim.present && !victim.stalled && !victim.asked);
        assert!(count > 0 && count < victim.tasks.len() as u64);
        (victim.asked, victim.barren) = (true, true);
        (worker, count)
    }

    /// Takes about this number of open tasks out of the ledger.
    pub(super) fn give_up(&mut self, count: u64) -> Vec<Range<u64>> {
        let given = self.ledger.give_up(count);
        let ranges = given.into_iter().map(|(first, count)| first..first + u64::from(count));
        let ranges: Vec<_> = ranges.collect();
        for task in ranges.iter().cloned().flatten() {
            let task = &mut self.tasks[task as usize];
            assert_eq!((task.state, task.deaths), (State::Open, 0));
            task.state = State::Away;
        }
        let open = |task: &Task| task.state == State::Open && task.deaths == 0;
        let left = self.tasks.iter().any(open);
        let all: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        assert!(all >= count || !left, "some are kept");
        ranges
    }

    pub(super) fn is_in_tail(&self) -> bool {
        self.ledger.is_in_tail()
    }

    pub(super) fn poll_straggler(&mut self, now_ns: u64) -> Option<(usize, Range<u64>)> {
        let (worker, first, count, message) = self.ledger.poll_straggler(now_ns)?;
        let (given, attempt) = tasks(message);
        assert_eq!(given, first..first + u64::from(count));
        assert!(self.workers[worker].is_idle());
        self.mishaps.copied += u64::from(count);
        for index in given.clone() {
            let task = &mut self.tasks[index as usize];
            assert_eq!(task.state, State::Held);
            task.attempt = task.attempt.map(|before| before + 1);
            let is_costly = task.deaths > 0 || task.holders.len() > 1;
            let silence = if is_costly { SILENCE_NS_LONG } else { SILENCE_NS_MIN };
            for &holder in &task.holders {
                let silent_ns = now_ns - self.workers[holder].heard_ns;
                assert!(silent_ns as f64 > silence, "{holder} is not silent");
            }
            if let [_, second] = task.holders[..] {
                task.holders.pop();
                self.workers[second].robbed = true;
                self.workers[second].tasks.remove(&index);
            }
        }
        self.hold(worker, &given, attempt, now_ns);
        Some((worker, given))
    }

    fn may_tell(&self, worker: usize, range: &Range<u64>) -> bool {
        self.workers[worker].present && range.end <= self.ledger.assigned()
    }

    fn held_of(&self, worker: usize, range: &Range<u64>) -> Vec<u64> {
        self.workers[worker].tasks.range(range.clone()).copied().collect()
    }

    /// Ends a task by the word of this worker; another that holds it has lost it.
    fn end(&mut self, worker: usize, task: u64, state: State) {
        self.tasks[task as usize].state = state;
        for holder in std::mem::take(&mut self.tasks[task as usize].holders) {
            self.workers[holder].tasks.remove(&task);
            self.workers[holder].robbed |= holder != worker;
        }
    }

    fn let_go(&mut self, worker: usize, task: u64) {
        self.workers[worker].tasks.remove(&task);
        let task = &mut self.tasks[task as usize];
        task.holders.retain(|&holder| holder != worker);
        if task.holders.is_empty() {
            task.state = State::Open;
        }
    }

    fn hold(&mut self, worker: usize, given: &Range<u64>, attempt: u32, now_ns: u64) {
        let slot = &mut self.workers[worker];
        assert!(slot.present && !slot.kept_off && !slot.stalled, "{worker} cannot get tasks");
        assert!(!slot.robbed || !slot.tasks.is_empty(), "{worker} owes an answer");
        assert!(slot.tasks.is_empty() || !slot.alone, "{worker} is to have the suspect alone");
        slot.barren = false;
        let suspected = self.suspected;
        let suspect = self.tasks[given.start as usize].deaths >= suspected;
        assert!(!suspect || slot.tasks.is_empty(), "a suspect goes to who has nothing");
        if slot.tasks.is_empty() {
            (slot.alone, slot.heard_ns) = (suspect, now_ns);
        }
        for task in given.clone() {
            slot.tasks.insert(task);
            let task = &mut self.tasks[task as usize];
            assert_eq!((task.attempt, task.deaths >= suspected), (Some(attempt), suspect));
            task.state = State::Held;
            task.holders.push(worker);
        }
    }

    /// Counts the pieces, at their most in a turn.
    pub(super) fn count_pieces(&mut self) {
        let pieces = self.ledger.pieces.iter().filter(|piece| piece.count > 0).count();
        self.pieces_max = self.pieces_max.max(pieces);
    }

    /// Nobody has nothing to do while there is something.
    pub(super) fn check_none_waits(&self, more: bool) {
        if let Some(idle) = self.workers.iter().position(Worker::is_idle) {
            let open = self.tasks.iter().position(|task| task.state == State::Open);
            assert!(open.is_none() && !more, "{idle} has nothing to do");
        }
    }

    /// Ledger and list agree, and the ledger keeps no more than it must.
    pub(super) fn check(&mut self) {
        let ledger = &self.ledger;
        let mut held = vec![0; self.workers.len()];
        let mut unanswered = 0;
        for (key, piece) in ledger.pieces.iter().enumerate() {
            let holders: Vec<usize> =
                piece.holders.iter().flatten().map(|&holder| holder as usize).collect();
            for task in piece.tasks() {
                let task = &self.tasks[task as usize];
                assert_eq!((&task.holders, task.deaths), (&holders, piece.deaths));
                let state = if holders.is_empty() { State::Open } else { State::Held };
                assert_eq!(task.state, state);
            }
            holders.iter().for_each(|&holder| held[holder] += piece.tasks().count());
            unanswered += u64::from(piece.count);
            let waits = [&ledger.open, &ledger.suspects].map(|keys| keys.contains(&key));
            let waits_with = [false, true].map(|it| (piece.deaths >= self.suspected) == it);
            let is_open = piece.count > 0 && holders.is_empty();
            assert_eq!(waits, waits_with.map(|queue| is_open && queue));
            if piece.count == 0 {
                assert!(piece.message.capacity() <= KEPT_BYTES_MAX, "a large buffer is kept");
            }
        }
        let known = |task: &&Task| matches!(task.state, State::Open | State::Held);
        assert_eq!(unanswered, self.tasks.iter().filter(known).count() as u64);
        assert_eq!(unanswered, ledger.unanswered());
        for (at, (worker, held)) in self.workers.iter().zip(held).enumerate() {
            let slot = &ledger.workers[at];
            let pieces = slot.pieces.iter().map(|&key| u64::from(ledger.pieces[key].count));
            assert_eq!(pieces.sum::<u64>(), slot.tasks);
            assert_eq!((held, slot.tasks), (worker.tasks.len(), worker.tasks.len() as u64));
            assert_eq!(slot.joined, worker.present);
            assert_eq!(
                (slot.asked_ns.is_some(), slot.barren),
                (worker.asked, worker.barren),
                "{at}"
            );
            assert_eq!(slot.is_idle(), worker.is_idle(), "{at}");
            let places = ledger.line.iter().filter(|&&in_line| in_line == at).count();
            assert_eq!(places, usize::from(slot.in_line));
        }
        let present =
            self.workers.iter().filter(|worker| worker.present && !worker.kept_off).count();
        assert_eq!((ledger.present(), ledger.mishaps()), (present, self.mishaps));
        // An answer from the middle of a piece has two more for a moment.
        assert!(ledger.pieces.len() <= self.pieces_max + 2, "pieces are not used again");
    }
}
