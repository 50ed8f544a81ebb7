//! The state that a group, its calls and its engine share.

use std::any::Any;
use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Wake, Waker};
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;

use super::driving::Place;
use super::error::GroupError;
use super::io::Io;
use super::numbered::Numbered;

/// One rank's part in one call.
pub trait Run: Any + Send {
    /// Goes on as far as it can; ready when this rank's part is done.
    fn poll(&mut self, io: &mut Io<'_, '_>) -> Poll<Result<(), GroupError>>;

    /// Returns the rank that it waits for.
    fn waits_for(&self) -> Option<usize>;

    /// Ends it for this cause, where `poll` will not be called any more: ready when the caller's data are
    /// back.
    fn stop(&mut self, _cause: &GroupError, _io: &mut Io<'_, '_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// Whether it has said a part of what it says now.
    fn is_saying(&self) -> bool {
        false
    }

    /// Drops everything of its call but memory for a later one, at most `bytes_max` where it can choose, and returns
    /// the bytes of that; none where no later call may use it.
    fn strip(&mut self, _bytes_max: usize) -> Option<usize> {
        None
    }

    /// Returns itself, to be told by its type.
    fn as_any(&mut self) -> &mut dyn Any;
}

/// A call that the engine is to run.
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
#[derive(Default)]
struct Ticket {
    waker: Option<Waker>,
    finished: Option<Finished>,
    /// The caller was told later of the end than it could have been.
    was_put_off: bool,
}

/// One call as the engine last saw it.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) statement: Vec<u8>,
    pub(crate) waits_for: Option<usize>,
}

/// Most calls of a rank that are under way: 65,536. Each takes some 1 KiB beside its data, and so all of them
/// 64 MiB. No program awaits as many; one that makes calls faster than the slowest rank is heard of here.
pub(crate) const CALLS_MAX: usize = 1 << 16;

/// Time after which a wait for a rank is reported by default: 10 s.
const REPORT_AFTER: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(crate) struct State {
    /// Number of the last call that was made.
    pub(crate) made: u64,
    /// Number of groups that were made of this one.
    pub(crate) children: u64,
    /// Calls that are not over. A collective that flows is over when it has given its ends.
    under_way: Numbered<()>,
    /// First call that did not succeed.
    failed: Option<u64>,
    /// This node's rank in the group.
    pub(crate) rank: usize,
    /// A call was made beyond [`CALLS_MAX`].
    pub(crate) is_beyond: bool,
    submitted: VecDeque<Submitted>,
    /// Those of the calls whose callers have not had their ends, by the calls' numbers.
    tickets: Numbered<Ticket>,
    /// Calls whose runs have been woken.
    pub(super) woken: Vec<u64>,
    /// Runs and statements of earlier calls, whose memory the next ones take; with the bytes of each.
    spare: Vec<(usize, Box<dyn Run>)>,
    spare_statements: Vec<Vec<u8>>,
    pub(crate) broken: Option<GroupError>,
    /// The group is dropped: no call follows.
    pub(crate) closed: bool,
    /// No call goes on any more: those that are under way end now.
    pub(crate) shrinking: bool,
    /// The engine is gone: nobody runs a call.
    pub(crate) is_over: bool,
    /// Waker of the standing task, while it waits.
    pub(super) waker: Option<Waker>,
    /// The call whose future was polled last.
    polled: u64,
    /// The calls under way at the last look, by their numbers.
    pub(crate) lines: Numbered<Line>,
    /// Time after which a wait for a rank is reported, if it was set.
    pub(crate) reports_after: Option<Duration>,
}

/// Most runs and statements of earlier calls that are kept.
const SPARE_COUNT_MAX: usize = 8;

/// Most memory of earlier runs that is kept: 128 MiB, the result and the sums of a vector of 64 MiB. New
/// memory of that size costs its pages in each call; more would be held for the group's life.
const SPARE_BYTES_MAX: usize = 128 << 20;

/// State of a group under its lock, and the place of its engine.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Locked by whoever polls the engine, then before the state.
    pub(super) place: Mutex<Place>,
    /// Whether something has happened since the engine was polled.
    pub(super) has_news: AtomicBool,
    /// Whether the engine has said words since this was cleared.
    pub(super) has_said: AtomicBool,
    /// Runtime of the standing task.
    pub(super) runtime: Handle,
    pub(super) is_one_thread: bool,
    /// Wakes those who wait for the group to break.
    broke: Notify,
}

impl Shared {
    pub(crate) fn new(runtime: &Handle) -> Shared {
        Shared {
            state: Mutex::default(),
            place: Mutex::default(),
            // The engine is polled once in any case.
            has_news: AtomicBool::new(true),
            has_said: AtomicBool::new(false),
            runtime: runtime.clone(),
            is_one_thread: runtime.runtime_flavor() == RuntimeFlavor::CurrentThread,
            broke: Notify::new(),
        }
    }

    pub(super) fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes the standing task.
    pub(crate) fn tell<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state();
        let told = change(&mut state);
        let had_news = self.has_news.swap(true, Ordering::AcqRel);
        let task = if had_news { None } else { state.waker.clone() };
        drop(state);
        self.wake_behind(task);
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
        if state.under_way.remove(number).is_some() && finished.cause.is_some() {
            state.fails(number);
        }
        state.keep_statement(statement);
        state.lines.remove(number);
        match state.tickets.get_mut(number) {
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
            None => {
                drop(state);
                self.keep(finished.run);
            }
        }
    }

    /// Lets a call go on without its caller.
    pub(crate) fn forget(&self, number: u64) {
        let ticket = self.state().tickets.remove(number);
        if let Some(finished) = ticket.and_then(|ticket| ticket.finished) {
            self.keep(finished.run);
        }
    }

    /// Keeps the memory of a run for a later call. The rest is the program's, and drops outside the lock.
    pub(crate) fn keep(&self, mut run: Box<dyn Run>) {
        let kept = |state: &State| state.spare.iter().map(|(bytes, _)| *bytes).sum::<usize>();
        let bytes_max = SPARE_BYTES_MAX.saturating_sub(kept(&self.state()));
        let Some(bytes) = run.strip(bytes_max) else { return };
        let mut state = self.state();
        let kept = kept(&state);
        if state.spare.len() < SPARE_COUNT_MAX && kept.saturating_add(bytes) <= SPARE_BYTES_MAX {
            state.spare.push((bytes, run));
        } else {
            drop(state);
            drop(run);
        }
    }
}

/// Wakes the engine for the run of one call after the other.
pub(super) struct RunWaker {
    shared: Arc<Shared>,
    number: AtomicU64,
}

impl RunWaker {
    pub(super) fn new(shared: &Arc<Shared>) -> Arc<RunWaker> {
        Arc::new(RunWaker { shared: Arc::clone(shared), number: AtomicU64::new(0) })
    }

    /// Wakes the run of this call from now on. One that is woken for an earlier call is polled in vain.
    pub(super) fn serve(&self, number: u64) {
        self.number.store(number, Ordering::Relaxed);
    }
}

impl Wake for RunWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let number = self.number.load(Ordering::Relaxed);
        let mut state = self.shared.state();
        if !state.is_over {
            state.woken.push(number);
        }
        drop(state);
        self.shared.wake_by_ref();
    }
}

impl State {
    /// Returns the time after which a wait for a rank is reported.
    pub(crate) fn report_after(&self) -> Duration {
        self.reports_after.unwrap_or(REPORT_AFTER)
    }

    /// Returns the last call up to which all succeeded here.
    pub(crate) fn succeeded(&self) -> u64 {
        let first = self.under_way.first();
        first.into_iter().chain(self.failed).min().map_or(self.made, |first| first - 1)
    }

    fn fails(&mut self, number: u64) {
        self.failed = Some(self.failed.map_or(number, |first| first.min(number)));
    }

    /// Gives the run and its statement the next number.
    pub(crate) fn submit(&mut self, run: Box<dyn Run>, statement: Vec<u8>) -> u64 {
        self.made += 1;
        let number = self.made;
        let is_beyond = self.under_way.len() >= CALLS_MAX;
        if self.is_over || is_beyond {
            self.fails(number);
            self.is_beyond |= is_beyond;
            let too_many = GroupError::TooManyCalls { bound: CALLS_MAX, rank: self.rank };
            let refused = if self.is_over { GroupError::Closed } else { too_many };
            let cause = Some(self.broken.clone().unwrap_or(refused));
            let finished = Some(Finished { run, cause });
            self.tickets
                .insert(number, Ticket { finished, was_put_off: true, ..Ticket::default() });
            return number;
        }
        self.under_way.insert(number, ());
        self.tickets.insert(number, Ticket::default());
        self.submitted.push_back(Submitted { number, statement, run });
        number
    }

    pub(crate) fn take_submitted(&mut self) -> Option<Submitted> {
        self.submitted.pop_front()
    }

    /// Returns the end of a call, or registers the waker of its caller.
    pub(super) fn take_finished(&mut self, number: u64, waker: &Waker) -> Option<Finished> {
        let ticket = self.tickets.get_mut(number).expect("a call ends once");
        if let Some(finished) = ticket.finished.take() {
            self.tickets.remove(number);
            return Some(finished);
        }
        if !ticket.waker.as_ref().is_some_and(|it| it.will_wake(waker)) {
            ticket.waker = Some(waker.clone());
        }
        self.polled = number;
        None
    }

    /// Whether the caller of this call, which is over, is to be told of it by the next poll, once.
    pub(super) fn puts_off(&mut self, number: u64) -> bool {
        let ticket = self.tickets.get_mut(number).filter(|ticket| ticket.finished.is_some());
        ticket.is_some_and(|ticket| !mem::replace(&mut ticket.was_put_off, true))
    }

    /// Takes the waker of the future that was polled last, while it waits.
    pub(super) fn take_waker(&mut self) -> Option<Waker> {
        let polled = self.polled;
        self.tickets.get_mut(polled).and_then(|ticket| ticket.waker.take())
    }

    /// Notes the waker of the standing task.
    pub(crate) fn watch(&mut self, waker: &Waker) {
        if !self.waker.as_ref().is_some_and(|it| it.will_wake(waker)) {
            self.waker = Some(waker.clone());
        }
    }

    /// Returns an earlier run of this type.
    pub(crate) fn spare<R: Run>(&mut self) -> Option<Box<dyn Run>> {
        let at = self.spare.iter_mut().position(|(_, run)| run.as_any().is::<R>())?;
        Some(self.spare.swap_remove(at).1)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A run whose memory has this size.
    struct Over(usize);

    impl Run for Over {
        fn poll(&mut self, _: &mut Io<'_, '_>) -> Poll<Result<(), GroupError>> {
            Poll::Pending
        }

        fn waits_for(&self) -> Option<usize> {
            None
        }

        fn strip(&mut self, _: usize) -> Option<usize> {
            Some(self.0)
        }

        fn as_any(&mut self) -> &mut dyn Any {
            self
        }
    }

    #[tokio::test]
    async fn runs_are_kept_by_their_number_and_their_bytes() {
        let shared = Shared::new(&Handle::current());
        let kept = |bytes| {
            shared.keep(Box::new(Over(bytes)));
            shared.state().spare.len()
        };
        assert_eq!(kept(SPARE_BYTES_MAX - 1000), 1);
        assert_eq!(kept(1001), 1);
        assert_eq!((kept(usize::MAX), kept(1000)), (1, 2));
        assert_eq!((2..20).map(|_| kept(0)).max(), Some(SPARE_COUNT_MAX));
    }
}
