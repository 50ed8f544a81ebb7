//! Names: what nodes provide, so that others find them.

use super::{Cluster, NameError, NodeId};

impl Cluster {
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
        let waits = self.shared.state.node.waits();
        let _wait = waits.begin(format!("somebody to provide {name:?}"));
        let found = self.shared.state.until(|it| match (it.providers(name).next(), it.end()) {
            (Some(id), _) => Some(Ok(id)),
            (None, Some(end)) => Some(Err(NameError::Ended(end.clone()))),
            (None, None) => None,
        });
        found.await
    }
}
