//! Nodes with and without credentials, and strangers that fall silent.

use super::stranger::{Manner, Stranger, member_hello};
use super::{cause, credential, guarded, honest, other_seed, refused};
use chunkcomm::error::HelloCause;
use chunkcomm::proto::hello::Disagreement;
use chunkcomm::{Address, LinkEvent, Node, NodeBuilder, NodeError};
use chunkcomm_testkit::proxy::Proxy;
use chunkcomm_testkit::raw::{good_hello, socket_address};
use chunkcomm_testkit::still::{StandsStill, leap};
use chunkcomm_testkit::{
    Pair, free_path, limited, memory, on_both, on_one_thread, pair_of, tcp, until,
};
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

/// Returns the error of a node with `settings` that dials the honest one.
async fn dials(pair: &Pair, settings: NodeBuilder) -> HelloCause {
    let node = settings.name("third").build().await.unwrap();
    cause(limited(node.connect_within(&pair.a.addresses()[0], Duration::ZERO)).await.unwrap_err())
}

#[test]
fn members_find_each_other() {
    on_both(|| async {
        let pair = honest().await;
        pair.is_well("first").await;
        // The origin of a connection is known also when TLS lies over it.
        let told = limited(pair.a.events().next()).await;
        let Some(LinkEvent::Connected { peer }) = told else { panic!("{told:?}") };
        assert!(matches!(peer.address(), Some(Address::Tcp { host, .. }) if host == "127.0.0.1"));
        let (mut sender, mut receiver) = pair.bytes_back("large").await;
        let large: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
        let large = bytes::Bytes::from(large);
        let sending = large.clone();
        let sent = tokio::spawn(async move {
            sender.send(sending).await.unwrap();
            sender.sync().await.unwrap();
        });
        assert_eq!(limited(receiver.recv()).await.unwrap().unwrap(), large);
        limited(sent).await.unwrap();
        pair.b.close(Duration::from_secs(5)).await.unwrap();
    });
}

#[test]
fn another_credential_is_refused_at_both_ends() {
    on_both(|| async {
        let pair = honest().await;
        let cause = dials(&pair, Node::builder().credential(credential(&other_seed()))).await;
        assert!(matches!(cause, HelloCause::WrongProof), "{cause}");
        refused(&pair, "another", &["did not prove"]).await;
    });
}

#[test]
fn no_credential_is_refused_at_both_ends_and_both_say_which() {
    on_both(|| async {
        let pair = honest().await;
        let cause = dials(&pair, Node::builder()).await;
        assert!(
            matches!(cause, HelloCause::Disagreement(Disagreement::Credential { ours: false })),
            "{cause}"
        );
        refused(&pair, "none", &["peer has no credential"]).await;
        let plain = pair_of(tcp(), Node::builder(), Node::builder()).await;
        let cause = dials(&plain, guarded()).await;
        assert!(
            matches!(cause, HelloCause::Disagreement(Disagreement::Credential { ours: true })),
            "{cause}"
        );
        refused(&plain, "some", &["peer wants a credential"]).await;
    });
}

#[cfg(unix)]
#[test]
fn a_unix_socket_asks_for_the_credential_too() {
    on_one_thread(async {
        let address = Address::Unix(free_path("admission"));
        let pair = pair_of(address, guarded(), guarded()).await;
        pair.is_well("member").await;
        let cause = dials(&pair, Node::builder()).await;
        assert!(matches!(cause, HelloCause::Disagreement(_)), "{cause}");
        let cause = dials(&pair, Node::builder().credential(credential(&other_seed()))).await;
        assert!(matches!(cause, HelloCause::WrongProof), "{cause}");
        refused(&pair, "unix", &["did not prove"]).await;
    });
}

#[test]
fn memory_asks_for_nothing() {
    on_one_thread(async {
        let pair = pair_of(memory(), guarded(), Node::builder()).await;
        pair.is_well("memory").await;
        let alone = guarded().build().await.unwrap();
        let peer = alone.local().await.unwrap();
        Pair { a: alone.clone(), b: alone, peer }.is_well("itself").await;
    });
}

#[test]
fn members_may_be_reached_from_other_machines_and_nobody_else() {
    on_one_thread(async {
        let anywhere: Address = "0.0.0.0:0".parse().unwrap();
        let error = Node::builder().listen(anywhere.clone()).build().await.unwrap_err();
        assert!(matches!(error, NodeError::BeyondLoopback { .. }), "{error}");
        assert!(error.to_string().contains("credential"), "{error}");
        guarded().listen(anywhere.clone()).build().await.unwrap();
        Node::builder().listen(anywhere).insecure_bind_beyond_loopback().build().await.unwrap();
    });
}

#[test]
fn a_credential_file_that_is_not_there_is_an_error_that_names_it() {
    on_one_thread(async {
        let settings = Node::builder().credential_file("/nowhere/at all");
        let error = settings.build().await.unwrap_err();
        assert!(matches!(error, NodeError::Credential(_)), "{error}");
        assert!(error.to_string().contains("/nowhere/at all"), "{error}");
    });
}

#[test]
fn settings_do_not_show_the_credential() {
    let text = format!("{:?}", guarded());
    assert!(text.contains("Credential(..)") && !text.contains("070707"), "{text}");
}

#[test]
fn those_who_fall_silent_are_refused_after_a_while() {
    on_one_thread(async {
        let node = guarded().name("a").listen(tcp()).build().await.unwrap();
        let address = socket_address(&node);
        let strangers = tokio::task::spawn_blocking(move || {
            let silent = TcpStream::connect(address).unwrap();
            let mut slow = TcpStream::connect(address).unwrap();
            for byte in &member_hello().encode()[..100] {
                slow.write_all(&[*byte]).unwrap();
            }
            let greeted = Stranger::dials(address, &member_hello());
            let mut proving = Stranger::dials(address, &member_hello());
            let proof = proving.good_proof();
            proving.says(&proof[..16]);
            let mut proved = Stranger::dials(address, &member_hello());
            proved.proves();
            let mut shaking = Stranger::dials(address, &member_hello());
            shaking.proves();
            let mut client = Manner::member(&shaking).client();
            let mut flight = Vec::new();
            client.write_tls(&mut flight).unwrap();
            for byte in &flight[..flight.len() / 2] {
                shaking.says(&[*byte]);
            }
            ((silent, slow), [greeted, proving, proved, shaking])
        });
        let strangers = strangers.await.unwrap();
        assert_eq!(node.refusals(), Vec::<String>::new());
        leap(Duration::from_secs(6)).await;
        until(|| node.refusals().len() == 6).await;
        let refusals = node.refusals();
        let count = |text| refusals.iter().filter(|refusal| refusal.contains(text)).count();
        assert_eq!(count("no hello came in time"), 2, "{refusals:?}");
        assert_eq!(count("did not prove in time"), 2, "{refusals:?}");
        assert_eq!(count("tls handshake was not done in time"), 2, "{refusals:?}");
        drop(strangers);
        let b = guarded().name("b").build().await.unwrap();
        let peer = b.connect(&node.addresses()[0]).await.unwrap();
        Pair { a: node, b, peer }.is_well("honest").await;
    });
}

#[test]
fn where_nothing_is_proved_a_stranger_has_five_seconds_until_it_names_a_session() {
    on_one_thread(async {
        let node = Node::builder().name("a").listen(tcp()).build().await.unwrap();
        let address = socket_address(&node);
        let still = StandsStill::begin();
        let mut stranger = tokio::net::TcpStream::connect(address).await.unwrap();
        still.passes(Duration::from_secs(4)).await;
        stranger.write_all(&good_hello().encode()).await.unwrap();
        still.passes(Duration::from_millis(990)).await;
        assert_eq!(node.refusals(), Vec::<String>::new());
        still.passes(Duration::from_millis(20)).await;
        assert_eq!(node.refusals().len(), 1, "it keeps its place");
        drop(stranger);
    });
}

/// Places for strangers that a node has at the same time.
const PLACES: usize = 64;

/// Returns how many of these the node did not hang up on.
fn still_there(strangers: &[tokio::net::TcpStream]) -> usize {
    let there = |stream: &&tokio::net::TcpStream| loop {
        match stream.try_read(&mut [0; 256]) {
            Ok(0) => return false,
            // The node's hello.
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
        }
    };
    strangers.iter().filter(there).count()
}

#[test]
fn many_silent_strangers_make_way_for_a_peer() {
    on_one_thread(async {
        let node = guarded().name("a").listen(tcp()).build().await.unwrap();
        let address = socket_address(&node);
        let mut strangers = Vec::new();
        for _ in 0..200 {
            strangers.push(tokio::net::TcpStream::connect(address).await.unwrap());
        }
        let b = guarded().name("b").build().await.unwrap();
        // The strangers stay, and no deadline of theirs passes.
        let peer = limited(b.connect(&node.addresses()[0])).await.unwrap();
        assert!(node.refusals().iter().all(|refusal| refusal.contains("too many connected")));
        assert!(!node.refusals().is_empty());
        // The strangers that have a place are still there; the node hangs up on the others.
        until(|| still_there(&strangers) <= PLACES).await;
        assert!(still_there(&strangers) >= PLACES - 2);
        Pair { a: node, b, peer }.is_well("honest").await;
    });
}

/// Lets members that prove themselves take all places, and say nothing more.
async fn all_places_stall(node: &Node) -> Vec<Stranger> {
    let address = socket_address(node);
    let stall = move || Stranger::dials(address, &member_hello()).proved();
    let stalled = tokio::task::spawn_blocking(move || (0..PLACES).map(|_| stall()).collect());
    limited(stalled).await.unwrap()
}

#[test]
fn members_that_prove_themselves_and_stall_make_way_for_a_peer() {
    on_one_thread(async {
        let node = guarded().name("a").listen(tcp()).build().await.unwrap();
        let stalled = all_places_stall(&node).await;
        let b = guarded().name("b").build().await.unwrap();
        // The strangers stay, and no deadline of theirs passes.
        let address = node.addresses()[0].clone();
        let peer = limited(b.connect_within(&address, Duration::ZERO)).await.unwrap();
        assert!(node.refusals().iter().all(|refusal| refusal.contains("too many connected")));
        assert!(!node.refusals().is_empty());
        Pair { a: node, b, peer }.is_well("honest").await;
        drop(stalled);
    });
}

#[test]
fn members_that_prove_themselves_and_stall_make_way_for_a_link_that_was_cut() {
    on_one_thread(async {
        let node = guarded().name("a").listen(tcp()).build().await.unwrap();
        let proxy = Proxy::before(&node);
        let b = guarded().name("b").build().await.unwrap();
        let peer = limited(b.connect(&proxy.address)).await.unwrap();
        let pair = Pair { a: node, b, peer };
        pair.is_well("before").await;
        let stalled = all_places_stall(&pair.a).await;
        proxy.cut();
        pair.is_well("after").await;
        // The link did not wait for a deadline of the strangers.
        let refusals = pair.a.refusals();
        assert!(refusals.iter().all(|it| it.contains("too many connected")), "{refusals:?}");
        assert!(!refusals.is_empty());
        drop(stalled);
    });
}

#[test]
fn more_peers_at_once_than_there_are_places_need_no_second_try() {
    on_one_thread(async {
        let node = guarded().name("a").listen(tcp()).build().await.unwrap();
        let address = node.addresses()[0].clone();
        let mut connecting = tokio::task::JoinSet::new();
        for _ in 0..160 {
            let b = guarded().name("b").build().await.unwrap();
            let address = address.clone();
            connecting.spawn(async move {
                b.connect_within(&address, Duration::ZERO).await.map(|peer| (b, peer))
            });
        }
        let mut pairs = Vec::new();
        while let Some(connected) = connecting.join_next().await {
            pairs.push(connected.unwrap().unwrap());
        }
        assert_eq!(node.refusals(), Vec::<String>::new());
        let (b, peer) = pairs.pop().unwrap();
        Pair { a: node, b, peer }.is_well("one of many").await;
    });
}
