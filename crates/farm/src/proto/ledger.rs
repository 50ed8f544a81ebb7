//! Ledger of a run: which worker holds which tasks, and what becomes of tasks that come back.
//!
//! Tasks are numbered from 0 in the order of their source. An assignment is a *piece*: a range of
//! tasks with their encoded inputs, which are kept until the results are accepted.
//!
//! ```text
//!              assign                    answer of a holder
//!   source ─────────────▶ held by a ─────────────────────────▶ accepted, once
//!                          worker
//!              reissue    ▲      │ lost, or given back
//!   open ─────────────────┘◀─────┘            │ third death of its holders
//!                                             ▼
//!                                          set aside
//! ```
//!
//! When a worker dies, any of its pieces may be the cause, or none. They are given out again like
//! others. A piece that was at two deaths is a *suspect*. It is split into its tasks, and each goes
//! to a worker that holds nothing else. If that worker dies too, this task is the cause.
//!
//! A worker holds at most its [`Share`]. Workers with room stand in a line and get one piece a
//! turn, so that the first tasks are spread evenly. Open pieces go before new tasks. An answer
//! counts only for tasks that its worker holds: results that come late or twice are counted and
//! dropped.
//!
//! When nothing is left to give, a worker without tasks gets tasks that another has not begun
//! ([`Ledger::poll_victim`]). After that it gets a copy of a silent worker's tasks
//! ([`Ledger::poll_straggler`]).
//!
//! Order of calls: `handle_*` for the events of the workers. Then [`Ledger::poll_free`] until it
//! returns `None`. After each `Some`: [`Ledger::reissue`]. If that returns `None`:
//! [`Ledger::assign`] or [`Ledger::handle_source`].

use std::collections::VecDeque;
use std::ops::Range;

use super::wire::Malformed;
use piece::{Key, Piece};
use worker::Worker;

/// Parts into which the first death splits a piece at work, to find the task to blame.
const PARTS: u32 = 64;

/// Deaths from which on a piece is a suspect. One death is no reason: a worker of many threads
/// holds many pieces. They would be tried one after the other, while all other workers wait.
const SUSPECTED: u32 = 2;

/// Most that a worker may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    /// Pieces, at least 1.
    pub(crate) pieces: u32,
    /// Tasks of a new piece, at least 1.
    pub(crate) grain: u32,
}

/// Tasks of an answer that are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Accepted {
    All,
    /// These tasks, in ascending order; the others came late or twice.
    Some(Vec<Range<u64>>),
}

/// Task that is not run again: it was at work when this many workers died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SetAside {
    pub(crate) task: u64,
    pub(crate) deaths: u32,
    /// The encoded input.
    pub(crate) input: Vec<u8>,
}

/// Numbers of tasks of a run that were lost, moved or done twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mishaps {
    /// Number of tasks given out again after the loss of their worker.
    pub reissued: u64,
    /// Number of tasks that a worker gave back for another without tasks. Tasks of a reduced result
    /// count too if it was refused, because another worker had already done one of them.
    pub returned: u64,
    /// Number of tasks also given to a second worker at the end of the run, while the first was
    /// silent.
    pub copied: u64,
    /// Number of results that came late or twice, and were dropped.
    pub dropped: u64,
}

/// Assignments of one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    workers: Vec<Worker>,
    /// Pieces by key. A piece whose key is in `free` is empty, and keeps its buffer.
    pieces: Vec<Piece>,
    free: Vec<Key>,
    /// Pieces that wait for a worker.
    open: VecDeque<Key>,
    /// Suspects, which wait for a worker without any other piece.
    suspects: VecDeque<Key>,
    line: VecDeque<usize>,
    /// Number of workers that have joined, are not lost, and get tasks.
    present: usize,
    /// Number of tasks assigned so far.
    next: u64,
    /// Number of assigned tasks that were neither accepted nor set aside.
    unanswered: u64,
    /// Whether the source has no task now.
    dry: bool,
    ended: bool,
    deaths_max: u32,
    busy_ns: f64,
    answered: u64,
    /// Longest time from an assignment to an answer for it.
    longest_ns: u64,
    mishaps: Mishaps,
}

impl Ledger {
    /// Returns a ledger without workers. A task is set aside when `deaths_max` workers have died of
    /// it.
    pub(crate) fn new(deaths_max: u32) -> Ledger {
        Ledger { deaths_max: deaths_max.max(1), ..Ledger::default() }
    }

    /// Adds a worker that computes on this number of threads; returns its index.
    pub(crate) fn handle_joined(&mut self, share: Share, threads: u32) -> usize {
        let worker = self.workers.len();
        self.workers.push(Worker::new(share, threads));
        self.present += 1;
        self.stand_in_line(worker);
        worker
    }

    /// Gives this worker no copies of other workers' tasks.
    pub(crate) fn give_no_copies(&mut self, worker: usize) {
        self.workers[worker].gets_copies = false;
    }

    /// Copies this worker's tasks only if it has given a sign of life in its silence. A task that
    /// stops its process would stop the other worker's too.
    pub(crate) fn ask_before_copies(&mut self, worker: usize) {
        self.workers[worker].is_asked = true;
    }

    /// Notes a sign of life of a worker: a message of any kind.
    pub(crate) fn handle_sign(&mut self, worker: usize, now_ns: u64) {
        self.workers[worker].signed_ns = now_ns;
    }

    /// Gives this worker no further task, or lets it have tasks again. Its answers still count.
    pub(crate) fn keep_off(&mut self, worker: usize, kept_off: bool) {
        let slot = &mut self.workers[worker];
        if std::mem::replace(&mut slot.kept_off, kept_off) == kept_off {
            return;
        }
        if slot.joined {
            self.present = if kept_off { self.present - 1 } else { self.present + 1 };
        }
        self.stand_in_line(worker);
    }

    /// Takes an answer for `count` tasks from `first` on, which took `busy_ns` in all. It makes no
    /// sense if they were never assigned, or the worker has not joined.
    #[inline]
    pub(crate) fn handle_answer(
        &mut self,
        worker: usize,
        first: u64,
        count: u32,
        busy_ns: u64,
        now_ns: u64,
    ) -> Result<Accepted, Malformed> {
        let tasks = first..first + u64::from(count);
        let teller = self.teller(worker, &tasks)?;
        teller.heard_ns = now_ns;
        self.busy_ns += busy_ns as f64;
        self.answered += u64::from(count);
        if let Some(&key) = self.workers[worker].pieces.front() {
            let held_ns = now_ns.saturating_sub(self.pieces[key].given_ns);
            self.longest_ns = self.longest_ns.max(held_ns);
        }
        let accepted = self.accept(worker, &tasks);
        self.workers[worker].owes = false;
        self.stand_in_line(worker);
        Ok(accepted)
    }

    /// Takes tasks that a worker gave back; an empty range is the end of a return.
    pub(crate) fn handle_returned(
        &mut self,
        worker: usize,
        first: u64,
        count: u32,
        now_ns: u64,
    ) -> Result<(), Malformed> {
        let tasks = first..first + u64::from(count);
        let teller = self.teller(worker, &tasks)?;
        teller.heard_ns = now_ns;
        // The worker may have given back tasks that another answered.
        teller.owes = false;
        if tasks.is_empty() {
            teller.asked_ns = None;
            self.stand_in_line(worker);
            return Ok(());
        }
        self.workers[worker].barren = false;
        for part in self.held_of(worker, &tasks) {
            let key = self.carve(worker, &part);
            self.mishaps.returned += part.end - part.start;
            if self.let_go(key, worker) {
                self.open_again(key);
            }
        }
        self.stand_in_line(worker);
        Ok(())
    }

    /// Removes a lost worker, and opens its pieces. Returns the tasks that are set aside; none if
    /// the tasks are not to `blame`.
    pub(crate) fn handle_lost(&mut self, worker: usize, blame: bool) -> Vec<SetAside> {
        let lost = &mut self.workers[worker];
        if !std::mem::take(&mut lost.joined) {
            return Vec::new();
        }
        self.present -= usize::from(!lost.kept_off);
        let (held, threads) = (lost.pieces.clone(), lost.threads as usize);
        let is_certain = held.len() == 1;
        let mut aside = Vec::new();
        for (at, key) in held.into_iter().enumerate() {
            let last = self.let_go(key, worker);
            let piece = &mut self.pieces[key];
            piece.deaths += u32::from(blame);
            if !last {
                continue;
            }
            if blame && is_certain && piece.count == 1 && piece.deaths >= self.deaths_max {
                aside.push(self.set_aside(key));
                continue;
            }
            let deaths = piece.deaths;
            self.mishaps.reissued += u64::from(piece.count);
            self.open_again(key);
            if blame && deaths >= SUSPECTED {
                self.split(key, u32::MAX);
            } else if blame && at < threads {
                // Workers begin the oldest piece first.
                self.split(key, PARTS);
            }
        }
        aside
    }

    /// Takes a sub-farmer's word that this many workers below it died of a task; `None` if it does
    /// not hold the task.
    pub(crate) fn handle_aside(
        &mut self,
        worker: usize,
        task: u64,
        deaths: u32,
    ) -> Result<Option<SetAside>, Malformed> {
        let tasks = task..task + 1;
        self.teller(worker, &tasks)?;
        let aside = (!self.held_of(worker, &tasks).is_empty()).then(|| {
            let key = self.carve(worker, &tasks);
            self.pieces[key].deaths = deaths;
            self.set_aside(key)
        });
        // The word is the sub-farmer's answer, even if another worker was quicker.
        self.workers[worker].owes = false;
        self.stand_in_line(worker);
        Ok(aside)
    }

    /// Notes whether the source has a task now, and whether it has ended.
    pub(crate) fn handle_source(&mut self, dry: bool, ended: bool) {
        self.dry = dry;
        self.ended = ended;
    }

    /// Whether the source has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Stops the assignments to a worker whose last one waits to be sent, until
    /// [`handle_sent`](Ledger::handle_sent).
    pub(crate) fn handle_stalled(&mut self, worker: usize) {
        self.workers[worker].stalled = true;
    }

    /// Allows assignments to the worker again: the waiting one was sent.
    pub(crate) fn handle_sent(&mut self, worker: usize) {
        self.workers[worker].stalled = false;
        self.stand_in_line(worker);
    }

    /// Sets the number of threads on which the worker computes.
    pub(crate) fn set_threads(&mut self, worker: usize, threads: u32) {
        self.workers[worker].threads = threads.max(1);
    }

    /// Sets the worker's share, and the mean time of its tasks.
    pub(crate) fn set_share(&mut self, worker: usize, share: Share, task_ns: Option<f64>) {
        let slot = &mut self.workers[worker];
        (slot.share, slot.task_ns) = (share, task_ns);
        self.stand_in_line(worker);
    }

    /// Returns the worker whose turn it is, while there may be tasks and a worker has room. The
    /// worker stays first in line until it gets a piece.
    pub(crate) fn poll_free(&mut self) -> Option<usize> {
        if !self.has_open() && (self.ended || self.dry) {
            return None;
        }
        if self.ended || self.dry || !self.suspects.is_empty() {
            // The last tasks, and the suspects, go to workers that hold nothing.
            match self.line.iter().position(|&at| self.workers[at].is_idle()) {
                Some(at) => self.line.swap(0, at),
                None if self.suspects.is_empty() => {}
                // If all workers got more, none would ever hold nothing.
                None => return None,
            }
        }
        while let Some(&worker) = self.line.front() {
            if self.workers[worker].has_room() {
                return Some(worker);
            }
            self.workers[worker].in_line = false;
            self.line.pop_front();
        }
        None
    }

    /// Returns the number of tasks that a new piece for this worker should have.
    pub(crate) fn grain(&self, worker: usize) -> u32 {
        self.workers[worker].share.grain.max(1)
    }

    /// Gives an open piece to the worker whose turn it is; returns its message. `None` if none is
    /// open.
    pub(crate) fn reissue(&mut self, now_ns: u64) -> Option<(u64, u32, &[u8])> {
        let key = self.suspects.pop_front().or_else(|| self.open.pop_front())?;
        let worker = self.next_in_line();
        self.pieces[key].rewrite();
        self.hold(worker, key, now_ns);
        let piece = &self.pieces[key];
        Some((piece.first, piece.count, &piece.message))
    }

    /// Returns a buffer for the next assignment.
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        self.free.last().map_or_else(Vec::new, |&key| std::mem::take(&mut self.pieces[key].message))
    }

    /// Assigns these new tasks, whose assignment is `message`, to the worker whose turn it is;
    /// returns the message. The tasks are the next ones, unless a farmer above numbers them.
    pub(crate) fn assign(
        &mut self,
        first: u64,
        count: u32,
        attempt: u32,
        message: Vec<u8>,
        now_ns: u64,
    ) -> &[u8] {
        let worker = self.next_in_line();
        let piece = Piece { first, count, attempt, message, ..Piece::default() };
        self.next = self.next.max(first + u64::from(count));
        self.unanswered += u64::from(count);
        let key = self.insert(piece);
        self.hold(worker, key, now_ns);
        &self.pieces[key].message
    }

    /// Numbers the next task, which needs no worker; returns its index.
    pub(crate) fn skip(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Gives about `count` tasks that no worker holds back to the farmer above; returns their
    /// ranges.
    pub(crate) fn give_up(&mut self, count: u64) -> Vec<(u64, u32)> {
        let (mut given, mut left) = (Vec::new(), count);
        while left > 0 {
            // The farmer above does not know of the deaths below this one.
            let blameless = |key: &Key| self.pieces[*key].deaths == 0;
            let Some(at) = self.open.iter().rposition(blameless) else { break };
            let key = self.open.remove(at).expect("it was found there");
            let piece = &self.pieces[key];
            given.push((piece.first, piece.count));
            left = left.saturating_sub(piece.count.into());
            self.unanswered -= u64::from(piece.count);
            self.remove(key);
        }
        given
    }

    /// Whether a worker has no task.
    pub(crate) fn any_idle(&self) -> bool {
        self.workers.iter().any(Worker::is_idle)
    }

    /// Returns the number of tasks assigned so far; these have the lowest indices.
    pub(crate) fn assigned(&self) -> u64 {
        self.next
    }

    /// Returns the number of tasks that were assigned and neither accepted nor set aside.
    pub(crate) fn unanswered(&self) -> u64 {
        self.unanswered
    }

    /// Returns the longest time from an assignment to an answer for it, so far.
    pub(crate) fn longest_ns(&self) -> u64 {
        self.longest_ns
    }

    /// Whether no worker holds a task.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.workers.iter().all(|worker| !worker.joined || worker.pieces.is_empty())
    }

    /// Returns the number of tasks that a worker holds.
    pub(crate) fn held(&self, worker: usize) -> u64 {
        self.workers[worker].tasks
    }

    /// Whether a worker holds this task.
    pub(crate) fn holds(&self, worker: usize, task: u64) -> bool {
        self.workers[worker].pieces.iter().any(|&key| self.pieces[key].tasks().contains(&task))
    }

    /// Whether a worker holds all of these tasks.
    pub(crate) fn holds_all(&self, worker: usize, first: u64, count: u32) -> bool {
        let held = self.held_of(worker, &(first..first + u64::from(count)));
        held.iter().map(|part| part.end - part.start).sum::<u64>() == u64::from(count)
    }

    /// Whether a worker gets no task of this run.
    pub(crate) fn is_kept_off(&self, worker: usize) -> bool {
        self.workers[worker].kept_off
    }

    /// Returns the number of workers that have joined, are not lost, and get tasks.
    pub(crate) fn present(&self) -> usize {
        self.present
    }

    pub(crate) fn mishaps(&self) -> Mishaps {
        self.mishaps
    }

    /// Whether nothing is left to assign and every task was accepted or set aside.
    pub(crate) fn is_done(&self) -> bool {
        self.ended && self.unanswered == 0
    }

    fn has_open(&self) -> bool {
        !self.open.is_empty() || !self.suspects.is_empty()
    }

    /// Returns the worker, if it may send a word about these tasks.
    #[inline]
    fn teller(&mut self, worker: usize, tasks: &Range<u64>) -> Result<&mut Worker, Malformed> {
        let teller = self.workers.get_mut(worker).filter(|worker| worker.joined);
        teller.filter(|_| tasks.end <= self.next).ok_or(Malformed)
    }

    /// Accepts the first `count` tasks of a piece.
    #[inline]
    fn accept_front(&mut self, key: Key, count: u32) {
        let piece = &mut self.pieces[key];
        self.unanswered -= u64::from(count);
        if piece.count == count {
            self.remove(key);
            return;
        }
        piece.first += u64::from(count);
        piece.skip += count;
        piece.count -= count;
        for holder in piece.holders.into_iter().flatten() {
            self.workers[holder as usize].tasks -= u64::from(count);
        }
    }

    /// Accepts those of these tasks that the worker holds.
    fn accept(&mut self, worker: usize, tasks: &Range<u64>) -> Accepted {
        let mut left = tasks.clone();
        // Workers answer in the order in which they got their pieces.
        while let Some(&key) = self.workers[worker].pieces.front() {
            if left.is_empty() || self.pieces[key].first != left.start {
                break;
            }
            let there = left.end - left.start;
            let count = self.pieces[key].count.min(u32::try_from(there).unwrap_or(u32::MAX));
            self.accept_front(key, count);
            left.start += u64::from(count);
        }
        if left.is_empty() {
            return Accepted::All;
        }
        let mut parts = self.held_of(worker, &left);
        let mut dropped = left.end - left.start;
        for part in &parts {
            let key = self.carve(worker, part);
            self.accept_front(key, self.pieces[key].count);
            // A sub-farmer may have a task twice, if its farmer has given it out again.
            dropped = dropped.saturating_sub(part.end - part.start);
        }
        self.mishaps.dropped += dropped;
        if dropped == 0 {
            return Accepted::All;
        }
        if left.start > tasks.start {
            parts.insert(0, tasks.start..left.start);
        }
        Accepted::Some(parts)
    }

    fn next_in_line(&mut self) -> usize {
        let worker = self.line.pop_front().expect("poll_free named a worker");
        self.workers[worker].in_line = false;
        worker
    }

    fn stand_in_line(&mut self, worker: usize) {
        let slot = &mut self.workers[worker];
        if slot.has_room() && !slot.in_line {
            slot.in_line = true;
            self.line.push_back(worker);
        }
    }
}

mod balance;
mod holds;
mod piece;
#[cfg(test)]
mod tests;
mod worker;
