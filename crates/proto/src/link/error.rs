//! Faults of a peer.

use crate::credit::CreditError;
use crate::packet::WireError;
use crate::session::SequenceError;

/// Fault of a peer; the session ends with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The bytes are no packets.
    Wire(WireError),
    /// The peer sent more than it was allowed to.
    Credit(CreditError),
    /// An impossible sequence number or ack.
    Sequence(SequenceError),
    /// The peer makes us answer and does not read the answers.
    Answers {
        /// Number of answers that wait.
        waiting: usize,
    },
    /// A packet without number held a record that must not be repeated.
    Unnumbered,
    /// The peer named a channel that does not exist.
    UnknownChannel(u32),
    /// The peer opened a channel number twice.
    OpenedTwice(u32),
    /// A message's fragments do not belong together.
    Fragments,
    /// A run without messages, or with more than it has bytes.
    RunCount {
        /// Declared number of messages.
        messages: u32,
        /// Bytes of the run.
        bytes: usize,
    },
    /// A channel ended after another number of messages than it sent.
    EndCount {
        /// Declared number of messages.
        declared: u64,
        /// Received number of messages.
        received: u64,
    },
}

impl std::fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ProtocolError::Wire(error) => error.fmt(f),
            ProtocolError::Credit(error) => error.fmt(f),
            ProtocolError::Sequence(error) => error.fmt(f),
            ProtocolError::Answers { waiting } => {
                write!(f, "{waiting} answers wait, which it does not read")
            }
            ProtocolError::Unnumbered => {
                f.write_str("a packet without number holds what must not be repeated")
            }
            ProtocolError::UnknownChannel(id) => write!(f, "channel {id} does not exist"),
            ProtocolError::OpenedTwice(id) => write!(f, "channel {id} was opened twice"),
            ProtocolError::Fragments => f.write_str("fragments that are not of one message"),
            ProtocolError::RunCount { messages, bytes } => {
                write!(f, "a run of {bytes} bytes says that it holds {messages} messages")
            }
            ProtocolError::EndCount { declared, received } => {
                write!(f, "a channel ended after {declared} messages where {received} came")
            }
        }
    }
}

impl From<WireError> for ProtocolError {
    fn from(error: WireError) -> Self {
        ProtocolError::Wire(error)
    }
}

impl From<CreditError> for ProtocolError {
    fn from(error: CreditError) -> Self {
        ProtocolError::Credit(error)
    }
}

impl From<SequenceError> for ProtocolError {
    fn from(error: SequenceError) -> Self {
        ProtocolError::Sequence(error)
    }
}
