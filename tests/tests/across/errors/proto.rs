//! Errors of `chunkcomm-proto`.

use super::{Texts, errors, label};
use chunkcomm::proto::codec::{DecodeError, EncodeError};
use chunkcomm::proto::credential::SeedTextError;
use chunkcomm::proto::error::ProtocolError;
use chunkcomm::proto::hello::{Disagreement, HelloError, Name};

pub(super) fn all(texts: &mut Texts) {
    hellos(texts);
    errors!(
        texts,
        EncodeError::NoRoom,
        EncodeError::Refused("not today".into()),
        DecodeError::Short,
        DecodeError::Trailing,
        DecodeError::Bool,
        DecodeError::Char,
        DecodeError::Text,
        DecodeError::Optional,
        DecodeError::Variant,
        DecodeError::TooDeep,
        DecodeError::ZeroSized,
        DecodeError::NotSelfDescribing,
        DecodeError::Refused,
        SeedTextError::Foreign,
        SeedTextError::Version,
        SeedTextError::Damaged,
        ProtocolError::PacketTooLarge { bytes: 9, bytes_max: 8 },
        ProtocolError::RecordPassesPacket,
        ProtocolError::UnknownRecord(77),
        ProtocolError::BadText,
        ProtocolError::BadReason,
        ProtocolError::BadChain,
        ProtocolError::BadStream,
        ProtocolError::BadFragment,
        ProtocolError::OtherPacket { sequence: 5 },
        ProtocolError::ElsewhereAgain { sequence: 5 },
        ProtocolError::Elsewhere,
        ProtocolError::OverWindow { received: 9, granted: 8 },
        ProtocolError::TooManyOpens,
        ProtocolError::MessageTooLarge { bytes: 9, bytes_max: 8 },
        ProtocolError::Sequence { got: 5, due: 4 },
        ProtocolError::Ack { got: 5, sent: 4 },
        ProtocolError::Forgotten { got: 3, acknowledged: 4 },
        ProtocolError::Answers { waiting: 100 },
        ProtocolError::Unnumbered,
        ProtocolError::UnknownChannel(7),
        ProtocolError::OpenedTwice(7),
        ProtocolError::Fragments,
        ProtocolError::RunCount { messages: 9, bytes: 4 },
        ProtocolError::EndCount { declared: 5, received: 4 },
    );
}

fn hellos(texts: &mut Texts) {
    let name = |text| Name::new(text).unwrap();
    errors!(
        texts,
        HelloError::Magic { found: *b"GET / \r\n" },
        HelloError::Versions { min: 4, max: 3 },
        HelloError::Cluster,
        HelloError::Node,
        HelloError::Layer { hash: 0xab, oldest: 4, newest: 3 },
        HelloError::LayerTwice { hash: 0xab },
        HelloError::NoSession,
        HelloError::SessionWord(9),
        Disagreement::Versions { ours: (1, 2), theirs: (3, 4) },
        Disagreement::Codec { ours: 1, theirs: 2 },
        Disagreement::Packets { smallest: 4096, theirs: 17 },
        Disagreement::Cluster { ours: name("mine"), theirs: name("yo\"urs") },
        Disagreement::Credential { ours: true },
        Disagreement::Credential { ours: false },
        Disagreement::Tls { ours: true },
        Disagreement::Tls { ours: false },
        Disagreement::Layer { hash: 0xab, name: None, ours: (1, 2), theirs: (3, 4) },
        Disagreement::Layer { hash: 0xab, name: Some("calls"), ours: (1, 2), theirs: (3, 4) },
    );
}
