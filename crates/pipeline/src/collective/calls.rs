//! The calls of a group on slices of plain elements.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use chunkcomm_proto::describe::fnv1a;

use super::call::Call;
use super::flow::{FLOW_BYTES_MIN, Flowing};
use super::op::Op;
use super::parts::Parts;
use super::whole::Whole;
use crate::group::error::{CollectiveError, GroupError};
use crate::group::shared::Run;
use crate::proto::costs;
use crate::proto::schedule::algorithm::Algorithm;
use crate::proto::schedule::flow::{Flow, flow};
use crate::proto::schedule::world::World;
use crate::proto::schedule::{Kind, Of, ReceiveStep, SendStep, Step, Take, bounds, steps};
use crate::proto::talk::{Operation, Statement};
use crate::{Element, Group};

/// A call to be made.
pub(crate) struct Ask<'a> {
    pub(crate) kind: Kind,
    pub(crate) statement: Statement<'a>,
    pub(crate) commutative: bool,
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
    fn new(kind: Kind, operation: Operation) -> Ask<'a> {
        let statement = Statement::new(operation);
        Ask { kind, statement, commutative: true, bytes: 0, among: None }
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
        self.commutative = op.is_commutative();
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
        let Ask { kind, mut statement, commutative, bytes, among } = ask;
        let mut state = self.shared.state();
        let spare = state.spare::<Whole<T>>();
        let mut encoded = state.spare_statement();
        drop(state);
        let mut run = spare.unwrap_or_else(|| Box::new(Whole::<T>::default()));
        let whole = whole_of::<T>(&mut *run);
        whole.reset();
        let (world, place) = match &among {
            Some(among) => (&among.world, among.place),
            None => (&self.core.world, Some(self.core.rank)),
        };
        let reproducible = self.reproducible && kind.combines();
        let commutative = commutative && !reproducible;
        let algorithm = self.algorithm_of(kind, world, commutative, bytes);
        let is_set = algorithm == self.algorithm;
        statement.algorithm = if is_set { algorithm } else { Algorithm::Auto };
        statement.reproducible = reproducible;
        let hands_over = among.as_ref().is_some_and(|among| among.hands_over);
        let may_flow = bytes >= FLOW_BYTES_MIN && world.size() > 1 && !hands_over;
        let flow = place
            .filter(|_| may_flow)
            .and_then(|rank| flow(kind, algorithm, world, commutative, rank));
        whole.flows = flow.is_some();
        // Also a call that is refused gives the data back, and so takes them.
        let filled = fill(whole);
        let filled = match statement.root {
            Some(root) if root as usize >= self.size() => {
                Err(format!("there is no rank {root} in a group of {}", self.size()))
            }
            _ => filled,
        };
        if let Err(why) = filled {
            whole.refuse(why);
        } else if let Some(flow) = flow {
            let is_root = matches!(kind, Kind::Broadcast { root } if Some(root) == place);
            let starts_scan = kind == Kind::Scan && place == Some(0);
            if starts_scan {
                // Nothing comes to the first rank, whose own data are the result.
                whole.flows = false;
                whole.copy_input_to_result();
            }
            let all = 0..whole.result.len();
            let there = if is_root || starts_scan { vec![all] } else { Vec::new() };
            let (input, result) = (whole.input_blocks.clone(), whole.result_blocks.clone());
            let op = whole.op.clone();
            let flow = if is_root { flow.of_result() } else { flow };
            whole.flowing = Some(Flowing::new(flow, input, result, there, op));
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
        Some(Box::new(move || flow(kind, algorithm, &core.world, true, rank)))
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

    /// Waits until every rank has come to this call.
    ///
    /// Algorithms: dissemination, doubling.
    pub fn barrier(&mut self) -> Call<()> {
        let ask = Ask::new(Kind::Barrier, Operation::Barrier);
        let size = self.size();
        let fill = move |whole: &mut Whole<u8>| {
            whole.result_blocks.resize(size, 0..0);
            Ok(())
        };
        self.submit(ask, fill, |_, _| ())
    }

    /// Gives all ranks the data of the root. Each gives a vector of the same length, which comes back
    /// with the root's elements.
    ///
    /// Algorithms: binomial, chain, binary.
    pub fn broadcast<T: Element>(&mut self, root: usize, data: Vec<T>) -> Call<Vec<T>> {
        let ask = Ask::of::<T>(Kind::Broadcast { root }, Operation::Broadcast);
        let (ask, size) = (ask.rooted(root).all_of(&data), self.size());
        let fill = move |whole: &mut Whole<T>| {
            even(&mut whole.result_blocks, data.len(), size);
            whole.result = data;
            Ok(())
        };
        self.submit(ask, fill, |whole, _| mem::take(&mut whole.result))
    }

    /// Combines the vectors of all ranks, which have one length, element by element. The root's vector
    /// comes back with the result, those of the others as they were.
    ///
    /// Algorithms: binomial, chain, binary.
    pub fn reduce<T: Element>(&mut self, root: usize, data: Vec<T>, op: Op<T>) -> Call<Vec<T>> {
        let named = op.clone();
        let ask = Ask::of::<T>(Kind::Reduce { root }, Operation::Reduce);
        let ask = ask.rooted(root).all_of(&data).by(&named);
        let (is_root, fill) = (self.rank() == root, combined(data, op, self.size()));
        self.submit(ask, fill, move |whole, ok| take_combined(whole, ok && is_root))
    }

    /// Combines the vectors of all ranks, which have one length, element by element. Each vector comes
    /// back with the result; its bits are the same at all ranks.
    ///
    /// Algorithms: doubling, ring (for commutative operators), chains.
    ///
    /// ```
    /// # use chunkcomm_cluster::{Cluster, ClusterConfig};
    /// # use chunkcomm_pipeline::{Group, Op};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let cluster = Cluster::join(ClusterConfig::new().nodes(1)).await?;
    /// let mut group = Group::world(&cluster).await?;
    /// let longest = Op::named("longest", |a: &u64, b: &u64| *a.max(b));
    /// assert_eq!(group.all_reduce(vec![3, 5], longest).await?, [3, 5]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn all_reduce<T: Element>(&mut self, data: Vec<T>, op: Op<T>) -> Call<Vec<T>> {
        let named = op.clone();
        let ask = Ask::of::<T>(Kind::AllReduce, Operation::AllReduce).all_of(&data).by(&named);
        let fill = combined(data, op, self.size());
        self.submit(ask, fill, take_combined)
    }

    /// Combines the vectors of the ranks up to this one. The vector comes back with the result.
    ///
    /// Algorithms: doubling, chain.
    pub fn scan<T: Element>(&mut self, data: Vec<T>, op: Op<T>) -> Call<Vec<T>> {
        let named = op.clone();
        let ask = Ask::of::<T>(Kind::Scan, Operation::Scan).all_of(&data).by(&named);
        let fill = combined(data, op, self.size());
        self.submit(ask, fill, take_combined)
    }

    /// Combines the vectors of the ranks before this one. Rank 0 gets the neutral element of the
    /// operator, and its own vector where a named operator has none.
    ///
    /// Algorithms: doubling, chain.
    pub fn exclusive_scan<T: Element>(&mut self, data: Vec<T>, op: Op<T>) -> Call<Vec<T>> {
        let named = op.clone();
        let ask = Ask::of::<T>(Kind::ExclusiveScan, Operation::ExclusiveScan);
        let ask = ask.all_of(&data).by(&named);
        let (neutral, running) = (op.identity(), data.clone());
        let fill = combined(data, op, self.size());
        let fill = move |whole: &mut Whole<T>| {
            fill(whole)?;
            if let Some(neutral) = neutral {
                whole.result.fill(neutral);
            }
            whole.running = Some(running);
            Ok(())
        };
        self.submit(ask, fill, take_combined)
    }

    /// Brings the data of all ranks to the root, which gets them in the order of ranks. Lengths may
    /// differ.
    ///
    /// Algorithms: direct.
    pub fn gather<T: Element>(
        &mut self,
        root: usize,
        data: Vec<T>,
    ) -> Call<(Vec<T>, Option<Parts<T>>)> {
        let ask = Ask::of::<T>(Kind::Gather { root }, Operation::Gather).rooted(root);
        let is_root = self.rank() == root;
        let fill = own_block(data, self.rank(), self.size());
        self.submit(ask, fill, move |whole, ok| {
            let parts = (ok && is_root).then(|| whole.take_parts());
            (mem::take(&mut whole.input), parts)
        })
    }

    /// Gives each rank its part of the root's data; the root's come back to it as well. The other ranks
    /// give `None`.
    ///
    /// Algorithms: direct.
    pub fn scatter<T: Element>(
        &mut self,
        root: usize,
        parts: Option<Parts<T>>,
    ) -> Call<(Vec<T>, Option<Parts<T>>)> {
        let ask = Ask::of::<T>(Kind::Scatter { root }, Operation::Scatter).rooted(root);
        let is_root = self.rank() == root;
        let fault = match (&parts, is_root) {
            (None, true) => Err("the root of a scatter gives the parts".to_owned()),
            (Some(_), false) => Err("only the root of a scatter gives parts".to_owned()),
            _ => Ok(()),
        };
        let counts = parts.as_ref().map(|parts| parts.counts.clone());
        let fill = parts_to_send(parts.unwrap_or_default(), is_root, self.rank(), self.size());
        let fill = move |whole: &mut Whole<T>| fill(whole).and(fault);
        self.submit(ask, fill, move |whole, _| {
            let data = mem::take(&mut whole.input);
            (mem::take(&mut whole.result), counts.map(|counts| Parts { data, counts }))
        })
    }

    /// Gives all ranks the data of all. Lengths may differ.
    ///
    /// Algorithms: ring, doubling.
    pub fn all_gather<T: Element>(&mut self, data: Vec<T>) -> Call<(Vec<T>, Parts<T>)> {
        self.all_gather_of(Operation::AllGather, data)
    }

    pub(crate) fn all_gather_of<T: Element>(
        &mut self,
        operation: Operation,
        data: Vec<T>,
    ) -> Call<(Vec<T>, Parts<T>)> {
        let ask = Ask::of::<T>(Kind::AllGather, operation);
        let fill = own_block(data, self.rank(), self.size());
        self.submit(ask, fill, |whole, ok| {
            let parts = if ok { whole.take_parts() } else { Parts::default() };
            (mem::take(&mut whole.input), parts)
        })
    }

    /// Gives each rank its part of every rank's data: part `j` of rank `i` becomes part `i` of rank `j`.
    /// The data come back with what was received.
    ///
    /// Algorithms: pairwise.
    pub fn all_to_all<T: Element>(&mut self, parts: Parts<T>) -> Call<(Parts<T>, Parts<T>)> {
        let ask = Ask::of::<T>(Kind::AllToAll, Operation::AllToAll);
        let counts = parts.counts.clone();
        let fill = parts_to_send(parts, true, self.rank(), self.size());
        self.submit(ask, fill, |whole, ok| {
            let received = if ok { whole.take_parts() } else { Parts::default() };
            (Parts { data: mem::take(&mut whole.input), counts }, received)
        })
    }

    /// Combines the vectors of all ranks, which have one length and are divided alike, and gives each rank
    /// its part of the result.
    ///
    /// Algorithms: pairwise, ring (for commutative operators), chain.
    pub fn reduce_scatter<T: Element>(
        &mut self,
        parts: Parts<T>,
        op: Op<T>,
    ) -> Call<(Parts<T>, Vec<T>)> {
        let named = op.clone();
        let ask = Ask::of::<T>(Kind::ReduceScatter, Operation::ReduceScatter);
        let mut ask = ask.all_of(&parts.data).by(&named);
        let bytes: Vec<u8> = parts.counts.iter().flat_map(|it| it.to_le_bytes()).collect();
        ask.statement.counts = fnv1a(&bytes);
        let (rank, size, counts) = (self.rank(), self.size(), parts.counts.clone());
        let fill = move |whole: &mut Whole<T>| {
            let divided = parts.ranges(size, &mut whole.result_blocks);
            whole.input_blocks.clone_from(&whole.result_blocks);
            whole.copy_to_result(&parts.data);
            whole.input = parts.data;
            whole.op = Some(op);
            divided
        };
        self.submit(ask, fill, move |whole, ok| {
            let own = whole.result_blocks.get(rank).filter(|_| ok).cloned().unwrap_or_default();
            let mine = whole.result[own].to_vec();
            (Parts { data: mem::take(&mut whole.input), counts }, mine)
        })
    }
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

/// Divides `len` elements evenly into blocks.
pub(crate) fn even(blocks: &mut Vec<Range<usize>>, len: usize, size: usize) {
    blocks.clear();
    blocks.extend((0..size).map(|block| bounds(len, size, block)));
}

/// Returns what gives a run data to combine: the result begins as a copy of them.
pub(crate) fn combined<T: Element>(
    data: Vec<T>,
    op: Op<T>,
    size: usize,
) -> impl FnOnce(&mut Whole<T>) -> Result<(), String> {
    move |whole| {
        even(&mut whole.result_blocks, data.len(), size);
        whole.input_blocks.clone_from(&whole.result_blocks);
        whole.copy_to_result(&data);
        whole.input = data;
        whole.op = Some(op);
        Ok(())
    }
}

/// Takes the result of a combination, or the caller's data; the other memory serves the next call.
pub(crate) fn take_combined<T: Element>(whole: &mut Whole<T>, result: bool) -> Vec<T> {
    if result {
        mem::swap(&mut whole.input, &mut whole.result);
    }
    mem::take(&mut whole.input)
}

/// Returns what gives a run this rank's data, as its block of those of all ranks.
pub(crate) fn own_block<T: Element>(
    data: Vec<T>,
    rank: usize,
    size: usize,
) -> impl FnOnce(&mut Whole<T>) -> Result<(), String> {
    move |whole| {
        whole.input_blocks.resize(size, 0..0);
        whole.input_blocks[rank] = 0..data.len();
        whole.result_blocks.clone_from(&whole.input_blocks);
        let length = |block: &Range<usize>| block.len();
        whole.lengths = Some(whole.result_blocks.iter().map(length).collect());
        whole.copy_to_result(&data);
        whole.input = data;
        Ok(())
    }
}

/// Returns what gives a run data for each rank; that for this rank is there at once.
fn parts_to_send<T: Element>(
    parts: Parts<T>,
    sends: bool,
    rank: usize,
    size: usize,
) -> impl FnOnce(&mut Whole<T>) -> Result<(), String> {
    move |whole| {
        whole.result_blocks.resize(size, 0..0);
        whole.result.clear();
        let mut lengths = vec![0; size];
        let divided = parts.ranges(size, &mut whole.input_blocks);
        whole.input = parts.data;
        if sends {
            divided?;
            let own = whole.input[whole.input_blocks[rank].clone()].to_vec();
            (lengths[rank], whole.result_blocks[rank]) = (own.len(), 0..own.len());
            whole.result = own;
        } else {
            whole.input_blocks.clear();
            whole.input_blocks.resize(size, 0..0);
        }
        whole.lengths = Some(lengths);
        Ok(())
    }
}
