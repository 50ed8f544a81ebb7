//! Faults of a delta's bytes.

use super::opening::VERSION;

/// Fault of the bytes of a delta: of its opening, up to `Late`, or of a frame that follows.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeltaFault {
    /// The message has too few or too many bytes.
    #[error("{bytes} bytes are no opening")]
    Length {
        /// Number of bytes that came.
        bytes: usize,
    },
    /// The message does not start as an opening does.
    #[error("the first bytes are not those of an opening")]
    Magic,
    /// The message was written by another version of this crate.
    #[error("version {theirs}, ours is {VERSION}")]
    Version {
        /// Version that came.
        theirs: u16,
    },
    /// The name of the element type is not UTF-8, or the byte order is unknown.
    #[error("the element type is not readable")]
    Element,
    /// The channel was opened, and nothing followed in time.
    #[error("none came in time")]
    Late,
    /// The header names no kind of frame.
    #[error("kind {kind} is not known")]
    Kind {
        /// Number of the kind that came.
        kind: u32,
    },
    /// The increment, correction or end belongs to a round that has not been begun, or that is over.
    #[error("round {theirs}, ours is {ours}")]
    Round {
        /// Round of the frame, counted from 1.
        theirs: u32,
        /// Round of the receiver.
        ours: u32,
    },
    /// The increment reaches out of the buffer, or holds parts of elements.
    #[error("{bytes} bytes at byte {offset} are no elements of the buffer")]
    Outside {
        /// First byte of the increment.
        offset: u64,
        /// Number of its bytes.
        bytes: u64,
    },
    /// Bytes of the increment have landed before, or were corrected before.
    #[error("bytes {start}..{end} have landed before")]
    Twice {
        /// First byte that is there already.
        start: usize,
        /// Byte behind the last such one.
        end: usize,
    },
    /// The last round is said to end elsewhere than behind what has landed, before bytes that have
    /// landed or were corrected, or after it is whole.
    #[error("the last round cannot end at byte {end}, {landed} bytes have landed")]
    End {
        /// Byte behind the end.
        end: u64,
        /// Number of bytes that have landed.
        landed: usize,
    },
    /// The cause of the end is too long.
    #[error("the cause of the end is not readable")]
    Cause,
}

chunkcomm_proto::debug_with_causes!(DeltaFault);
