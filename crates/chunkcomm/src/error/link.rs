//! Why a session ended.

use crate::proto::link::ProtocolError;
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

/// What ended a session.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum LinkCause {
    /// The connection broke.
    Io(Arc<io::Error>),
    /// The connection ended without the session having been closed: the peer's
    /// process ended, or something between cut it.
    ConnectionLost,
    /// Nothing was heard of the peer, or it could not be reached again, for longer
    /// than a session outlives.
    Dead {
        /// Milliseconds of silence after which it was given up.
        silence_ms: u64,
        /// What went wrong last with its connection.
        trouble: Option<String>,
    },
    /// The peer no longer knows the session: it gave it up.
    Forgotten,
    /// Another process answers where the peer was: that one is gone.
    Restarted,
    /// This node was told that the peer is gone.
    Gone(String),
    /// It was cut off for longest when another peer began a session, and
    /// [`NodeBuilder::sessions_max`](crate::NodeBuilder::sessions_max) allows no more.
    GaveWay {
        /// The limit.
        sessions_max: usize,
    },
    /// The peer did what the protocol does not allow.
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
    pub(crate) fn new(peer: impl Into<String>, cause: LinkCause) -> LinkError {
        LinkError { inner: Arc::new(LinkErrorInner { peer: peer.into(), cause }) }
    }

    /// The peer's name.
    #[must_use]
    pub fn peer(&self) -> &str {
        &self.inner.peer
    }

    /// What ended the session.
    #[must_use]
    pub fn cause(&self) -> &LinkCause {
        &self.inner.cause
    }

    /// The session was closed by one of its ends, not lost.
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
            _ => None,
        }
    }
}
