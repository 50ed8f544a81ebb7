use super::*;
use crate::proto::causes::with_causes;
use crate::proto::codec::{DecodeError, EncodeError};
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

fn hello(cause: HelloCause) -> ConnectError {
    ConnectError::Hello { address: "127.0.0.1:1".parse().unwrap(), cause, tried: Duration::ZERO }
}

/// Errors that have the system's message somewhere in them.
fn with_the_systems_word() -> Vec<Box<dyn Error>> {
    let address: crate::Address = "127.0.0.1:1".parse().unwrap();
    vec![
        Box::new(link()),
        Box::new(NodeError::Listen { address, error: said() }),
        Box::new(NodeError::System(said())),
        Box::new(unreachable()),
        Box::new(hello(HelloCause::Io(said()))),
        Box::new(hello(HelloCause::NoProof(said()))),
        Box::new(hello(HelloCause::Tls(said()))),
        Box::new(hello(HelloCause::System(said()))),
        Box::new(OpenError::Lost(link())),
        Box::new(OpenError::Connect(unreachable())),
        Box::new(received()),
        Box::new(TryRecvError::Failed(received())),
        Box::new(lost()),
        Box::new(TrySendError::Failed(lost())),
        Box::new(SendAllError { accepted: 3, error: lost() }),
        Box::new(CloseError {
            channels: vec![Unacknowledged {
                channel: "lines".into(),
                peer: "peer".into(),
                account: Account { accepted: 5, acknowledged: 3, settles: false },
                cause: Some(lost()),
            }],
            forgotten: 0,
        }),
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
    let (channel, peer) = ("lines".into(), "peer".into());
    let failed = DecodeFailed { channel, peer, error: DecodeError::Short };
    shows_once(&RecvError::Decode(Arc::new(failed)), &DecodeError::Short.to_string());
    let refused = EncodeError::Refused("not today".into());
    shows_once(&SendError::Encode(Arc::new(refused)), "not today");
}

#[test]
fn a_lost_channel_begins_with_the_cause_and_hides_names_of_the_library() {
    let gone = || LinkError::new("rank-1", LinkCause::Gone("its process 7 ended".to_owned()));
    for (name, named) in [
        ("\0the channel of a port\0f00", "the channel of a port"),
        ("\0\x1b[31m\0f00", "a channel of the library"),
        ("\0service \0ro\not", "service \"ro\\not\""),
        ("\0chunkcomm.words", "a channel of the library"),
        ("chunkcomm.cluster.up", "a channel of the library"),
        ("news", "channel \"news\""),
    ] {
        let account = Account { accepted: 3, acknowledged: 1, settles: false };
        let lost = ChannelLost { channel: name.to_owned(), link: gone(), account };
        let sent = SendError::Lost(Arc::new(lost)).to_string();
        let received = RecvError::Lost { channel: name.into(), link: gone(), arrived: 2 };
        for told in [sent, received.to_string()] {
            let cause = format!("rank-1 is gone: its process 7 ended; {named}: ");
            assert!(told.starts_with(&cause), "{told:?}");
        }
    }
}
