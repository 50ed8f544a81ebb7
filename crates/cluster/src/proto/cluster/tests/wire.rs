//! The bytes of the words of members and managers, which are common to releases that do not know of
//! each other. A test that fails here shows that a word was changed which other releases send and
//! read. Send the changed word only where both sides agreed on a newer version.

use super::*;
use crate::proto::cluster::TaskIds;
use crate::proto::cluster::agreement::{Among, Proposed};
use chunkcomm_proto::codec;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::{Debug, Write as _};

fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(word: &T, bytes: &str) {
    let mut encoded = Vec::new();
    codec::encode_into_vec(word, &mut encoded).unwrap();
    let hex = encoded.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    assert_eq!(hex, bytes, "{word:?}");
    assert_eq!(codec::decode::<T>(&encoded).unwrap(), *word);
}

const ID: NodeId = NodeId { rank: 2, incarnation: 0x0102 };

fn decision() -> Decision {
    let values = vec![Proposed { by: ID, number: 9, value: vec![7, 8] }];
    Decision { name: "n".to_owned(), values, gone: vec![NodeId { rank: 3, incarnation: 4 }] }
}

#[test]
fn what_members_say_has_these_bytes() {
    let before = Before {
        passed: 3,
        at: Some(4),
        names: vec!["n".to_owned()],
        done: true,
        members: vec![ID],
        deaths: vec![Death { id: ID, loss: "w".into() }],
        unnamed: vec![ID],
        decisions: vec![decision()],
        founders: vec![ID],
        sole: vec![(9, "n".to_owned())],
        open: vec![9],
    };
    let first = Ready {
        name: Some("n".to_owned()),
        functions: Some(functions(&[("f", 9)])),
        ..ready(2, 3, 5)
    };
    let again = Ready { again: Some(Box::new(before)), ..ready(None, 3, 5) };
    let name = || "n".to_owned();
    check(
        &Up::Ready(first),
        concat!(
            "0000000001020000000103000000050000000000000000000000000000000101000000000000006e",
            "04000000000000006865726505000000010000000000000008000000000000006d656d6f72793a35",
            "01000000000000007001010000000000000001000000000000006609000000000000000200000000",
            "00000054390101000000000000000200000000000000543100"
        ),
    );
    check(
        &Up::Ready(again),
        concat!(
            "00000000000103000000050000000000000000000000000000000004000000000000006865726505",
            "000000010000000000000008000000000000006d656d6f72793a3501000000000000007000010300",
            "000000000000010400000000000000010000000000000001000000000000006e0101000000000000",
            "00020000000201000000000000000000000000000001000000000000000200000002010000000000",
            "0000000000000000000000000001000000000000007701000000000000000200000002010000000000000000",
            "000000000000010000000000000001000000000000006e0100000000000000020000000201000000",
            "00000000000000000000000900000000000000020000000000000007080100000000000000030000",
            "00040000000000000000000000000000000100000000000000020000000201000000000000000000",
            "00000000000100000000000000090000000000000001000000000000006e01000000000000000900000000000000"
        ),
    );
    check(&Up::Barrier(7), "010000000700000000000000");
    check(&Up::Provide(name()), "0200000001000000000000006e");
    check(&Up::Withdraw(name()), "0300000001000000000000006e");
    check(&Up::Finish, "04000000");
    check(&Up::Done, "05000000");
    check(&Up::Leave, "06000000");
    let (name, among) = (name(), Among::All(vec![ID]));
    check(
        &Up::Agree(Proposal { number: 9, name, among, value: vec![7, 8] }),
        concat!(
            "07000000090000000000000001000000000000006e000000000100000000000000020000000201000000",
            "000000000000000000000002000000000000000708"
        ),
    );
    check(
        &Up::ProvideSole { number: 9, name: "n".to_owned() },
        "08000000090000000000000001000000000000006e",
    );
    check(&Up::Heard(9), "090000000900000000000000");
}

#[test]
fn what_managers_say_has_these_bytes() {
    let member = Member {
        id: ID,
        host: "h".to_owned(),
        pid: 6,
        addresses: vec!["a".to_owned()],
        name: Some("m".to_owned()),
    };
    let ids = TaskIds {
        manager: 8,
        rank: 2,
        size: 3,
        members: vec![member.clone()],
        names: vec![("n".to_owned(), ID)],
        deaths: vec![Death { id: ID, loss: "w".into() }],
        barrier: 4,
        founders: vec![ID],
    };
    let name = || "n".to_owned();
    check(
        &Down::TaskIds(ids),
        concat!(
            "00000000080000000000000000000000000000000200000003000000010000000000000002000000",
            "02010000000000000000000000000000010000000000000068060000000100000000000000010000",
            "0000000000610101000000000000006d010000000000000001000000000000006e02000000020100",
            "00000000000000000000000000010000000000000002000000020100000000000000000000000000",
            "0000000000010000000000000077040000000000000001000000000000000200000002010000000000000000",
            "000000000000"
        ),
    );
    check(&Down::Refused(Refusal::Full), "0100000008000000");
    check(
        &Down::Joined(member),
        concat!(
            "02000000020000000201000000000000000000000000000001000000000000006806000000010000",
            "00000000000100000000000000610101000000000000006d",
        ),
    );
    check(&Down::Left(ID), "030000000200000002010000000000000000000000000000");
    check(
        &Down::Died(Death { id: ID, loss: "w".into() }),
        "04000000020000000201000000000000000000000000000000000000010000000000000077",
    );
    check(
        &Down::Released { number: 5, died: vec![ID] },
        "05000000050000000000000001000000000000000200000002010000000000000000000000000000",
    );
    check(
        &Down::Provided(name(), ID),
        "0600000001000000000000006e0200000002010000000000000000000000000000",
    );
    check(
        &Down::Withdrawn(name(), ID),
        "0700000001000000000000006e0200000002010000000000000000000000000000",
    );
    check(&Down::NameRefused(name()), "0800000001000000000000006e");
    check(&Down::Finish { by: Some(ID) }, "09000000010200000002010000000000000000000000000000");
    check(
        &Down::Agreed(decision()),
        concat!(
            "0a00000001000000000000006e010000000000000002000000020100000000000000000000000000",
            "00090000000000000002000000000000000708010000000000000003000000040000000000000000",
            "00000000000000"
        ),
    );
    check(
        &Down::NotAgreed { number: 9, why: Objection::TooMany },
        "0b000000090000000000000003000000",
    );
    check(
        &Down::Sole { number: 9, answer: NameAnswer::Granted },
        "0c000000090000000000000000000000",
    );
    check(
        &Down::Sole { number: 9, answer: NameAnswer::Held(ID) },
        "0c0000000900000000000000010000000200000002010000000000000000000000000000",
    );
    check(
        &Down::Sole { number: 9, answer: NameAnswer::Refused },
        "0c000000090000000000000002000000",
    );
    check(
        &Down::NameHeld("n".to_owned(), ID),
        "0d00000001000000000000006e0200000002010000000000000000000000000000",
    );
    check(
        &Down::Settled((ID, 9)),
        "0e00000002000000020100000000000000000000000000000900000000000000",
    );
}
