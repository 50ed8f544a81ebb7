//! Collective calls of a group whose nodes are processes of this machine, or virtual hosts.

use std::mem;
use std::time::Duration;

use chunkcomm::Node;
use chunkcomm::stats::PeerStats;
use chunkcomm_cluster::{Cluster, ClusterConfig};
use chunkcomm_group::{Algorithm, Group, Op, Parts};
use chunkcomm_testkit::free_port;
use serde::{Deserialize, Serialize};

use crate::failure::{Doing, Failure};
use crate::harness::calls::{CallKind, Operation};
use crate::harness::protocol::RuntimeKind;
use crate::harness::ranks::{Control, Player, Traffic};

/// Time after which a process of the cluster that has not ended is killed: 10 s.
const END_DEADLINE: Duration = Duration::from_secs(10);

/// Settings of a group of ours.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OursKind {
    /// Runtime that drives the library.
    pub runtime: RuntimeKind,
    /// Workers of the tokio runtime.
    pub threads: usize,
    /// Name of the algorithm.
    pub algorithm: String,
}

/// Returns the variables by which the processes of a cluster of this many ranks find each other, over
/// loopback TCP.
pub(crate) fn environment(ranks: usize) -> impl Fn(usize) -> [(&'static str, String); 3] {
    let manager = format!("127.0.0.1:{}", free_port());
    move |rank| {
        [
            ("CHUNKCOMM_RANK", rank.to_string()),
            ("CHUNKCOMM_SIZE", ranks.to_string()),
            ("CHUNKCOMM_MANAGER", manager.clone()),
        ]
    }
}

/// Joins the cluster of the environment.
pub(super) async fn join_cluster(runtime: RuntimeKind) -> Result<Cluster, Failure> {
    let builder = Node::builder().quiet();
    let builder = match runtime {
        RuntimeKind::Ambient => builder,
        RuntimeKind::IoThread => builder.io_thread(),
        RuntimeKind::BusyPoll => builder.busy_poll(),
    };
    let config = ClusterConfig::new().node(builder);
    Cluster::join(config).await.doing("joining the cluster")
}

/// Ends the cluster, with all others.
pub(super) async fn end_cluster(cluster: Cluster) -> Result<(), Failure> {
    cluster.end(END_DEADLINE).await.doing("ending the cluster")
}

/// Takes part as one rank, until the near end has ended.
///
/// # Errors
/// If a call fails.
pub async fn serve(port: u16, rank: usize, kind: CallKind, ours: OursKind) -> Result<(), Failure> {
    let cluster = join_cluster(ours.runtime).await?;
    let algorithm = ours.algorithm.parse().doing("understanding the algorithm")?;
    let mut member = Member::join(&cluster, kind).await?;
    member.set_algorithm(algorithm);
    let (mut control, _) = Control::report(port, rank, 0, kind.ranks).await?;
    let served = control.serve(&mut member).await;
    drop(member);
    served?;
    end_cluster(cluster).await
}

/// Returns the traffic of this rank with the others of a group.
pub(super) async fn traffic_of(group: &Group) -> Result<Traffic, Failure> {
    let mut sum = PeerStats::default();
    for rank in (0..group.size()).filter(|rank| *rank != group.rank()) {
        sum = sum.plus(&group.peer(rank).await.doing("looking for a rank")?.stats());
    }
    let PeerStats { packets_sent, message_packets_sent, packet_bytes_sent, writes, reads, .. } =
        sum;
    Ok([packets_sent, message_packets_sent, packet_bytes_sent, writes, reads, sum.credit_waits])
}

/// One rank of the group with its vectors.
pub(crate) struct Member {
    group: Group,
    kind: CallKind,
    /// The rank's vector; after some calls the result.
    data: Vec<f64>,
    /// Lengths of the parts of `data` in an all-to-all.
    counts: Vec<usize>,
    /// Elements that came from all ranks.
    received: Vec<f64>,
}

impl Member {
    /// Joins the group of all members.
    pub(crate) async fn join(cluster: &Cluster, kind: CallKind) -> Result<Self, Failure> {
        let group = Group::world(cluster).await.doing("making the group")?;
        let counts = vec![kind.len() / kind.ranks; kind.ranks];
        let (data, received) = (vec![0.0; kind.len()], Vec::new());
        Ok(Self { group, kind, data, counts, received })
    }

    /// Sets the algorithm of the further calls.
    pub(crate) fn set_algorithm(&mut self, algorithm: Algorithm) {
        self.group.set_algorithm(algorithm);
    }
}

impl Player for Member {
    async fn fill(&mut self, call: u64) -> Result<(), Failure> {
        self.kind.fill(self.group.rank(), call, &mut self.data);
        Ok(())
    }

    async fn meet(&mut self) -> Result<(), Failure> {
        self.group.barrier().await.doing("meeting in a barrier")
    }

    async fn call(&mut self) -> Result<(), Failure> {
        let doing = "calling";
        let data = mem::take(&mut self.data);
        let group = &mut self.group;
        self.data = match self.kind.operation {
            Operation::Barrier => {
                group.barrier().await.doing(doing)?;
                data
            }
            Operation::Broadcast => group.broadcast(0, data).await.doing(doing)?,
            Operation::Reduce => group.reduce(0, data, Op::sum()).await.doing(doing)?,
            Operation::AllReduce => group.all_reduce(data, Op::sum()).await.doing(doing)?,
            Operation::Scan => group.scan(data, Op::sum()).await.doing(doing)?,
            Operation::AllGather => {
                let into = Parts { data: mem::take(&mut self.received), counts: Vec::new() };
                let gathered = group.all_gather_into(data, into).await.doing(doing)?;
                self.received = gathered.result.data;
                gathered.input
            }
            Operation::AllToAll => {
                let parts = Parts { data, counts: mem::take(&mut self.counts) };
                let into = Parts { data: mem::take(&mut self.received), counts: Vec::new() };
                let exchanged = group.all_to_all_into(parts, into).await.doing(doing)?;
                self.received = exchanged.result.data;
                self.counts = exchanged.input.counts;
                exchanged.input.data
            }
        };
        Ok(())
    }

    async fn traffic(&mut self) -> Result<Traffic, Failure> {
        traffic_of(&self.group).await
    }

    async fn is_right(&mut self, call: u64) -> Result<bool, Failure> {
        let rank = self.group.rank();
        let result = match self.kind.operation {
            Operation::AllGather | Operation::AllToAll => &self.received,
            _ => &self.data,
        };
        // A rank that is not the root has its own vector back.
        let len = result.len().min(self.kind.result_len(rank));
        Ok(self.kind.is_right(rank, call, &result[..len]))
    }
}
