//! Faults of a peer.

use crate::credit::CreditError;
use crate::packet::WireError;
use crate::session::SequenceError;

/// Fault of a peer; the session ends with it.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The bytes are no packets.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The peer sent more than it was allowed to.
    #[error(transparent)]
    Credit(#[from] CreditError),
    /// An impossible sequence number or ack.
    #[error(transparent)]
    Sequence(#[from] SequenceError),
    /// The peer makes us answer and does not read the answers.
    #[error("{waiting} answers wait, which it does not read")]
    Answers {
        /// Number of answers that wait.
        waiting: usize,
    },
    /// A packet without number held a record that must not be repeated.
    #[error("a packet without number holds what must not be repeated")]
    Unnumbered,
    /// The peer named a channel that does not exist.
    #[error("channel {0} does not exist")]
    UnknownChannel(u32),
    /// The peer opened a channel number twice.
    #[error("channel {0} was opened twice")]
    OpenedTwice(u32),
    /// A message's fragments do not belong together.
    #[error("fragments that are not of one message")]
    Fragments,
    /// A run without messages, or with more than it has bytes.
    #[error("a run of {bytes} bytes says that it holds {messages} messages")]
    RunCount {
        /// Declared number of messages.
        messages: u32,
        /// Bytes of the run.
        bytes: usize,
    },
    /// A channel ended after another number of messages than it sent.
    #[error("a channel ended after {declared} messages where {received} came")]
    EndCount {
        /// Declared number of messages.
        declared: u64,
        /// Received number of messages.
        received: u64,
    },
}

crate::debug_with_causes!(ProtocolError);
