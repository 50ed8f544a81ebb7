//! Two groups that met.

use std::error::Error;
use std::fmt;
use std::future;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use chunkcomm::host::Instant;
use chunkcomm::layer::warn;
use chunkcomm::{Loss, LossKind, Peer, codec, host};
use chunkcomm_cluster::cluster::NodeId;
use serde::{Deserialize, Serialize};

use super::asking::{Among, Ask};
use super::call::Call;
use super::calls::{combined, even, take_combined};
use super::op::Op;
use super::whole::Whole;
use crate::group::error::GroupError;
use crate::group::forming::{Caller, Making, Side, hosts, numbered};
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

/// The outcome of a meeting, as rank 0 tells its group.
#[derive(Serialize, Deserialize)]
enum Meeting {
    /// Our side and theirs.
    Met(Side, Side),
    NotMet,
    /// Rank 0 could not meet, or has dropped its future before another group came.
    Failed(Loss),
}

impl Group {
    /// Finds another group of the cluster that meets under the same name.
    ///
    /// All ranks of both groups call it. The groups may be of different programs (`mpiexec -n 2 a : -n 2 b`),
    /// disjoint, overlapping or equal. A name serves one meeting of two groups at a time, and one call of a
    /// group: a second one takes the place of the first. Rank 0 reports a wait for the other group as that of
    /// a call ([`Self::set_report_after`]).
    ///
    /// The call has its number when the method returns, as all calls. A meeting under way goes on when this
    /// group is dropped, or breaks for another reason than a death. To wait for a time only, take
    /// [`meet_within`](Self::meet_within): a time-out around this one is a dropped future at some ranks.
    ///
    /// A death in this group ends the wait. One elsewhere does not, since nobody knows which ranks are still to
    /// come: a program that needs all nodes ends at [`Change::Died`](chunkcomm_cluster::cluster::Change::Died).
    ///
    /// # Errors
    ///
    /// As a call of the group. [`GroupError::Lost`] with rank 0, when it dropped its future before another
    /// group came or the cluster has ended, leaves the group unharmed, which can meet again.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, this node has dropped the pair: calls of the other ranks there get
    /// [`GroupError::Lost`] with its rank. At rank 0, before another group came, there is no pair.
    pub fn meet(
        &mut self,
        name: &str,
    ) -> impl Future<Output = Result<Pair, GroupError>> + Send + use<> {
        let meeting = self.meeting(name, None);
        async move {
            let why = "it did not wait for the other group";
            meeting.await?.ok_or_else(|| GroupError::refused(0, why))
        }
    }

    /// Finds another group as [`meet`](Self::meet) does, if one comes within `limit`; returns `None` if not.
    ///
    /// The time runs from the call at rank 0. The cluster's manager decides once for both groups whether they
    /// have met, and all ranks of both return that. The other group, if it gave a longer limit, waits for
    /// the next one. This group can meet again. Its own ranks are waited for in any case.
    ///
    /// # Errors
    ///
    /// As [`meet`](Self::meet).
    ///
    /// # Cancel safety
    ///
    /// As [`meet`](Self::meet).
    pub fn meet_within(
        &mut self,
        name: &str,
        limit: Duration,
    ) -> impl Future<Output = Result<Option<Pair>, GroupError>> + Send + use<> {
        self.meeting(name, Some(limit))
    }

    /// Meets in a group of its own, so that the calls of this one go on whatever becomes of it.
    fn meeting(
        &mut self,
        name: &str,
        limit: Option<Duration>,
    ) -> Making<Result<Option<Pair>, GroupError>> {
        let until = limit.map(|limit| Instant::now() + limit);
        // Ranks that meet another name, or for another time, do not call the same.
        let how = if limit.is_some() { "the name within a limit" } else { "the name" };
        let stated = format!("{how} {name:?}");
        let entered = self.all_gather_of(Operation::Meet, &stated, Vec::<u8>::new());
        let (group, (call, child)) = (self.core.id, self.child("meet"));
        let mut own = self.of_all_ranks(&child);
        let name = name.to_owned();
        Making::new(&self.core.cluster, |caller| async move {
            entered.await?;
            let found = match own.rank() {
                0 => {
                    let members = own.core.members.to_vec();
                    let hosts = hosts(&own.core.cluster, &members);
                    let ours = Side { group, call, members, hosts };
                    Some(own.find(ours, &name, until, &caller).await)
                }
                _ => None,
            };
            let found = own.broadcast_value(0, found).await.map_err(|error| error.cause)?;
            let (ours, theirs) = match found {
                Meeting::Met(ours, theirs) => (ours, theirs),
                Meeting::NotMet => return Ok(None),
                Meeting::Failed(loss) => return Err(GroupError::Lost { rank: 0, loss }),
            };
            own.core.cluster.heard_of(&theirs.members).await;
            Ok(Some(own.pair(&ours, &theirs)))
        })
    }

    /// Finds the other group, until this time or until the caller of the meeting is gone.
    async fn find(
        &self,
        ours: Side,
        name: &str,
        until: Option<Instant>,
        caller: &Caller,
    ) -> Meeting {
        let cluster = &self.core.cluster;
        let report_after = self.shared.state().report_after();
        let given_up = || async {
            let late = async {
                match until {
                    Some(until) => host::sleep(until - Instant::now()).await,
                    None => future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = caller.gone() => {}
                // The ranks hear of it by the calls of this group.
                _ = self.shared.broken() => {}
                () = late => {}
            }
        };
        let find = async {
            let (key, mut value) = (format!("group/meet/{name}"), Vec::new());
            codec::encode_into_vec(&ours, &mut value).map_err(refused)?;
            while let Some((_, value)) =
                cluster.meet(&key, &value, given_up()).await.map_err(refused)?
            {
                let theirs: Side = codec::decode(&value).map_err(refused)?;
                if theirs.members.is_empty() || theirs.members.len() != theirs.hosts.len() {
                    return Err(Loss::new(LossKind::Refused, "a side without its hosts"));
                }
                if theirs.group != ours.group {
                    return Ok(Some(theirs));
                }
                // Another call of this group: the later one takes the place of the earlier.
                if theirs.call > ours.call {
                    given_up().await;
                    break;
                }
            }
            Ok(None)
        };
        let report = async {
            host::sleep(report_after).await;
            let what =
                format!("waits for another group to meet as {name:?} for {report_after:.0?}");
            warn(cluster.node().name(), &what);
            future::pending().await
        };
        let found = tokio::select! {
            biased;
            found = find => found,
            never = report => never,
        };
        match found {
            Ok(Some(theirs)) => Meeting::Met(ours, theirs),
            Ok(None) if caller.is_gone() => {
                Meeting::Failed(Loss::new(LossKind::Left, "it has dropped the meeting"))
            }
            Ok(None) => Meeting::NotMet,
            Err(loss) => Meeting::Failed(loss),
        }
    }

    fn pair(&self, ours: &Side, theirs: &Side) -> Pair {
        let is_first = ours.is_before(theirs);
        let (low, high) = if is_first { (ours, theirs) } else { (theirs, ours) };
        let members = [&low.members[..], &high.members].concat();
        let hosts = numbered(&[&low.hosts[..], &high.hosts].concat());
        let (size, their_size) = (ours.members.len(), theirs.members.len());
        let (first, their_first) = if is_first { (0, size) } else { (their_size, 0) };
        let name = format!("{:016x} {} {:016x} {}", low.group, low.call, high.group, high.call);
        let rank = first + self.rank();
        let mut both = Group::of_rank(&self.core.cluster, members, hosts, rank, &name);
        both.take_settings(self);
        Pair { both, first, their_first, size, their_size }
    }
}

fn refused(error: impl Error + Send + Sync + 'static) -> Loss {
    Loss::of(LossKind::Refused, error)
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
    /// [`GroupError::Lost`] when it cannot be reached.
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
        let peer = self.both.core.cluster.peer_of(member).await;
        peer.map_err(|loss| GroupError::Lost { rank: self.their_first + rank, loss })
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
            whole.set_result(data);
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
