//! Whole programs over deltas: each node computes on every element of an array, with whole buffers or with
//! deltas. The results are verified.
//!
//! These are the tests *pair*, *cascade* and *ring* of the delta paper (section 3), see [`Pattern`].
//! The examples and the measurements run the same code: [`Chain`] at the first node, [`serve`] (in a
//! cluster [`serve_in`]) at the others. A program that wants only a node's part of one run calls
//! [`run_head`], [`run_middle`], [`run_tail`] or [`run_ring`].
//!
//! Whole and delta use the same transfer, the same buffers and the same filter. They differ only
//! in when bytes may leave and be used.

mod chain;
mod compute;
mod machine;
mod roles;
mod verify;

use chunkcomm::{AcceptError, ConnectError, Loss, OpenError, RecvError, SendError};
use chunkcomm_pipeline::{Costs, DeltaRecvError, DeltaSendError, Increment};
use serde::{Deserialize, Serialize};

pub use chain::{Chain, Outcome, serve, serve_in};
pub use compute::{Compute, Pass, UnknownCompute, source, source_of};
pub use machine::pin;
pub use roles::{Arrays, run_head, run_middle, run_ring, run_tail};
pub use verify::{Difference, compare, sequential};

/// The nodes' ways to each other, and what they compute on.
///
/// ```text
/// cascade   source ▶ compute ──▶ compute ──▶ compute ▶ result     each waits for the one before
///
/// ring   ┌──▶ compute ▶ result    compute ▶ result    compute ▶ result
///        │       source ▶ compute ──▲ source ▶ compute ──▲ source ▶ compute ─┐
///        └───────────────────────────────────────────────────────────────────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pattern {
    /// Each node computes on the result of the one before it. Two nodes are the paper's *pair*.
    Cascade,
    /// Each node computes on an array of its own and sends the result to the next node, the last to the
    /// first. Then it computes on what came from the node before it. No node waits for a chain of others.
    Ring,
}

/// When the bytes of an array may leave and be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transfer {
    /// A node waits for the whole array, computes, sends the whole result, and waits until it is there.
    Whole,
    /// As `Whole`, but the independent computing of the run overlaps with the sending (non-blocking send,
    /// figure 1 (a) of the paper).
    Overlapped,
    /// Increments of this many bytes leave while the next ones are computed (figure 1 (b)).
    Delta(usize),
}

/// One run through the nodes of a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// A number that no other run of the chain has.
    pub number: u64,
    /// The ways of the array.
    pub pattern: Pattern,
    /// Number of elements of the array, 4 bytes each.
    pub elements: usize,
    /// The work of every node on every element.
    pub compute: Compute,
    /// When bytes may leave.
    pub transfer: Transfer,
    /// Number of further arrays on which every sending node computes for itself, once its result is sent or
    /// on its way.
    pub independent: u32,
    /// Whether the nodes with a result compare it with the sequential one, after the time is taken.
    pub verify: bool,
}

impl Run {
    /// Makes a verified run with number 0, of whole buffers and nothing independent.
    #[must_use]
    pub fn new(pattern: Pattern, compute: Compute, elements: usize) -> Self {
        let transfer = Transfer::Whole;
        Self { number: 0, pattern, elements, compute, transfer, independent: 0, verify: true }
    }

    /// Returns the size of the array in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.elements * size_of::<f32>()
    }

    /// Returns the name of the channel between two neighbours.
    fn channel(&self) -> String {
        format!("chain.data.{}", self.number)
    }

    /// Whether a node waits for the whole array before it computes.
    fn is_whole(&self) -> bool {
        !matches!(self.transfer, Transfer::Delta(_))
    }

    /// Returns the bytes that leave together.
    fn increment_bytes(&self) -> usize {
        match self.transfer {
            Transfer::Delta(bytes) => bytes,
            Transfer::Whole | Transfer::Overlapped => self.bytes(),
        }
    }

    /// Returns the elements computed before the runtime may send: an increment, at least one.
    fn grain(&self) -> usize {
        (self.increment_bytes() / size_of::<f32>()).max(1)
    }
}

/// Returns the best increment, in bytes, for `bytes` bytes through `nodes` nodes; measures the
/// compute on this machine (some milliseconds).
#[must_use]
pub fn auto_delta_bytes(compute: Compute, nodes: usize, bytes: usize) -> usize {
    let mut costs = Costs::default().with_nodes(nodes);
    costs.compute_ns_per_byte = compute.measure_ns_per_byte(bytes);
    Increment::Auto(costs).bytes_for(bytes, size_of::<f32>())
}

/// Error of a run or a chain.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// The result could not be sent on.
    #[error(transparent)]
    DeltaSend(#[from] DeltaSendError),
    /// The input did not arrive.
    #[error(transparent)]
    DeltaRecv(#[from] DeltaRecvError),
    /// A channel between head and node could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A channel between head and node could not be accepted.
    #[error(transparent)]
    Accept(#[from] AcceptError),
    /// The next node could not be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A member of the cluster could not be reached.
    #[error(transparent)]
    Peer(#[from] Loss),
    /// A word or an order could not be sent.
    #[error(transparent)]
    Send(#[from] SendError),
    /// A word or an order did not arrive.
    #[error(transparent)]
    Recv(#[from] RecvError),
    /// A node's address is not readable.
    #[error("{address:?} is no address of a node")]
    Address {
        /// Text in place of the address.
        address: String,
    },
    /// A node reports that it failed.
    #[error("node {peer:?} failed: {cause}")]
    Failed {
        /// Name of the node.
        peer: String,
        /// Cause that the node reports.
        cause: String,
    },
    /// A node sent another word than the next one due: another version of this program?
    #[error("node {peer:?} is out of step with the chain")]
    OutOfStep {
        /// Name of the node.
        peer: String,
    },
    /// A node left before the chain was ended.
    #[error("node {peer:?} left the chain")]
    Left {
        /// Name of the node.
        peer: String,
    },
}

chunkcomm::debug_with_causes!(PatternError);
