//! Whole programs over deltas: nodes that each compute on every element of an array, with whole
//! buffers or with deltas, the results verified.
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

use std::fmt;

use chunkcomm::{AcceptError, ConnectError, OpenError, RecvError, SendError};
use chunkcomm_cluster::cluster::PeerError;
use serde::{Deserialize, Serialize};

pub use chain::{Chain, Outcome, serve, serve_in};
pub use compute::{Compute, UnknownCompute, source, source_of};
pub use machine::pin;
pub use roles::{Arrays, run_head, run_middle, run_ring, run_tail};
pub use verify::{Difference, compare, sequential};

use crate::{Costs, DeltaRecvError, DeltaSendError, Increment};

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
    /// Number of arrays on which every node that sends computes besides, for itself: after its result is
    /// sent, or on its way.
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
    let costs = Costs {
        compute_ns_per_byte: compute.measure_ns_per_byte(bytes),
        ..Costs::default().with_nodes(nodes)
    };
    Increment::Auto(costs).bytes_for(bytes, size_of::<f32>())
}

/// Error of a run or a chain.
#[derive(Clone)]
#[non_exhaustive]
pub enum PatternError {
    /// The result could not be sent on.
    DeltaSend(DeltaSendError),
    /// The input did not arrive.
    DeltaRecv(DeltaRecvError),
    /// A channel between head and node could not be opened.
    Open(OpenError),
    /// A channel between head and node could not be accepted.
    Accept(AcceptError),
    /// The next node could not be reached.
    Connect(ConnectError),
    /// A member of the cluster could not be reached.
    Peer(PeerError),
    /// A word or an order could not be sent.
    Send(SendError),
    /// A word or an order did not arrive.
    Recv(RecvError),
    /// A node's address is not readable.
    Address {
        /// Text in place of the address.
        address: String,
    },
    /// A node reports that it failed.
    Failed {
        /// Name of the node.
        peer: String,
        /// Cause that the node reports.
        cause: String,
    },
    /// A node sent another word than the next one due: another version of this program?
    OutOfStep {
        /// Name of the node.
        peer: String,
    },
    /// A node left before the chain was ended.
    Left {
        /// Name of the node.
        peer: String,
    },
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeltaSend(error) => error.fmt(f),
            Self::DeltaRecv(error) => error.fmt(f),
            Self::Open(error) => error.fmt(f),
            Self::Accept(error) => error.fmt(f),
            Self::Connect(error) => error.fmt(f),
            Self::Peer(error) => error.fmt(f),
            Self::Send(error) => error.fmt(f),
            Self::Recv(error) => error.fmt(f),
            Self::Address { address } => write!(f, "{address:?} is no address of a node"),
            Self::Failed { peer, cause } => write!(f, "node {peer:?} failed: {cause}"),
            Self::OutOfStep { peer } => write!(f, "node {peer:?} is out of step with the chain"),
            Self::Left { peer } => write!(f, "node {peer:?} left the chain"),
        }
    }
}

chunkcomm::debug_with_causes!(PatternError);

impl std::error::Error for PatternError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::DeltaSend(error) => error.source(),
            Self::DeltaRecv(error) => error.source(),
            Self::Open(error) => error.source(),
            Self::Accept(error) => error.source(),
            Self::Connect(error) => error.source(),
            Self::Peer(error) => error.source(),
            Self::Send(error) => error.source(),
            Self::Recv(error) => error.source(),
            Self::Address { .. }
            | Self::Failed { .. }
            | Self::OutOfStep { .. }
            | Self::Left { .. } => None,
        }
    }
}

macro_rules! from {
    ($($variant:ident($error:ty)),+ $(,)?) => {$(
        impl From<$error> for PatternError {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        }
    )+};
}

from!(
    DeltaSend(DeltaSendError),
    DeltaRecv(DeltaRecvError),
    Open(OpenError),
    Accept(AcceptError),
    Connect(ConnectError),
    Peer(PeerError),
    Send(SendError),
    Recv(RecvError),
);
