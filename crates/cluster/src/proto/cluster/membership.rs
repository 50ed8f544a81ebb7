//! Member's side of a cluster: its view of the others.

mod agreeing;
mod hearing;
mod naming;
mod standing;

pub use agreeing::Outcome;
pub use naming::Asked;
pub use standing::{Change, End, Standing};

use super::{Before, Death, Member, NameAnswer, NodeId, Ready, Up};
use agreeing::Agreeing;
use chunkcomm_proto::Time;
use chunkcomm_proto::loss::{Loss, LossKind};
use chunkcomm_proto::sorted::{SortedMap, SortedSet};
use naming::Sole;
use std::collections::VecDeque;
use std::time::Duration;

/// Most changes that are kept for later readers.
pub const CHANGES_MAX: usize = 1024;

/// Result of a barrier: the members that died since the previous barrier.
pub type Passed = Vec<NodeId>;

/// View that one node has of its cluster.
///
/// Order of calls: [`Membership::announce`] when there is a line to a manager; `handle_*` and plain
/// verbs as things happen. After each, [`Membership::poll_transmit`] until it returns nothing.
pub struct Membership {
    ready: Ready,
    rejoin_window: Duration,
    standing: Standing,
    /// End of the wait for another manager, or for its answer.
    back_by: Option<Time>,
    words: VecDeque<Up>,
    done: bool,
    asked_to_finish: bool,
    /// Incarnation of the manager that knows this node.
    manager: Option<u128>,
    size: u32,
    /// Nodes that started the cluster, by rank.
    founders: Vec<NodeId>,
    /// Host of each founder as this node first heard of it; empty for one that was gone by then.
    founder_hosts: Vec<String>,
    members: SortedMap<u32, Member>,
    names: SortedMap<String, SortedSet<NodeId>>,
    /// Names that this node provides, or asked to.
    provides: SortedSet<String>,
    refused_names: SortedMap<String, NameAnswer>,
    /// Number of the last question for a name that this node is to provide alone.
    last_sole: u64,
    /// These questions, by number: those that wait, are granted, or whose refusal no caller has taken.
    sole: SortedMap<u64, Sole>,
    deaths: Vec<Death>,
    /// Names of dead members, if their nodes had one.
    dead_names: SortedMap<NodeId, String>,
    /// Dead members that no barrier has named yet.
    unnamed: Vec<NodeId>,
    passed: u64,
    at: Option<u64>,
    /// Barrier that this node came to and whose result no caller has taken.
    owed: Option<u64>,
    /// Result of the last barrier.
    how: Passed,
    agreeing: Agreeing,
    changes: VecDeque<Change>,
    changes_before: u64,
}

impl Membership {
    /// Returns the longest time that this node waits for another rank 0.
    #[must_use]
    pub fn rejoin_window(&self) -> Duration {
        self.rejoin_window
    }

    /// Returns the view of a node that is about to announce itself with `ready`.
    #[must_use]
    pub fn new(ready: Ready, rejoin_window: Duration) -> Membership {
        Membership {
            size: ready.size.unwrap_or(0),
            ready,
            rejoin_window,
            standing: Standing::Announced,
            back_by: None,
            words: VecDeque::new(),
            done: false,
            asked_to_finish: false,
            manager: None,
            founders: Vec::new(),
            founder_hosts: Vec::new(),
            members: SortedMap::new(),
            names: SortedMap::new(),
            provides: SortedSet::new(),
            refused_names: SortedMap::new(),
            last_sole: 0,
            sole: SortedMap::new(),
            deaths: Vec::new(),
            dead_names: SortedMap::new(),
            unnamed: Vec::new(),
            passed: 0,
            at: None,
            owed: None,
            how: Passed::new(),
            agreeing: Agreeing::default(),
            changes: VecDeque::new(),
            changes_before: 0,
        }
    }

    /// Returns the relation of this node to the manager.
    #[must_use]
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Returns the end of the membership, if it has ended.
    #[must_use]
    pub fn end(&self) -> Option<&End> {
        match &self.standing {
            Standing::Ended(end) => Some(end),
            _ => None,
        }
    }

    /// Returns the id of this node, once it is a member.
    #[must_use]
    pub fn id(&self) -> Option<NodeId> {
        let rank = self.ready.rank.filter(|_| self.manager.is_some())?;
        Some(NodeId { rank, incarnation: self.ready.incarnation })
    }

    /// Returns the number of nodes that started the cluster.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Returns the nodes that started the cluster, by rank, also those that are gone.
    #[must_use]
    pub fn founders(&self) -> &[NodeId] {
        &self.founders
    }

    /// Returns the host of each founder as this node first heard of it, by rank.
    #[must_use]
    pub fn founder_hosts(&self) -> &[String] {
        &self.founder_hosts
    }

    /// Returns all present members, by rank, this node included.
    #[must_use]
    pub fn members(&self) -> &SortedMap<u32, Member> {
        &self.members
    }

    /// Returns the deaths in the order in which they were reported.
    #[must_use]
    pub fn deaths(&self) -> &[Death] {
        &self.deaths
    }

    /// Returns the members whose nodes have this name, by rank.
    pub fn members_named(&self, name: &str) -> impl Iterator<Item = &Member> {
        self.members.values().filter(move |member| member.name.as_deref() == Some(name))
    }

    /// Returns the last death of a node of this name.
    #[must_use]
    pub fn death_of(&self, name: &str) -> Option<&Death> {
        let had_it = |death: &&Death| self.dead_names.get(&death.id).is_some_and(|it| it == name);
        self.deaths.iter().rfind(had_it)
    }

    /// Returns the nodes that provide something under `name`, by rank.
    pub fn providers(&self, name: &str) -> impl Iterator<Item = NodeId> {
        self.names.get(name).into_iter().flatten().copied()
    }

    /// Returns the nodes that provide something under a name with this beginning, each with the rest of the
    /// name.
    pub fn provided_below(&self, begin: &str) -> impl Iterator<Item = (NodeId, String)> {
        let rests = self.names.iter().filter_map(move |(name, nodes)| {
            let rest = name.strip_prefix(begin)?;
            Some(nodes.iter().map(move |node| (*node, rest.to_owned())))
        });
        rests.flatten()
    }

    /// Returns the barrier that this node waits at.
    #[must_use]
    pub fn waits_at(&self) -> Option<u64> {
        self.at
    }

    /// Returns the number of changes so far.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes_before + self.changes.len() as u64
    }

    /// Returns the change of this number, from 0, and the number of the change after it.
    #[must_use]
    pub fn change(&self, number: u64) -> Option<(Change, u64)> {
        if number < self.changes_before {
            return Some((Change::Missed(self.changes_before - number), self.changes_before));
        }
        let index = usize::try_from(number - self.changes_before).ok()?;
        Some((self.changes.get(index)?.clone(), number + 1))
    }

    /// Announces this node on a line to a manager.
    ///
    /// Everything that the manager has not heard is sent again.
    pub fn announce(&mut self) {
        if self.end().is_some() {
            return;
        }
        self.standing = Standing::Announced;
        let before = || Before {
            passed: self.passed,
            at: self.at,
            names: self.provides.iter().cloned().collect(),
            done: self.done,
            members: self.members.values().map(|member| member.id).collect(),
            deaths: self.deaths.clone(),
            unnamed: self.unnamed.clone(),
            decisions: self.agreeing.heard(),
            open: self.agreeing.open().map(|it| it.number).collect(),
            founders: self.founders.clone(),
            sole: self.granted(),
        };
        let again = self.manager.map(|_| Box::new(before()));
        self.words.clear();
        self.words.push_back(Up::Ready(Ready { again, ..self.ready.clone() }));
        self.words.extend(self.open_questions());
        self.words.extend(self.agreeing.open().cloned().map(Up::Agree));
        if self.asked_to_finish {
            self.words.push_back(Up::Finish);
        }
    }

    /// Returns the next word for the manager.
    pub fn poll_transmit(&mut self) -> Option<Up> {
        let may_speak = match &self.standing {
            Standing::Announced => matches!(self.words.front(), Some(Up::Ready(_))),
            Standing::Member | Standing::Ended(End::Left) => true,
            _ => false,
        };
        if may_speak { self.words.pop_front() } else { None }
    }

    /// Handles the loss of the manager; returns whether to look for another.
    ///
    /// The search lasts until [`Membership::poll_timeout`].
    pub fn handle_manager_lost(&mut self, loss: impl Into<Loss>, now: Time) -> bool {
        let loss = loss.into();
        match &self.standing {
            Standing::Ended(_) => return false,
            Standing::Cut { .. } => return true,
            _ if self.rejoin_window.is_zero() || self.manager.is_none() => {
                self.standing = Standing::Ended(End::ManagerLost { loss });
                return false;
            }
            _ => {}
        }
        let until = *self.back_by.get_or_insert_with(|| now.after(self.rejoin_window));
        self.standing = Standing::Cut { until, loss };
        self.note(Change::ManagerLost);
        true
    }

    /// Returns the time for the next [`Membership::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.back_by.filter(|_| self.end().is_none())
    }

    /// Handles the passing of time: a manager that is not back by now counts as lost.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.poll_timeout().is_none_or(|until| now < until) {
            return;
        }
        let loss = match &self.standing {
            Standing::Cut { loss, .. } => loss.clone(),
            _ => Loss::new(LossKind::Silent, "a new one did not answer in time"),
        };
        self.standing = Standing::Ended(End::ManagerLost { loss });
    }

    /// Comes to the next barrier; returns its number, the same until [`Membership::leave_barrier`].
    pub fn enter_barrier(&mut self) -> u64 {
        if let Some(number) = self.owed {
            return number;
        }
        let number = self.passed + 1;
        (self.at, self.owed) = (Some(number), Some(number));
        self.words.push_back(Up::Barrier(number));
        number
    }

    /// Notes that the result of this barrier was read here.
    pub fn leave_barrier(&mut self, number: u64) {
        self.owed = self.owed.filter(|owed| *owed != number);
    }

    /// Returns the result of the barrier of this number, once it was passed.
    #[must_use]
    pub fn barrier(&self, number: u64) -> Option<&Passed> {
        (self.passed >= number).then_some(&self.how)
    }

    /// Asks all members to stop.
    pub fn finish(&mut self) {
        if !std::mem::replace(&mut self.asked_to_finish, true) {
            self.words.push_back(Up::Finish);
        }
    }

    /// Reports that this node has no more to do.
    pub fn done(&mut self) {
        if !std::mem::replace(&mut self.done, true) {
            self.words.push_back(Up::Done);
        }
    }

    /// Leaves; the other members stay.
    pub fn leave(&mut self) {
        if self.end().is_some() {
            return;
        }
        self.words.clear();
        if self.standing == Standing::Member {
            self.words.push_back(Up::Leave);
        }
        self.standing = Standing::Ended(End::Left);
    }

    fn note(&mut self, change: Change) {
        if self.changes.len() == CHANGES_MAX {
            self.changes.pop_front();
            self.changes_before += 1;
        }
        self.changes.push_back(change);
    }
}
