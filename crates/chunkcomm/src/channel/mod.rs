//! Floor 3: the ends of channels.
//!
//! Reading order: [`sender`], [`receiver`] for values; [`bytes_sender`],
//! [`bytes_receiver`] for the user's own bytes; [`tx`] and [`calls`], what both
//! senders share; [`gather`] takes from many receivers in turn; [`many`] sends to
//! many; [`ends`], what these two ask of an end of either kind. [`ports`] are ends that
//! travel in messages, [`value`] stands on them.

pub(crate) mod blocking;
pub(crate) mod bytes_receiver;
pub(crate) mod bytes_sender;
mod calls;
pub(crate) mod ends;
pub(crate) mod gather;
pub(crate) mod many;
pub(crate) mod ports;
pub(crate) mod receiver;
pub(crate) mod sender;
pub(crate) mod tx;
pub(crate) mod value;

use crate::error::RecvError;
use crate::proto::packet::Lane;
use std::time::Duration;

/// Where the bytes of a channel land: memory of the caller's.
///
/// See [`BytesReceiver::land`](crate::BytesReceiver::land). The methods are
/// called from the link's driver, in order, never two at a time; they must not
/// block.
pub trait Landing: Send + 'static {
    /// Where the next bytes go. Empty says that nothing more is expected: if
    /// more comes all the same, the landing ends with
    /// [`RecvError::LandingFull`] and the sender learns that its receiver is gone.
    fn room(&mut self) -> &mut [u8];

    /// The first `bytes` of what `room` returned last are filled.
    fn advance(&mut self, bytes: usize);

    /// Nothing more comes: `Ok` when the sender is done, else why.
    fn end(self: Box<Self>, outcome: Result<(), RecvError>);
}

/// How a channel is opened, beside its type and name.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct ChannelOptions {
    pub(crate) lane: Lane,
    /// It is one of the library's own.
    pub(crate) system: bool,
    pub(crate) schema: Option<String>,
    pub(crate) accept_within: Option<Duration>,
    /// Whether the receiver settles.
    pub(crate) settled: bool,
    /// The number of the stream, if the receiver settles.
    pub(crate) stream: Option<u128>,
}

impl ChannelOptions {
    /// The lane of the channel, [`Lane::Bulk`] by default. Express channels
    /// leave before bulk ones of the same link.
    pub fn lane(mut self, lane: Lane) -> ChannelOptions {
        self.lane = lane;
        self
    }

    /// Lets the receiver tell the sender which messages it has settled; off by default, set by the
    /// opening end.
    ///
    /// The receiver settles by hand ([`Receiver::settle`](crate::Receiver::settle)), or when it
    /// takes the next message. The sender waits for that by
    /// [`Sender::sync_settled`](crate::Sender::sync_settled). It counts settled messages in
    /// [`ChannelStats::settled`](crate::ChannelStats::settled).
    ///
    /// Messages that are not settled when the session ends are lost, as without this option.
    /// [`Node::open_redelivering`](crate::Node::open_redelivering) sends such messages again.
    pub fn settled(mut self) -> ChannelOptions {
        self.settled = true;
        self
    }

    /// Goes before the user's channels of its lane.
    pub(crate) fn system(mut self) -> ChannelOptions {
        self.system = true;
        self
    }

    /// Compares this name instead of the type's description. For types that
    /// describe themselves poorly, and for those that may differ on purpose:
    /// then the user promises that what one end encodes the other can decode.
    pub fn schema(mut self, name: impl Into<String>) -> ChannelOptions {
        self.schema = Some(name.into());
        self
    }

    /// Accepts within this time or fails, by [`AcceptError::Late`](crate::AcceptError::Late); no
    /// limit by default.
    ///
    /// It has no effect where a channel is opened. Without a limit a service waits for its next
    /// client as long as that takes. A name that may be misspelt is reported after 5 s by a
    /// warning at both ends.
    pub fn accept_within(mut self, deadline: Duration) -> ChannelOptions {
        self.accept_within = Some(deadline);
        self
    }
}

/// Messages after which `send` and `recv` take one unit of the task's budget,
/// so that a task that always has something to do lets others run.
pub(crate) const MESSAGES_A_BUDGET_UNIT: u32 = 32;

/// The same for a sender on the thread of its driver. What it sends until the budget of 128
/// units is used up fills a packet, even of the smallest messages: tokio lets the task go on
/// only after it has looked at its sockets, and the driver, who runs before, would find an
/// idle link and half a packet. Larger messages fill their ring first, and wait.
const MESSAGES_A_BUDGET_UNIT_AT_HOME: u32 = 128;

/// Counts messages towards the task's budget.
#[derive(Debug, Default)]
pub(crate) struct Turn(u32);

/// A clone's turn begins anew.
impl Clone for Turn {
    fn clone(&self) -> Turn {
        Turn::default()
    }
}

impl Turn {
    /// One more message; true when the budget may have to be asked.
    #[inline]
    pub(crate) fn over(&mut self) -> bool {
        self.0 = self.0.wrapping_add(1);
        self.0.is_multiple_of(MESSAGES_A_BUDGET_UNIT)
    }

    /// A turn was over: the budget is to be asked by a sender who is `home`, on its driver's
    /// thread, or is not.
    pub(crate) fn asks(&self, home: bool) -> bool {
        !home || self.0.is_multiple_of(MESSAGES_A_BUDGET_UNIT_AT_HOME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_at_home_asks_for_its_budget_less_often() {
        for (home, once_in) in [(false, 32), (true, 128)] {
            let mut turn = Turn::default();
            let asked = (1..=1024).filter(|_| turn.over() && turn.asks(home));
            assert!(asked.eq((1..=1024 / once_in).map(|nth| nth * once_in)), "home: {home}");
        }
    }
}
