//! A process that may open no more file descriptors: no stranger gets in meanwhile, everything else
//! goes on, and afterwards all is as before.

use chunkcomm::Node;
use chunkcomm::proto::hello::HELLO_BYTES;
use chunkcomm_testkit::events::Events;
use chunkcomm_testkit::raw::socket_address;
use chunkcomm_testkit::{Pair, itself, limited, on_one_thread, pair, until};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use tokio::io::AsyncReadExt;
use tokio::net::TcpSocket;

/// Variable that is set for the process of the test, since the limit is the whole process's.
const ALONE: &str = "CHUNKCOMM_TEST_EXHAUSTED";

/// Opens files until that fails.
fn use_up_descriptors() -> Vec<File> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum }).unwrap();
    let files: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert!(files.len() < 64);
    files
}

#[test]
fn a_node_without_descriptors_goes_on_and_accepts_again_afterwards() {
    if std::env::var_os(ALONE).is_none() {
        let name = "exhausted::a_node_without_descriptors_goes_on_and_accepts_again_afterwards";
        let output = itself(name).env(ALONE, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    let events = Events::default();
    let _guard = events.listen();
    let failed = || events.count(&["WARN", "no connection can be accepted", "os error 24"]);
    on_one_thread(async {
        let pair = pair().await;
        for round in 1..=3 {
            // This socket gets its descriptor before there are no more.
            let early = TcpSocket::new_v4().unwrap();
            let files = use_up_descriptors();
            let mut early = early.connect(socket_address(&pair.a)).await.unwrap();
            until(|| failed() == round).await;
            pair.is_well("meanwhile").await;
            assert_eq!(failed(), round, "told once, however often it is tried");
            drop(files);
            // The connection from before waited in the system's queue, and is greeted now.
            let mut hello = [0; HELLO_BYTES];
            limited(early.read_exact(&mut hello)).await.unwrap();
            drop(early);
            let b = Node::builder().name("third").build().await.unwrap();
            let peer = limited(b.connect(&pair.a.addresses()[0])).await.unwrap();
            Pair { a: pair.a.clone(), b, peer }.is_well("afterwards").await;
        }
        pair.is_well("at last").await;
    });
}
