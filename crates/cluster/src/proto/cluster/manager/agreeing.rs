//! Agreements at the manager: the open ones, and the last decisions.

use super::{Manager, Phase};
use crate::proto::cluster::agreement::{
    AGREEMENTS_A_MEMBER_MAX, DECISIONS_MAX, Decision, Objection, Proposal, Proposed,
};
use crate::proto::cluster::{Down, NodeId};
use chunkcomm_proto::sorted::{SortedMap, SortedSet};
use std::collections::VecDeque;

/// Number of the last decisions that are kept for proposals that are sent again. A proposal is sent
/// again while its decision is on its way, or to a new manager; fewer are decided meanwhile.
const KEPT_MAX: usize = 256;

/// Agreement that waits for members.
struct Open {
    /// None: a meeting.
    among: Vec<NodeId>,
    /// Number and value of each proposal.
    proposals: SortedMap<NodeId, (u64, Vec<u8>)>,
}

struct Kept {
    decision: Decision,
    /// Members that the decision counts as gone, and that know it all the same.
    told: SortedSet<NodeId>,
}

#[derive(Default)]
pub(super) struct Agreements {
    open: SortedMap<String, Open>,
    kept: VecDeque<Kept>,
}

impl Agreements {
    /// Keeps a decision that `by` knows, or that is new.
    fn keep(&mut self, decision: &Decision, by: Option<NodeId>) {
        let index = self.kept.iter().position(|it| it.decision.is(decision)).unwrap_or_else(|| {
            if self.kept.len() == KEPT_MAX {
                self.kept.pop_front();
            }
            self.kept.push_back(Kept { decision: decision.clone(), told: SortedSet::new() });
            self.kept.len() - 1
        });
        self.kept[index].told.extend(by);
    }

    /// Returns the decision that was made of this proposal, or without it when the member was taken
    /// for dead.
    fn decided(
        &mut self,
        by: NodeId,
        number: u64,
        name: &str,
        among: &[NodeId],
    ) -> Option<Decision> {
        let answers = |it: &&mut Kept| {
            let Kept { decision, told } = &**it;
            decision.name == name
                && match decision.number_of(by) {
                    Some(its) => its == number,
                    None => decision.is_among(among) && !told.contains(&by),
                }
        };
        let kept = self.kept.iter_mut().find(answers)?;
        kept.told.insert(by);
        Some(kept.decision.clone())
    }

    /// Takes the open proposals of this name for which there is a decision.
    fn take_decided(&mut self, name: &str) -> Vec<(NodeId, Decision)> {
        let Some(mut open) = self.open.remove(name) else { return Vec::new() };
        let mut decided = Vec::new();
        open.proposals.retain(|id, (number, _)| {
            let decision = self.decided(*id, *number, name, &open.among);
            let waits = decision.is_none();
            decided.extend(decision.map(|decision| (*id, decision)));
            waits
        });
        if !open.proposals.is_empty() {
            self.open.insert(name.to_owned(), open);
        }
        decided
    }

    /// Returns the reason why a proposal does not go with the open ones.
    fn objection(&self, by: NodeId, proposal: &Proposal) -> Option<Objection> {
        if let Some(open) = self.open.get(&proposal.name) {
            let (first, _) = open.proposals.iter().next()?;
            let has_no_part = open.among.is_empty() && proposal.among == [by];
            return (!has_no_part && open.among != proposal.among).then_some(Objection::Differs {
                count: proposal.among.len() as u32,
                first: *first,
                first_count: open.among.len() as u32,
            });
        }
        let its = self.open.values().filter(|open| open.proposals.contains_key(&by)).count();
        (its >= AGREEMENTS_A_MEMBER_MAX).then_some(Objection::TooMany)
    }

    /// Whether one of its proposals was decided otherwise.
    pub(super) fn contradicts(&self, decision: &Decision) -> bool {
        let decided = |it: &Proposed| decision.number_of(it.by) == Some(it.number);
        self.kept.iter().map(|it| &it.decision).any(|kept| {
            kept.name == decision.name && kept != decision && kept.values.iter().any(decided)
        })
    }

    /// Forgets the proposal with which a member waits for another.
    fn forget_meeting(&mut self, id: NodeId, name: &str) {
        if let Some(open) = self.open.get_mut(name).filter(|open| open.among.is_empty()) {
            open.proposals.remove(&id);
            if open.proposals.is_empty() {
                self.open.remove(name);
            }
        }
    }

    /// Forgets the proposals of a member that is gone.
    pub(super) fn forget(&mut self, id: NodeId) {
        self.open.retain(|_, open| {
            open.proposals.remove(&id);
            !open.proposals.is_empty()
        });
    }

    /// Whether each open agreement has a proposal.
    pub(super) fn is_sound(&self) -> bool {
        self.kept.len() <= KEPT_MAX && self.open.values().all(|open| !open.proposals.is_empty())
    }
}

impl Manager {
    /// Takes a member's proposal, or answers it at once.
    pub(super) fn propose(&mut self, rank: u32, mut proposal: Proposal) {
        proposal.among.sort_unstable();
        proposal.among.dedup();
        let (id, line) = (self.seats[&rank].member.id, self.seats[&rank].line);
        let Proposal { number, name, among, .. } = &proposal;
        if self.phase != Phase::Running {
            return;
        }
        if let Some(decision) = self.agreements.decided(id, *number, name, among) {
            self.transmits.push_back((line, Down::Agreed(decision)));
            return;
        }
        let why = proposal.objection(id).or_else(|| self.agreements.objection(id, &proposal));
        if let Some(why) = why {
            self.transmits.push_back((line, Down::NotAgreed { number: *number, why }));
            return;
        }
        let Proposal { number, name, among, value } = proposal;
        if among == [id] {
            self.agreements.forget_meeting(id, &name);
            let proposals = SortedMap::from_iter([(id, (number, value))]);
            return self.decide_by(&name, proposals, Vec::new());
        }
        let open = Open { among, proposals: SortedMap::new() };
        let open = self.agreements.open.get_or_insert(name.clone(), open);
        open.proposals.insert(id, (number, value));
        self.decide(&name);
    }

    /// Decides all open agreements that nobody is missing in any more.
    pub(super) fn decide_all(&mut self) {
        let names: Vec<String> = self.agreements.open.keys().cloned().collect();
        names.iter().for_each(|name| self.decide(name));
    }

    /// Decides an agreement, unless a member is there that has not proposed; a meeting needs two.
    fn decide(&mut self, name: &str) {
        let Some(open) = self.agreements.open.get(name) else { return };
        let gone = open.among.iter().filter(|id| !open.proposals.contains_key(id)).copied();
        let gone: Vec<NodeId> = gone.collect();
        let is_alone = open.among.is_empty() && open.proposals.len() < 2;
        let waits = is_alone || gone.iter().any(|id| self.is_there(*id));
        if self.phase != Phase::Running || waits {
            return;
        }
        let Some(open) = self.agreements.open.remove(name) else { return };
        self.decide_by(name, open.proposals, gone);
    }

    /// Decides an agreement by these proposals, and tells their members.
    fn decide_by(
        &mut self,
        name: &str,
        proposals: SortedMap<NodeId, (u64, Vec<u8>)>,
        gone: Vec<NodeId>,
    ) {
        let values = proposals.into_iter();
        let values = values.map(|(by, (number, value))| Proposed { by, number, value });
        let decision = Decision { name: name.to_owned(), values: values.collect(), gone };
        for Proposed { by, .. } in &decision.values {
            let line = self.seats[&by.rank].line;
            self.transmits.push_back((line, Down::Agreed(decision.clone())));
        }
        self.agreements.keep(&decision, None);
    }

    /// Learns the decisions of an earlier manager from `by`. Others may wait for them.
    pub(super) fn learn_decisions(&mut self, by: NodeId, decisions: &[Decision]) {
        for decision in decisions.iter().take(DECISIONS_MAX) {
            self.agreements.keep(decision, Some(by));
            for (id, decision) in self.agreements.take_decided(&decision.name) {
                let line = self.seats[&id.rank].line;
                self.transmits.push_back((line, Down::Agreed(decision)));
            }
        }
    }

    /// Whether a member may still propose: one that has no more to do will not.
    fn is_there(&self, id: NodeId) -> bool {
        self.seats.get(&id.rank).is_some_and(|seat| seat.member.id == id && !seat.done)
    }
}
