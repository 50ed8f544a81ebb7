//! The place of a group's engine, which the future of a call polls, or the group's task where no future does.
//!
//! The [`Engine`](super::engine::Engine) is a future in a place that all share: the futures of calls
//! ([`Shared::poll_call`]) and the group's task ([`Standing`]). Its wakers are always the same, those of [`Shared`] and of
//! its [sources](super::source). So no source learns by whom the engine is polled.
//!
//! | event | wakes |
//! |---|---|
//! | a call is made, the group is dropped | the task, behind the tasks that are ready |
//! | a word has come | the future that was polled last; the task behind it |
//! | a run is woken, a rank is lost, a time has come | the task |
//!
//! Where the runtime has several threads, the task is woken behind the others as one that yields: the worker looks for it
//! when it has nothing else to do. By then the future has had its turn, as a rule, and the task finds no news. No other
//! thread is woken for it. On a runtime of one thread it stands at the end of the queue: a yield there costs a system call.
//! The main future of such a runtime is not in that queue, and has its turn after the task.
//!
//! # Nobody is stuck
//!
//! 1. An event sets `has_news`. The first one since the engine was polled wakes the task. A future is woken beside it,
//!    never in its place: one that is dropped, moved to another task or never polled again holds up nothing.
//! 2. The task waits for the place, at most for a turn of the engine. `has_news` is cleared at the place, before the
//!    engine is polled. So the task polls the engine, or another has polled it after the event.
//! 3. A future that finds the place taken goes away. The event that let it be polled has woken the task, too.
//! 4. A call that ends wakes its future, by whomever the engine was polled. The future notes its waker under the lock
//!    under which the end is noted.
//! 5. A worker may compute while the task waits behind its other tasks. The engine's look at calls that are under way,
//!    after 100 ms, wakes the task on any worker.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll, Wake, Waker, ready};

use tokio::runtime::Handle;

use super::shared::{Finished, Shared};

/// The place of the engine.
#[derive(Default)]
pub(super) enum Place {
    Running(Running),
    /// It has panicked; the task is to panic as well.
    Panicked(Box<dyn Any + Send>),
    /// All calls are over, or the task is gone.
    #[default]
    Empty,
}

/// The engine, from its first poll to its last.
pub(super) struct Running {
    engine: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// That of [`Shared`].
    waker: Waker,
}

impl Shared {
    /// Puts the engine at its place; returns the task that runs it where no future of a call does.
    pub(crate) fn stand(
        self: &Arc<Self>,
        engine: impl Future<Output = ()> + Send + 'static,
    ) -> Standing {
        let running = Running { engine: Box::pin(engine), waker: Waker::from(Arc::clone(self)) };
        *self.place() = Place::Running(running);
        Standing(Arc::clone(self))
    }

    /// Lets the calls go on if there are news; ready when the engine is gone. A `visitor` may be a thread of no runtime.
    fn drive(&self, mut place: MutexGuard<'_, Place>, visitor: bool) -> Poll<()> {
        let Place::Running(Running { engine, waker }) = &mut *place else {
            return Poll::Ready(());
        };
        if !self.has_news.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        let polled = catch_unwind(AssertUnwindSafe(|| {
            let _entered = (visitor && !self.is_home()).then(|| self.runtime.enter());
            engine.as_mut().poll(&mut Context::from_waker(waker))
        }));
        let left = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(())) => Place::Empty,
            Err(panic) => Place::Panicked(panic),
        };
        let over = mem::replace(&mut *place, left);
        drop(place);
        drop(over);
        self.wake_task();
        Poll::Ready(())
    }

    /// Lets the calls go on, and returns the end of this one or registers the waker of its caller.
    ///
    /// A call that has said words in its last poll ends in the next one: its caller may compute from then on, and the
    /// words leave before.
    pub(crate) fn poll_call(&self, number: u64, waker: &Waker) -> Poll<Finished> {
        let mut has_said = false;
        if let Ok(place) = self.place.try_lock() {
            self.has_said.store(false, Ordering::Relaxed);
            let _ = self.drive(place, true);
            has_said = self.has_said.load(Ordering::Relaxed);
        }
        let mut state = self.state();
        if has_said && state.puts_off(number) {
            drop(state);
            waker.wake_by_ref();
            return Poll::Pending;
        }
        let finished = state.take_finished(number, waker);
        finished.map_or(Poll::Pending, Poll::Ready)
    }

    /// Takes in that a word has come: wakes the future that was polled last, and behind it the task.
    pub(super) fn hear(&self) {
        if self.has_news.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut state = self.state();
        let (future, task) = (state.take_waker(), state.waker.clone());
        drop(state);
        if let Some(future) = future {
            future.wake();
        }
        self.wake_behind(task);
    }

    /// Wakes the task. That may be done by a task that is about to be woken behind others, too.
    fn wake_task(&self) {
        let waker = self.state().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether this thread is one of the task's runtime.
    fn is_home(&self) -> bool {
        Handle::try_current().is_ok_and(|here| here.id() == self.runtime.id())
    }

    /// Wakes the task behind those that are ready on this thread. Not for wakers that yield: tokio cannot take in such
    /// a task while it wakes them.
    pub(super) fn wake_behind(&self, task: Option<Waker>) {
        let Some(waker) = task else { return };
        if !self.is_one_thread && self.is_home() {
            let _ = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(&waker));
        } else {
            waker.wake();
        }
    }
}

impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.has_news.store(true, Ordering::Release);
        self.wake_task();
    }
}

/// The task of a group.
pub(crate) struct Standing(Arc<Shared>);

impl Future for Standing {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let shared = &self.0;
        shared.state().watch(context.waker());
        ready!(shared.drive(shared.place(), false));
        match mem::take(&mut *shared.place()) {
            Place::Panicked(panic) => resume_unwind(panic),
            _ => Poll::Ready(()),
        }
    }
}

impl Drop for Standing {
    /// Ends the calls that nobody runs any more: the runtime is gone.
    fn drop(&mut self) {
        let engine = mem::take(&mut *self.0.place());
        drop(engine);
    }
}

#[cfg(test)]
mod tests;
