//! Costs of a stranger: at a node where only the user's PKI admits, so that it may speak TLS before
//! it has proved anything, and at nodes where it may not.

use super::alone;
use chunkcomm::proto::credential::{Hellos, Role};
use chunkcomm::proto::hello::{FLAG_CREDENTIAL, FLAG_TLS, HELLO_BYTES, Hello, Name};
use chunkcomm::{Address, Credential, Node, NodeBuilder};
use chunkcomm_testkit::authority::{Authority, client, client_with, server_with};
use chunkcomm_testkit::blocking;
use chunkcomm_testkit::counting::{WATCHED_BYTES, WATCHED_PEAK, watch_this_thread};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes that the node may hold for one stranger while it waits for more from it.
const HELD_BYTES_MAX: i64 = 64 * 1024;

/// The same at a node where nobody speaks TLS before proving that it has the credential, or where
/// there is no credential.
const HELD_UNPROVED_BYTES_MAX: i64 = 4096;

/// Bytes that the node may need at one moment to look at one stranger's bytes. Its messages are
/// parsed into parts that are larger than on the wire, and dropped before the node looks at
/// anything else.
const PARSED_BYTES_MAX: i64 = 256 * 1024;

/// Most bytes held at a moment when the node had nothing to do but wait.
static HELD_PEAK: AtomicI64 = AtomicI64::new(0);

/// Begins the peaks anew, at the bytes that the node held before. These can be below zero: it also
/// frees memory that was allocated for it before its thread was watched.
fn forget_peaks(before: i64) {
    HELD_PEAK.store(before, Ordering::Relaxed);
    WATCHED_PEAK.store(before, Ordering::Relaxed);
}

/// Returns a node that admits every peer whose certificate this authority signed.
fn with_pki(lab: &Authority) -> NodeBuilder {
    let (certificate, key) = lab.signs("node.lab");
    // Chains of users have some 4 KiB.
    let chain = vec![certificate.clone(); 4096 / certificate.len()];
    let server = server_with(lab, chain, key, true);
    Node::builder().tls_config(client(lab, lab), server, None)
}

/// The thread of a node; when this is dropped, the node's memory is free again.
struct Apart {
    keeps: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Apart {
    fn drop(&mut self) {
        self.keeps = None;
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))), "the node panicked");
    }
}

/// Starts a node on a thread of its own, on which nothing else allocates.
fn node_apart(settings: NodeBuilder) -> (SocketAddr, Apart) {
    let settings = settings.listen("127.0.0.1:0".parse().unwrap());
    let (tell, told) = mpsc::channel();
    let (keeps, kept) = tokio::sync::oneshot::channel();
    let thread = std::thread::spawn(move || {
        watch_this_thread();
        let rest = || {
            HELD_PEAK.fetch_max(WATCHED_BYTES.load(Ordering::Relaxed), Ordering::Relaxed);
        };
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().on_thread_park(rest).build().unwrap();
        runtime.block_on(async {
            let node = settings.build().await.unwrap();
            tell.send(node.addresses().remove(0)).unwrap();
            let _ = kept.await;
        });
    });
    let Address::Tcp { host, port } = told.recv().unwrap() else { panic!("not TCP") };
    let apart = Apart { keeps: Some(keeps), thread: Some(thread) };
    (SocketAddr::new(host.parse().unwrap(), port), apart)
}

struct Stranger {
    stream: TcpStream,
    /// The protocol that it has to name inside TLS.
    binding: Vec<u8>,
}

impl Stranger {
    /// Dials with a hello that fits a node with a PKI.
    fn dials(node: SocketAddr) -> Stranger {
        Stranger::dials_with(node, FLAG_TLS)
    }

    /// Dials with a hello that has these flags.
    fn dials_with(node: SocketAddr, flags: u32) -> Stranger {
        let name = |text| Name::new(text).unwrap();
        let hello = Hello {
            packet_bytes_max: 64 * 1024,
            message_bytes_max: 32 << 20,
            open_credit: 8 << 20,
            initial_window: 16 * 1024,
            flags,
            ..Hello::new(name("default"), name("stranger"), 5)
        };
        let mut stream = TcpStream::connect(node).unwrap();
        stream.set_nodelay(true).unwrap();
        let said = hello.encode();
        stream.write_all(&said).unwrap();
        let mut heard = [0; HELLO_BYTES];
        stream.read_exact(&mut heard).unwrap();
        let hellos = Hellos::new(Role::Dialler, said, heard);
        Stranger { stream, binding: [&b"chunkcomm-1 "[..], &hellos.digest()].concat() }
    }

    /// Sends `bytes` in parts, so that the node has looked at one before it gets the next.
    fn says(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(2048) {
            // The node may have hung up.
            let _ = self.stream.write_all(part);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Returns its TLS client and that client's first flight.
    fn greets(&mut self, config: ClientConfig) -> (ClientConnection, Vec<u8>) {
        let name = ServerName::try_from("node.lab").unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        let flight = flight(&mut client);
        (client, flight)
    }

    /// Ends, and waits until the node has ended, too.
    fn ends(mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
        let _ = self.stream.read_to_end(&mut Vec::new());
    }
}

fn flight(client: &mut ClientConnection) -> Vec<u8> {
    let mut flight = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut flight).unwrap();
    }
    flight
}

/// Returns a record of TLS with a part of a handshake.
fn record(body: &[u8]) -> Vec<u8> {
    [&[22, 3, 3], &(body.len() as u16).to_be_bytes()[..], body].concat()
}

/// Sends `message` in records of this size.
fn in_records(stranger: &mut Stranger, message: &[u8], size: usize) {
    let records: Vec<u8> = message.chunks(size).flat_map(record).collect();
    stranger.says(&records);
}

/// Returns a client hello that claims to have 60 KiB.
fn endless() -> Vec<u8> {
    [&[1, 0, 0xF0, 0][..], &[0; 60_000]].concat()
}

/// Sends a client hello that names `count` protocols of one byte each, and the binding.
fn names_protocols(stranger: &mut Stranger, lab: &Authority, count: usize) {
    let (certificate, key) = lab.signs("node.lab");
    let mut config = client_with(lab, vec![certificate], key);
    config.alpn_protocols = vec![vec![b'x']; count];
    config.alpn_protocols.push(stranger.binding.clone());
    let (_, flight) = stranger.greets(config);
    stranger.says(&flight);
}

/// Names `protocols` protocols and shows a chain of another authority, of `bytes` bytes. Keeps the
/// last `left` bytes of its final flight back.
fn shows_most_of_a_chain(
    stranger: &mut Stranger,
    lab: &Authority,
    protocols: usize,
    bytes: usize,
    left: usize,
) {
    let (certificate, key) = Authority::new("other").signs("node.lab");
    let chain = vec![certificate.clone(); bytes / certificate.len()];
    let mut config = client_with(lab, chain, key);
    config.alpn_protocols = vec![vec![b'x']; protocols];
    config.alpn_protocols.push(stranger.binding.clone());
    let (mut client, first) = stranger.greets(config);
    stranger.says(&first);
    let mut last = Vec::new();
    while client.is_handshaking() {
        assert!(client.read_tls(&mut stranger.stream).unwrap() > 0, "the node hung up");
        client.process_new_packets().unwrap();
        last.extend(flight(&mut client));
    }
    stranger.says(&last[..last.len() - left]);
}

/// Names of protocols with which a hello has almost the 6 KiB that it may have.
const PROTOCOLS_MANY: usize = 2_800;

type Case = (&'static str, fn(&mut Stranger, &Authority));

const CASES: &[Case] = &[
    ("nothing", |_, _| ()),
    ("garbage", |it, _| it.says(&[0xA5; 60_000])),
    ("garbage in records", |it, _| in_records(it, &[0xA5; 60_000], 16_000)),
    ("a record that never ends", |it, _| it.says(&record(&[1; 16_000])[..15_000])),
    ("an endless hello in large records", |it, _| in_records(it, &endless(), 16_000)),
    ("an endless hello in small records", |it, _| in_records(it, &endless(), 100)),
    ("an endless hello in records of a byte", |it, _| in_records(it, &endless(), 1)),
    ("empty messages", |it, _| in_records(it, &[0; 60_000], 16_000)),
    ("a member's hello and no more", |it, lab| names_protocols(it, lab, 0)),
    ("a hello that is too long", |it, lab| names_protocols(it, lab, 11_000)),
    ("a hello that is as long as may be", |it, lab| names_protocols(it, lab, PROTOCOLS_MANY)),
    ("a long chain", |it, lab| shows_most_of_a_chain(it, lab, 0, 20_000, 0)),
    ("most of a long chain", |it, lab| shows_most_of_a_chain(it, lab, 0, 22_000, 400)),
    ("a chain that is too long", |it, lab| shows_most_of_a_chain(it, lab, 0, 60_000, 0)),
    ("most of everything", |it, lab| {
        shows_most_of_a_chain(it, lab, PROTOCOLS_MANY, 16_500, 400);
    }),
];

#[test]
fn a_stranger_who_may_speak_tls_holds_64_kib_at_most() {
    let _turn = alone();
    let lab = Authority::new("lab");
    let (address, _keeps) = node_apart(with_pki(&lab));
    let before = WATCHED_BYTES.load(Ordering::Relaxed);
    let mut most_held = 0;
    for (name, does) in CASES {
        forget_peaks(before);
        let mut stranger = Stranger::dials(address);
        does(&mut stranger, &lab);
        stranger.ends();
        let held = HELD_PEAK.load(Ordering::Relaxed) - before;
        let parsed = WATCHED_PEAK.load(Ordering::Relaxed) - before;
        println!("{name}: {held} bytes held, {parsed} at one moment");
        assert!(held <= HELD_BYTES_MAX, "{name}: {held} bytes held");
        assert!(parsed <= PARSED_BYTES_MAX, "{name}: {parsed} bytes at one moment");
        most_held = most_held.max(held);
    }
    // The node holds most of a chain until the rest comes.
    assert!(most_held > 20_000, "{most_held}");
}

/// Bytes that strangers send behind hellos that fit, or in their place: case, whether a hello comes
/// first, bytes.
const UNPROVED: &[(&str, bool, &[u8])] = &[
    ("not even a hello", false, &[]),
    ("zeros in place of half a hello", false, &[0; HELLO_BYTES / 2]),
    ("garbage in place of a hello", false, &[0xA5; 60_000]),
    ("a hello and no more", true, &[]),
    ("a hello and half a proof", true, &[7; 16]),
    ("a hello and garbage", true, &[0xA5; 60_000]),
];

/// Returns the bytes that the node holds once it is done with the strangers that are gone.
fn settled() -> i64 {
    let watched = || WATCHED_BYTES.load(Ordering::Relaxed);
    blocking::settled("its memory changes again and again", watched)
}

#[test]
fn a_stranger_who_has_proved_nothing_holds_4_kib_at_most() {
    let _turn = alone();
    let guarded = Node::builder().credential(Credential::generate().unwrap());
    let kinds = [("credential", guarded, FLAG_CREDENTIAL | FLAG_TLS), ("open", Node::builder(), 0)];
    let mut nodes = Vec::new();
    for (kind, settings, flags) in kinds {
        let (address, keeps) = node_apart(settings);
        nodes.push(keeps);
        let mut most_held = 0;
        // Things that are made once are made in the first round.
        for round in 0..2 {
            for (name, greets, says) in UNPROVED {
                let before = settled();
                forget_peaks(before);
                let mut stranger = if *greets {
                    Stranger::dials_with(address, flags)
                } else {
                    Stranger { stream: TcpStream::connect(address).unwrap(), binding: Vec::new() }
                };
                stranger.says(says);
                settled();
                stranger.ends();
                let held = HELD_PEAK.load(Ordering::Relaxed) - before;
                println!("{kind}, {name}: {held} bytes held");
                let most = HELD_UNPROVED_BYTES_MAX;
                assert!(round == 0 || held <= most, "{kind}, {name}: {held} bytes held");
                most_held = if round == 0 { 0 } else { most_held.max(held) };
            }
        }
        // A node that is late may see one stranger's end before its words.
        assert!(most_held > 0, "{kind}: nothing was counted");
    }
}
