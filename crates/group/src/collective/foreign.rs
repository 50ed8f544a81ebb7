//! Calls whose runs are another crate's: collectives that flow, whose ends are deltas.

use std::sync::Arc;

use super::call::Call;
use super::op::Op;
use crate::group::error::{CollectiveError, GroupError};
use crate::group::shared::{Finished, Run, Shared};
use crate::proto::costs;
use crate::proto::schedule::Kind;
use crate::proto::schedule::algorithm::Algorithm;
use crate::proto::schedule::flow::{Flow, flow};
use crate::proto::talk::{Operation, Statement};
use crate::{Element, Group};

/// A collective that flows.
#[derive(Clone, Copy, Debug)]
pub enum FlowKind {
    /// The root's elements go to all.
    Broadcast {
        /// Its rank.
        root: usize,
    },
    /// Elements of all ranks are combined at the root.
    Reduce {
        /// Its rank.
        root: usize,
    },
    /// Elements of all ranks are combined at all.
    AllReduce,
    /// Elements of all ranks go to the root, one rank's behind the other's.
    Gather {
        /// Its rank.
        root: usize,
    },
}

impl FlowKind {
    fn call(self) -> (Kind, Operation) {
        match self {
            Self::Broadcast { root } => (Kind::Broadcast { root }, Operation::BroadcastDelta),
            Self::Reduce { root } => (Kind::Reduce { root }, Operation::ReduceDelta),
            Self::AllReduce => (Kind::AllReduce, Operation::AllReduceDelta),
            Self::Gather { root } => (Kind::Gather { root }, Operation::GatherDelta),
        }
    }

    /// Returns the root.
    pub fn root(self) -> Option<usize> {
        self.call().0.root()
    }
}

/// A call that is to be made: what all ranks state, and what this one does.
pub struct Asked {
    /// The algorithm, which was set or chosen.
    pub algorithm: Algorithm,
    /// This rank's transfers; none where the call is refused.
    pub schedule: Flow,
    /// The call in words.
    pub title: String,
    /// Why the call cannot be.
    pub refused: Option<String>,
    statement: Vec<u8>,
}

/// Asks for a call with `length` elements of this rank, of which one or two rounds may be under way.
pub fn ask<T: Element>(
    group: &Group,
    kind: FlowKind,
    length: usize,
    op: Option<&Op<T>>,
    is_double: bool,
) -> Asked {
    let (kind, operation) = kind.call();
    let mut statement = Statement::new(operation).of::<T>();
    let root = kind.root();
    statement.root = root.map(|root| u32::try_from(root).unwrap_or(u32::MAX - 1));
    statement.elements = (!matches!(kind, Kind::Gather { .. })).then_some(length as u64);
    if let Some(op) = op {
        statement.operator = op.name();
        statement.commutative = op.is_commutative();
    }
    statement.is_double = is_double;
    statement.reproducible = group.reproducible && kind.combines();
    let commutative = statement.commutative && !statement.reproducible;
    let algorithm = algorithm_of(group, kind, commutative, length * size_of::<T>());
    statement.algorithm = algorithm;
    statement.is_chosen = algorithm != group.algorithm;
    let no_root = root.filter(|root| *root >= group.size());
    let refused =
        no_root.map(|root| format!("there is no rank {root} in a group of {}", group.size()));
    let world = &group.core.world;
    let schedule = refused
        .is_none()
        .then(|| flow(kind, algorithm, world, commutative, group.rank()).expect("it flows"));
    let mut encoded = group.shared.state().spare_statement();
    statement.encode(&mut encoded);
    Asked {
        algorithm,
        schedule: schedule.unwrap_or_default(),
        title: statement.to_string(),
        refused,
        statement: encoded,
    }
}

/// Returns the algorithm of a flowing call: that which was set, where it flows.
fn algorithm_of(group: &Group, kind: Kind, commutative: bool, bytes: usize) -> Algorithm {
    let reproducible = group.reproducible && kind.combines();
    if kind.takes(group.algorithm, commutative) && kind.flows(group.algorithm) && !reproducible {
        return group.algorithm;
    }
    let (world, costs) = (&group.core.world, &group.costs);
    let flows = |by| kind.flows(by);
    costs::choose_among(flows, kind, bytes, world, commutative, reproducible, costs).0
}

/// Makes a call. `take` takes the result out of what its run has [given](Giver::give), or the caller's data out of the
/// run.
pub fn submit<R, D>(
    group: &mut Group,
    asked: Asked,
    run: Box<dyn Run>,
    take: impl FnOnce(&mut dyn Run) -> Result<R, D> + Send + 'static,
) -> Call<R, D> {
    let Asked { algorithm, statement, .. } = asked;
    let number = group.shared.tell(|state| state.submit(run, statement));
    let take = |run: &mut dyn Run, cause: Option<GroupError>| {
        let cause = cause.unwrap_or(GroupError::Closed);
        take(run).map_err(|data| CollectiveError { data, cause })
    };
    Call::new(Arc::clone(&group.shared), number, algorithm, Box::new(take))
}

/// Gives the results of calls to their callers before the runs are over.
pub struct Giver(Arc<Shared>);

impl Giver {
    /// Returns that of a group.
    pub fn of(group: &Group) -> Giver {
        Giver(Arc::clone(&group.shared))
    }

    /// Finishes a call: its caller takes the result out of this.
    pub fn give(&self, call: u64, given: Box<dyn Run>) {
        self.0.finish(call, Finished { run: given, cause: None }, Vec::new());
    }
}
