//! One client of a service: its requests, and their answers.

use super::handling::{
    Handler, Later, Outcome, Queued, Stall, Turn, stage_answer, stage_text, unpanicked,
};
use super::scope::CallScope;
use super::service::Shared;
use crate::proto::call::serving::{Cancelled, Key, Refused, Verdict};
use crate::proto::call::wire::{Kind, Request};
use crate::sync::locked;
use chunkcomm::SendError;
use chunkcomm::channel::Turn as Budget;
use chunkcomm::layer::{Expected, Next, Opened, Owed, RawReceiver, RawSender};
use chunkcomm_proto::codec;
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

/// A client's word, its value decoded.
enum Word<Req> {
    Call(u32, Option<Box<CallScope>>, Outcome<Req>),
    Cancel(u32),
    /// A call whose deadline passed behind others, after it was read.
    Late(u32),
    /// Not a word of a client.
    Wrong,
}

impl<Req: DeserializeOwned> Word<Req> {
    fn is_call(&self, slot: u32) -> bool {
        matches!(self, Word::Call(it, ..) if *it == slot)
    }

    #[inline]
    fn of(service: &str, message: &[u8], spare: &mut Spare) -> Word<Req> {
        match Request::parse(message) {
            Some(Request::Call { slot, with, value }) => {
                let scope = with.map(|with| CallScope::arrived(service, with, spare.pop()));
                // A panic in the type's `Deserialize` harms no other call.
                let decoded = match unpanicked(|| codec::decode::<Req>(value)) {
                    Ok(Ok(request)) => Ok(request),
                    Ok(Err(error)) => Err((Kind::Unreadable, error.to_string())),
                    Err((_, text)) => Err((Kind::Unreadable, text)),
                };
                Word::Call(slot, scope, decoded)
            }
            Some(Request::Cancel { slot }) => Word::Cancel(slot),
            None => Word::Wrong,
        }
    }
}

/// Memory for scopes; each moves as a box from call to call.
type Spare = Vec<Box<CallScope>>;

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

struct Connection<Req: Send + 'static, H: Handler<Req>> {
    shared: Arc<Shared<Req, H>>,
    caller: u64,
    rx: RawReceiver,
    tx: RawSender,
    stall: Stall<H::Running>,
    /// Memory for the scopes of the next calls.
    spare: Spare,
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
    let rx = match expected.judge(opened, &shared.fingerprint).await {
        Ok(rx) => rx,
        Err(error) => return tracing::warn!(%service, ?error, "a client was refused"),
    };
    let client = rx.link().name().to_owned();
    if !rx.link().is_alive() {
        // Nobody would get the answers.
        return;
    }
    let tx = rx.open_back(&shared.node, lane, &shared.fingerprint);
    let _leaving = Leaving { shared: Arc::clone(&shared), caller };
    let (stall, budget) = (Stall::new(), Budget::default());
    let owed =
        Owed::standing(&shared.node, format!("an answer of service {service:?} to {client}"));
    let (spare, ahead, ahead_bytes, is_drained) = (Vec::new(), VecDeque::new(), 0, false);
    let mut connection =
        Connection { shared, caller, rx, tx, stall, spare, ahead, ahead_bytes, is_drained, budget };
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
                        self.pass_over(slot, Kind::Cancelled).await?;
                    } else {
                        self.call(slot, Some(scope), request).await?;
                    }
                }
                Some(Word::Call(slot, scope, request)) => self.call(slot, scope, request).await?,
                Some(Word::Cancel(slot)) => self.cancel(slot).await?,
                Some(Word::Late(slot)) => self.pass_over(slot, Kind::Expired).await?,
                Some(Word::Wrong) => return Err(Broken::Protocol("it said what is no request")),
                None => match poll_fn(|context| self.rx.poll_next(context)).await {
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
                Word::Call(slot, Some(scope), _) if scope.is_over() => Word::Late(slot),
                word => word,
            });
        }
        if std::mem::take(&mut self.is_drained) {
            return None;
        }
        let (service, spare) = (&self.shared.name, &mut self.spare);
        self.rx.take_with(|message| Word::of(service, message, spare))
    }

    /// Reads the words that have come behind the call in `slot`, up to a bound, and hears the
    /// cancellations among them; returns whether this call was cancelled.
    async fn read_ahead(&mut self, slot: u32) -> Result<bool, Broken> {
        let (mut is_cancelled, mut read_bytes) = (false, 0);
        // Cancellations count as well: the words of a client that goes on saying them are not all read here.
        while self.ahead_bytes.max(read_bytes) < AHEAD_BYTES_MAX {
            let (service, spare) = (&self.shared.name, &mut self.spare);
            let taken = self.rx.take_with(|message| {
                let bytes = message.len() + size_of::<Word<Req>>();
                (bytes, Word::<Req>::of(service, message, spare))
            });
            let Some((bytes, word)) = taken else {
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
            } else if let Some(at) = at {
                self.ahead_bytes -= self.ahead.remove(at).map_or(0, |(bytes, _)| bytes);
                self.pass_over(cancelled, Kind::Cancelled).await?;
            } else {
                self.cancel(cancelled).await?;
            }
        }
        Ok(is_cancelled)
    }

    /// Answers a call that nobody has decided about.
    async fn pass_over(&mut self, slot: u32, kind: Kind) -> Result<(), Broken> {
        locked(&self.shared.serving).passed_over(kind == Kind::Expired);
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
        let (verdict, taken) = self.ask(key, scope, request);
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
        let Some(outcome) = self.begin(key, scope, request) else { return Ok(()) };
        match stage_answer(&mut self.tx, slot, &outcome) {
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
        scope: Option<Box<CallScope>>,
        request: Req,
    ) -> (Verdict, Option<Scoped<Req>>) {
        let mut serving = locked(&self.shared.serving);
        let verdict = serving.request(key);
        if verdict == Verdict::Wait {
            serving.queue(key, Queued { request, scope, tx: self.tx.clone() });
            return (verdict, None);
        }
        (verdict, Some((scope, request)))
    }

    /// Handles a request as far as possible without waiting; one that waits goes on in a task.
    #[inline]
    fn begin(
        &mut self,
        key: Key,
        scope: Option<Box<CallScope>>,
        request: Req,
    ) -> Option<Outcome<H::Answer>> {
        if let Err(panicked) = self.stall.begin(scope, || self.shared.handler.begin(request)) {
            return Some(Err(panicked));
        }
        if !self.shared.parallel
            && let std::task::Poll::Ready(outcome) = self.stall.poll_once()
        {
            self.spare.extend(self.stall.take_scope());
            return Some(outcome);
        }
        let stall = std::mem::replace(&mut self.stall, Stall::new());
        self.shared.detach(key, stall, self.tx.clone());
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
