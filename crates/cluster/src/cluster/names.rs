//! Names of nodes, and of the things that they provide, by which others find them.

use super::{Cluster, Member, NameError, NamedError, NodeId};
use chunkcomm::layer::Wait;

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
    /// No member has the name; the error says whether one had it and died. Or several have it:
    /// names need not differ, and [`Cluster::members_named`] returns all.
    pub fn member_named(&self, name: &str) -> Result<Member, NamedError> {
        self.shared.state.look(|it| {
            let mut named = it.members_named(name);
            match (named.next(), named.next()) {
                (Some(member), None) => Ok(member.clone()),
                (Some(_), Some(_)) => Err(NamedError::Several {
                    name: name.to_owned(),
                    ranks: it.members_named(name).map(|member| member.id.rank).collect(),
                }),
                (None, _) => Err(match it.death_of(name) {
                    Some(death) => NamedError::Dead { name: name.to_owned(), death: death.clone() },
                    None => NamedError::Nobody { name: name.to_owned() },
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
    /// The name is empty or longer than 255 bytes, this node provides 1024 already, or
    /// the cluster has ended.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the name is provided all the same.
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
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn withdrawn(&self, name: &str, provider: NodeId) {
        let over = self.shared.state.until(|it| {
            let provides = it.providers(name).any(|id| id == provider);
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
    /// The cluster has ended.
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
    /// The cluster has ended.
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
