//! [`Sender`]: values of one type to one peer.

use super::blocking::block_on;
use super::calls::{calls_of_every_sender, calls_of_every_sink};
use super::tx::{Tx, Waiting};
use super::{MESSAGES_A_BUDGET_UNIT, Turn};
use crate::driver::staging::{Staged, TxEnd};
use crate::error::{CloseError, SendAllError, SendError, TrySendError};
use crate::node::Peer;
use crate::stats::ChannelStats;
use serde::Serialize;
use std::borrow::Borrow;
use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Sends values of `T` to one peer, in order.
///
/// Messages to the same peer, of any channels, are gathered in packets. A message
/// is *accepted* when a call returns `Ok`: it is encoded in our outbox, and the
/// library decides when it leaves. It is *acknowledged* when it is in the peer's
/// inbox; [`Sender::sync`] waits for that.
///
/// Messages arrive in the order in which they were accepted. Dropping the sender
/// ends the stream after what was accepted. A clone sends on the same channel
/// and takes a lock a message; clones share the order of acceptance.
///
/// Memory of a channel:
///
/// - a ring of at most one packet. While the ring grows, the old one is kept until
///   it is drained: up to 4/3 of that bound.
/// - large messages (above 8 KiB encoded) of up to 1 MiB together, or one.
///
/// A link keeps the memory of up to four large messages for a second after the last.
///
/// `Sink` is implemented for values by value. When it is ready, an item of any
/// size is accepted at once. If a clone has taken the room since, the item is kept
/// and staged by the next call that waits: flush or close the sink before dropping it.
/// `poll_close` flushes and then ends the channel, unless clones are alive. Unlike
/// [`Sender::close`], it does not wait for acknowledgements.
#[must_use = "a stream ends when its sender is dropped"]
pub struct Sender<T> {
    tx: Tx,
    turn: Turn,
    types: PhantomData<fn(&T)>,
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        Sender { tx: self.tx.clone(), turn: Turn::default(), types: PhantomData }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("channel", &self.tx.name())
            .field("peer", &self.tx.peer.name())
            .finish_non_exhaustive()
    }
}

impl<T> Sender<T> {
    pub(crate) fn new(end: TxEnd, peer: Peer) -> Sender<T> {
        Sender { tx: Tx::new(end, peer), turn: Turn::default(), types: PhantomData }
    }

    pub(crate) fn tx(&mut self) -> &mut Tx {
        &mut self.tx
    }

    calls_of_every_sender!();

    /// Waits until there is room for a message of `bytes` encoded bytes; the permit then
    /// accepts one without waiting. Between clones the permit is no promise: another clone may
    /// be first.
    ///
    /// # Errors
    ///
    /// [`SendError::TooLargeToReserve`] when `bytes` is more than a channel ever has
    /// room for at once; else the channel ended.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is reserved before it returns.
    pub async fn reserve(&mut self, bytes: usize) -> Result<Permit<'_, T>, SendError> {
        self.tx.reserve(bytes).await?;
        Ok(Permit { sender: self })
    }
}

impl<T: Serialize> Sender<T> {
    /// Accepts `value`: encodes it into the outbox, and waits while the outbox is full.
    ///
    /// # Errors
    ///
    /// [`SendError::Encode`] and [`SendError::TooLarge`] concern this message
    /// alone. After the others nothing can be sent on the channel any more.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, nothing was accepted.
    pub fn send<'a>(&'a mut self, value: &'a T) -> Sending<'a, T> {
        Sending { sender: self, value, waits: false }
    }

    /// Accepts `value` if there is room for it now.
    ///
    /// # Errors
    ///
    /// [`TrySendError::Full`] when the outbox of the channel is full; else as
    /// `send`.
    pub fn try_send(&mut self, value: &T) -> Result<(), TrySendError> {
        self.tx.try_send(value)
    }

    /// Accepts `value` without waiting, as [`Self::poll_ready`] has promised.
    ///
    /// If a clone has taken the room since, the message is kept. The next call that waits stages it;
    /// [`Self::poll_flush`] or [`Self::poll_close`] does so before the end.
    ///
    /// # Errors
    ///
    /// [`SendError::NotReady`] when there is no room and nothing was promised; else as `send`.
    pub fn start_send(&mut self, value: &T) -> Result<(), SendError> {
        self.tx.start_send(value)
    }

    /// Accepts `value` as urgent: it leaves now, with everything before it on its
    /// channel. It never overtakes its own channel.
    ///
    /// # Errors
    ///
    /// As `send`.
    ///
    /// # Cancel safety
    ///
    /// As `send`.
    pub async fn send_now(&mut self, value: &T) -> Result<(), SendError> {
        self.send(value).await?;
        self.tx.with(TxEnd::urgent);
        Ok(())
    }

    /// Accepts all of `values`, in order, and returns their number. The fastest way to
    /// send many.
    ///
    /// # Errors
    ///
    /// As `send`, with the number of those accepted before.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it may have accepted some of the first values.
    /// [`Sender::stats`] counts them.
    pub async fn send_all<I, V>(&mut self, values: I) -> Result<usize, SendAllError>
    where
        I: IntoIterator<Item = V>,
        V: Borrow<T>,
    {
        let mut values = values.into_iter().fuse();
        let (mut accepted, mut since_budget) = (0, 0);
        loop {
            let failed = |error| SendAllError { accepted, error };
            let (count, left) = self.tx.stage_many(&mut values).map_err(failed)?;
            accepted += count as usize;
            since_budget += count;
            let failed = |error| SendAllError { accepted, error };
            match left {
                Some(value) => {
                    if self.tx.stage(value.borrow()).map_err(failed)? == Staged::Full {
                        self.tx.stage_later(Waiting::Scratch).await.map_err(failed)?;
                    }
                    accepted += 1;
                }
                None if count == 0 => break,
                None => {}
            }
            if since_budget >= MESSAGES_A_BUDGET_UNIT * 8 {
                since_budget = 0;
                tokio::task::coop::consume_budget().await;
            }
        }
        Ok(accepted)
    }

    /// As `send`, for plain threads: the thread sleeps while it waits. Not for
    /// async code, whose other tasks would sleep too.
    ///
    /// # Errors
    ///
    /// As `send`.
    pub fn blocking_send(&mut self, value: &T) -> Result<(), SendError> {
        match self.tx.stage(value)? {
            Staged::Done => Ok(()),
            Staged::Full => block_on(self.tx.stage_later(Waiting::Scratch)),
        }
    }
}

/// The future of [`Sender::send`]: written by hand, so that a message that has
/// room costs no more than its encoding.
#[derive(Debug)]
#[must_use = "nothing is sent before it is awaited"]
pub struct Sending<'a, T> {
    sender: &'a mut Sender<T>,
    value: &'a T,
    /// Whether the message lies encoded in the scratch and waits for room.
    waits: bool,
}

impl<T: Serialize> Future for Sending<'_, T> {
    type Output = Result<(), SendError>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if !this.waits && !this.sender.turn.over() {
            match this.sender.tx.stage(this.value) {
                Ok(Staged::Done) => return Poll::Ready(Ok(())),
                Ok(Staged::Full) => this.waits = true,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        this.poll_slowly(context)
    }
}

impl<T: Serialize> Sending<'_, T> {
    #[cold]
    fn poll_slowly(&mut self, context: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        if !self.waits && !self.sender.turn.asks(self.sender.tx.is_home()) {
            self.waits = self.sender.tx.stage(self.value)? == Staged::Full;
            if !self.waits {
                return Poll::Ready(Ok(()));
            }
        }
        let budget = ready!(tokio::task::coop::poll_proceed(context));
        if !self.waits {
            // The turn was over; nothing is staged yet.
            budget.made_progress();
            self.waits = self.sender.tx.stage(self.value)? == Staged::Full;
            if !self.waits {
                return Poll::Ready(Ok(()));
            }
        }
        self.sender.tx.poll_stage(context, &Waiting::Scratch)
    }
}

/// Room for one message, from [`Sender::reserve`].
#[derive(Debug)]
#[must_use]
pub struct Permit<'a, T> {
    sender: &'a mut Sender<T>,
}

impl<T: Serialize> Permit<'_, T> {
    /// Accepts `value` without waiting.
    ///
    /// # Errors
    ///
    /// [`TrySendError::Full`] when a clone was first, or `value` needs more bytes than were
    /// reserved and there is no room for them; else as `send`.
    pub fn send(self, value: &T) -> Result<(), TrySendError> {
        self.sender.try_send(value)
    }
}

impl<T: Serialize> futures_sink::Sink<T> for Sender<T> {
    calls_of_every_sink!(Sender<T>);

    fn start_send(mut self: Pin<&mut Self>, value: T) -> Result<(), SendError> {
        self.tx.start_send(&value)
    }
}
