//! Names of nodes, and of the things that they provide, by which others find them.

use super::state::State;
use super::{Cluster, Member, NameError, NodeId};
use crate::proto::cluster::NameAnswer;
use crate::proto::cluster::membership::Asked;
use chunkcomm::layer::Wait;

/// A question for a name that this node is to provide alone. Dropped, it gives the name up.
struct Asking<'a> {
    state: &'a State,
    number: u64,
    granted: bool,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if !self.granted {
            self.state.change(|it| it.leave_sole(self.number));
        }
    }
}

impl Cluster {
    /// Returns the member whose node was given this name ([`NodeBuilder::name`]), as far as this
    /// node knows.
    ///
    /// A member and its name become known together. A dead member loses its name, and a later one
    /// may have it.
    ///
    /// [`NodeBuilder::name`]: chunkcomm::NodeBuilder::name
    ///
    /// # Errors
    ///
    /// - [`NameError::Nobody`]: no member has the name.
    /// - [`NameError::Dead`]: the last member that had it died.
    /// - [`NameError::Several`]: several have it. Names need not differ, and
    ///   [`Cluster::members_named`] returns all.
    pub fn member_named(&self, name: &str) -> Result<Member, NameError> {
        self.shared.state.look(|it| {
            let mut named = it.members_named(name);
            match (named.next(), named.next()) {
                (Some(member), None) => Ok(member.clone()),
                (Some(_), Some(_)) => Err(NameError::Several {
                    name: name.to_owned(),
                    ranks: it.members_named(name).map(|member| member.id.rank).collect(),
                }),
                (None, _) => Err(match it.death_of(name) {
                    Some(death) => NameError::Dead { name: name.to_owned(), death: death.clone() },
                    None => NameError::Nobody { name: name.to_owned() },
                }),
            }
        })
    }

    /// Returns the members whose nodes were given this name, by rank.
    #[must_use]
    pub fn members_named(&self, name: &str) -> Vec<Member> {
        self.shared.state.look(|it| it.members_named(name).cloned().collect())
    }

    /// Announces to all members that this node provides something under `name`.
    ///
    /// Waits until the manager has announced it. Several nodes may provide the same name.
    ///
    /// # Errors
    ///
    /// - [`NameError::Refused`]: the name is empty or longer than 255 bytes, or this node provides
    ///   1024 already.
    /// - [`NameError::Held`]: another node provides the name alone ([`Cluster::provide_sole`]).
    /// - [`NameError::Withdrawn`]: this node has withdrawn the name meanwhile.
    /// - [`NameError::Ended`]: the cluster has ended.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the name is provided all the same.
    pub async fn provide(&self, name: &str) -> Result<(), NameError> {
        let state = &self.shared.state;
        state.change(|it| it.provide(name));
        let told = state.until(|it| {
            if let Some(why) = it.name_refusal(name) {
                return Some(granted(name, why));
            }
            if it.providers(name).any(|id| id == self.shared.id) {
                return Some(Ok(()));
            }
            if let Some(end) = it.end() {
                return Some(Err(NameError::Ended(end.clone())));
            }
            let withdrawn = NameError::Withdrawn { name: name.to_owned() };
            (!it.provides(name)).then_some(Err(withdrawn))
        });
        told.await
    }

    /// Announces to all members that this node, and no other, provides something under `name`.
    ///
    /// The manager decides: of nodes that ask at once one gets the name. As long as it lives and
    /// has not [withdrawn](Cluster::withdraw) it, [`Cluster::provide`] and `provide_sole` of the same
    /// name are an error at all others, and a second `provide_sole` also at this node. The name is
    /// free once its provider has withdrawn it, has left or is dead. When the manager is gone, its
    /// successor knows the name from the provider.
    ///
    /// A node that was taken for dead while it lived may find its name given to another when it is
    /// back. [`Cluster::withdrawn`] of its own name tells it.
    ///
    /// # Errors
    ///
    /// - [`NameError::Held`]: another node provides the name, or this node does already.
    /// - [`NameError::Refused`], [`NameError::Withdrawn`], [`NameError::Ended`]: as
    ///   [`Cluster::provide`].
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the name is not provided.
    pub async fn provide_sole(&self, name: &str) -> Result<(), NameError> {
        let state = &self.shared.state;
        let held_here = NameError::Held { name: name.to_owned(), by: self.shared.id };
        let number = loop {
            // Another task of this node may be asking, and get the name or not.
            let answered = state.until(|it| match it.end() {
                Some(end) if it.asks(name) => Some(Err(NameError::Ended(end.clone()))),
                _ => (!it.asks(name)).then_some(Ok(())),
            });
            answered.await?;
            match state.change(|it| (it.provide_sole(name), it.asks(name))) {
                (Some(number), _) => break number,
                (None, true) => {}
                (None, false) => return Err(held_here),
            }
        };
        let mut asking = Asking { state, number, granted: false };
        let answered = state.until(|it| match (it.sole(number), it.end()) {
            (Asked::Answered(answer), _) => Some(granted(name, answer)),
            (Asked::Withdrawn, _) => Some(Err(NameError::Withdrawn { name: name.to_owned() })),
            (Asked::Open, Some(end)) => Some(Err(NameError::Ended(end.clone()))),
            (Asked::Open, None) => None,
        });
        let answered = answered.await;
        asking.granted = answered.is_ok();
        answered
    }

    /// Announces to all members that this node provides nothing under `name` from now on.
    pub fn withdraw(&self, name: &str) {
        self.shared.state.change(|it| it.withdraw(name));
    }

    /// Returns whether this node provides something under `name`, or is about to.
    #[must_use]
    pub fn provides(&self, name: &str) -> bool {
        self.shared.state.look(|it| it.provides(name))
    }

    /// Waits until `provider` provides nothing under `name`, or the cluster has ended.
    ///
    /// A wait for an answer of the provider belongs beside this one: the provider may stop without
    /// a word to those who ask it, or die.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn withdrawn(&self, name: &str, provider: NodeId) {
        let over = self.shared.state.until(|it| {
            let provides = if provider == self.shared.id {
                // A new manager may not have announced this node's names yet.
                it.provides(name)
            } else {
                it.providers(name).any(|id| id == provider)
            };
            (!provides || it.end().is_some()).then_some(())
        });
        over.await;
    }

    /// Returns the nodes that provide something under `name` now, by rank.
    #[must_use]
    pub fn providers(&self, name: &str) -> Vec<NodeId> {
        self.shared.state.look(|it| it.providers(name).collect())
    }

    /// Waits until a node provides something under `name`.
    ///
    /// # Errors
    ///
    /// [`NameError::Ended`]: the cluster has ended.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn provider(&self, name: &str) -> Result<NodeId, NameError> {
        self.provider_of(name, format!("somebody to provide {name:?}"), |_| true).await
    }

    /// Waits until a node other than this one provides something under `name`.
    ///
    /// # Errors
    ///
    /// [`NameError::Ended`]: the cluster has ended.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn other_provider(&self, name: &str) -> Result<NodeId, NameError> {
        let me = self.id();
        self.provider_of(name, format!("another node to provide {name:?}"), |id| id != me).await
    }

    async fn provider_of(
        &self,
        name: &str,
        what: String,
        fits: impl Fn(NodeId) -> bool,
    ) -> Result<NodeId, NameError> {
        let _wait = Wait::begin(&self.shared.state.node, what);
        let found = self.shared.state.until(|it| {
            let found = it.providers(name).find(|id| fits(*id));
            match (found, it.end()) {
                (Some(id), _) => Some(Ok(id)),
                (None, Some(end)) => Some(Err(NameError::Ended(end.clone()))),
                (None, None) => None,
            }
        });
        found.await
    }
}

/// Converts the manager's answer about a name.
fn granted(name: &str, answer: NameAnswer) -> Result<(), NameError> {
    let name = name.to_owned();
    match answer {
        NameAnswer::Granted => Ok(()),
        NameAnswer::Held(by) => Err(NameError::Held { name, by }),
        NameAnswer::Refused => Err(NameError::Refused { name }),
    }
}
