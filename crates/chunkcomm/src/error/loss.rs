//! Losses whose cause is an error of a link or a channel.

use super::{
    AcceptError, CloseError, ConnectError, HelloCause, LinkCause, LinkError, OpenError, RecvError,
    SendError,
};
use crate::proto::loss::{Loss, LossKind};

impl LinkCause {
    fn kind(&self) -> LossKind {
        match self {
            LinkCause::Io(_) | LinkCause::ConnectionLost => LossKind::Died,
            // The peer has given the session up after its time.
            LinkCause::Forgotten
            | LinkCause::Dead { .. }
            | LinkCause::GaveWay { .. }
            | LinkCause::GaveWayForMemory { .. } => LossKind::Silent,
            LinkCause::Restarted => LossKind::Replaced,
            LinkCause::Gone(loss) => loss.kind(),
            LinkCause::Protocol(_) | LinkCause::CorruptRun { .. } => LossKind::Refused,
            LinkCause::ClosedByPeer
            | LinkCause::Closed
            | LinkCause::CloseDeadline
            | LinkCause::DriverGone => LossKind::Left,
        }
    }
}

impl HelloCause {
    fn kind(&self) -> LossKind {
        match self {
            HelloCause::Io(_) | HelloCause::NoProof(_) | HelloCause::Tls(_) => LossKind::Died,
            HelloCause::Timeout | HelloCause::ProofTimeout | HelloCause::TlsTimeout => {
                LossKind::Silent
            }
            // It is closing.
            HelloCause::Refused => LossKind::Left,
            // Something else answers there.
            HelloCause::Wrong(_) => LossKind::Replaced,
            HelloCause::Disagreement(_)
            | HelloCause::WrongProof
            | HelloCause::GaveWay
            | HelloCause::System(_)
            | HelloCause::Full { .. } => LossKind::Refused,
        }
    }
}

impl From<LinkError> for Loss {
    fn from(error: LinkError) -> Loss {
        Loss::of(error.cause().kind(), error)
    }
}

impl From<SendError> for Loss {
    fn from(error: SendError) -> Loss {
        let kind = match &error {
            SendError::Lost(lost) => lost.link.cause().kind(),
            SendError::Terminated(_) | SendError::Closed => LossKind::Left,
            _ => LossKind::Refused,
        };
        Loss::of(kind, error)
    }
}

impl From<RecvError> for Loss {
    fn from(error: RecvError) -> Loss {
        let kind = match &error {
            RecvError::Lost { link, .. } => link.cause().kind(),
            _ => LossKind::Refused,
        };
        Loss::of(kind, error)
    }
}

impl From<ConnectError> for Loss {
    fn from(error: ConnectError) -> Loss {
        let kind = match &error {
            ConnectError::Unreachable { .. } => LossKind::Died,
            ConnectError::Hello { cause, .. } => cause.kind(),
            ConnectError::Closed | ConnectError::RuntimeGone => LossKind::Left,
        };
        Loss::of(kind, error)
    }
}

impl From<OpenError> for Loss {
    fn from(error: OpenError) -> Loss {
        match error {
            OpenError::Lost(link) => link.into(),
            OpenError::Connect(error) => error.into(),
            error => Loss::of(LossKind::Refused, error),
        }
    }
}

impl From<AcceptError> for Loss {
    fn from(error: AcceptError) -> Loss {
        let kind = match &error {
            AcceptError::Late { .. } => LossKind::Silent,
            AcceptError::Lost { error, .. } => error.cause().kind(),
            AcceptError::Closed | AcceptError::RuntimeGone => LossKind::Left,
            _ => LossKind::Refused,
        };
        Loss::of(kind, error)
    }
}

impl From<CloseError> for Loss {
    fn from(error: CloseError) -> Loss {
        Loss::of(LossKind::Silent, error)
    }
}
