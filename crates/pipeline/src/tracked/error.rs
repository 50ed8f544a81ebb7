//! Errors of tracked buffers, by side.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{DeltaRecvError, DeltaSendError, PartError};

/// Error of a buffer that cannot be tracked on this system.
#[derive(Clone)]
#[non_exhaustive]
pub enum SetupError {
    /// There is no engine for it: tracking needs Linux and real time, not a virtual host.
    NotSupportedHere,
    /// The memory cannot be had.
    Memory {
        /// Size in bytes.
        bytes: usize,
        /// Cause of the system.
        source: Arc<io::Error>,
    },
    /// The engine does not work here.
    Engine {
        /// Name of the engine.
        engine: String,
        /// Cause of the system.
        source: Arc<io::Error>,
    },
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSupportedHere => write!(f, "tracked buffers are not supported here"),
            Self::Memory { bytes, .. } => {
                write!(f, "no memory of {bytes} bytes for a tracked buffer")
            }
            Self::Engine { engine, .. } => write!(f, "the engine {engine} does not work here"),
        }
    }
}

chunkcomm::debug_with_causes!(SetupError);

impl std::error::Error for SetupError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotSupportedHere => None,
            Self::Memory { source, .. } | Self::Engine { source, .. } => Some(&**source),
        }
    }
}

/// Error of a buffer that was sent while it was written.
#[derive(Clone)]
#[non_exhaustive]
pub enum TrackedSendError {
    /// Elements were written again after they had been sent.
    Rewritten {
        /// Indices of the elements of the first increment that was.
        elements: Range<usize>,
    },
    /// The system refused a change of protection or a read.
    System {
        /// Name of the engine.
        engine: String,
        /// Cause of the system.
        source: Arc<io::Error>,
    },
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

impl fmt::Display for TrackedSendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rewritten { elements } => write!(
                f,
                "elements {}..{} were written again after they had been sent",
                elements.start, elements.end
            ),
            Self::System { engine, .. } => write!(f, "the engine {engine} failed"),
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
            Self::System { source, .. } => Some(&**source),
            Self::Delta(error) => error.source(),
            Self::Rewritten { .. } | Self::Length { .. } | Self::Part(_) => None,
        }
    }
}

/// Error of a buffer that was read while it arrived.
#[derive(Clone)]
#[non_exhaustive]
pub enum TrackedRecvError {
    /// Elements did not come within the deadline.
    Late {
        /// Time that was waited.
        deadline: Duration,
    },
    /// The sender ended before the elements came.
    Ended,
    /// The system refused a change of protection or a write.
    System {
        /// Name of the engine.
        engine: String,
        /// Cause of the system.
        source: Arc<io::Error>,
    },
    /// The tracked buffer and the delta have different lengths, in elements.
    Length {
        /// Length of the tracked buffer.
        tracked: usize,
        /// Length of the delta.
        delta: usize,
    },
    /// The range to wait for is not within the buffer.
    Range {
        /// Index of the first element asked for.
        start: usize,
        /// Index behind the last element asked for.
        end: usize,
        /// Number of elements of the buffer.
        length: usize,
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

impl fmt::Display for TrackedRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late { deadline } => write!(f, "elements did not come within {deadline:?}"),
            Self::Ended => write!(f, "the sender ended before the elements came"),
            Self::System { engine, .. } => write!(f, "the engine {engine} failed"),
            Self::Length { tracked, delta } => {
                write!(f, "the tracked buffer has {tracked} elements, the delta has {delta}")
            }
            Self::Range { start, end, length } => {
                write!(f, "elements {start}..{end} are not within the buffer's {length}")
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
            Self::System { source, .. } => Some(&**source),
            Self::Delta(error) => error.source(),
            _ => None,
        }
    }
}
