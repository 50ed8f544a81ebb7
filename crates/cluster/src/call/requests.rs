//! The words of one client, read and decoded.

use super::handling::{Handler, Outcome, unpanicked};
use super::scope::CallScope;
use super::service::Shared;
use crate::proto::call::methods::id_of;
use crate::proto::call::wire::{Kind, Request};
use chunkcomm::layer::{Link, Next, RawReceiver, arriving_by};
use chunkcomm_proto::codec::{self, DecodeError};
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A client's word, its value decoded.
pub(super) enum Word<Req> {
    Call(u32, Option<Box<CallScope>>, Outcome<Req>),
    Cancel(u32),
    /// A call whose deadline passed behind others, after it was read, and the index of its function.
    Late(u32, usize),
    /// The methods that the client knows, which were noted.
    Methods,
    /// Not a word of a client.
    Wrong,
}

impl<Req> Word<Req> {
    pub(super) fn is_call(&self, slot: u32) -> bool {
        matches!(self, Word::Call(it, ..) if *it == slot)
    }
}

/// Memory for scopes; each moves as a box from call to call.
type Spare = Vec<Box<CallScope>>;

/// The requests of one client.
///
/// Dropped, it decodes those that have arrived if channel ends may be in them: their homes learn that they are
/// dropped.
pub(super) struct Requests<Req: DeserializeOwned + Send + 'static, H: Handler<Req>> {
    shared: Arc<Shared<Req, H>>,
    rx: RawReceiver,
    link: Link,
    /// The client's methods that the service has not, or has with other types; `None` before the client has
    /// named its methods.
    differing: Option<Vec<u32>>,
    /// Memory for the scopes of the next calls.
    pub(super) spare: Spare,
}

impl<Req: DeserializeOwned + Send + 'static, H: Handler<Req>> Drop for Requests<Req, H> {
    fn drop(&mut self) {
        if self.shared.form.takes_ends {
            while self.next().is_some() {}
        }
    }
}

impl<Req: DeserializeOwned + Send + 'static, H: Handler<Req>> Requests<Req, H> {
    pub(super) fn new(shared: Arc<Shared<Req, H>>, rx: RawReceiver) -> Requests<Req, H> {
        let link = rx.link();
        Requests { shared, rx, link, differing: None, spare: Vec::new() }
    }

    /// Waits for the next word.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Next> {
        self.rx.poll_next(context)
    }

    /// Takes the next word, if there is one, with its bytes in memory.
    #[inline]
    pub(super) fn next(&mut self) -> Option<(usize, Word<Req>)> {
        let Requests { shared, rx, link, differing, spare } = self;
        let mut reading = Reading { shared, link, differing, spare };
        rx.take_with(|message| (message.len() + size_of::<Word<Req>>(), reading.word(message)))
    }
}

/// The parts of a connection that read a word.
struct Reading<'a, Req, H: Handler<Req>> {
    shared: &'a Shared<Req, H>,
    link: &'a Link,
    differing: &'a mut Option<Vec<u32>>,
    spare: &'a mut Spare,
}

impl<Req: DeserializeOwned, H: Handler<Req>> Reading<'_, Req, H> {
    #[inline]
    fn word(&mut self, message: &[u8]) -> Word<Req> {
        let form = &self.shared.form;
        match Request::parse(message) {
            Some(Request::Call { slot, with, value }) => {
                if form.has_methods()
                    && let Some(refusal) = self.refusal(slot, value)
                {
                    return refusal;
                }
                let scope = with.map(|with| {
                    let name = form.function_of(value).map_or(&self.shared.name, |it| &it.name);
                    CallScope::arrived(name, with, self.spare.pop())
                });
                // A panic in the type's `Deserialize` harms no other call.
                let decoded = match unpanicked(|| self.decode(value)) {
                    Ok(Ok(request)) => Ok(request),
                    Ok(Err(error)) => Err((Kind::Unreadable, error.to_string())),
                    Err((_, text)) => Err((Kind::Unreadable, text)),
                };
                Word::Call(slot, scope, decoded)
            }
            Some(Request::Cancel { slot }) => Word::Cancel(slot),
            Some(Request::Methods { keys }) if self.differing.is_none() => {
                *self.differing = form.differing(keys);
                if self.differing.is_some() { Word::Methods } else { Word::Wrong }
            }
            Some(Request::Methods { .. }) | None => Word::Wrong,
        }
    }

    /// Returns the word in the place of a request for a method that the two ends do not share.
    #[inline]
    fn refusal(&self, slot: u32, value: &[u8]) -> Option<Word<Req>> {
        let Some(differing) = &*self.differing else { return Some(Word::Wrong) };
        if !is_among(differing, value) {
            return None;
        }
        let theirs = self.shared.form.signature_of(value);
        Some(Word::Call(slot, None, Err((Kind::NoMethod, theirs))))
    }

    #[inline]
    fn decode(&self, value: &[u8]) -> Result<Req, DecodeError> {
        if self.shared.form.has_ends(value) {
            return arriving_by(&self.shared.node, self.link, || codec::decode(value));
        }
        codec::decode(value)
    }
}

/// Whether a request is for one of these methods.
#[inline]
fn is_among(ids: &[u32], request: &[u8]) -> bool {
    !ids.is_empty() && id_of(request).is_some_and(|id| ids.contains(&id))
}
