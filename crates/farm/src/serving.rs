//! A node of a cluster as a worker.

use std::pin::{Pin, pin};

use chunkcomm::host::{self, Instant};
use chunkcomm_cluster::cluster::{End, NameError, NodeId};
use chunkcomm_cluster::{Cluster, Registry};

use crate::error::ServeError;
use crate::proto::wire::{self, Who};
use crate::remains::Remains;
use crate::settings::FARM_NAME;
use crate::settings::times::{REFUSED, RETRY, SILENT};
use crate::subfarm::Subfarm;
use crate::worker::{Served, Service, serve};

/// Most threads of a worker.
pub(crate) const THREADS_MAX: usize = 1024;

/// Makes this node a worker of the farm that another node starts with
/// [`FarmBuilder::start_in`](crate::FarmBuilder::start_in).
///
/// Call it on every node but the farmer's, before or after the farm starts, with the registry that
/// the farmer uses. Awaiting it returns when the farm is done, dropped or lost, or when the cluster
/// is finished before. It may then be called again, for the next farm.
///
/// In a cluster with a [`rejoin_window`](chunkcomm_cluster::ClusterConfig::rejoin_window) the call
/// does not return when the farmer is lost. The node finishes the tasks that it holds, and serves
/// the next farmer that comes within that time. A farmer with a
/// [journal](crate::FarmBuilder::journal) takes the results, and does not run those tasks again.
///
/// # Errors
/// See [`ServeError`].
///
/// # Cancel safety
/// When the future is dropped early, the farm has lost this worker, and gives its tasks to others.
/// The node may call again.
pub fn serve_in<'a>(cluster: &'a Cluster, registry: &'a Registry) -> Serving<'a> {
    Serving { cluster, registry, threads: None, farm: FARM_NAME.to_owned() }
}

/// Service of a node as a worker, made by [`serve_in`]. It begins when it is awaited.
#[derive(Debug)]
#[must_use = "a node serves when this is awaited"]
pub struct Serving<'a> {
    cluster: &'a Cluster,
    registry: &'a Registry,
    threads: Option<usize>,
    farm: String,
}

impl Serving<'_> {
    /// Sets the number of threads that compute: 1 to 1024.
    ///
    /// The default is the node's share of the host's cores: cores over nodes of the cluster on that
    /// host, rounded down, at least 1. The crate's *Where tasks run* has more.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Serves the farm of this [name](crate::FarmBuilder::name) instead of the one without a name.
    ///
    /// A node may serve several farms at a time; each has its own threads.
    pub fn farm(mut self, name: impl Into<String>) -> Self {
        self.farm = name.into();
        self
    }

    async fn serve(self) -> Result<(), ServeError> {
        let Serving { cluster, registry, threads, farm } = self;
        let threads =
            threads.unwrap_or_else(|| share_of_cores(cluster)).clamp(1, THREADS_MAX) as u32;
        let outlives = !cluster.rejoin_window().is_zero();
        let service = Service { node: cluster.node(), farm: &farm, registry, threads, outlives };
        let served = tokio::select! {
            biased;
            served = serve_whom_told(cluster, &service) => served,
            _ = cluster.finished() => Ok(()),
        };
        match (served, cluster.ended()) {
            // The end of the cluster is the cause of any other error.
            (_, Some(end)) if !matches!(end, End::Finished { .. }) => Err(ServeError::Ended(end)),
            (Err(error), None) => Err(error),
            (
                Err(error @ (ServeError::Differs(_) | ServeError::Thread(_) | ServeError::Stuck)),
                _,
            ) => Err(error),
            _ => Ok(()),
        }
    }
}

impl<'a> IntoFuture for Serving<'a> {
    type Output = Result<(), ServeError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<(), ServeError>> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.serve())
    }
}

/// Returns the number of cores in this node's share of the host.
pub(crate) fn share_of_cores(cluster: &Cluster) -> usize {
    let members = cluster.members();
    let me = members.iter().find(|member| member.id == cluster.id());
    let here = members.iter().filter(|member| me.is_some_and(|me| me.host == member.host));
    host::cores() / here.count().max(1)
}

/// Serves the farmer, or the sub-farmer that it names, until the farm is done.
async fn serve_whom_told(cluster: &Cluster, service: &Service<'_>) -> Result<(), ServeError> {
    let name = wire::duplex(service.farm);
    let window = cluster.rejoin_window();
    let (mut below, mut who) = (None, Who::Member);
    // A lost farmer: its node, the error, and the time until which another may come.
    let mut lost = None;
    let mut remains = None;
    // The farmer in whose farm this node lost its sub-farmer.
    let mut orphan_of = None;
    loop {
        if orphan_of.is_some_and(|farmer| has_finished(cluster, &name, farmer)) {
            return Ok(());
        }
        let farmer = match &lost {
            None => Some(cluster.provider(&name).await),
            &Some((last, until, _)) => next_farmer(cluster, &name, last, until, &mut remains).await,
        };
        let Some(farmer) = farmer else {
            return Err(lost.expect("it was waited for").2);
        };
        let farmer = farmer.map_err(ServeError::Name)?;
        let is_below = below.is_some();
        let rank = below.take().unwrap_or(farmer.rank);
        let served = async {
            let farmer_peer = cluster.peer(rank).await.map_err(ServeError::Farmer)?;
            let unwanted = pin!(unwanted(cluster, &name, farmer, is_below));
            serve(service, &farmer_peer, who, &mut remains, unwanted).await
        };
        let mut served = served.await;
        if served.is_ok() {
            lost = None;
        }
        if let Ok(Served::Farmer(upper)) = served {
            let farm = Subfarm::open(cluster, service, *upper).await;
            served = match farm {
                Ok(farm) => farm.serve().await.map(|()| Served::Done),
                Err(error) => Err(error),
            };
        }
        (below, who) = match served {
            Ok(Served::Below(rank, token)) => (Some(rank), Who::Placed(token)),
            Ok(Served::Done | Served::Farmer(_)) => return Ok(()),
            Err(error @ (ServeError::Thread(_) | ServeError::Stuck)) => return Err(error),
            Ok(Served::NotTaken) if is_below => {
                // The sub-farmer may be about to leave an earlier farm.
                host::sleep(REFUSED).await;
                (None, Who::Orphan)
            }
            // The farmer has another sub-farmer for this node, or is done.
            _ if is_below => {
                orphan_of = Some(farmer);
                (None, Who::Orphan)
            }
            Ok(Served::Cut) => return Ok(()),
            // The next farm may take this node.
            Ok(Served::NotTaken) => (None, Who::Member),
            Ok(Served::Lost(error, left)) => {
                remains = Some(left);
                lost = Some((farmer, Instant::now() + window, error));
                (None, Who::Member)
            }
            Err(error) if service.outlives && error.is_loss() => {
                lost.get_or_insert_with(|| (farmer, Instant::now() + window, error)).0 = farmer;
                (None, Who::Member)
            }
            Err(error) => return Err(error),
        };
    }
}

/// Whether this farmer's node is there and has ended its farm.
fn has_finished(cluster: &Cluster, name: &str, farmer: NodeId) -> bool {
    let is_there = cluster.members().iter().any(|member| member.id == farmer);
    is_there && !cluster.providers(name).contains(&farmer)
}

/// Waits until this time for another farmer, or the same one again. Meanwhile goes on with the
/// tasks of the lost farmer.
async fn next_farmer(
    cluster: &Cluster,
    name: &str,
    last: NodeId,
    until: Instant,
    remains: &mut Option<Box<Remains>>,
) -> Option<Result<NodeId, NameError>> {
    let next = host::timeout_at(until, async {
        // If the lost farmer's node is not known to be gone, only its link may have been cut.
        let _ = host::timeout(RETRY, cluster.withdrawn(name, last)).await;
        cluster.provider(name).await
    });
    let next = match remains {
        Some(remains) => remains.work_until(next).await,
        None => next.await,
    };
    next.ok()
}

/// Waits until a node must no longer wait to be taken. For a sub-farmer it waits a while, for a
/// farmer as long as that has the farm.
async fn unwanted(cluster: &Cluster, name: &str, farmer: NodeId, is_below: bool) {
    if is_below {
        host::sleep(SILENT).await;
    } else {
        cluster.withdrawn(name, farmer).await;
    }
}
