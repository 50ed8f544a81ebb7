//! Errors of `chunkcomm`.

use super::{Texts, address, errors, label, said, words};
use chunkcomm::error::{
    Account, AddressError, ChannelLost, ChannelName, ChannelRefused, CredentialError, DecodeFailed,
    FeedError, HelloCause, LinkCause, LogError, RefusalReason, SendAllError, SendToAllError,
    TypeRefused, Unacknowledged, WatchError,
};
use chunkcomm::host::{Elapsed, timeout};
use chunkcomm::proto::codec::{DecodeError, EncodeError};
use chunkcomm::proto::credential::SeedTextError;
use chunkcomm::proto::error::ProtocolError;
use chunkcomm::proto::hello::{Disagreement, HelloError};
use chunkcomm::settings::SettingsError;
use chunkcomm::{
    AcceptError, Address, CloseError, ConnectError, LinkError, NodeError, OpenError, RecvError,
    SendError, TryRecvError, TrySendError,
};
use std::sync::Arc;
use std::time::Duration;

pub(super) async fn all(texts: &mut Texts) {
    let elapsed: Elapsed = timeout(Duration::ZERO, std::future::pending::<()>()).await.unwrap_err();
    texts.error("Elapsed", &elapsed);
    for text in ["http://here:1", "here", "here:x", "a b:1", "::1:1", "unix:", "memory:"] {
        let error: AddressError = text.parse::<Address>().unwrap_err();
        texts.error("AddressError", &error);
    }
    nodes(texts);
    links(texts);
    logs(texts);
    receiving(texts);
    sending(texts);
    closing(texts);
}

fn nodes(texts: &mut Texts) {
    let file = || CredentialError::File { path: "/a/file".into(), error: said() };
    let (value, allowed) = ("0".to_owned(), "1 or more".to_owned());
    errors!(
        texts,
        CredentialError::Random(said()),
        CredentialError::Text(SeedTextError::Damaged),
        file() => CredentialError::File,
        CredentialError::FileText { path: "/a/file".into(), fault: SeedTextError::Version },
        CredentialError::Exposed { path: "/a/file".into(), mode: 0o4 },
        NodeError::Listen { address: address(), error: said() },
        NodeError::BeyondLoopback { address: address() },
        NodeError::Credential(file()),
        NodeError::NeedsTls,
        NodeError::Setting { name: "sessions_max", value, allowed },
        NodeError::NoRuntime,
        NodeError::System(said()),
        SettingsError::Unread { file: "/a/file".into(), source: said() },
        SettingsError::Wrong { place: "/a/file".into(), why: "line 2: no such key".into() },
        HelloCause::Wrong(HelloError::Cluster),
        HelloCause::Disagreement(Disagreement::Codec { ours: 1, theirs: 2 }),
        HelloCause::Io(said()),
        HelloCause::Timeout,
        HelloCause::WrongProof,
        HelloCause::NoProof(said()),
        HelloCause::ProofTimeout,
        HelloCause::Tls(said()),
        HelloCause::TlsTimeout,
        HelloCause::GaveWay,
        HelloCause::System(said()),
        HelloCause::Refused,
        HelloCause::Full { sessions_max: 3 },
        connect() => ConnectError::Unreachable,
        ConnectError::Hello {
            address: address(),
            cause: HelloCause::Io(said()),
            tried: Duration::ZERO
        },
        ConnectError::Hello { address: address(), cause: HelloCause::Refused, tried: SOME_TIME },
        ConnectError::Closed,
        ConnectError::RuntimeGone,
        OpenError::Lost(link(LinkCause::Io(said()))),
        OpenError::Connect(connect()),
        OpenError::Name { bytes: 256 },
        OpenError::Type(type_refused()),
        OpenError::NoRandomness,
        OpenError::Log(log()),
    );
    texts.error(
        "ConnectError::Unreachable",
        &ConnectError::Unreachable { address: address(), error: said(), tried: SOME_TIME },
    );
    accepting(texts);
}

fn accepting(texts: &mut Texts) {
    let waited = Duration::from_millis(20);
    let late = |count| {
        let held = (0..count).map(|number| format!("\"{number}\" by peer")).collect();
        AcceptError::Late { channel: "lines".into(), waited, held }
    };
    let (channel, peer) = ("lines".to_owned(), "peer".to_owned());
    let error = || link(LinkCause::Io(said()));
    errors!(
        texts,
        AcceptError::Mismatch {
            channel: channel.clone(),
            peer,
            reason: RefusalReason::KindMismatch
        },
        AcceptError::Type(type_refused()),
        AcceptError::Late { channel: channel.clone(), waited, held: Vec::new() },
        late(2) => AcceptError::Late,
        late(17) => AcceptError::Late,
        AcceptError::Lost { channel, error: error() },
        AcceptError::Lost { channel: "\0the channel of a travelling end\0f00".into(), error: error() },
        AcceptError::Closed,
        AcceptError::RuntimeGone,
    );
}

fn links(texts: &mut Texts) {
    let dead = |trouble| LinkCause::Dead { silence_ms: 900, trouble };
    for (label, cause) in [
        ("LinkError LinkCause::Io", LinkCause::Io(said())),
        ("LinkError LinkCause::ConnectionLost", LinkCause::ConnectionLost),
        ("LinkError LinkCause::Dead", dead(None)),
        ("LinkError LinkCause::Dead", dead(Some("no route".into()))),
        ("LinkError LinkCause::Forgotten", LinkCause::Forgotten),
        ("LinkError LinkCause::Restarted", LinkCause::Restarted),
        ("LinkError LinkCause::Gone", LinkCause::Gone("its process\n7 ended".into())),
        ("LinkError LinkCause::GaveWay", LinkCause::GaveWay { sessions_max: 3 }),
        (
            "LinkError LinkCause::GaveWayForMemory",
            LinkCause::GaveWayForMemory { cut_off_bytes_max: 65 },
        ),
        ("LinkError LinkCause::Protocol", LinkCause::Protocol(ProtocolError::Fragments)),
        ("LinkError LinkCause::CorruptRun", LinkCause::CorruptRun { channel: 7 }),
        ("LinkError LinkCause::ClosedByPeer", LinkCause::ClosedByPeer),
        ("LinkError LinkCause::Closed", LinkCause::Closed),
        ("LinkError LinkCause::CloseDeadline", LinkCause::CloseDeadline),
        ("LinkError LinkCause::DriverGone", LinkCause::DriverGone),
    ] {
        texts.error(label, &link(cause));
    }
}

fn logs(texts: &mut Texts) {
    errors!(
        texts,
        log() => LogError::Io,
        LogError::InUse { path: "/a/log".into() },
        LogError::OtherStream { path: "/a/log".into(), channel: "lines".into() },
        LogError::Damaged { path: "/a/log".into(), offset: 99 },
    );
}

fn receiving(texts: &mut Texts) {
    let lost = |channel: &str| {
        let (channel, link) = (channel.into(), link(LinkCause::Io(said())));
        RecvError::Lost { channel, link, arrived: 3 }
    };
    let failed =
        DecodeFailed { channel: "lines".into(), peer: "peer".into(), error: DecodeError::Short };
    let failed = Arc::new(failed);
    errors!(
        texts,
        WatchError::Encode(Arc::new(EncodeError::Refused("not today".into()))),
        WatchError::Taken { channel: "pri\nce".into() },
        WatchError::Ended,
        WatchError::Refused(Arc::new(refused())),
        WatchError::Decode(Arc::clone(&failed)),
        WatchError::Open(OpenError::Name { bytes: 0 }),
        WatchError::Late { channel: "price".into(), waited: Duration::from_millis(1500) },
        WatchError::Closed,
        FeedError::Behind { feed: "pri\nce".into(), peer: "peer".into() },
        FeedError::Recv(RecvError::Decode(Arc::clone(&failed))),
        FeedError::Open(OpenError::Name { bytes: 0 }),
        FeedError::Encode(Arc::new(EncodeError::Refused("not today".into()))),
        FeedError::Taken { feed: "price".into() },
        FeedError::Late { feed: "price".into(), waited: Duration::from_millis(1500) },
        FeedError::Closed,
        RecvError::Refused(Arc::new(refused())),
        RecvError::Decode(failed),
        RecvError::BufferTooSmall { bytes: 9, buffer_bytes: 8 },
        RecvError::LandingFull { channel: "lines".into() },
        TryRecvError::Empty,
        TryRecvError::Ended,
        TryRecvError::Failed(lost("lines")),
    );
    for name in CHANNELS {
        texts.error("RecvError::Lost", &lost(name));
    }
}

fn sending(texts: &mut Texts) {
    let name = ChannelName { channel: "lines".into(), peer: "peer".into() };
    errors!(
        texts,
        SendError::Terminated(Arc::new(name)),
        SendError::Refused(Arc::new(refused())),
        SendError::TooLarge { bytes: 9, bytes_max: 8 },
        SendError::TooLargeToReserve { bytes: 9, bytes_max: 8 },
        SendError::Encode(Arc::new(EncodeError::Refused("not today".into()))),
        SendError::NotReady,
        SendError::Closed,
        SendError::NotSettled,
        SendError::Log(Arc::new(log())),
        SendError::NotLogged,
        TrySendError::Full,
        TrySendError::Failed(lost("lines")),
        SendAllError { accepted: 3, error: lost("lines") },
        SendToAllError { failed: vec![(2, lost("lines")), (4, SendError::Closed)] },
        SendToAllError { failed: Vec::new() },
    );
    for name in CHANNELS {
        texts.error("SendError::Lost", &lost(name));
    }
    let (sender, receiver) = ("u8".to_owned(), "u16".to_owned());
    words!(
        texts,
        RefusalReason::TypeMismatch { sender, receiver },
        RefusalReason::KindMismatch,
        RefusalReason::NotAccepted,
        type_refused() => TypeRefused,
        refused() => ChannelRefused,
    );
}

fn closing(texts: &mut Texts) {
    let channel = |settles, cause| Unacknowledged {
        channel: "lines".into(),
        peer: "peer".into(),
        account: Account { accepted: 5, acknowledged: 3, settles },
        cause,
    };
    let refused = SendError::Refused(Arc::new(refused()));
    let both = vec![channel(true, Some(lost("lines"))), channel(false, Some(refused))];
    errors!(
        texts,
        CloseError { channels: Vec::new(), forgotten: 7, unsaid: Vec::new() },
        CloseError { channels: vec![channel(true, None)], forgotten: 0, unsaid: Vec::new() },
        CloseError { channels: both, forgotten: 1, unsaid: Vec::new() },
        CloseError { channels: Vec::new(), forgotten: 0, unsaid: vec!["the last value".into()] },
    );
}

const SOME_TIME: Duration = Duration::from_millis(1200);

/// Names of users and of the library, whose texts differ.
const CHANNELS: &[&str] = &[
    "news",
    "\0the channel of a travelling end\0f00",
    "\0\x1b[31m\0f00",
    "\0service \0ro\not",
    "\0chunkcomm.words",
    "chunkcomm.cluster.up",
];

pub(super) fn link(cause: LinkCause) -> LinkError {
    LinkError::new("peer", cause)
}

pub(super) fn connect() -> ConnectError {
    ConnectError::Unreachable { address: address(), error: said(), tried: Duration::ZERO }
}

pub(super) fn lost(name: &str) -> SendError {
    let account = Account { accepted: 5, acknowledged: 3, settles: false };
    let (channel, link) = (name.to_owned(), link(LinkCause::Io(said())));
    SendError::Lost(Arc::new(ChannelLost { channel, link, account }))
}

pub(super) fn refused() -> ChannelRefused {
    let reason = RefusalReason::NotAccepted;
    ChannelRefused { channel: "lines".into(), peer: "peer".into(), reason }
}

pub(super) fn type_refused() -> TypeRefused {
    TypeRefused { type_name: "Point".into(), reason: "it is untagged".into() }
}

fn log() -> LogError {
    LogError::Io { path: "/a/log".into(), error: said() }
}
