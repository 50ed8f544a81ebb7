//! Agreements and meetings at the manager: the open ones, and the decisions that are kept.

use super::{Manager, Phase};
use crate::proto::cluster::agreement::{
    AGREEMENTS_A_MEMBER_MAX, Among, Decision, DecisionKey, MEETING_BYTES_MAX, Objection, Proposal,
    Proposed, forget_first,
};
use crate::proto::cluster::{Down, NodeId};
use chunkcomm_proto::sorted::{SortedMap, SortedSet};
use std::collections::VecDeque;

/// Number of the last decisions that are kept of those that are settled or of which a member is gone, for one that
/// was taken for dead.
const KEPT_MAX: usize = 256;

/// Agreement that waits for members.
struct Open {
    among: Vec<NodeId>,
    /// Number and value of each proposal.
    proposals: SortedMap<NodeId, (u64, Vec<u8>)>,
}

struct Kept {
    /// Its digest, once it is settled.
    decision: Decision,
    is_settled: bool,
    /// Its proposals whose members have not heard it yet.
    unheard: SortedSet<DecisionKey>,
    /// Members that the decision counts as gone, and that know it all the same.
    told: SortedSet<NodeId>,
}

#[derive(Default)]
pub(super) struct Agreements {
    open: SortedMap<String, Open>,
    /// The proposal that waits for another, by the name of the meeting.
    meetings: SortedMap<String, Proposed>,
    /// Numbers of the proposals whose outcome a member has not heard, of each present member.
    waits: SortedMap<NodeId, SortedSet<u64>>,
    kept: VecDeque<Kept>,
}

impl Agreements {
    /// Takes up a member that has not heard the outcome of these proposals.
    pub(super) fn join(&mut self, id: NodeId, open: &[u64]) {
        let open: SortedSet<u64> = open.iter().take(AGREEMENTS_A_MEMBER_MAX).copied().collect();
        // The word that withdrew another one went down with the line.
        self.retain(|by, number| by != id || open.contains(&number));
        for Kept { decision, unheard, .. } in &mut self.kept {
            let ours = decision.numbers_of(id).filter(|number| open.contains(number));
            let others = unheard.iter().copied().filter(|(by, _)| *by != id);
            *unheard = others.chain(ours.map(|number| (id, number))).collect();
        }
        self.waits.insert(id, open);
    }

    /// Forgets the proposals of a member that is gone.
    pub(super) fn leave(&mut self, id: NodeId) {
        self.retain(|by, _| by != id);
        self.waits.remove(&id);
        for it in &mut self.kept {
            it.unheard = it.unheard.iter().copied().filter(|(by, _)| *by != id).collect();
        }
    }

    /// Forgets the open proposals that `keeps` does not name.
    fn retain(&mut self, keeps: impl Fn(NodeId, u64) -> bool) {
        self.open.retain(|_, open| {
            open.proposals.retain(|by, (number, _)| keeps(*by, *number));
            !open.proposals.is_empty()
        });
        self.meetings.retain(|_, first| keeps(first.by, first.number));
    }

    /// Notes that a member has heard the outcome of its proposal.
    fn heard(&mut self, id: NodeId, number: u64) {
        if let Some(waits) = self.waits.get_mut(&id) {
            waits.remove(&number);
        }
        self.kept.iter_mut().for_each(|it| {
            it.unheard.remove(&(id, number));
        });
    }

    /// Takes the decisions that all their members have heard.
    fn take_settled(&mut self) -> Vec<Decision> {
        let (waits, mut settled) = (&self.waits, Vec::new());
        for it in self.kept.iter_mut().filter(|it| !it.is_settled && it.unheard.is_empty()) {
            if it.decision.is_whole(|id| waits.contains_key(id)) {
                it.is_settled = true;
                let digest = it.decision.digest();
                settled.push(std::mem::replace(&mut it.decision, digest));
            }
        }
        settled
    }

    /// Keeps a decision that `by` knows, or that is new.
    fn keep(&mut self, decision: &Decision, by: Option<NodeId>) {
        let waits = &self.waits;
        let known = self.kept.iter_mut().find(|it| it.decision.key() == decision.key());
        if let Some(it) = known {
            it.told.extend(by);
            if it.is_settled {
                // The one that knows it has not heard that: it is settled again.
                (it.decision, it.is_settled) = (decision.clone(), false);
            }
            return;
        }
        let waits_for =
            |(by, number): &DecisionKey| waits.get(by).is_some_and(|it| it.contains(number));
        let proposals = decision.values.iter().map(|it| (it.by, it.number));
        let unheard = proposals.filter(waits_for).collect();
        let (told, decision) = (by.into_iter().collect(), decision.clone());
        self.kept.push_back(Kept { decision, is_settled: false, unheard, told });
        let is_over =
            |it: &Kept| it.is_settled || !it.decision.is_whole(|id| waits.contains_key(id));
        forget_first(&mut self.kept, KEPT_MAX, |it| &it.decision, is_over);
    }

    /// Returns the decision that was made of this proposal, or without it when the member was taken
    /// for dead.
    fn decided(&mut self, by: NodeId, number: u64, name: &str, among: &Among) -> Option<Decision> {
        let answers = |it: &&mut Kept| {
            let Kept { decision, told, .. } = &**it;
            let is_without = || decision.gone.contains(&by) && !told.contains(&by);
            let is_its = decision.is_of(by, number)
                || decision.name == name && among.is_of(decision) && is_without();
            is_its && !it.is_settled
        };
        let kept = self.kept.iter_mut().find(answers)?;
        kept.told.insert(by);
        Some(kept.decision.clone())
    }

    /// Takes the open proposals of this name for which there is a decision.
    fn take_decided(&mut self, name: &str) -> Vec<(NodeId, Decision)> {
        let mut decided = Vec::new();
        if let Some(Proposed { by, number, .. }) = self.meetings.get(name) {
            let (by, number) = (*by, *number);
            if let Some(decision) = self.decided(by, number, name, &Among::Another) {
                self.meetings.remove(name);
                decided.push((by, decision));
            }
        }
        let Some(Open { among, mut proposals }) = self.open.remove(name) else { return decided };
        let among = Among::All(among);
        proposals.retain(|id, (number, _)| {
            let decision = self.decided(*id, *number, name, &among);
            let waits = decision.is_none();
            decided.extend(decision.map(|decision| (*id, decision)));
            waits
        });
        if let (Among::All(among), false) = (among, proposals.is_empty()) {
            self.open.insert(name.to_owned(), Open { among, proposals });
        }
        decided
    }

    /// Returns the reason why a proposal does not go with the open ones.
    fn objection(&self, by: NodeId, proposal: &Proposal) -> Option<Objection> {
        let waits = self.waits.get(&by)?;
        if !waits.contains(&proposal.number) && waits.len() >= AGREEMENTS_A_MEMBER_MAX {
            return Some(Objection::TooMany);
        }
        let Among::All(among) = &proposal.among else {
            let others = self.meetings.values().filter(|it| it.by == by);
            let others = others.filter(|it| it.number != proposal.number);
            let unheard = self.kept.iter().flat_map(|it| {
                let is_unheard = move |(by, number)| it.unheard.contains(&(by, number));
                it.decision.values.iter().filter(move |it| is_unheard((it.by, it.number)))
            });
            let ours = others.chain(unheard.filter(|it| it.by == by));
            let bytes = proposal.value.len() + ours.map(|it| it.value.len()).sum::<usize>();
            return (bytes > MEETING_BYTES_MAX).then_some(Objection::TooMany);
        };
        let open = self.open.get(&proposal.name).filter(|open| open.among != *among)?;
        let (first, _) = open.proposals.iter().next()?;
        let (count, first_count) = (among.len() as u32, open.among.len() as u32);
        Some(Objection::Differs { count, first: *first, first_count })
    }

    /// Whether one of its proposals was decided otherwise.
    pub(super) fn contradicts(&self, decision: &Decision) -> bool {
        let decided = |it: &Proposed| decision.is_of(it.by, it.number);
        self.kept.iter().any(|Kept { decision: kept, is_settled, .. }| {
            let theirs = decision.digest();
            let differs = if *is_settled { *kept != theirs } else { kept.digest() != theirs };
            kept.name == decision.name && differs && kept.values.iter().any(decided)
        })
    }

    /// Whether each open agreement has a proposal, and the present members are these many.
    pub(super) fn is_sound(&self, members: usize) -> bool {
        self.waits.len() == members && self.open.values().all(|open| !open.proposals.is_empty())
    }
}

impl Manager {
    /// Takes a member's proposal, or answers it at once.
    pub(super) fn propose(&mut self, rank: u32, mut proposal: Proposal) {
        if let Among::All(ids) = &mut proposal.among {
            ids.sort_unstable();
            ids.dedup();
        }
        let (by, line) = (self.seats[&rank].member.id, self.seats[&rank].line);
        if self.phase != Phase::Running {
            return;
        }
        let Proposal { number, name, among, .. } = &proposal;
        if let Some(decision) = self.agreements.decided(by, *number, name, among) {
            self.transmits.push_back((line, Down::Agreed(decision)));
            return;
        }
        let why = proposal.objection(by).or_else(|| self.agreements.objection(by, &proposal));
        if let Some(why) = why {
            self.agreements.heard(by, *number);
            self.transmits.push_back((line, Down::NotAgreed { number: *number, why }));
            return;
        }
        if let Some(waits) = self.agreements.waits.get_mut(&by) {
            waits.insert(*number);
        }
        let Proposal { number, name, among, value } = proposal;
        let proposed = Proposed { by, number, value };
        let is_it = |it: &Proposed| (it.by, it.number) == (by, number);
        let first = match &among {
            Among::All(_) => None,
            Among::Another => self.agreements.meetings.remove(&name).filter(|it| !is_it(it)),
            Among::Nobody => {
                self.agreements.meetings.retain(|_, it| !is_it(it));
                None
            }
        };
        match (among, first) {
            (Among::All(among), _) => {
                let open = Open { among, proposals: SortedMap::new() };
                let open = self.agreements.open.get_or_insert(name.clone(), open);
                open.proposals.insert(by, (number, proposed.value));
                self.decide(&name);
            }
            (Among::Another, None) => {
                self.agreements.meetings.insert(name, proposed);
            }
            (_, first) => {
                let mut values: Vec<Proposed> = first.into_iter().chain([proposed]).collect();
                values.sort_by_key(|it| (it.by, it.number));
                self.decide_by(&Decision { name, values, gone: Vec::new() });
            }
        }
    }

    /// Decides all open agreements that nobody is missing in any more.
    pub(super) fn decide_all(&mut self) {
        let names: Vec<String> = self.agreements.open.keys().cloned().collect();
        names.iter().for_each(|name| self.decide(name));
    }

    /// Decides an agreement, unless a member is there that has not proposed.
    fn decide(&mut self, name: &str) {
        let Some(open) = self.agreements.open.get(name) else { return };
        let gone = open.among.iter().filter(|id| !open.proposals.contains_key(id)).copied();
        let gone: Vec<NodeId> = gone.collect();
        if self.phase != Phase::Running || gone.iter().any(|id| self.is_there(*id)) {
            return;
        }
        let Some(open) = self.agreements.open.remove(name) else { return };
        let values = open.proposals.into_iter();
        let values = values.map(|(by, (number, value))| Proposed { by, number, value }).collect();
        self.decide_by(&Decision { name: name.to_owned(), values, gone });
    }

    /// Tells a decision to its members.
    fn decide_by(&mut self, decision: &Decision) {
        let mut told = None;
        for by in decision.values.iter().map(|it| it.by) {
            if told.replace(by) != Some(by) {
                let line = self.seats[&by.rank].line;
                self.transmits.push_back((line, Down::Agreed(decision.clone())));
            }
        }
        self.agreements.keep(decision, None);
    }

    /// Notes that a member has heard the outcome of its proposal.
    pub(super) fn handle_heard(&mut self, id: NodeId, number: u64) {
        self.agreements.heard(id, number);
        self.settle();
    }

    /// Lets the members forget the decisions that all have heard.
    pub(super) fn settle(&mut self) {
        if self.phase != Phase::Running {
            return;
        }
        for decision in self.agreements.take_settled() {
            let ranks: SortedSet<u32> = decision.values.iter().map(|it| it.by.rank).collect();
            for (rank, key) in ranks.iter().zip(std::iter::repeat(decision.key())) {
                let line = self.seats[rank].line;
                self.transmits.extend(key.map(|key| (line, Down::Settled(key))));
            }
        }
    }

    /// Learns the decisions of an earlier manager from `by`. Others may wait for them.
    pub(super) fn learn_decisions(&mut self, by: NodeId, decisions: &[Decision]) {
        for decision in decisions {
            self.agreements.keep(decision, Some(by));
            for (id, decision) in self.agreements.take_decided(&decision.name) {
                // The one that brings it has no seat yet.
                let seat = self.seats.get(&id.rank);
                self.transmits.extend(seat.map(|seat| (seat.line, Down::Agreed(decision))));
            }
        }
    }

    /// Whether a member may still propose: one that has no more to do will not.
    fn is_there(&self, id: NodeId) -> bool {
        self.seats.get(&id.rank).is_some_and(|seat| seat.member.id == id && !seat.done)
    }
}
