//! Names at a member: those that it provides, and those that it asked to provide alone.

use super::Membership;
use crate::proto::cluster::{NameAnswer, NodeId, Up};
use chunkcomm_proto::sorted::SortedSet;

/// State of a question for a name that this node is to provide alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The manager has not answered.
    Open,
    /// The manager's last answer.
    Answered(NameAnswer),
    /// The name was withdrawn.
    Withdrawn,
}

/// Question for a name that this node is to provide alone.
pub(super) struct Sole {
    name: String,
    answer: Option<NameAnswer>,
}

impl Sole {
    fn is_open(&self) -> bool {
        self.answer.is_none()
    }

    fn is_granted(&self) -> bool {
        self.answer == Some(NameAnswer::Granted)
    }

    /// Whether this node provides the name by this question, or is about to.
    fn provides(&self, name: &str) -> bool {
        self.name == name && (self.is_open() || self.is_granted())
    }
}

impl Membership {
    /// Whether this node asked to provide something under `name`, and was not refused.
    #[must_use]
    pub fn provides(&self, name: &str) -> bool {
        self.provides.contains(name) || self.sole.values().any(|it| it.provides(name))
    }

    /// Returns the reason why this node does not provide `name`, as the manager said last.
    #[must_use]
    pub fn name_refusal(&self, name: &str) -> Option<NameAnswer> {
        self.refused_names.get(name).copied()
    }

    /// Provides something under this name from now on.
    pub fn provide(&mut self, name: &str) {
        self.refused_names.remove(name);
        // A second word could have another answer than the first.
        if self.provides.insert(name.to_owned()) {
            self.words.push_back(Up::Provide(name.to_owned()));
        }
    }

    /// Withdraws this name: this node provides nothing under it from now on.
    pub fn withdraw(&mut self, name: &str) {
        self.provides.remove(name);
        self.refused_names.remove(name);
        self.sole.retain(|_, it| !it.provides(name));
        self.forget_own(name);
        self.words.push_back(Up::Withdraw(name.to_owned()));
    }

    /// Forgets this node as a provider: it has withdrawn the name, whenever the manager hears of it.
    fn forget_own(&mut self, name: &str) {
        if let (Some(id), Some(ids)) = (self.id(), self.names.get_mut(name)) {
            ids.remove(&id);
        }
        self.names.retain(|_, ids| !ids.is_empty());
    }

    /// Notes a provider. This node is none of a name that it has withdrawn meanwhile.
    pub(super) fn add_provider(&mut self, name: String, id: NodeId) {
        if self.id() == Some(id) && !self.provides(&name) {
            if self.refused_names.remove(&name).is_none() {
                return;
            }
            // The refusal was that of an earlier word, before a withdrawal.
            self.provides.insert(name.clone());
        }
        self.names.get_or_insert(name, SortedSet::new()).insert(id);
    }

    /// Asks to be the only one that provides something under this name; returns the number of the
    /// question, or `None` if this node provides the name already.
    ///
    /// Each number needs its [`Membership::leave_sole`], unless the name was granted.
    pub fn provide_sole(&mut self, name: &str) -> Option<u64> {
        if self.provides(name) {
            return None;
        }
        self.last_sole += 1;
        let number = self.last_sole;
        self.sole.insert(number, Sole { name: name.to_owned(), answer: None });
        self.words.push_back(Up::ProvideSole { number, name: name.to_owned() });
        Some(number)
    }

    /// Whether the manager has not answered this node's question for this name.
    #[must_use]
    pub fn asks(&self, name: &str) -> bool {
        self.sole.values().any(|it| it.is_open() && it.name == name)
    }

    /// Returns the state of the question of this number.
    #[must_use]
    pub fn sole(&self, number: u64) -> Asked {
        match self.sole.get(&number) {
            None => Asked::Withdrawn,
            Some(Sole { answer: None, .. }) => Asked::Open,
            Some(Sole { answer: Some(answer), .. }) => Asked::Answered(*answer),
        }
    }

    /// Forgets the question of this number. If it was not refused, this node does not provide the
    /// name by it.
    pub fn leave_sole(&mut self, number: u64) {
        let Some(it) = self.sole.remove(&number) else { return };
        if !it.is_open() && !it.is_granted() {
            return;
        }
        self.words.push_back(Up::Withdraw(it.name.clone()));
        if self.provides.contains(&it.name) {
            self.words.push_back(Up::Provide(it.name));
        } else {
            self.forget_own(&it.name);
        }
    }

    pub(super) fn handle_sole(&mut self, number: u64, answer: NameAnswer) {
        // The manager gets the withdrawal of a question that is forgotten.
        if let Some(it) = self.sole.get_mut(&number) {
            it.answer = Some(answer);
        }
    }

    pub(super) fn handle_name_refusal(&mut self, name: String, why: NameAnswer) {
        if self.provides.remove(&name) {
            self.refused_names.insert(name, why);
        }
    }

    /// Returns the names that this node alone provides, each with the number of its question.
    pub(super) fn granted(&self) -> Vec<(u64, String)> {
        let granted = self.sole.iter().filter(|(_, it)| it.is_granted());
        granted.map(|(number, it)| (*number, it.name.clone())).collect()
    }

    /// Returns the questions that wait for the manager.
    pub(super) fn open_questions(&self) -> Vec<Up> {
        let open = self.sole.iter().filter(|(_, it)| it.is_open());
        let ask = |(number, it): (&u64, &Sole)| Up::ProvideSole {
            number: *number,
            name: it.name.clone(),
        };
        open.map(ask).collect()
    }
}
