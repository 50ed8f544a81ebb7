//! Agreements of members, decided by the manager.

use super::state::State;
use super::{AgreeError, Cluster, NodeId, Objection};
use crate::proto::cluster::agreement::Decision;
use crate::proto::cluster::membership::Membership;
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

/// A caller's wait for the decision on a proposal, and how it ends: with the outcome or without.
struct Caller<'a> {
    state: &'a State,
    number: u64,
    taken: bool,
    leave: fn(&mut Membership, u64, bool),
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        let Caller { number, taken, leave, .. } = *self;
        self.state.change(|it| leave(it, number, taken));
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
        let caller = Caller { state, number, taken: false, leave: Membership::leave_agreement };
        let Decision { values, gone, .. } = self.decided(name, caller, all).await?;
        let values = values.into_iter().map(|it| (it.by, it.value)).collect();
        Ok(Agreed { values, gone })
    }

    /// Pairs this call with another under `name`, at any member; returns that member and its value, or `None`
    /// if there was none when the manager heard that `given_up` has completed (`std::future::pending()`: never).
    ///
    /// The manager brings calls together two by two, as they come, and decides once for both. A call whose
    /// member died before another came is not met; after that, the other member's death is told as any. When
    /// the manager dies, its successor goes on. Two calls of one node may meet each other.
    ///
    /// # Errors
    ///
    /// - [`AgreeError::Refused`]: the name is empty or longer than 255 bytes, this node waits for 1024 other
    ///   agreements and meetings, or meets with values of more than 4 MiB in all.
    /// - [`AgreeError::Ended`]: the cluster has ended.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, this call is met no more. Another may have met it already.
    pub async fn meet(
        &self,
        name: &str,
        value: &[u8],
        given_up: impl Future<Output = ()>,
    ) -> Result<Option<(NodeId, Vec<u8>)>, AgreeError> {
        let state = &*self.shared.state;
        let number = state.change(|it| it.meet(name, value));
        let number = number.map_err(|why| AgreeError::of(name, why))?;
        let what = format!("another member to meet as {name:?}");
        let leave = |it: &mut Membership, number, _| it.leave_meeting(number);
        let meeting = Caller { state, number, taken: false, leave };
        let mut decided = pin!(self.decided(name, meeting, what));
        let decision = tokio::select! {
            biased;
            decision = decided.as_mut() => decision,
            () = given_up => {
                state.change(|it| it.meet_nobody(number));
                decided.await
            }
        };
        let ours = (self.id(), number);
        let other = decision?.values.into_iter().find(|it| (it.by, it.number) != ours);
        Ok(other.map(|it| (it.by, it.value)))
    }

    /// Waits for the decision on a proposal.
    async fn decided(
        &self,
        name: &str,
        mut caller: Caller<'_>,
        what: String,
    ) -> Result<Decision, AgreeError> {
        let (state, number) = (caller.state, caller.number);
        let _wait = Wait::begin(&state.node, what);
        let decided = state.until(|it| match (it.agreement(number), it.end()) {
            (Some(outcome), _) => Some(outcome.clone().map_err(|why| AgreeError::of(name, why))),
            (None, Some(end)) => Some(Err(AgreeError::Ended(end.clone()))),
            (None, None) => None,
        });
        let decided = decided.await;
        caller.taken = true;
        decided
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
