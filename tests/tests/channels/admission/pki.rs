//! TLS of users: certificates that an authority signed.

use super::stranger::{Identity, Manner, Stranger};
use super::{cause, credential, other_seed, refused, refused_at_once, seed};
use chunkcomm::error::HelloCause;
use chunkcomm::proto::credential::Role;
use chunkcomm::proto::hello::{FLAG_TLS, Hello};
use chunkcomm::{Node, NodeBuilder, with_causes};
use chunkcomm_testkit::authority::{Authority, client, client_with, server_with};
use chunkcomm_testkit::raw::{good_hello, socket_address};
use chunkcomm_testkit::still::StandsStill;
use chunkcomm_testkit::{Pair, limited, on_both, on_one_thread, pair_of, tcp};
use rustls::ServerConfig;
use rustls::pki_types::ServerName;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

fn server(trusted: &Authority, shown: &Authority, asks: bool) -> Arc<ServerConfig> {
    let (certificate, key) = shown.signs("node.lab");
    server_with(trusted, vec![certificate], key, asks)
}

/// Returns a node that trusts an authority and shows a certificate of an authority.
fn node(trusted: &Authority, shown: &Authority) -> NodeBuilder {
    let name = ServerName::try_from("node.lab").unwrap();
    Node::builder().tls_config(client(trusted, shown), server(trusted, shown, true), Some(name))
}

#[test]
fn nodes_of_one_authority_find_each_other_anywhere() {
    on_both(|| async {
        let lab = Authority::new("lab");
        let pair = pair_of(tcp(), node(&lab, &lab), node(&lab, &lab)).await;
        pair.is_well("lab").await;
        node(&lab, &lab).listen("0.0.0.0:0".parse().unwrap()).build().await.unwrap();
    });
}

#[test]
fn another_authority_is_refused_at_either_end() {
    on_one_thread(async {
        let (lab, other) = (Authority::new("lab"), Authority::new("other"));
        let pair = pair_of(tcp(), node(&lab, &lab), node(&lab, &lab)).await;
        let address = &pair.a.addresses()[0];
        let distrusts = node(&other, &lab).build().await.unwrap();
        let cause_there =
            cause(limited(distrusts.connect_within(address, Duration::ZERO)).await.unwrap_err());
        assert!(matches!(cause_there, HelloCause::Tls(_)), "{cause_there}");
        assert!(with_causes(&cause_there).contains("UnknownIssuer"), "{cause_there:?}");
        let pair = pair_of(tcp(), node(&lab, &lab), node(&lab, &lab)).await;
        let distrusted = node(&lab, &other).build().await.unwrap();
        let still = StandsStill::begin();
        // The dialler's handshake is done first, and it learns of the refusal later.
        let _ = distrusted.connect_within(&pair.a.addresses()[0], Duration::ZERO).await;
        let words = &["tls", "invalid peer certificate: UnknownIssuer"];
        refused_at_once(still, &pair, "distrusted", words).await;
    });
}

#[test]
fn another_name_is_refused() {
    on_one_thread(async {
        let lab = Authority::new("lab");
        let pair = pair_of(tcp(), node(&lab, &lab), node(&lab, &lab)).await;
        let strict =
            || Node::builder().tls_config(client(&lab, &lab), server(&lab, &lab, true), None);
        // By default a certificate must name the dialled host, which is an address here.
        let third = strict().build().await.unwrap();
        let cause = cause(
            limited(third.connect_within(&pair.a.addresses()[0], Duration::ZERO))
                .await
                .unwrap_err(),
        );
        assert!(with_causes(&cause).contains("not valid for name"), "{cause:?}");
        pair.is_well("name").await;
    });
}

#[test]
fn configurations_that_ask_for_no_certificate_admit_nobody_all_the_same() {
    on_one_thread(async {
        let lab = Authority::new("lab");
        let name = ServerName::try_from("node.lab").unwrap();
        let lax = server(&lab, &lab, false);
        let a = Node::builder().tls_config(client(&lab, &lab), lax, Some(name));
        let a = a.name("a").listen(tcp()).build().await.unwrap();
        let b = node(&lab, &lab).build().await.unwrap();
        let _ = limited(b.connect_within(&a.addresses()[0], Duration::ZERO)).await;
        chunkcomm_testkit::until(|| !a.refusals().is_empty()).await;
        assert!(a.refusals()[0].contains("showed no certificate"), "{:?}", a.refusals());
    });
}

#[test]
fn tls_12_is_not_spoken_though_the_configurations_allow_it() {
    on_one_thread(async {
        let lab = Authority::new("lab");
        let pair = pair_of(tcp(), node(&lab, &lab), node(&lab, &lab)).await;
        let node = socket_address(&pair.a);
        let (certificate, key) = lab.signs("node.lab");
        let still = StandsStill::begin();
        tokio::task::spawn_blocking(move || {
            let hello = Hello { flags: FLAG_TLS, ..good_hello() };
            let versions = vec![&rustls::version::TLS12];
            // Everything else about the stranger is right.
            let identity = Some(Identity::signed(certificate, &key));
            Stranger::dials(node, &hello).speaks_tls(|it| Manner {
                versions,
                identity,
                protocols: vec![it.binding()],
            });
        })
        .await
        .unwrap();
        refused_at_once(still, &pair, "tls 1.2", &["the peer speaks no TLS 1.3"]).await;
    });
}

#[test]
fn a_stranger_with_a_certificate_of_its_own_is_refused() {
    on_one_thread(async {
        let lab = Authority::new("lab");
        let pair = pair_of(tcp(), node(&lab, &lab), node(&lab, &lab)).await;
        let node = socket_address(&pair.a);
        let still = StandsStill::begin();
        tokio::task::spawn_blocking(move || {
            let hello = Hello { flags: FLAG_TLS, ..good_hello() };
            let identity = Some(Identity::of(&seed()));
            Stranger::dials(node, &hello)
                .speaks_tls(|it| Manner { identity, ..Manner::member(it) });
        })
        .await
        .unwrap();
        let words = &["tls", "invalid peer certificate: UnknownIssuer"];
        refused_at_once(still, &pair, "its own", words).await;
    });
}

#[test]
fn a_chain_of_certificates_may_be_long_and_not_endless() {
    on_one_thread(async {
        let lab = Authority::new("lab");
        let pair = pair_of(tcp(), node(&lab, &lab), node(&lab, &lab)).await;
        let shows = |bytes: usize| {
            let (certificate, key) = lab.signs("node.lab");
            let chain = vec![certificate.clone(); bytes / certificate.len()];
            let name = ServerName::try_from("node.lab").unwrap();
            let client = Arc::new(client_with(&lab, chain, key));
            Node::builder().tls_config(client, server(&lab, &lab, true), Some(name)).build()
        };
        let long = shows(20_000).await.unwrap();
        let peer = limited(long.connect(&pair.a.addresses()[0])).await.unwrap();
        Pair { a: pair.a.clone(), b: long, peer }.is_well("long").await;
        let endless = shows(24_000).await.unwrap();
        let still = StandsStill::begin();
        let _ = endless.connect_within(&pair.a.addresses()[0], Duration::ZERO).await;
        let words = &["tls", "handshake is longer than 24 KiB"];
        refused_at_once(still, &pair, "endless", words).await;
    });
}

#[test]
fn with_a_credential_beside_both_are_asked_for() {
    on_one_thread(async {
        let lab = Authority::new("lab");
        let both = || node(&lab, &lab).credential(credential(&seed()));
        let pair = pair_of(tcp(), both(), both()).await;
        pair.is_well("both").await;
        let address = &pair.a.addresses()[0];
        let third = node(&lab, &lab).build().await.unwrap();
        let cause_there =
            cause(limited(third.connect_within(address, Duration::ZERO)).await.unwrap_err());
        assert!(matches!(cause_there, HelloCause::Disagreement(_)), "{cause_there}");
        refused(&pair, "one", &["peer has no credential"]).await;
        let third = node(&lab, &lab).credential(credential(&other_seed())).build().await.unwrap();
        let cause_there =
            cause(limited(third.connect_within(address, Duration::ZERO)).await.unwrap_err());
        assert!(matches!(cause_there, HelloCause::WrongProof), "{cause_there}");
    });
}

#[test]
fn a_stranger_has_five_seconds_for_its_hello_and_its_tls_together() {
    on_one_thread(async {
        let lab = Authority::new("lab");
        let a = node(&lab, &lab).name("a").listen(tcp()).build().await.unwrap();
        let address = socket_address(&a);
        let still = StandsStill::begin();
        let connecting = tokio::task::spawn_blocking(move || TcpStream::connect(address).unwrap());
        let stream = connecting.await.unwrap();
        still.passes(Duration::from_secs(4)).await;
        let speaking = tokio::task::spawn_blocking(move || {
            let hello = Hello { flags: FLAG_TLS, ..good_hello() };
            let mut stranger = Stranger::greets(stream, Role::Dialler, &hello.encode());
            let mut client = Manner::member(&stranger).client();
            let mut flight = Vec::new();
            client.write_tls(&mut flight).unwrap();
            stranger.says(&flight);
            // The node's answer: the node waits for the rest.
            stranger.hears_proof();
            stranger
        });
        let stranger = speaking.await.unwrap();
        still.passes(Duration::from_millis(990)).await;
        assert_eq!(a.refusals(), Vec::<String>::new());
        still.passes(Duration::from_millis(20)).await;
        still.until(|| !a.refusals().is_empty()).await;
        assert!(
            a.refusals()[0].contains("tls handshake was not done in time"),
            "{:?}",
            a.refusals()
        );
        drop(stranger);
    });
}
