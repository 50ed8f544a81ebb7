//! A peer that speaks TCP by itself, to send words no node would.

use chunkcomm::proto::hello::{HELLO_BYTES, Hello, Name};
use chunkcomm::proto::packet::{AppendRecords, ChannelKind, Decoder, Header, Item, Lane};
use chunkcomm::proto::resume::{Kind, RESUME_BYTES, Resume};
use chunkcomm::{Address, Node};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Returns the fingerprint of channels of bytes: FNV-1a of their type's name.
pub fn bytes_fingerprint() -> u64 {
    b"bytes".iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Returns a hello that fits every node here.
pub fn good_hello() -> Hello {
    let name = |text| Name::new(text).unwrap();
    Hello {
        packet_bytes_max: 64 * 1024,
        message_bytes_max: 32 << 20,
        open_credit: 8 << 20,
        initial_window: 16 * 1024,
        ..Hello::new(name("default"), name("raw"), 0xABCD_EF00)
    }
}

/// Returns the address at which a node listens, for a plain socket.
pub fn socket_address(node: &Node) -> SocketAddr {
    socket_of(&node.addresses()[0])
}

/// Returns an address for a plain socket.
pub fn socket_of(address: &Address) -> SocketAddr {
    match address {
        Address::Tcp { host, port } => SocketAddr::new(host.parse().unwrap(), *port),
        other => panic!("{other} is not a socket's"),
    }
}

/// One end of a connection whose hellos were exchanged.
pub struct RawPeer {
    /// The connection, behind the hellos.
    pub stream: TcpStream,
    /// Hello of the node.
    pub theirs: Hello,
    sequence: u64,
    decoder: Decoder,
    unread: Vec<u8>,
}

impl RawPeer {
    /// Connects to `node` as a peer that it accepts.
    pub async fn connect(node: &Node) -> RawPeer {
        RawPeer::connect_as(node, &good_hello()).await
    }

    /// Connects to `node` as a peer with this hello that it accepts.
    pub async fn connect_as(node: &Node, hello: &Hello) -> RawPeer {
        let stream = TcpStream::connect(socket_address(node)).await.unwrap();
        let mut raw = RawPeer::greet_as(stream, hello).await;
        let addressee = raw.theirs.incarnation;
        let word = Resume { kind: Kind::New, session: 7, attempt: 1, received: 0, addressee };
        raw.bytes(&word.encode()).await;
        assert_eq!(raw.word().await.map(|word| word.kind), Some(Kind::Agreed));
        raw
    }

    /// Returns the other end's word about a session; `None` when it hangs up.
    pub async fn word(&mut self) -> Option<Resume> {
        let mut bytes = [0; RESUME_BYTES];
        self.stream.read_exact(&mut bytes).await.ok()?;
        Some(Resume::decode(&bytes).unwrap())
    }

    /// Waits for a node that dials.
    pub async fn accept(listener: &TcpListener) -> RawPeer {
        let (stream, _) = listener.accept().await.unwrap();
        let mut raw = RawPeer::greet(stream).await;
        let word = raw.word().await.unwrap();
        let answer = Resume { kind: Kind::Agreed, addressee: raw.theirs.incarnation, ..word };
        raw.bytes(&answer.encode()).await;
        raw
    }

    /// Exchanges hellos.
    pub async fn greet(stream: TcpStream) -> RawPeer {
        RawPeer::greet_as(stream, &good_hello()).await
    }

    /// Exchanges hellos, with `hello` as the own one.
    pub async fn greet_as(mut stream: TcpStream, hello: &Hello) -> RawPeer {
        stream.write_all(&hello.encode()).await.unwrap();
        let mut theirs = [0; HELLO_BYTES];
        stream.read_exact(&mut theirs).await.unwrap();
        let theirs = Hello::decode(&theirs).unwrap();
        let decoder = Decoder::new(64 * 1024);
        RawPeer { stream, theirs, sequence: 0, decoder, unread: Vec::new() }
    }

    /// Sends the next numbered packet with what `body` appends.
    pub async fn packet(&mut self, body: impl FnOnce(&mut Vec<u8>)) {
        self.sequence += 1;
        let sequence = self.sequence;
        self.packet_as(Header { sequence, ..Header::default() }, body).await;
    }

    /// Sends a packet with this header, but for the length of its body.
    pub async fn packet_as(&mut self, header: Header, body: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = Vec::new();
        body(&mut bytes);
        let header = Header { body_bytes: bytes.len() as u32, ..header };
        bytes.splice(..0, header.encode());
        self.bytes(&bytes).await;
    }

    /// Sends these bytes; the node may have hung up before.
    pub async fn bytes(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    /// Opens channel `id` of bytes under `name`.
    pub async fn open(&mut self, id: u32, name: &str) {
        let print = bytes_fingerprint();
        self.packet(|body| body.open(id, Lane::Bulk, ChannelKind::Bytes, print, name)).await;
    }

    /// Reads until `look` has an answer; the items that `look` saw are not seen again. `None` when
    /// the node hangs up.
    pub async fn find<R>(&mut self, mut look: impl FnMut(Item<'_>) -> Option<R>) -> Option<R> {
        loop {
            let mut at = 0;
            let mut found = None;
            while let Some(item) = self.decoder.next(&self.unread, &mut at).unwrap() {
                found = look(item);
                if found.is_some() {
                    break;
                }
            }
            self.unread.drain(..at);
            if found.is_some() {
                return found;
            }
            let mut more = [0; 16 * 1024];
            match self.stream.read(&mut more).await {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.unread.extend_from_slice(&more[..count]),
            }
        }
    }

    /// Reads until the node hangs up.
    pub async fn hung_up(&mut self) {
        while self.find(|_| None::<()>).await.is_some() {}
    }
}

/// Returns the first word of a further connection of session 7 of the raw peer.
pub fn again(raw: &RawPeer, attempt: u32, received: u64) -> Resume {
    let addressee = raw.theirs.incarnation;
    Resume { kind: Kind::Again, session: 7, attempt, received, addressee }
}

/// Returns a run of messages that are as long as they say.
pub fn run_of(messages: &[&[u8]]) -> Vec<u8> {
    let mut run = Vec::new();
    for message in messages {
        run.push(u8::try_from(message.len()).unwrap());
        run.extend_from_slice(message);
    }
    run
}
