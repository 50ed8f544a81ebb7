//! Deaths that the manager remembers, and tells later members and the next barrier.

use super::Manager;
use crate::proto::cluster::{DEATHS_MAX, Death, NodeId};

impl Manager {
    /// Notes a death, which the next barrier names.
    pub(super) fn note_death(&mut self, death: Death) {
        if self.died.len() == DEATHS_MAX {
            self.died.remove(0);
        }
        self.died.push(death.id);
        self.remember(death);
    }

    /// Takes a death back, since the member is there.
    pub(super) fn revive(&mut self, id: NodeId) {
        if self.dead.remove(&id) {
            self.deaths.retain(|death| death.id != id);
            self.died.retain(|died| *died != id);
        }
    }

    pub(super) fn remember(&mut self, death: Death) {
        if self.deaths.len() == DEATHS_MAX
            && let Some(forgotten) = self.deaths.pop_front()
        {
            self.dead.remove(&forgotten.id);
        }
        self.dead.insert(death.id);
        self.deaths.push_back(death);
    }
}
