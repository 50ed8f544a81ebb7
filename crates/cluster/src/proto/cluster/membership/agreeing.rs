//! Agreements at a member: its proposals, and what was decided.

use super::Membership;
use crate::proto::cluster::agreement::{DECISIONS_MAX, Decision, Objection, Proposal};
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
    /// The last decisions, for a new manager.
    heard: VecDeque<Decision>,
}

impl Agreeing {
    /// Returns the last decisions.
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
        if among.is_empty() {
            return Err(Objection::NotAmong);
        }
        let mut among = among.to_vec();
        among.sort_unstable();
        among.dedup();
        self.propose_among(name, among, value)
    }

    /// Proposes a value to the next other member that does so under this name, as
    /// [`Membership::propose`] does.
    pub fn meet(&mut self, name: &str, value: &[u8]) -> Result<u64, Objection> {
        self.propose_among(name, Vec::new(), value)
    }

    /// Waits for no other member any more: the proposal of this number is decided alone, if it was not
    /// decided before.
    pub fn meet_nobody(&mut self, number: u64) {
        let (id, it) = (self.id(), self.agreeing.waiting.get_mut(&number));
        if let Some(it) = it.filter(|it| it.outcome.is_none()) {
            it.proposal.among = id.into_iter().collect();
            self.words.push_back(Up::Agree(it.proposal.clone()));
        }
    }

    fn propose_among(
        &mut self,
        name: &str,
        among: Vec<NodeId>,
        value: &[u8],
    ) -> Result<u64, Objection> {
        let number = self.agreeing.last + 1;
        let (name, value) = (name.to_owned(), value.to_vec());
        let proposal = Proposal { number, name, among, value };
        if let Some(why) = self.id().and_then(|id| proposal.objection(id)) {
            return Err(why);
        }
        let same = self.agreeing.waiting.iter_mut().find(|(_, it)| {
            let open = !it.taken && !matches!(it.outcome, Some(Err(_)));
            open && it.proposal.name == proposal.name && it.proposal.among == proposal.among
        });
        if let Some((number, it)) = same {
            it.callers += 1;
            if it.outcome.is_none() {
                it.proposal.value = proposal.value;
                self.words.push_back(Up::Agree(it.proposal.clone()));
            }
            return Ok(*number);
        }
        self.words.push_back(Up::Agree(proposal.clone()));
        let waiting = Waiting { proposal, outcome: None, callers: 1, taken: false };
        self.agreeing.waiting.insert(number, waiting);
        self.agreeing.last = number;
        Ok(number)
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

    pub(super) fn handle_decision(&mut self, decision: Decision) {
        let Some(id) = self.id() else { return };
        let answered = |it: &&mut Waiting| {
            let Proposal { number, name, among, .. } = &it.proposal;
            it.outcome.is_none()
                && match decision.number_of(id) {
                    Some(ours) => ours == *number,
                    // This node was taken for dead.
                    None => *name == decision.name && decision.is_among(among),
                }
        };
        let Agreeing { waiting, heard, .. } = &mut self.agreeing;
        if let Some(it) = waiting.values_mut().find(answered) {
            it.outcome = Some(Ok(decision.clone()));
        }
        if !heard.iter().any(|it| it.is(&decision)) {
            if heard.len() == DECISIONS_MAX {
                heard.pop_front();
            }
            heard.push_back(decision);
        }
        self.agreeing.tidy();
    }

    pub(super) fn handle_objection(&mut self, number: u64, why: Objection) {
        let it = self.agreeing.waiting.get_mut(&number);
        if let Some(it) = it.filter(|it| it.outcome.is_none()) {
            it.outcome = Some(Err(why));
        }
        self.agreeing.tidy();
    }
}
