//! Sessions that go over to a Unix socket, since both nodes are on one host.

use chunkcomm::explain::Way;
use chunkcomm::host::SAME_HOST_VARIABLE;
use chunkcomm::settings::NodeSettings;
use chunkcomm::{Address, Credential, LinkEvent, Node, NodeBuilder, NodeError};
use chunkcomm_testkit::authority::{Authority, client, server_with};
use chunkcomm_testkit::random::seeded;
use chunkcomm_testkit::{Pair, itself, limited, on_both, on_one_thread, pair_of, tcp, until};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::LazyLock;
use std::time::Duration;

pub(crate) fn member() -> NodeBuilder {
    static CREDENTIAL: LazyLock<Credential> = LazyLock::new(|| Credential::generate().unwrap());
    Node::builder().credential(CREDENTIAL.clone())
}

/// Returns the way of the link as the dialler and as the listening node see it.
async fn ways(pair: &Pair) -> [Way; 2] {
    let explained = limited(pair.a.explain()).await;
    [pair.peer.way(), explained.links[0].way]
}

/// Checks that the pair's link is over TCP, that the dialler says `why`, and that messages pass.
async fn stays_with_tcp(pair: Pair, why: &str) {
    let [dialler, listener] = ways(&pair).await;
    assert!(matches!(dialler, Way::Tcp { why: said } if said.contains(why)), "{dialler:?}: {why}");
    assert!(matches!(listener, Way::Tcp { .. }), "{listener:?}");
    let text = limited(pair.b.explain()).await.to_string();
    assert!(text.contains(&format!("connection 1 over TCP ({why}")), "{text}");
    pair.is_well(why).await;
}

/// Cuts all connections to the abstract socket of `node`; returns the number of ends cut.
pub(crate) fn cut(node: &Node) -> usize {
    let name = format!("chunkcomm-{:032x}", node.incarnation());
    let is_it = |address: std::io::Result<SocketAddr>| {
        address.is_ok_and(|it| it.as_abstract_name() == Some(name.as_bytes()))
    };
    let own = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    let numbers = std::fs::read_dir("/proc/self/fd").unwrap();
    let numbers = numbers.map(|it| it.unwrap().file_name().to_str().unwrap().parse().unwrap());
    let numbers: Vec<i32> = numbers.collect();
    let mut ends = 0;
    for number in numbers {
        let Ok(copy) = pidfd_getfd(&own, number, PidfdGetfdFlags::empty()) else { continue };
        let socket = UnixStream::from(copy);
        // The listening socket has no peer.
        let is_connected = socket.peer_addr().is_ok();
        if is_connected && (is_it(socket.local_addr()) || is_it(socket.peer_addr())) {
            ends += usize::from(socket.shutdown(Shutdown::Both).is_ok());
        }
    }
    ends
}

#[test]
fn members_that_met_over_tcp_talk_over_a_unix_socket() {
    on_both(|| async {
        let pair = pair_of(tcp(), member(), member()).await;
        assert_eq!(ways(&pair).await, [Way::SameHost; 2]);
        assert!(matches!(&pair.a.addresses()[..], [Address::Tcp { .. }]));
        assert_eq!(pair.peer.address(), Some(&pair.a.addresses()[0]));
        let text = limited(pair.b.explain()).await.to_string();
        assert!(text.contains("connection 1 over the Unix socket of its host"), "{text}");
        pair.is_well("messages").await;
        assert!(cut(&pair.a) > 0);
        let again = limited(pair.b.connect(&pair.a.addresses()[0])).await.unwrap();
        assert_eq!(again, pair.peer);
        limited(pair.b.close(Duration::from_secs(5))).await.unwrap();
        assert_eq!(pair.a.refusals(), Vec::<String>::new());
    });
}

#[test]
fn where_either_end_forbids_it_the_session_stays_with_tcp() {
    on_one_thread(async {
        let off = || member().same_host(false);
        stays_with_tcp(pair_of(tcp(), member(), off()).await, "this node forbids a Unix socket")
            .await;
        stays_with_tcp(pair_of(tcp(), off(), member()).await, "the peer has no Unix").await;
        let mut settings = NodeSettings::default();
        settings.same_host = Some(false);
        let read = pair_of(tcp(), member(), member().settings(&settings)).await;
        stays_with_tcp(read, "this node forbids a Unix socket").await;
    });
}

#[test]
fn without_a_credential_or_with_tls_of_the_users_the_session_stays_with_tcp() {
    on_one_thread(async {
        let plain = pair_of(tcp(), Node::builder(), Node::builder()).await;
        stays_with_tcp(plain, "no credential").await;
        let lab = Authority::new("lab");
        let (certificate, key) = lab.signs("node.lab");
        let server = server_with(&lab, vec![certificate], key, true);
        let name = Some("node.lab".try_into().unwrap());
        let own = || member().tls_config(client(&lab, &lab), server.clone(), name.clone());
        stays_with_tcp(pair_of(tcp(), own(), own()).await, "TLS of the user's").await;
    });
}

#[test]
fn a_session_that_is_cut_goes_on_over_the_unix_socket_and_loses_nothing() {
    on_both(|| async {
        let pair = pair_of(tcp(), member(), member()).await;
        let (mut there, mut from_b) = pair.channel::<u64>("there").await;
        let (mut back, mut from_a) = pair.back::<(u64, Vec<u8>)>("back").await;
        let sending = tokio::spawn(async move {
            for number in 0..20_000 {
                there.send(&number).await.unwrap();
            }
            there.sync().await.unwrap();
        });
        let echoing = tokio::spawn(async move {
            for number in 0..60_u64 {
                back.send(&(number, vec![number as u8; 200_000])).await.unwrap();
            }
            back.sync().await.unwrap();
        });
        let (node, mut events) = (pair.a.clone(), pair.b.events());
        let cutting = tokio::spawn(async move {
            let mut random = seeded(17);
            for _ in 0..8 {
                tokio::time::sleep(Duration::from_millis(random.below(30))).await;
                assert!(cut(&node) > 0);
                // A socket that is cut before its hellos leaves the connection with TCP.
                while !matches!(events.next().await, Some(LinkEvent::Resumed { .. })) {}
            }
        });
        let taking = tokio::spawn(async move {
            for expected in 0..60 {
                let (number, bytes) = limited(from_a.recv()).await.unwrap().unwrap();
                assert_eq!((number, bytes), (expected, vec![expected as u8; 200_000]));
            }
        });
        for number in 0..20_000 {
            assert_eq!(limited(from_b.recv()).await.unwrap(), Some(number));
        }
        for task in [sending, echoing, taking, cutting] {
            limited(task).await.unwrap();
        }
        until(|| pair.peer.stats().resumes == 8).await;
        pair.is_well("after").await;
        assert_eq!(ways(&pair).await, [Way::SameHost; 2]);
    });
}

/// The test is its own child process, since no other test may see the variable.
#[test]
fn the_environment_forbids_it_too() {
    let Ok(value) = std::env::var(SAME_HOST_VARIABLE) else {
        for value in ["on", "off", "no", ""] {
            let output = itself("same_host::the_environment_forbids_it_too")
                .env(SAME_HOST_VARIABLE, value)
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("1 passed"), "{value:?}: {text}");
        }
        return;
    };
    on_one_thread(async {
        match value.as_str() {
            "on" => {
                let pair = pair_of(tcp(), member(), member()).await;
                assert_eq!(ways(&pair).await, [Way::SameHost; 2]);
            }
            "off" => {
                let allowed = || member().same_host(true);
                let pair = pair_of(tcp(), allowed(), allowed()).await;
                stays_with_tcp(pair, "this node forbids a Unix socket").await;
            }
            _ => {
                let error = Node::builder().build().await.unwrap_err();
                assert!(matches!(error, NodeError::Setting { .. }), "{error}");
                let text = error.to_string();
                assert!(text.contains(SAME_HOST_VARIABLE) && text.contains("on or off"), "{text}");
            }
        }
    });
}
