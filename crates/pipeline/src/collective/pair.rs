//! Two groups that met.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use chunkcomm::layer::warn;
use chunkcomm::{Duplex, Peer, host, with_causes};
use chunkcomm_cluster::Cluster;
use chunkcomm_cluster::cluster::{NameError, NodeId};

use super::asking::{Among, Ask};
use super::call::Call;
use super::calls::{combined, even, take_combined};
use super::op::Op;
use super::whole::Whole;
use crate::error::group::GroupError;
use crate::group::forming::{GroupLayer, Side, hosts, numbered};
use crate::group::links::peer_of;
use crate::proto::schedule::Kind;
use crate::proto::schedule::world::World;
use crate::proto::talk::Operation;
use crate::{Element, Group};

/// Root of a call of a [`Pair`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// The rank of this node's group.
    Ours(usize),
    /// The rank of the other group.
    Theirs(usize),
}

/// Two groups of one cluster that [met](Group::meet): MPI's intercommunicator.
///
/// The groups may be of different programs, and may have ranks in common. Each call is made by all ranks
/// of both, in the same order. Errors count the ranks of both groups: first those of the group whose rank 0
/// has the lower rank in the cluster, then the other's.
pub struct Pair {
    both: Group,
    /// Rank of our first one, and of theirs, among both.
    first: usize,
    their_first: usize,
    size: usize,
    their_size: usize,
}

impl Group {
    /// Finds another group of the cluster that meets under the same name.
    ///
    /// All ranks of both groups call it. The groups may be of different programs (`mpiexec -n 2 a : -n 2 b`),
    /// disjoint, overlapping or equal. A name serves one meeting of two groups at a time. Rank 0 reports a
    /// wait for the other group as that of a call ([`Self::set_report_after`]).
    ///
    /// # Errors
    ///
    /// As a call of the group. [`GroupError::Rank`] when rank 0 cannot reach that of the other group; this
    /// group can then meet again.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped at rank 0 the other ranks wait for it; at another rank, that rank is not
    /// in the pair.
    pub async fn meet(&mut self, name: &str) -> Result<Pair, GroupError> {
        let (child, members) = (self.child("meet"), self.core.members.to_vec());
        let found = match self.rank() {
            0 => {
                let hosts = hosts(&self.core.cluster, &members);
                let ours = Side { name: child.clone(), members, hosts };
                let after = self.shared.state().report_after();
                tokio::select! {
                    biased;
                    found = find(&self.core.cluster, ours.clone(), name, after) => {
                        Some(found.map(|theirs| (ours, theirs)))
                    }
                    cause = self.shared.broken() => return Err(cause),
                }
            }
            _ => None,
        };
        let found = self.broadcast_value(0, found).await.map_err(|error| error.cause)?;
        let (ours, theirs) = found.map_err(|why| GroupError::Rank { rank: 0, why })?;
        hear_of(&self.core.cluster, &theirs.members).await;
        Ok(self.pair(&ours, &theirs))
    }

    fn pair(&self, ours: &Side, theirs: &Side) -> Pair {
        let is_first = ours.is_before(theirs);
        let (low, high) = if is_first { (ours, theirs) } else { (theirs, ours) };
        let members = [&low.members[..], &high.members].concat();
        let hosts = numbered(&[&low.hosts[..], &high.hosts].concat());
        let (size, their_size) = (ours.members.len(), theirs.members.len());
        let (first, their_first) = if is_first { (0, size) } else { (their_size, 0) };
        let name = format!("{} {}", low.name, high.name);
        let rank = first + self.rank();
        let mut both = Group::of_rank(&self.core.cluster, members, hosts, rank, &name);
        both.take_settings(self);
        Pair { both, first, their_first, size, their_size }
    }
}

/// Time in which a node hears of members that others know: 5 s.
const HEAR_WAIT: Duration = Duration::from_secs(5);

/// Waits until this node has heard of these members, of whom others know already.
async fn hear_of(cluster: &Cluster, members: &[NodeId]) {
    let mut changes = cluster.changes();
    let all_known = || {
        let (present, deaths) = (cluster.members(), cluster.deaths());
        let is_known = |id: &NodeId| {
            present.iter().any(|it| it.id == *id) || deaths.iter().any(|it| it.id == *id)
        };
        members.iter().all(is_known)
    };
    let heard = async { while !all_known() && changes.next().await.is_some() {} };
    tokio::select! {
        biased;
        () = heard => {}
        // One of them has left again before this node looked.
        () = host::sleep(HEAR_WAIT) => {}
    }
}

/// A node that waits under a name, until this is dropped.
struct Waiting<'a> {
    cluster: &'a Cluster,
    key: &'a str,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        GroupLayer::of_node(self.cluster.node()).meets_no_more(self.key);
        self.cluster.withdraw(self.key);
    }
}

/// Finds the other side of a meeting, and tells it of ours.
async fn find(
    cluster: &Cluster,
    ours: Side,
    name: &str,
    report_after: Duration,
) -> Result<Side, String> {
    let key = &*format!("group/meet/{name}");
    let mut here = match GroupLayer::of_node(cluster.node()).meet(key, ours.clone()) {
        Ok(theirs) => return Ok(theirs),
        Err(here) => here,
    };
    let _waiting = Waiting { cluster, key };
    let said = |error: NameError| with_causes(&error);
    let met = async {
        cluster.provide(key).await.map_err(said)?;
        let other = cluster.other_provider(key).await.map_err(said)?;
        exchange(cluster, other, key, ours).await
    };
    let report = async {
        host::sleep(report_after).await;
        let what = format!("waits for another group to meet as {name:?} for {report_after:.0?}");
        warn(cluster.node().name(), &what);
        std::future::pending().await
    };
    tokio::select! {
        biased;
        Ok(theirs) = &mut here => Ok(theirs),
        met = met => met,
        never = report => never,
    }
}

/// Exchanges the sides with rank 0 of the other group: the lower member opens the channel.
async fn exchange(
    cluster: &Cluster,
    other: NodeId,
    name: &str,
    ours: Side,
) -> Result<Side, String> {
    let peer = peer_of(cluster, other).await?;
    let node = cluster.node();
    let mut channel: Duplex<Side, Side> = if cluster.id() < other {
        node.open_duplex(&peer, name).await.map_err(|error| with_causes(&error))?
    } else {
        let channel = chunkcomm::channel(name).from_peer(&peer);
        node.accept_duplex(channel).await.map_err(|error| with_causes(&error))?.1
    };
    channel.send(&ours).await.map_err(|error| with_causes(&error))?;
    let theirs = channel.recv().await.map_err(|error| with_causes(&error))?;
    theirs.ok_or_else(|| "the other group has given up".to_owned())
}

impl Pair {
    /// Returns this node's rank in its group.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.both.rank() - self.first
    }

    /// Returns the number of ranks of this node's group.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the number of ranks of the other group.
    #[must_use]
    pub fn their_size(&self) -> usize {
        self.their_size
    }

    /// Returns the cluster's member that has a rank of the other group.
    ///
    /// # Panics
    ///
    /// When there is no such rank.
    #[must_use]
    pub fn their_member(&self, rank: usize) -> NodeId {
        assert!(rank < self.their_size, "there is no rank {rank} of {}", self.their_size);
        self.both.member(self.their_first + rank)
    }

    /// Returns the link to a rank of the other group; dials the node if there is none.
    ///
    /// # Errors
    ///
    /// [`GroupError::Gone`] when it cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    ///
    /// # Panics
    ///
    /// When there is no such rank.
    pub async fn their_peer(&self, rank: usize) -> Result<Peer, GroupError> {
        let member = self.their_member(rank);
        let peer = peer_of(&self.both.core.cluster, member).await;
        peer.map_err(|why| GroupError::Gone { rank: self.their_first + rank, why })
    }

    /// Returns all ranks of both groups as one, for calls in which all take part.
    pub fn both(&mut self) -> &mut Group {
        &mut self.both
    }

    /// Parts with the pair: returns all ranks of both groups as one, in the order that errors count: MPI's
    /// merge.
    #[must_use]
    pub fn merged(self) -> Group {
        self.both
    }

    /// Waits until every rank of both groups has come to this call.
    pub fn barrier(&mut self) -> Call<()> {
        self.both.barrier()
    }

    /// Gives the root's data to all ranks of the group that is not the root's. Each of them and the root
    /// give a vector of one length; the other ranks of the root's group give one that comes back as it was.
    pub fn broadcast<T: Element>(&mut self, root: Root, data: Vec<T>) -> Call<Vec<T>> {
        let (root, receivers) = self.sides(root);
        let map: Arc<[usize]> = std::iter::once(root).chain(receivers).collect();
        let among = self.among(map, false);
        let size = among.world.size();
        let kind = Kind::Broadcast { root: 0 };
        let ask = Ask::of::<T>(kind, Operation::Broadcast).rooted(root).all_of(&data);
        let ask = Ask { among: Some(among), ..ask };
        let fill = move |whole: &mut Whole<T>| {
            even(&mut whole.result_blocks, data.len(), size);
            whole.result = data;
            Ok(())
        };
        self.both.submit(ask, fill, |whole, _| mem::take(&mut whole.result))
    }

    /// Combines the vectors of the group that is not the root's, element by element and by rank. The root's
    /// vector, of the same length, comes back with the result, all others as they were.
    pub fn reduce<T: Element>(&mut self, root: Root, data: Vec<T>, op: Op<T>) -> Call<Vec<T>> {
        let named = op.clone();
        let (root, givers) = self.sides(root);
        let map: Arc<[usize]> = givers.chain(std::iter::once(root)).collect();
        let among = self.among(map, true);
        let size = among.world.size();
        let kind = Kind::Reduce { root: 0 };
        let ask = Ask::of::<T>(kind, Operation::Reduce).rooted(root).all_of(&data).by(&named);
        let ask = Ask { among: Some(among), ..ask };
        let is_root = self.both.rank() == root;
        let fill = combined(data, op, size);
        self.both.submit(ask, fill, move |whole, ok| take_combined(whole, ok && is_root))
    }

    /// Returns the root among both, and the ranks of the group that is not its.
    fn sides(&self, root: Root) -> (usize, std::ops::Range<usize>) {
        let (first, their_first) = (self.first, self.their_first);
        match root {
            // A rank that does not exist becomes one that does not exist among both.
            Root::Ours(rank) if rank >= self.size => (usize::MAX, 0..0),
            Root::Theirs(rank) if rank >= self.their_size => (usize::MAX, 0..0),
            Root::Ours(rank) => (first + rank, their_first..their_first + self.their_size),
            Root::Theirs(rank) => (their_first + rank, first..first + self.size),
        }
    }

    fn among(&self, map: Arc<[usize]>, hands_over: bool) -> Among {
        let rank = self.both.rank();
        let last = map.len() - usize::from(hands_over);
        let hosts = &self.both.core.hosts;
        let hosts: Vec<u32> =
            map[..last].iter().map(|it| hosts.get(*it).copied().unwrap_or_default()).collect();
        let hosts = if hosts.is_empty() { vec![0] } else { hosts };
        let place = map.iter().position(|it| *it == rank);
        Among { world: World::new(&hosts), map, place, hands_over }
    }
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair")
            .field("rank", &self.rank())
            .field("size", &self.size)
            .field("their_size", &self.their_size)
            .finish_non_exhaustive()
    }
}
