//! Numbers that cannot be.

/// A sequence or ack that cannot be.
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
    /// More was acknowledged than was sent.
    Ack {
        /// As acknowledged.
        got: u64,
        /// The last number sent.
        sent: u64,
    },
    /// The peer says at the start of a connection that it lacks what it had
    /// acknowledged.
    Forgotten {
        /// As it says now.
        got: u64,
        /// As acknowledged.
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
