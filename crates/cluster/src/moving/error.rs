//! Errors of channel ends that move, and of values.

use chunkcomm::{ConnectError, OpenError, RecvError, SendError};
use chunkcomm_proto::plain::Plain;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Reason why the two ends of a channel do not meet, why nothing more comes on it, or why a
/// [`Value`](crate::Value) has no value.
#[derive(Clone)]
#[non_exhaustive]
pub enum TravelError {
    /// The far end was dropped before it was connected.
    Dropped {
        /// Name of the node that dropped it.
        by: String,
    },
    /// The value's writer was dropped without writing.
    Unwritten {
        /// Name of the node that dropped it.
        by: String,
    },
    /// The far end is lost: a node that had it is gone, or the message that carried it was not
    /// taken.
    Lost {
        /// The known cause.
        why: String,
    },
    /// The end's home cannot be reached.
    Unreachable {
        /// The home's name.
        home: String,
        /// Error of the last attempt; `None` when the home listens nowhere and there is no link
        /// with it.
        cause: Option<Arc<ConnectError>>,
    },
    /// The end did not come in a message: it was decoded by other means.
    Stray,
    /// The channel to the end's home could not be opened.
    Open(Arc<OpenError>),
    /// The receiver of the connected channel failed.
    Receive(RecvError),
    /// The sender of the connected channel failed.
    Send(SendError),
    /// The system gave no random numbers.
    System(Arc<std::io::Error>),
}

impl fmt::Display for TravelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TravelError::Dropped { by } => {
                write!(f, "the far end was dropped at {} before it was connected", Plain(by))
            }
            TravelError::Unwritten { by } => {
                write!(f, "the value's writer was dropped at {} without writing", Plain(by))
            }
            TravelError::Lost { why } => write!(f, "the far end is lost: {}", Plain(why)),
            TravelError::Unreachable { home, cause: Some(_) } => {
                write!(f, "{}, where the other end is, cannot be reached", Plain(home))
            }
            TravelError::Unreachable { home, cause: None } => {
                write!(f, "{}, where the other end is, listens nowhere", Plain(home))
            }
            TravelError::Stray => f.write_str("this channel end did not come in a message"),
            TravelError::Open(_) => f.write_str("the channel to the other end could not be opened"),
            TravelError::Receive(error) => error.fmt(f),
            TravelError::Send(error) => error.fmt(f),
            TravelError::System(_) => f.write_str("the system gave no random numbers"),
        }
    }
}

chunkcomm_proto::debug_with_causes!(TravelError);

impl Error for TravelError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            TravelError::Unreachable { cause: Some(error), .. } => Some(error.as_ref()),
            TravelError::Open(error) => Some(error.as_ref()),
            TravelError::Receive(error) => error.source(),
            TravelError::Send(error) => error.source(),
            TravelError::System(error) => Some(error.as_ref()),
            _ => None,
        }
    }
}

/// Error of handing over a value with ends in it. It gives the value back, with its ends.
pub struct HandOverError<T> {
    /// The value that was not sent.
    pub value: T,
    /// The reason.
    pub error: SendError,
}

impl<T> fmt::Debug for HandOverError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&chunkcomm::with_causes(self))
    }
}

impl<T> fmt::Display for HandOverError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T> Error for HandOverError<T> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}
