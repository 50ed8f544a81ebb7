//! Errors of receiving.

use super::{ChannelRefused, LinkError, Named};
use crate::proto::codec::DecodeError;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Why a receiver cannot go on, or one message could not be taken.
#[derive(Clone)]
#[non_exhaustive]
pub enum RecvError {
    /// The session ended before the sender was done.
    Lost {
        /// The channel's name.
        channel: Arc<str>,
        /// Why the session ended.
        link: LinkError,
        /// Number of messages that had arrived; all of them could be taken. Whether the sender
        /// had accepted more is unknown.
        arrived: u64,
    },
    /// The peer refused the duplex, so that it sends nothing back.
    Refused(Arc<ChannelRefused>),
    /// A message could not be decoded. That message is gone; the next one can be taken.
    Decode(Arc<DecodeFailed>),
    /// The next message is larger than the buffer given; it was left in place.
    BufferTooSmall {
        /// Bytes of the message.
        bytes: usize,
        /// Bytes of the buffer.
        buffer_bytes: usize,
    },
    /// More bytes came than the landing had room for.
    LandingFull {
        /// The channel's name.
        channel: Arc<str>,
    },
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecvError::Lost { channel, link, arrived } => write!(
                f,
                "{link}; {}: {arrived} messages had arrived, whether more were sent is unknown",
                Named(channel)
            ),
            RecvError::Refused(refused) => refused.fmt(f),
            RecvError::Decode(failed) => {
                let DecodeFailed { channel, peer, .. } = &**failed;
                write!(f, "{}: a message from {peer} could not be decoded", Named(channel))
            }
            RecvError::BufferTooSmall { bytes, buffer_bytes } => {
                write!(f, "the next message has {bytes} bytes, the buffer {buffer_bytes}")
            }
            RecvError::LandingFull { channel } => {
                write!(f, "{}: more came than the landing has room for", Named(channel))
            }
        }
    }
}

crate::debug_with_causes!(RecvError);

impl Error for RecvError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            RecvError::Lost { link, .. } => link.source(),
            RecvError::Decode(failed) => Some(&failed.error),
            _ => None,
        }
    }
}

/// A message that could not be decoded.
#[derive(Debug)]
pub struct DecodeFailed {
    /// The channel's name.
    pub channel: Arc<str>,
    /// The peer's name.
    pub peer: String,
    /// The fault in the message's bytes.
    pub error: DecodeError,
}

/// Why `try_recv` gave no message.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TryRecvError {
    /// No message is there just now.
    #[error("no message is there")]
    Empty,
    /// The sender is done and everything was taken.
    #[error("the channel has ended")]
    Ended,
    /// `recv` would fail with this error.
    #[error(transparent)]
    Failed(RecvError),
}

crate::debug_with_causes!(TryRecvError);
