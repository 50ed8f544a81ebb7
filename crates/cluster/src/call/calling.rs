//! [`Calling`]: one call, from its request to its answer.

use super::carrying::Attempt;
use super::client::CallClient;
use super::error::CallError;
use super::form::Function;
use super::line::{Line, Outcome, Sent, left_ms};
use super::scope::{CallScope, inherited};
use crate::proto::call::calls::Look;
use crate::proto::call::wire::{self, With};
use crate::proto::cluster::NodeId;
use chunkcomm::SendError;
use chunkcomm::host::{self, Elapsed, Instant};
use chunkcomm_proto::backoff::Backoff;
use chunkcomm_proto::codec::{self, DecodeError, EncodeError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Borrow;
use std::cell::Cell;
use std::convert::Infallible;
use std::fmt;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Largest buffer, in bytes, that a thread keeps for encoding requests.
const SCRATCH_BYTES_MAX: usize = 64 * 1024;

thread_local! {
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

type Sending = Pin<Box<dyn Future<Output = Result<Attempt, Elapsed>> + Send>>;

/// A pause, which always elapses.
type Pausing = Pin<Box<dyn Future<Output = Result<Infallible, Elapsed>> + Send>>;

/// The wait for a service that the peer does not serve yet.
struct Unserved {
    peer: String,
    began: Instant,
    until: Option<Instant>,
    backoff: Backoff,
}

impl Unserved {
    fn error(&self, service: &Arc<str>, now: Instant) -> CallError {
        let (service, peer) = (Arc::clone(service), self.peer.clone());
        let waited_ms = (now - self.began).as_millis() as u64;
        CallError::NoService { service, peer, waited: Duration::from_millis(waited_ms) }
    }
}

enum Stage {
    Start,
    /// The call waits to be sent.
    Sending(Sending),
    /// The peer does not serve the name yet; the call is sent again after a pause.
    Pausing(Pausing),
    /// The call is in this slot of its line.
    Sent(u32),
    Over,
}

/// The future of [`CallClient::call`]: written by hand, so that a call costs no allocation
/// unless it has to wait before it is sent.
#[must_use = "nothing is sent before it is awaited"]
pub struct Calling<'a, Req, Resp, R = &'a Req>
where
    Resp: DeserializeOwned + Send + 'static,
{
    client: &'a CallClient<Req, Resp>,
    /// Index of the function that is called.
    function: usize,
    /// The request, or a reference to it.
    request: R,
    deadline: Option<Instant>,
    /// Time from the first poll to the deadline.
    after: Duration,
    line: Option<Arc<Line<Resp>>>,
    stage: Stage,
    /// The line's provider, if the service has several.
    provider: Option<NodeId>,
    /// Providers that could not take the call.
    tried: Vec<NodeId>,
    /// Whether a request with ends was encoded for an opening of the line.
    pub(super) has_tried: bool,
    /// Set once the only provider has refused the call.
    unserved: Option<Box<Unserved>>,
}

// The request is never pinned.
impl<Req, Resp: DeserializeOwned + Send + 'static, R> Unpin for Calling<'_, Req, Resp, R> {}

impl<Req, Resp: DeserializeOwned + Send + 'static, R> fmt::Debug for Calling<'_, Req, Resp, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calling")
            .field("service", &self.client.inner.service)
            .finish_non_exhaustive()
    }
}

impl<'a, Req, Resp, R> Calling<'a, Req, Resp, R>
where
    Req: Serialize + DeserializeOwned,
    R: Borrow<Req>,
    Resp: Serialize + DeserializeOwned + Send + 'static,
{
    pub(super) fn new(
        client: &'a CallClient<Req, Resp>,
        function: usize,
        request: R,
    ) -> Calling<'a, Req, Resp, R> {
        Calling {
            client,
            function,
            request,
            deadline: None,
            after: Duration::ZERO,
            line: None,
            stage: Stage::Start,
            provider: None,
            tried: Vec::new(),
            has_tried: false,
            unserved: None,
        }
    }

    /// Sends the request, if that can be done now.
    #[inline]
    fn start(&mut self, context: &mut Context<'_>) -> Result<Stage, CallError> {
        let inherited = inherited(&self.function().name);
        if self.line.is_none() {
            self.after = self.client.timeout.unwrap_or_default();
            self.deadline = self.client.timeout.map(|timeout| Instant::now() + timeout);
            if let Some(scope) = inherited.as_ref().and_then(|scope| scope.deadline()) {
                self.limit(scope);
            }
            if self.after.is_zero() && self.deadline.is_some() {
                return Err(self.timed_out());
            }
        }
        let (provider, line) = match (self.provider, self.line.take()) {
            // It was opened for a request with ends.
            (Some(provider), Some(line)) => (Some(provider), line),
            _ => self.client.line(&self.tried)?,
        };
        self.provider = provider;
        if self.function().takes_ends {
            let attempt = self.attempt(&line, inherited.as_deref())?;
            self.line = Some(line);
            return Ok(self.send_later(attempt));
        }
        let mut call = SCRATCH.take();
        call.clear();
        let encoded = self.put(inherited.as_deref(), &mut call);
        encoded.map_err(|error| line.request(SendError::Encode(Arc::new(error))))?;
        let sent = line.try_send(&mut call, self.deadline, context.waker());
        let stage = match sent {
            Ok(Sent::At(slot)) => Stage::Sent(slot),
            Ok(Sent::Not) => {
                let (line, call) = (Arc::clone(&line), std::mem::take(&mut call));
                let deadline = self.deadline;
                self.send_later(async move { line.send(call, deadline).await.map(Some) })
            }
            Err(error) => return Err(error),
        };
        if call.capacity() <= SCRATCH_BYTES_MAX {
            SCRATCH.set(call);
        }
        self.line = Some(line);
        Ok(stage)
    }

    /// Writes the request, in the scope around the call.
    #[inline]
    pub(super) fn put(
        &self,
        scope: Option<&CallScope>,
        call: &mut Vec<u8>,
    ) -> Result<usize, EncodeError> {
        let context = scope.map_or(&[][..], |scope| scope.context().as_bytes());
        if self.deadline.is_none() && context.is_empty() {
            return codec::encode_into_vec(&(wire::call_head(0), self.request.borrow()), call);
        }
        wire::put_call_with(call, With { left_ms: self.deadline.map(left_ms), context });
        codec::encode_into_vec(self.request.borrow(), call)
    }

    /// Takes the deadline of the scope around the call if it is the earlier one.
    #[cold]
    fn limit(&mut self, scope: Instant) {
        if self.deadline.is_none_or(|own| scope < own) {
            (self.deadline, self.after) = (Some(scope), scope - Instant::now());
        }
    }

    #[cold]
    fn send_later(&self, send: impl Future<Output = Attempt> + Send + 'static) -> Stage {
        Stage::Sending(match self.deadline {
            None => Box::pin(async { Ok(send.await) }),
            Some(at) => {
                let left = at - Instant::now();
                Box::pin(host::timeout_on(&self.client.inner.runtime, left, send))
            }
        })
    }

    #[inline]
    fn look(&self, slot: u32, context: &mut Context<'_>) -> Look<Outcome<Resp>> {
        match &self.line {
            Some(line) => line.look(slot, context.waker()),
            None => Look::Late,
        }
    }

    /// Whether a service that refused the call may be still to come: one that is gone is not.
    fn waits_to_be_served(&self) -> bool {
        self.client.is_of_one() && self.line.as_ref().is_some_and(|line| !line.has_served())
    }

    /// Returns the pause after which the call is sent again, since `peer` does not serve the name yet.
    ///
    /// # Errors
    ///
    /// The peer had its time to serve it.
    #[cold]
    fn pause(&mut self, peer: String) -> Result<Stage, CallError> {
        let (client, now) = (self.client, Instant::now());
        let ends = [now.checked_add(client.inner.options.served_within), self.deadline];
        let unserved = self.unserved.get_or_insert_with(|| {
            let until = ends.into_iter().flatten().min();
            let backoff = Backoff::new(now.time().0);
            Box::new(Unserved { peer, began: now, until, backoff })
        });
        let mut pause = unserved.backoff.wait();
        if let Some(until) = unserved.until {
            if now >= until {
                return Err(unserved.error(&client.inner.service, now));
            }
            pause = pause.min(until - now);
        }
        Ok(Stage::Pausing(Box::pin(host::timeout_on(&client.inner.runtime, pause, pending()))))
    }

    /// Ends the wait of a call that has no more time to be sent again.
    #[cold]
    fn end_of_pause(&self) -> Result<Stage, CallError> {
        let now = Instant::now();
        match &self.unserved {
            Some(unserved) if self.deadline.is_some_and(|deadline| now >= deadline) => {
                Err(unserved.error(&self.client.inner.service, now))
            }
            _ => Ok(Stage::Start),
        }
    }

    #[inline]
    fn function(&self) -> &Function {
        self.client.inner.form.function(self.function)
    }

    /// Returns the error of an answer to another method than was called.
    #[cold]
    pub(crate) fn wrong_answer(&self) -> CallError {
        let service = Arc::clone(&self.function().name);
        CallError::Answer { service, source: DecodeError::Variant }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    fn timed_out(&self) -> CallError {
        let (service, after) = (Arc::clone(&self.client.inner.service), self.after);
        CallError::Timeout { service, after }
    }
}

impl<Req, Resp, R> Future for Calling<'_, Req, Resp, R>
where
    Req: Serialize + DeserializeOwned,
    R: Borrow<Req>,
    Resp: Serialize + DeserializeOwned + Send + 'static,
{
    type Output = Result<Resp, CallError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.poll_call(context) {
            Poll::Ready(Err(error)) => {
                Poll::Ready(Err(self.client.inner.form.name_method(error, self.function)))
            }
            polled => polled,
        }
    }
}

impl<Req, Resp, R> Calling<'_, Req, Resp, R>
where
    Req: Serialize + DeserializeOwned,
    R: Borrow<Req>,
    Resp: Serialize + DeserializeOwned + Send + 'static,
{
    fn poll_call(&mut self, context: &mut Context<'_>) -> Poll<Result<Resp, CallError>> {
        let this = &mut *self;
        loop {
            let outcome = match &mut this.stage {
                Stage::Start => {
                    this.stage = this.start(context)?;
                    if matches!(this.stage, Stage::Sent(_)) {
                        return Poll::Pending;
                    }
                    continue;
                }
                Stage::Sending(sending) => match ready!(sending.as_mut().poll(context)) {
                    Ok(Ok(sent)) => {
                        this.stage = sent.map_or(Stage::Start, Stage::Sent);
                        continue;
                    }
                    Ok(Err(error)) => Err(error),
                    Err(_) => Err(this.timed_out()),
                },
                Stage::Pausing(pausing) => {
                    let Err(Elapsed { .. }) = ready!(pausing.as_mut().poll(context));
                    this.stage = Stage::Over;
                    this.stage = this.end_of_pause()?;
                    continue;
                }
                Stage::Sent(slot) => {
                    let slot = *slot;
                    match this.look(slot, context) {
                        Look::Waiting => return Poll::Pending,
                        Look::Answered(Ok(answer)) => Ok(answer),
                        Look::Answered(Err(Some(error))) => Err(error),
                        Look::Late | Look::Answered(Err(None)) => Err(this.timed_out()),
                    }
                }
                Stage::Over => return Poll::Pending,
            };
            // Ends that have left are in one request only.
            let is_last = this.function().takes_ends && matches!(this.stage, Stage::Sent(_));
            match outcome {
                outcome if is_last => {
                    this.stage = Stage::Over;
                    return Poll::Ready(outcome);
                }
                Err(CallError::NoService { peer, .. }) if this.waits_to_be_served() => {
                    this.stage = Stage::Over;
                    this.stage = this.pause(peer)?;
                }
                Err(error) if this.client.goes_on_after(&error) => {
                    this.stage = Stage::Start;
                    this.tried.extend(this.provider.take());
                    // After all were tried, the last provider's error says more than "no provider".
                    let error = match this.start(context) {
                        Ok(stage @ Stage::Sent(_)) => {
                            this.stage = stage;
                            return Poll::Pending;
                        }
                        Ok(stage) => {
                            this.stage = stage;
                            continue;
                        }
                        Err(CallError::NoProvider { why: None, .. }) => error,
                        Err(error) => error,
                    };
                    this.stage = Stage::Over;
                    return Poll::Ready(Err(error));
                }
                outcome => {
                    this.stage = Stage::Over;
                    return Poll::Ready(outcome);
                }
            }
        }
    }
}

impl<Req, Resp: DeserializeOwned + Send + 'static, R> Drop for Calling<'_, Req, Resp, R> {
    fn drop(&mut self) {
        if let (Stage::Sent(slot), Some(line)) = (&self.stage, &self.line) {
            line.abandon(*slot);
        }
    }
}
