//! The messages of this crate's errors.

use crate::call::CallError;
use crate::cluster::{JoinError, MemberInstantiateError, PeerError};
use crate::process::{InstantiateError, ProcessError};
use crate::{HandOverError, PortError, ValueError};
use chunkcomm::error::{Account, ChannelLost, LinkCause};
use chunkcomm::{ConnectError, LinkError, NodeError, OpenError, RecvError, SendError, with_causes};
use chunkcomm_proto::codec::DecodeError;
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The system's message, which each error that contains it shows once.
const SAID: &str = "what the system said";

fn said() -> Arc<io::Error> {
    Arc::new(io::Error::other(SAID))
}

fn link() -> LinkError {
    LinkError::new("peer", LinkCause::Io(said()))
}

fn lost() -> SendError {
    let (channel, account) =
        ("lines".to_owned(), Account { accepted: 5, acknowledged: 3, settles: false });
    SendError::Lost(Arc::new(ChannelLost { channel, link: link(), account }))
}

fn received() -> RecvError {
    RecvError::Lost { channel: "lines".into(), link: link(), arrived: 3 }
}

fn unreachable() -> ConnectError {
    ConnectError::Unreachable {
        address: "127.0.0.1:1".parse().unwrap(),
        error: said(),
        tried: Duration::ZERO,
    }
}

/// Errors that have the system's message somewhere in them.
fn with_the_systems_word() -> Vec<Box<dyn Error>> {
    let service: Arc<str> = "root".into();
    let sent = Account::default();
    vec![
        Box::new(PortError::Unreachable { home: "n".into(), cause: Some(Arc::new(unreachable())) }),
        Box::new(PortError::Open(Arc::new(OpenError::Lost(link())))),
        Box::new(PortError::Receive(received())),
        Box::new(PortError::Send(lost())),
        Box::new(PortError::System(said())),
        Box::new(ValueError::Port(PortError::Send(lost()))),
        Box::new(HandOverError { value: (), error: lost() }),
        Box::new(CallError::Unreachable(OpenError::Lost(link()))),
        Box::new(CallError::Link { service, link: link(), sent }),
        Box::new(CallError::Request(lost())),
        Box::new(ProcessError::Lost { process: "p".into(), link: link() }),
        Box::new(JoinError::Node(NodeError::System(said()))),
        Box::new(JoinError::System { what: "do it", error: said() }),
        Box::new(InstantiateError::Input(lost())),
        Box::new(MemberInstantiateError::Member(PeerError::Connect {
            rank: 1,
            cause: unreachable().into(),
        })),
    ]
}

fn shows_once(error: &dyn Error, part: &str) {
    let (message, shown) = (error.to_string(), format!("{error:?}"));
    assert_eq!(shown, with_causes(error));
    assert_eq!(shown.matches(part).count(), 1, "{shown}");
    if let Some(cause) = error.source() {
        assert!(!message.contains(&cause.to_string()), "{message}");
        assert!(!message.contains(part), "{message}");
    }
}

#[test]
fn a_cause_is_shown_once_and_never_by_the_message_of_the_error_around_it() {
    for error in with_the_systems_word() {
        shows_once(&*error, SAID);
    }
    shows_once(&CallError::Answer(DecodeError::Bool), &DecodeError::Bool.to_string());
    let late = CallError::Timeout { service: "root".into(), after: Duration::from_secs(1) };
    shows_once(&late, "did not answer within 1s");
}
