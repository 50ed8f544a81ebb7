//! The task that reads a line's answers, wakes their callers, and serves deadlines.

use super::error::CallError;
use super::line::{Line, Outcome};
use crate::moving::crossing::Carried;
use crate::proto::call::calls::Then;
use crate::proto::call::wire::{self, Kind};
use crate::sync::locked;
use chunkcomm::error::LinkCause;
use chunkcomm::host::{Alarm, Instant};
use chunkcomm::layer::{Link, Next, Outcome as End, RawReceiver, arriving_by};
use chunkcomm::{LinkError, SendError};
use chunkcomm_proto::codec::{self, DecodeError};

use chunkcomm::{Node, Peer};
use serde::de::DeserializeOwned;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};

/// Answers handed out under one lock, at most.
const BATCH: usize = 64;

/// Guard of the reading task. However the task ends, every waiting call fails.
pub(super) struct Ending<Resp: DeserializeOwned + Send + 'static> {
    pub(super) line: Weak<Line<Resp>>,
    /// Number of the line's opening that the task reads for.
    pub(super) number: u64,
    pub(super) node: Node,
}

impl<Resp: DeserializeOwned + Send + 'static> Drop for Ending<Resp> {
    fn drop(&mut self) {
        if let Some(line) = self.line.upgrade() {
            // The line has failed before with the reason, or the task was dropped with its runtime.
            let gone = LinkError::new(self.node.name(), LinkCause::DriverGone);
            line.fail(self.number, &line.lost(self.number, gone));
        }
    }
}

/// Reads answers until there are no more.
pub(super) async fn read<Resp: DeserializeOwned + Send + 'static>(
    ending: Ending<Resp>,
    peer: Peer,
    rx: RawReceiver,
    has_ends: bool,
) {
    let (alarm, line) = (Alarm::default(), ending.line.clone());
    let (batch, wakers) = (Vec::new(), Vec::new());
    let (node, link) = (ending.node.clone(), Link::of(&peer));
    let number = ending.number;
    let mut reader = Reader { rx, line, node, link, has_ends, number, alarm, batch, wakers };
    let over = poll_fn(|context| reader.poll_read(context)).await;
    if let (Some(over), Some(line)) = (over, ending.line.upgrade()) {
        line.fail(ending.number, &over.error(&ending, &line, &peer));
    }
}

/// Reason why no more answers come.
enum Over {
    Ended(End),
    Wrong(&'static str),
    Failed(CallError),
}

impl Over {
    fn error<Resp: DeserializeOwned + Send + 'static>(
        self,
        ending: &Ending<Resp>,
        line: &Line<Resp>,
        peer: &Peer,
    ) -> CallError {
        let name = peer.name();
        match self {
            Over::Ended(End::Lost(link, _)) => line.lost(ending.number, link),
            // Channels end in order when this node closes.
            Over::Ended(End::Done) if ending.node.is_closed() => {
                line.lost(ending.number, Link::of(peer).closed())
            }
            Over::Ended(End::Refused(refused)) => line.cause(SendError::Refused(refused)),
            Over::Ended(_) => line.ended(name),
            Over::Failed(error) => error,
            Over::Wrong(what) => {
                let service = Arc::clone(&line.service);
                CallError::Protocol { service, peer: name.to_owned(), what }
            }
        }
    }
}

/// Dropped, it decodes the answers that have arrived if channel ends may be in them: their homes learn that they
/// are dropped.
struct Reader<Resp: DeserializeOwned> {
    rx: RawReceiver,
    line: Weak<Line<Resp>>,
    node: Node,
    link: Link,
    /// Whether channel ends may be in answers.
    has_ends: bool,
    /// Number of the line's opening.
    number: u64,
    alarm: Alarm,
    batch: Vec<(u32, Outcome<Resp>)>,
    wakers: Vec<Waker>,
}

impl<Resp: DeserializeOwned> Drop for Reader<Resp> {
    fn drop(&mut self) {
        let Reader { rx, node, link, has_ends, .. } = self;
        let read = |message: &[u8]| {
            if let Some((_, Kind::Value, value)) = wire::answer(message) {
                drop(decode_value::<Resp>(value, Some((node, link))));
            }
        };
        while *has_ends && rx.take_with(read).is_some() {}
    }
}

impl<Resp: DeserializeOwned + Send + 'static> Reader<Resp> {
    /// Ready when there is nothing more to read; `None` when the line is gone.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Option<Over>> {
        let Some(line) = self.line.upgrade() else { return Poll::Ready(None) };
        loop {
            let budget = ready!(tokio::task::coop::poll_proceed(context));
            match self.take_batch(&line) {
                None => {
                    return Poll::Ready(Some(Over::Wrong("it said what is no answer")));
                }
                Some(0) => {}
                Some(_) => {
                    budget.made_progress();
                    if !self.hand_out(&line) {
                        let what = "it answered what was not asked";
                        return Poll::Ready(Some(Over::Wrong(what)));
                    }
                    continue;
                }
            }
            match self.rx.poll_next(context) {
                Poll::Ready(Next::Ended(end)) => return Poll::Ready(Some(Over::Ended(end))),
                Poll::Ready(_) => {}
                Poll::Pending => break,
            }
        }
        // A service may end the requests and never open the way back.
        if !self.rx.is_open()
            && let Poll::Ready(failed) = line.poll_failed(self.number, context)
        {
            return Poll::Ready(Some(Over::Failed(failed)));
        }
        self.poll_line(&line, context);
        Poll::Pending
    }

    /// Takes and decodes the answers at hand, without the lock; `None` when a message is no answer.
    fn take_batch(&mut self, line: &Line<Resp>) -> Option<usize> {
        while self.batch.len() < BATCH {
            let link = &self.link;
            match self.rx.take_with(|message| decode(message, line, &self.node, link)) {
                Some(answer) => self.batch.push(answer?),
                None => break,
            }
        }
        Some(self.batch.len())
    }

    /// Hands the batch to the callers; returns false when an answer belongs to no call.
    fn hand_out(&mut self, line: &Line<Resp>) -> bool {
        let (mut asked, mut unwanted, mut refused) = (true, Vec::new(), Vec::new());
        let mut state = locked(&line.state);
        state.has_served = true;
        for (slot, outcome) in self.batch.drain(..) {
            refused.extend(state.refused(slot, &outcome));
            match state.calls.handle_answer(slot, outcome) {
                Ok(Then::Wake(waker)) => self.wakers.push(waker),
                Ok(Then::Nothing) => {}
                // Dropped after the lock is released, as are all values of the user.
                Ok(Then::Drop(outcome)) => unwanted.push(outcome),
                Err(_) => asked = false,
            }
        }
        line.note_in_flight(&state);
        drop(state);
        refused.into_iter().for_each(Carried::refused);
        self.wakers.drain(..).for_each(Waker::wake);
        asked
    }

    /// Ends late calls, sends cancellations, and leaves the waker of this task.
    fn poll_line(&mut self, line: &Line<Resp>, context: &mut Context<'_>) {
        let mut state = locked(&line.state);
        let deadline = state.calls.next_deadline();
        let now = deadline.map(|_| Instant::now().time());
        if let Some(now) = now {
            state.calls.handle_timeout(now, &mut self.wakers);
        }
        state.poll_cancel(context);
        let deadline = state.calls.next_deadline();
        if let Some(up) = &mut state.up {
            up.armed = deadline;
            if up.reader.as_ref().is_none_or(|known| !known.will_wake(context.waker())) {
                up.reader = Some(context.waker().clone());
            }
        }
        drop(state);
        self.wakers.drain(..).for_each(Waker::wake);
        if let (Some(deadline), Some(now)) = (deadline, now)
            && self.alarm.poll(context, Some(deadline), now).is_ready()
        {
            context.waker().wake_by_ref();
        }
    }
}

/// Decodes an answer: its slot and its outcome. `None` when it is none.
#[inline]
fn decode<Resp: DeserializeOwned>(
    message: &[u8],
    line: &Line<Resp>,
    node: &Node,
    link: &Link,
) -> Option<(u32, Outcome<Resp>)> {
    let (slot, kind, rest) = wire::answer(message)?;
    if kind == Kind::Value {
        let arrives = line.form.answer_has_ends(rest).then_some((node, link));
        let decoded = decode_value::<Resp>(rest, arrives);
        let failed = |source| CallError::Answer { service: Arc::clone(&line.service), source };
        return Some((slot, decoded.map_err(|error| Some(failed(error)))));
    }
    Some((slot, Err(said(kind, rest, line, link))))
}

/// Decodes the value of an answer; the ends in it arrive at this node by this link.
#[inline]
fn decode_value<Resp: DeserializeOwned>(
    value: &[u8],
    arrives: Option<(&Node, &Link)>,
) -> Result<Resp, DecodeError> {
    // A panic in the type's `Deserialize` harms no other call.
    let decoded = catch_unwind(AssertUnwindSafe(|| match arrives {
        Some((node, link)) => arriving_by(node, link, || codec::decode::<Resp>(value)),
        None => codec::decode::<Resp>(value),
    }));
    decoded.unwrap_or(Err(DecodeError::Refused))
}

#[cold]
fn said<Resp>(kind: Kind, rest: &[u8], line: &Line<Resp>, link: &Link) -> Option<CallError> {
    let service = Arc::clone(&line.service);
    let text = String::from_utf8_lossy(rest).into_owned();
    Some(match kind {
        Kind::Value | Kind::Cancelled | Kind::Expired => return None,
        Kind::Failed => CallError::Failed { service, text },
        Kind::Panicked => CallError::Panicked { service, text },
        Kind::Overloaded => CallError::Overloaded { service },
        Kind::Closing => CallError::Closing { service },
        Kind::Refused => CallError::Refused { service, why: text },
        Kind::Unreadable => CallError::Unreadable { service, text },
        Kind::Unsendable => CallError::Unsendable { service, text },
        Kind::NoMethod => {
            let (peer, theirs) = (link.name().to_owned(), Some(text).filter(|it| !it.is_empty()));
            // The caller knows its own.
            CallError::Method { service, peer, ours: String::new(), theirs }
        }
    })
}
