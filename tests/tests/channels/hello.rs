//! Strangers: connections that are no peers, on both sides.

use chunkcomm::error::HelloCause;
use chunkcomm::proto::hello::{Disagreement, HELLO_BYTES, Hello, HelloError, Name};
use chunkcomm::{ConnectError, Limits, Node};
use chunkcomm_testkit::raw::{RawPeer, good_hello, socket_address};
use chunkcomm_testkit::still::leap;
use chunkcomm_testkit::{Pair, limited, on_both, on_one_thread, tcp, until, windows_of};
use std::io::Write;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Returns a node that listens, and an honest one with a link to it.
async fn listening() -> Pair {
    chunkcomm_testkit::pair().await
}

/// Checks that a listening node refuses `bytes` with these words, and that no link of it suffers.
/// The stranger gets at most the node's hello before the node hangs up.
async fn refused(pair: &Pair, bytes: &[u8], hang_up: bool, words: &[&str]) {
    let before = pair.a.refusals().len();
    let mut stream = TcpStream::connect(socket_address(&pair.a)).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    if hang_up {
        stream.shutdown().await.unwrap();
    }
    let mut got = Vec::new();
    // The node sends its hello, and nothing more.
    let _ = limited(stream.read_to_end(&mut got)).await;
    assert!(got.len() <= HELLO_BYTES, "{} bytes for a stranger", got.len());
    until(|| pair.a.refusals().len() > before).await;
    let refusal = pair.a.refusals().pop().unwrap();
    for word in words {
        assert!(refusal.contains(word), "{word:?} is not in {refusal:?}");
    }
    pair.is_well("honest").await;
}

fn other_version() -> Hello {
    Hello { version_min: 7, version_max: 9, ..good_hello() }
}

fn other_codec() -> Hello {
    Hello { codec: 77, ..good_hello() }
}

fn other_cluster() -> Hello {
    Hello { cluster: Name::new("elsewhere").unwrap(), ..good_hello() }
}

#[test]
fn a_listening_node_refuses_strangers_and_says_why() {
    on_both(|| async {
        let pair = listening().await;
        let web = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
        refused(&pair, web, false, &["another protocol", "GET / HT"]).await;
        refused(&pair, &[0; 8], false, &["another protocol"]).await;
        refused(&pair, &other_version().encode(), false, &["7 to 9"]).await;
        let turned = Hello { version_min: 9, version_max: 7, ..good_hello() };
        refused(&pair, &turned.encode(), false, &["9 to 7"]).await;
        refused(&pair, &other_codec().encode(), false, &["codec", "77"]).await;
        refused(&pair, &other_cluster().encode(), false, &["default", "elsewhere"]).await;
        let whole = good_hello().encode();
        refused(&pair, &[], true, &["before the hello"]).await;
        refused(&pair, &whole[..8], true, &["before the hello"]).await;
        refused(&pair, &whole[..HELLO_BYTES - 1], true, &["before the hello"]).await;
        let mut long_name = whole;
        long_name[28] = 200;
        refused(&pair, &long_name, false, &["cluster name"]).await;
        let mut not_text = whole;
        (not_text[29], not_text[96]) = (1, 0xFF);
        refused(&pair, &not_text, false, &["node name"]).await;
    });
}

#[test]
fn the_memory_for_refusals_is_bounded() {
    on_one_thread(async {
        let pair = listening().await;
        for _ in 0..100 {
            let mut stream = TcpStream::connect(socket_address(&pair.a)).await.unwrap();
            stream.write_all(b"garbage!").await.unwrap();
        }
        pair.is_well("honest").await;
        assert!(pair.a.refusals().len() <= 16);
    });
}

/// Lets a listener answer the dialling node with `bytes`, then hang up or stay silent; returns the
/// dialling node's error.
async fn answered(bytes: &[u8], hang_up: bool) -> HelloCause {
    let pair = listening().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().into();
    let answer = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut hello = [0; HELLO_BYTES];
        stream.read_exact(&mut hello).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        if hang_up {
            drop(stream);
            None
        } else {
            Some(stream)
        }
    };
    let (outcome, _stream) =
        limited(async { tokio::join!(pair.b.connect_within(&address, Duration::ZERO), answer) })
            .await;
    let error = outcome.unwrap_err();
    pair.is_well("other links").await;
    let text = error.to_string();
    assert!(text.contains(&address.to_string()), "{text} does not name {address}");
    match error {
        ConnectError::Hello { cause, .. } => cause,
        other => panic!("{other}"),
    }
}

#[test]
fn a_dialling_node_says_what_does_not_fit() {
    on_both(|| async {
        let web = answered(b"HTTP/1.1 400 Bad Request\r\n\r\n", false).await;
        let HelloCause::Wrong(HelloError::Magic { found }) = web else { panic!("{web}") };
        assert_eq!(&found, b"HTTP/1.1");
        let version = answered(&other_version().encode(), false).await;
        assert!(
            matches!(
                version,
                HelloCause::Disagreement(Disagreement::Versions { theirs: (7, 9), .. })
            ),
            "{version}"
        );
        let codec = answered(&other_codec().encode(), false).await;
        assert!(matches!(codec, HelloCause::Disagreement(Disagreement::Codec { theirs: 77, .. })));
        let cluster = answered(&other_cluster().encode(), false).await;
        let HelloCause::Disagreement(Disagreement::Cluster { ours, theirs }) = cluster else {
            panic!("{cluster}")
        };
        assert_eq!((ours.as_str(), theirs.as_str()), ("default", "elsewhere"));
        let cut = answered(&good_hello().encode()[..100], true).await;
        assert!(matches!(cut, HelloCause::Io(_)), "{cut}");
        let nothing = answered(&[], true).await;
        assert!(matches!(nothing, HelloCause::Io(_)), "{nothing}");
    });
}

#[test]
fn a_stranger_that_says_nothing_is_refused_after_a_while() {
    on_one_thread(async {
        let node = Node::builder().name("a").listen(tcp()).build().await.unwrap();
        // Plain sockets: only the node's deadline waits for the time.
        let silent = std::net::TcpStream::connect(socket_address(&node)).unwrap();
        let mut slow = std::net::TcpStream::connect(socket_address(&node)).unwrap();
        slow.write_all(&good_hello().encode()[..20]).unwrap();
        assert_eq!(node.refusals(), Vec::<String>::new());
        leap(Duration::from_secs(6)).await;
        until(|| node.refusals().len() == 2).await;
        assert!(node.refusals().iter().all(|refusal| refusal.contains("in time")));
        drop((silent, slow));
        let b = Node::builder().name("b").build().await.unwrap();
        let peer = b.connect(&node.addresses()[0]).await.unwrap();
        Pair { a: node, b, peer }.is_well("honest").await;
    });
}

#[test]
fn a_listener_that_says_nothing_is_given_up_after_a_while() {
    on_one_thread(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().into();
        let node = Node::builder().build().await.unwrap();
        let dialling =
            tokio::spawn(async move { node.connect_within(&address, Duration::ZERO).await });
        let (mut silent, _) = listener.accept().await.unwrap();
        silent.read_exact(&mut [0; HELLO_BYTES]).await.unwrap();
        assert!(!dialling.is_finished());
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(6)).await;
        let error = dialling.await.unwrap().unwrap_err();
        assert!(matches!(error, ConnectError::Hello { cause: HelloCause::Timeout, .. }), "{error}");
    });
}

#[test]
fn many_silent_strangers_do_not_lock_out_a_peer() {
    on_one_thread(async {
        let node = Node::builder().name("a").listen(tcp()).build().await.unwrap();
        let mut strangers = Vec::new();
        for _ in 0..100 {
            strangers.push(TcpStream::connect(socket_address(&node)).await.unwrap());
        }
        let b = Node::builder().name("b").build().await.unwrap();
        let peer = limited(b.connect(&node.addresses()[0])).await.unwrap();
        Pair { a: node, b, peer }.is_well("honest").await;
        drop(strangers);
    });
}

#[test]
fn the_hello_names_the_node_and_its_limits() {
    on_one_thread(async {
        let settings = Node::builder()
            .name("modest")
            .cluster("default")
            .limits(Limits { message_bytes_max: 100_000, ..windows_of(64 * 1024) })
            .listen(tcp());
        let node = settings.build().await.unwrap();
        let raw = RawPeer::connect(&node).await;
        assert_eq!(raw.theirs.node.as_str(), "modest");
        assert_eq!(raw.theirs.message_bytes_max, 100_000);
        assert_eq!(raw.theirs.open_credit, 32 * 1024);
        assert_eq!(raw.theirs.initial_window, 16 * 1024);
    });
}

#[test]
fn nodes_of_one_cluster_find_each_other_and_others_do_not() {
    on_both(|| async {
        let node = |name: &str| Node::builder().cluster(name);
        let lab = node("lab").name("a").listen(tcp()).build().await.unwrap();
        let address = &lab.addresses()[0];
        let other = node("other lab").build().await.unwrap();
        let error = other.connect_within(address, Duration::ZERO).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("\"lab\"") && text.contains("\"other lab\""), "{text}");
        until(|| lab.refusals().len() == 1).await;
        let b = node("lab").name("b").build().await.unwrap();
        let peer = b.connect(address).await.unwrap();
        Pair { a: lab, b, peer }.is_well("same cluster").await;
    });
}
