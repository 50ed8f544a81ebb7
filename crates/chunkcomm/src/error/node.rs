//! Errors of building a node, connecting, opening and accepting.

use super::{LinkError, LogError, Named, RefusalReason};
use crate::Address;
use crate::credential::CredentialError;
use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Why a node could not be built.
#[derive(Clone)]
#[non_exhaustive]
pub enum NodeError {
    /// The node cannot listen at an address.
    Listen {
        /// The address.
        address: Address,
        /// The system's error.
        error: Arc<io::Error>,
    },
    /// An address is reachable from other machines, and the node cannot tell peers from
    /// strangers.
    BeyondLoopback {
        /// The address.
        address: Address,
    },
    /// The credential cannot be used.
    Credential(CredentialError),
    /// The node has a credential, and this program was built without the feature
    /// `tls`.
    NeedsTls,
    /// A setting is impossible.
    Setting {
        /// The setting's name.
        name: &'static str,
        /// The value that was given.
        value: String,
        /// The allowed values.
        allowed: String,
    },
    /// There is no tokio runtime here, and the node has no `io_thread`.
    NoRuntime,
    /// The thread or runtime of `io_thread` could not be started, or the system
    /// gave no random numbers.
    System(Arc<io::Error>),
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeError::Listen { address, .. } => write!(f, "cannot listen at {address}"),
            NodeError::BeyondLoopback { address } => write!(
                f,
                "{address} can be reached from other machines, and anybody could join: give the \
                 node a credential, listen on loopback, or set insecure_bind_beyond_loopback"
            ),
            NodeError::Credential(error) => error.fmt(f),
            NodeError::NeedsTls => {
                f.write_str("a credential needs the feature tls of chunkcomm, which is off")
            }
            NodeError::Setting { name, value, allowed } => {
                write!(f, "{name} is {value}, allowed is {allowed}")
            }
            NodeError::NoRuntime => {
                f.write_str("a node needs a tokio runtime with I/O and time, or io_thread()")
            }
            NodeError::System(_) => f.write_str("the system refused what a node needs"),
        }
    }
}

crate::debug_with_causes!(NodeError);

impl Error for NodeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            NodeError::Listen { error, .. } | NodeError::System(error) => Some(error.as_ref()),
            NodeError::Credential(error) => error.source(),
            _ => None,
        }
    }
}

/// Why there is no link with a peer.
#[derive(Clone)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address does not answer.
    Unreachable {
        /// The address.
        address: Address,
        /// The error of the last attempt.
        error: Arc<io::Error>,
        /// Time spent on attempts; zero after a single one.
        tried: Duration,
    },
    /// The program that answers is no node that this one can talk to.
    Hello {
        /// The address.
        address: Address,
        /// The mismatch in the last attempt.
        cause: HelloCause,
        /// Time spent on attempts; zero after a single one.
        tried: Duration,
    },
    /// The node is closed.
    Closed,
    /// The runtime that drove the node is gone.
    RuntimeGone,
}

impl ConnectError {
    /// Whether another attempt may succeed: the peer may be about to start, or the connection
    /// was cut. False where two nodes do not fit: another credential, cluster or version, or a
    /// peer that is no node.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            ConnectError::Unreachable { error, .. } => system_may_pass(error),
            ConnectError::Hello { cause, .. } => cause.may_pass(),
            ConnectError::Closed | ConnectError::RuntimeGone => false,
        }
    }

    /// Sets the time spent on several attempts.
    pub(crate) fn after(mut self, time: Duration) -> ConnectError {
        if let ConnectError::Unreachable { tried, .. } | ConnectError::Hello { tried, .. } =
            &mut self
        {
            *tried = time;
        }
        self
    }
}

/// Whether the system's error may pass: an unknown name, a missing socket and a port where
/// nobody listens may all be there in a moment.
fn system_may_pass(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    !matches!(error.kind(), InvalidInput | PermissionDenied | Unsupported)
}

/// Why a connection became no session: the fault in the hello, the proof or TLS.
#[derive(Clone)]
#[non_exhaustive]
pub enum HelloCause {
    /// The peer's first bytes are no hello, or name no session.
    Wrong(super::HelloError),
    /// The hellos of the two nodes do not agree.
    Disagreement(super::Disagreement),
    /// The connection broke or ended before the hello was complete.
    Io(Arc<io::Error>),
    /// No hello came in time.
    Timeout,
    /// The peer did not prove that it has this node's credential: the peer has
    /// another one, or the hellos were changed on the way.
    WrongProof,
    /// The connection broke or ended before the peer had proved its credential.
    NoProof(Arc<io::Error>),
    /// The peer did not prove its credential in time.
    ProofTimeout,
    /// TLS failed, or the connection broke or ended during its handshake.
    Tls(Arc<io::Error>),
    /// The TLS handshake was not done in time.
    TlsTimeout,
    /// Too many connections came at once, and this one had come least far.
    GaveWay,
    /// The system gave no random numbers.
    System(Arc<io::Error>),
    /// The peer takes no session: it is closing.
    Refused,
    /// The node that was dialled takes no further session: all that
    /// [`Limits::sessions_max`](crate::Limits::sessions_max) allows are connected.
    Full {
        /// The limit of the node that was dialled.
        sessions_max: u64,
    },
}

impl HelloCause {
    fn may_pass(&self) -> bool {
        match self {
            HelloCause::Io(_)
            | HelloCause::NoProof(_)
            | HelloCause::Timeout
            | HelloCause::ProofTimeout
            | HelloCause::TlsTimeout
            | HelloCause::GaveWay
            | HelloCause::Refused
            | HelloCause::Full { .. } => true,
            // The connection ended, or its bytes do not fit.
            HelloCause::Tls(error) => error.kind() != io::ErrorKind::InvalidData,
            HelloCause::Wrong(_)
            | HelloCause::Disagreement(_)
            | HelloCause::WrongProof
            | HelloCause::System(_) => false,
        }
    }
}

impl fmt::Display for HelloCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HelloCause::Wrong(error) => error.fmt(f),
            HelloCause::Disagreement(error) => error.fmt(f),
            HelloCause::Io(_) => f.write_str("the connection ended before the hello"),
            HelloCause::Refused => f.write_str("the peer takes no new session: it is closing"),
            HelloCause::Full { sessions_max } => write!(
                f,
                "no new session is taken: all {sessions_max} that sessions_max allows are connected"
            ),
            HelloCause::Timeout => f.write_str("no hello came in time"),
            HelloCause::WrongProof => f.write_str(
                "the peer did not prove that it has this node's credential: it has another, or \
                 what the two said was changed on the way",
            ),
            HelloCause::NoProof(_) => f.write_str(
                "the connection ended before the peer proved that it has the credential",
            ),
            HelloCause::ProofTimeout => {
                f.write_str("the peer did not prove in time that it has the credential")
            }
            HelloCause::Tls(_) => f.write_str("the tls handshake failed"),
            HelloCause::TlsTimeout => f.write_str("the tls handshake was not done in time"),
            HelloCause::GaveWay => {
                f.write_str("too many connected at once, and this one had come least far")
            }
            HelloCause::System(_) => f.write_str("the system gave no random numbers"),
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Unreachable { address, tried, .. } => {
                write!(f, "{address} cannot be reached")?;
                fmt_tried(f, *tried)
            }
            ConnectError::Hello { address, cause, tried } => {
                write!(f, "no session with {address}: {cause}")?;
                fmt_tried(f, *tried)
            }
            ConnectError::Closed => f.write_str("the node is closed"),
            ConnectError::RuntimeGone => f.write_str("the runtime that drove the node is gone"),
        }
    }
}

fn fmt_tried(f: &mut fmt::Formatter<'_>, tried: Duration) -> fmt::Result {
    if tried.is_zero() { Ok(()) } else { write!(f, " (tried for {:.1} s)", tried.as_secs_f64()) }
}

crate::debug_with_causes!(HelloCause);

impl Error for HelloCause {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            HelloCause::Io(error)
            | HelloCause::NoProof(error)
            | HelloCause::Tls(error)
            | HelloCause::System(error) => Some(error.as_ref()),
            _ => None,
        }
    }
}

crate::debug_with_causes!(ConnectError);

impl Error for ConnectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            ConnectError::Unreachable { error, .. } => Some(error.as_ref()),
            ConnectError::Hello { cause, .. } => cause.source(),
            _ => None,
        }
    }
}

/// Why a channel could not be opened.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The session ended, and this node cannot dial the peer.
    #[error(transparent)]
    Lost(LinkError),
    /// The session had ended, and dialling the peer again failed.
    #[error(transparent)]
    Connect(ConnectError),
    /// The name is empty or longer than 255 bytes.
    #[error("the name of a channel has {bytes} bytes, allowed are 1 to 255")]
    Name {
        /// Length of the name in bytes.
        bytes: usize,
    },
    /// Values of this type cannot be sent.
    #[error("{0}")]
    Type(TypeRefused),
    /// The system gave no random bytes for the number of a stream.
    #[error("the system has no random numbers")]
    NoRandomness,
    /// The log of the stream cannot be used.
    #[error(transparent)]
    Log(LogError),
}

/// A type whose values cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeRefused {
    /// Name of the type.
    pub type_name: String,
    /// The reason of the refusal.
    pub reason: String,
}

impl fmt::Display for TypeRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "values of {} cannot be sent: {}", self.type_name, self.reason)
    }
}

crate::debug_with_causes!(OpenError);

/// Why `accept` gave no channel. `accept` can be called again after each of these.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// A peer opened the channel with another type; it was refused.
    #[error("{} of {peer} was refused: {reason}", Named(.channel))]
    Mismatch {
        /// The channel's name.
        channel: String,
        /// The peer's name.
        peer: String,
        /// The mismatch.
        reason: RefusalReason,
    },
    /// Values of this type cannot be received.
    #[error("{0}")]
    Type(TypeRefused),
    /// No peer opened the channel within the deadline.
    #[error("no peer opened channel {channel:?} within {waited:?}{}", Held(.held))]
    Late {
        /// The channel's name.
        channel: String,
        /// The deadline.
        waited: Duration,
        /// The channels that peers have opened and nobody has accepted, as `"name" by peer`.
        held: Vec<String>,
    },
    /// The peer that was to open the channel
    /// ([`ChannelOptions::from_peer`](crate::ChannelOptions::from_peer)) has no session any more.
    #[error("nobody opens {} any more", Named(.channel))]
    Lost {
        /// The channel's name.
        channel: String,
        /// The end of its last session; it names the peer.
        #[source]
        error: LinkError,
    },
    /// The node is closed.
    #[error("the node is closed")]
    Closed,
    /// The runtime that drove the node is gone: no channel will come any more.
    #[error("the runtime that drove the node is gone")]
    RuntimeGone,
}

/// Most channels that nobody has accepted that an error's text names: 16.
const HELD_SHOWN_MAX: usize = 16;

crate::debug_with_causes!(AcceptError);

/// The channels that nobody has accepted, behind the text of [`AcceptError::Late`].
struct Held<'a>(&'a [String]);

impl fmt::Display for Held<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(HELD_SHOWN_MAX)];
        if !shown.is_empty() {
            write!(f, "; opened and not accepted: {}", shown.join(", "))?;
        }
        match self.0.len() - shown.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}
