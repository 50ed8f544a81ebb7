//! Schedules of collective calls: who sends which blocks to whom, and when.
//!
//! The data of a call are as many blocks as there are ranks. Block `b` is what belongs to rank `b`;
//! where nothing belongs to a rank (broadcast, reduce, all-reduce, scans) the elements are split evenly
//! ([`bounds`]). Small calls take [`steps`], one after another. Large ones [`flow`](flow::flow):
//! all transfers at once.
//!
//! Before the first step the executor sets
//!
//! | call | result |
//! |---|---|
//! | broadcast | at the root its data |
//! | reduce, all-reduce, reduce-scatter, scan | the rank's whole input |
//! | gather (at the root), all-gather | its own block: its input |
//! | scatter (at the root), all-to-all | its own block: that of its input |
//!
//! An exclusive scan has two: `running`, the input at first, and `result`, empty. `running` is sent. Each
//! received block makes `running = received op running` and `result = received op result`, the first one
//! `result = received`.
//!
//! Operands are ordered by rank: what a rank has combined covers neighbouring ranks, the lower always left
//! of the upper. A ring turns the order. With a commutative operator so does a tree whose hosts do not follow
//! the ranks, and a chain or binary tree, which is turned towards its root. All ranks of an all-reduce get
//! the same bits.
//!
//! Messages from one rank to another are matched in order; those of a barrier have no blocks.
//!
//! Sources: recursive doubling, ring and binomial tree as in Thakur, Rabenseifner and Gropp, "Optimization of
//! Collective Communication Operations in MPICH" (2005), section 4; dissemination in Hensgen, Finkel and
//! Manber, "Two Algorithms for Barrier Synchronization" (1988); scan in Hillis and Steele, "Data Parallel
//! Algorithms" (1986).

pub(crate) mod algorithm;
pub(crate) mod flow;
mod plan;
#[cfg(test)]
mod tests;
mod tree;
pub(crate) mod world;

use std::ops::Range;

use algorithm::Algorithm;
use plan::Plan;
use tree::Shape;
use world::World;

/// A collective call, with its root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Barrier,
    Broadcast { root: usize },
    Reduce { root: usize },
    AllReduce,
    ReduceScatter,
    Gather { root: usize },
    Scatter { root: usize },
    AllGather,
    AllToAll,
    Scan,
    ExclusiveScan,
}

impl Kind {
    /// Returns the algorithms of the call, the default for small data first.
    pub(crate) fn algorithms(self) -> &'static [Algorithm] {
        use Algorithm::{
            Binary, Binomial, Chain, Chains, Direct, Dissemination, Doubling, Pairwise, Ring,
        };
        match self {
            Self::Barrier => &[Dissemination, Doubling],
            Self::Broadcast { .. } | Self::Reduce { .. } => &[Binomial, Chain, Binary],
            Self::AllReduce => &[Doubling, Ring, Chains],
            Self::ReduceScatter => &[Pairwise, Ring, Chain],
            Self::Gather { .. } | Self::Scatter { .. } => &[Direct],
            Self::AllGather => &[Ring, Doubling],
            Self::AllToAll => &[Pairwise],
            Self::Scan | Self::ExclusiveScan => &[Doubling, Chain],
        }
    }

    /// Returns the root.
    pub(crate) fn root(self) -> Option<usize> {
        match self {
            Self::Broadcast { root }
            | Self::Reduce { root }
            | Self::Gather { root }
            | Self::Scatter { root } => Some(root),
            _ => None,
        }
    }

    /// Returns whether a call by this algorithm can begin with the first increment of its operands, in whatever
    /// order they are computed.
    pub(crate) fn flows(self, algorithm: Algorithm) -> bool {
        use Algorithm::{Binary, Binomial, Chain, Chains, Direct};
        match self {
            Self::Broadcast { .. } | Self::Reduce { .. } => {
                matches!(algorithm, Chain | Binary | Binomial)
            }
            Self::AllReduce => algorithm == Chains,
            Self::Gather { .. } => algorithm == Direct,
            _ => false,
        }
    }

    /// Returns whether the call combines operands.
    pub(crate) fn combines(self) -> bool {
        use Kind::{AllReduce, ExclusiveScan, Reduce, ReduceScatter, Scan};
        matches!(self, Reduce { .. } | AllReduce | ReduceScatter | Scan | ExclusiveScan)
    }

    /// Returns whether the call has this algorithm, for an operator that is `commutative` or not.
    pub(crate) fn takes(self, algorithm: Algorithm, commutative: bool) -> bool {
        let turns = algorithm == Algorithm::Ring && self.combines();
        self.algorithms().contains(&algorithm) && (commutative || !turns)
    }
}

/// One rank's send and receive of a time. Both begin together, the send with what stood there before the
/// receive. The next step begins when the receive is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) send: Option<SendStep>,
    pub(crate) receive: Option<ReceiveStep>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SendStep {
    pub(crate) to: usize,
    pub(crate) blocks: Range<usize>,
    pub(crate) of: Of,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReceiveStep {
    pub(crate) from: usize,
    pub(crate) blocks: Range<usize>,
    pub(crate) take: Take,
}

/// Memory that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Input,
    Result,
}

/// Use of received blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Take {
    /// `result = received`
    Place,
    /// `result = received op result`
    Before,
    /// `result = result op received`
    After,
}

/// Returns the elements of a block, when `len` elements are split evenly into `size` blocks.
pub fn bounds(len: usize, size: usize, block: usize) -> Range<usize> {
    let start = |block: usize| len / size * block + block.min(len % size);
    start(block)..start(block + 1)
}

/// Makes `out` the steps of one rank, and returns whether the call has such an algorithm.
///
/// `Auto` is none. A reproducible call takes `commutative = false` and a chain: `Chain`, for an
/// all-reduce `Chains`. These are then the sequential fold from rank 0, bit for bit. Allocates
/// nothing if the capacity of `out` suffices.
pub(crate) fn steps(
    kind: Kind,
    algorithm: Algorithm,
    world: &World,
    commutative: bool,
    rank: usize,
    out: &mut Vec<Step>,
) -> bool {
    out.clear();
    if !kind.takes(algorithm, commutative) {
        return false;
    }
    let ordered = kind.combines() && !commutative;
    // Doubling gathers neighbouring blocks.
    let by_rank = (kind, algorithm) == (Kind::AllGather, Algorithm::Doubling);
    let line = if by_rank { world.by_rank() } else { world.line(ordered) };
    let mut plan = Plan { size: world.size(), line, ordered, rank, out };
    match (kind, algorithm) {
        _ if plan.size == 1 => {}
        (Kind::Broadcast { root }, _) => plan.broadcast(shape(algorithm), root),
        (Kind::Reduce { root }, _) => plan.reduce(shape(algorithm), root),
        (Kind::AllReduce, Algorithm::Chains) => plan.chains(),
        (Kind::Scan | Kind::ExclusiveScan, Algorithm::Doubling) => plan.scan(),
        (Kind::Scan | Kind::ExclusiveScan, _) => plan.scan_chain(),
        (Kind::ReduceScatter, Algorithm::Chain) => plan.scatter_chain(),
        (Kind::ReduceScatter, Algorithm::Pairwise) => plan.reduce_pairs(),
        (_, Algorithm::Pairwise) => plan.exchange_pairs(),
        (Kind::Gather { root }, _) => plan.gather(root),
        (Kind::Scatter { root }, _) => plan.scatter(root),
        (_, Algorithm::Ring) => plan.ring(kind),
        (_, Algorithm::Doubling) => plan.doubling(kind),
        _ => plan.dissemination(),
    }
    true
}

fn shape(algorithm: Algorithm) -> Shape {
    match algorithm {
        Algorithm::Chain => Shape::Chain,
        Algorithm::Binary => Shape::Binary,
        _ => Shape::Binomial,
    }
}
