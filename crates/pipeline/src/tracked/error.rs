//! Errors of deltas whose ends are ordinary code, by side.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use chunkcomm_group::{DeltaRecvError, DeltaSendError, PartError};
use chunkcomm_pages::{ReadError, WriteError};

/// Error of a delta that was sent while ordinary code wrote it.
#[derive(Clone)]
#[non_exhaustive]
pub enum TrackedSendError {
    /// The tracked buffer failed.
    Buffer(WriteError),
    /// The tracked buffer and the delta have different lengths, in elements.
    Length {
        /// Length of the tracked buffer.
        tracked: usize,
        /// Length of the delta.
        delta: usize,
    },
    /// Elements of the delta cannot be written.
    Part(PartError),
    /// The transfer failed.
    Delta(Arc<DeltaSendError>),
}

impl From<WriteError> for TrackedSendError {
    fn from(error: WriteError) -> Self {
        Self::Buffer(error)
    }
}

impl From<DeltaSendError> for TrackedSendError {
    fn from(error: DeltaSendError) -> Self {
        Self::Delta(Arc::new(error))
    }
}

impl fmt::Display for TrackedSendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Buffer(error) => error.fmt(f),
            Self::Length { tracked, delta } => {
                write!(f, "the tracked buffer has {tracked} elements, the delta {delta}")
            }
            Self::Part(error) => error.fmt(f),
            Self::Delta(error) => error.fmt(f),
        }
    }
}

chunkcomm::debug_with_causes!(TrackedSendError);

impl std::error::Error for TrackedSendError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Buffer(error) => error.source(),
            Self::Delta(error) => error.source(),
            Self::Length { .. } | Self::Part(_) => None,
        }
    }
}

/// Error of a delta that ordinary code read while it arrived.
#[derive(Clone)]
#[non_exhaustive]
pub enum TrackedRecvError {
    /// The tracked buffer failed, or elements did not come.
    Buffer(ReadError),
    /// The tracked buffer and the delta have different lengths, in elements.
    Length {
        /// Length of the tracked buffer.
        tracked: usize,
        /// Length of the delta.
        delta: usize,
    },
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
    /// The transfer failed.
    Delta(Arc<DeltaRecvError>),
}

impl From<ReadError> for TrackedRecvError {
    fn from(error: ReadError) -> Self {
        Self::Buffer(error)
    }
}

impl From<DeltaRecvError> for TrackedRecvError {
    fn from(error: DeltaRecvError) -> Self {
        Self::Delta(Arc::new(error))
    }
}

impl fmt::Display for TrackedRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Buffer(error) => error.fmt(f),
            Self::Length { tracked, delta } => {
                write!(f, "the tracked buffer has {tracked} elements, the delta has {delta}")
            }
            Self::Corrected { elements } => write!(
                f,
                "elements {}..{} were written again by the sender after they had come",
                elements.start, elements.end
            ),
            Self::Short { landed, length } => {
                write!(f, "the sender ended the stream after {landed} of {length} elements")
            }
            Self::Delta(error) => error.fmt(f),
        }
    }
}

chunkcomm::debug_with_causes!(TrackedRecvError);

impl std::error::Error for TrackedRecvError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Buffer(error) => error.source(),
            Self::Delta(error) => error.source(),
            Self::Length { .. } | Self::Corrected { .. } | Self::Short { .. } => None,
        }
    }
}
