//! Faults of a peer.

/// Fault of a peer; the session ends with it.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The body is longer than was agreed.
    #[error("a packet declares {bytes} bytes where at most {bytes_max} were agreed")]
    PacketTooLarge {
        /// Declared size.
        bytes: u32,
        /// Agreed size.
        bytes_max: u32,
    },
    /// A record does not end within its packet.
    #[error("a record passes the end of its packet")]
    RecordPassesPacket,
    /// No record begins with this byte.
    #[error("a record of unknown kind {0}")]
    UnknownRecord(u8),
    /// A name or text that is not UTF-8 or longer than allowed.
    #[error("a name or text is too long or not UTF-8")]
    BadText,
    /// A refusal with an unknown reason.
    #[error("a refusal of unknown reason")]
    BadReason,
    /// A malformed or too long chain of waits.
    #[error("a chain of waits is too long or malformed")]
    BadChain,
    /// A stream with numbers above [`STREAM_NUMBER_MAX`](crate::packet::STREAM_NUMBER_MAX).
    #[error("a stream's numbers are out of range")]
    BadStream,
    /// A fragment without bytes, or longer than its message.
    #[error("a fragment is empty or longer than its message")]
    BadFragment,
    /// Another packet came than the one in which the last connection broke off.
    #[error("packet {sequence} is not the one that broke off")]
    OtherPacket {
        /// Number of the packet that came.
        sequence: u64,
    },
    /// A packet that comes again left bytes in the peer's memory.
    #[error("packet {sequence} comes again without all its bytes")]
    ElsewhereAgain {
        /// Number of the packet.
        sequence: u64,
    },
    /// A packet left bytes in the peer's memory, which this end did not offer to read.
    #[error("a packet has bytes in memory that this end does not read")]
    Elsewhere,
    /// More bytes on a channel than were granted to it.
    #[error("a channel sent {received} bytes where {granted} were granted")]
    OverWindow {
        /// Bytes since the channel began, the newest included.
        received: u64,
        /// Bytes granted to the channel in all.
        granted: u64,
    },
    /// More channels than there are initial windows.
    #[error("more channels opened than there is credit for")]
    TooManyOpens,
    /// A message above the agreed size.
    #[error("a message declares {bytes} bytes where at most {bytes_max} were agreed")]
    MessageTooLarge {
        /// Declared size.
        bytes: u64,
        /// Agreed size.
        bytes_max: u64,
    },
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
