//! How a call is made: its statement, its algorithm, its run.

use std::sync::Arc;

use super::call::Call;
use super::flow::{FLOW_BYTES_MIN, Flowing};
use super::op::Op;
use super::whole::Whole;
use crate::group::error::{CollectiveError, GroupError};
use crate::group::shared::Run;
use crate::proto::costs::{self, Choice};
use crate::proto::schedule::algorithm::Algorithm;
use crate::proto::schedule::flow::{Flow, flow};
use crate::proto::schedule::world::World;
use crate::proto::schedule::{Kind, Of, ReceiveStep, SendStep, Step, Take, steps};
use crate::proto::talk::{Operation, Statement};
use crate::{Element, Group};

/// A call to be made.
pub(crate) struct Ask<'a> {
    pub(crate) kind: Kind,
    pub(crate) statement: Statement<'a>,
    /// Bytes of the data, where they are the same at all ranks.
    pub(crate) bytes: usize,
    /// The ranks that take part, where these are not all of the group in their order.
    pub(crate) among: Option<Among>,
}

/// The ranks that take part in a call.
pub(crate) struct Among {
    pub(crate) world: World,
    /// Rank in the group of each of them; one that gets the result behind the call stands last.
    pub(crate) map: Arc<[usize]>,
    /// This rank's place among them; a rank that has none is done at once.
    pub(crate) place: Option<usize>,
    /// Whether the first of them hands the result to the last of the map.
    pub(crate) hands_over: bool,
}

impl<'a> Ask<'a> {
    pub(super) fn new(kind: Kind, operation: Operation) -> Ask<'a> {
        let statement = Statement::new(operation);
        Ask { kind, statement, bytes: 0, among: None }
    }

    pub(crate) fn of<T>(kind: Kind, operation: Operation) -> Ask<'a> {
        let ask = Ask::new(kind, operation);
        Ask { statement: ask.statement.of::<T>(), ..ask }
    }

    pub(crate) fn rooted(mut self, root: usize) -> Ask<'a> {
        self.statement.root = Some(u32::try_from(root).unwrap_or(u32::MAX - 1));
        self
    }

    pub(crate) fn all_of<T>(mut self, data: &[T]) -> Ask<'a> {
        self.statement.elements = Some(data.len() as u64);
        self.bytes = size_of_val(data);
        self
    }

    pub(crate) fn by<T: Element>(mut self, op: &'a Op<T>) -> Ask<'a> {
        self.statement.operator = op.name();
        self.statement.commutative = op.is_commutative();
        self
    }
}

impl Group {
    /// Makes a call: `fill` gives its run the data, `take` takes them back, told whether the call
    /// succeeded.
    pub(crate) fn submit<T: Element, R>(
        &mut self,
        ask: Ask<'_>,
        fill: impl FnOnce(&mut Whole<T>) -> Result<(), String>,
        take: impl FnOnce(&mut Whole<T>, bool) -> R + Send + 'static,
    ) -> Call<R> {
        self.submit_with(ask, fill, |whole, cause| {
            let data = take(whole, cause.is_none());
            match cause {
                None => Ok(data),
                Some(cause) => Err(CollectiveError { data, cause }),
            }
        })
    }

    /// Makes a call as `submit` does, where `take` also makes the error.
    pub(crate) fn submit_with<T: Element, R, D>(
        &mut self,
        ask: Ask<'_>,
        fill: impl FnOnce(&mut Whole<T>) -> Result<(), String>,
        take: impl FnOnce(&mut Whole<T>, Option<GroupError>) -> Result<R, CollectiveError<D>>
        + Send
        + 'static,
    ) -> Call<R, D> {
        let Ask { kind, mut statement, bytes, among } = ask;
        let mut state = self.shared.state();
        let spare = state.spare::<Whole<T>>();
        let mut encoded = state.spare_statement();
        drop(state);
        let mut run = spare.unwrap_or_else(|| Box::new(Whole::<T>::default()));
        let whole = whole_of::<T>(&mut *run);
        let reproducible = self.reproducible && kind.combines();
        let commutative = statement.commutative && !reproducible;
        let algorithm = match &among {
            None => self.repeated(kind, commutative, bytes),
            Some(among) => self.algorithm_of(kind, &among.world, commutative, bytes),
        };
        let (world, place) = match &among {
            Some(among) => (&among.world, among.place),
            None => (&self.core.world, Some(self.core.rank)),
        };
        statement.algorithm = algorithm;
        statement.is_chosen = algorithm != self.algorithm;
        statement.reproducible = reproducible;
        let hands_over = among.as_ref().is_some_and(|among| among.hands_over);
        let root = statement.root.map(|root| root as usize);
        let no_root = root.filter(|root| *root >= self.size());
        let may_flow = bytes >= FLOW_BYTES_MIN && world.size() > 1 && !hands_over;
        let may_flow = may_flow && no_root.is_none();
        let flow = place
            .filter(|_| may_flow)
            .and_then(|rank| flow(kind, algorithm, world, commutative, rank))
            .map(|flow| from_one_memory(kind, flow));
        whole.flows = flow.is_some();
        // The run gets the data in any case, to give them back.
        let filled = fill(whole).and_then(|()| match no_root {
            Some(root) => Err(format!("there is no rank {root} in a group of {}", self.size())),
            None => Ok(()),
        });
        if let Err(why) = filled {
            whole.refuse(why);
        } else if let Some(flow) = flow {
            let is_root = matches!(kind, Kind::Broadcast { root } if Some(root) == place);
            let starts_scan = kind == Kind::Scan && place == Some(0);
            if starts_scan {
                // Nothing comes to the first rank, whose own data are the result.
                whole.flows = false;
            }
            let there = is_root.then_some(0..whole.result.len()).into_iter().collect();
            let (input, result) = (whole.input_blocks.clone(), whole.result_blocks.clone());
            let op = whole.op.clone();
            let mut flowing = Flowing::new(flow, input, result, there, op);
            let all = 0..whole.input.len();
            flowing.own = starts_scan.then(|| (all.clone(), all));
            whole.flowing = Some(flowing);
        } else {
            if let Some(rank) = place.filter(|rank| *rank < world.size()) {
                let made = steps(kind, algorithm, world, commutative, rank, &mut whole.steps);
                assert!(made, "the call has the algorithm that was chosen for it");
            }
            if hands_over {
                hand_over(&mut whole.steps, world.size(), place);
            }
            whole.later = self.later_of(kind).filter(|_| whole.lengths.is_some());
        }
        whole.map = among.map(|among| among.map);
        statement.encode(&mut encoded);
        let number = self.shared.tell(|state| state.submit(run, encoded));
        let take = Box::new(move |run: &mut dyn Run, cause| take(whole_of::<T>(run), cause));
        Call::new(Arc::clone(&self.shared), number, algorithm, take)
    }

    /// Returns what makes the flow of a call whose lengths differ from rank to rank.
    fn later_of(&self, kind: Kind) -> Option<Box<dyn FnOnce() -> Option<Flow> + Send>> {
        let algorithm = match kind {
            Kind::AllGather => Algorithm::Ring,
            Kind::AllToAll => Algorithm::Pairwise,
            Kind::Gather { .. } | Kind::Scatter { .. } => Algorithm::Direct,
            Kind::Broadcast { .. } => Algorithm::Chain,
            _ => return None,
        };
        let (core, rank) = (Arc::clone(&self.core), self.rank());
        Some(Box::new(move || {
            let flow = flow(kind, algorithm, &core.world, true, rank)?;
            Some(from_one_memory(kind, flow))
        }))
    }

    /// Returns the algorithm of a call of all ranks. Programs repeat their calls, and so the last choice is kept.
    fn repeated(&mut self, kind: Kind, commutative: bool, bytes: usize) -> Algorithm {
        let Group { algorithm, reproducible, costs, .. } = *self;
        let choice = Choice { kind, commutative, bytes, algorithm, reproducible, costs };
        if let Some((last, chosen)) = self.chosen
            && last == choice
        {
            return chosen;
        }
        let chosen = self.algorithm_of(kind, &self.core.world, commutative, bytes);
        self.chosen = Some((choice, chosen));
        chosen
    }

    /// Returns the algorithm of a call: that which was set, where the call has it.
    fn algorithm_of(
        &self,
        kind: Kind,
        world: &World,
        commutative: bool,
        bytes: usize,
    ) -> Algorithm {
        if self.reproducible && kind.combines() {
            return if kind == Kind::AllReduce { Algorithm::Chains } else { Algorithm::Chain };
        }
        if kind.takes(self.algorithm, commutative) {
            return self.algorithm;
        }
        costs::choose(kind, bytes, world, commutative, false, &self.costs).0
    }
}

/// Lets a broadcast leave from the result, where its root has the data.
fn from_one_memory(kind: Kind, flow: Flow) -> Flow {
    if matches!(kind, Kind::Broadcast { .. }) { flow.of_result() } else { flow }
}

/// Lets the first rank hand the whole result to the one behind the last.
fn hand_over(steps: &mut Vec<Step>, size: usize, place: Option<usize>) {
    let blocks = 0..size;
    if place == Some(0) {
        let send = SendStep { to: size, blocks, of: Of::Result };
        steps.push(Step { send: Some(send), receive: None });
    } else if place == Some(size) {
        let receive = ReceiveStep { from: 0, blocks, take: Take::Place };
        steps.push(Step { send: None, receive: Some(receive) });
    }
}

fn whole_of<T: Element>(run: &mut dyn Run) -> &mut Whole<T> {
    run.as_any().downcast_mut().expect("the run is that of the call")
}
