//! What can go wrong in building a node, connecting, opening and accepting.

use super::{LinkError, RefusalReason};
use crate::Address;
use crate::credential::CredentialError;
use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Why a node could not be built.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum NodeError {
    /// An address cannot be listened at.
    Listen {
        /// The address.
        address: Address,
        /// Why.
        error: Arc<io::Error>,
    },
    /// An address is reachable from other machines, and the node has nothing to
    /// tell peers from strangers by.
    BeyondLoopback {
        /// The address.
        address: Address,
    },
    /// The credential cannot be used.
    Credential(CredentialError),
    /// The node was given a credential, and this program was built without the
    /// feature `tls`.
    NeedsTls,
    /// A setting is impossible.
    Setting {
        /// The setting's name.
        name: &'static str,
        /// What it was given.
        value: String,
        /// What is allowed.
        allowed: String,
    },
    /// There is no tokio runtime here, and no `io_thread` was asked for.
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
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address does not answer.
    Unreachable {
        /// The address.
        address: Address,
        /// Why.
        error: Arc<io::Error>,
    },
    /// What answers is not a node that this one can talk to.
    Hello {
        /// The address.
        address: Address,
        /// What does not fit.
        cause: HelloCause,
    },
    /// The node is closed.
    Closed,
}

/// Why a peer is not talked to: what does not fit in its hello, its proof or its
/// TLS.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum HelloCause {
    /// It is not a hello.
    Wrong(crate::proto::hello::HelloError),
    /// The two do not agree.
    Disagreement(crate::proto::hello::Disagreement),
    /// The connection broke or ended before the hello was complete.
    Io(Arc<io::Error>),
    /// None came in time.
    Timeout,
    /// The peer did not prove that it has the credential of this node: it has
    /// another, or what the two said was changed on the way.
    WrongProof,
    /// The connection broke or ended before the peer had proved that.
    NoProof(Arc<io::Error>),
    /// The peer did not prove that in time.
    ProofTimeout,
    /// TLS failed, or the connection broke or ended during its handshake.
    Tls(Arc<io::Error>),
    /// The TLS handshake was not done in time.
    TlsTimeout,
    /// Too many connected at once, and this one had come least far.
    GaveWay,
    /// The system gave no random numbers.
    System(Arc<io::Error>),
    /// What follows the hello is not about a session.
    Session(crate::proto::resume::ResumeError),
    /// The peer takes no session: it is closing.
    Refused,
}

impl fmt::Display for HelloCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HelloCause::Wrong(error) => error.fmt(f),
            HelloCause::Disagreement(error) => error.fmt(f),
            HelloCause::Io(error) => write!(f, "the connection ended before the hello: {error}"),
            HelloCause::Session(error) => error.fmt(f),
            HelloCause::Refused => f.write_str("the peer takes no new session: it is closing"),
            HelloCause::Timeout => f.write_str("no hello came in time"),
            HelloCause::WrongProof => f.write_str(
                "the peer did not prove that it has this node's credential: it has another, or \
                 what the two said was changed on the way",
            ),
            HelloCause::NoProof(error) => write!(
                f,
                "the connection ended before the peer proved that it has the credential: {error}"
            ),
            HelloCause::ProofTimeout => {
                f.write_str("the peer did not prove in time that it has the credential")
            }
            HelloCause::Tls(error) => write!(f, "the tls handshake failed: {error}"),
            HelloCause::TlsTimeout => f.write_str("the tls handshake was not done in time"),
            HelloCause::GaveWay => {
                f.write_str("too many connected at once, and this one had come least far")
            }
            HelloCause::System(error) => write!(f, "the system gave no random numbers: {error}"),
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Unreachable { address, error } => {
                write!(f, "{address} cannot be reached: {error}")
            }
            ConnectError::Hello { address, cause } => {
                write!(f, "no session with {address}: {cause}")
            }
            ConnectError::Closed => f.write_str("the node is closed"),
        }
    }
}

impl HelloCause {
    fn io_error(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            HelloCause::Io(error)
            | HelloCause::NoProof(error)
            | HelloCause::Tls(error)
            | HelloCause::System(error) => Some(error.as_ref()),
            _ => None,
        }
    }
}

impl Error for ConnectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            ConnectError::Hello { cause, .. } => cause.io_error(),
            _ => None,
        }
    }
}

/// Why a channel could not be opened.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum OpenError {
    /// The session ended, and the peer could not be dialled again.
    Lost(LinkError),
    /// The session had ended, and a new one could not be had.
    Connect(ConnectError),
    /// The name is empty or longer than 255 bytes.
    Name {
        /// Its bytes.
        bytes: usize,
    },
    /// Values of this type cannot be sent.
    Type(TypeRefused),
}

/// A type whose values cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeRefused {
    /// The type.
    pub type_name: String,
    /// Why not.
    pub reason: String,
}

impl fmt::Display for TypeRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "values of {} cannot be sent: {}", self.type_name, self.reason)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Lost(error) => error.fmt(f),
            OpenError::Connect(error) => error.fmt(f),
            OpenError::Name { bytes } => {
                write!(f, "the name of a channel has {bytes} bytes, allowed are 1 to 255")
            }
            OpenError::Type(refused) => refused.fmt(f),
        }
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            OpenError::Lost(error) => error.source(),
            OpenError::Connect(error) => error.source(),
            _ => None,
        }
    }
}

/// Why `accept` gave no channel. After each, `accept` can be called again.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum AcceptError {
    /// A peer opened the channel with another type; it was refused.
    Mismatch {
        /// The channel's name.
        channel: String,
        /// The peer's name.
        peer: String,
        /// What does not fit.
        reason: RefusalReason,
    },
    /// Values of this type cannot be received.
    Type(TypeRefused),
    /// The node is closed.
    Closed,
}

impl fmt::Display for AcceptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AcceptError::Mismatch { channel, peer, reason } => {
                write!(f, "channel {channel:?} of {peer} was refused: {reason}")
            }
            AcceptError::Type(refused) => refused.fmt(f),
            AcceptError::Closed => f.write_str("the node is closed"),
        }
    }
}

impl Error for AcceptError {}
