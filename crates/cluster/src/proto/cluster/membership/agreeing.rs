//! Agreements at a member: its proposals, and what was decided.

use super::Membership;
use crate::proto::cluster::agreement::{
    Among, DECISIONS_MAX, Decision, DecisionKey, Objection, Proposal, forget_first,
};
use crate::proto::cluster::{NodeId, Up};
use chunkcomm_proto::sorted::SortedMap;
use std::collections::VecDeque;

/// Answer of the manager to a proposal.
pub type Outcome = Result<Decision, Objection>;

struct Waiting {
    proposal: Proposal,
    outcome: Option<Outcome>,
    /// Number of callers that wait for the outcome.
    callers: usize,
    /// Whether a caller has got the outcome.
    taken: bool,
}

#[derive(Default)]
pub(super) struct Agreeing {
    /// Number of the last proposal.
    last: u64,
    /// By the number of the proposal.
    waiting: SortedMap<u64, Waiting>,
    /// Decisions for a new manager: those that a present member may not have heard, and the last ones of
    /// which a member is gone.
    heard: VecDeque<Decision>,
}

impl Agreeing {
    /// Returns the decisions that a new manager must know.
    pub(super) fn heard(&self) -> Vec<Decision> {
        self.heard.iter().cloned().collect()
    }

    /// Returns the proposals that wait for the manager.
    pub(super) fn open(&self) -> impl Iterator<Item = &Proposal> {
        self.waiting.values().filter(|it| it.outcome.is_none()).map(|it| &it.proposal)
    }

    /// Forgets outcomes that nobody waits for: those that were taken, and all others but the last.
    fn tidy(&mut self) {
        self.waiting.retain(|_, it| !it.taken || it.callers > 0);
        let is_left = |it: &&Waiting| it.callers == 0 && it.outcome.is_some();
        let mut more = self.waiting.values().filter(is_left).count().saturating_sub(DECISIONS_MAX);
        self.waiting.retain(|_, it| {
            let goes = more > 0 && is_left(&&*it);
            more -= usize::from(goes);
            !goes
        });
    }
}

impl Membership {
    /// Proposes a value to an agreement among these members; returns the proposal's number, or its
    /// fault.
    ///
    /// Each number needs its [`Membership::leave_agreement`]. As long as no caller has got the
    /// outcome, the number is the same, and a later value replaces the earlier one if nothing has
    /// been decided.
    pub fn propose(
        &mut self,
        name: &str,
        among: &[NodeId],
        value: &[u8],
    ) -> Result<u64, Objection> {
        let mut among = among.to_vec();
        among.sort_unstable();
        among.dedup();
        let proposal = self.proposal(name, Among::All(among), value)?;
        let same = self.agreeing.waiting.iter_mut().find(|(_, it)| {
            let open = !it.taken && !matches!(it.outcome, Some(Err(_)));
            open && it.proposal.name == proposal.name && it.proposal.among == proposal.among
        });
        let Some((number, it)) = same else { return Ok(self.send(proposal)) };
        it.callers += 1;
        if it.outcome.is_none() {
            it.proposal.value = proposal.value;
            self.words.push_back(Up::Agree(it.proposal.clone()));
        }
        Ok(*number)
    }

    /// Proposes a value to the next other proposal of this kind under this name, of any member; returns the
    /// proposal's number, or its fault. The number needs its [`Membership::leave_meeting`].
    pub fn meet(&mut self, name: &str, value: &[u8]) -> Result<u64, Objection> {
        let proposal = self.proposal(name, Among::Another, value)?;
        Ok(self.send(proposal))
    }

    /// Waits for no other proposal any more: that of this number is decided alone, if it was not decided
    /// before.
    pub fn meet_nobody(&mut self, number: u64) {
        let it = self.agreeing.waiting.get_mut(&number);
        if let Some(it) = it.filter(|it| it.outcome.is_none()) {
            it.proposal.among = Among::Nobody;
            self.words.push_back(Up::Agree(it.proposal.clone()));
        }
    }

    /// Returns the next proposal, or its fault.
    fn proposal(&self, name: &str, among: Among, value: &[u8]) -> Result<Proposal, Objection> {
        let number = self.agreeing.last + 1;
        let (name, value) = (name.to_owned(), value.to_vec());
        let proposal = Proposal { number, name, among, value };
        let why = self.id().and_then(|id| proposal.objection(id));
        why.map_or(Ok(proposal), Err)
    }

    fn send(&mut self, proposal: Proposal) -> u64 {
        let number = proposal.number;
        self.words.push_back(Up::Agree(proposal.clone()));
        let waiting = Waiting { proposal, outcome: None, callers: 1, taken: false };
        self.agreeing.waiting.insert(number, waiting);
        self.agreeing.last = number;
        number
    }

    /// Returns the answer to the proposal of this number, once there is one.
    #[must_use]
    pub fn agreement(&self, number: u64) -> Option<&Outcome> {
        self.agreeing.waiting.get(&number)?.outcome.as_ref()
    }

    /// Ends a caller's wait; `taken` says whether it has got the outcome.
    ///
    /// The proposal stays in force if it has not. The next one of that name gets its outcome.
    pub fn leave_agreement(&mut self, number: u64, taken: bool) {
        if let Some(it) = self.agreeing.waiting.get_mut(&number) {
            it.callers -= 1;
            it.taken |= taken;
        }
        self.agreeing.tidy();
    }

    /// Ends the wait for another proposal. One that was not met is met no more.
    pub fn leave_meeting(&mut self, number: u64) {
        self.meet_nobody(number);
        self.leave_agreement(number, true);
    }

    /// Returns the decisions that it would tell a new manager.
    #[cfg(test)]
    pub fn heard(&self) -> Vec<Decision> {
        self.agreeing.heard()
    }

    pub(super) fn handle_decision(&mut self, decision: Decision) {
        let Some(id) = self.id() else { return };
        let mut ours: Vec<u64> = decision.numbers_of(id).collect();
        if ours.is_empty() {
            // This node was taken for dead.
            let is_it = |it: &&Proposal| it.name == decision.name && it.among.is_of(&decision);
            ours = self.agreeing.open().filter(is_it).map(|it| it.number).collect();
        }
        for number in ours {
            if let Some(it) = self.agreeing.waiting.get_mut(&number) {
                it.outcome.get_or_insert_with(|| Ok(decision.clone()));
            }
            self.words.push_back(Up::Heard(number));
        }
        let heard = &mut self.agreeing.heard;
        if !heard.iter().any(|it| it.key() == decision.key()) {
            heard.push_back(decision);
        }
        let members = &self.members;
        let is_here = |id: &NodeId| members.get(&id.rank).is_some_and(|it| it.id == *id);
        forget_first(heard, DECISIONS_MAX, |it| it, |it| !it.is_whole(is_here));
        self.agreeing.tidy();
    }

    /// Forgets a decision that all its members have heard.
    pub(super) fn handle_settled(&mut self, key: DecisionKey) {
        self.agreeing.heard.retain(|it| it.key() != Some(key));
    }

    pub(super) fn handle_objection(&mut self, number: u64, why: Objection) {
        let it = self.agreeing.waiting.get_mut(&number);
        if let Some(it) = it.filter(|it| it.outcome.is_none()) {
            it.outcome = Some(Err(why));
        }
        self.agreeing.tidy();
    }
}
