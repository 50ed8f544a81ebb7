//! Debts of layers: messages that they still have to stage when their node closes.
//!
//! ```text
//!   a task that may owe something     Node::close
//!   Owed::standing
//!        │     ◀──────────────────── it is due: the tasks are woken
//!   stages the rest
//!   Owed::said ──────────────────▶ none of them is left, or the deadline: the links close
//! ```

use super::Node;
use crate::driver::wakers::{Wakers, locked};
use crate::proto::sorted::SortedMap;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Time in which a task is to hear that its node closes: 100 ms. Tasks that are polled hear it at once, and on a busy
/// machine within some milliseconds.
pub(super) const HEARD_WITHIN: Duration = Duration::from_millis(100);

/// Holds up the end of the node's links until all is [said](Owed::said), or this is dropped. So messages of a
/// layer are staged before [`Node::close`] ends the links.
///
/// | a layer owes | it takes |
/// |---|---|
/// | a message that waits for room | [`Owed::begin`], until the message is staged |
/// | what a standing task finds at its next poll | [`Owed::standing`] and [`Owed::during`] |
/// | what a standing task says in several steps | [`Owed::standing`], [`Owed::poll_due`], [`Owed::said`] |
///
/// The node waits only for those that began before its `close`, within the deadline. The error of `close`
/// names the rest. Until then channels can be opened. A task that has not heard within 100 ms that
/// its debt is due owes nothing: nobody polls it, or it computes.
pub struct Owed {
    debts: Arc<Debts>,
    /// 0 once all is said.
    number: u64,
    /// The waker that is told when this is due.
    waker: Option<Waker>,
}

impl fmt::Debug for Owed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owed").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Owed {
    /// Begins a debt: `what` is to be staged.
    #[must_use = "it counts as said when it is dropped"]
    pub fn begin(node: &Node, what: String) -> Owed {
        node.debts().add(what, true)
    }

    /// Begins what may be a debt when the node closes. It counts as one once its task has heard that it is
    /// due: a task that does not run owes nothing.
    #[must_use = "it counts as said when it is dropped"]
    pub fn standing(node: &Node, what: String) -> Owed {
        node.debts().add(what, false)
    }

    /// Whether the node closes, and not all is said.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.number != 0 && self.debts.are_due.load(Ordering::Acquire)
    }

    /// Waits until the node closes; for ever once all is said. Costs no lock from the second poll on.
    pub fn poll_due(&mut self, context: &Context<'_>) -> Poll<()> {
        if self.number == 0 {
            return Poll::Pending;
        }
        let is_known = self.waker.as_ref().is_some_and(|it| it.will_wake(context.waker()));
        if is_known && !self.is_due() {
            return Poll::Pending;
        }
        let polled = self.debts.poll_due(self.number, context.waker());
        self.waker = polled.is_pending().then(|| context.waker().clone());
        polled
    }

    /// As [`Owed::poll_due`].
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn due(&mut self) {
        poll_fn(|context| self.poll_due(context)).await;
    }

    /// Runs `future`, in which the task waits for something else, and hears meanwhile that this is due: then
    /// the node waits for the task.
    ///
    /// # Cancel safety
    ///
    /// That of `future`.
    pub async fn beside<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|context| {
            let polled = future.as_mut().poll(context);
            if polled.is_pending() {
                let _ = self.poll_due(context);
            }
            polled
        })
        .await
    }

    /// Notes that all is staged.
    pub fn said(&mut self) {
        let number = std::mem::take(&mut self.number);
        if number != 0 {
            self.debts.said(number);
        }
    }

    /// Runs `future`, a task that stages what it owes in the poll in which it comes to owe it. When the
    /// node closes, the task is polled once more; all is said once it waits while `is_said`. That is to be
    /// false while another thread has given it something to say.
    ///
    /// # Cancel safety
    ///
    /// That of `future`.
    pub async fn during<F: Future>(mut self, future: F, is_said: impl Fn() -> bool) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|context| {
            let polled = future.as_mut().poll(context);
            if polled.is_pending() && self.poll_due(context).is_ready() && is_said() {
                self.said();
            }
            polled
        })
        .await
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        self.said();
    }
}

/// The debts of a node.
#[derive(Default)]
pub(crate) struct Debts {
    state: Mutex<State>,
    /// Whether the node closes; set under the lock.
    are_due: AtomicBool,
}

#[derive(Default)]
struct State {
    last: u64,
    /// The last debt for which the node waits, once it closes.
    until: u64,
    /// Whether debts that do not count yet had their time to.
    are_heard: bool,
    owed: SortedMap<u64, Debt>,
    /// Tasks that wait until all is said.
    waiting: Wakers,
}

struct Debt {
    what: String,
    /// Whether something is owed for sure.
    counts: bool,
    waker: Option<Waker>,
}

impl State {
    /// Returns the debts for which the node waits.
    fn due(&self) -> impl Iterator<Item = &Debt> {
        let due = self.owed.iter().take_while(|(number, _)| **number <= self.until);
        due.map(|(_, debt)| debt)
    }

    fn are_all_said(&self) -> bool {
        self.due().all(|debt| self.are_heard && !debt.counts)
    }
}

impl Debts {
    fn add(self: &Arc<Self>, what: String, counts: bool) -> Owed {
        let mut state = locked(&self.state);
        state.last += 1;
        let number = state.last;
        state.owed.insert(number, Debt { what, counts, waker: None });
        Owed { debts: Arc::clone(self), number, waker: None }
    }

    fn poll_due(&self, number: u64, waker: &Waker) -> Poll<()> {
        let mut state = locked(&self.state);
        let debt = state.owed.get_mut(&number).expect("a debt is there until it is said");
        if self.are_due.load(Ordering::Relaxed) {
            debt.counts = true;
            return Poll::Ready(());
        }
        debt.waker = Some(waker.clone());
        Poll::Pending
    }

    fn said(&self, number: u64) {
        let mut state = locked(&self.state);
        state.owed.remove(&number);
        let all_said = state.are_all_said();
        let waiting = if all_said { state.waiting.take() } else { Wakers::default() };
        drop(state);
        waiting.wake();
    }

    /// Tells the tasks that their debts are due: those that have begun by the first call of this.
    pub(super) fn set_due(&self) {
        let mut state = locked(&self.state);
        if self.are_due.swap(true, Ordering::Release) {
            return;
        }
        state.until = state.last;
        let wakers: Vec<_> = state.owed.values_mut().filter_map(|it| it.waker.take()).collect();
        drop(state);
        for waker in wakers {
            waker.wake();
        }
    }

    /// Whether no debt is left that was due.
    pub(super) fn are_said(&self) -> bool {
        locked(&self.state).are_all_said()
    }

    /// Waits no longer for tasks that have not heard that their debts are due.
    pub(super) fn set_heard(&self) {
        let mut state = locked(&self.state);
        state.are_heard = true;
        let waiting = if state.are_all_said() { state.waiting.take() } else { Wakers::default() };
        drop(state);
        waiting.wake();
    }

    /// Waits until no debt is left that was due.
    pub(super) async fn all_said(&self) {
        poll_fn(|context| {
            let mut state = locked(&self.state);
            if state.are_all_said() {
                return Poll::Ready(());
            }
            state.waiting.add(context.waker());
            Poll::Pending
        })
        .await;
    }

    /// Returns what is owed, of the debts that were due.
    pub(super) fn left(&self) -> Vec<String> {
        let state = locked(&self.state);
        state.due().filter(|debt| debt.counts).map(|debt| debt.what.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll_said(debts: &Debts) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        pin!(debts.all_said()).poll(&mut context).is_ready()
    }

    #[test]
    fn a_node_waits_for_the_debts_that_began_before_it_closed() {
        let debts = Arc::new(Debts::default());
        let (message, mut task) = (debts.add("one".into(), true), debts.add("two".into(), false));
        let context = Context::from_waker(Waker::noop());
        assert!(task.poll_due(&context).is_pending() && !task.is_due());
        debts.set_due();
        let _later = debts.add("three".into(), true);
        assert!(!debts.are_said() && !poll_said(&debts));
        assert_eq!(debts.left(), ["one"], "a task that has not run owes nothing");
        assert!(task.is_due() && task.poll_due(&context).is_ready());
        assert_eq!(debts.left(), ["one", "two"]);
        drop(message);
        assert!(!poll_said(&debts));
        debts.set_heard();
        assert!(!poll_said(&debts), "the task has heard, and does not wait");
        task.said();
        assert!(poll_said(&debts) && debts.left().is_empty());
        assert!(!task.is_due() && task.poll_due(&context).is_pending());
        // A second close waits for the same ones.
        debts.set_due();
        assert!(debts.are_said());
    }

    #[test]
    fn a_node_waits_shortly_for_a_task_that_nobody_polls() {
        let debts = Arc::new(Debts::default());
        let mut unpolled = debts.add("unpolled".into(), false);
        let mut elsewhere = debts.add("waits for something else".into(), false);
        let mut context = Context::from_waker(Waker::noop());
        {
            let mut waiting = pin!(elsewhere.beside(std::future::pending::<()>()));
            assert!(waiting.as_mut().poll(&mut context).is_pending());
            debts.set_due();
            assert!(waiting.as_mut().poll(&mut context).is_pending());
        }
        assert!(!poll_said(&debts));
        debts.set_heard();
        assert!(!poll_said(&debts));
        assert_eq!(debts.left(), ["waits for something else"]);
        elsewhere.said();
        assert!(poll_said(&debts));
        // It is polled after all: it has its time again.
        assert!(unpolled.poll_due(&context).is_ready());
        assert!(!poll_said(&debts));
    }

    #[test]
    fn a_task_that_waits_when_the_node_closes_has_said_all() {
        let debts = Arc::new(Debts::default());
        let mut polls = 0;
        let task = poll_fn(|_| {
            polls += 1;
            if polls < 4 { Poll::Pending } else { Poll::Ready(polls) }
        });
        let mut task = Box::pin(debts.add("its words".into(), false).during(task, || true));
        let mut context = Context::from_waker(Waker::noop());
        assert!(task.as_mut().poll(&mut context).is_pending());
        debts.set_due();
        assert!(!debts.are_said());
        assert!(task.as_mut().poll(&mut context).is_pending());
        assert!(debts.are_said());
        assert!(task.as_mut().poll(&mut context).is_pending());
        assert_eq!(task.as_mut().poll(&mut context), Poll::Ready(4));
    }
}
