//! One client of a service: its requests, and their answers.

use super::handling::{Handler, Later, Outcome, Queued, Stall, Turn, stage_text};
use super::requests::{Requests, Word};
use super::scope::CallScope;
use super::service::Shared;
use crate::proto::call::serving::{Cancelled, Key, Refused, Verdict};
use crate::proto::call::wire::Kind;
use crate::sync::locked;
use chunkcomm::SendError;
use chunkcomm::channel::Turn as Budget;
use chunkcomm::layer::{Expected, Next, Opened, Owed, RawSender};
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Time that the last answers have to arrive when a connection ends.
const LAST_ANSWERS: Duration = Duration::from_secs(10);

/// Most bytes of words that are read ahead of their turn, their values included; one word may be beyond.
/// The words of a stop of seconds fit, and the memory of a client stays small beside its window.
const AHEAD_BYTES_MAX: usize = 64 * 1024;

/// A request with the scope of its call.
type Scoped<Req> = (Option<Box<CallScope>>, Req);

/// Reason why a connection ends other than by its client.
enum Broken {
    /// Answers cannot be sent.
    Send(SendError),
    /// The client broke the rules.
    Protocol(&'static str),
}

impl From<SendError> for Broken {
    fn from(error: SendError) -> Broken {
        Broken::Send(error)
    }
}

/// Guard of a connection: when the client leaves, its calls are cancelled.
struct Leaving<Req: Send + 'static, H: Handler<Req>> {
    shared: Arc<Shared<Req, H>>,
    caller: u64,
}

impl<Req: Send + 'static, H: Handler<Req>> Drop for Leaving<Req, H> {
    fn drop(&mut self) {
        let left = locked(&self.shared.serving).leave(self.caller);
        for call in left {
            if let Cancelled::Ran(Some(task)) = call {
                task.abort();
            }
        }
    }
}

struct Connection<Req: DeserializeOwned + Send + 'static, H: Handler<Req>> {
    shared: Arc<Shared<Req, H>>,
    caller: u64,
    requests: Requests<Req, H>,
    tx: RawSender,
    stall: Stall<H::Running>,
    /// Words that were read behind a call with a deadline, with their bytes; no cancellation.
    ahead: VecDeque<(usize, Word<Req>)>,
    ahead_bytes: usize,
    /// Nothing was left when the words ahead were read.
    is_drained: bool,
    budget: Budget,
}

/// Serves the client that opened this channel until the client is done or `stop` is set.
pub(super) async fn serve<Req, H>(
    shared: Arc<Shared<Req, H>>,
    caller: u64,
    opened: Opened,
    expected: Arc<Expected>,
    mut stop: watch::Receiver<bool>,
) where
    Req: DeserializeOwned + Send + 'static,
    H: Handler<Req>,
{
    let service = Arc::clone(&shared.name);
    let lane = opened.lane();
    let rx = match expected.judge(opened, &shared.form.fingerprint).await {
        Ok(rx) => rx,
        Err(error) => return tracing::warn!(%service, ?error, "a client was refused"),
    };
    let client = rx.link().name().to_owned();
    if !rx.link().is_alive() {
        // Nobody would get the answers.
        return;
    }
    let tx = rx.open_back(&shared.node, lane, &shared.form.fingerprint);
    let _leaving = Leaving { shared: Arc::clone(&shared), caller };
    let (stall, budget) = (Stall::new(), Budget::default());
    let owed =
        Owed::standing(&shared.node, format!("an answer of service {service:?} to {client}"));
    let (ahead, ahead_bytes, is_drained) = (VecDeque::new(), 0, false);
    let requests = Requests::new(Arc::clone(&shared), rx);
    let mut connection =
        Connection { shared, caller, requests, tx, stall, ahead, ahead_bytes, is_drained, budget };
    let ran = tokio::select! {
        biased;
        // An answer that waits for room has a debt of its own.
        ran = owed.during(connection.run(), || true) => ran,
        _ = stop.wait_for(|stop| *stop) => Ok(()),
    };
    match ran {
        Err(Broken::Protocol(what)) => tracing::warn!(%service, %client, what, "a client is cut"),
        Err(Broken::Send(error)) => tracing::debug!(%service, %client, ?error, "no more answers"),
        // Answers that were given arrive, or the client is gone.
        Ok(()) => drop(connection.tx.close(LAST_ANSWERS).await),
    }
}

impl<Req, H> Connection<Req, H>
where
    Req: DeserializeOwned + Send + 'static,
    H: Handler<Req>,
{
    async fn run(&mut self) -> Result<(), Broken> {
        loop {
            match self.next_word() {
                Some(Word::Call(slot, Some(scope), request)) if scope.deadline().is_some() => {
                    if self.ahead.is_empty() && self.read_ahead(slot).await? {
                        let function = self.shared.function_of(&request);
                        self.pass_over(slot, function, Kind::Cancelled).await?;
                    } else {
                        self.call(slot, Some(scope), request).await?;
                    }
                }
                Some(Word::Call(slot, scope, request)) => self.call(slot, scope, request).await?,
                Some(Word::Cancel(slot)) => self.cancel(slot).await?,
                Some(Word::Late(slot, function)) => {
                    self.pass_over(slot, function, Kind::Expired).await?;
                }
                Some(Word::Methods) => {}
                Some(Word::Wrong) => return Err(Broken::Protocol("it said what is no request")),
                None => match poll_fn(|context| self.requests.poll_next(context)).await {
                    Next::Ended(_) => return Ok(()),
                    Next::Message | Next::Empty => {}
                },
            }
            if self.budget.over() {
                tokio::task::coop::consume_budget().await;
            }
        }
    }

    #[inline]
    fn next_word(&mut self) -> Option<Word<Req>> {
        if let Some((bytes, word)) = self.ahead.pop_front() {
            self.ahead_bytes -= bytes;
            return Some(match word {
                Word::Call(slot, Some(scope), request) if scope.is_over() => {
                    Word::Late(slot, self.shared.function_of(&request))
                }
                word => word,
            });
        }
        if std::mem::take(&mut self.is_drained) {
            return None;
        }
        self.requests.next().map(|(_, word)| word)
    }

    /// Reads the words that have come behind the call in `slot`, up to a bound, and hears the
    /// cancellations among them; returns whether this call was cancelled.
    async fn read_ahead(&mut self, slot: u32) -> Result<bool, Broken> {
        let (mut is_cancelled, mut read_bytes) = (false, 0);
        // Cancellations count as well: the words of a client that goes on saying them are not all read here.
        while self.ahead_bytes.max(read_bytes) < AHEAD_BYTES_MAX {
            let Some((bytes, word)) = self.requests.next() else {
                self.is_drained = true;
                break;
            };
            read_bytes += bytes;
            let Word::Cancel(cancelled) = word else {
                self.ahead_bytes += bytes;
                self.ahead.push_back((bytes, word));
                continue;
            };
            let is_it = |(_, word): &(_, Word<Req>)| word.is_call(cancelled);
            let at = self.ahead.iter().position(is_it);
            if cancelled == slot {
                is_cancelled = true;
            } else if let Some((bytes, Word::Call(.., request))) =
                at.and_then(|at| self.ahead.remove(at))
            {
                self.ahead_bytes -= bytes;
                let function = self.shared.function_of(&request);
                self.pass_over(cancelled, function, Kind::Cancelled).await?;
            } else {
                self.cancel(cancelled).await?;
            }
        }
        Ok(is_cancelled)
    }

    /// Answers a call that nobody has decided about.
    async fn pass_over(&mut self, slot: u32, function: usize, kind: Kind) -> Result<(), Broken> {
        locked(&self.shared.serving).passed_over(function, kind == Kind::Expired);
        self.say(slot, kind, "").await
    }

    #[inline]
    async fn call(
        &mut self,
        slot: u32,
        scope: Option<Box<CallScope>>,
        request: Outcome<Req>,
    ) -> Result<(), Broken> {
        let request = match request {
            Ok(request) => request,
            Err((kind, text)) => return self.say(slot, kind, &text).await,
        };
        let key = Key { caller: self.caller, slot };
        let function = (self.shared.indices.of_request)(&request);
        let (verdict, taken) = self.ask(key, function, scope, request);
        let (scope, request) = match (verdict, taken) {
            (Verdict::Run, Some(taken)) => taken,
            (Verdict::Run | Verdict::Wait, _) => return Ok(()),
            (Verdict::Twice, _) => {
                return Err(Broken::Protocol("it used the number of a call twice"));
            }
            (Verdict::Refuse(Refused::Overloaded), _) => {
                return self.say(slot, Kind::Overloaded, "").await;
            }
            (Verdict::Refuse(Refused::Closing), _) => {
                return self.say(slot, Kind::Closing, "").await;
            }
        };
        let Some(outcome) = self.begin(key, function, scope, request) else { return Ok(()) };
        match self.shared.stage_answer(&mut self.tx, slot, &outcome) {
            Ok(Later::Nothing) => {
                self.shared.finished();
                Ok(())
            }
            staged => {
                let _turn = Turn(Arc::clone(&self.shared));
                Ok(self.shared.send(staged?, &mut self.tx).await?)
            }
        }
    }

    /// Decides about a request, and returns it with its scope unless it waits.
    #[inline]
    fn ask(
        &self,
        key: Key,
        function: usize,
        scope: Option<Box<CallScope>>,
        request: Req,
    ) -> (Verdict, Option<Scoped<Req>>) {
        let mut serving = locked(&self.shared.serving);
        let verdict = serving.request(key, function);
        if verdict == Verdict::Wait {
            serving.queue(key, function, Queued { request, scope, tx: self.tx.clone() });
            return (verdict, None);
        }
        (verdict, Some((scope, request)))
    }

    /// Handles a request as far as possible without waiting; one that waits goes on in a task.
    #[inline]
    fn begin(
        &mut self,
        key: Key,
        function: usize,
        scope: Option<Box<CallScope>>,
        request: Req,
    ) -> Option<Outcome<H::Answer>> {
        if let Err(panicked) =
            self.stall.begin(scope, || self.shared.handler.begin(request, self.tx.peer()))
        {
            return Some(Err(panicked));
        }
        if !self.shared.parallel
            && let std::task::Poll::Ready(outcome) = self.stall.poll_once()
        {
            self.requests.spare.extend(self.stall.take_scope());
            return Some(outcome);
        }
        let stall = std::mem::replace(&mut self.stall, Stall::new());
        self.shared.detach(key, function, stall, self.tx.clone());
        None
    }

    async fn cancel(&mut self, slot: u32) -> Result<(), Broken> {
        let key = Key { caller: self.caller, slot };
        let cancelled = locked(&self.shared.serving).cancel(key);
        match cancelled {
            // The answer is on the way.
            Cancelled::Over => return Ok(()),
            Cancelled::Waited(_) => {}
            Cancelled::Ran(task) => {
                if let Some(task) = task {
                    task.abort();
                }
            }
        }
        self.say(slot, Kind::Cancelled, "").await
    }

    /// Sends an answer without a value.
    #[cold]
    async fn say(&mut self, slot: u32, kind: Kind, text: &str) -> Result<(), Broken> {
        let later = stage_text(&mut self.tx, slot, kind, text)?;
        Ok(self.shared.send(later, &mut self.tx).await?)
    }
}
