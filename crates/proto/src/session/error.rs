//! Errors of packet numbers.

/// An impossible sequence number or ack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SequenceError {
    /// A packet was left out or repeated.
    Sequence {
        /// The number that came.
        got: u64,
        /// The number that was due.
        due: u64,
    },
    /// More was acknowledged than was written.
    Ack {
        /// The acknowledged number.
        got: u64,
        /// The last number written as a whole.
        sent: u64,
    },
    /// At the start of a connection the peer reports less than it had acknowledged.
    Forgotten {
        /// The number reported now.
        got: u64,
        /// The number acknowledged before.
        acknowledged: u64,
    },
}

impl std::fmt::Display for SequenceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SequenceError::Sequence { got, due } => {
                write!(f, "packet {got} came where {due} was due")
            }
            SequenceError::Ack { got, sent } => {
                write!(f, "packet {got} was acknowledged where {sent} was the last one sent")
            }
            SequenceError::Forgotten { got, acknowledged } => {
                write!(f, "only packet {got} is there, though {acknowledged} was acknowledged")
            }
        }
    }
}
