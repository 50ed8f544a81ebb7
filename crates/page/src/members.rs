//! The members that are shown: those of the cluster, or the node and its peers; and what other members report.

use crate::gather::{WATCH, cut};
use crate::log::{locked, now_ms};
use crate::state::{MemberState, NodeState, Standing};
use chunkcomm::{Node, channel};
use chunkcomm_cluster::Cluster;
use chunkcomm_cluster::cluster::{Member, NodeId, WeakCluster};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::AbortHandle;

/// Most members that are shown.
const MEMBERS_MAX: usize = 4096;

/// Most members that are gone and still shown.
const GONE_MAX: usize = 256;

/// Time before a member that cannot be watched is tried again.
const AGAIN: Duration = Duration::from_secs(2);

/// Longest time to reach a member: handles of the cluster and its node are held meanwhile.
const REACH: Duration = Duration::from_secs(2);

/// The members by their keys: the rank in a cluster, else the incarnation of a peer.
#[derive(Debug, Default)]
pub(crate) struct Members {
    here: Option<MemberState>,
    others: BTreeMap<Key, MemberState>,
    /// Keys of members that are gone, the oldest first.
    gone: Vec<Key>,
    /// Whether events have been missed, so that some may have left unseen.
    is_unsure: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    Rank(u32),
    /// Number of its arrival, and its incarnation.
    Peer(u64, u128),
}

impl Key {
    pub(crate) fn text(self) -> String {
        match self {
            Key::Rank(rank) => format!("rank {rank}"),
            Key::Peer(_, incarnation) => format!("{incarnation:032x}"),
        }
    }
}

impl Members {
    /// Returns the key of this node.
    pub(crate) fn here(&self) -> String {
        self.here.as_ref().map_or_else(String::new, |here| here.key.clone())
    }

    /// Takes the present members of the cluster, if there is one, and this node.
    pub(crate) fn update(&mut self, node: &Node, cluster: Option<&Cluster>) {
        let Some(cluster) = cluster else {
            self.here.get_or_insert_with(|| MemberState {
                key: "here".to_owned(),
                name: cut(node.name()),
                host: String::new(),
                pid: Some(std::process::id()),
                reports: true,
                ..MemberState::default()
            });
            return;
        };
        let members = cluster.members();
        if std::mem::take(&mut self.is_unsure) {
            let there: HashSet<_> = members.iter().map(|it| Key::Rank(it.id.rank)).collect();
            self.keep_here(|key, _| there.contains(&key));
        }
        for member in members {
            if member.id == cluster.id() {
                let mut here = of_member(&member);
                here.reports = true;
                self.here = Some(here);
            } else {
                self.came(Key::Rank(member.id.rank), of_member(&member));
            }
        }
    }

    /// Notes a member; one that is there already stays as it is.
    pub(crate) fn came(&mut self, key: Key, member: MemberState) {
        let known = self.others.get(&key);
        if known.is_some_and(|it| it.standing == Standing::Here && it.pid == member.pid) {
            return;
        }
        self.gone.retain(|it| *it != key);
        self.others.insert(key, member);
    }

    pub(crate) fn stands(&mut self, key: Key, standing: Standing, why: &str) {
        let Some(member) = self.others.get_mut(&key) else { return };
        (member.standing, member.since_ms, member.why) = (standing, now_ms(), cut(why));
        if matches!(standing, Standing::Left | Standing::Gone) {
            self.gone.retain(|it| *it != key);
            self.gone.push(key);
        }
        if self.gone.len() > GONE_MAX {
            self.others.remove(&self.gone.remove(0));
        }
    }

    /// Notes that events have been missed.
    pub(crate) fn missed(&mut self) {
        self.is_unsure = true;
    }

    /// Notes that those are gone of which this does not hold.
    fn keep_here(&mut self, is_there: impl Fn(Key, &MemberState) -> bool) {
        let left = self
            .others
            .iter()
            .filter(|(key, it)| it.standing == Standing::Here && !is_there(**key, it));
        let left: Vec<_> = left.map(|(key, _)| *key).collect();
        left.into_iter().for_each(|key| self.stands(key, Standing::Left, "its end was not seen"));
    }

    pub(crate) fn find(&self, incarnation: u128) -> Option<Key> {
        let is_it = |key: &&Key| matches!(key, Key::Peer(_, it) if *it == incarnation);
        self.others.keys().rev().find(is_it).copied()
    }

    /// Returns the members to be shown, and the number of those without room.
    pub(crate) fn shown(&mut self, here: &NodeState, reported: &Others) -> (Vec<MemberState>, u64) {
        let links: HashMap<&str, _> = here.links.iter().map(|it| (it.peer.as_str(), it)).collect();
        if here.links_left_out == 0 && std::mem::take(&mut self.is_unsure) {
            self.keep_here(|_, member| links.contains_key(member.name.as_str()));
        }
        let mut shown = Vec::new();
        shown.extend(self.here.clone().map(|member| of_report(member, here, Duration::ZERO)));
        let states = locked(&reported.states);
        for (key, member) in self.others.iter().take(MEMBERS_MAX) {
            let mut member = member.clone();
            if let Some((state, at)) = states.get(key) {
                member.reports = true;
                member = of_report(member, state, at.elapsed());
            } else if let Some(rates) = links.get(member.name.as_str()).and_then(|it| it.rates) {
                member.messages = Some(rates.messages_sent + rates.messages_received);
                member.bytes = Some(rates.bytes_sent + rates.bytes_received);
            }
            shown.push(member);
        }
        (shown, self.others.len().saturating_sub(MEMBERS_MAX) as u64)
    }
}

pub(crate) fn of_member(member: &Member) -> MemberState {
    let key = Key::Rank(member.id.rank).text();
    let name = member.name.as_deref().map_or_else(|| key.clone(), cut);
    let (host, pid) = (cut(&member.host), Some(member.pid));
    MemberState { key, name, host, pid, ..MemberState::default() }
}

/// Adds to a member what its node reports.
fn of_report(member: MemberState, state: &NodeState, age: Duration) -> MemberState {
    let rates = state.links.iter().filter_map(|link| link.rates);
    let (messages, bytes) = rates.fold((0.0, 0.0), |(messages, bytes), it| {
        (
            messages + it.messages_sent + it.messages_received,
            bytes + it.bytes_sent + it.bytes_received,
        )
    });
    MemberState {
        age_ms: Some(age.as_millis() as u64),
        messages: Some(messages),
        bytes: Some(bytes),
        waits: state.waits.len(),
        ..member
    }
}

type States = Arc<Mutex<HashMap<Key, (Arc<NodeState>, Instant)>>>;

/// The reports of other members, watched while there are viewers.
#[derive(Debug, Default)]
pub(crate) struct Others {
    states: States,
    watching: HashMap<NodeId, AbortHandle>,
}

impl Drop for Others {
    fn drop(&mut self) {
        self.watching.values().for_each(AbortHandle::abort);
    }
}

impl Others {
    /// Watches the present members of the cluster, and no others.
    pub(crate) fn follow(&mut self, cluster: Option<&Cluster>) {
        let members = cluster.map(Cluster::members).unwrap_or_default();
        let there: HashSet<_> = members.iter().map(|member| member.id).collect();
        self.watching.retain(|id, task| {
            let is_there = there.contains(id);
            if !is_there {
                task.abort();
                locked(&self.states).remove(&Key::Rank(id.rank));
            }
            is_there
        });
        let Some(cluster) = cluster else { return };
        for Member { id, .. } in members.into_iter().take(MEMBERS_MAX) {
            if id != cluster.id() && !self.watching.contains_key(&id) {
                let task = tokio::spawn(watch(cluster.downgrade(), id, Arc::clone(&self.states)));
                self.watching.insert(id, task.abort_handle());
            }
        }
    }

    /// Returns the last report of each member that has reported.
    pub(crate) fn states(&self) -> Vec<(String, Arc<NodeState>, Instant)> {
        let states = locked(&self.states);
        let mut states: Vec<_> =
            states.iter().map(|(key, (state, at))| (*key, Arc::clone(state), *at)).collect();
        states.sort_by_key(|(key, ..)| *key);
        states.into_iter().map(|(key, state, at)| (key.text(), state, at)).collect()
    }
}

/// Watches a member until this is dropped.
async fn watch(cluster: WeakCluster, id: NodeId, states: States) {
    while let Some(joined) = cluster.upgrade() {
        let reached = tokio::time::timeout(REACH, joined.peer_of(id)).await;
        let node = joined.node().clone();
        drop(joined);
        if let Ok(Ok(peer)) = reached
            && let Ok(mut seen) = node.watch::<NodeState>(channel(WATCH).within(REACH), &peer).await
        {
            drop((node, peer));
            loop {
                let state = seen.borrow_and_update().clone();
                if state.gathered > 0 {
                    let state = (Arc::new(state.bounded()), Instant::now());
                    locked(&states).insert(Key::Rank(id.rank), state);
                }
                if seen.changed().await.is_err() {
                    break;
                }
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_left_unseen_is_not_here() {
        let mut members = Members::default();
        for (at, name) in ["stays", "leaves"].into_iter().enumerate() {
            let member = MemberState { name: name.to_owned(), ..MemberState::default() };
            members.came(Key::Peer(at as u64, 7), member);
        }
        let link = crate::state::LinkState { peer: "stays".to_owned(), ..Default::default() };
        let state = NodeState { links: vec![link], ..NodeState::default() };
        let standings = |members: &mut Members| {
            let shown = members.shown(&state, &Others::default()).0;
            shown.into_iter().map(|it| it.standing).collect::<Vec<_>>()
        };
        assert_eq!(standings(&mut members), [Standing::Here, Standing::Here]);
        members.missed();
        assert_eq!(standings(&mut members), [Standing::Here, Standing::Left]);
    }
}
