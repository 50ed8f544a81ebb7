//! One program, many machines: [`Cluster`].
//!
//! ```text
//!   launch      where am I? from the environment, purely        -> Place
//!   joining     meets rank 0, builds the node                   -> Node, a way to the manager
//!   member      a task on every node: its words with the manager, what it knows
//!   keeper      a task on rank 0: the manager, its lines, the copies it started
//! ```
//!
//! The decisions are made by the machines in [`crate::proto::cluster`]; here are
//! the channels, tasks and processes.

mod config;
mod error;
mod joining;
mod keeper;
pub mod launch;
mod lines;
mod member;

pub use crate::proto::cluster::membership::{Change, End};
pub use crate::proto::cluster::{Death, Member, NodeId, Refusal};
pub use config::ClusterConfig;
pub use error::{BarrierError, EndError, JoinError, NameError, PeerError};

use crate::Address;
use crate::driver::clock;
use crate::driver::wakers::locked;
use crate::error::ConnectError;
use crate::proto::cluster::membership::Membership;
use crate::{Node, Peer};
use keeper::Keeper;
use launch::Place;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// The nodes of one program on one or many machines, as one of them sees it.
///
/// [`Cluster::join`] finds out where the process is (which launcher started it, which
/// of how many it is), makes a [`Node`] and waits until all others are there. Links
/// to other nodes are dialled when they are first needed ([`Cluster::peer`]).
///
/// Rank 0 runs the *manager*, which knows the members and tells every one of them who
/// comes, goes and dies. When it is gone, the others end with an error, unless
/// [`ClusterConfig::rejoin_window`] lets them wait for another; under `mpiexec`,
/// `mpirun` and `srun` that needs their clean-up of the others to be off.
///
/// A member is somebody by rank *and* incarnation ([`NodeId`]): who takes the rank of
/// a dead one is somebody else.
///
/// Clones are the same membership. When the last one is dropped without
/// [`Cluster::end`], the others see a death; processes that this one started are
/// killed.
///
/// ```no_run
/// use chunkcomm::cluster::{Cluster, ClusterConfig};
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

/// What this node knows, and the task that talks to the manager.
struct Shared {
    state: Arc<State>,
    place: Place,
    id: NodeId,
    /// Ended with this.
    _member: joining::Talk,
    /// On rank 0.
    keeper: Mutex<Option<Keeper>>,
    /// Sockets' folders and files that nodes met by.
    _removed: joining::Leftovers,
}

/// What the tasks of a node share with its cluster.
struct State {
    node: Node,
    membership: Mutex<Membership>,
    /// Marked whenever the membership may have changed, or has words to say.
    changed: watch::Sender<()>,
    /// Links that there are, by incarnation.
    peers: Mutex<HashMap<u128, Peer>>,
    /// The last word with the manager was spoken.
    over: watch::Sender<bool>,
}

impl State {
    fn new(node: Node, membership: Membership) -> State {
        let (changed, _) = watch::channel(());
        let (over, _) = watch::channel(false);
        State { node, membership: Mutex::new(membership), changed, peers: Mutex::default(), over }
    }

    /// Does something with the membership, and wakes who waits for a change.
    fn change<R>(&self, what: impl FnOnce(&mut Membership) -> R) -> R {
        let result = what(&mut locked(&self.membership));
        self.changed.send_modify(|()| {});
        result
    }

    fn look<R>(&self, what: impl FnOnce(&Membership) -> R) -> R {
        what(&locked(&self.membership))
    }

    /// Waits until `found` finds something in the membership.
    async fn until<R>(&self, mut found: impl FnMut(&Membership) -> Option<R>) -> R {
        let mut changed = self.changed.subscribe();
        loop {
            if let Some(result) = self.look(&mut found) {
                return result;
            }
            changed.changed().await.expect("its sender is in self");
        }
    }

    /// A link that is known to be there.
    fn link(&self, incarnation: u128) -> Option<Peer> {
        let mut peers = locked(&self.peers);
        match peers.get(&incarnation) {
            Some(peer) if peer.is_alive() => Some(peer.clone()),
            Some(_) => {
                peers.remove(&incarnation);
                None
            }
            None => None,
        }
    }

    fn keep_link(&self, peer: &Peer) {
        locked(&self.peers).insert(peer.incarnation(), peer.clone());
    }
}

impl Cluster {
    /// Finds out where this process is, starts the others if that is its to do, and
    /// waits until all are there.
    ///
    /// Call it first thing in `main`, on every node, with the same settings. In a
    /// process that was started by another one of the cluster, standard input is that
    /// one's. With a hosts file the process that the user started only passes on what
    /// the nodes print: there the call does not return, but ends the process with the
    /// highest exit status of the nodes.
    ///
    /// # Errors
    ///
    /// The environment makes no sense, a machine or program cannot be had, somebody is
    /// not ready in time, or the nodes disagree; the error names which variable, host or
    /// rank. Processes that were started are gone.
    ///
    /// # Cancel safety
    ///
    /// Dropped early, there is no node, and processes that were started are killed.
    pub async fn join(config: ClusterConfig) -> Result<Cluster, JoinError> {
        joining::join(config).await
    }

    /// This node's index, from 0.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.shared.id.rank
    }

    /// Who this node is.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.shared.id
    }

    /// How many nodes started the cluster: ranks 0 to `size` - 1. Those who come later
    /// have higher ranks, see [`Cluster::members`].
    #[must_use]
    pub fn size(&self) -> u32 {
        self.shared.state.look(Membership::size)
    }

    /// This node: opens and accepts channels.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.shared.state.node
    }

    /// Where this process found itself, and why.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.shared.place
    }

    /// Everybody who is there now, by rank, this node too.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        self.shared.state.look(|it| it.members().values().cloned().collect())
    }

    /// Who has this rank now.
    #[must_use]
    pub fn member(&self, rank: u32) -> Option<Member> {
        self.shared.state.look(|it| it.members().get(&rank).cloned())
    }

    /// The member at the other end of a link.
    #[must_use]
    pub fn member_of(&self, peer: &Peer) -> Option<Member> {
        let incarnation = peer.incarnation();
        self.shared.state.look(|it| {
            it.members().values().find(|member| member.id.incarnation == incarnation).cloned()
        })
    }

    /// Who died, in the order in which this node learnt of it; the last 4096.
    #[must_use]
    pub fn deaths(&self) -> Vec<Death> {
        self.shared.state.look(|it| it.deaths().to_vec())
    }

    /// The changes from now on.
    #[must_use]
    pub fn changes(&self) -> Changes {
        let state = Arc::clone(&self.shared.state);
        let next = state.look(Membership::changes);
        Changes { state, next }
    }

    /// A link to the node of this rank: the one that is there, else it is dialled now.
    /// This node itself is reached through memory.
    ///
    /// # Errors
    ///
    /// Nobody has this rank, it died, or it cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn peer(&self, rank: u32) -> Result<Peer, PeerError> {
        let state = &self.shared.state;
        if let Some(end) = state.look(|it| it.end().filter(|end| is_fatal(end)).cloned()) {
            return Err(PeerError::Ended(end));
        }
        let member = self.member(rank).ok_or_else(|| self.nobody(rank))?;
        if member.id == self.shared.id {
            return state.node.local().await.map_err(|cause| PeerError::Connect { rank, cause });
        }
        if let Some(peer) = state.link(member.id.incarnation) {
            return Ok(peer);
        }
        let peer = self.dial(&member).await?;
        state.keep_link(&peer);
        Ok(peer)
    }

    fn nobody(&self, rank: u32) -> PeerError {
        let state = &self.shared.state;
        let death =
            state.look(|it| it.deaths().iter().rfind(|death| death.id.rank == rank).cloned());
        match death {
            Some(death) => PeerError::Dead(death),
            None => PeerError::Nobody { rank, size: self.size() },
        }
    }

    async fn dial(&self, member: &Member) -> Result<Peer, PeerError> {
        let rank = member.id.rank;
        let mut cause = ConnectError::Closed;
        for address in &member.addresses {
            let Ok(address) = address.parse::<Address>() else { continue };
            match self.node().connect(&address).await {
                Ok(peer) if peer.incarnation() == member.id.incarnation => return Ok(peer),
                Ok(_) => return Err(PeerError::Replaced { rank }),
                Err(error) => cause = error,
            }
        }
        Err(PeerError::Connect { rank, cause })
    }

    /// Waits until every member has come to this barrier, or is gone.
    ///
    /// Calls from several tasks of one node wait at the same barrier.
    ///
    /// # Errors
    ///
    /// Somebody died since the last barrier: all who came get the same error, the
    /// barrier is passed, and the next one is among those who are left. Or the cluster
    /// has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropped early, this node still counts as come; the next call waits at the same
    /// barrier.
    pub async fn barrier(&self) -> Result<(), BarrierError> {
        let state = &self.shared.state;
        let number = state.change(Membership::enter_barrier);
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

    /// Says to everybody that this node provides something under `name`, and waits until
    /// the manager has told that. Several nodes may provide the same.
    ///
    /// # Errors
    ///
    /// The name is empty or longer than 255 bytes, this node provides 1024 already, or
    /// the cluster has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropped early, it is provided all the same.
    pub async fn provide(&self, name: &str) -> Result<(), NameError> {
        let state = &self.shared.state;
        state.change(|it| it.provide(name));
        let told = state.until(|it| {
            if it.is_name_refused(name) {
                return Some(Err(NameError::Refused { name: name.to_owned() }));
            }
            if it.providers(name).any(|id| id == self.shared.id) {
                return Some(Ok(()));
            }
            it.end().map(|end| Err(NameError::Ended(end.clone())))
        });
        told.await
    }

    /// Says to everybody that this node no longer provides `name`.
    pub fn withdraw(&self, name: &str) {
        self.shared.state.change(|it| it.withdraw(name));
    }

    /// Who provides something under `name` now, by rank.
    #[must_use]
    pub fn providers(&self, name: &str) -> Vec<NodeId> {
        self.shared.state.look(|it| it.providers(name).collect())
    }

    /// Waits until somebody provides something under `name`.
    ///
    /// # Errors
    ///
    /// The cluster has ended.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn provider(&self, name: &str) -> Result<NodeId, NameError> {
        let found = self.shared.state.until(|it| match (it.providers(name).next(), it.end()) {
            (Some(id), _) => Some(Ok(id)),
            (None, Some(end)) => Some(Err(NameError::Ended(end.clone()))),
            (None, None) => None,
        });
        found.await
    }

    /// Asks for the stop of the whole cluster: [`Cluster::finished`] returns on every
    /// node.
    pub fn finish(&self) {
        self.shared.state.change(Membership::finish);
    }

    /// Waits until somebody asks for the stop of the cluster, all are done, or the
    /// membership ends otherwise.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn finished(&self) -> End {
        self.shared.state.until(|it| it.end().cloned()).await
    }

    /// How the membership ended, if it has: often the cause of other errors, since all links
    /// are cut when the manager is gone.
    #[must_use]
    pub fn ended(&self) -> Option<End> {
        self.shared.state.look(|it| it.end().cloned())
    }

    /// Ends the cluster in order: waits until every node has called this or is gone, or
    /// somebody asked for the stop; then closes this node, which sends what was
    /// accepted. Processes that this node started have ended when it returns.
    ///
    /// # Errors
    ///
    /// The manager is gone, or something was not done within `deadline`: the others were
    /// not at their end, messages were not acknowledged, or processes had to be killed.
    /// The node is closed all the same.
    ///
    /// # Cancel safety
    ///
    /// Dropped early, this node still counts as done; call it again.
    pub async fn end(&self, deadline: Duration) -> Result<(), EndError> {
        let state = &self.shared.state;
        let until = clock::now().after(deadline);
        state.change(Membership::done);
        let runtime = tokio::runtime::Handle::current();
        let waits = clock::within(&runtime, deadline, self.finished());
        let end = waits.await;
        let keeper = locked(&self.shared.keeper).take();
        if let Some(keeper) = keeper {
            return keeper.end(&state.node, end, until).await;
        }
        let closed = state.node.close(left(until)).await;
        EndError::of(end)?;
        closed.map_err(EndError::Close)
    }

    /// This node goes, and the others stay. Its links are closed, which sends what was
    /// accepted. Rank 0 cannot leave: the manager is there.
    ///
    /// # Errors
    ///
    /// This is rank 0, or what was accepted was not acknowledged within `deadline`.
    ///
    /// # Cancel safety
    ///
    /// Dropped early, it leaves all the same, without waiting.
    pub async fn leave(&self, deadline: Duration) -> Result<(), EndError> {
        if self.rank() == 0 {
            return Err(EndError::Manager);
        }
        let state = &self.shared.state;
        let until = clock::now().after(deadline);
        state.change(Membership::leave);
        let mut over = state.over.subscribe();
        let runtime = tokio::runtime::Handle::current();
        // What was not said by then the others learn by the end of the line.
        let _ = clock::within(&runtime, deadline, over.wait_for(|over| *over)).await;
        state.node.close(left(until)).await.map_err(EndError::Close)
    }
}

/// Nothing more can be had of a cluster that ended so.
fn is_fatal(end: &End) -> bool {
    !matches!(end, End::Finished { .. })
}

/// The time until then.
fn left(until: crate::proto::Time) -> Duration {
    Duration::from_micros(until.micros_since(clock::now()))
}

/// What changes in a cluster, one after the other; see [`Cluster::changes`].
pub struct Changes {
    state: Arc<State>,
    next: u64,
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").field("next", &self.next).finish_non_exhaustive()
    }
}

impl Changes {
    /// The next change; `None` when the cluster has ended and all were told. Who looks
    /// too late for the last 1024 is told how many it missed.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost.
    pub async fn next(&mut self) -> Option<Change> {
        let number = self.next;
        let found = self.state.until(|it| match (it.change(number), it.end()) {
            (Some(found), _) => Some(Some(found)),
            (None, Some(_)) => Some(None),
            (None, None) => None,
        });
        let (change, next) = found.await?;
        self.next = next;
        Some(change)
    }
}
