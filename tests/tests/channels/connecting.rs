//! `connect` tries until the peer is there, for a while or for ever.

use chunkcomm::error::HelloCause;
use chunkcomm::{Address, ConnectError, Node};
use chunkcomm_testkit::raw::RawPeer;
use chunkcomm_testkit::still::StandsStill;
use chunkcomm_testkit::{limited, memory, on_both, on_one_thread, own_host, stays, tcp, waiting};
use std::io::ErrorKind;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

/// Returns an address at which nobody listens.
fn closed_port() -> Address {
    let listener = std::net::TcpListener::bind((own_host(), 0)).unwrap();
    listener.local_addr().unwrap().into()
}

async fn node() -> Node {
    Node::builder().build().await.unwrap()
}

/// Returns how long connecting was tried, and the text of the error.
fn tried(error: &ConnectError) -> (Duration, String) {
    match error {
        ConnectError::Unreachable { tried, .. } | ConnectError::Hello { tried, .. } => {
            (*tried, error.to_string())
        }
        error => panic!("{error}"),
    }
}

#[test]
fn a_peer_that_starts_a_little_later_is_reached() {
    on_both(|| async {
        let (address, b) = (memory(), node().await);
        let dialled = address.clone();
        let dialling = tokio::spawn(async move { b.connect(&dialled).await.map(|peer| (b, peer)) });
        stays("the dialler tries again after refusals", || !dialling.is_finished()).await;
        let _a = Node::builder().name("late").listen(address).build().await.unwrap();
        let (_b, peer) = limited(dialling).await.unwrap().unwrap();
        assert_eq!(peer.name(), "late");
    });
}

/// Dialled in every moment of its beginning, a node goes on to accept.
#[test]
fn a_node_that_is_dialled_while_it_is_built_accepts() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(4).enable_all();
    runtime.build().unwrap().block_on(async {
        for round in 0..300 {
            let (address, b) = (memory(), node().await);
            let dialled = address.clone();
            let dialling = tokio::spawn(async move {
                // Without rests.
                while b.connect_within(&dialled, Duration::ZERO).await.is_err() {}
            });
            tokio::task::yield_now().await;
            let a = Node::builder().listen(address.clone()).build().await.unwrap();
            let reached = node().await.connect_within(&address, Duration::from_secs(5)).await;
            assert!(reached.is_ok(), "round {round}: {}", reached.unwrap_err());
            limited(dialling).await.unwrap();
            drop(a);
        }
    });
}

#[test]
fn a_connection_that_is_cut_within_the_hello_is_dialled_again() {
    on_both(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: Address = listener.local_addr().unwrap().into();
        let b = node().await;
        let (peer, _raw) = limited(async {
            tokio::join!(b.connect(&address), async {
                let (nothing, _) = listener.accept().await.unwrap();
                drop(nothing);
                let (mut some, _) = listener.accept().await.unwrap();
                some.write_all(b"\x9c").await.unwrap();
                drop(some);
                RawPeer::accept(&listener).await
            })
        })
        .await;
        assert_eq!(peer.unwrap().name(), "raw");
    });
}

#[test]
fn after_the_deadline_the_last_cause_and_how_long_it_was_tried_are_named() {
    on_one_thread(async {
        for address in [closed_port(), memory()] {
            let b = node().await;
            let within = Duration::from_millis(200);
            let error = limited(b.connect_within(&address, within)).await.unwrap_err();
            assert!(
                matches!(&error, ConnectError::Unreachable { error, .. }
                if error.kind() == ErrorKind::ConnectionRefused),
                "{error}"
            );
            assert!(error.may_pass());
            let (time, text) = tried(&error);
            assert!(!time.is_zero(), "{text}");
            assert!(text.contains(&format!("(tried for {:.1} s)", time.as_secs_f64())), "{text}");
            // One attempt.
            let error = limited(b.connect_within(&address, Duration::ZERO)).await.unwrap_err();
            let (time, text) = tried(&error);
            assert!(time.is_zero() && !text.contains("tried"), "{text}");
        }
    });
}

#[test]
fn the_deadline_of_a_node_is_its_builders() {
    on_one_thread(async {
        let once = Node::builder().connect_deadline(Duration::ZERO).build().await.unwrap();
        let still = StandsStill::begin();
        let error = limited(once.connect(&memory())).await.unwrap_err();
        assert!(tried(&error).0.is_zero(), "{error}");
        still.end("once");
    });
}

#[test]
fn the_default_deadline_is_ten_seconds() {
    on_one_thread(async {
        let b = node().await;
        tokio::time::pause();
        let begun = tokio::time::Instant::now();
        let error = b.connect(&memory()).await.unwrap_err();
        let took = begun.elapsed();
        // The next attempt would have come after the deadline.
        assert!(took > Duration::from_secs(8) && took <= Duration::from_secs(10), "{took:?}");
        assert!(tried(&error).1.contains("(tried for "), "{error}");
    });
}

#[test]
fn what_cannot_pass_by_itself_is_said_at_once() {
    on_one_thread(async {
        let lab = Node::builder().cluster("lab").listen(tcp()).build().await.unwrap();
        let b = node().await;
        let garbage = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let web: Address = garbage.local_addr().unwrap().into();
        let answers = tokio::spawn(async move {
            let (mut stream, _) = garbage.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
            stream
        });
        for address in [&lab.addresses()[0], &web] {
            let error = limited(b.connect_within(address, Duration::MAX)).await.unwrap_err();
            assert!(
                matches!(
                    &error,
                    ConnectError::Hello {
                        cause: HelloCause::Disagreement(_) | HelloCause::Wrong(_),
                        ..
                    }
                ),
                "{error}"
            );
            assert!(!error.may_pass() && tried(&error).0.is_zero(), "{error}");
        }
        answers.await.unwrap();
    });
}

#[test]
fn without_a_deadline_it_waits_in_the_background_until_the_peer_is_there() {
    on_one_thread(async {
        let (address, b) = (memory(), node().await);
        let (dialler, dialled) = (b.clone(), address.clone());
        let dialling =
            tokio::spawn(async move { dialler.connect_within(&dialled, Duration::MAX).await });
        tokio::time::pause();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!dialling.is_finished());
        let _a = Node::builder().name("a").listen(address).build().await.unwrap();
        assert_eq!(dialling.await.unwrap().unwrap().name(), "a");
    });
}

#[test]
fn closing_the_node_ends_it() {
    on_both(|| async {
        let b = node().await;
        let dialler = b.clone();
        let dialling =
            waiting(async move { dialler.connect_within(&memory(), Duration::MAX).await }).await;
        limited(b.close(Duration::from_secs(5))).await.unwrap();
        let error = limited(dialling).await.unwrap().unwrap_err();
        assert!(matches!(error, ConnectError::Closed), "{error}");
    });
}

#[test]
fn opening_over_a_session_that_ended_waits_for_the_peer_to_be_back() {
    on_both(|| async {
        let (address, b) = (memory(), node().await);
        let a = Node::builder().name("a").listen(address.clone()).build().await.unwrap();
        let peer = b.connect(&address).await.unwrap();
        limited(a.close(Duration::from_secs(5))).await.unwrap();
        drop(a);
        limited(peer.closed()).await;
        let opening = tokio::spawn(async move { b.open::<u64>(&peer, "again").await });
        stays("it waits for the peer", || !opening.is_finished()).await;
        let a = Node::builder().name("a").listen(address).build().await.unwrap();
        let mut sender = limited(opening).await.unwrap().unwrap();
        sender.send(&7).await.unwrap();
        let (_, mut receiver) = limited(a.accept::<u64>("again")).await.unwrap();
        assert_eq!(limited(receiver.recv()).await.unwrap(), Some(7));
    });
}
