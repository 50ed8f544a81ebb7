//! Errors of a node of a cluster as a worker.

use std::io;

use chunkcomm::Loss;
use chunkcomm::codec::EncodeError;
use chunkcomm::{OpenError, RecvError, SendError};
use chunkcomm_cluster::cluster::{End, NameError};
use chunkcomm_cluster::registry::Difference;

use super::{RunError, found};

/// Error of a node that could not serve a farm to its end.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The farmer cannot be found.
    #[error(transparent)]
    Name(NameError),
    /// The farmer cannot be reached.
    #[error(transparent)]
    Farmer(Loss),
    /// The duplex to the farmer could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A message could not be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// An answer could not be sent: the farmer is gone, or has closed or refused the duplex.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The duplex broke: the farmer is gone.
    #[error(transparent)]
    Recv(#[from] RecvError),
    /// This program does not have a function of the farm, or has it with other types.
    #[error("the farmer registered {}, this program {}", found(&.0.theirs), found(&.0.ours))]
    Differs(Box<Difference>),
    /// The farmer sent bytes that are no assignment: another version of this program?
    #[error("the farmer sent bytes that are no assignment")]
    Malformed,
    /// The thread for the tasks could not be started.
    #[error("the thread for the tasks could not be started")]
    Thread(#[source] io::Error),
    /// This node was a sub-farmer, and its farm could not go on.
    #[error(transparent)]
    Farm(Box<RunError>),
    /// 64 tasks were given up after their time and did not end; each still has a thread of this
    /// process.
    #[error("64 tasks do not end although their time is over")]
    Stuck,
    /// The cluster has ended otherwise than by being finished.
    #[error("{0}")]
    Ended(End),
}

chunkcomm::debug_with_causes!(ServeError);

impl ServeError {
    /// Whether the farmer may be gone, so that another may come.
    pub(crate) fn is_loss(&self) -> bool {
        use ServeError::{Farmer, Open, Recv, Send};
        matches!(self, Farmer(_) | Open(_) | Recv(_) | Send(_))
    }
}
