//! The subscribers of a feed and its log, below the type of its messages.

use super::log::{Encoded, Log, Place};
use super::options::{Behind, FeedOptions};
use super::subscriber::{Stand, Subscriber};
use crate::channel::tx::Tx;
use crate::driver::staging::TxEnd;
use crate::driver::wakers::{Wakers, locked};
use crate::error::FeedError;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

/// The subscribers of a feed, and its log.
pub(super) struct Hub {
    state: Mutex<State>,
}

struct State {
    log: Log,
    backlog: u64,
    behind: Behind,
    subscribers: Vec<Option<Subscriber>>,
    /// Number of lagging subscribers.
    lagging: usize,
    /// Tasks that wait to send.
    sending: Wakers,
    /// The task that accepts subscribers.
    accepting: Option<Waker>,
    ended: bool,
    /// Whether the node accepts no subscribers any more.
    closed: bool,
}

impl Hub {
    pub(super) fn new(options: &FeedOptions) -> Hub {
        let FeedOptions { backlog, behind, keep, .. } = *options;
        let state = State {
            log: Log::new(keep, backlog / 2),
            backlog,
            behind,
            subscribers: Vec::new(),
            lagging: 0,
            sending: Wakers::default(),
            accepting: None,
            ended: false,
            closed: false,
        };
        Hub { state: Mutex::new(state) }
    }

    /// Sends a message to all subscribers; waits for those that are behind, if it is to. Fails once the node is
    /// closed.
    pub(super) fn poll_send(
        &self,
        context: &mut Context<'_>,
        message: Encoded<'_>,
    ) -> Poll<Result<(), FeedError>> {
        let mut state = locked(&self.state);
        if state.closed {
            return Poll::Ready(Err(FeedError::Closed));
        }
        if state.lagging > 0 && !state.admits(message.len()) {
            state.sending.add(context.waker());
            return Poll::Pending;
        }
        state.send(message);
        Poll::Ready(Ok(()))
    }

    /// Adds a subscriber; returns its number.
    pub(super) fn add(&self, tx: Tx, waker: &Waker) -> usize {
        let mut state = locked(&self.state);
        let subscriber = Subscriber::new(tx, state.log.kept(), waker);
        state.lagging += 1;
        let free = state.subscribers.iter().position(Option::is_none);
        let number = free.unwrap_or(state.subscribers.len());
        if free.is_none() {
            state.subscribers.push(None);
        }
        state.subscribers[number] = Some(subscriber);
        number
    }

    /// Sends a subscriber what the log has for it, as its task. Is ready once it gets nothing more.
    pub(super) fn poll_serve(&self, number: usize, context: &mut Context<'_>) -> Poll<()> {
        let mut guard = locked(&self.state);
        let state = &mut *guard;
        let Some(subscriber) = &mut state.subscribers[number] else { return Poll::Ready(()) };
        subscriber.waker.clone_from(context.waker());
        let lagged = subscriber.lags();
        subscriber.catch_up(&state.log, state.behind, state.backlog);
        let is_over = match subscriber.stand {
            Stand::Even => state.ended,
            Stand::Lagging(_) => false,
            Stand::Over => subscriber.tells_end(),
        };
        let lags = subscriber.lags();
        state.count(lagged, lags);
        let sending = state.sending.take();
        drop(guard);
        sending.wake();
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Removes a subscriber; its channel ends. The node reports no loss of messages to one that `has_left`.
    pub(super) fn remove(&self, number: usize, has_left: bool) {
        let mut state = locked(&self.state);
        let removed = state.subscribers[number].take();
        state.count(removed.as_ref().is_some_and(Subscriber::lags), false);
        let sending = state.sending.take();
        drop(state);
        sending.wake();
        if let Some(subscriber) = removed.filter(|_| has_left) {
            subscriber.tx.shared().set_told();
        }
    }

    /// Whether the log has something for this subscriber.
    pub(super) fn owes(&self, number: usize) -> bool {
        locked(&self.state).subscribers[number].as_ref().is_some_and(Subscriber::lags)
    }

    pub(super) fn subscribers(&self) -> usize {
        let state = locked(&self.state);
        let alive = |it: &&Subscriber| !matches!(it.stand, Stand::Over);
        state.subscribers.iter().flatten().filter(alive).count()
    }

    /// Notes that nothing more is sent.
    pub(super) fn end(&self) {
        let mut state = locked(&self.state);
        state.ended = true;
        let tasks = state.subscribers.iter().flatten().map(|it| it.waker.clone());
        let tasks: Vec<_> = tasks.chain(state.accepting.clone()).collect();
        drop(state);
        tasks.into_iter().for_each(Waker::wake);
    }

    /// Notes that the node accepts no subscribers any more.
    pub(super) fn close(&self) {
        let mut state = locked(&self.state);
        state.closed = true;
        let sending = state.sending.take();
        drop(state);
        sending.wake();
    }

    /// Waits until nothing more is sent.
    pub(super) fn poll_ended(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = locked(&self.state);
        if state.ended {
            return Poll::Ready(());
        }
        state.accepting = Some(context.waker().clone());
        Poll::Pending
    }
}

impl State {
    /// Whether a message of `bytes` may be sent now. Ends the subscribers that it leaves behind, if it is to.
    fn admits(&mut self, bytes: u64) -> bool {
        let State { log, backlog, behind, subscribers, lagging, .. } = self;
        if *behind == Behind::Skip {
            return true;
        }
        for subscriber in subscribers.iter_mut().flatten() {
            let Stand::Lagging(place) = subscriber.stand else { continue };
            let held = subscriber.tx.with(TxEnd::backlog_held);
            if log.end().bytes - place.bytes + held + bytes <= *backlog {
                continue;
            }
            if *behind == Behind::Wait {
                return false;
            }
            subscriber.end();
            *lagging -= 1;
        }
        true
    }

    fn send(&mut self, message: Encoded<'_>) {
        let (place, mut lag) = (self.log.end(), false);
        for subscriber in self.subscribers.iter_mut().flatten() {
            if let Stand::Even = subscriber.stand
                && !subscriber.takes(message)
            {
                subscriber.stand = Stand::Lagging(place);
                self.lagging += 1;
                lag = true;
            }
        }
        if self.lagging == 0 && !self.log.keeps() {
            return;
        }
        let begins = self.log.append(message);
        if lag {
            self.watch_new(place);
        }
        if self.behind == Behind::Skip {
            let begin = self.log.within(self.log.begin(), self.backlog);
            self.log.trim(begin);
        }
        if begins {
            self.trim();
        }
    }

    /// Lets the tasks of the subscribers that lag from this place on wait for room.
    fn watch_new(&mut self, place: Place) {
        for subscriber in self.subscribers.iter_mut().flatten() {
            if let Stand::Lagging(at) = subscriber.stand
                && at.message == place.message
            {
                subscriber.catch_up(&self.log, self.behind, self.backlog);
                self.lagging -= usize::from(!subscriber.lags());
            }
        }
        self.trim();
    }

    fn count(&mut self, lagged: bool, lags: bool) {
        self.lagging = self.lagging + usize::from(lags) - usize::from(lagged);
        if lagged && !lags {
            self.trim();
        }
    }

    /// Lets go of messages that nobody needs.
    fn trim(&mut self) {
        if self.lagging == 0 && !self.log.keeps() {
            return self.log.clear();
        }
        let mut begin = self.log.kept();
        for subscriber in self.subscribers.iter().flatten() {
            if let Stand::Lagging(place) = subscriber.stand
                && place.message < begin.message
            {
                begin = place;
            }
        }
        // With `skip`, the log may have begun behind the place of a subscriber.
        if begin.message > self.log.begin().message {
            self.log.trim(begin);
        }
    }
}
