//! Names that members provide.

use super::{Manager, Phase, is_name};
use crate::proto::cluster::{Down, NAMES_A_MEMBER_MAX, NodeId};

impl Manager {
    pub(super) fn provide(&mut self, rank: u32, name: String) {
        let (id, line) = (self.seats[&rank].member.id, self.seats[&rank].line);
        let others = self.names.iter().filter(|(it, ids)| **it != name && ids.contains(&id));
        if !is_name(&name) || others.count() >= NAMES_A_MEMBER_MAX {
            self.transmits.push_back((line, Down::NameRefused(name)));
        } else if self.names.entry(name.clone()).or_default().insert(id)
            && self.phase == Phase::Running
        {
            self.tell_all(&Down::Provided(name, id));
        }
    }

    pub(super) fn withdraw(&mut self, id: NodeId, name: &str) {
        let Some(ids) = self.names.get_mut(name) else { return };
        let had = ids.remove(&id);
        if ids.is_empty() {
            self.names.remove(name);
        }
        if had {
            self.tell_all(&Down::Withdrawn(name.to_owned(), id));
        }
    }
}
