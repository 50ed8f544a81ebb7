//! Errors of tracked buffers.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

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

/// Error of a buffer that was handed on while it was written, or read while it was filled.
#[derive(Clone)]
#[non_exhaustive]
pub enum AccessError {
    /// Elements were written again after they had been handed on.
    Rewritten {
        /// Indices of the elements of the first increment that was.
        elements: Range<usize>,
    },
    /// Elements did not come within the deadline.
    Late {
        /// Time that was waited.
        deadline: Duration,
    },
    /// The filler ended before the elements came.
    Ended,
    /// The range to wait for is not within the buffer.
    Range {
        /// Index of the first element asked for.
        start: usize,
        /// Index behind the last element asked for.
        end: usize,
        /// Number of elements of the buffer.
        length: usize,
    },
    /// The system refused a change of protection, a read or a write.
    System {
        /// Name of the engine.
        engine: String,
        /// Cause of the system.
        source: Arc<io::Error>,
    },
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rewritten { elements } => write!(
                f,
                "elements {}..{} were written again after they had been sent",
                elements.start, elements.end
            ),
            Self::Late { deadline } => write!(f, "elements did not come within {deadline:?}"),
            Self::Ended => write!(f, "the sender ended before the elements came"),
            Self::Range { start, end, length } => {
                write!(f, "elements {start}..{end} are not within the buffer's {length}")
            }
            Self::System { engine, .. } => write!(f, "the engine {engine} failed"),
        }
    }
}

chunkcomm::debug_with_causes!(AccessError);

impl std::error::Error for AccessError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System { source, .. } => Some(&**source),
            Self::Rewritten { .. } | Self::Late { .. } | Self::Ended | Self::Range { .. } => None,
        }
    }
}
