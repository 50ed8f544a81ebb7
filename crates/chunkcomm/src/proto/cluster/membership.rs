//! A member's side of a cluster: what it knows of the others.

mod hearing;
mod standing;

pub use standing::{Change, End, Standing, WordError};

use super::{Before, Death, Member, NodeId, Ready, Up};
use crate::proto::Time;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Of so many changes the last ones are kept for those who look later.
pub const CHANGES_MAX: usize = 1024;

/// How a barrier was passed: who died while the others came.
pub type Passed = Vec<NodeId>;

/// What one node knows of its cluster.
///
/// Order of calls: [`Membership::announce`] when there is a line to a manager;
/// `handle_*` and plain verbs as things happen, and after each
/// [`Membership::poll_transmit`] until it gives nothing.
pub struct Membership {
    ready: Ready,
    /// What this node is called.
    name: Option<String>,
    rejoin_window: Duration,
    standing: Standing,
    /// Where another manager is waited for, or spoken to: until then.
    back_by: Option<Time>,
    words: VecDeque<Up>,
    done: bool,
    asked_to_finish: bool,
    /// The manager that knows this node.
    manager: Option<u128>,
    size: u32,
    members: BTreeMap<u32, Member>,
    names: BTreeMap<String, BTreeSet<NodeId>>,
    /// What nodes are called: those of members, of who is about to be one, and of the dead.
    called: BTreeMap<NodeId, String>,
    /// What this node provides, or asked to.
    provides: BTreeSet<String>,
    refused_names: BTreeSet<String>,
    deaths: Vec<Death>,
    /// Who died, and no barrier has named yet.
    unnamed: Vec<NodeId>,
    passed: u64,
    at: Option<u64>,
    /// It came to this barrier, and nobody here has heard how it was passed.
    owed: Option<u64>,
    /// How the last barrier was passed.
    how: Passed,
    changes: VecDeque<Change>,
    changes_before: u64,
}

impl Membership {
    /// A node that is about to announce itself so.
    #[must_use]
    pub fn new(ready: Ready, rejoin_window: Duration) -> Membership {
        Membership {
            size: ready.size.unwrap_or(0),
            ready,
            name: None,
            rejoin_window,
            standing: Standing::Announced,
            back_by: None,
            words: VecDeque::new(),
            done: false,
            asked_to_finish: false,
            manager: None,
            members: BTreeMap::new(),
            names: BTreeMap::new(),
            called: BTreeMap::new(),
            provides: BTreeSet::new(),
            refused_names: BTreeSet::new(),
            deaths: Vec::new(),
            unnamed: Vec::new(),
            passed: 0,
            at: None,
            owed: None,
            how: Passed::new(),
            changes: VecDeque::new(),
            changes_before: 0,
        }
    }

    /// The node has this name.
    #[must_use]
    pub fn called(self, name: Option<String>) -> Membership {
        Membership { name, ..self }
    }

    /// How it stands to the manager.
    #[must_use]
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// How it ended, if it has.
    #[must_use]
    pub fn end(&self) -> Option<&End> {
        match &self.standing {
            Standing::Ended(end) => Some(end),
            _ => None,
        }
    }

    /// This node, once it is a member.
    #[must_use]
    pub fn id(&self) -> Option<NodeId> {
        let rank = self.ready.rank.filter(|_| self.manager.is_some())?;
        Some(NodeId { rank, incarnation: self.ready.incarnation })
    }

    /// How many nodes started the cluster.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Everybody who is there, by rank, this node too.
    #[must_use]
    pub fn members(&self) -> &BTreeMap<u32, Member> {
        &self.members
    }

    /// Who died, in the order in which that was told.
    #[must_use]
    pub fn deaths(&self) -> &[Death] {
        &self.deaths
    }

    /// The members whose nodes are called so, by rank.
    pub fn members_named(&self, name: &str) -> impl Iterator<Item = &Member> {
        self.members.values().filter(move |member| member.name.as_deref() == Some(name))
    }

    /// Who was called so and died, the last of several.
    #[must_use]
    pub fn death_of(&self, name: &str) -> Option<&Death> {
        let was_called = |death: &&Death| self.called.get(&death.id).is_some_and(|it| it == name);
        self.deaths.iter().rfind(was_called)
    }

    /// Who provides something under `name`, by rank.
    pub fn providers(&self, name: &str) -> impl Iterator<Item = NodeId> {
        self.names.get(name).into_iter().flatten().copied()
    }

    /// This node asked to provide something under `name`, and was not refused.
    #[must_use]
    pub fn provides(&self, name: &str) -> bool {
        self.provides.contains(name)
    }

    /// The barrier that this node waits at.
    #[must_use]
    pub fn waits_at(&self) -> Option<u64> {
        self.at
    }

    /// The name was not taken.
    #[must_use]
    pub fn is_name_refused(&self, name: &str) -> bool {
        self.refused_names.contains(name)
    }

    /// How many changes there were.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes_before + self.changes.len() as u64
    }

    /// The change of this number, from 0, and the number behind it.
    #[must_use]
    pub fn change(&self, number: u64) -> Option<(Change, u64)> {
        if number < self.changes_before {
            return Some((Change::Missed(self.changes_before - number), self.changes_before));
        }
        let index = usize::try_from(number - self.changes_before).ok()?;
        Some((self.changes.get(index)?.clone(), number + 1))
    }

    /// There is a line to a manager: this node announces itself, and what was not
    /// heard by the manager before is said anew.
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
        };
        let again = self.manager.map(|_| Box::new(before()));
        self.words.clear();
        self.words.extend(self.name.clone().map(Up::Called));
        self.words.push_back(Up::Ready(Ready { again, ..self.ready.clone() }));
        if self.asked_to_finish {
            self.words.push_back(Up::Finish);
        }
    }

    /// What is to be said to the manager next.
    pub fn poll_transmit(&mut self) -> Option<Up> {
        let may_speak = match &self.standing {
            Standing::Announced => {
                matches!(self.words.front(), Some(Up::Called(_) | Up::Ready(_)))
            }
            Standing::Member | Standing::Ended(End::Left) => true,
            _ => false,
        };
        if may_speak { self.words.pop_front() } else { None }
    }

    /// The manager is gone. True when another is to be looked for, until
    /// [`Membership::poll_timeout`].
    pub fn handle_manager_lost(&mut self, why: impl Into<String>, now: Time) -> bool {
        let why = why.into();
        match &self.standing {
            Standing::Ended(_) => return false,
            Standing::Cut { .. } => return true,
            _ if self.rejoin_window.is_zero() || self.manager.is_none() => {
                self.standing = Standing::Ended(End::ManagerLost { why });
                return false;
            }
            _ => {}
        }
        let until = *self.back_by.get_or_insert_with(|| now.after(self.rejoin_window));
        self.standing = Standing::Cut { until, why };
        self.note(Change::ManagerLost);
        true
    }

    /// When [`Membership::handle_timeout`] is to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.back_by.filter(|_| self.end().is_none())
    }

    /// Time has gone on: a manager that is not back by now does not count any more.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.poll_timeout().is_none_or(|until| now < until) {
            return;
        }
        let why = match &self.standing {
            Standing::Cut { why, .. } => why.clone(),
            _ => "a new one did not answer in time".to_owned(),
        };
        self.standing = Standing::Ended(End::ManagerLost { why });
    }

    /// This node waits at the next barrier; gives its number. Until
    /// [`Membership::leave_barrier`] it is the same one.
    pub fn enter_barrier(&mut self) -> u64 {
        if let Some(number) = self.owed {
            return number;
        }
        let number = self.passed + 1;
        (self.at, self.owed) = (Some(number), Some(number));
        self.words.push_back(Up::Barrier(number));
        number
    }

    /// Somebody here knows that this barrier was passed.
    pub fn leave_barrier(&mut self, number: u64) {
        self.owed = self.owed.filter(|owed| *owed != number);
    }

    /// The barrier of this number was passed, and how.
    #[must_use]
    pub fn barrier(&self, number: u64) -> Option<&Passed> {
        (self.passed >= number).then_some(&self.how)
    }

    /// This node provides something under this name from now on.
    pub fn provide(&mut self, name: &str) {
        self.provides.insert(name.to_owned());
        self.refused_names.remove(name);
        self.words.push_back(Up::Provide(name.to_owned()));
    }

    /// It no longer does.
    pub fn withdraw(&mut self, name: &str) {
        self.provides.remove(name);
        self.words.push_back(Up::Withdraw(name.to_owned()));
    }

    /// All are to stop.
    pub fn finish(&mut self) {
        if !std::mem::replace(&mut self.asked_to_finish, true) {
            self.words.push_back(Up::Finish);
        }
    }

    /// This node has no more to do.
    pub fn done(&mut self) {
        if !std::mem::replace(&mut self.done, true) {
            self.words.push_back(Up::Done);
        }
    }

    /// This node goes, and the others stay.
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
