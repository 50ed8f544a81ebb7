//! The subscribers of a feed and its log, below the type of its messages.

use super::log::{Encoded, Log, Place, SEGMENT_BYTES_MAX};
use super::options::{Behind, FeedOptions};
use super::subscriber::{Stand, Subscriber};
use crate::channel::tx::Tx;
use crate::driver::staging::{SHARED_RUN_BYTES_MIN, TxEnd};
use crate::driver::wakers::{Wakers, locked};
use crate::driver::waking::share_last_woken;
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
    /// The place up to which the even subscribers have all messages. Those behind it wait for their batch.
    sent: Place,
    /// Bytes that may wait for their batch. No even subscriber is behind its backlog by them.
    batch_bytes_max: u64,
    /// Number of lagging subscribers.
    lagging: usize,
    /// Bytes of all messages up to which no lagging subscriber is behind its backlog; 0 when not known.
    admitted_bytes: u64,
    /// Tasks that wait to send.
    sending: Wakers,
    /// The task that accepts subscribers and sends batches.
    task: Option<Waker>,
    /// Tasks that hold lines of ended subscribers.
    holding: Wakers,
    ended: bool,
    /// Whether the node accepts no subscribers any more.
    closed: bool,
}

impl Hub {
    pub(super) fn new(options: &FeedOptions) -> Hub {
        let FeedOptions { backlog, behind, keep, .. } = *options;
        let state = State {
            log: Log::new(keep, backlog),
            backlog,
            behind,
            subscribers: Vec::new(),
            sent: Place::default(),
            batch_bytes_max: 0,
            lagging: 0,
            admitted_bytes: 0,
            sending: Wakers::default(),
            task: None,
            holding: Wakers::default(),
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
        let has_woken = state.send(message);
        drop(state);
        if has_woken {
            // The sender may compute next.
            share_last_woken();
        }
        Poll::Ready(Ok(()))
    }

    /// Adds a subscriber; returns its number.
    pub(super) fn add(&self, tx: Tx, waker: &Waker) -> usize {
        let mut state = locked(&self.state);
        state.send_batch();
        let subscriber = Subscriber::new(tx, state.log.kept(), waker);
        state.lagging += 1;
        let free = state.subscribers.iter().position(Option::is_none);
        let number = free.unwrap_or(state.subscribers.len());
        if free.is_none() {
            state.subscribers.push(None);
        }
        state.subscribers[number] = Some(subscriber);
        state.admitted_bytes = 0;
        number
    }

    /// Sends a subscriber what the log has for it, as its task. Is ready once it gets nothing more.
    pub(super) fn poll_serve(&self, number: usize, context: &mut Context<'_>) -> Poll<()> {
        let mut guard = locked(&self.state);
        let state = &mut *guard;
        state.send_batch();
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

    /// Removes a subscriber; its channel ends. The node reports no loss of messages to one
    /// that `has_left`. Returns whether it was behind its backlog.
    pub(super) fn remove(&self, number: usize, has_left: bool) -> bool {
        let mut state = locked(&self.state);
        let Some(removed) = state.subscribers[number].take() else { return false };
        state.count(removed.lags(), false);
        let sending = state.sending.take();
        drop(state);
        sending.wake();
        if has_left {
            removed.tx.shared().set_told();
        }
        removed.is_behind
    }

    /// Whether the log has something for this subscriber that its channel has no room for.
    pub(super) fn owes(&self, number: usize) -> bool {
        let mut state = locked(&self.state);
        state.send_batch();
        state.subscribers[number].as_ref().is_some_and(Subscriber::lags)
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
        state.send_batch();
        let tasks = state.subscribers.iter().flatten().map(|it| it.waker.clone());
        let tasks: Vec<_> = tasks.chain(state.task.clone()).collect();
        let holding = state.holding.take();
        drop(state);
        holding.wake();
        tasks.into_iter().for_each(Waker::wake);
    }

    /// Notes that the node accepts no subscribers any more.
    pub(super) fn close(&self) {
        let mut state = locked(&self.state);
        state.closed = true;
        state.send_batch();
        let sending = state.sending.take();
        drop(state);
        sending.wake();
    }

    /// Waits until nothing more is sent.
    pub(super) fn poll_over(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = locked(&self.state);
        if state.ended {
            return Poll::Ready(());
        }
        state.holding.add(context.waker());
        Poll::Pending
    }

    /// Sends batches, until nothing more is sent.
    pub(super) fn poll_ended(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = locked(&self.state);
        if state.ended {
            return Poll::Ready(());
        }
        if !state.task.as_ref().is_some_and(|task| task.will_wake(context.waker())) {
            state.task = Some(context.waker().clone());
        }
        state.send_batch();
        Poll::Pending
    }
}

impl State {
    /// Whether a message of `bytes` may be sent now. Ends the subscribers that it leaves behind, if it is to.
    fn admits(&mut self, bytes: u64) -> bool {
        // A message longer than the backlog ends nobody who has room for half of it.
        let bytes = if self.behind == Behind::End { bytes.min(self.backlog / 2) } else { bytes };
        let until = self.log.end().bytes + bytes;
        if self.behind == Behind::Skip || until <= self.admitted_bytes {
            return true;
        }
        let State { backlog, behind, subscribers, lagging, .. } = self;
        let lagged = *lagging;
        let mut admitted_bytes = u64::MAX;
        for subscriber in subscribers.iter_mut().flatten() {
            let Stand::Lagging(place) = subscriber.stand else { continue };
            let held = subscriber.tx.with(TxEnd::backlog_held);
            let admitted = (place.bytes + *backlog).saturating_sub(held);
            if until <= admitted {
                admitted_bytes = admitted_bytes.min(admitted);
            } else if *behind == Behind::Wait {
                return false;
            } else {
                subscriber.end();
                *lagging -= 1;
            }
        }
        self.admitted_bytes = admitted_bytes;
        if self.lagging < lagged {
            self.trim();
        }
        true
    }

    /// Takes a message; returns whether it has woken the task that sends batches.
    fn send(&mut self, message: Encoded<'_>) -> bool {
        if self.subscribers.is_empty() && !self.log.keeps() {
            return false;
        }
        if self.log.end().bytes + message.len() - self.sent.bytes > self.batch_bytes_max {
            // It would leave no room for those before it.
            self.send_batch();
        }
        let is_first = self.sent.message == self.log.end().message;
        let (begins, mut has_woken) = (self.log.append(message), false);
        let waiting = self.log.end().bytes - self.sent.bytes;
        if waiting > self.batch_bytes_max || !self.gathers() {
            self.send_batch();
        } else if is_first && let Some(task) = &self.task {
            task.wake_by_ref();
            has_woken = true;
        }
        if begins {
            if self.behind == Behind::Skip {
                self.log.trim_beyond(self.backlog);
            }
            self.trim();
        }
        has_woken
    }

    /// Whether a message may wait for its batch: the drivers have no turn before the feed's task, or have still
    /// to send what came before.
    fn gathers(&mut self) -> bool {
        let mut subscribers = self.subscribers.iter_mut().flatten();
        subscribers
            .find(|it| matches!(it.stand, Stand::Even))
            .is_none_or(|it| it.tx.with(|end| end.is_home_or_queued()))
    }

    /// Sends the messages that wait for their batch. A subscriber without room for all then waits for it.
    fn send_batch(&mut self) {
        if self.sent.message == self.log.end().message {
            return;
        }
        if self.log.end().bytes - self.sent.bytes >= SHARED_RUN_BYTES_MIN as u64 {
            self.log.close();
        }
        self.batch_bytes_max = self.backlog.min(SEGMENT_BYTES_MAX as u64);
        for subscriber in self.subscribers.iter_mut().flatten() {
            let Stand::Even = subscriber.stand else { continue };
            subscriber.stand = Stand::Lagging(self.sent);
            subscriber.catch_up(&self.log, self.behind, self.backlog);
            if subscriber.lags() {
                self.lagging += 1;
                self.admitted_bytes = 0;
            } else {
                let room = self.backlog.saturating_sub(subscriber.tx.with(TxEnd::backlog_held));
                self.batch_bytes_max = self.batch_bytes_max.min(room);
            }
        }
        self.sent = self.log.end();
        self.trim();
    }

    fn count(&mut self, lagged: bool, lags: bool) {
        self.lagging = self.lagging + usize::from(lags) - usize::from(lagged);
        if lagged && !lags {
            // Its channel may be full.
            self.batch_bytes_max = 0;
            self.trim();
        }
    }

    /// Lets go of messages that nobody needs.
    fn trim(&mut self) {
        let is_sent = self.sent.message == self.log.end().message;
        if self.lagging == 0 && is_sent && !self.log.keeps() {
            self.log.clear();
            self.sent = self.log.end();
            return;
        }
        let mut begin = self.log.kept();
        if self.sent.message < begin.message {
            begin = self.sent;
        }
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
