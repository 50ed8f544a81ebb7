//! Strangers that a node dials.

use super::stranger::{Identity, Manner, Stranger, member_hello};
use super::{cause, guarded, honest, other_seed, seed};
use chunkcomm::error::HelloCause;
use chunkcomm::proto::credential::{ProofKey, Role};
use chunkcomm::proto::hello::Disagreement;
use chunkcomm::{Node, with_causes};
use chunkcomm_testkit::raw::good_hello;
use chunkcomm_testkit::still::StandsStill;
use chunkcomm_testkit::{limited, on_one_thread};
use rustls::version::TLS12;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// Returns the error of a node that dials a listener which does this. It comes at once: time stands
/// still meanwhile.
async fn dialled(node: &Node, does: fn(TcpStream)) -> HelloCause {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().into();
    let still = StandsStill::begin();
    let stranger = tokio::task::spawn_blocking(move || does(listener.accept().unwrap().0));
    let error = node.connect_within(&address, Duration::ZERO).await.unwrap_err();
    still.end("dialled");
    stranger.await.unwrap();
    cause(error)
}

fn member(stream: TcpStream) -> Stranger {
    Stranger::greets(stream, Role::Acceptor, &member_hello().encode())
}

/// Exchanges the credential's proofs, then speaks TLS in this manner.
fn speaks_tls(stream: TcpStream, manner: impl FnOnce(&Stranger) -> Manner) {
    member(stream).proved().speaks_tls(manner);
}

/// Behaviour of a stranger, and words of the error at the node that dialled it.
type Case = (fn(TcpStream), &'static str);

const CASES: &[Case] = &[
    (
        |stream| Stranger::greets(stream, Role::Acceptor, &good_hello().encode()).hung_up(),
        "peer has no credential",
    ),
    (|stream| member(stream).says_last(&[0; 32]), "did not prove"),
    (
        |stream| {
            let stranger = member(stream);
            let proof = ProofKey::of(&other_seed()).prove(Role::Acceptor, &stranger.hellos);
            stranger.says_last(&proof);
        },
        "did not prove",
    ),
    (
        |stream| {
            let mut stranger = member(stream);
            let proof = stranger.hears_proof();
            stranger.says_last(&proof);
        },
        "did not prove",
    ),
    (|stream| drop(member(stream)), "before the peer proved"),
    (|stream| drop(member(stream).proved()), "the tls handshake failed"),
    (|stream| member(stream).proved().says_last(&[0; 64]), "corrupt message"),
    (
        |stream| speaks_tls(stream, |it| Manner { versions: vec![&TLS12], ..Manner::member(it) }),
        "ProtocolVersion",
    ),
    (
        |stream| {
            let identity = Some(Identity::of(&other_seed()));
            speaks_tls(stream, |it| Manner { identity, ..Manner::member(it) });
        },
        "ApplicationVerificationFailure",
    ),
    (
        |stream| {
            let identity = Identity::of(&seed()).with_key_of(&Identity::of(&other_seed()));
            speaks_tls(stream, |it| Manner { identity: Some(identity), ..Manner::member(it) });
        },
        "BadSignature",
    ),
    (
        |stream| {
            let protocols = vec![b"chunkcomm-1 of another connection".to_vec()];
            speaks_tls(stream, |it| Manner { protocols, ..Manner::member(it) });
        },
        "NoApplicationProtocol",
    ),
    (
        |stream| speaks_tls(stream, |it| Manner { protocols: Vec::new(), ..Manner::member(it) }),
        "belongs to another connection",
    ),
];

#[test]
fn whoever_is_dialled_must_be_a_member() {
    on_one_thread(async {
        let pair = honest().await;
        for (number, (does, word)) in CASES.iter().enumerate() {
            let cause = with_causes(&dialled(&pair.b, *does).await);
            assert!(cause.contains(word), "case {number}: {word:?} is not in {cause:?}");
            pair.is_well(&format!("after case {number}")).await;
        }
    });
}

#[test]
fn a_node_without_a_credential_says_that_the_peer_wants_one() {
    on_one_thread(async {
        let plain = Node::builder().build().await.unwrap();
        let cause = dialled(&plain, |stream| member(stream).hung_up()).await;
        assert!(
            matches!(cause, HelloCause::Disagreement(Disagreement::Credential { ours: false })),
            "{cause}"
        );
    });
}

#[test]
fn a_member_that_is_dialled_is_taken() {
    on_one_thread(async {
        let node = guarded().build().await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().into();
        let member = tokio::task::spawn_blocking(move || {
            let mut member = member(listener.accept().unwrap().0).proved();
            member.is_taken();
            member
        });
        let dialler = node.clone();
        let dialling = tokio::spawn(async move { dialler.connect(&address).await.map(drop) });
        // The member's handshake ends when the node has taken it.
        let member = limited(member).await.unwrap();
        dialling.abort();
        drop(member);
    });
}
