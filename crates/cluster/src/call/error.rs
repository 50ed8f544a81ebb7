//! Errors of calls and services.

use crate::proto::call::CALLS_PREFIX;
use chunkcomm::error::{Account, ChannelRefused, TypeRefused};
use chunkcomm::{LinkError, OpenError, SendError};
use chunkcomm_proto::codec::DecodeError;
use chunkcomm_proto::plain::Plain;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Reason why a call has no answer.
#[derive(Clone)]
#[non_exhaustive]
pub enum CallError {
    /// The handler returned an error; the service itself is well.
    Failed {
        /// The service.
        service: Arc<str>,
        /// The handler's error, at most 4096 bytes of it.
        text: String,
    },
    /// The handler panicked.
    Panicked {
        /// The service.
        service: Arc<str>,
        /// The panic's message, at most 4096 bytes of it.
        text: String,
    },
    /// No answer came in time. The handler is asked to stop.
    Timeout {
        /// The service.
        service: Arc<str>,
        /// The client's timeout, or the time that was left of the [`CallScope`](super::CallScope) around
        /// the call.
        after: Duration,
    },
    /// Too many requests wait at the service: this one was not handled.
    Overloaded {
        /// The service.
        service: Arc<str>,
    },
    /// The service is closing: the request was not handled.
    Closing {
        /// The service.
        service: Arc<str>,
    },
    /// The peer has no such service: the request was not handled.
    NoService {
        /// The service.
        service: Arc<str>,
        /// The peer's name.
        peer: String,
        /// Time for which the call waited for the peer to serve it.
        waited: Duration,
    },
    /// Nobody in the cluster provides the service: the request was not sent.
    NoProvider {
        /// The service.
        service: Arc<str>,
        /// The reason, if known.
        why: Option<String>,
    },
    /// The peer cannot be reached: the request was not sent.
    Unreachable(OpenError),
    /// The two ends have other types of requests or answers. The refusal names them, as
    /// `duplex<request, answer>`. No request was handled.
    Types(Arc<ChannelRefused>),
    /// The service has no such method, or has it with other types: the request was not handled. Other methods
    /// of the service go on.
    Method {
        /// The service.
        service: Arc<str>,
        /// The peer's name.
        peer: String,
        /// Name and types of the method here.
        ours: String,
        /// Name and types of the peer's method; `None` if it has none of that name.
        theirs: Option<String>,
    },
    /// The session ended before an answer came. Whether the request was handled is unknown.
    Link {
        /// The service.
        service: Arc<str>,
        /// Why the session ended.
        link: LinkError,
        /// Account of the messages that this client sent to the provider: requests (answered ones
        /// too) and cancellations. An acknowledged message was in the provider's inbox.
        sent: Account,
    },
    /// The service ended before it answered. Whether the request was handled is unknown.
    Ended {
        /// The service.
        service: Arc<str>,
        /// The peer's name.
        peer: String,
    },
    /// The request was not accepted for sending: it is too large, or its `Serialize` refused.
    Request {
        /// The service.
        service: Arc<str>,
        /// The reason.
        error: SendError,
    },
    /// More requests than 16,777,216 are in flight to one provider.
    TooMany {
        /// The service.
        service: Arc<str>,
    },
    /// A layer of the service refused the call: the request was not handled.
    Refused {
        /// The service.
        service: Arc<str>,
        /// The layer's reason, at most 4096 bytes of it.
        why: String,
    },
    /// The service could not decode the request: it was not handled.
    Unreadable {
        /// The service.
        service: Arc<str>,
        /// The reason.
        text: String,
    },
    /// The request was handled, and the answer could not be sent: it is too large, or its
    /// `Serialize` refused.
    Unsendable {
        /// The service.
        service: Arc<str>,
        /// The reason.
        text: String,
    },
    /// The answer came and could not be decoded.
    Answer {
        /// The service.
        service: Arc<str>,
        /// The fault of the answer's bytes.
        source: DecodeError,
    },
    /// The peer sent a word that calls do not allow.
    Protocol {
        /// The service.
        service: Arc<str>,
        /// The peer's name.
        peer: String,
        /// The violation.
        what: &'static str,
    },
}

impl CallError {
    /// Whether it is certain that no handler has seen the request: the call may be made again, here
    /// or elsewhere.
    #[must_use]
    pub fn was_not_handled(&self) -> bool {
        matches!(
            self,
            CallError::Overloaded { .. }
                | CallError::Closing { .. }
                | CallError::NoService { .. }
                | CallError::NoProvider { .. }
                | CallError::Unreachable(_)
                | CallError::Types(_)
                | CallError::Method { .. }
                | CallError::Request { .. }
                | CallError::TooMany { .. }
                | CallError::Refused { .. }
                | CallError::Unreadable { .. }
        )
    }

    /// Whether the same call would fail again, as its values, its types or the layers of the service are.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        matches!(
            self,
            CallError::Types(_)
                | CallError::Method { .. }
                | CallError::Request { .. }
                | CallError::Refused { .. }
                | CallError::Unreadable { .. }
                | CallError::Unsendable { .. }
                | CallError::Answer { .. }
                | CallError::Protocol { .. }
                | CallError::Unreachable(OpenError::Name { .. } | OpenError::Type(_))
        )
    }

    /// Whether the service itself gave this answer: then the link is well.
    #[must_use]
    pub fn is_from_service(&self) -> bool {
        matches!(
            self,
            CallError::Failed { .. }
                | CallError::Panicked { .. }
                | CallError::Overloaded { .. }
                | CallError::Closing { .. }
                | CallError::Method { .. }
                | CallError::Refused { .. }
                | CallError::Unreadable { .. }
                | CallError::Unsendable { .. }
        )
    }

    /// Whether the service answered without having decoded the request.
    pub(super) fn is_undecoded(&self) -> bool {
        matches!(self, CallError::Method { .. } | CallError::Unreadable { .. })
    }

    /// Names the method of the call in the place of its service, where the error is of the one call.
    pub(super) fn of_method(mut self, name: &Arc<str>, signature: &str) -> CallError {
        match &mut self {
            CallError::Method { ours, .. } => signature.clone_into(ours),
            CallError::Panicked { service, .. }
            | CallError::Timeout { service, .. }
            | CallError::Overloaded { service }
            | CallError::Link { service, .. }
            | CallError::Request { service, .. }
            | CallError::Refused { service, .. }
            | CallError::Unreadable { service, .. }
            | CallError::Unsendable { service, .. }
            | CallError::Answer { service, .. } => service.clone_from(name),
            _ => {}
        }
        self
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Failed { service, text } => {
                write!(f, "service {service:?} failed: {}", Plain(text))
            }
            CallError::Panicked { service, text } => {
                write!(f, "the handler of service {service:?} panicked: {}", Plain(text))
            }
            CallError::Timeout { service, after } => {
                write!(f, "service {service:?} did not answer within {after:?}")
            }
            CallError::Overloaded { service } => {
                write!(f, "too many requests wait at service {service:?}")
            }
            CallError::Closing { service } => write!(f, "service {service:?} is closing"),
            CallError::NoService { service, peer, waited } if waited.is_zero() => {
                write!(f, "{peer} has no service {service:?}")
            }
            CallError::NoService { service, peer, waited } => {
                write!(f, "{peer} did not serve {service:?} within {waited:?}")
            }
            CallError::NoProvider { service, why } => {
                write!(f, "nobody provides service {service:?}")?;
                why.as_ref().map_or(Ok(()), |why| write!(f, ": {why}"))
            }
            CallError::Unreachable(error) => error.fmt(f),
            CallError::Types(refused) => {
                let ChannelRefused { channel, peer, reason } = &**refused;
                let service = channel.strip_prefix(CALLS_PREFIX).unwrap_or(channel);
                write!(f, "calls of service {service:?} were refused by {peer}: {reason}")
            }
            CallError::Method { service, peer, ours, theirs: None } => {
                write!(f, "service {service:?} of {peer} has no method {ours}")
            }
            CallError::Method { service, peer, ours, theirs: Some(theirs) } => {
                let theirs = Plain(theirs);
                write!(f, "method {ours} is {theirs} in service {service:?} of {peer}")
            }
            CallError::Link { service, link, sent } => write!(
                f,
                "service {service:?}: {link}; whether the request was handled is unknown ({sent})"
            ),
            CallError::Ended { service, peer } => {
                write!(f, "service {service:?} of {peer} ended before it answered")
            }
            CallError::Request { service, error } => write!(f, "service {service:?}: {error}"),
            CallError::TooMany { service } => {
                write!(f, "too many calls of service {service:?} are in flight")
            }
            CallError::Refused { service, why } => {
                write!(f, "service {service:?} refused the call: {}", Plain(why))
            }
            CallError::Unreadable { service, text } => {
                write!(f, "service {service:?} could not decode the request: {}", Plain(text))
            }
            CallError::Unsendable { service, text } => {
                write!(f, "service {service:?} could not send its answer: {}", Plain(text))
            }
            CallError::Answer { service, .. } => {
                write!(f, "the answer of service {service:?} could not be decoded")
            }
            CallError::Protocol { service, peer, what } => {
                write!(f, "{peer} broke the protocol of service {service:?}: {what}")
            }
        }
    }
}

chunkcomm_proto::debug_with_causes!(CallError);

impl Error for CallError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            CallError::Unreachable(error) => error.source(),
            CallError::Link { link, .. } => link.source(),
            CallError::Request { error, .. } => error.source(),
            CallError::Answer { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Reason why a method whose result is a [`Result`] has no value.
#[derive(Clone)]
pub enum Called<E> {
    /// The service returned this error.
    Service(E),
    /// The call failed.
    Call(CallError),
}

impl<E> Called<E> {
    /// Returns the error of the call; `None` if the service returned one.
    pub fn call_error(&self) -> Option<&CallError> {
        match self {
            Called::Service(_) => None,
            Called::Call(error) => Some(error),
        }
    }
}

impl<E> From<CallError> for Called<E> {
    fn from(error: CallError) -> Called<E> {
        Called::Call(error)
    }
}

impl<E: fmt::Display> fmt::Display for Called<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Called::Service(error) => error.fmt(f),
            Called::Call(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Debug> fmt::Debug for Called<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Called::Service(error) => error.fmt(f),
            Called::Call(error) => error.fmt(f),
        }
    }
}

/// Also where the service's error is none itself, as a [`String`].
impl<E: fmt::Debug + fmt::Display> Error for Called<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.call_error().and_then(Error::source)
    }
}

/// Reason why a service cannot begin.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The name is empty or longer than 240 bytes.
    #[error("the name of a service has {bytes} bytes, allowed are 1 to 240")]
    Name {
        /// Length of the name, in bytes.
        bytes: usize,
    },
    /// This node has a service of that name.
    #[error("this node has a service {name:?} already")]
    Taken {
        /// The name.
        name: String,
    },
    /// Values of a type cannot be sent.
    #[error("{0}")]
    Type(TypeRefused),
}

chunkcomm_proto::debug_with_causes!(ServeError);

/// A service did not close in time: the rest was cut off.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("service {service:?} was cut off: {handled} requests were handled, {waiting} waited")]
pub struct ServiceCloseError {
    /// The service.
    pub service: Arc<str>,
    /// Requests whose handlers were dropped.
    pub handled: usize,
    /// Requests that still waited.
    pub waiting: usize,
}

chunkcomm_proto::debug_with_causes!(ServiceCloseError);
