//! What can go wrong, by operation. Causes that many share are cheap to clone.

use crate::proto::codec::{DecodeError, EncodeError};
use crate::proto::link::ProtocolError;
use crate::Address;
use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Why the session with a peer ended.
#[derive(Debug, Clone)]
pub struct LinkError {
    inner: Arc<LinkErrorInner>,
}

#[derive(Debug)]
struct LinkErrorInner {
    peer: String,
    cause: LinkCause,
}

/// What ended a session.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum LinkCause {
    /// The connection broke.
    Io(Arc<io::Error>),
    /// The connection ended without the session having been closed: the peer's
    /// process ended, or something between cut it.
    ConnectionLost,
    /// The peer did what the protocol does not allow.
    Protocol(ProtocolError),
    /// The messages of a run do not fill it: the peer's bytes are corrupt.
    CorruptRun {
        /// The peer's number of the channel.
        channel: u32,
    },
    /// The peer closed the session.
    ClosedByPeer,
    /// This node closed the session.
    Closed,
    /// Closing took longer than its deadline.
    CloseDeadline,
    /// The runtime that drove the link is gone.
    DriverGone,
}

impl LinkError {
    pub(crate) fn new(peer: impl Into<String>, cause: LinkCause) -> LinkError {
        LinkError { inner: Arc::new(LinkErrorInner { peer: peer.into(), cause }) }
    }

    /// The peer's name.
    #[must_use]
    pub fn peer(&self) -> &str {
        &self.inner.peer
    }

    /// What ended the session.
    #[must_use]
    pub fn cause(&self) -> &LinkCause {
        &self.inner.cause
    }

    /// The session was closed by one of its ends, not lost.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.inner.cause, LinkCause::Closed | LinkCause::ClosedByPeer)
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peer = &self.inner.peer;
        match &self.inner.cause {
            LinkCause::Io(_) => write!(f, "the connection with {peer} broke"),
            LinkCause::ConnectionLost => write!(f, "the connection with {peer} was lost"),
            LinkCause::Protocol(error) => write!(f, "{peer} broke the protocol: {error}"),
            LinkCause::CorruptRun { channel } => {
                write!(f, "{peer} broke the protocol: messages of channel {channel} lie about their lengths")
            }
            LinkCause::ClosedByPeer => write!(f, "{peer} closed the session"),
            LinkCause::Closed => write!(f, "the session with {peer} was closed here"),
            LinkCause::CloseDeadline => {
                write!(f, "closing the session with {peer} took longer than its deadline")
            }
            LinkCause::DriverGone => {
                write!(f, "the runtime that drove the link with {peer} is gone")
            }
        }
    }
}

impl Error for LinkError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.inner.cause {
            LinkCause::Io(error) => Some(error.as_ref()),
            _ => None,
        }
    }
}

/// What became of the messages of a channel whose session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Account {
    /// Messages that `send` accepted.
    pub accepted: u64,
    /// Of these, known to be in the peer's inbox. What became of the others is
    /// unknown.
    pub acknowledged: u64,
}

impl Account {
    /// Messages of which nobody knows whether they arrived.
    #[must_use]
    pub fn unknown(&self) -> u64 {
        self.accepted - self.acknowledged
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Account { accepted, acknowledged } = self;
        write!(f, "of {accepted} messages {acknowledged} are acknowledged, {} unknown", self.unknown())
    }
}

/// Why nothing can be sent on a channel any more, or one message cannot.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum SendError {
    /// The session ended.
    Lost(Arc<ChannelLost>),
    /// The receiver was dropped.
    Terminated(Arc<ChannelName>),
    /// The peer refused the channel.
    Refused(Arc<ChannelRefused>),
    /// This message is larger than the peer takes; others can be sent.
    TooLarge {
        /// Encoded bytes of the message; when it is unknown how many more there
        /// are, those that were counted.
        bytes: u64,
        /// What the peer takes.
        bytes_max: u64,
    },
    /// The value's `Serialize` refused; nothing was sent, others can be.
    Encode(Arc<EncodeError>),
    /// An item was given to the `Sink` though it was not ready; it was not
    /// accepted.
    NotReady,
    /// This sender was closed.
    Closed,
}

/// A channel whose session ended.
#[derive(Debug)]
pub struct ChannelLost {
    /// The channel's name.
    pub channel: String,
    /// Why the session ended.
    pub link: LinkError,
    /// What became of its messages.
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
    /// Why.
    pub reason: RefusalReason,
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
    /// Nobody accepted, and too many opens wait.
    NotAccepted,
}

impl fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RefusalReason::TypeMismatch { sender, receiver } => {
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
                write!(f, "channel {channel:?}: {link}; {account}")
            }
            SendError::Terminated(name) => {
                let ChannelName { channel, peer } = &**name;
                write!(f, "channel {channel:?}: {peer} dropped the receiver")
            }
            SendError::Refused(refused) => {
                let ChannelRefused { channel, peer, reason } = &**refused;
                write!(f, "channel {channel:?} was refused by {peer}: {reason}")
            }
            SendError::TooLarge { bytes, bytes_max } => {
                write!(f, "a message of {bytes} bytes, where the peer takes at most {bytes_max}")
            }
            SendError::Encode(_) => f.write_str("a message could not be encoded"),
            SendError::NotReady => f.write_str("the sink was not ready for an item"),
            SendError::Closed => f.write_str("the sender is closed"),
        }
    }
}

impl Error for SendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            SendError::Lost(lost) => lost.link.source(),
            SendError::Encode(error) => Some(error.as_ref()),
            _ => None,
        }
    }
}

/// Why `try_send` did not accept a message.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum TrySendError {
    /// The outbox of the channel is full just now.
    Full,
    /// As for `send`.
    Failed(SendError),
}

impl fmt::Display for TrySendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrySendError::Full => f.write_str("the outbox of the channel is full"),
            TrySendError::Failed(error) => error.fmt(f),
        }
    }
}

impl Error for TrySendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            TrySendError::Full => None,
            TrySendError::Failed(error) => error.source(),
        }
    }
}

/// `send_all` stopped.
#[derive(Debug, Clone)]
pub struct SendAllError {
    /// Messages that were accepted before.
    pub accepted: usize,
    /// Why the next was not.
    pub error: SendError,
}

impl fmt::Display for SendAllError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "after {} accepted messages: {}", self.accepted, self.error)
    }
}

impl Error for SendAllError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

/// Why a receiver cannot go on, or one message could not be taken.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum RecvError {
    /// The session ended before the sender was done.
    Lost {
        /// The channel's name.
        channel: Arc<str>,
        /// Why the session ended.
        link: LinkError,
    },
    /// A message could not be decoded. It is gone; the next can be taken.
    Decode {
        /// The channel's name.
        channel: Arc<str>,
        /// The peer's name.
        peer: Arc<str>,
        /// What is wrong.
        error: DecodeError,
    },
    /// The next message is larger than the buffer given; it was left in place.
    BufferTooSmall {
        /// Bytes of the message.
        bytes: usize,
        /// Bytes of the buffer.
        buffer_bytes: usize,
    },
    /// More came than the landing had room for.
    LandingFull {
        /// The channel's name.
        channel: Arc<str>,
    },
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecvError::Lost { channel, link } => write!(f, "channel {channel:?}: {link}"),
            RecvError::Decode { channel, peer, error } => {
                write!(f, "channel {channel:?}: a message from {peer} could not be decoded: {error}")
            }
            RecvError::BufferTooSmall { bytes, buffer_bytes } => {
                write!(f, "the next message has {bytes} bytes, the buffer {buffer_bytes}")
            }
            RecvError::LandingFull { channel } => {
                write!(f, "channel {channel:?}: more came than the landing has room for")
            }
        }
    }
}

impl Error for RecvError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            RecvError::Lost { link, .. } => link.source(),
            _ => None,
        }
    }
}

/// Why `try_recv` gave no message.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum TryRecvError {
    /// None is there just now.
    Empty,
    /// The sender is done and everything was taken.
    Ended,
    /// As for `recv`.
    Failed(RecvError),
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TryRecvError::Empty => f.write_str("no message is there"),
            TryRecvError::Ended => f.write_str("the channel has ended"),
            TryRecvError::Failed(error) => error.fmt(f),
        }
    }
}

impl Error for TryRecvError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            TryRecvError::Failed(error) => error.source(),
            _ => None,
        }
    }
}

/// Why a node could not be built.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum NodeError {
    /// An address cannot be listened at.
    Listen {
        /// The address.
        address: Address,
        /// Why.
        error: Arc<io::Error>,
    },
    /// An address is reachable from other machines, and nobody admits peers yet.
    BeyondLoopback {
        /// The address.
        address: Address,
    },
    /// A setting is impossible.
    Setting {
        /// The setting's name.
        name: &'static str,
        /// What it was given.
        value: String,
        /// What is allowed.
        allowed: String,
    },
    /// There is no tokio runtime here, and no `io_thread` was asked for.
    NoRuntime,
    /// The thread or runtime of `io_thread` could not be started, or the system
    /// gave no random numbers.
    System(Arc<io::Error>),
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeError::Listen { address, .. } => write!(f, "cannot listen at {address}"),
            NodeError::BeyondLoopback { address } => write!(
                f,
                "{address} can be reached from other machines, and anybody could join: listen on \
                 loopback, or set insecure_bind_beyond_loopback"
            ),
            NodeError::Setting { name, value, allowed } => {
                write!(f, "{name} is {value}, allowed is {allowed}")
            }
            NodeError::NoRuntime => {
                f.write_str("a node needs a tokio runtime with I/O and time, or io_thread()")
            }
            NodeError::System(_) => f.write_str("the system refused what a node needs"),
        }
    }
}

impl Error for NodeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            NodeError::Listen { error, .. } | NodeError::System(error) => Some(error.as_ref()),
            _ => None,
        }
    }
}

/// Why there is no link with a peer.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address does not answer.
    Unreachable {
        /// The address.
        address: Address,
        /// Why.
        error: Arc<io::Error>,
    },
    /// What answers is not a node that this one can talk to.
    Hello {
        /// The address.
        address: Address,
        /// What does not fit.
        cause: HelloCause,
    },
    /// The node is closed.
    Closed,
}

/// What does not fit in a peer's hello.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum HelloCause {
    /// It is not a hello.
    Wrong(crate::proto::hello::HelloError),
    /// The two do not agree.
    Disagreement(crate::proto::hello::Disagreement),
    /// The connection broke or ended before the hello was complete.
    Io(Arc<io::Error>),
    /// None came in time.
    Timeout,
}

impl fmt::Display for HelloCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HelloCause::Wrong(error) => error.fmt(f),
            HelloCause::Disagreement(error) => error.fmt(f),
            HelloCause::Io(error) => write!(f, "the connection ended before the hello: {error}"),
            HelloCause::Timeout => f.write_str("no hello came in time"),
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Unreachable { address, error } => {
                write!(f, "{address} cannot be reached: {error}")
            }
            ConnectError::Hello { address, cause } => {
                write!(f, "no session with {address}: {cause}")
            }
            ConnectError::Closed => f.write_str("the node is closed"),
        }
    }
}

impl Error for ConnectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            ConnectError::Hello { cause: HelloCause::Io(error), .. } => Some(error.as_ref()),
            _ => None,
        }
    }
}

/// Why a channel could not be opened.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum OpenError {
    /// The session ended, and the peer could not be dialled again.
    Lost(LinkError),
    /// The session had ended, and a new one could not be had.
    Connect(ConnectError),
    /// The name is empty or longer than 255 bytes.
    Name {
        /// Its bytes.
        bytes: usize,
    },
    /// Values of this type cannot be sent.
    Type(TypeRefused),
}

/// A type whose values cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeRefused {
    /// The type.
    pub type_name: String,
    /// Why not.
    pub reason: String,
}

impl fmt::Display for TypeRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "values of {} cannot be sent: {}", self.type_name, self.reason)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Lost(error) => error.fmt(f),
            OpenError::Connect(error) => error.fmt(f),
            OpenError::Name { bytes } => {
                write!(f, "the name of a channel has {bytes} bytes, allowed are 1 to 255")
            }
            OpenError::Type(refused) => refused.fmt(f),
        }
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            OpenError::Lost(error) => error.source(),
            OpenError::Connect(error) => error.source(),
            _ => None,
        }
    }
}

/// Why `accept` gave no channel. After each, `accept` can be called again.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum AcceptError {
    /// A peer opened the channel with another type; it was refused.
    Mismatch {
        /// The channel's name.
        channel: String,
        /// The peer's name.
        peer: String,
        /// What does not fit.
        reason: RefusalReason,
    },
    /// Values of this type cannot be received.
    Type(TypeRefused),
    /// The node is closed.
    Closed,
}

impl fmt::Display for AcceptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AcceptError::Mismatch { channel, peer, reason } => {
                write!(f, "channel {channel:?} of {peer} was refused: {reason}")
            }
            AcceptError::Type(refused) => refused.fmt(f),
            AcceptError::Closed => f.write_str("the node is closed"),
        }
    }
}

impl Error for AcceptError {}

/// Closing did not get everything acknowledged in time.
#[derive(Debug, Clone)]
pub struct CloseError {
    /// The channels with what was not acknowledged.
    pub channels: Vec<Unacknowledged>,
}

/// A channel that closed with unacknowledged messages.
#[derive(Debug, Clone)]
pub struct Unacknowledged {
    /// The channel's name.
    pub channel: String,
    /// The peer's name.
    pub peer: String,
    /// Its messages.
    pub account: Account,
    /// Why, if the session ended before.
    pub cause: Option<SendError>,
}

impl fmt::Display for CloseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("closed with unacknowledged messages")?;
        for it in &self.channels {
            write!(f, "; channel {:?} to {}: {}", it.channel, it.peer, it.account)?;
        }
        Ok(())
    }
}

impl Error for CloseError {}
