//! Tasks of async functions that were begun, and the threads that go on with them.
//!
//! ```text
//!              reserve            put_back            wake
//!   not begun ─────────▶ polled ────────────▶ waits ─────────▶ woken ──▶ next_woken: polled
//!                          │  ▲─ woken while it was polled: woken at once
//!                          ▼
//!                        ended
//! ```
//!
//! The tasks belong to the worker, not to a thread. Any thread goes on with a woken task, so that
//! all threads are evenly busy.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use chunkcomm::host::Instant;
use chunkcomm_cluster::registry::Started;

use super::Shared;
use crate::context::TaskContext;
use crate::proto::wire::TaskTimeout;

/// Place of a begun task: its slot, and the number of tasks that had the slot before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    slot: usize,
    turn: u64,
}

/// A task that was begun.
pub(super) struct Begun {
    pub(super) key: Key,
    pub(super) context: TaskContext,
    pub(super) started: Instant,
    pub(super) call: Started,
    pub(super) waker: Waker,
}

enum State {
    Free,
    /// A thread polls the task.
    Polled {
        /// Context of the task, if the time of tasks is limited.
        context: Option<TaskContext>,
        is_woken: bool,
    },
    Waits(Begun),
    Woken(Begun),
}

struct Slot {
    turn: u64,
    state: State,
}

/// Begun tasks of a worker.
#[derive(Default)]
pub(super) struct Waits {
    slots: Vec<Slot>,
    free: Vec<usize>,
    woken: VecDeque<Key>,
    begun: u32,
}

impl Waits {
    /// Returns the number of tasks that were begun and have not ended.
    pub(super) fn begun(&self) -> u32 {
        self.begun
    }

    /// Takes a place for a task that is about to begin.
    pub(super) fn reserve(&mut self) -> Key {
        let slot = self.free.pop().unwrap_or(self.slots.len());
        let state = State::Polled { context: None, is_woken: false };
        match self.slots.get_mut(slot) {
            Some(free) => free.state = state,
            None => self.slots.push(Slot { turn: 0, state }),
        }
        self.begun += 1;
        Key { slot, turn: self.slots[slot].turn }
    }

    /// Notes the context of a task that is polled.
    pub(super) fn note(&mut self, key: Key, polled: TaskContext) {
        if let Some(Slot { state: State::Polled { context, .. }, .. }) = self.slot(key) {
            *context = Some(polled);
        }
    }

    /// Keeps a task that waits; returns the task if nobody wants its result.
    pub(super) fn put_back(&mut self, task: Begun) -> Option<Begun> {
        let key = task.key;
        let Some(slot) = self.slot(key) else { return Some(task) };
        if matches!(slot.state, State::Polled { is_woken: true, .. }) {
            slot.state = State::Woken(task);
            self.woken.push_back(key);
        } else {
            slot.state = State::Waits(task);
        }
        None
    }

    /// Notes that a task has ended; returns `false` if nobody wants its result.
    pub(super) fn end(&mut self, key: Key) -> bool {
        let is_wanted = self.slot(key).is_some();
        if is_wanted {
            self.remove(key.slot);
        }
        is_wanted
    }

    /// Notes that a task can go on; returns whether a thread must go on with it.
    pub(super) fn wake(&mut self, key: Key) -> bool {
        let Some(slot) = self.slot(key) else { return false };
        match std::mem::replace(&mut slot.state, State::Free) {
            State::Waits(task) => {
                slot.state = State::Woken(task);
                self.woken.push_back(key);
                true
            }
            State::Polled { context, .. } => {
                slot.state = State::Polled { context, is_woken: true };
                false
            }
            other => {
                slot.state = other;
                false
            }
        }
    }

    /// Whether a task was woken while it was polled; it is then polled again.
    pub(super) fn go_on(&mut self, key: Key) -> bool {
        match self.slot(key) {
            Some(Slot { state: State::Polled { is_woken, .. }, .. }) => std::mem::take(is_woken),
            _ => false,
        }
    }

    /// Takes the task that was woken first.
    pub(super) fn next_woken(&mut self, is_limited: bool) -> Option<Begun> {
        while let Some(key) = self.woken.pop_front() {
            let Some(slot) = self.slot(key) else { continue };
            let polled = State::Polled { context: None, is_woken: false };
            if let State::Woken(task) = std::mem::replace(&mut slot.state, polled) {
                if is_limited {
                    self.note(key, task.context.clone());
                }
                return Some(task);
            }
            unreachable!("a key in this line is of a task that was woken, or of none");
        }
        None
    }

    /// Removes all tasks; returns those that no thread polls.
    pub(super) fn clear(&mut self) -> Vec<Begun> {
        self.woken.clear();
        (0..self.slots.len()).filter_map(|slot| self.remove(slot)).collect()
    }

    /// Forgets the task of this run and index, whose thread was given up.
    pub(super) fn give_up(&mut self, run: u32, index: u64) {
        let is_it = |slot: &Slot| match &slot.state {
            State::Polled { context: Some(context), .. } => {
                (context.run(), context.index()) == (run, index)
            }
            _ => false,
        };
        if let Some(slot) = self.slots.iter().position(is_it) {
            self.remove(slot);
        }
    }

    /// Asks tasks to end whose time is over. Returns those whose grace is over too, except those
    /// that a thread polls. Also returns whether a task was woken.
    pub(super) fn look(&mut self, now_ns: u64, limit: TaskTimeout) -> (Vec<Begun>, bool) {
        let (mut over, mut any_woken) = (Vec::new(), false);
        for at in 0..self.slots.len() {
            let Slot { turn, ref state } = self.slots[at];
            let (State::Polled { context: Some(context), .. }
            | State::Waits(Begun { context, .. })
            | State::Woken(Begun { context, .. })) = state
            else {
                continue;
            };
            let time = Duration::from_nanos(now_ns.saturating_sub(context.begun_ns()));
            let is_polled = matches!(state, State::Polled { .. });
            if time < limit.timeout {
                continue;
            }
            if context.cancel() {
                any_woken |= self.wake(Key { slot: at, turn });
            } else if time >= limit.after() && !is_polled {
                over.extend(self.remove(at));
            }
        }
        (over, any_woken)
    }

    fn slot(&mut self, key: Key) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(key.slot)?;
        (slot.turn == key.turn && !matches!(slot.state, State::Free)).then_some(slot)
    }

    fn remove(&mut self, at: usize) -> Option<Begun> {
        let slot = &mut self.slots[at];
        let state = std::mem::replace(&mut slot.state, State::Free);
        if matches!(state, State::Free) {
            return None;
        }
        // A task's wakers may outlive it.
        slot.turn += 1;
        self.free.push(at);
        self.begun -= 1;
        match state {
            State::Waits(task) | State::Woken(task) => Some(task),
            State::Polled { .. } | State::Free => None,
        }
    }
}

/// Waker of a task.
pub(super) struct Alarm {
    pub(super) shared: Arc<Shared>,
    pub(super) key: Key,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut queue = self.shared.queue();
        let is_due = queue.waits.wake(self.key);
        drop(queue);
        if is_due {
            self.shared.wake_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Common;
    use crate::pieces::Piece;
    use chunkcomm_cluster::Registry;

    fn begun(waits: &mut Waits, index: u64, now_ns: u64) -> Begun {
        let mut registry = Registry::new();
        registry.register_async("pending", |(): ()| std::future::pending::<()>());
        let key = waits.reserve();
        let tasks = Piece { first: index, count: 1, ..Piece::default() };
        let context = TaskContext::begin(&Arc::<Common>::default(), &tasks, now_ns);
        let call = registry.lookup("pending").unwrap().start(&[]).unwrap();
        waits.note(key, context.clone());
        Begun { key, context, started: Instant::now(), call, waker: Waker::noop().clone() }
    }

    #[test]
    fn a_task_that_is_woken_while_it_is_polled_is_polled_again() {
        let mut waits = Waits::default();
        let task = begun(&mut waits, 0, 0);
        let key = task.key;
        assert!(waits.next_woken(false).is_none());
        assert!(!waits.wake(key), "a thread is at it");
        assert!(waits.put_back(task).is_none());
        let task = waits.next_woken(false).unwrap();
        assert!(waits.put_back(task).is_none());
        assert!(waits.next_woken(false).is_none(), "it was woken once");
        assert!(waits.wake(key) && !waits.wake(key));
        assert!(waits.next_woken(true).is_some() && waits.next_woken(true).is_none());
        assert!(waits.end(key) && !waits.end(key));
        assert_eq!(waits.begun(), 0);
    }

    #[test]
    fn an_old_waker_does_not_wake_the_next_task_of_its_slot() {
        let mut waits = Waits::default();
        let first = begun(&mut waits, 0, 0);
        let old = first.key;
        assert!(waits.put_back(first).is_none() && waits.wake(old));
        assert_eq!(waits.clear().len(), 1);
        let second = begun(&mut waits, 1, 0);
        assert_eq!(second.key.slot, old.slot);
        let key = second.key;
        assert!(waits.put_back(second).is_none());
        assert!(!waits.wake(old) && waits.next_woken(false).is_none());
        assert!(waits.wake(key) && waits.next_woken(false).is_some());
    }

    #[test]
    fn a_task_of_an_ended_run_is_not_put_back() {
        let mut waits = Waits::default();
        let (polled, other) = (begun(&mut waits, 0, 0), begun(&mut waits, 1, 0));
        assert!(waits.put_back(other).is_none());
        assert_eq!((waits.clear().len(), waits.begun()), (1, 0));
        let key = polled.key;
        assert!(waits.put_back(polled).is_some() && !waits.end(key));
    }

    #[test]
    fn tasks_are_asked_to_end_and_then_dropped() {
        let limit =
            TaskTimeout { timeout: Duration::from_nanos(10), grace: Duration::from_nanos(5) };
        let mut waits = Waits::default();
        let (waiting, polled) = (begun(&mut waits, 0, 100), begun(&mut waits, 1, 100));
        let contexts = [waiting.context.clone(), polled.context.clone()];
        let asked = || contexts.each_ref().map(TaskContext::is_cancelled);
        assert!(waits.put_back(waiting).is_none());
        assert!(!waits.look(109, limit).1 && asked() == [false; 2]);
        assert!(waits.look(110, limit).1 && asked() == [true; 2]);
        assert!(!waits.look(114, limit).1, "once");
        let (over, _) = waits.look(115, limit);
        assert_eq!(over.iter().map(|it| it.context.index()).collect::<Vec<_>>(), [0]);
        [(1, 1), (0, 0)].into_iter().for_each(|(run, index)| waits.give_up(run, index));
        assert_eq!(waits.begun(), 1);
        waits.give_up(0, 1);
        assert_eq!((waits.begun(), waits.put_back(polled).is_some()), (0, true));
        // A look that comes too late asks first.
        let waiting = begun(&mut waits, 2, 200);
        assert!(waits.put_back(waiting).is_none());
        let (over, any_woken) = waits.look(999, limit);
        assert!(over.is_empty() && any_woken);
        assert_eq!(waits.look(999, limit).0.len(), 1);
    }
}
