//! Errors of a session's end.

use crate::proto::error::ProtocolError;
use crate::proto::loss::Loss;
use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Why the session with a peer ended, or lost its connection
/// ([`LinkEvent::CutOff`](crate::LinkEvent::CutOff)).
#[derive(Clone)]
pub struct LinkError {
    inner: Arc<LinkErrorInner>,
}

#[derive(Debug)]
struct LinkErrorInner {
    peer: String,
    cause: LinkCause,
}

/// Cause of a session's end.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum LinkCause {
    /// The connection broke.
    Io(Arc<io::Error>),
    /// The connection ended before the session was closed: the peer's process ended,
    /// or the network cut the connection.
    ConnectionLost,
    /// The peer was silent, or could not be reached again, for longer than a session
    /// survives.
    Dead {
        /// Milliseconds of silence after which the session was given up.
        silence_ms: u64,
        /// The last fault of its connection.
        trouble: Option<String>,
    },
    /// The peer no longer knows the session: the peer gave it up, or it began by another certificate of this
    /// node ([`Peer::certificates`](crate::Peer::certificates)).
    Forgotten,
    /// Another process answers at the peer's address, or one that shows another certificate, or has its name
    /// where [`NodeBuilder::sole_name`](crate::NodeBuilder::sole_name) is set: the peer is gone.
    Restarted,
    /// The program or the cluster reported that the peer is gone.
    Gone(Loss),
    /// Another peer began a session, and
    /// [`Limits::sessions_max`](crate::Limits::sessions_max) allowed no more. This
    /// session had been cut off for longest.
    GaveWay {
        /// The limit.
        sessions_max: usize,
    },
    /// The sessions that are cut off held more memory than
    /// [`Limits::cut_off_bytes_max`](crate::Limits::cut_off_bytes_max) allows. This one had
    /// been cut off for longest.
    GaveWayForMemory {
        /// The limit.
        cut_off_bytes_max: u64,
    },
    /// The peer broke the protocol.
    Protocol(ProtocolError),
    /// The messages of a run do not fill it: the peer's bytes are corrupt.
    CorruptRun {
        /// The peer's number of the channel.
        channel: u32,
    },
    /// The peer closed the session.
    ClosedByPeer,
    /// This node closed the session.
    Closed,
    /// Closing took longer than its deadline.
    CloseDeadline,
    /// The runtime that drove the link is gone.
    DriverGone,
}

impl LinkError {
    /// Makes the error of a link that ended for a reason that a layer knows.
    pub fn new(peer: impl Into<String>, cause: LinkCause) -> LinkError {
        LinkError { inner: Arc::new(LinkErrorInner { peer: peer.into(), cause }) }
    }

    /// Returns the peer's name.
    #[must_use]
    pub fn peer(&self) -> &str {
        &self.inner.peer
    }

    /// Returns the cause of the session's end.
    #[must_use]
    pub fn cause(&self) -> &LinkCause {
        &self.inner.cause
    }

    /// Whether one of the ends closed the session, so that it was not lost.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.inner.cause, LinkCause::Closed | LinkCause::ClosedByPeer)
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peer = &self.inner.peer;
        match &self.inner.cause {
            LinkCause::Io(_) => write!(f, "the connection with {peer} broke"),
            LinkCause::ConnectionLost => write!(f, "the connection with {peer} was lost"),
            LinkCause::Dead { silence_ms, trouble } => {
                write!(f, "nothing was heard of {peer} for {silence_ms} ms")?;
                trouble.as_ref().map_or(Ok(()), |trouble| write!(f, " ({trouble})"))
            }
            LinkCause::Forgotten => write!(f, "{peer} gave the session up"),
            LinkCause::Restarted => {
                write!(f, "another process answers where {peer} was")
            }
            LinkCause::Gone(why) => write!(f, "{peer} is gone: {why}"),
            LinkCause::GaveWay { sessions_max } => write!(
                f,
                "the session with {peer}, cut off, gave way to a new one: sessions_max allows \
                 {sessions_max}"
            ),
            LinkCause::GaveWayForMemory { cut_off_bytes_max } => write!(
                f,
                "the session with {peer}, cut off, gave way: such sessions hold more than the \
                 {cut_off_bytes_max} bytes that cut_off_bytes_max allows"
            ),
            LinkCause::Protocol(error) => write!(f, "{peer} broke the protocol: {error}"),
            LinkCause::CorruptRun { channel } => {
                write!(
                    f,
                    "{peer} broke the protocol: messages of channel {channel} lie about their lengths"
                )
            }
            LinkCause::ClosedByPeer => write!(f, "{peer} closed the session"),
            LinkCause::Closed => write!(f, "the session with {peer} was closed here"),
            LinkCause::CloseDeadline => {
                write!(f, "closing the session with {peer} took longer than its deadline")
            }
            LinkCause::DriverGone => {
                write!(f, "the runtime that drove the link with {peer} is gone")
            }
        }
    }
}

crate::debug_with_causes!(LinkError);

impl Error for LinkError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.inner.cause {
            LinkCause::Io(error) => Some(error.as_ref()),
            LinkCause::Gone(loss) => loss.source(),
            _ => None,
        }
    }
}
