//! The calls under way, and which of them may move.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use chunkcomm::host::Instant;
use chunkcomm::layer::Wait;

use super::inbox::Inbox;
use super::numbered::Numbered;
use super::shared::{Run, RunWaker, Shared, Submitted};

/// Wakers of earlier calls that are kept for the next ones.
const WAKER_COUNT_MAX: usize = 16;

/// A call under way.
pub(super) struct Active {
    pub(super) statement: Vec<u8>,
    pub(super) run: Box<dyn Run>,
    pub(super) waker: Arc<RunWaker>,
    pub(super) since: Instant,
    /// A link failed one of its transfers; the run is not polled any more.
    pub(super) is_lost: bool,
    /// Whether its run may have said something.
    has_begun: bool,
    /// Whether its number stands among those to be polled.
    is_ready: bool,
    /// The rank that its run waits for, while no word of that rank is there.
    pub(super) wants: Option<usize>,
    /// Ranks that have ended the call long ago, and have said all of it before.
    pub(super) over: Vec<usize>,
    /// The rank that was asked last.
    pub(super) asked: Option<usize>,
    pub(super) reported: bool,
    /// Keeps the wait in the node's report.
    pub(super) wait: Option<Wait>,
}

impl Active {
    /// Puts the call among those that may move, if it has begun.
    fn wake(&mut self, number: u64, ready: &mut VecDeque<u64>) {
        if self.has_begun && !mem::replace(&mut self.is_ready, true) {
            ready.push_back(number);
        }
    }

    /// Returns the rank that the call waits for: at first one that takes no more words.
    pub(super) fn waits_for(&self, full_to: Option<usize>) -> Option<usize> {
        if self.has_begun { self.run.waits_for() } else { full_to }
    }
}

/// The calls under way. A call is polled when it begins, when a word came for it and when its run was woken:
/// an event costs the same however many calls wait.
pub(super) struct Calls {
    active: Numbered<Active>,
    /// Calls that have not begun, in their order.
    fresh: VecDeque<u64>,
    /// Calls that have begun and may move.
    ready: VecDeque<u64>,
    /// Number of calls whose runs want a rank, for each rank.
    wanted: Vec<usize>,
    wakers: Vec<Arc<RunWaker>>,
}

impl Calls {
    /// Makes those of a group of this size: none.
    pub(super) fn new(size: usize) -> Calls {
        Calls {
            active: Numbered::default(),
            fresh: VecDeque::new(),
            ready: VecDeque::new(),
            wanted: vec![0; size],
            wakers: Vec::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    /// Whether a call has not begun.
    pub(super) fn has_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// Whether a run has said a part of what it says now.
    pub(super) fn are_saying(&self) -> bool {
        self.active.iter().any(|(_, active)| active.run.is_saying())
    }

    /// Whether a call waits for a rank, of which no word is there.
    pub(super) fn want(&self, rank: usize) -> bool {
        self.wanted[rank] > 0
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Active> {
        self.active.get_mut(number)
    }

    /// Returns the calls behind this number, in their order.
    pub(super) fn behind(&mut self, number: u64) -> impl Iterator<Item = (u64, &mut Active)> {
        self.active.behind(number)
    }

    /// Returns a rank's statement of a call.
    pub(super) fn statement(&self, number: u64) -> Option<&[u8]> {
        self.active.get(number).map(|active| &active.statement[..])
    }

    /// Takes a call in.
    pub(super) fn add(&mut self, submitted: Submitted, shared: &Arc<Shared>) {
        let Submitted { number, statement, run } = submitted;
        let waker = self.wakers.pop().unwrap_or_else(|| RunWaker::new(shared));
        waker.serve(number);
        let active = Active {
            statement,
            run,
            waker,
            since: Instant::now(),
            is_lost: false,
            has_begun: false,
            is_ready: false,
            wants: None,
            over: Vec::new(),
            asked: None,
            reported: false,
            wait: None,
        };
        self.active.insert(number, active);
        self.fresh.push_back(number);
    }

    /// Notes what a call waits for.
    pub(super) fn look_at(&mut self, number: u64, inbox: &Inbox) {
        let Some(active) = self.active.get_mut(number) else { return };
        let waits_for = active.run.waits_for();
        let wants = waits_for.filter(|rank| !inbox.has(number, *rank));
        let before = mem::replace(&mut active.wants, wants);
        self.count(before, wants);
    }

    /// Notes that a word of a rank has come.
    pub(super) fn hear(&mut self, number: u64, from: usize) {
        let Some(active) = self.active.get_mut(number) else { return };
        if active.wants.take_if(|rank| *rank == from).is_some() {
            self.wanted[from] -= 1;
        }
        active.wake(number, &mut self.ready);
    }

    fn count(&mut self, before: Option<usize>, now: Option<usize>) {
        if let Some(rank) = before {
            self.wanted[rank] -= 1;
        }
        if let Some(rank) = now {
            self.wanted[rank] += 1;
        }
    }

    /// Lets a call go on, if it has begun.
    pub(super) fn wake(&mut self, number: u64) {
        if let Some(active) = self.active.get_mut(number) {
            active.wake(number, &mut self.ready);
        }
    }

    /// Lets all calls go on, also those that have not begun.
    pub(super) fn wake_all(&mut self) {
        self.fresh.clear();
        self.ready.clear();
        for (number, active) in self.active.behind(0) {
            (active.has_begun, active.is_ready) = (true, true);
            self.ready.push_back(number);
        }
    }

    /// Returns the next call that may move; one that has not begun where that `may_begin`.
    pub(super) fn next_ready(&mut self, may_begin: impl FnOnce() -> bool) -> Option<u64> {
        while let Some(number) = self.ready.pop_front() {
            // It may be over.
            if let Some(active) = self.active.get_mut(number) {
                active.is_ready = false;
                return Some(number);
            }
        }
        if self.fresh.is_empty() || !may_begin() {
            return None;
        }
        let number = self.fresh.pop_front()?;
        self.active.get_mut(number)?.has_begun = true;
        Some(number)
    }

    /// Parts with a call.
    pub(super) fn remove(&mut self, number: u64) -> Option<Active> {
        let mut active = self.active.remove(number)?;
        self.count(active.wants.take(), None);
        if self.wakers.len() < WAKER_COUNT_MAX {
            self.wakers.push(Arc::clone(&active.waker));
        }
        Some(active)
    }

    /// Parts with all calls.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = (u64, Active)> + use<> {
        self.active.take_all()
    }
}
