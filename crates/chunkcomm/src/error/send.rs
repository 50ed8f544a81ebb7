//! Errors of sending and closing.

use super::{LinkError, LogError, Named};
use crate::proto::causes::with_causes;
use crate::proto::codec::EncodeError;
use crate::proto::plain::Plain;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Account of a channel's messages: accepted, acknowledged or settled, unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Account {
    /// Number of messages that `send` accepted.
    pub accepted: u64,
    /// Number of these that are known to be in the peer's inbox; of a redelivering sender, that
    /// the receiver has settled. The fate of the others is unknown.
    pub acknowledged: u64,
    /// Whether the sender is a redelivering one, so that `acknowledged` counts settled messages.
    pub settles: bool,
}

impl Account {
    /// Returns the number of messages that may or may not have arrived, or been settled.
    #[must_use]
    pub fn unknown(&self) -> u64 {
        self.accepted - self.acknowledged
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Account { accepted, acknowledged, settles } = self;
        let how = if *settles { "settled" } else { "acknowledged" };
        write!(f, "of {accepted} messages {acknowledged} are {how}, {} unknown", self.unknown())
    }
}

/// Why nothing can be sent on a channel any more, or one message cannot.
#[derive(Clone)]
#[non_exhaustive]
pub enum SendError {
    /// The session ended. A redelivering sender with a log may have accepted the message all the
    /// same: [`ChannelStats::stored`](crate::stats::ChannelStats::stored) counts the stored messages.
    Lost(Arc<ChannelLost>),
    /// The receiver was dropped or closed.
    Terminated(Arc<ChannelName>),
    /// The peer refused the channel.
    Refused(Arc<ChannelRefused>),
    /// This message is larger than the peer takes; other messages can be sent.
    TooLarge {
        /// Encoded bytes of the message; those counted so far when its full size is
        /// unknown.
        bytes: u64,
        /// Largest message that the peer takes, in encoded bytes.
        bytes_max: u64,
    },
    /// `reserve` asked for more room than the channel ever has for one message. A message of that
    /// size can still be sent: large messages need no such room.
    TooLargeToReserve {
        /// Bytes that `reserve` asked for.
        bytes: usize,
        /// Most bytes that the channel ever has room for at once.
        bytes_max: usize,
    },
    /// The value's `Serialize` refused, or the value is nested too deep. Nothing was sent; other
    /// values can be sent.
    Encode(Arc<EncodeError>),
    /// `start_send` came without `poll_ready` before it, and there was no room. The message was not
    /// accepted.
    NotReady,
    /// This sender was closed.
    Closed,
    /// The channel was opened without [`ChannelOptions::settled`](crate::ChannelOptions::settled):
    /// its receiver settles nothing.
    NotSettled,
    /// The log of a redelivering sender cannot be written, and the sender accepts nothing more.
    /// Messages stored before are still delivered, by this process or by the next one that opens
    /// the log.
    Log(Arc<LogError>),
    /// The sender has no log ([`Redelivery::log`](crate::Redelivery::log)).
    NotLogged,
}

/// A channel whose session ended.
#[derive(Debug)]
pub struct ChannelLost {
    /// The channel's name.
    pub channel: String,
    /// Why the session ended.
    pub link: LinkError,
    /// The account of its messages.
    pub account: Account,
}

/// A channel and its peer.
#[derive(Debug)]
pub struct ChannelName {
    /// The channel's name.
    pub channel: String,
    /// The peer's name.
    pub peer: String,
}

/// A channel that the peer refused.
#[derive(Debug)]
pub struct ChannelRefused {
    /// The channel's name.
    pub channel: String,
    /// The peer's name.
    pub peer: String,
    /// The reason of the refusal.
    pub reason: RefusalReason,
}

impl fmt::Display for ChannelRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ChannelRefused { channel, peer, reason } = self;
        write!(f, "{} was refused by {peer}: {reason}", Named(channel))
    }
}

/// Why a channel was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalReason {
    /// The ends name different types.
    TypeMismatch {
        /// The sender's type.
        sender: String,
        /// The receiver's type.
        receiver: String,
    },
    /// One end is typed and the other takes bytes.
    KindMismatch,
    /// Nobody accepted the channel, and too many opened channels wait.
    NotAccepted,
}

impl fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RefusalReason::TypeMismatch { sender, receiver } => {
                let (sender, receiver) = (Plain(sender), Plain(receiver));
                write!(f, "the sender's type is {sender}, the receiver's is {receiver}")
            }
            RefusalReason::KindMismatch => f.write_str("one end sends values, the other bytes"),
            RefusalReason::NotAccepted => f.write_str("nobody accepted it, and too many wait"),
        }
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendError::Lost(lost) => {
                let ChannelLost { channel, link, account } = &**lost;
                write!(f, "{link}; {}: {account}", Named(channel))
            }
            SendError::Terminated(name) => {
                let ChannelName { channel, peer } = &**name;
                write!(f, "{}: {peer} closed or dropped the receiver", Named(channel))
            }
            SendError::Refused(refused) => refused.fmt(f),
            SendError::TooLarge { bytes, bytes_max } => {
                write!(f, "a message of {bytes} bytes, where the peer takes at most {bytes_max}")
            }
            SendError::TooLargeToReserve { bytes, bytes_max } => write!(
                f,
                "room for {bytes} bytes was to be reserved, where a channel has room for at most \
                 {bytes_max}; a larger message is sent without"
            ),
            SendError::Encode(_) => f.write_str("a message could not be encoded"),
            SendError::NotReady => f.write_str("start_send came before poll_ready, and there was no room"),
            SendError::Closed => f.write_str("the sender is closed"),
            SendError::Log(error) => error.fmt(f),
            SendError::NotLogged => {
                f.write_str("the sender was opened without Redelivery::log, it stores nothing")
            }
            SendError::NotSettled => f.write_str(
                "the channel was opened without ChannelOptions::settled, its receiver settles nothing",
            ),
        }
    }
}

crate::debug_with_causes!(SendError);

impl Error for SendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            SendError::Lost(lost) => lost.link.source(),
            SendError::Log(error) => error.source(),
            SendError::Encode(error) => Some(error.as_ref()),
            _ => None,
        }
    }
}

/// Why `try_send` did not accept a message.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TrySendError {
    /// The outbox of the channel is full just now.
    #[error("the outbox of the channel is full")]
    Full,
    /// `send` would fail with this error.
    #[error(transparent)]
    Failed(SendError),
}

crate::debug_with_causes!(TrySendError);

/// Error of `send_all`, which stops at the first message that is not accepted.
#[derive(Clone)]
pub struct SendAllError {
    /// Number of messages that were accepted before.
    pub accepted: usize,
    /// The error of the next message.
    pub error: SendError,
}

impl fmt::Display for SendAllError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "after {} accepted messages: {}", self.accepted, self.error)
    }
}

crate::debug_with_causes!(SendAllError);

impl Error for SendAllError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

/// Error of [`send_to_all`](crate::channel::send_to_all): some of the senders did not accept the message.
#[derive(Clone)]
pub struct SendToAllError {
    /// The indices of these senders, in order, each with its error; at least one. All others
    /// accepted the message.
    pub failed: Vec<(usize, SendError)>,
}

impl fmt::Display for SendToAllError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of the senders did not accept the message", self.failed.len())?;
        match self.failed.first() {
            Some((index, error)) => write!(f, ", first sender {index}: {error}"),
            None => Ok(()),
        }
    }
}

crate::debug_with_causes!(SendToAllError);

impl Error for SendToAllError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.failed.first().and_then(|(_, error)| error.source())
    }
}

/// Error of closing: some messages were not acknowledged, not settled, or not said at all.
#[derive(Clone)]
pub struct CloseError {
    /// The channels with unacknowledged messages.
    ///
    /// [`Node::close`](crate::Node::close) adds channels of sessions that ended before, and
    /// channels that were refused before all their messages were acknowledged. It adds only those
    /// whose loss no call on a sender has reported, as when the sender was dropped.
    pub channels: Vec<Unacknowledged>,
    /// Number of channels of earlier sessions that found no place in `channels`: the oldest,
    /// beyond the 1024 that a node remembers. A call on their sender may have reported the loss
    /// since. Warnings on `tracing` have their accounts.
    pub forgotten: u64,
    /// Messages that layers of the node still had to say at the deadline, in words; see
    /// [`layer::Owed`](crate::layer::Owed).
    pub unsaid: Vec<String>,
}

/// A channel that closed with unacknowledged messages.
#[derive(Debug, Clone)]
pub struct Unacknowledged {
    /// The channel's name.
    pub channel: String,
    /// The peer's name.
    pub peer: String,
    /// The account of its messages.
    pub account: Account,
    /// The cause, if the session ended or the peer refused the channel before.
    pub cause: Option<SendError>,
}

impl fmt::Display for CloseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settle = !self.channels.is_empty() && self.channels.iter().all(|it| it.account.settles);
        let how = match settle {
            _ if self.channels.is_empty() && self.forgotten == 0 => "unsaid",
            true => "unsettled",
            false => "unacknowledged",
        };
        write!(f, "closed with {how} messages")?;
        for it in &self.channels {
            write!(f, "; {} to {}: {}", Named(&it.channel), it.peer, it.account)?;
            match &it.cause {
                Some(SendError::Lost(lost)) => write!(f, " ({})", with_causes(&lost.link))?,
                Some(SendError::Refused(refused)) => write!(f, " (refused: {})", refused.reason)?,
                _ => {}
            }
        }
        if self.forgotten > 0 {
            write!(f, "; and {} channels of earlier sessions", self.forgotten)?;
        }
        self.unsaid.iter().try_for_each(|what| write!(f, "; not said: {what}"))
    }
}

crate::debug_with_causes!(CloseError);

impl Error for CloseError {}
