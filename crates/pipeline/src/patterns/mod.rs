//! Whole programs over deltas: a pair and a cascade of nodes that each compute on every element,
//! with whole buffers or with deltas, the results verified.
//!
//! These are the tests *pair* and *cascade* of the delta paper (section 3). The examples and the
//! measurements run the same code: [`Chain`] at the first node, [`serve`] (in a cluster [`serve_in`]) at the others. Whoever
//! wants only a node's part of one run calls [`run_head`], [`run_middle`] and [`run_tail`].
//!
//! Whole and delta differ in nothing but when bytes may leave and be used: the same transfer, the
//! same buffers, the same filter.

mod chain;
mod compute;
mod pin;
mod roles;

use std::fmt;

use chunkcomm::cluster::PeerError;
use chunkcomm::{AcceptError, ConnectError, OpenError, RecvError, SendError};
use serde::{Deserialize, Serialize};

pub use chain::{Chain, Outcome, serve, serve_in};
pub use compute::{Compute, Difference, UnknownCompute, compare, sequential, source};
pub use pin::pin;
pub use roles::{Arrays, run_head, run_middle, run_tail};

use crate::{Costs, DeltaRecvError, DeltaSendError, Increment};

/// One run through a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// A number that no other run of the chain has.
    pub number: u64,
    /// Elements of the array, 4 bytes each.
    pub elements: usize,
    /// What every node computes on every element.
    pub compute: Compute,
    /// Bytes of an increment; `None`: every node waits for the whole array, computes, and sends
    /// it as a whole.
    pub delta_bytes: Option<usize>,
    /// Whether the last node compares its result with the sequential one, after the time is
    /// taken.
    pub verify: bool,
}

impl Run {
    /// Size of the array in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.elements * size_of::<f32>()
    }

    /// Name of the channel between two neighbours.
    fn channel(&self) -> String {
        format!("chain.data.{}", self.number)
    }

    /// Elements that are computed before the runtime may send: an increment, at least one.
    fn grain(&self) -> usize {
        (self.delta_bytes.unwrap_or(self.bytes()) / size_of::<f32>()).max(1)
    }
}

/// The increment for `bytes` bytes through `nodes` nodes, with the compute measured here (some
/// milliseconds).
#[must_use]
pub fn auto_delta_bytes(compute: Compute, nodes: usize, bytes: usize) -> usize {
    let costs = Costs {
        compute_ns_per_byte: compute.measure_ns_per_byte(),
        ..Costs::default().with_nodes(nodes)
    };
    Increment::Auto(costs).bytes_for(bytes, size_of::<f32>())
}

/// Why a run or a chain failed.
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
    /// A node's address is none.
    Address {
        /// What it said.
        address: String,
    },
    /// A node says that it failed.
    Failed {
        /// Its name.
        peer: String,
        /// What it says.
        cause: String,
    },
    /// A node said something else than it should: another version of this program?
    OutOfStep {
        /// Its name.
        peer: String,
    },
    /// A node left before the chain was ended.
    Left {
        /// Its name.
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
