//! Collectives that flow: their input is a [`DeltaSender`], their result a [`DeltaReceiver`].
//!
//! ```text
//!   FlowRun     stands in the group's engine: says, agrees, breaks      run
//!   Plan        opens the transfers and makes the ends                  opening
//!   Lane        follows the rounds; one or two a collective             lane
//!
//!   DeltaSender ─▶ input ──────────▶ pump ─▶ parent
//!                    │ own operand
//!   child ─▶ landing ▼ combine ─▶ partial ─▶ pump ─▶ parent      at the root: ─▶ result ─▶ DeltaReceiver
//! ```

mod lane;
mod opening;
mod run;

use chunkcomm_group::layer::{Asked, FlowKind, Giver, Schedule, ask, bounds, submit};
use chunkcomm_group::{Algorithm, Call, Element, Group, Increment, Op};

use crate::{DeltaReceiver, DeltaSender};
use opening::Plan;
use run::{Counting, Ends, FlowRun, has_some};

/// Manner in which a collective flows: its increment, and the rounds that may be under way.
///
/// ```
/// use chunkcomm_pipeline::{Flow, Increment};
///
/// let flow = Flow::default().increment(Increment::Fixed(20 * 1024)).depth(2);
/// # let _ = flow;
/// ```
#[derive(Clone, Debug)]
pub struct Flow {
    increment: Increment,
    depth: usize,
}

impl Default for Flow {
    fn default() -> Self {
        Self { increment: Increment::default(), depth: 1 }
    }
}

impl Flow {
    /// Sets the number of bytes that this rank sends together; by default [`Increment::default`]. Each rank may
    /// have its own.
    ///
    /// [`Increment::Auto`] is computed for as many nodes as an element passes, and less leaves when the link is
    /// idle. [`Increment::Fixed`] leaves whole.
    #[must_use]
    pub fn increment(self, increment: Increment) -> Self {
        Self { increment, ..self }
    }

    /// Sets the number of rounds that may be under way: 1 (the default) or 2, the same at all ranks.
    ///
    /// With 2 a rank begins the next round while the one before still travels, and a slow rank holds the others up
    /// a round later. Costs each memory of the collective twice. Odd and even rounds have memory of their own, so
    /// elements that are not written again are those of two rounds before.
    ///
    /// # Panics
    ///
    /// With another number.
    #[must_use]
    pub fn depth(self, depth: usize) -> Self {
        assert!((1..=2).contains(&depth), "one or two rounds are under way, not {depth}");
        Self { depth, ..self }
    }

    /// Computes the increment of `Auto` for `hops` transfers, one after another.
    fn through(self, hops: usize) -> Self {
        let increment = match self.increment {
            Increment::Auto(costs) => Increment::Auto(costs.with_nodes(costs.nodes.max(hops + 1))),
            fixed => fixed,
        };
        Self { increment, ..self }
    }
}

/// A rank's end of [`GroupDeltas::broadcast_delta`].
#[derive(Debug)]
#[must_use = "a collective ends when one of its ends is dropped"]
pub enum DeltaEnd<T: Element> {
    /// The root's: it computes and sends.
    Sender(DeltaSender<T>),
    /// That of each other rank: it receives.
    Receiver(DeltaReceiver<T>),
}

/// A rank's ends of [`GroupDeltas::reduce_delta`].
#[derive(Debug)]
#[must_use = "a collective ends when one of its ends is dropped"]
pub struct ReduceEnds<T: Element> {
    /// The elements that this rank computes.
    pub operand: DeltaSender<T>,
    /// Those of all ranks combined, at the root.
    pub result: Option<DeltaReceiver<T>>,
}

/// A rank's ends of [`GroupDeltas::all_reduce_delta`].
#[derive(Debug)]
#[must_use = "a collective ends when one of its ends is dropped"]
pub struct AllReduceEnds<T: Element> {
    /// The elements that this rank computes.
    pub operand: DeltaSender<T>,
    /// Those of all ranks combined.
    pub result: DeltaReceiver<T>,
}

/// A rank's ends of [`GroupDeltas::gather_delta`].
#[derive(Debug)]
#[must_use = "a collective ends when one of its ends is dropped"]
pub struct GatherEnds<T: Element> {
    /// The elements that this rank computes.
    pub operand: DeltaSender<T>,
    /// Those of all ranks in their order, at the root.
    pub result: Option<DeltaReceiver<T>>,
    /// Number of elements of each rank, at the root; elsewhere empty.
    pub counts: Vec<usize>,
}

/// The collectives of a [`Group`] that flow: their operands are [`DeltaSender`]s, their results
/// [`DeltaReceiver`]s.
pub trait GroupDeltas: sealed::Sealed {
    /// Broadcasts what the root computes, increment by increment, round by round. The others give memory of as
    /// many elements.
    ///
    /// The root's sender is finished when the ranks that it sends to have all. It may [`end`](DeltaSender::end) the
    /// stream: then each receiver's `start` returns false.
    ///
    /// [Rounds, drops](crate#collectives-that-flow) and further errors of the ends are those of all collectives that
    /// flow. Algorithms: chain, binary, binomial.
    ///
    /// # Errors
    ///
    /// The call ends with a [`CollectiveError`](chunkcomm_group::CollectiveError), which has `data`, when the
    /// transfers cannot be set up: for the causes of [`broadcast`](Group::broadcast), and with
    /// [`Differs`](chunkcomm_group::GroupError::Differs) also when ranks give different [depths](Flow::depth).
    /// Afterwards the ends have [`DeltaSendError::Collective`](crate::DeltaSendError::Collective) and
    /// [`DeltaRecvError::Collective`](crate::DeltaRecvError::Collective).
    ///
    /// # Cancel safety
    ///
    /// When the call is dropped, it is made all the same, and its ends are dropped with it.
    fn broadcast_delta<T: Element>(
        &mut self,
        root: usize,
        data: Vec<T>,
        flow: Flow,
    ) -> Call<DeltaEnd<T>, Vec<T>>;

    /// Combines what all ranks compute, element by element, as they compute it.
    ///
    /// `data` is the memory of this rank's operand, as long at all ranks. An element of the result is done when all
    /// ranks have committed theirs, in any order. The operand's sender is finished when this rank has no more part
    /// in the round: its elements, combined with those that came here, are with the next rank. The root's is finished
    /// with the result.
    ///
    /// A built-in operator runs between two reads of the link. A [named](Op::named) one, which may take its time,
    /// runs in a task of its own. Operands are ordered by rank as in [`reduce`](Group::reduce).
    ///
    /// [Rounds, drops](crate#collectives-that-flow) and further errors of the ends are those of all collectives that
    /// flow. Algorithms: chain, binary, binomial; with [`set_reproducible`](Group::set_reproducible) chain.
    ///
    /// ```
    /// # use chunkcomm_cluster::{Cluster, ClusterConfig};
    /// # use chunkcomm_group::{Group, Op};
    /// # use chunkcomm_pipeline::{Flow, GroupDeltas};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = Cluster::join(ClusterConfig::new().nodes(1)).await?;
    /// let mut group = Group::world(&cluster).await?;
    /// let memory = vec![0_u64; 10_000];
    /// let mut ends = group.reduce_delta(0, memory, Op::sum(), Flow::default()).await?;
    /// while let Some(mut chunk) = ends.operand.next(1000)? {
    ///     chunk.fill(1);
    ///     chunk.commit().await?; // is on its way to the sum
    /// }
    /// ends.operand.finish().await?;
    /// if let Some(sum) = &mut ends.result {
    ///     // Only the root has it.
    ///     while let Some(done) = sum.next().await? {
    ///         assert!(done.iter().all(|it| *it == group.size() as u64));
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`broadcast_delta`](Self::broadcast_delta), for the causes of [`reduce`](Group::reduce). An operator that
    /// panics breaks the group with [`GroupError::Lost`](chunkcomm_group::GroupError::Lost).
    ///
    /// # Cancel safety
    ///
    /// As [`broadcast_delta`](Self::broadcast_delta).
    fn reduce_delta<T: Element>(
        &mut self,
        root: usize,
        data: Vec<T>,
        op: Op<T>,
        flow: Flow,
    ) -> Call<ReduceEnds<T>, Vec<T>>;

    /// Combines what all ranks compute as [`reduce_delta`](Self::reduce_delta) does, with the result at all of
    /// them. Its bits are the same everywhere.
    ///
    /// The operand's sender is finished with the result at this rank. So a sender's further round is not finished
    /// before this rank's receiver has [started](DeltaReceiver::start) it.
    ///
    /// Algorithms: chains.
    ///
    /// # Errors
    ///
    /// As [`reduce_delta`](Self::reduce_delta).
    ///
    /// # Cancel safety
    ///
    /// As [`broadcast_delta`](Self::broadcast_delta).
    fn all_reduce_delta<T: Element>(
        &mut self,
        data: Vec<T>,
        op: Op<T>,
        flow: Flow,
    ) -> Call<AllReduceEnds<T>, Vec<T>>;

    /// Brings what all ranks compute to the root as they compute it. The parts stand there in the order of ranks;
    /// their lengths may differ.
    ///
    /// `data` is the memory of this rank's part. [`next_any`](DeltaReceiver::next_any) shows elements of all ranks as
    /// they land, [`next`](DeltaReceiver::next) those of rank 1 behind all of rank 0.
    ///
    /// Algorithms: direct.
    ///
    /// # Errors
    ///
    /// As [`broadcast_delta`](Self::broadcast_delta), for the causes of [`gather`](Group::gather).
    ///
    /// # Cancel safety
    ///
    /// As [`broadcast_delta`](Self::broadcast_delta).
    fn gather_delta<T: Element>(
        &mut self,
        root: usize,
        data: Vec<T>,
        flow: Flow,
    ) -> Call<GatherEnds<T>, Vec<T>>;
}

impl sealed::Sealed for Group {}

impl GroupDeltas for Group {
    fn broadcast_delta<T: Element>(
        &mut self,
        root: usize,
        data: Vec<T>,
        flow: Flow,
    ) -> Call<DeltaEnd<T>, Vec<T>> {
        make(self, FlowKind::Broadcast { root }, data, None, flow, |ends| match ends {
            Ends { sender: Some(sender), .. } => DeltaEnd::Sender(sender),
            Ends { receiver, .. } => DeltaEnd::Receiver(receiver.expect("who does not send")),
        })
    }

    fn reduce_delta<T: Element>(
        &mut self,
        root: usize,
        data: Vec<T>,
        op: Op<T>,
        flow: Flow,
    ) -> Call<ReduceEnds<T>, Vec<T>> {
        make(self, FlowKind::Reduce { root }, data, Some(op), flow, |ends| {
            let Ends { sender, receiver: result, .. } = ends;
            ReduceEnds { operand: sender.expect("all ranks send"), result }
        })
    }

    fn all_reduce_delta<T: Element>(
        &mut self,
        data: Vec<T>,
        op: Op<T>,
        flow: Flow,
    ) -> Call<AllReduceEnds<T>, Vec<T>> {
        make(self, FlowKind::AllReduce, data, Some(op), flow, |ends| {
            let Ends { sender, receiver, .. } = ends;
            let operand = sender.expect("all ranks send");
            AllReduceEnds { operand, result: receiver.expect("all ranks receive") }
        })
    }

    fn gather_delta<T: Element>(
        &mut self,
        root: usize,
        data: Vec<T>,
        flow: Flow,
    ) -> Call<GatherEnds<T>, Vec<T>> {
        make(self, FlowKind::Gather { root }, data, None, flow, |ends| {
            let Ends { sender, receiver: result, counts } = ends;
            GatherEnds { operand: sender.expect("all ranks send"), result, counts }
        })
    }
}

mod sealed {
    /// Groups alone have these calls.
    pub trait Sealed {}
}

/// Makes a flowing call; `take` makes its ends what the caller gets.
fn make<T: Element, R>(
    group: &mut Group,
    kind: FlowKind,
    data: Vec<T>,
    op: Option<Op<T>>,
    flow: Flow,
    take: impl FnOnce(Ends<T>) -> R + Send + 'static,
) -> Call<R, Vec<T>> {
    let mut asked = ask(group, kind, data.len(), op.as_ref(), flow.depth > 1);
    let flow = flow.through(hops(asked.algorithm, group.size()));
    let plan = plan(group, kind, data.len(), &mut asked, op, flow);
    let counting = match kind {
        FlowKind::Gather { root } => Some(Counting { root, counts: vec![None; group.size()] }),
        _ => None,
    };
    let run = FlowRun::new(Giver::of(group), plan, data, asked.refused.take(), counting);
    submit(group, asked, Box::new(run), move |run| {
        let any = run.as_any();
        if let Some(ends) = any.downcast_mut::<Ends<T>>() {
            let (sender, receiver) = (ends.sender.take(), ends.receiver.take());
            let counts = std::mem::take(&mut ends.counts);
            return Ok(take(Ends { sender, receiver, counts }));
        }
        let run: &mut FlowRun<T> = any.downcast_mut().expect("the run is that of the call");
        Err(std::mem::take(&mut run.data))
    })
}

/// Returns what sets the transfers of a call up.
fn plan<T: Element>(
    group: &Group,
    kind: FlowKind,
    length: usize,
    asked: &mut Asked,
    op: Option<Op<T>>,
    flow: Flow,
) -> Plan<T> {
    let (rank, size) = (group.rank(), group.size());
    let is_root = kind.root() == Some(rank);
    let even_blocks: Vec<_> = (0..size).map(|block| bounds(length, size, block)).collect();
    let (has_input, has_result) = match kind {
        FlowKind::Broadcast { .. } => (is_root, !is_root),
        FlowKind::AllReduce => (true, true),
        _ => (true, is_root),
    };
    let is_gather = matches!(kind, FlowKind::Gather { .. });
    let mut own_blocks = vec![0..0; size];
    own_blocks[rank] = 0..length;
    let input_blocks = if is_gather { own_blocks } else { even_blocks.clone() };
    let result_blocks = if is_gather { vec![0..0; size] } else { even_blocks };
    let Schedule { mut receives, mut sends } = std::mem::take(&mut asked.schedule);
    if !is_gather {
        receives.retain(|it| has_some(&it.blocks, &result_blocks));
    }
    sends.retain(|it| has_some(&it.blocks, &input_blocks));
    // Nobody else has elements: what is computed is the result.
    let stays = has_input && has_result && (is_gather || size == 1);
    Plan {
        cluster: group.cluster().clone(),
        members: (0..size).map(|rank| group.member(rank)).collect(),
        rank,
        name: String::new(),
        title: std::mem::take(&mut asked.title),
        results: Vec::new(),
        schedule: Schedule { receives, sends },
        op,
        flow,
        has_input,
        input_blocks,
        result_blocks,
        has_result,
        own_block: stays.then_some(rank),
        is_whole: !matches!(kind, FlowKind::Broadcast { .. }),
    }
}

/// Returns the number of transfers that an element passes one after another.
fn hops(algorithm: Algorithm, size: usize) -> usize {
    match algorithm {
        Algorithm::Chain => size.saturating_sub(1),
        Algorithm::Chains => 2 * size.saturating_sub(1),
        Algorithm::Direct => 1,
        _ => size.next_power_of_two().ilog2() as usize,
    }
}
