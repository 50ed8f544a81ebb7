//! Calls whose requests have channel ends in them. The ends leave by one opening of the line: the request is
//! encoded for that opening, and not sent by another one.

use super::calling::Calling;
use super::error::CallError;
use super::line::{Line, Refusal, Reserved, left_ms};
use super::scope::CallScope;
use crate::moving::crossing::{Carried, Leaving};
use crate::moving::leaving_by;
use crate::proto::call::wire;
use crate::sync::locked;
use bytes::Bytes;
use chunkcomm::SendError;
use chunkcomm::host::Instant;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Borrow;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;

/// Outcome of an attempt to send: the slot of the call, or `None` if it is to begin again.
pub(super) type Attempt = Result<Option<u32>, CallError>;

/// An attempt to send.
pub(super) type Attempting = Pin<Box<dyn Future<Output = Attempt> + Send>>;

impl<Resp: DeserializeOwned + Send + 'static> Line<Resp> {
    /// Returns the number of this opening and the place for the ends that leave by it; `None` if the line is
    /// not open.
    fn leaving(&self) -> Option<(u64, Leaving)> {
        let state = locked(&self.state);
        let up = state.up.as_ref()?;
        let (number, peer, channel) = (up.number, up.tx.peer().clone(), up.tx.watch());
        drop(state);
        Some((number, leaving_by(&peer, channel)))
    }

    /// Sends a call by this opening.
    async fn send_by(
        &self,
        opening: u64,
        mut call: Vec<u8>,
        deadline: Option<Instant>,
        carried: Carried,
    ) -> Result<u32, Refusal> {
        let slot = Reserved::of(self).map_err(Refusal::Request)?;
        locked(&self.state).carried.push((slot.number, carried));
        wire::set_slot(&mut call, slot.number);
        if let Some(deadline) = deadline {
            wire::set_left(&mut call, left_ms(deadline));
        }
        let bytes = Bytes::from(call);
        poll_fn(|context| self.poll_send(context, slot.number, &bytes, deadline, Some(opening)))
            .await?;
        Ok(slot.used())
    }
}

impl<Req, Resp, R> Calling<'_, Req, Resp, R>
where
    Req: Serialize + DeserializeOwned,
    R: Borrow<Req>,
    Resp: Serialize + DeserializeOwned + Send + 'static,
{
    /// Returns the sending of a request with ends in it. Unless the line is open, it is only opened.
    ///
    /// # Errors
    ///
    /// The request cannot be encoded: its ends stay.
    #[cold]
    pub(super) fn attempt(
        &mut self,
        line: &Arc<Line<Resp>>,
        scope: Option<&CallScope>,
    ) -> Result<Attempting, CallError> {
        let mut call = Vec::new();
        let leaving = match line.leaving() {
            None => None,
            Some((opening, leaving)) => {
                let (encoded, leaving) = leaving.during(|| self.put(scope, &mut call));
                encoded.map_err(|error| line.request(SendError::Encode(Arc::new(error))))?;
                Some((opening, leaving))
            }
        };
        let (line, deadline) = (Arc::clone(line), self.deadline());
        let is_first = leaving.is_some() && !std::mem::replace(&mut self.has_tried, true);
        Ok(Box::pin(async move {
            let Some((opening, leaving)) = leaving else { return line.open().await.map(|()| None) };
            match line.send_by(opening, call, deadline, leaving.carried()).await {
                Ok(slot) => {
                    leaving.accepted();
                    Ok(Some(slot))
                }
                // The opening ended meanwhile; the ends come back.
                Err(Refusal::Ended(_)) if is_first => Ok(None),
                Err(Refusal::Ended(error) | Refusal::Request(error)) => Err(error),
            }
        }))
    }
}
