//! One program, many machines: [`Cluster`].
//!
//! ```text
//!   launch      finds this process's place, from its environment alone  -> Place
//!   joining     meets rank 0, builds the node                           -> Node, way to the manager
//!   member      a task on every node: talks with the manager, keeps what the node knows
//!   keeper      a task on rank 0: the manager, its lines, the copies it started
//!   peers names agreeing ending changes      the rest of what a cluster can be asked
//! ```
//!
//! [`crate::proto::cluster`] has the machines that make the decisions. The channels, tasks and
//! processes are here.

mod agreeing;
mod calls;
mod changes;
mod config;
mod ending;
mod error;
mod feeds;
mod joining;
mod keeper;
pub mod launch;
mod layer;
pub(crate) mod lines;
mod member;
mod names;
mod peers;
mod processes;
mod state;

pub use crate::proto::cluster::agreement::Objection;
pub use crate::proto::cluster::membership::{Change, End};
pub use crate::proto::cluster::{Death, Member, NodeId, Refusal};
pub use agreeing::Agreed;
pub use changes::Changes;
pub use config::ClusterConfig;
pub use error::{AgreeError, BarrierError, EndError, JoinError, NameError};

use crate::proto::cluster::membership::Membership;
use chunkcomm::layer::Wait;
use chunkcomm::{Credential, Node, Peer};
use keeper::Keeper;
use launch::Place;
use state::State;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::watch;

/// Nodes of one program on one or many machines, as one of them sees it.
///
/// [`Cluster::join`] finds the place of the process: its launcher, its rank, the number of nodes.
/// It makes a [`Node`] and waits until all others are there. Links to other nodes are dialled when
/// they are first needed ([`Cluster::peer`]).
///
/// Rank 0 runs the *manager*, which knows the members and reports every arrival, departure and
/// death to all of them. When the manager is gone, the others end with an error, unless
/// [`ClusterConfig::rejoin_window`] lets them wait for another. `mpiexec`, `mpirun` and `srun` must
/// then be told to leave the other processes alone when one ends.
///
/// A member is identified by rank *and* incarnation ([`NodeId`]): a node that takes the rank of a
/// dead one is another member.
///
/// Clones are the same membership. When the last one is dropped without [`Cluster::end`], the
/// others see a death, and the processes that this node started are killed.
///
/// ```no_run
/// use chunkcomm_cluster::cluster::{Cluster, ClusterConfig};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // Starts a copy of this program on this machine, unless a launcher started it.
/// let cluster = Cluster::join(ClusterConfig::new().nodes(2)).await?;
/// if cluster.rank() == 0 {
///     let peer = cluster.peer(1).await?;
///     let mut sender = cluster.node().open::<u64>(&peer, "numbers").await?;
///     sender.send(&42).await?;
/// } else {
///     let (_, mut numbers) = cluster.node().accept::<u64>("numbers").await?;
///     assert_eq!(numbers.recv().await?, Some(42));
/// }
/// cluster.end(Duration::from_secs(10)).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Cluster {
    shared: Arc<Shared>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("rank", &self.rank())
            .field("size", &self.size())
            .finish_non_exhaustive()
    }
}

/// A cluster that this handle does not keep alive ([`Cluster::downgrade`]).
#[derive(Clone, Debug)]
pub struct WeakCluster(Weak<Shared>);

impl WeakCluster {
    /// Returns the cluster, unless its last handle was dropped.
    #[must_use]
    pub fn upgrade(&self) -> Option<Cluster> {
        self.0.upgrade().map(|shared| Cluster { shared })
    }
}

/// State of this node, and the task that talks to the manager.
struct Shared {
    state: Arc<State>,
    place: Place,
    credential: Option<Credential>,
    id: NodeId,
    /// Tells [`Cluster::dropped`] by its drop.
    lives: watch::Sender<()>,
    /// Task that ends with this.
    _member: joining::Talk,
    /// On rank 0 only.
    keeper: Mutex<Option<Keeper>>,
    /// Files, and folders of sockets, by which the nodes met.
    _removed: joining::Leftovers,
}

impl Cluster {
    /// Finds the place of this process, starts the others if that is its task, and waits until all
    /// are there.
    ///
    /// Call it first thing in `main`, on every node, with the same settings.
    ///
    /// - A process that another node started gets its orders through standard input. On Unix the
    ///   program then reads an empty standard input.
    /// - With a hosts file, the process that the user started only passes on the output of the
    ///   nodes. There the call does not return, but ends the process with the highest exit status
    ///   of the nodes.
    /// - From this call on, SIGUSR1 does not end the process. Some launchers send it to the
    ///   remaining processes when one dies (`mpiexec -disable-auto-cleanup`).
    ///
    /// # Errors
    ///
    /// The environment makes no sense, a machine or program cannot be had, a node is not ready in
    /// time, or the nodes disagree. The error names the variable, host or rank. No started process
    /// is left.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, there is no node, and processes that were started are killed.
    pub async fn join(config: ClusterConfig) -> Result<Cluster, JoinError> {
        joining::join(config).await
    }

    /// Returns the cluster that a node is a member of, unless it has ended there. Counts as a clone.
    #[must_use]
    pub fn of(node: &Node) -> Option<Cluster> {
        layer::started_cluster_of(node)
    }

    /// Returns this node's index, from 0.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.shared.id.rank
    }

    /// Returns the rank and incarnation of this node.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.shared.id
    }

    /// Returns the number of nodes that started the cluster: ranks 0 to `size` - 1.
    ///
    /// Later nodes have higher ranks; see [`Cluster::members`].
    #[must_use]
    pub fn size(&self) -> u32 {
        self.shared.state.look(Membership::size)
    }

    /// Returns the nodes that started the cluster, by rank: ranks 0 to [`size`](Self::size) - 1.
    ///
    /// It is the same list at all members, also at later ones. It stays the same when one of these
    /// nodes dies or leaves, and when another takes its rank.
    #[must_use]
    pub fn founders(&self) -> Vec<NodeId> {
        self.shared.state.look(|it| it.founders().to_vec())
    }

    /// Returns the host of each founder, by rank, as it was at the start: the same list at all founders,
    /// whoever is gone by now. At a later member, the host of a founder that was gone before it is empty.
    #[must_use]
    pub fn founder_hosts(&self) -> Vec<String> {
        self.shared.state.look(|it| it.founder_hosts().to_vec())
    }

    /// Returns this node, which opens and accepts channels.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.shared.state.node
    }

    /// Returns a handle that does not keep the membership alive.
    #[must_use]
    pub fn downgrade(&self) -> WeakCluster {
        WeakCluster(Arc::downgrade(&self.shared))
    }

    /// Returns a future that ends when the last handle of this membership is dropped, and does not keep it
    /// alive.
    pub fn dropped(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut lives = self.shared.lives.subscribe();
        async move { while lives.changed().await.is_ok() {} }
    }

    /// Returns the place of this process, and how it was found.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.shared.place
    }

    /// Returns the secret by which the nodes of this cluster know each other: the one that was given, or the one
    /// that was made for this cluster. Without one, any program that reaches the nodes may join.
    ///
    /// A program that is to join later needs it, in a file that `CHUNKCOMM_CREDENTIAL_FILE` names.
    #[must_use]
    pub fn credential(&self) -> Option<&Credential> {
        self.shared.credential.as_ref()
    }

    /// Returns all present members, by rank, this node included.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        self.shared.state.look(|it| it.members().values().cloned().collect())
    }

    /// Returns the member that has this rank now.
    #[must_use]
    pub fn member(&self, rank: u32) -> Option<Member> {
        self.shared.state.look(|it| it.members().get(&rank).cloned())
    }

    /// Returns the member at the other end of a link.
    #[must_use]
    pub fn member_of(&self, peer: &Peer) -> Option<Member> {
        let incarnation = peer.incarnation();
        self.shared.state.look(|it| {
            it.members().values().find(|member| member.id.incarnation == incarnation).cloned()
        })
    }

    /// Returns the time that this node waits for another rank 0; zero if it does not.
    ///
    /// [`ClusterConfig::rejoin_window`] sets it.
    #[must_use]
    pub fn rejoin_window(&self) -> Duration {
        self.shared.state.look(Membership::rejoin_window)
    }

    /// Returns the last 4096 members that died, in the order in which this node learnt of it.
    #[must_use]
    pub fn deaths(&self) -> Vec<Death> {
        self.shared.state.look(|it| it.deaths().to_vec())
    }

    /// Returns a reader of the changes from now on.
    #[must_use]
    pub fn changes(&self) -> Changes {
        let state = Arc::clone(&self.shared.state);
        let next = state.look(Membership::changes);
        Changes { state, next }
    }

    /// Waits until every member has come to this barrier, or is gone.
    ///
    /// Calls from several tasks of one node wait at the same barrier.
    ///
    /// # Errors
    ///
    /// [`BarrierError::Died`] if a member died since the last barrier. All waiting members get it
    /// and pass the barrier; the remaining members meet at the next one. [`BarrierError::Ended`] if
    /// the cluster has ended.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, this node still counts as come; the next call waits at the same
    /// barrier.
    pub async fn barrier(&self) -> Result<(), BarrierError> {
        let state = &self.shared.state;
        let number = state.change(Membership::enter_barrier);
        let barrier = format!("all members to come to barrier {number}");
        let _wait = Wait::begin(&state.node, barrier);
        let passed = state.until(|it| match (it.barrier(number), it.end()) {
            (Some(died), _) => Some(Ok(died.clone())),
            (None, Some(end)) => Some(Err(BarrierError::Ended(end.clone()))),
            (None, None) => None,
        });
        let died = passed.await?;
        state.change(|it| it.leave_barrier(number));
        match died {
            died if died.is_empty() => Ok(()),
            died => Err(BarrierError::Died(died)),
        }
    }
}

/// Whether an end makes the cluster unusable.
fn is_fatal(end: &End) -> bool {
    !matches!(end, End::Finished { .. })
}
