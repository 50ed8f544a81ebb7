//! A client's way to one provider: a duplex, opened when it is first needed and again when it was
//! lost, and the calls in flight on it.

use super::callers::Caller;
use super::error::CallError;
use super::form::Form;
use super::opening::Reach;
use super::options::CallOptions;
use crate::moving::crossing::Carried;
use crate::proto::call::calls::{Calls, Look};
use crate::proto::call::wire;
use crate::report::CallsReport;
use crate::sync::locked;
use bytes::Bytes;
use chunkcomm::error::RefusalReason;
use chunkcomm::host::Instant;
use chunkcomm::layer::{RawSender, Staged, Waiting, share_last_woken};
use chunkcomm::{LinkError, SendError};
use chunkcomm_proto::Time;
use serde::de::DeserializeOwned;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::task::AbortHandle;

/// Outcome of a call; `None` means that the service confirmed the cancellation of a late call.
pub(super) type Outcome<Resp> = Result<Resp, Option<CallError>>;

/// The duplex, with its sending end.
pub(super) struct Up {
    pub(super) tx: RawSender,
    /// Number of the line's opening.
    pub(super) number: u64,
    /// Handle of the reading task; set a moment after the opening.
    pub(super) reading: Option<AbortHandle>,
    /// Waker of the reading task, while it waits.
    pub(super) reader: Option<Waker>,
    /// Time at which the reading task wakes by itself.
    pub(super) armed: Option<Time>,
}

pub(super) struct State<Resp> {
    pub(super) calls: Calls<Waker, Outcome<Resp>>,
    pub(super) up: Option<Up>,
    pub(super) openings: u64,
    /// Whether the service has answered on any opening.
    pub(super) has_served: bool,
    /// Reason why the last opening is over.
    failed: Option<CallError>,
    /// Ends that left in requests without an answer, by the slots of their calls.
    pub(super) carried: Vec<(u32, Carried)>,
}

/// A client's way to one provider. When the last caller and client are gone, the duplex ends.
pub(super) struct Line<Resp> {
    pub(super) service: Arc<str>,
    pub(super) reach: Box<dyn Reach>,
    pub(super) options: CallOptions,
    pub(super) form: Arc<Form>,
    pub(super) state: Mutex<State<Resp>>,
    pub(super) opening: tokio::sync::Mutex<()>,
    /// Copy of the machine's count, to be read without its lock.
    in_flight: AtomicUsize,
}

impl<Resp> Drop for Line<Resp> {
    fn drop(&mut self) {
        if let Some(Up { reading: Some(reading), .. }) = locked(&self.state).up.take() {
            reading.abort();
        }
    }
}

/// Whether a call was sent.
pub(super) enum Sent {
    /// Sent, in this slot.
    At(u32),
    /// Not sent: it must wait for the duplex or for room.
    Not,
}

impl<Resp: DeserializeOwned + Send + 'static> Line<Resp> {
    pub(super) fn new(
        service: &Arc<str>,
        reach: Box<dyn Reach>,
        options: &CallOptions,
        form: &Arc<Form>,
    ) -> Arc<Line<Resp>> {
        Arc::new(Line {
            service: Arc::clone(service),
            reach,
            options: options.clone(),
            form: Arc::clone(form),
            state: Mutex::new(State {
                calls: Calls::default(),
                up: None,
                openings: 0,
                has_served: false,
                failed: None,
                carried: Vec::new(),
            }),
            opening: tokio::sync::Mutex::new(()),
            in_flight: AtomicUsize::new(0),
        })
    }

    /// Whether the service has answered a call of this line.
    pub(super) fn has_served(&self) -> bool {
        locked(&self.state).has_served
    }

    /// Calls without an answer.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(super) fn note_in_flight(&self, state: &State<Resp>) {
        self.in_flight.store(state.calls.in_flight(), Ordering::Relaxed);
    }

    /// Sends a call if that can be done now. `call` has its head; the slot is written there.
    #[inline]
    pub(super) fn try_send(
        &self,
        call: &mut [u8],
        deadline: Option<Instant>,
        waker: &Waker,
    ) -> Result<Sent, CallError> {
        let mut state = locked(&self.state);
        let state = &mut *state;
        let Some(up) = &mut state.up else { return Ok(Sent::Not) };
        let slot = state.calls.reserve().ok_or_else(|| self.too_many())?;
        wire::set_slot(call, slot);
        match up.tx.stage_waiting(&Waiting::Slice(call)) {
            Ok(Staged::Done) => {
                self.sent(state, slot, deadline, waker.clone());
                Ok(Sent::At(slot))
            }
            Ok(Staged::Full) => {
                state.calls.give_back(slot);
                Ok(Sent::Not)
            }
            Err(error) => {
                state.calls.give_back(slot);
                if is_of_one(&error) {
                    return Err(self.request(error));
                }
                // The channel has ended; its reader is about to learn that.
                Ok(Sent::Not)
            }
        }
    }

    fn sent(&self, state: &mut State<Resp>, slot: u32, deadline: Option<Instant>, waker: Waker) {
        let deadline = deadline.map(Instant::time);
        state.calls.sent(slot, waker, deadline);
        self.note_in_flight(state);
        if let (Some(deadline), Some(up)) = (deadline, &mut state.up)
            && up.armed.is_none_or(|armed| deadline < armed)
        {
            up.armed = Some(deadline);
            if let Some(reader) = up.reader.take() {
                reader.wake();
                share_last_woken();
            }
        }
    }

    /// Sends a call; may wait for the duplex to be opened, and for room.
    pub(super) async fn send(
        self: &Arc<Self>,
        call: Vec<u8>,
        deadline: Option<Instant>,
    ) -> Result<u32, CallError> {
        let slot = Reserved::of(self)?;
        let mut call = call;
        wire::set_slot(&mut call, slot.number);
        // A channel that ended since the last call is opened again, once.
        let mut again = false;
        loop {
            self.open().await?;
            if let Some(deadline) = deadline {
                wire::set_left(&mut call, left_ms(deadline));
            }
            let bytes = Bytes::from(std::mem::take(&mut call));
            let sent =
                poll_fn(|context| self.poll_send(context, slot.number, &bytes, deadline, None));
            match sent.await {
                Ok(()) => return Ok(slot.used()),
                Err(Refusal::Request(error)) => return Err(error),
                Err(Refusal::Ended(error)) if again => return Err(error),
                Err(Refusal::Ended(_)) => (again, call) = (true, bytes.into()),
            }
        }
    }

    /// Sends a call, by this opening or by whichever there is; waits for room.
    pub(super) fn poll_send(
        &self,
        context: &mut Context<'_>,
        slot: u32,
        call: &Bytes,
        deadline: Option<Instant>,
        opening: Option<u64>,
    ) -> Poll<Result<(), Refusal>> {
        let mut guard = locked(&self.state);
        let state = &mut *guard;
        let is_it = |up: &&mut Up| opening.is_none_or(|opening| up.number == opening);
        let Some(up) = state.up.as_mut().filter(is_it) else {
            let error = state.failed.clone().unwrap_or_else(|| self.ended(""));
            return Poll::Ready(Err(Refusal::Ended(error)));
        };
        let number = up.number;
        match up.tx.poll_stage(context, &Waiting::Bytes(call)) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(())) => {
                self.sent(state, slot, deadline, context.waker().clone());
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) if is_of_one(&error) => {
                Poll::Ready(Err(Refusal::Request(self.request(error))))
            }
            Poll::Ready(Err(error)) => {
                drop(guard);
                let error = self.cause(error);
                self.fail(number, &error);
                Poll::Ready(Err(Refusal::Ended(error)))
            }
        }
    }

    /// Waits until the requests of this opening cannot be sent any more.
    pub(super) fn poll_failed(&self, number: u64, context: &mut Context<'_>) -> Poll<CallError> {
        let mut state = locked(&self.state);
        match &mut state.up {
            Some(up) if up.number == number => {
                let failed = std::task::ready!(up.tx.poll_failed(context));
                drop(state);
                Poll::Ready(self.cause(failed))
            }
            _ => Poll::Ready(self.ended("")),
        }
    }

    /// Returns the state of a call. An outcome frees the slot.
    #[inline]
    pub(super) fn look(&self, slot: u32, waker: &Waker) -> Look<Outcome<Resp>> {
        let mut state = locked(&self.state);
        state.calls.look(slot, |known| {
            if !known.will_wake(waker) {
                known.clone_from(waker);
            }
        })
    }

    /// Gives a call up: its caller does not wait any more.
    pub(super) fn abandon(&self, slot: u32) {
        let mut state = locked(&self.state);
        let unwanted = state.calls.abandon(slot);
        if !state.cancel_owed()
            && let Some(reader) = state.up.as_mut().and_then(|up| up.reader.take())
        {
            // The reading task waits for room, to send the cancellation.
            reader.wake();
            share_last_woken();
        }
        drop(state);
        drop(unwanted);
    }

    /// Ends this opening: every call in flight fails with `error`.
    pub(super) fn fail(&self, number: u64, error: &CallError) {
        let mut state = locked(&self.state);
        if state.up.as_ref().is_none_or(|up| up.number != number) {
            return;
        }
        let up = state.up.take();
        state.carried.clear();
        state.failed = Some(error.clone());
        let mut wakers = Vec::new();
        state.calls.handle_loss(|| Err(Some(error.clone())), &mut wakers);
        self.note_in_flight(&state);
        drop(state);
        if let Some(mut up) = up {
            // Tasks that wait for room wake up and find the end.
            up.tx.end();
            if let Some(reading) = up.reading {
                reading.abort();
            }
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Returns the call's error for a failure to send.
    pub(super) fn cause(&self, error: SendError) -> CallError {
        match error {
            SendError::Lost(lost) => {
                let (service, link) = (Arc::clone(&self.service), lost.link.clone());
                CallError::Link { service, link, sent: lost.account }
            }
            SendError::Refused(refused) => match refused.reason {
                RefusalReason::NotAccepted => CallError::NoService {
                    service: Arc::clone(&self.service),
                    peer: refused.peer.clone(),
                    waited: Duration::ZERO,
                },
                _ => CallError::Types(refused),
            },
            SendError::Terminated(name) => self.ended(&name.peer),
            error => self.request(error),
        }
    }

    /// Returns the call's error after the session of this opening ended.
    pub(super) fn lost(&self, number: u64, link: LinkError) -> CallError {
        let mut state = locked(&self.state);
        let up = state.up.as_mut().filter(|up| up.number == number);
        let sent = up.map(|up| up.tx.account()).unwrap_or_default();
        CallError::Link { service: Arc::clone(&self.service), link, sent }
    }

    pub(super) fn ended(&self, peer: &str) -> CallError {
        CallError::Ended { service: Arc::clone(&self.service), peer: peer.to_owned() }
    }
}

impl<Resp> Line<Resp> {
    /// Returns the error of a request that cannot be sent.
    #[cold]
    pub(super) fn request(&self, error: SendError) -> CallError {
        CallError::Request { service: Arc::clone(&self.service), error }
    }

    #[cold]
    fn too_many(&self) -> CallError {
        CallError::TooMany { service: Arc::clone(&self.service) }
    }
}

impl<Resp: Send> Caller for Line<Resp> {
    fn report(&self) -> Option<CallsReport> {
        let state = locked(&self.state);
        let in_flight = state.calls.in_flight();
        let peer = state.up.as_ref().map(|up| up.tx.peer().name().to_owned());
        (in_flight > 0).then(|| CallsReport { service: self.service.to_string(), peer, in_flight })
    }
}

impl<Resp> State<Resp> {
    /// Returns the ends in the request of an answered call, if that was not decoded.
    #[inline]
    pub(super) fn refused(&mut self, slot: u32, outcome: &Outcome<Resp>) -> Option<Carried> {
        if self.carried.is_empty() {
            return None;
        }
        let at = self.carried.iter().position(|(of, _)| *of == slot)?;
        let (_, carried) = self.carried.swap_remove(at);
        let is_undecoded = matches!(outcome, Err(Some(error)) if error.is_undecoded());
        is_undecoded.then_some(carried)
    }

    /// Sends the owed cancellations; returns false when there is no room for all.
    fn cancel_owed(&mut self) -> bool {
        let Some(up) = &mut self.up else { return true };
        while self.calls.owes_cancels() {
            match up.tx.has_room(wire::HEAD_BYTES) {
                // The channel has ended, and the service knows that.
                None => return true,
                Some(false) => return false,
                Some(true) => {
                    let Some(slot) = self.calls.poll_cancel() else { return true };
                    let _ = up.tx.stage_waiting(&Waiting::Slice(&wire::cancel(slot)));
                }
            }
        }
        true
    }

    /// Sends the owed cancellations; without room, the task is woken when there is some.
    pub(super) fn poll_cancel(&mut self, context: &mut Context<'_>) {
        while !self.cancel_owed() {
            let Some(up) = &mut self.up else { return };
            if up.tx.poll_reserve(context, wire::HEAD_BYTES).is_pending() {
                return;
            }
        }
    }
}

/// Whether the failure is of one message only, so that others can be sent.
fn is_of_one(error: &SendError) -> bool {
    matches!(error, SendError::TooLarge { .. } | SendError::Encode(_))
}

/// Reason why a call was not sent.
pub(super) enum Refusal {
    /// The request cannot be sent.
    Request(CallError),
    /// The channel has ended.
    Ended(CallError),
}

/// A slot whose call is not sent yet; given back when it is dropped.
pub(super) struct Reserved<'a, Resp> {
    line: &'a Line<Resp>,
    pub(super) number: u32,
    used: bool,
}

impl<'a, Resp> Reserved<'a, Resp> {
    pub(super) fn of(line: &'a Line<Resp>) -> Result<Reserved<'a, Resp>, CallError> {
        let number = locked(&line.state).calls.reserve();
        let number = number.ok_or_else(|| line.too_many())?;
        Ok(Reserved { line, number, used: false })
    }

    pub(super) fn used(mut self) -> u32 {
        self.used = true;
        self.number
    }
}

impl<Resp> Drop for Reserved<'_, Resp> {
    fn drop(&mut self) {
        if !self.used {
            let mut state = locked(&self.line.state);
            state.calls.give_back(self.number);
            state.carried.retain(|(slot, _)| *slot != self.number);
        }
    }
}

/// Returns the milliseconds to a deadline, rounded up.
pub(super) fn left_ms(deadline: Instant) -> u32 {
    let left = deadline - Instant::now();
    u32::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX)
}
