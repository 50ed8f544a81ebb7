//! How a request is handled: polled once where it was read, then, if it waits, in a task of its
//! own.

use super::scope::{CallScope, enter};
use super::service::Shared;
use crate::moving::crossing::Leaving;
use crate::moving::ends::pack;
use crate::moving::leaving_by;
use crate::proto::call::serving::{Key, Start};
use crate::proto::call::wire::Kind;
use crate::registry::panic_message;
use crate::sync::locked;
use bytes::Bytes;
use chunkcomm::layer::{Owed, RawSender, Staged, Waiting};
use chunkcomm::{Peer, SendError, host};
use serde::Serialize;
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::task::AbortHandle;

/// A service's handler: from a request to the future of its answer.
pub(crate) trait Handler<Req>: Send + Sync + 'static {
    type Answer: Serialize + Send + 'static;
    type Error: fmt::Display + 'static;
    type Running: Future<Output = Result<Self::Answer, Self::Error>> + Send + 'static;

    fn begin(&self, request: Req, peer: &Peer) -> Self::Running;
}

impl<Req, Resp, E, F, Fut> Handler<Req> for F
where
    F: Fn(Req) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Resp, E>> + Send + 'static,
    Resp: Serialize + Send + 'static,
    E: fmt::Display + 'static,
{
    type Answer = Resp;
    type Error = E;
    type Running = Fut;

    fn begin(&self, request: Req, _peer: &Peer) -> Fut {
        self(request)
    }
}

/// Outcome of a request: an answer, or the kind and text sent in its place.
pub(super) type Outcome<A> = Result<A, (Kind, String)>;

/// A place where a handler runs; reused by one handler after another.
pub(super) struct Stall<F> {
    future: Pin<Box<Option<F>>>,
    /// The scope of the call, if it came with one.
    scope: Option<Box<CallScope>>,
}

impl<F: Future<Output = Result<A, E>>, A, E: fmt::Display + 'static> Stall<F> {
    pub(super) fn new() -> Stall<F> {
        Stall { future: Box::pin(None), scope: None }
    }

    /// Begins the future that `begin` returns, in this scope; a panic is an outcome.
    #[inline]
    pub(super) fn begin(
        &mut self,
        scope: Option<Box<CallScope>>,
        begin: impl FnOnce() -> F,
    ) -> Result<(), (Kind, String)> {
        self.scope = scope;
        let future = enter(&mut self.scope, || unpanicked(begin))?;
        self.future.set(Some(future));
        Ok(())
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Outcome<A>> {
        let Stall { future, scope } = self;
        let Some(running) = future.as_mut().as_pin_mut() else { return Poll::Pending };
        let polled = match enter(scope, || unpanicked(|| running.poll(context))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(Ok(answer))) => Ok(answer),
            Ok(Poll::Ready(Err(error))) => {
                unpanicked(|| error.to_string()).and_then(|text| Err((kind_of(&error), text)))
            }
            Err(panicked) => Err(panicked),
        };
        // The handler's own values are dropped before its answer is sent.
        match enter(scope, || unpanicked(|| future.set(None))) {
            Ok(()) => Poll::Ready(polled),
            Err(panicked) => Poll::Ready(Err(panicked)),
        }
    }

    /// Returns the scope of a call that is done.
    pub(super) fn take_scope(&mut self) -> Option<Box<CallScope>> {
        self.scope.take()
    }

    /// Polls the handler once, without a waker. If it waits, its task polls it again before
    /// anything else, so that no wake is lost.
    pub(super) fn poll_once(&mut self) -> Poll<Outcome<A>> {
        self.poll(&mut Context::from_waker(Waker::noop()))
    }
}

/// Returns the kind of answer that tells of a handler's error.
#[cfg(feature = "tower")]
fn kind_of<E: 'static>(error: &E) -> Kind {
    let layered = (error as &dyn std::any::Any).downcast_ref::<super::middleware::Unanswered>();
    layered.map_or(Kind::Failed, |it| it.kind)
}

#[cfg(not(feature = "tower"))]
fn kind_of<E>(_: &E) -> Kind {
    Kind::Failed
}

/// Returns the result of `act`, or its panic. No state of `act` is used after a panic.
pub(super) fn unpanicked<R>(act: impl FnOnce() -> R) -> Result<R, (Kind, String)> {
    catch_unwind(AssertUnwindSafe(act))
        .map_err(|panic| (Kind::Panicked, panic_message(panic.as_ref()).to_owned()))
}

/// Turn of one of the requests that are handled at once. Dropped, it goes to the next request.
pub(super) struct Turn<Req: Send + 'static, H: Handler<Req>>(pub(super) Arc<Shared<Req, H>>);

impl<Req: Send + 'static, H: Handler<Req>> Drop for Turn<Req, H> {
    fn drop(&mut self) {
        self.0.finished();
    }
}

/// A request whose turn comes later.
pub(super) struct Queued<Req> {
    pub(super) request: Req,
    pub(super) scope: Option<Box<CallScope>>,
    /// Sender for the answer.
    pub(super) tx: RawSender,
}

impl<Req: Send + 'static, H: Handler<Req>> Shared<Req, H> {
    /// Lets the handler in `stall` go on in a task.
    pub(super) fn detach(
        self: &Arc<Self>,
        key: Key,
        function: usize,
        stall: Stall<H::Running>,
        tx: RawSender,
    ) {
        let number = locked(&self.serving).detach(key, function);
        self.spawn(key, number, stall, tx);
    }

    /// Starts a request that waited for its turn.
    fn launch(self: &Arc<Self>, start: Start<Queued<Req>>) {
        let Start { key, number, function, request: Queued { request, scope, tx } } = start;
        if scope.as_ref().is_some_and(|scope| scope.is_over()) {
            locked(&self.serving).expired(function);
            let expired = Err((Kind::Expired, String::new()));
            return self.spawn_answer(key, number, expired, tx);
        }
        let mut stall = Stall::new();
        // The task reports a panic here, too.
        let begun = stall.begin(scope, || self.handler.begin(request, tx.peer()));
        match begun {
            Ok(()) => self.spawn(key, number, stall, tx),
            Err(panicked) => self.spawn_answer(key, number, Err(panicked), tx),
        }
    }

    fn spawn(self: &Arc<Self>, key: Key, number: u64, mut stall: Stall<H::Running>, tx: RawSender) {
        // Made here: a task that is dropped before its first poll gives its turn away, too.
        let turn = Turn(Arc::clone(self));
        let task = host::spawn_on(&self.runtime, async move {
            let outcome = poll_fn(|context| stall.poll(context)).await;
            turn.answer(key, number, outcome, tx).await;
        });
        self.attach(key, number, task.abort_handle());
    }

    fn spawn_answer(
        self: &Arc<Self>,
        key: Key,
        number: u64,
        outcome: Outcome<H::Answer>,
        tx: RawSender,
    ) {
        let turn = Turn(Arc::clone(self));
        let task =
            host::spawn_on(
                &self.runtime,
                async move { turn.answer(key, number, outcome, tx).await },
            );
        self.attach(key, number, task.abort_handle());
    }

    fn attach(&self, key: Key, number: u64, task: AbortHandle) {
        let unwanted = locked(&self.serving).attach(key, number, task);
        if let Some(task) = unwanted {
            task.abort();
        }
    }

    /// Ends the turn of a request; the next one that waits begins.
    pub(super) fn finished(self: &Arc<Self>) {
        let mut serving = locked(&self.serving);
        let next = serving.finished();
        let over = serving.is_over();
        drop(serving);
        if let Some(start) = next {
            self.launch_in_turn(start);
        }
        if over {
            self.over.notify_waiters();
        }
    }

    /// Launches one after another: on a runtime that is shutting down a task is dropped where it
    /// is spawned, and gives its turn to the next.
    #[cold]
    fn launch_in_turn(self: &Arc<Self>, start: Start<Queued<Req>>) {
        let mut launching = locked(&self.launching);
        launching.starts.push_back(start);
        if std::mem::replace(&mut launching.busy, true) {
            return;
        }
        while let Some(start) = launching.starts.pop_front() {
            drop(launching);
            self.launch(start);
            launching = locked(&self.launching);
        }
        launching.busy = false;
    }
}

/// Requests whose turn has come, until they are launched.
pub(super) struct Launching<Req> {
    starts: VecDeque<Start<Queued<Req>>>,
    busy: bool,
}

impl<Req> Default for Launching<Req> {
    fn default() -> Launching<Req> {
        Launching { starts: VecDeque::new(), busy: false }
    }
}

impl<Req: Send + 'static, H: Handler<Req>> Turn<Req, H> {
    /// Answers, unless the call was answered before; the turn is over afterwards.
    async fn answer(self, key: Key, number: u64, outcome: Outcome<H::Answer>, mut tx: RawSender) {
        let wanted = locked(&self.0.serving).answers(key, number);
        if wanted && let Ok(later) = self.0.stage_answer(&mut tx, key.slot, &outcome) {
            // Fails when the client is gone; its connection learns of that itself.
            let _ = self.0.send(later, &mut tx).await;
        }
    }
}

/// Part of an answer that waits for room.
pub(super) enum Later {
    Nothing,
    /// The message is in the sender's scratch.
    Scratch,
    /// The message, and ends that leave with it.
    Encoded(Bytes, Option<Leaving>),
}

impl<Req, H: Handler<Req>> Shared<Req, H> {
    /// Sends what waits for room, also while the node closes.
    pub(super) async fn send(&self, later: Later, tx: &mut RawSender) -> Result<(), SendError> {
        if matches!(later, Later::Nothing) {
            return Ok(());
        }
        let (service, client) = (&self.name, tx.peer().name());
        let owed = format!("an answer of service {service:?} to {client}");
        let _owed = Owed::begin(&self.node, owed);
        match later {
            Later::Nothing => Ok(()),
            Later::Scratch => tx.stage_later(Waiting::Scratch).await,
            Later::Encoded(bytes, leaving) => {
                tx.stage_later(Waiting::Bytes(&bytes)).await?;
                leaving.into_iter().for_each(Leaving::accepted);
                Ok(())
            }
        }
    }
}

impl<Req: Send + 'static, H: Handler<Req>> Shared<Req, H> {
    /// Stages an answer.
    ///
    /// # Errors
    ///
    /// The channel has ended.
    #[inline]
    pub(super) fn stage_answer(
        &self,
        tx: &mut RawSender,
        slot: u32,
        outcome: &Outcome<H::Answer>,
    ) -> Result<Later, SendError> {
        match outcome {
            Ok(answer) if self.form.returns_ends && self.has_ends(answer) => {
                stage_with_ends(tx, slot, answer)
            }
            Ok(answer) => match unpanicked(|| tx.stage(&(Kind::Value.head(slot), answer))) {
                Ok(Ok(Staged::Done)) => Ok(Later::Nothing),
                Ok(Ok(Staged::Full)) => Ok(Later::Scratch),
                Ok(Err(error)) => stage_unsendable(tx, slot, error),
                Err((_, text)) => stage_text(tx, slot, Kind::Unsendable, &text),
            },
            Err((kind, text)) => stage_text(tx, slot, *kind, text),
        }
    }

    fn has_ends(&self, answer: &H::Answer) -> bool {
        self.form.function((self.indices.of_answer)(answer)).returns_ends
    }
}

/// Stages an answer with channel ends in it, which leave with it. It is encoded once: ends leave once.
#[cold]
fn stage_with_ends<A: Serialize>(
    tx: &mut RawSender,
    slot: u32,
    answer: &A,
) -> Result<Later, SendError> {
    let leaving = leaving_by(tx.peer(), tx.watch());
    let (bytes, leaving) = match unpanicked(|| pack(&(Kind::Value.head(slot), answer), leaving)) {
        Ok(Ok(packed)) => packed,
        Ok(Err(error)) => return stage_unsendable(tx, slot, error),
        Err((_, text)) => return stage_text(tx, slot, Kind::Unsendable, &text),
    };
    match tx.stage_waiting(&Waiting::Bytes(&bytes)) {
        Ok(Staged::Done) => {
            leaving.accepted();
            Ok(Later::Nothing)
        }
        Ok(Staged::Full) => Ok(Later::Encoded(bytes, Some(leaving))),
        Err(error) => stage_unsendable(tx, slot, error),
    }
}

#[cold]
fn stage_unsendable(tx: &mut RawSender, slot: u32, error: SendError) -> Result<Later, SendError> {
    let text = match &error {
        SendError::Encode(why) => why.to_string(),
        SendError::TooLarge { .. } => error.to_string(),
        _ => return Err(error),
    };
    stage_text(tx, slot, Kind::Unsendable, &text)
}

/// Stages an answer that has no value.
#[cold]
pub(super) fn stage_text(
    tx: &mut RawSender,
    slot: u32,
    kind: Kind,
    text: &str,
) -> Result<Later, SendError> {
    let bytes = Bytes::from(kind.with_text(slot, text));
    Ok(match tx.stage_waiting(&Waiting::Bytes(&bytes))? {
        Staged::Done => Later::Nothing,
        Staged::Full => Later::Encoded(bytes, None),
    })
}
