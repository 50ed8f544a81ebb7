//! Errors of packet numbers.

/// An impossible sequence number or ack.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SequenceError {
    /// A packet was left out or repeated.
    #[error("packet {got} came where {due} was due")]
    Sequence {
        /// The number that came.
        got: u64,
        /// The number that was due.
        due: u64,
    },
    /// More was acknowledged than was written.
    #[error("packet {got} was acknowledged where {sent} was the last one sent")]
    Ack {
        /// The acknowledged number.
        got: u64,
        /// The last number written as a whole.
        sent: u64,
    },
    /// At the start of a connection the peer reports less than it had acknowledged.
    #[error("only packet {got} is there, though {acknowledged} was acknowledged")]
    Forgotten {
        /// The number reported now.
        got: u64,
        /// The number acknowledged before.
        acknowledged: u64,
    },
}

crate::debug_with_causes!(SequenceError);
