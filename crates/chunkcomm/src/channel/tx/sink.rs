//! The end of a channel as a `Sink`, whose `start_send` cannot wait.
//!
//! Ready means that an item of any size has room; a large one may be beyond the backlog. If a clone takes that room before the
//! item comes, the item is *held*. The next call that can wait stages it; everything else
//! that this sender stages comes behind it. An end with a held item is shared from then on,
//! so that an end that was never cloned need not look for one.

use super::{Tx, Waiting};
use crate::driver::memory::freed_apart;
use crate::driver::staging::{Staged, TxEnd};
use crate::error::SendError;
use crate::proto::message::PREFIX_BYTES_MAX;
use bytes::Bytes;
use serde::Serialize;
use std::sync::PoisonError;
use std::task::{Context, Poll, ready};

/// Stages the item that is held, if there is one.
pub(super) fn stage_held(end: &mut TxEnd, held: &mut Option<Bytes>) -> Result<Staged, SendError> {
    let Some(item) = held else { return Ok(Staged::Done) };
    let staged = end.stage_bytes(item)?;
    if staged == Staged::Done {
        *held = None;
    }
    Ok(staged)
}

/// Stages `waiting` behind an item that is held.
pub(super) fn stage_behind(
    end: &mut TxEnd,
    held: &mut Option<Bytes>,
    scratch: &mut Vec<u8>,
    waiting: &Waiting<'_>,
) -> Result<Staged, SendError> {
    if stage_held(end, held)? == Staged::Full {
        return Ok(Staged::Full);
    }
    match waiting {
        Waiting::Scratch => end.stage_scratch(scratch),
        Waiting::Bytes(bytes) => end.stage_bytes(bytes),
        Waiting::Slice(bytes) => end.stage_slice(bytes),
        Waiting::Held => Ok(Staged::Done),
    }
}

impl Tx {
    /// Waits until no item is held.
    pub(super) fn poll_held(&mut self, context: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        if self.held.is_none() {
            return Poll::Ready(Ok(()));
        }
        self.poll_stage(context, &Waiting::Held)
    }

    /// Waits until an item of any size is accepted: a small one has its room, and a
    /// large one is taken when no other large one waits.
    pub(crate) fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        let bytes = self.with(|end| end.inline_bytes_max());
        ready!(self.poll_capacity(context, bytes + PREFIX_BYTES_MAX))?;
        ready!(self.poll_large(context))?;
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn poll_large(&mut self, context: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        self.shared.wait(context.waker());
        self.with(|end| match end.failed() {
            Some(error) => Poll::Ready(Err(error)),
            None if end.has_room_for_large() => Poll::Ready(Ok(())),
            None => Poll::Pending,
        })
    }

    /// Accepts an item.
    pub(crate) fn start_send<T: Serialize>(&mut self, item: &T) -> Result<(), SendError> {
        let ready = std::mem::take(&mut self.ready);
        match self.stage(item)? {
            Staged::Done => Ok(()),
            Staged::Full if ready => {
                if self.stage_beyond(&Waiting::Scratch)? == Staged::Full {
                    let encoded = std::mem::take(&mut self.scratch);
                    self.hold(Bytes::from(encoded));
                }
                Ok(())
            }
            Staged::Full => Err(SendError::NotReady),
        }
    }

    /// Accepts an item of bytes.
    pub(crate) fn start_send_bytes(&mut self, item: Bytes) -> Result<(), SendError> {
        let ready = std::mem::take(&mut self.ready);
        match self.stage_waiting(&Waiting::Bytes(&item))? {
            Staged::Done => Ok(()),
            Staged::Full if ready => {
                if self.stage_beyond(&Waiting::Bytes(&item))? == Staged::Full {
                    self.hold(item);
                }
                Ok(())
            }
            Staged::Full => Err(SendError::NotReady),
        }
    }

    /// Stages an item that found no room; a large one may be beyond the backlog.
    #[cold]
    fn stage_beyond(&mut self, waiting: &Waiting<'_>) -> Result<Staged, SendError> {
        let (scratch, held) = (&mut self.scratch, &mut self.held);
        let slot = self.slot.get_mut().unwrap_or_else(PoisonError::into_inner);
        slot.with(|end| end.beyond_backlog(|end| stage_behind(end, held, scratch, waiting)))
    }

    fn hold(&mut self, item: Bytes) {
        assert!(self.held.is_none(), "ready is said when nothing is held");
        self.held = Some(freed_apart(item));
        self.slot.get_mut().unwrap_or_else(PoisonError::into_inner).share();
    }

    /// Waits until everything accepted is written, including an item that is held.
    pub(crate) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        ready!(self.poll_held(context))?;
        self.shared.wait(context.waker());
        if self.with(|end| end.written() >= end.accepted()) {
            return Poll::Ready(self.not_refused());
        }
        self.with(|end| {
            if let Some(error) = end.lost() {
                return Poll::Ready(Err(error));
            }
            end.flush(false);
            Poll::Pending
        })
    }

    /// As `poll_flush`; then the channel ends, unless a clone has it as well.
    pub(crate) fn poll_close(&mut self, context: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        ready!(self.poll_flush(context))?;
        if self.slot.get_mut().unwrap_or_else(PoisonError::into_inner).is_last() {
            self.with(TxEnd::close);
        }
        Poll::Ready(Ok(()))
    }
}
