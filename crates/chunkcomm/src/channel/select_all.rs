//! [`SelectAll`]: one taker for many receivers, fair to all of them.

use super::ends::ReceivingEnd;
use crate::driver::wakers::locked;
use crate::error::{RecvError, TryRecvError};
use crate::proto::fair::Turns;
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// Bytes that a receiver's turn allows before others are served: 4 KiB, at least one
/// message. A receiver pays for larger messages with turns that it passes.
pub const SELECT_TURN_BYTES: u64 = 4 * 1024;

/// Result of [`SelectAll::recv`]: a message with its receiver's index, `None` when all
/// receivers have ended, or an error with its receiver's index.
pub type Selected<T> = Result<Option<(usize, T)>, (usize, RecvError)>;

#[derive(Default)]
struct Ready {
    indices: Vec<usize>,
    waker: Option<Waker>,
}

/// Takes from many receivers: one message of each in turn, with a cap by bytes,
/// so that a fast peer cannot starve a slow one.
///
/// `R` is [`Receiver<T>`](crate::Receiver) or [`BytesReceiver`](crate::BytesReceiver); the first
/// [`SelectAll::add`] decides.
pub struct SelectAll<R> {
    receivers: Vec<Option<R>>,
    turns: Turns,
    /// Whether the index of each receiver is in `ready` already.
    queued: Vec<Arc<AtomicBool>>,
    ready: Arc<Mutex<Ready>>,
    open: usize,
}

impl<R> fmt::Debug for SelectAll<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SelectAll").field("open", &self.open).finish_non_exhaustive()
    }
}

impl<R> Default for SelectAll<R> {
    fn default() -> SelectAll<R> {
        SelectAll {
            receivers: Vec::new(),
            turns: Turns::new(SELECT_TURN_BYTES),
            queued: Vec::new(),
            ready: Arc::default(),
            open: 0,
        }
    }
}

impl<R> SelectAll<R> {
    /// Returns a `SelectAll` without receivers.
    #[must_use]
    pub fn new() -> SelectAll<R> {
        SelectAll::default()
    }

    /// Whether the receiver of this index has not ended.
    pub(crate) fn is_open(&self, index: usize) -> bool {
        self.receivers[index].is_some()
    }

    /// Returns the number of receivers that have not ended.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open
    }
}

impl<R: ReceivingEnd> SelectAll<R> {
    /// Adds a receiver and returns its index, counted from 0.
    pub fn add(&mut self, receiver: R) -> usize {
        self.receivers.push(None);
        self.queued.push(Arc::default());
        self.put_at(self.receivers.len() - 1, receiver)
    }

    /// As [`Self::add`], with the index of a receiver that has ended, if there is one.
    pub(crate) fn put(&mut self, receiver: R) -> usize {
        match self.receivers.iter().position(Option::is_none) {
            Some(index) => self.put_at(index, receiver),
            None => self.add(receiver),
        }
    }

    fn put_at(&mut self, index: usize, mut receiver: R) -> usize {
        let ready = Arc::clone(&self.ready);
        let queued = Arc::new(AtomicBool::new(false));
        self.queued[index] = Arc::clone(&queued);
        let tell = Arc::new(move || {
            if queued.swap(true, Ordering::AcqRel) {
                return;
            }
            let mut ready = locked(&ready);
            ready.indices.push(index);
            let waker = ready.waker.take();
            drop(ready);
            if let Some(waker) = waker {
                waker.wake();
            }
        });
        receiver.notify(tell);
        self.receivers[index] = Some(receiver);
        self.open += 1;
        index
    }

    fn note_ready(&mut self) -> bool {
        let indices = std::mem::take(&mut locked(&self.ready).indices);
        for index in &indices {
            // Before the receiver is looked at: messages that come later notify again.
            self.queued[*index].store(false, Ordering::Release);
            self.turns.ready(*index);
        }
        !indices.is_empty()
    }

    /// Waits for the next message and returns it with the index of its receiver; `None` when
    /// all have ended. A receiver that ended in order is dropped without a word.
    ///
    /// # Errors
    ///
    /// The error of a receiver, with the receiver's index. After [`RecvError::Decode`] that
    /// receiver goes on, after other errors it is dropped. The other receivers go on.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropped before it returns, it has taken nothing.
    pub async fn recv(&mut self) -> Selected<R::Item> {
        tokio::task::coop::consume_budget().await;
        poll_fn(|context| self.poll_recv(context)).await
    }

    /// As [`Self::recv`], as a `poll` function.
    ///
    /// # Errors
    ///
    /// As [`Self::recv`].
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Selected<R::Item>> {
        loop {
            self.note_ready();
            while let Some(index) = self.turns.poll_next() {
                if let Some(taken) = self.serve(index) {
                    return Poll::Ready(taken.map(|value| Some((index, value))));
                }
            }
            if self.open == 0 {
                return Poll::Ready(Ok(None));
            }
            locked(&self.ready).waker = Some(context.waker().clone());
            if !self.note_ready() {
                return Poll::Pending;
            }
        }
    }

    /// Takes one message of a receiver, if it has one.
    fn serve(&mut self, index: usize) -> Option<Result<R::Item, (usize, RecvError)>> {
        let receiver = self.receivers.get_mut(index)?.as_mut();
        let Some(receiver) = receiver else {
            self.turns.served(index, None);
            return None;
        };
        if let Some((bytes, value)) = receiver.take_counted() {
            self.turns.served(index, Some(bytes));
            return Some(value.map_err(|error| (index, error)));
        }
        self.turns.served(index, None);
        match receiver.try_next() {
            // The message came just now.
            Ok(value) => {
                self.turns.ready(index);
                Some(Ok(value))
            }
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Ended) => {
                self.let_go(index);
                None
            }
            Err(TryRecvError::Failed(error)) => {
                if matches!(error, RecvError::Decode { .. }) {
                    self.turns.ready(index);
                } else {
                    self.let_go(index);
                }
                Some(Err((index, error)))
            }
        }
    }

    fn let_go(&mut self, index: usize) {
        self.receivers[index] = None;
        self.open -= 1;
    }
}
