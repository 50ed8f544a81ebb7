//! The state that a group, its calls and its standing task share.

use std::any::Any;
use std::collections::{BTreeSet, VecDeque};
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;

use super::io::Io;
use crate::error::group::GroupError;

/// One rank's part in one call.
pub(crate) trait Run: Any + Send {
    /// Goes on as far as it can; ready when this rank's part is done.
    fn poll(&mut self, io: &mut Io<'_, '_>) -> Poll<Result<(), GroupError>>;

    /// Returns the rank that it waits for.
    fn waits_for(&self) -> Option<usize>;

    /// Ends it for this cause, where `poll` will not be called any more: ready when the caller's data are
    /// back.
    fn stop(&mut self, _cause: &GroupError, _io: &mut Io<'_, '_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// Whether a later call of the kind may use its memory.
    fn is_reusable(&self) -> bool {
        true
    }

    fn as_any(&mut self) -> &mut dyn Any;
}

/// A call that the standing task is to run.
pub(crate) struct Submitted {
    pub(crate) number: u64,
    /// The rank's statement, encoded.
    pub(crate) statement: Vec<u8>,
    pub(crate) run: Box<dyn Run>,
}

/// A call that is over.
pub(crate) struct Finished {
    pub(crate) run: Box<dyn Run>,
    pub(crate) cause: Option<GroupError>,
}

/// The caller's side of a call.
struct Ticket {
    number: u64,
    waker: Option<Waker>,
    finished: Option<Finished>,
}

/// One call as the standing task last saw it.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) number: u64,
    pub(crate) statement: Vec<u8>,
    pub(crate) waits_for: Option<usize>,
}

/// Time after which a wait for a rank is reported by default: 10 s.
const REPORT_AFTER: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(crate) struct State {
    /// Number of the last call that was made.
    pub(crate) made: u64,
    /// Calls that are not over. A collective that flows is over when it has given its ends.
    under_way: BTreeSet<u64>,
    /// First call that did not succeed.
    failed: Option<u64>,
    submitted: VecDeque<Submitted>,
    tickets: Vec<Ticket>,
    /// Runs and statements of earlier calls, whose memory the next ones take.
    spare: Vec<Box<dyn Run>>,
    spare_statements: Vec<Vec<u8>>,
    pub(crate) broken: Option<GroupError>,
    /// The group is dropped: no call follows.
    pub(crate) closed: bool,
    /// No call goes on any more: those that are under way end now.
    pub(crate) shrinking: bool,
    /// The standing task is gone: nobody runs a call.
    pub(crate) is_over: bool,
    waker: Option<Waker>,
    pub(crate) lines: Vec<Line>,
    /// Time after which a wait for a rank is reported, if it was set.
    pub(crate) reports_after: Option<Duration>,
}

/// Most runs and statements of earlier calls that are kept.
const SPARE_COUNT_MAX: usize = 8;

/// State of a group under its lock.
#[derive(Default)]
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Wakes those who wait for the group to break.
    broke: Notify,
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes the standing task.
    pub(crate) fn tell<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state();
        let told = change(&mut state);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        told
    }

    /// Notes that the group is broken.
    pub(crate) fn break_by(&self, cause: GroupError) {
        self.state().broken = Some(cause);
        self.broke.notify_waiters();
    }

    /// Notes that nobody runs calls any more; returns those that did not begin.
    pub(crate) fn end(&self) -> VecDeque<Submitted> {
        let mut state = self.state();
        state.is_over = true;
        self.broke.notify_waiters();
        mem::take(&mut state.submitted)
    }

    /// Waits until the group is broken.
    pub(crate) async fn broken(&self) -> GroupError {
        loop {
            let broke = self.broke.notified();
            if let Some(cause) = self.why_broken() {
                return cause;
            }
            broke.await;
        }
    }

    fn why_broken(&self) -> Option<GroupError> {
        let state = self.state();
        let over = state.is_over.then_some(GroupError::Closed);
        state.broken.clone().or(over)
    }

    /// Ends the call with this number, unless its caller has its end.
    pub(crate) fn finish(&self, number: u64, mut finished: Finished, statement: Vec<u8>) {
        let mut state = self.state();
        if state.shrinking && finished.cause.is_none() {
            // The others have been told that it did not succeed here.
            finished.cause = Some(GroupError::Closed);
        }
        if state.under_way.remove(&number) && finished.cause.is_some() {
            state.fails(number);
        }
        state.keep_statement(statement);
        state.lines.retain(|line| line.number != number);
        match state.tickets.iter_mut().find(|ticket| ticket.number == number) {
            // A collective that flows has given its ends before it is over.
            Some(ticket) if ticket.finished.is_some() => {}
            Some(ticket) => {
                ticket.finished = Some(finished);
                let waker = ticket.waker.take();
                drop(state);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            // Its caller has dropped it.
            None => state.keep(finished.run),
        }
    }

    /// Returns the end of a call, or registers the waker of its caller.
    pub(crate) fn poll_finished(&self, number: u64, waker: &Waker) -> Poll<Finished> {
        let mut state = self.state();
        let at = state.tickets.iter().position(|ticket| ticket.number == number);
        let at = at.expect("a call ends once");
        match state.tickets[at].finished.take() {
            Some(finished) => {
                state.tickets.swap_remove(at);
                Poll::Ready(finished)
            }
            None => {
                let ticket = &mut state.tickets[at];
                if !ticket.waker.as_ref().is_some_and(|it| it.will_wake(waker)) {
                    ticket.waker = Some(waker.clone());
                }
                Poll::Pending
            }
        }
    }

    /// Lets a call go on without its caller.
    pub(crate) fn forget(&self, number: u64) {
        let mut state = self.state();
        if let Some(at) = state.tickets.iter().position(|ticket| ticket.number == number) {
            let ticket = state.tickets.swap_remove(at);
            if let Some(finished) = ticket.finished {
                state.keep(finished.run);
            }
        }
    }
}

impl State {
    /// Returns the time after which a wait for a rank is reported.
    pub(crate) fn report_after(&self) -> Duration {
        self.reports_after.unwrap_or(REPORT_AFTER)
    }

    /// Returns the last call up to which all succeeded here.
    pub(crate) fn succeeded(&self) -> u64 {
        let first = self.under_way.first().copied();
        first.into_iter().chain(self.failed).min().map_or(self.made, |first| first - 1)
    }

    fn fails(&mut self, number: u64) {
        self.failed = Some(self.failed.map_or(number, |first| first.min(number)));
    }

    /// Gives the run and its statement the next number.
    pub(crate) fn submit(&mut self, run: Box<dyn Run>, statement: Vec<u8>) -> u64 {
        self.made += 1;
        let number = self.made;
        if self.is_over {
            self.fails(number);
            let cause = Some(self.broken.clone().unwrap_or(GroupError::Closed));
            let finished = Some(Finished { run, cause });
            self.tickets.push(Ticket { number, waker: None, finished });
            return number;
        }
        self.under_way.insert(number);
        self.tickets.push(Ticket { number, waker: None, finished: None });
        self.submitted.push_back(Submitted { number, statement, run });
        number
    }

    pub(crate) fn take_submitted(&mut self) -> Option<Submitted> {
        self.submitted.pop_front()
    }

    /// Notes the waker of the standing task.
    pub(crate) fn watch(&mut self, waker: &Waker) {
        if !self.waker.as_ref().is_some_and(|it| it.will_wake(waker)) {
            self.waker = Some(waker.clone());
        }
    }

    /// Returns an earlier run of this type.
    pub(crate) fn spare<R: Run>(&mut self) -> Option<Box<dyn Run>> {
        let at = self.spare.iter_mut().position(|run| run.as_any().is::<R>())?;
        Some(self.spare.swap_remove(at))
    }

    /// Keeps a run for a later call.
    pub(crate) fn keep(&mut self, run: Box<dyn Run>) {
        if run.is_reusable() && self.spare.len() < SPARE_COUNT_MAX {
            self.spare.push(run);
        }
    }

    /// Returns an empty vector for a statement.
    pub(crate) fn spare_statement(&mut self) -> Vec<u8> {
        self.spare_statements.pop().unwrap_or_default()
    }

    pub(crate) fn keep_statement(&mut self, mut statement: Vec<u8>) {
        if self.spare_statements.len() < SPARE_COUNT_MAX {
            statement.clear();
            self.spare_statements.push(statement);
        }
    }
}
