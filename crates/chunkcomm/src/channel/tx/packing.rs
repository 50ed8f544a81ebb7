//! Messages that take channel ends with them.

use super::Tx;
use crate::channel::ports;
use crate::error::SendError;
use crate::moving::crossing::Leaving;
use bytes::Bytes;
use serde::Serialize;
use std::sync::Arc;

impl Tx {
    /// Encodes `value` for this channel, with the ends in it. The ends leave when the caller
    /// reports the message as accepted ([`Leaving::accepted`]).
    pub(crate) fn pack<T: Serialize>(&mut self, value: &T) -> Result<(Bytes, Leaving), SendError> {
        let link = self.with(|end| Arc::clone(&end.link));
        let node = self.peer.node();
        let moving = node.moving();
        let carrier = moving.carrier(&self.shared);
        ports::pack(value, Leaving::new(moving, &moving.line(&link), carrier))
    }
}
