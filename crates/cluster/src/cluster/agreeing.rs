//! Agreements of members, decided by the manager.

use super::state::State;
use super::{AgreeError, Cluster, NodeId, Objection};
use chunkcomm::layer::Wait;
use std::pin::pin;

/// Result of an agreement, the same at all its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Values of the members that were there, by rank.
    pub values: Vec<(NodeId, Vec<u8>)>,
    /// The other members that were to agree: they died or left before.
    pub gone: Vec<NodeId>,
}

/// A caller's wait for an agreement; its end takes the outcome, or leaves it to the next call.
struct Caller<'a> {
    state: &'a State,
    number: u64,
    taken: bool,
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        let (number, taken) = (self.number, self.taken);
        self.state.change(|it| it.leave_agreement(number, taken));
    }
}

impl Cluster {
    /// Proposes `value` under `name`, and waits until each of the members `among` has proposed or
    /// is gone.
    ///
    /// The manager decides once, and all get the same result: the values of the members that were
    /// there, and the members that had died or left by then. An id that the manager does not know
    /// counts as gone. A value that was proposed before its member's death is left out.
    ///
    /// This node must be one of `among`, whose order does not matter. A name means one agreement at
    /// a time; after the decision it is free for the next. Several calls of one node under one name
    /// are one proposal, with the last value. All values of an agreement are sent to all its
    /// members, so they should be short.
    ///
    /// A member that was taken for dead and came back finds itself among the gone. When the manager
    /// dies ([`ClusterConfig::rejoin_window`]), its successor decides what was open; a decision that
    /// a living member has got stays.
    ///
    /// [`ClusterConfig::rejoin_window`]: super::ClusterConfig::rejoin_window
    ///
    /// # Errors
    ///
    /// - [`AgreeError::Refused`]: the name is empty or longer than 255 bytes, the value longer than
    ///   1 KiB, this node is not one of `among`, or it waits for 1024 other agreements.
    /// - [`AgreeError::Differs`]: another member proposed under this name among other members. Those
    ///   that proposed first still wait.
    /// - [`AgreeError::Ended`]: the cluster has ended.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the proposal stays, and may be decided. The next call with this
    /// name and these members replaces its value, or returns the decision if there is one. The last
    /// 16 decisions that no call has returned are kept.
    pub async fn agree(
        &self,
        name: &str,
        among: &[NodeId],
        value: &[u8],
    ) -> Result<Agreed, AgreeError> {
        let state = &*self.shared.state;
        let proposed = state.change(|it| it.propose(name, among, value));
        let number = proposed.map_err(|why| AgreeError::of(name, why))?;
        let all = format!("all of {} members to agree on {name:?}", among.len());
        self.decided(name, number, all).await
    }

    /// Proposes `value` under `name`, and waits until another member does the same or `given_up` is over.
    ///
    /// The manager brings members together two by two, as they come, and decides once for both. The result
    /// has the values of both, or this node's alone if none had come when the manager heard that `given_up`
    /// is over. A value whose member died before another came is left out.
    ///
    /// Several calls of one node under one name are one proposal, with the last value: they do not meet
    /// each other, and one that finds the value of another in the result calls again.
    ///
    /// # Errors
    ///
    /// As [`agree`](Self::agree).
    ///
    /// # Cancel safety
    ///
    /// As [`agree`](Self::agree): the proposal stays, and may be met.
    pub async fn agree_with_another(
        &self,
        name: &str,
        value: &[u8],
        given_up: impl Future<Output = ()>,
    ) -> Result<Agreed, AgreeError> {
        let state = &*self.shared.state;
        let proposed = state.change(|it| it.meet(name, value));
        let number = proposed.map_err(|why| AgreeError::of(name, why))?;
        let decided = self.decided(name, number, format!("another member to agree on {name:?}"));
        let mut decided = pin!(decided);
        tokio::select! {
            biased;
            decided = decided.as_mut() => return decided,
            () = given_up => {}
        }
        state.change(|it| it.meet_nobody(number));
        decided.await
    }

    /// Waits for the decision on a proposal.
    async fn decided(&self, name: &str, number: u64, what: String) -> Result<Agreed, AgreeError> {
        let state = &*self.shared.state;
        let mut caller = Caller { state, number, taken: false };
        let _wait = Wait::begin(&state.node, what);
        let decided = state.until(|it| match (it.agreement(number), it.end()) {
            (Some(outcome), _) => Some(outcome.clone().map_err(|why| AgreeError::of(name, why))),
            (None, Some(end)) => Some(Err(AgreeError::Ended(end.clone()))),
            (None, None) => None,
        });
        let decided = decided.await;
        caller.taken = true;
        let decision = decided?;
        let values = decision.values.into_iter().map(|it| (it.by, it.value)).collect();
        Ok(Agreed { values, gone: decision.gone })
    }
}

impl AgreeError {
    fn of(name: &str, why: Objection) -> AgreeError {
        let name = name.to_owned();
        match why {
            Objection::Differs { count, first, first_count } => {
                AgreeError::Differs { name, count, first, first_count }
            }
            why => AgreeError::Refused { name, why },
        }
    }
}
