//! A node of a cluster as a worker.

use std::time::Duration;

use chunkcomm::host;
use chunkcomm_cluster::cluster::End;
use chunkcomm_cluster::{Cluster, Registry};

use crate::error::ServeError;
use crate::proto::wire::Hello;
use crate::subfarm::Subfarm;
use crate::worker::{Served, serve};

/// The rank that [`FarmBuilder::start_in`](crate::FarmBuilder::start_in) is called on.
pub(crate) const FARMER: u32 = 0;

/// Time in which a sub-farmer takes a node that the farmer has sent to it.
const WELCOME: Duration = Duration::from_secs(10);

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
    let serving = serve_whom_told(cluster, registry, threads);
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

/// Serves the farmer, or the sub-farmer that it names, until the farm is done.
async fn serve_whom_told(
    cluster: &Cluster,
    registry: &Registry,
    threads: u32,
) -> Result<(), ServeError> {
    let (mut rank, mut hello) = (FARMER, Hello::Member);
    loop {
        let is_below = rank != FARMER;
        let welcome = is_below.then_some(WELCOME);
        let served = async {
            let farmer = cluster.peer(rank).await.map_err(ServeError::Farmer)?;
            serve(cluster.node(), &farmer, &hello, registry, threads, welcome).await
        };
        (rank, hello) = match served.await {
            Ok(Served::Below(rank)) => (rank, Hello::Member),
            Ok(Served::Farmer(upper)) => {
                return Subfarm::open(cluster, registry, threads, *upper).await?.serve().await;
            }
            Ok(Served::Done) => return Ok(()),
            Err(error @ (ServeError::Thread(_) | ServeError::Stuck)) => return Err(error),
            // The farmer has another sub-farmer.
            _ if is_below => (FARMER, Hello::Orphan),
            Ok(Served::Cut) => return Ok(()),
            // The next farm may take it.
            Ok(Served::NotTaken) => (FARMER, Hello::Member),
            Err(error) => return Err(error),
        };
    }
}
