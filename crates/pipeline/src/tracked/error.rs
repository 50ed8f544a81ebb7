//! The error of deltas whose ends are ordinary code.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use chunkcomm_group::{DeltaRecvError, DeltaSendError, PartError};
use chunkcomm_pages::AccessError;

/// Error of a delta that was sent while ordinary code wrote it, or that ordinary code read while it arrived.
#[derive(Clone)]
#[non_exhaustive]
pub enum TrackedError {
    /// The tracked buffer failed, or elements did not come.
    Buffer(AccessError),
    /// The tracked buffer and the delta have different lengths, in elements.
    Length {
        /// Length of the tracked buffer.
        tracked: usize,
        /// Length of the delta.
        delta: usize,
    },
    /// Elements of the delta cannot be written.
    Part(PartError),
    /// The sender wrote elements again that the code may have read before.
    Corrected {
        /// Indices of the first of them that follow each other.
        elements: Range<usize>,
    },
    /// The sender ended a stream before the buffer was full: this round is the last one.
    Short {
        /// Number of elements of the round, which all have come, from the first one on.
        landed: usize,
        /// Number of elements of the buffer.
        length: usize,
    },
    /// The transfer to the receiver failed.
    Send(Arc<DeltaSendError>),
    /// The transfer from the sender failed.
    Recv(Arc<DeltaRecvError>),
}

impl From<AccessError> for TrackedError {
    fn from(error: AccessError) -> Self {
        Self::Buffer(error)
    }
}

impl From<DeltaSendError> for TrackedError {
    fn from(error: DeltaSendError) -> Self {
        Self::Send(Arc::new(error))
    }
}

impl From<DeltaRecvError> for TrackedError {
    fn from(error: DeltaRecvError) -> Self {
        Self::Recv(Arc::new(error))
    }
}

impl fmt::Display for TrackedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Buffer(error) => error.fmt(f),
            Self::Length { tracked, delta } => {
                write!(f, "the tracked buffer has {tracked} elements, the delta has {delta}")
            }
            Self::Part(error) => error.fmt(f),
            Self::Corrected { elements } => write!(
                f,
                "elements {}..{} were written again by the sender after they had come",
                elements.start, elements.end
            ),
            Self::Short { landed, length } => {
                write!(f, "the sender ended the stream after {landed} of {length} elements")
            }
            Self::Send(error) => error.fmt(f),
            Self::Recv(error) => error.fmt(f),
        }
    }
}

chunkcomm::debug_with_causes!(TrackedError);

impl std::error::Error for TrackedError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Buffer(error) => error.source(),
            Self::Send(error) => error.source(),
            Self::Recv(error) => error.source(),
            Self::Length { .. } | Self::Part(_) | Self::Corrected { .. } | Self::Short { .. } => {
                None
            }
        }
    }
}
