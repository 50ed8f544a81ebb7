//! Groups of nodes that call together.
//!
//! ```text
//!   Group       ranks, numbers of calls, the face               this file, forming
//!   Shared      calls that were made, calls that are over       shared
//!   Engine      runs the calls                                  engine, calls, inbox, numbered, io, watching
//!   Standing    one task: runs the engine where no future does  driving
//!   Links       one channel a direction and pair of ranks       links
//! ```

mod calls;
#[cfg(test)]
#[path = "../tests/clusters/mod.rs"]
mod clusters;
mod driving;
pub(crate) mod engine;
pub(crate) mod error;
pub(crate) mod forming;
mod inbox;
pub(crate) mod io;
pub(crate) mod links;
mod numbered;
pub(crate) mod shared;
mod source;
mod watching;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use chunkcomm::layer::{Reports, add_reports};
use chunkcomm::report::{Cell, Report, Section, State, Table};
use chunkcomm::{Peer, host};
use chunkcomm_cluster::Cluster;
use chunkcomm_cluster::cluster::NodeId;
use chunkcomm_cluster::roster::Roster;

use crate::proto::costs::{Choice, Costs};
use crate::proto::schedule::algorithm::Algorithm;
use crate::proto::schedule::world::World;
use crate::proto::talk;
use engine::Engine;
use error::GroupError;
use links::Links;
use shared::Shared;

/// Nodes of a cluster that make calls together: broadcasts, reductions, exchanges.
///
/// Every rank makes the same calls in the same order; the order of the calls is that of the program, and
/// so a group is not `Clone`. A call returns at once, with its number taken; its future yields the
/// result. Calls may be under way side by side: 65,536 at each rank, beyond which one breaks the group
/// ([`GroupError::TooManyCalls`]).
///
/// The first link between two ranks is opened when they first talk. A group costs one task a node.
///
/// ```no_run
/// use chunkcomm_cluster::{Cluster, ClusterConfig};
/// use chunkcomm_group::{Group, Op};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let cluster = Cluster::join(ClusterConfig::new().nodes(4)).await?;
/// let mut group = Group::world(&cluster).await?;
/// let mine = vec![group.rank() as u64; 3];
/// let sums = group.all_reduce(mine, Op::sum()).await?;
/// assert_eq!(sums, [6, 6, 6]);
/// # Ok(())
/// # }
/// ```
///
/// # Deaths
///
/// When a rank dies, every unfinished call ends with [`GroupError::Lost`] and gives its data back, and so
/// does every further call. [`shrink`](Self::shrink) makes a group of the others.
///
/// # Dropping
///
/// Calls that are under way go on. A rank that waits for one that has dropped its group gets
/// [`GroupError::Lost`].
pub struct Group {
    pub(crate) core: Arc<Core>,
    pub(crate) shared: Arc<Shared>,
    held: Arc<Held>,
    pub(crate) algorithm: Algorithm,
    pub(crate) reproducible: bool,
    pub(crate) costs: Costs,
    /// The last choice of an algorithm.
    pub(crate) chosen: Option<(Choice, Algorithm)>,
}

/// Closes the group when it is held no more, and reports its calls until then.
struct Held {
    core: Arc<Core>,
    shared: Arc<Shared>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.tell(|state| state.closed = true);
    }
}

impl Held {
    /// Returns the calls under way, and the ranks that they wait for.
    fn explain(&self) -> GroupReport {
        let state = self.shared.state();
        let calls = state.lines.iter().map(|(number, line)| WaitingCall {
            number,
            call: talk::text(&line.statement),
            waits_for: line.waits_for,
        });
        let (rank, size) = (self.core.rank, self.core.members.len());
        GroupReport { rank, size, calls: calls.collect() }
    }
}

impl Reports for Held {
    fn report(&self, report: &mut Report) {
        let GroupReport { rank, size, calls } = self.explain();
        let made = self.shared.state().made;
        let state = match calls.iter().find_map(|call| call.waits_for) {
            Some(rank) => Cell::state(State::Waits, &format!("waits for rank {rank} of the group")),
            None if calls.is_empty() => Cell::state(State::Idle, "no call waits"),
            None => Cell::state(State::Busy, "calls under way"),
        };
        let mut table = Table::new("calls for 100 ms or more", &["call", "what", "waits for"]);
        for WaitingCall { number, call, waits_for } in calls {
            let whom = waits_for.map_or(Cell::Nothing, |rank| {
                let member = self.core.members[rank].rank;
                Cell::text(&format!("rank {rank} of the group, rank {member} of the cluster"))
            });
            table.row([Cell::Count(number), Cell::text(&call), whom]);
        }
        let section = Section::new("group", &format!("{:016x}", self.core.id))
            .fact("state", state)
            .fact("rank", Cell::Count(rank as u64))
            .fact("ranks", Cell::Count(size as u64))
            .fact("calls made", Cell::Count(made));
        report.add(if table.rows.is_empty() { section } else { section.table(table) });
    }
}

/// Costs of a LAN of 10 Gbit/s, until a group has measured its own.
const LAN: Costs = Costs {
    alpha_ns: 5_000.0,
    latency_ns: 20_000.0,
    beta_ns_per_byte: 0.8,
    gamma_ns_per_byte: 0.1,
};

/// The parts of a group that do not change.
pub(crate) struct Core {
    pub(crate) cluster: Cluster,
    pub(crate) members: Arc<[NodeId]>,
    pub(crate) rank: usize,
    /// Number of the host of each rank, the same at all ranks; equal ones are one host.
    pub(crate) hosts: Vec<u32>,
    pub(crate) world: World,
    pub(crate) id: u64,
}

impl Group {
    /// Makes a group of these members, of whom this node has the rank `rank`, and starts its task.
    pub(crate) fn start(
        cluster: &Cluster,
        members: Vec<NodeId>,
        rank: usize,
        hosts: Vec<u32>,
        id: u64,
    ) -> Group {
        let members: Arc<[NodeId]> = members.into();
        let runtime = cluster.node().runtime();
        let shared = Arc::new(Shared::new(runtime));
        let name: Arc<str> = format!("chunkcomm-group.{id:016x}").into();
        let roster = Roster::new(cluster, Arc::clone(&members));
        let links = Links::new(Arc::clone(&shared), roster, rank, name);
        let engine = Engine::new(Arc::clone(&shared), links);
        host::spawn_on(runtime, shared.stand(host::here(engine.run())));
        let world = World::new(&hosts);
        let core = Arc::new(Core { cluster: cluster.clone(), members, rank, hosts, world, id });
        let held = Arc::new(Held { core: Arc::clone(&core), shared: Arc::clone(&shared) });
        add_reports(cluster.node(), &held);
        Group {
            core,
            held,
            shared,
            algorithm: Algorithm::Auto,
            reproducible: false,
            costs: LAN,
            chosen: None,
        }
    }

    /// Returns the same group once more, with the settings of now, for a value whose methods are calls of it: their
    /// order is that of the program, too. The group is dropped with the last of these.
    #[doc(hidden)]
    #[must_use]
    pub fn share(&self) -> Group {
        let Group { core, shared, held, algorithm, reproducible, costs, chosen } = self;
        Group {
            core: Arc::clone(core),
            shared: Arc::clone(shared),
            held: Arc::clone(held),
            algorithm: *algorithm,
            reproducible: *reproducible,
            costs: *costs,
            chosen: *chosen,
        }
    }

    /// Whether this is the same group as `other`.
    #[doc(hidden)]
    #[must_use]
    pub fn is(&self, other: &Group) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Returns this node's rank in the group, from 0.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.core.rank
    }

    /// Returns the number of ranks.
    #[must_use]
    pub fn size(&self) -> usize {
        self.core.members.len()
    }

    /// Returns the member of the cluster that has a rank of the group.
    ///
    /// # Panics
    ///
    /// When there is no such rank.
    #[must_use]
    pub fn member(&self, rank: usize) -> NodeId {
        self.core.members[rank]
    }

    /// Returns the cluster whose members these are.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.core.cluster
    }

    /// Returns the number of calls that were made.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.shared.state().made
    }

    /// Returns the link to a rank; dials the node if there is none.
    ///
    /// # Errors
    ///
    /// [`GroupError::Lost`] when it cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    ///
    /// # Panics
    ///
    /// When there is no such rank.
    pub async fn peer(&self, rank: usize) -> Result<Peer, GroupError> {
        let peer = self.core.cluster.peer_of(self.member(rank)).await;
        peer.map_err(|loss| GroupError::Lost { rank, loss })
    }

    /// Sets the algorithm of the further calls for which it exists; the others choose as by default
    /// ([`Algorithm::Auto`]). All ranks must set the same.
    pub fn set_algorithm(&mut self, algorithm: Algorithm) {
        self.algorithm = algorithm;
    }

    /// Sets whether further reductions and scans are the sequential fold from rank 0, bit for bit; by
    /// default false. All ranks must set the same.
    pub fn set_reproducible(&mut self, reproducible: bool) {
        self.reproducible = reproducible;
    }

    /// Sets the time after which a wait for a rank is reported to the people who run the node; by default
    /// 10 s.
    pub fn set_report_after(&mut self, time: Duration) {
        self.shared.tell(|state| state.reports_after = Some(time));
    }

    /// Returns the calls under way, and the ranks that they wait for.
    #[must_use]
    pub fn explain(&self) -> GroupReport {
        self.held.explain()
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("rank", &self.rank())
            .field("size", &self.size())
            .finish_non_exhaustive()
    }
}

/// Calls of a group that have been under way for 100 ms or more, made by [`Group::explain`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupReport {
    /// Rank of this node.
    pub rank: usize,
    /// Number of ranks.
    pub size: usize,
    /// The calls.
    pub calls: Vec<WaitingCall>,
}

/// A call under way.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitingCall {
    /// Number of the call in the group, from 1.
    pub number: u64,
    /// The call in words.
    pub call: String,
    /// Rank of which something is to come next.
    pub waits_for: Option<usize>,
}

impl fmt::Display for GroupReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {}: ", self.rank, self.size)?;
        if self.calls.is_empty() {
            return f.write_str("no call waits");
        }
        for (index, WaitingCall { number, call, waits_for }) in self.calls.iter().enumerate() {
            let between = if index > 0 { "; " } else { "" };
            write!(f, "{between}call {number}, {call}")?;
            if let Some(rank) = waits_for {
                write!(f, ", waits for rank {rank}")?;
            }
        }
        Ok(())
    }
}
