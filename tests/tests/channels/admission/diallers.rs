//! Strangers that dial a node, each with another trick.

use super::stranger::{Identity, Manner, Stranger, member_hello};
use super::{honest, other_seed, refused_at_once, seed};
use chunkcomm::proto::credential::{Hellos, ProofKey, Role};
use chunkcomm::proto::hello::{FLAG_CREDENTIAL, FLAG_TLS, HELLO_BYTES, Hello, Name};
use chunkcomm::proto::packet::Header;
use chunkcomm_testkit::on_one_thread;
use chunkcomm_testkit::raw::{good_hello, socket_address};
use chunkcomm_testkit::still::StandsStill;
use rustls::version::{TLS12, TLS13};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

/// Name of a case, behaviour of the stranger, and words of the refusal.
type Case = (&'static str, fn(SocketAddr), &'static [&'static str]);

const WRONG_PROOF: &[&str] = &["did not prove", "another, or"];

fn case(name: &'static str, does: fn(SocketAddr), words: &'static [&'static str]) -> Case {
    (name, does, words)
}

/// Sends `hello`, and no more.
fn only_says(node: SocketAddr, hello: &Hello) {
    Stranger::dials(node, hello).hung_up();
}

/// Sends these bytes, then the end of the stream.
fn says(node: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(node).unwrap();
    stream.write_all(bytes).unwrap();
    // The node may have hung up.
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.read_to_end(&mut Vec::new());
}

/// Dials with a member's hello.
fn member(node: SocketAddr) -> Stranger {
    Stranger::dials(node, &member_hello())
}

/// Exchanges the credential's proofs, then speaks TLS in this manner.
fn speaks_tls(node: SocketAddr, manner: impl FnOnce(&Stranger) -> Manner) {
    member(node).proved().speaks_tls(manner);
}

/// Sends a member's hello, then this proof.
fn proves_by(node: SocketAddr, proof: impl FnOnce(&mut Stranger) -> Vec<u8>) {
    let mut stranger = member(node);
    let proof = proof(&mut stranger);
    stranger.says_last(&proof);
}

/// Returns a record of TLS.
fn record(kind: u8, length: u16, body: &[u8]) -> Vec<u8> {
    [&[kind, 3, 3], &length.to_be_bytes()[..], body].concat()
}

fn hello_cases() -> Vec<Case> {
    vec![
        case("no credential", |node| only_says(node, &good_hello()), &["peer has no credential"]),
        case(
            "tls without a credential",
            |node| only_says(node, &Hello { flags: FLAG_TLS, ..member_hello() }),
            &["peer has no credential"],
        ),
        case(
            "a credential without tls",
            |node| only_says(node, &Hello { flags: FLAG_CREDENTIAL, ..member_hello() }),
            &["peer does not speak TLS"],
        ),
        case(
            "a version of the future",
            |node| only_says(node, &Hello { version_min: 8, version_max: 9, ..member_hello() }),
            &["no common protocol version", "8 to 9"],
        ),
        case(
            "a version before the first",
            |node| only_says(node, &Hello { version_min: 0, version_max: 0, ..member_hello() }),
            &["no common protocol version", "0 to 0"],
        ),
        case(
            "another codec",
            |node| only_says(node, &Hello { codec: 77, ..member_hello() }),
            &["different codecs"],
        ),
        case(
            "another cluster",
            |node| {
                let cluster = Name::new("elsewhere").unwrap();
                only_says(node, &Hello { cluster, ..member_hello() });
            },
            &["different clusters", "elsewhere"],
        ),
        case(
            "another protocol",
            |node| says(node, b"GET / HTTP/1.1\r\n\r\n"),
            &["another protocol"],
        ),
        case(
            "tls at once",
            |node| says(node, &record(22, 512, &[1, 0, 1, 252, 3, 3])),
            &["another protocol"],
        ),
        case(
            "half a hello",
            |node| says(node, &member_hello().encode()[..HELLO_BYTES / 2]),
            &["before the hello"],
        ),
    ]
}

fn proof_cases() -> Vec<Case> {
    vec![
        case("zeros", |node| member(node).says_last(&[0; 32]), WRONG_PROOF),
        case(
            "another credential",
            |node| {
                proves_by(node, |it| {
                    ProofKey::of(&other_seed()).prove(Role::Dialler, &it.hellos).to_vec()
                });
            },
            WRONG_PROOF,
        ),
        case(
            "one bit",
            |node| {
                proves_by(node, |it| {
                    let mut proof = it.good_proof();
                    proof[31] ^= 0x80;
                    proof.to_vec()
                });
            },
            WRONG_PROOF,
        ),
        case("reflected", |node| proves_by(node, |it| it.hears_proof().to_vec()), WRONG_PROOF),
        case(
            "hello and proof reflected",
            |node| {
                let mut stranger = Stranger::mirrors(node);
                let proof = stranger.hears_proof();
                stranger.says_last(&proof);
            },
            WRONG_PROOF,
        ),
        case(
            "of the other role",
            |node| {
                proves_by(node, |it| {
                    ProofKey::of(&seed()).prove(Role::Acceptor, &it.hellos).to_vec()
                });
            },
            WRONG_PROOF,
        ),
        case(
            "over the hellos turned round",
            |node| {
                proves_by(node, |it| {
                    let Hellos { dialler, acceptor } = it.hellos;
                    let turned = Hellos { dialler: acceptor, acceptor: dialler };
                    ProofKey::of(&seed()).prove(Role::Dialler, &turned).to_vec()
                });
            },
            WRONG_PROOF,
        ),
        case(
            "of an earlier connection with the same hello",
            |node| {
                let earlier = member(node);
                // The earlier connection goes no further, and is no refusal yet.
                member(node).says_last(&earlier.good_proof());
                earlier.proved().is_taken();
            },
            WRONG_PROOF,
        ),
        case(
            "cut",
            |node| {
                let mut stranger = member(node);
                let proof = stranger.good_proof();
                stranger.says(&proof[..31]);
                stranger.ends();
            },
            &["ended before the peer proved"],
        ),
        case("none", |node| member(node).ends(), &["ended before the peer proved"]),
        case("tls instead", |node| member(node).says_last(&record(22, 512, &[1; 64])), WRONG_PROOF),
    ]
}

fn tls_cases() -> Vec<Case> {
    vec![
        case(
            "packets in the clear",
            |node| {
                let header = Header { sequence: 1, ..Header::default() };
                member(node).proved().says_last(&header.encode());
            },
            &["tls", "corrupt message"],
        ),
        case("garbage", |node| member(node).proved().says_last(&[0xA5; 600]), &["tls", "corrupt"]),
        case(
            "an endless record",
            |node| member(node).proved().says_last(&record(22, 0xFFFF, &[0; 64])),
            &["tls", "corrupt message of type MessageTooLarge"],
        ),
        case(
            "an empty record",
            |node| member(node).proved().says_last(&record(22, 0, &[])),
            &["tls", "corrupt message of type InvalidEmptyPayload"],
        ),
        case(
            "application data at once",
            |node| member(node).proved().says_last(&record(23, 5, b"hello")),
            &["tls", "received unexpected message"],
        ),
        case(
            "an endless client hello",
            |node| {
                let head = [1, 0, 0xF0, 0];
                let mut bytes = record(22, 16_000, &[&head[..], &[0; 15_996]].concat());
                bytes.extend(record(22, 16_000, &[0; 16_000]));
                member(node).proved().says_last(&bytes);
            },
            &["tls", "hello is longer than 6 KiB"],
        ),
        case("nothing", |node| member(node).proved().ends(), &["tls", "end of file"]),
        case(
            "tls 1.2",
            |node| speaks_tls(node, |it| Manner { versions: vec![&TLS12], ..Manner::member(it) }),
            &["tls", "peer is incompatible"],
        ),
        case(
            "no certificate",
            |node| {
                speaks_tls(node, |it| Manner { identity: None, ..Manner::member(it) });
            },
            &["tls", "peer sent no certificates"],
        ),
        case(
            "no certificate and tls 1.2 beside",
            |node| {
                let versions = vec![&TLS12, &TLS13];
                speaks_tls(node, |it| Manner { versions, identity: None, ..Manner::member(it) });
            },
            &["tls", "peer sent no certificates"],
        ),
        case(
            "another self-signed certificate",
            |node| {
                let identity = Some(Identity::of(&other_seed()));
                speaks_tls(node, |it| Manner { identity, ..Manner::member(it) });
            },
            &["tls", "invalid peer certificate: ApplicationVerificationFailure"],
        ),
        case(
            "the certificate with another's key",
            |node| {
                let identity = Identity::of(&seed()).with_key_of(&Identity::of(&other_seed()));
                speaks_tls(node, |it| Manner { identity: Some(identity), ..Manner::member(it) });
            },
            &["tls", "invalid peer certificate: BadSignature"],
        ),
        case(
            "another's certificate before it",
            |node| {
                let mut identity = Identity::of(&seed());
                identity.chain.insert(0, Identity::of(&other_seed()).chain.remove(0));
                speaks_tls(node, |it| Manner { identity: Some(identity), ..Manner::member(it) });
            },
            &["tls", "invalid peer certificate: ApplicationVerificationFailure"],
        ),
        case(
            "another's certificate behind it",
            |node| {
                let mut identity = Identity::of(&seed());
                identity.chain.extend(Identity::of(&other_seed()).chain);
                speaks_tls(node, |it| Manner { identity: Some(identity), ..Manner::member(it) });
            },
            &["tls", "invalid peer certificate: ApplicationVerificationFailure"],
        ),
        case(
            "the tls of another connection",
            |node| {
                let other = member(node);
                let protocols = vec![other.binding()];
                speaks_tls(node, |it| Manner { protocols, ..Manner::member(it) });
                other.proved().is_taken();
            },
            &["tls", "belongs to another connection"],
        ),
        case(
            "tls of no connection",
            |node| speaks_tls(node, |it| Manner { protocols: Vec::new(), ..Manner::member(it) }),
            &["tls", "belongs to another connection"],
        ),
    ]
}

/// Runs each case at a node of its own, so that each refusal is that case's; each comes at once.
fn all(cases: Vec<Case>) {
    for (name, does, words) in cases {
        on_one_thread(async {
            let pair = honest().await;
            let node = socket_address(&pair.a);
            let still = StandsStill::begin();
            tokio::task::spawn_blocking(move || does(node)).await.expect(name);
            refused_at_once(still, &pair, name, words).await;
        });
    }
}

#[test]
fn hellos_that_do_not_fit() {
    all(hello_cases());
}

#[test]
fn proofs_that_prove_nothing() {
    all(proof_cases());
}

#[test]
fn tls_that_is_not_a_members() {
    all(tls_cases());
}

#[test]
fn there_are_many_ways_to_be_refused() {
    let count = hello_cases().len() + proof_cases().len() + tls_cases().len();
    assert!(count >= 25, "{count}");
}

#[test]
fn a_member_that_speaks_tls_by_hand_is_admitted() {
    on_one_thread(async {
        let pair = honest().await;
        let node = socket_address(&pair.a);
        let member = tokio::task::spawn_blocking(move || {
            let mut member = member(node).proved();
            member.is_taken();
            member
        });
        let member = member.await.unwrap();
        pair.is_well("beside").await;
        assert_eq!(pair.a.refusals(), Vec::<String>::new());
        drop(member);
    });
}
