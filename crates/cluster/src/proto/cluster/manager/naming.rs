//! Names that members provide.

use super::{Manager, Phase, is_name};
use crate::proto::cluster::{Before, Down, NAMES_A_MEMBER_MAX, NameAnswer, NodeId};
use chunkcomm_proto::sorted::SortedSet;

/// Members that provide one name.
#[derive(Default)]
pub(super) struct Providers {
    ids: SortedSet<NodeId>,
    /// Whether its one provider is to stay the only one.
    is_sole: bool,
}

impl Providers {
    pub(super) fn ids(&self) -> impl Iterator<Item = NodeId> {
        self.ids.iter().copied()
    }

    /// Returns a provider other than `id`.
    fn other(&self, id: NodeId) -> Option<NodeId> {
        self.ids().find(|it| *it != id)
    }

    /// Removes a member; returns whether nobody is left.
    pub(super) fn remove(&mut self, id: NodeId) -> bool {
        self.ids.remove(&id);
        self.ids.is_empty()
    }

    pub(super) fn is_sound(&self) -> bool {
        !self.ids.is_empty() && (!self.is_sole || self.ids.len() == 1)
    }
}

/// Names that a member brings along when it announces itself again.
#[derive(Default)]
pub(super) struct Claims {
    /// Names that it alone provided, each with the number of its question.
    sole: Vec<(u64, String)>,
    names: Vec<String>,
}

impl Claims {
    pub(super) fn of(before: &mut Before) -> Claims {
        let Before { sole, names, .. } = before;
        Claims { sole: std::mem::take(sole), names: std::mem::take(names) }
    }
}

impl Manager {
    pub(super) fn provide(&mut self, rank: u32, name: String) {
        let (id, line) = (self.seats[&rank].member.id, self.seats[&rank].line);
        let sole = self.names.get(&name).filter(|it| it.is_sole);
        if !self.may_provide(id, &name) {
            self.transmits.push_back((line, Down::NameRefused(name)));
        } else if let Some(by) = sole.and_then(|it| it.other(id)) {
            self.transmits.push_back((line, Down::NameHeld(name, by)));
        } else {
            self.add_provider(id, name);
        }
    }

    /// Lets a member be the only one that provides a name, unless another member provides it.
    pub(super) fn provide_sole(&mut self, rank: u32, number: u64, name: &str) {
        let (id, line) = (self.seats[&rank].member.id, self.seats[&rank].line);
        let other = self.names.get(name).and_then(|it| it.other(id));
        let answer = match other {
            _ if !self.may_provide(id, name) => NameAnswer::Refused,
            Some(by) => NameAnswer::Held(by),
            None => {
                self.add_provider(id, name.to_owned());
                if let Some(providers) = self.names.get_mut(name) {
                    providers.is_sole = true;
                }
                NameAnswer::Granted
            }
        };
        self.transmits.push_back((line, Down::Sole { number, answer }));
    }

    fn may_provide(&self, id: NodeId, name: &str) -> bool {
        let others = self.names.iter().filter(|(it, by)| **it != name && by.ids.contains(&id));
        is_name(name) && others.count() < NAMES_A_MEMBER_MAX
    }

    fn add_provider(&mut self, id: NodeId, name: String) {
        let is_new = self.names.get_or_insert(name.clone(), Providers::default()).ids.insert(id);
        if is_new && self.phase == Phase::Running {
            self.tell_all(&Down::Provided(name, id));
        }
    }

    pub(super) fn withdraw(&mut self, id: NodeId, name: &str) {
        let Some(providers) = self.names.get_mut(name) else { return };
        let had = providers.ids.contains(&id);
        if providers.remove(id) {
            self.names.remove(name);
        }
        if had {
            self.tell_all(&Down::Withdrawn(name.to_owned(), id));
        }
    }

    /// Takes up the names of a member that has announced itself again.
    pub(super) fn take_up_names(&mut self, rank: u32, claims: Claims) {
        let id = self.seats[&rank].member.id;
        // The member may have withdrawn names while it had no line.
        let is_sole = |name: &String| claims.sole.iter().any(|(_, it)| it == name);
        let own = self.names.iter_mut().filter(|(_, by)| by.ids.contains(&id));
        let mut left = Vec::new();
        for (name, by) in own {
            by.is_sole &= is_sole(name);
            if !is_sole(name) && !claims.names.contains(name) {
                left.push(name.clone());
            }
        }
        left.iter().for_each(|name| self.withdraw(id, name));
        self.claim(rank, claims);
    }

    /// Takes up the names of an earlier manager's members at the start. Names that a member had alone
    /// come first: another may have asked for them since.
    pub(super) fn take_up_all_names(&mut self) {
        for rank in self.ranks() {
            let seat = self.seats.get_mut(&rank).expect("its rank was listed");
            let sole = std::mem::take(&mut seat.claims.sole);
            self.claim(rank, Claims { sole, names: Vec::new() });
        }
        for rank in self.ranks() {
            let seat = self.seats.get_mut(&rank).expect("its rank was listed");
            let claims = std::mem::take(&mut seat.claims);
            self.claim(rank, claims);
        }
    }

    fn claim(&mut self, rank: u32, Claims { sole, names }: Claims) {
        for (number, name) in sole {
            self.provide_sole(rank, number, &name);
        }
        for name in names {
            self.provide(rank, name);
        }
    }
}
