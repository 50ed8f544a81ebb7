//! TLS of users: certificates that an authority signed.

use super::stranger::{Identity, Manner, Stranger};
use super::{cause, credential, other_seed, refused, refused_at_once, seed};
use chunkcomm::error::{HelloCause, LinkCause};
use chunkcomm::proto::credential::Role;
use chunkcomm::proto::hello::{FLAG_TLS, Hello};
use chunkcomm::{Node, NodeBuilder, Silence, channel, with_causes};
use chunkcomm_testkit::authority::{Authority, client, client_with, server_with};
use chunkcomm_testkit::proxy::Proxy;
use chunkcomm_testkit::raw::{good_hello, socket_address};
use chunkcomm_testkit::still::StandsStill;
use chunkcomm_testkit::{Pair, limited, on_both, on_one_thread, pair_of, tcp};
use rustls::client::ResolvesClientCert;
use rustls::pki_types::ServerName;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ServerConfig, SignatureScheme};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
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

/// An end that shows the first of two certificates until it is told to show the other.
#[derive(Debug)]
struct Renewed {
    keys: [Arc<CertifiedKey>; 2],
    other: AtomicBool,
}

impl Renewed {
    fn by(authority: &Authority) -> Arc<Renewed> {
        let ring = rustls::crypto::ring::default_provider();
        let keys = [(); 2].map(|()| {
            let (certificate, key) = authority.signs("node.lab");
            Arc::new(CertifiedKey::from_der(vec![certificate], key, &ring).unwrap())
        });
        Arc::new(Renewed { keys, other: AtomicBool::new(false) })
    }

    fn shown(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.keys[usize::from(self.other.load(SeqCst))])
    }

    /// Returns a node that shows its certificates, whichever end it is.
    fn node(self: &Arc<Renewed>, lab: &Authority) -> NodeBuilder {
        let mut dials = ClientConfig::clone(&client(lab, lab));
        dials.client_auth_cert_resolver = Arc::clone(self) as _;
        let mut listens = ServerConfig::clone(&server(lab, lab, true));
        listens.cert_resolver = Arc::clone(self) as _;
        let name = ServerName::try_from("node.lab").unwrap();
        Node::builder().tls_config(Arc::new(dials), Arc::new(listens), Some(name))
    }
}

impl ResolvesClientCert for Renewed {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.shown())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ResolvesServerCert for Renewed {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.shown())
    }
}

#[test]
fn a_peer_is_known_by_its_certificate_after_each_lost_connection() {
    on_both(|| async {
        let lab = Authority::new("lab");
        let (of_a, of_b) = (Renewed::by(&lab), Renewed::by(&lab));
        let a = of_a.node(&lab).listen(tcp()).build().await.unwrap();
        let b = of_b.node(&lab).build().await.unwrap();
        let proxy = Proxy::before(&a);
        let peer = limited(b.connect(&proxy.address)).await.unwrap();
        assert_eq!(peer.certificates(), of_a.shown().cert);
        let pair = Pair { a, b, peer };
        for cut in 0..3 {
            let (mut sender, mut receiver) = pair.channel::<u64>("here").await;
            assert_eq!(receiver.peer().certificates(), of_b.shown().cert, "{cut}");
            proxy.cut();
            sender.send(&cut).await.unwrap();
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some(cut));
        }
        // A credential names nobody, and neither does a path in this process.
        let here = limited(pair.a.local()).await.unwrap();
        assert_eq!(here.certificates(), []);
        let member = || Node::builder().credential(credential(&seed()));
        let members = pair_of(tcp(), member(), member()).await;
        assert_eq!(members.peer.certificates(), []);
    });
}

#[test]
fn another_certificate_does_not_resume_a_session() {
    on_both(|| async {
        let lab = Authority::new("lab");
        // The end that was dialled judges the dialler, and the dialler the other.
        for dialler_renews in [true, false] {
            let (of_a, of_b) = (Renewed::by(&lab), Renewed::by(&lab));
            let ms = Duration::from_millis;
            let silence = Silence { probe: ms(20), suspect: ms(100), dead: ms(1_500) };
            let a = of_a.node(&lab).listen(tcp()).silence(silence).build().await.unwrap();
            let b = of_b.node(&lab).silence(silence).build().await.unwrap();
            let proxy = Proxy::before(&a);
            let peer = limited(b.connect(&proxy.address)).await.unwrap();
            let pair = Pair { a, b, peer };
            let (mut sender, mut receiver) = pair.channel::<u64>("here").await;
            let before = receiver.peer().clone();
            if dialler_renews { &of_b } else { &of_a }.other.store(true, SeqCst);
            proxy.cut();
            let _ = sender.send(&1).await;
            let ended = limited(pair.peer.closed()).await;
            // The message may have passed before the cut.
            let first = limited(receiver.recv()).await;
            assert!(first.is_err() || limited(receiver.recv()).await.is_err());
            assert_eq!(before.certificates(), of_b.keys[0].cert);
            // Each is judged at once, and has ended once the other has judged it.
            match ended.cause() {
                LinkCause::Forgotten => assert!(dialler_renews),
                LinkCause::Restarted => assert!(!dialler_renews),
                cause => panic!("{cause:?}"),
            }
            // The next session is by the new ones.
            let peer = limited(pair.b.connect(&proxy.address)).await.unwrap();
            assert_eq!(peer.certificates(), of_a.shown().cert);
            let (_sender, receiver) = Pair { peer, ..pair }.channel::<u64>("again").await;
            assert_eq!(receiver.peer().certificates(), of_b.shown().cert);
        }
    });
}

#[test]
fn a_dialled_peer_is_the_one_whose_certificate_was_verified() {
    on_both(|| async {
        let lab = Authority::new("lab");
        let (of_a, of_b) = (Renewed::by(&lab), Renewed::by(&lab));
        let a = of_a.node(&lab).listen(tcp()).build().await.unwrap();
        let b = of_b.node(&lab).build().await.unwrap();
        let first = limited(b.connect(&a.addresses()[0])).await.unwrap();
        assert_eq!(limited(b.connect(&a.addresses()[0])).await.unwrap(), first);
        // The same incarnation by another certificate is another peer.
        of_a.other.store(true, SeqCst);
        of_b.other.store(true, SeqCst);
        let second = limited(b.connect(&a.addresses()[0])).await.unwrap();
        assert_eq!(second.incarnation(), first.incarnation());
        assert_eq!(first.certificates(), of_a.keys[0].cert);
        assert_eq!(second.certificates(), of_a.keys[1].cert);
        assert!(first.is_alive());
        let _sender = b.open::<u64>(&second, "here").await.unwrap();
        // A channel of one is not taken for one of the other.
        let (_, receiver) = limited(a.accept::<u64>("here")).await.unwrap();
        let its_second = receiver.peer().clone();
        let _sender = b.open::<u64>(&first, "of the first").await.unwrap();
        let (its_first, _receiver) = limited(a.accept::<u64>("of the first")).await.unwrap();
        assert_ne!(its_first, its_second);
        let mut other = b.open::<u64>(&second, "both").await.unwrap();
        other.send(&1).await.unwrap();
        limited(other.sync()).await.unwrap();
        let _sender = b.open::<u64>(&first, "both").await.unwrap();
        let of_first = channel("both").from_peer(&its_first);
        let (peer, _receiver) = limited(a.accept::<u64>(of_first)).await.unwrap();
        assert_eq!(peer, its_first);
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
