//! Error of a node of a cluster as a worker.

use std::fmt;
use std::io;

use chunkcomm::codec::EncodeError;
use chunkcomm::{OpenError, RecvError, SendError};
use chunkcomm_cluster::cluster::{End, NameError, PeerError};
use chunkcomm_cluster::registry::Difference;

use super::RunError;

/// Error of a node that could not serve a farm to its end.
#[non_exhaustive]
pub enum ServeError {
    /// The farmer cannot be found.
    Name(NameError),
    /// The farmer cannot be reached.
    Farmer(PeerError),
    /// The duplex to the farmer could not be opened.
    Open(OpenError),
    /// A message could not be encoded.
    Encode(EncodeError),
    /// An answer could not be sent: the farmer is gone, or has closed or refused the duplex.
    Send(SendError),
    /// The duplex broke: the farmer is gone.
    Recv(RecvError),
    /// This program does not have a function of the farm, or has it with other types.
    Differs(Box<Difference>),
    /// The farmer sent bytes that are no assignment: another version of this program?
    Malformed,
    /// The thread for the tasks could not be started.
    Thread(io::Error),
    /// This node was a sub-farmer, and its farm could not go on.
    Farm(Box<RunError>),
    /// 64 tasks were given up after their time, and did not end: each has a thread of this process.
    Stuck,
    /// The cluster has ended otherwise than by being finished.
    Ended(End),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServeError::Name(error) => error.fmt(f),
            ServeError::Farmer(error) => error.fmt(f),
            ServeError::Open(error) => error.fmt(f),
            ServeError::Encode(error) => error.fmt(f),
            ServeError::Send(error) => error.fmt(f),
            ServeError::Recv(error) => error.fmt(f),
            ServeError::Differs(found) => match &found.ours {
                Some(ours) => {
                    write!(f, "the farmer registered {}, this program {ours}", found.theirs)
                }
                None => write!(
                    f,
                    "the farmer registered {}, this program no function of that name",
                    found.theirs
                ),
            },
            ServeError::Malformed => f.write_str("the farmer sent bytes that are no assignment"),
            ServeError::Thread(_) => f.write_str("the thread for the tasks could not be started"),
            ServeError::Stuck => f.write_str("64 tasks do not end although their time is over"),
            ServeError::Farm(error) => error.fmt(f),
            ServeError::Ended(end) => end.fmt(f),
        }
    }
}

chunkcomm::debug_with_causes!(ServeError);

impl ServeError {
    /// Whether the farmer may be gone, so that another one may come.
    pub(crate) fn is_loss(&self) -> bool {
        use ServeError::{Farmer, Open, Recv, Send};
        matches!(self, Farmer(_) | Open(_) | Recv(_) | Send(_))
    }
}

impl std::error::Error for ServeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ServeError::Name(error) => error.source(),
            ServeError::Farmer(error) => error.source(),
            ServeError::Open(error) => error.source(),
            ServeError::Encode(error) => error.source(),
            ServeError::Send(error) => error.source(),
            ServeError::Recv(error) => error.source(),
            ServeError::Thread(error) => Some(error),
            ServeError::Farm(error) => error.source(),
            ServeError::Differs(_)
            | ServeError::Malformed
            | ServeError::Stuck
            | ServeError::Ended(_) => None,
        }
    }
}

macro_rules! from {
    ($($variant:ident($error:ty)),+ $(,)?) => {$(
        impl From<$error> for ServeError {
            fn from(error: $error) -> ServeError {
                ServeError::$variant(error)
            }
        }
    )+};
}

from!(Open(OpenError), Encode(EncodeError), Send(SendError), Recv(RecvError),);
