//! Strangers whom a node dials.

use super::stranger::{Identity, Manner, Stranger, member_hello};
use super::{cause, guarded, honest, other_seed, seed};
use crate::support::raw::good_hello;
use crate::support::{limited, on_one_thread};
use chunkcomm::proto::credential::{ProofKey, Role};
use chunkcomm::proto::hello::{Disagreement, Hello};
use chunkcomm::{HelloCause, Node};
use rustls::version::TLS12;
use std::net::{TcpListener, TcpStream};

/// What a node says of a listener that does this.
async fn dialled(node: &Node, does: fn(TcpStream)) -> HelloCause {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().into();
    let stranger = tokio::task::spawn_blocking(move || does(listener.accept().unwrap().0));
    let error = limited(node.connect(&address)).await.unwrap_err();
    stranger.await.unwrap();
    cause(error)
}

fn greets(stream: TcpStream, hello: &Hello) -> Stranger {
    Stranger::greets(stream, Role::Acceptor, &hello.encode())
}

fn speaks_tls(stream: TcpStream, manner: impl FnOnce(&Stranger) -> Manner) {
    let mut stranger = greets(stream, &member_hello());
    stranger.proves();
    let server = manner(&stranger).server();
    let _ = stranger.shakes_hands(server);
    stranger.hung_up();
}

/// What one does, and words of the error at the node that dialled it.
type Case = (fn(TcpStream), &'static str);

const CASES: &[Case] = &[
    (|stream| greets(stream, &good_hello()).hung_up(), "peer has no credential"),
    (
        |stream| {
            let mut stranger = greets(stream, &member_hello());
            stranger.says(&[0; 32]);
            stranger.hung_up();
        },
        "did not prove",
    ),
    (
        |stream| {
            let mut stranger = greets(stream, &member_hello());
            let proof = ProofKey::of(&other_seed()).prove(Role::Acceptor, &stranger.hellos);
            stranger.says(&proof);
            stranger.hung_up();
        },
        "did not prove",
    ),
    (
        |stream| {
            let mut stranger = greets(stream, &member_hello());
            let proof = stranger.hears_proof();
            stranger.says(&proof);
            stranger.hung_up();
        },
        "did not prove",
    ),
    (|stream| drop(greets(stream, &member_hello())), "before the peer proved"),
    (
        |stream| {
            let mut stranger = greets(stream, &member_hello());
            stranger.proves();
        },
        "the tls handshake failed",
    ),
    (
        |stream| {
            let mut stranger = greets(stream, &member_hello());
            stranger.proves();
            stranger.says(&[0; 64]);
            stranger.hung_up();
        },
        "corrupt message",
    ),
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
            let cause = dialled(&pair.b, *does).await.to_string();
            assert!(cause.contains(word), "case {number}: {word:?} is not in {cause:?}");
            pair.is_well(&format!("after case {number}")).await;
        }
    });
}

#[test]
fn a_node_without_a_credential_says_that_the_peer_wants_one() {
    on_one_thread(async {
        let plain = Node::builder().build().await.unwrap();
        let cause = dialled(&plain, |stream| greets(stream, &member_hello()).hung_up()).await;
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
            let mut member = greets(listener.accept().unwrap().0, &member_hello());
            member.proves();
            let server = Manner::member(&member).server();
            member.shakes_hands(server).unwrap();
            member
        });
        let dialler = node.clone();
        let dialling = tokio::spawn(async move { dialler.connect(&address).await.map(drop) });
        // Its handshake ends when the node has taken it.
        let member = limited(member).await.unwrap();
        dialling.abort();
        drop(member);
    });
}
