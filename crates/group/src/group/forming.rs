//! How groups are made: of a cluster, of a part of another group, of those that are left.

use std::collections::BTreeMap;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use chunkcomm::layer::{Hooks, Layer, Site};
use chunkcomm::{Node, host};
use chunkcomm_cluster::Cluster;
use chunkcomm_cluster::cluster::NodeId;
use chunkcomm_proto::describe::fnv1a;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::error::GroupError;
use super::{Core, Group};
use crate::proto::talk::Operation;

/// A group as the other one sees it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Side {
    /// Id of the group, and the number of this meeting among what is made of it.
    pub(crate) group: u64,
    pub(crate) call: u64,
    pub(crate) members: Vec<NodeId>,
    /// Their hosts, as rank 0 knows them.
    pub(crate) hosts: Vec<String>,
}

impl Side {
    /// Whether this side's ranks come first among both.
    pub(crate) fn is_before(&self, other: &Side) -> bool {
        (&self.members, self.group, self.call) < (&other.members, other.group, other.call)
    }
}

/// The layer of groups on a node: it counts the calls of [`Group::world`], and the dropped groups.
#[derive(Default)]
pub(crate) struct GroupLayer {
    worlds: AtomicU64,
    /// Number of groups that were dropped.
    dropped: watch::Sender<u64>,
}

/// Dropped groups of a node that still answer ranks which speak to them first then: the last 256.
const ANSWERING_MAX: u64 = 256;

impl GroupLayer {
    /// Counts a dropped group, and waits until 256 others were dropped behind it: it answers no longer.
    pub(super) async fn outlive(node: &Node) {
        let layer = GroupLayer::of(node);
        let mut dropped = layer.dropped.subscribe();
        layer.dropped.send_modify(|count| *count += 1);
        let last = *dropped.borrow() + ANSWERING_MAX;
        // The sender lives as long as the layer.
        let _ = dropped.wait_for(|count| *count >= last).await;
    }
}

impl Layer for GroupLayer {
    type Settings = ();

    const NAME: &'static str = "chunkcomm.group";

    const VERSIONS: (u16, u16) = (2, 2);

    /// The channels of groups have names of the program's kind.
    const NAMES: &'static [&'static str] = &[];

    fn start((): (), _site: Site) -> GroupLayer {
        GroupLayer::default()
    }
}

impl Hooks for GroupLayer {}

/// The caller of a [`Making`], as its task sees it.
pub(crate) struct Caller(watch::Sender<()>);

impl Caller {
    pub(crate) fn is_gone(&self) -> bool {
        self.0.is_closed()
    }

    /// Waits until the caller has dropped the future.
    pub(crate) async fn gone(&self) {
        self.0.closed().await;
    }
}

/// The making of a group. A dropped one goes on as a task and drops its group then, which the other ranks hear;
/// the task keeps the cluster alive meanwhile. One that is kept and not polled stands still.
pub(crate) struct Making<T: Send + 'static> {
    making: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    cluster: Cluster,
    /// Tells the [`Caller`] by its drop.
    caller: Option<watch::Receiver<()>>,
}

impl<T: Send + 'static> Making<T> {
    pub(crate) fn new<F>(cluster: &Cluster, making: impl FnOnce(Caller) -> F) -> Making<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let (tells, caller) = watch::channel(());
        let making = Box::pin(making(Caller(tells)));
        Making { making: Some(making), cluster: cluster.clone(), caller: Some(caller) }
    }
}

impl<T: Send + 'static> Future for Making<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let making = self.making.as_mut().expect("a group is made once");
        let polled = making.as_mut().poll(context);
        if polled.is_ready() {
            self.making = None;
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Making<T> {
    fn drop(&mut self) {
        self.caller = None;
        if let Some(making) = self.making.take() {
            host::spawn_on(self.cluster.node().runtime(), async move { drop(making.await) });
        }
    }
}

impl Group {
    /// Makes the group of all members that started the cluster, with their ranks.
    ///
    /// Members that joined later are in none; at such a node this is a group of itself alone, which may
    /// [`meet`](Self::meet) others. A founder that is dead by now is in the group all the same: each call
    /// ends with its death, until the group is [shrunk](Self::shrink). The call sends nothing.
    ///
    /// Called again, it makes another group; all members must call it as often. The calls count, also where
    /// their futures are not awaited.
    ///
    /// # Errors
    ///
    /// None today.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, this node has dropped the group: calls of the others get
    /// [`GroupError::Lost`] with its rank.
    pub fn world(
        cluster: &Cluster,
    ) -> impl Future<Output = Result<Group, GroupError>> + Send + use<> {
        made(Group::of_founders(cluster))
    }

    fn of_founders(cluster: &Cluster) -> Group {
        let count = GroupLayer::of(cluster.node()).worlds.fetch_add(1, Ordering::Relaxed);
        let name = format!("world {count}");
        let founders = cluster.founders();
        match founders.iter().position(|it| *it == cluster.id()) {
            // Those of the start, since founders that are gone by now are not gone at all ranks.
            Some(rank) => {
                let hosts = numbered(&cluster.founder_hosts());
                Group::of_rank(cluster, founders, hosts, rank, &name)
            }
            None => Group::of_rank(cluster, vec![cluster.id()], vec![0], 0, &name),
        }
    }

    /// Makes a group in which this node has the rank `rank`. All members derive its name and the numbers of
    /// the hosts alike.
    pub(crate) fn of_rank(
        cluster: &Cluster,
        members: Vec<NodeId>,
        hosts: Vec<u32>,
        rank: usize,
        name: &str,
    ) -> Group {
        let mut bytes = name.as_bytes().to_vec();
        members.iter().for_each(|it| bytes.extend_from_slice(&it.incarnation.to_le_bytes()));
        Group::start(cluster, members, rank, hosts, fnv1a(&bytes))
    }

    /// Returns the number of the next group that is made of this one, and its name.
    pub(crate) fn child(&self, what: &str) -> (u64, String) {
        let mut state = self.shared.state();
        state.children += 1;
        (state.children, format!("{:016x} {} {what}", self.core.id, state.children))
    }

    /// Parts the group by colour: the ranks that give the same colour are a new group, ordered by `key`,
    /// those of equal keys by rank. A rank that gives none is in no group.
    ///
    /// The call has its number when the method returns, as all calls.
    ///
    /// # Errors
    ///
    /// As a call of the group.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the call goes on, and this node has dropped its new group: calls of the
    /// other ranks there get [`GroupError::Lost`] with its rank. This group is unharmed.
    pub fn split(
        &mut self,
        colour: Option<u32>,
        key: u32,
    ) -> impl Future<Output = Result<Option<Group>, GroupError>> + Send + use<> {
        self.parted(colour, key)
    }

    fn parted(
        &mut self,
        colour: Option<u32>,
        key: u32,
    ) -> Making<Result<Option<Group>, GroupError>> {
        let (_, name) = self.child("split");
        let mine = vec![u32::from(colour.is_some()), colour.unwrap_or_default(), key];
        let gathered = self.all_gather_of(Operation::Split, "", mine);
        let core = Arc::clone(&self.core);
        Making::new(&self.core.cluster, |_| async move {
            let all = gathered.await?.result;
            if let Some(rank) = all.counts.iter().position(|count| *count != 3) {
                let why = "it gave something else than a colour and a key";
                return Err(GroupError::refused(rank, why));
            }
            let Some(colour) = colour else { return Ok(None) };
            let mut ranks: Vec<(u32, usize)> = (0..core.members.len())
                .filter(|rank| all.part(*rank)[..2] == [1, colour])
                .map(|rank| (all.part(rank)[2], rank))
                .collect();
            ranks.sort_unstable();
            let ranks: Vec<usize> = ranks.into_iter().map(|(_, rank)| rank).collect();
            Ok(Some(core.of_ranks(&ranks, &format!("{name} {colour}"))))
        })
    }

    /// Makes a group of the ranks on this node's host.
    ///
    /// # Errors
    ///
    /// As a call of the group.
    ///
    /// # Cancel safety
    ///
    /// As [`split`](Self::split).
    pub fn split_by_host(
        &mut self,
    ) -> impl Future<Output = Result<Group, GroupError>> + Send + use<> {
        let parted = self.parted(Some(self.core.hosts[self.rank()]), 0);
        async move { Ok(parted.await?.expect("this rank gave a colour")) }
    }

    /// Makes a group of the same ranks whose calls never meet those of this one: for a library that is
    /// called between calls of its user. Sends nothing.
    ///
    /// # Errors
    ///
    /// None today.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, this node has dropped the new group: calls of the other ranks there get
    /// [`GroupError::Lost`] with its rank.
    pub fn duplicate(&mut self) -> impl Future<Output = Result<Group, GroupError>> + Send + use<> {
        let (_, name) = self.child("duplicate");
        made(self.of_all_ranks(&name))
    }

    /// Makes a group of the same ranks, with the settings of this one.
    pub(crate) fn of_all_ranks(&self, name: &str) -> Group {
        let ranks: Vec<usize> = (0..self.size()).collect();
        let mut group = self.core.of_ranks(&ranks, name);
        group.take_settings(self);
        group
    }

    /// Takes the settings of another group.
    pub(crate) fn take_settings(&mut self, other: &Group) {
        self.algorithm = other.algorithm;
        self.reproducible = other.reproducible;
        self.costs = other.costs;
        let reports_after = other.shared.state().reports_after;
        self.shared.state().reports_after = reports_after;
    }

    /// Agrees with the other survivors on a group without the dead, and on the last call that all of them
    /// finished. The new group keeps the order of ranks, and its calls are numbered from 1 again.
    ///
    /// Returns the group and the number of that call: every call up to it succeeded at every survivor.
    /// The program redoes the later ones, with the data that they gave back. One of them may have succeeded
    /// here and not at all survivors: its data are then no more what this rank gave to it. Calls that are
    /// under way here end with [`GroupError::Closed`].
    ///
    /// A group that broke for another reason is mended in the same way: the new one then has all ranks.
    /// Further deaths in the meantime do no harm.
    ///
    /// # Errors
    ///
    /// [`GroupError::Agree`] when the cluster has ended. [`GroupError::Lost`] with this rank when the others
    /// took it for dead and go on without it.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the group is gone. This node still agrees, and has then dropped the new
    /// group: calls of the others there get [`GroupError::Lost`] with its rank.
    pub fn shrink(self) -> impl Future<Output = Result<(Group, u64), GroupError>> + Send + use<> {
        let cluster = self.core.cluster.clone();
        Making::new(&cluster, |_| self.shrunk())
    }

    fn shrunk(self) -> impl Future<Output = Result<(Group, u64), GroupError>> + Send + use<> {
        let succeeded = self.shared.tell(|state| {
            state.shrinking = true;
            state.succeeded()
        });
        async move {
            let name = format!("group/{:016x}/shrink", self.core.id);
            let (cluster, members) = (&self.core.cluster, &self.core.members);
            let agreed = cluster.agree(&name, members, &succeeded.to_le_bytes()).await;
            let agreed = agreed.map_err(GroupError::Agree)?;
            let value = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
            let all_finished = agreed.values.iter().map(|(_, it)| value(it)).min();
            let is_left = |rank: &usize| agreed.values.iter().any(|(id, _)| *id == members[*rank]);
            let left: Vec<usize> = (0..self.size()).filter(is_left).collect();
            let rank = self.rank();
            if !left.contains(&rank) {
                return Err(GroupError::left(rank, "it was taken for dead"));
            }
            let mut group = self.core.of_ranks(&left, &name);
            group.take_settings(&self);
            Ok((group, all_finished.unwrap_or_default()))
        }
    }
}

impl Core {
    /// Makes a group of some ranks, of which this rank is one.
    fn of_ranks(&self, ranks: &[usize], name: &str) -> Group {
        let rank = ranks.iter().position(|rank| *rank == self.rank);
        let rank = rank.expect("this rank is among them");
        let members = ranks.iter().map(|rank| self.members[*rank]).collect();
        let hosts = ranks.iter().map(|rank| self.hosts[*rank]).collect();
        Group::of_rank(&self.cluster, members, hosts, rank, name)
    }
}

/// Returns the future of a group that is made at once.
fn made(group: Group) -> Ready<Result<Group, GroupError>> {
    ready(Ok(group))
}

/// Returns the host of each member. One that is not there is on a host of its own.
pub(crate) fn hosts(cluster: &Cluster, members: &[NodeId]) -> Vec<String> {
    let present = cluster.members();
    let host = |id: &NodeId| present.iter().find(|it| it.id == *id).map(|it| it.host.clone());
    let own = |id: &NodeId| format!("host of {}", id.incarnation);
    members.iter().map(|id| host(id).unwrap_or_else(|| own(id))).collect()
}

/// Returns the number of each host: the first place where it stands.
pub(crate) fn numbered(hosts: &[String]) -> Vec<u32> {
    let mut first: BTreeMap<&str, u32> = BTreeMap::new();
    (0..).zip(hosts).map(|(place, host)| *first.entry(host).or_insert(place)).collect()
}
