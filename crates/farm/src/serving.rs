//! A node of a cluster as a worker.

use std::fmt;
use std::io;

use chunkcomm::codec::EncodeError;
use chunkcomm::host;
use chunkcomm::{OpenError, RecvError, SendError};
use chunkcomm_cluster::cluster::{End, PeerError};
use chunkcomm_cluster::registry::Difference;
use chunkcomm_cluster::{Cluster, Registry};

use crate::proto::wire::Hello;
use crate::worker::{Served, serve};

/// The rank that [`FarmBuilder::start_in`](crate::FarmBuilder::start_in) is called on.
pub(crate) const FARMER: u32 = 0;

/// Most threads of a worker.
const THREADS_MAX: usize = 1024;

/// Makes this node a worker of the farm that rank 0 starts, or has started, with
/// [`FarmBuilder::start_in`](crate::FarmBuilder::start_in). Returns when that farm is done,
/// dropped or lost, or when the cluster is finished before.
///
/// Call it on every rank but 0, with the registry that the farmer uses. The node computes on one
/// thread for each core that is its share of the host's: cores over nodes of the cluster on that
/// host, rounded down, at least 1. The crate's *Where tasks run* has more. After it has returned it
/// may be called again, for the next farm.
///
/// # Errors
/// See [`ServeError`].
///
/// # Cancel safety
/// When the future is dropped early, the farm has lost this worker, and gives its tasks to others.
/// The node may call again. A farm that starts later fails when it finds the remains of this call.
pub async fn serve_in(cluster: &Cluster, registry: &Registry) -> Result<(), ServeError> {
    let members = cluster.members();
    let me = members.iter().find(|member| member.id == cluster.id());
    let here = members.iter().filter(|member| me.is_some_and(|me| me.host == member.host));
    let threads = host::cores() / here.count().max(1);
    serve_threads_in(cluster, registry, threads.max(1)).await
}

/// Serves as [`serve_in`] does, with this number of threads that compute: 1 to 1024.
///
/// # Errors
/// See [`ServeError`].
///
/// # Cancel safety
/// As [`serve_in`].
pub async fn serve_threads_in(
    cluster: &Cluster,
    registry: &Registry,
    threads: usize,
) -> Result<(), ServeError> {
    let threads = u32::try_from(threads.clamp(1, THREADS_MAX)).unwrap_or(1);
    let serving = async {
        let farmer = cluster.peer(FARMER).await.map_err(ServeError::Farmer)?;
        loop {
            let served = serve(cluster.node(), &farmer, &Hello::Member, registry, threads);
            // The next farm may take it.
            if let Served::Done = served.await? {
                return Ok(());
            }
        }
    };
    let served = tokio::select! {
        biased;
        served = serving => served,
        _ = cluster.finished() => Ok(()),
    };
    match (served, cluster.ended()) {
        // The end of the cluster is the cause of any other error.
        (_, Some(end)) if !matches!(end, End::Finished { .. }) => Err(ServeError::Ended(end)),
        (Err(error), None) => Err(error),
        (Err(error @ (ServeError::Differs(_) | ServeError::Thread(_) | ServeError::Stuck)), _) => {
            Err(error)
        }
        _ => Ok(()),
    }
}

/// Error of a node that could not serve a farm to its end.
#[non_exhaustive]
pub enum ServeError {
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
    /// 64 tasks were given up after their time, and did not end: each has a thread of this process.
    Stuck,
    /// The cluster has ended otherwise than by being finished.
    Ended(End),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
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
            ServeError::Ended(end) => end.fmt(f),
        }
    }
}

chunkcomm::debug_with_causes!(ServeError);

impl std::error::Error for ServeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ServeError::Farmer(error) => error.source(),
            ServeError::Open(error) => error.source(),
            ServeError::Encode(error) => error.source(),
            ServeError::Send(error) => error.source(),
            ServeError::Recv(error) => error.source(),
            ServeError::Thread(error) => Some(error),
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
