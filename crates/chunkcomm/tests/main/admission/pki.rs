//! TLS of the user's own: certificates that an authority signed.

use super::stranger::{Identity, Manner, Stranger};
use super::{cause, credential, other_seed, refused, seed};
use crate::support::raw::{good_hello, socket_address};
use crate::support::{limited, on_both, on_one_thread, pair_of, tcp};
use chunkcomm::proto::hello::{FLAG_TLS, Hello};
use chunkcomm::{HelloCause, Node, NodeBuilder};
use rcgen::{CertificateParams, CertifiedIssuer, DnType, KeyPair, PKCS_ED25519};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::sync::Arc;

/// One who signs certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Authority {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        Authority(CertifiedIssuer::self_signed(parameters, key).unwrap())
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        Arc::new(roots)
    }

    fn signs(&self, name: &str) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let parameters = CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = parameters.signed_by(&key, &self.0).unwrap();
        (certificate.into(), PrivatePkcs8KeyDer::from(key.serialize_der()).into())
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn client(trusted: &Authority, shown: &Authority) -> Arc<ClientConfig> {
    let (certificate, key) = shown.signs("node.lab");
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(trusted.roots())
        .with_client_auth_cert(vec![certificate], key);
    Arc::new(config.unwrap())
}

fn server(trusted: &Authority, shown: &Authority, asks: bool) -> Arc<ServerConfig> {
    let (certificate, key) = shown.signs("node.lab");
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(trusted.roots(), provider());
    let builder = if asks {
        builder.with_client_cert_verifier(verifier.build().unwrap())
    } else {
        builder.with_no_client_auth()
    };
    Arc::new(builder.with_single_cert(vec![certificate], key).unwrap())
}

/// A node that trusts an authority and shows what an authority signed.
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
        let cause_there = cause(limited(distrusts.connect(address)).await.unwrap_err());
        assert!(matches!(cause_there, HelloCause::Tls(_)), "{cause_there}");
        assert!(cause_there.to_string().contains("UnknownIssuer"), "{cause_there}");
        let pair = pair_of(tcp(), node(&lab, &lab), node(&lab, &lab)).await;
        let distrusted = node(&lab, &other).build().await.unwrap();
        // The one who dials is done first, and learns of it later.
        let _ = limited(distrusted.connect(&pair.a.addresses()[0])).await;
        refused(&pair, "distrusted", &["tls", "invalid peer certificate: UnknownIssuer"]).await;
    });
}

#[test]
fn another_name_is_refused() {
    on_one_thread(async {
        let lab = Authority::new("lab");
        let pair = pair_of(tcp(), node(&lab, &lab), node(&lab, &lab)).await;
        let strict =
            || Node::builder().tls_config(client(&lab, &lab), server(&lab, &lab, true), None);
        // By default the host that is dialled must be named, which is an address here.
        let third = strict().build().await.unwrap();
        let cause = cause(limited(third.connect(&pair.a.addresses()[0])).await.unwrap_err());
        assert!(cause.to_string().contains("not valid for name"), "{cause}");
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
        let _ = limited(b.connect(&a.addresses()[0])).await;
        crate::support::until(|| !a.refusals().is_empty()).await;
        assert!(a.refusals()[0].contains("showed no certificate"), "{:?}", a.refusals());
    });
}

#[test]
fn tls_12_is_not_spoken_though_the_configurations_allow_it() {
    on_one_thread(async {
        let lab = Authority::new("lab");
        let pair = pair_of(tcp(), node(&lab, &lab), node(&lab, &lab)).await;
        let node = socket_address(&pair.a);
        tokio::task::spawn_blocking(move || {
            let hello = Hello { flags: FLAG_TLS, ..good_hello() };
            let versions = vec![&rustls::version::TLS12];
            Stranger::dials(node, &hello).speaks_tls(|it| Manner {
                versions,
                identity: None,
                protocols: vec![it.binding()],
            });
        })
        .await
        .unwrap();
        refused(&pair, "tls 1.2", &["tls"]).await;
    });
}

#[test]
fn a_stranger_with_a_certificate_of_its_own_is_refused() {
    on_one_thread(async {
        let lab = Authority::new("lab");
        let pair = pair_of(tcp(), node(&lab, &lab), node(&lab, &lab)).await;
        let node = socket_address(&pair.a);
        tokio::task::spawn_blocking(move || {
            let hello = Hello { flags: FLAG_TLS, ..good_hello() };
            let identity = Some(Identity::of(&seed()));
            Stranger::dials(node, &hello)
                .speaks_tls(|it| Manner { identity, ..Manner::member(it) });
        })
        .await
        .unwrap();
        refused(&pair, "its own", &["tls", "invalid peer certificate: UnknownIssuer"]).await;
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
        let cause_there = cause(limited(third.connect(address)).await.unwrap_err());
        assert!(matches!(cause_there, HelloCause::Disagreement(_)), "{cause_there}");
        refused(&pair, "one", &["peer has no credential"]).await;
        let third = node(&lab, &lab).credential(credential(&other_seed())).build().await.unwrap();
        let cause_there = cause(limited(third.connect(address)).await.unwrap_err());
        assert!(matches!(cause_there, HelloCause::WrongProof), "{cause_there}");
    });
}
