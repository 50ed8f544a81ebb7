//! Errors of a delta, by side: of a region's transfer, and of the ends in `chunkcomm-pipeline`.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use chunkcomm::error::Plain;
use chunkcomm::{AcceptError, Loss, LossKind, OpenError, RecvError, SendError};

use crate::proto::fault::DeltaFault;
use crate::proto::opening::Shape;

/// Time that a channel may wait for room to open, while none opens, before it breaks its group: 10 s; the node warns
/// after 5 s. It may wait for ever, since the channels that the peer has room for need not end.
pub(crate) const NO_ROOM_AFTER: Duration = Duration::from_secs(10);

/// The shapes that the two sides of a delta stated, where they differ.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mismatch {
    /// Name of the node at the other side.
    pub peer: String,
    /// Name of the delta's channel.
    pub channel: String,
    /// Shape at this side.
    pub ours: Shape,
    /// Shape at the other side.
    pub theirs: Shape,
}

/// Error of a delta that cannot be sent or forwarded.
///
/// The transfer of a [region](crate::Region) is a delta of one round.
#[derive(Clone)]
#[non_exhaustive]
pub enum DeltaSendError {
    /// The channel could not be opened.
    Open(OpenError),
    /// The channel failed; bytes that were sent may have landed.
    Channel(SendError),
    /// The receiver expects another length or element type and took nothing.
    Mismatch(Box<Mismatch>),
    /// `finish` was called before every element was committed; the transfer goes on.
    Unfinished {
        /// Name of the node that receives.
        peer: String,
        /// Name of the delta's channel.
        channel: String,
        /// Number of elements that were committed.
        committed: usize,
        /// Number of elements of the buffer.
        length: usize,
    },
    /// A part of the buffer could not be handed out; the transfer goes on.
    Part(PartError),
    /// The bytes to forward stopped coming; the next node gets a notice.
    Source {
        /// Name of the node that would have received.
        peer: String,
        /// Name of the forward's channel.
        channel: String,
        /// Error of the receiver at this node.
        source: Box<DeltaRecvError>,
    },
    /// The receiver was dropped before all had landed, or before the next round.
    Gone {
        /// Name of the node that receives.
        peer: String,
        /// Name of the delta's channel.
        channel: String,
    },
    /// The program has ended the stream: there is no further round.
    Over {
        /// Name of the node that receives.
        peer: String,
        /// Name of the delta's channel.
        channel: String,
    },
    /// The receiver's side could not use what was sent.
    Refused {
        /// Name of the node that receives.
        peer: String,
        /// Name of the delta's channel.
        channel: String,
        /// Reason that the receiver gave.
        loss: Loss,
    },
    /// The sender or its node is gone, or the runtime that carried the transfer shut down.
    Stopped {
        /// Name of the node that receives.
        peer: String,
        /// Name of the delta's channel.
        channel: String,
    },
    /// The channel of a collective's transfer waits for room to open, and none has opened for 10 s.
    NoRoom {
        /// Name of the node that would receive.
        peer: String,
        /// Name of the delta's channel.
        channel: String,
    },
    /// The collective whose operand this is has failed. A [`GroupError`](crate::GroupError) is the
    /// [cause](Loss::cause), where the group is broken.
    Collective(Loss),
}

impl DeltaSendError {
    fn kind(&self) -> LossKind {
        match self {
            Self::Open(error) => Loss::from(error.clone()).kind(),
            Self::Channel(error) => Loss::from(error.clone()).kind(),
            Self::Source { source, .. } => source.kind(),
            Self::Collective(loss) => loss.kind(),
            Self::Gone { .. } | Self::Over { .. } | Self::Stopped { .. } => LossKind::Left,
            Self::Refused { loss, .. } => loss.kind(),
            Self::Mismatch(_) | Self::Unfinished { .. } | Self::Part(_) | Self::NoRoom { .. } => {
                LossKind::Refused
            }
        }
    }
}

impl fmt::Display for DeltaSendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => error.fmt(f),
            Self::Channel(error) => error.fmt(f),
            Self::Collective(error) => error.fmt(f),
            Self::Part(error) => error.fmt(f),
            Self::Mismatch(mismatch) => {
                let Mismatch { peer, channel, ours, theirs } = &**mismatch;
                let theirs = theirs.to_string();
                let theirs = Plain(&theirs);
                write!(f, "delta {channel:?}: we send {ours}, {peer:?} expects {theirs}")
            }
            Self::Unfinished { peer, channel, committed, length } => write!(
                f,
                "delta {channel:?} to {peer:?} is not finished: {committed} of {length} elements \
                 are committed"
            ),
            Self::Source { peer, channel, .. } => {
                write!(f, "nothing more can be forwarded to {peer:?} on delta {channel:?}")
            }
            Self::Gone { peer, channel } => {
                write!(f, "the receiver of delta {channel:?} at {peer:?} is gone")
            }
            Self::Over { peer, channel } => {
                write!(f, "delta {channel:?} to {peer:?} has ended, no round follows")
            }
            Self::Refused { peer, channel, loss } => {
                write!(f, "delta {channel:?} was refused by {peer:?}: {loss}")
            }
            Self::NoRoom { peer, channel } => write!(
                f,
                "channel {channel:?} to {peer:?} has not opened for {NO_ROOM_AFTER:.0?}: the peer has no room \
                 for one more channel"
            ),
            Self::Stopped { peer, channel } => {
                write!(f, "delta {channel:?} to {peer:?} was stopped with its node or runtime")
            }
        }
    }
}

impl From<DeltaSendError> for Loss {
    fn from(error: DeltaSendError) -> Loss {
        Loss::of(error.kind(), error)
    }
}

chunkcomm::debug_with_causes!(DeltaSendError);

impl std::error::Error for DeltaSendError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Open(error) => error.source(),
            Self::Channel(error) => error.source(),
            Self::Collective(loss) | Self::Refused { loss, .. } => loss.source(),
            Self::Source { source, .. } => Some(source.as_ref()),
            Self::Mismatch(_)
            | Self::Unfinished { .. }
            | Self::Part(_)
            | Self::Gone { .. }
            | Self::Over { .. }
            | Self::NoRoom { .. }
            | Self::Stopped { .. } => None,
        }
    }
}

/// Error of a delta that cannot be received.
///
/// The transfer of a [region](crate::Region) is a delta of one round.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum DeltaRecvError {
    /// The channel could not be accepted.
    #[error(transparent)]
    Accept(AcceptError),
    /// The channel failed, or the sender's node died; elements that landed stay readable.
    #[error(transparent)]
    Channel(RecvError),
    /// The first message is not the opening of a delta.
    #[error("channel {channel:?} from {peer:?} does not open as a delta")]
    Opening {
        /// Name of the node that sends.
        peer: String,
        /// Name of the delta's channel.
        channel: String,
        /// Fault of the message.
        #[source]
        fault: DeltaFault,
    },
    /// The sender has another length or element type; nothing landed.
    #[error(
        "delta {:?}: we expect {}, {:?} sends {}",
        .0.channel, .0.ours, .0.peer, Plain(&.0.theirs.to_string())
    )]
    Mismatch(Box<Mismatch>),
    /// An increment does not fit; elements that landed before stay readable.
    #[error("delta {channel:?} from {peer:?} has an increment that does not fit")]
    Frame {
        /// Name of the node that sends.
        peer: String,
        /// Name of the delta's channel.
        channel: String,
        /// Fault of the increment.
        #[source]
        fault: DeltaFault,
    },
    /// The sender ended the transfer before its last byte; elements that landed stay readable.
    #[error(
        "delta {channel:?} from {peer:?} ended after {landed_bytes} of {length_bytes} bytes{}",
        because(.cause.as_ref())
    )]
    Ended {
        /// Name of the node that sends.
        peer: String,
        /// Name of the delta's channel.
        channel: String,
        /// Number of bytes that landed.
        landed_bytes: usize,
        /// Size of the whole buffer in bytes.
        length_bytes: usize,
        /// Reason, where the sender gave one.
        cause: Option<Loss>,
    },
    /// The bytes that came could not be combined; elements that were combined before stay readable.
    #[error("delta {channel:?} from {peer:?} cannot be combined: {loss:?}")]
    Combine {
        /// Name of the node that sends.
        peer: String,
        /// Name of the delta's channel.
        channel: String,
        /// Reason: the function's panic, or that the elements to combine with will not come.
        loss: Loss,
    },
    /// The collective whose result this is has failed; elements that are done stay readable.
    #[error(transparent)]
    Collective(Loss),
    /// The range to wait for is not within the buffer.
    #[error("elements {start}..{end} are not within the {length} elements of delta {channel:?}")]
    Range {
        /// Name of the delta's channel.
        channel: String,
        /// Index of the first element asked for.
        start: usize,
        /// Index behind the last element asked for.
        end: usize,
        /// Number of elements of the buffer.
        length: usize,
    },
    /// The range had not landed at the deadline; the transfer goes on.
    #[error("elements {start}..{end} of delta {channel:?} have not landed in time")]
    Late {
        /// Name of the delta's channel.
        channel: String,
        /// Index of the first element asked for.
        start: usize,
        /// Index behind the last element asked for.
        end: usize,
    },
}

impl DeltaRecvError {
    fn kind(&self) -> LossKind {
        match self {
            Self::Accept(error) => Loss::from(error.clone()).kind(),
            Self::Channel(error) => Loss::from(error.clone()).kind(),
            Self::Ended { cause, .. } => cause.as_ref().map_or(LossKind::Left, Loss::kind),
            Self::Combine { loss, .. } | Self::Collective(loss) => loss.kind(),
            Self::Late { .. } | Self::Opening { fault: DeltaFault::Late, .. } => LossKind::Silent,
            // The channel has ended before.
            Self::Opening { fault: DeltaFault::Length { bytes: 0 }, .. } => LossKind::Left,
            Self::Opening { .. } | Self::Mismatch(_) | Self::Frame { .. } | Self::Range { .. } => {
                LossKind::Refused
            }
        }
    }
}

impl From<DeltaRecvError> for Loss {
    fn from(error: DeltaRecvError) -> Loss {
        Loss::of(error.kind(), error)
    }
}

chunkcomm::debug_with_causes!(DeltaRecvError);

/// Error of a part of a buffer that cannot be handed out. Ranges are in elements.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PartError {
    /// The range is not within the buffer.
    #[error("elements {asked:?} are not within the {length} of the buffer")]
    Range {
        /// Range asked for.
        asked: Range<usize>,
        /// Number of elements of the buffer.
        length: usize,
    },
    /// Elements of the range are out, with a part that was not committed or dropped yet.
    #[error("of elements {asked:?}, {taken:?} are out with another part")]
    Out {
        /// Range asked for.
        asked: Range<usize>,
        /// First elements of it that are out.
        taken: Range<usize>,
    },
    /// Elements of the range were committed: they are on their way.
    #[error("of elements {asked:?}, {taken:?} were committed")]
    Committed {
        /// Range asked for.
        asked: Range<usize>,
        /// First elements of it that were committed.
        taken: Range<usize>,
    },
}

chunkcomm::debug_with_causes!(PartError);

/// Returns the loss by a panic of a program's own function.
pub(crate) fn panicked(what: &str, panic: &(dyn Any + Send)) -> Loss {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let words = text.map_or_else(String::new, |text| format!(": {text}"));
    Loss::new(LossKind::Panicked, format!("{what} panicked{words}"))
}

/// Returns the end of a text with a reason, where there is one.
fn because(reason: Option<&Loss>) -> String {
    reason.map_or_else(String::new, |reason| format!(": {reason:?}"))
}
