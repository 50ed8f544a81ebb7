//! Line between a member and the manager: a duplex of the express lane for system messages. Each
//! message is sent at once.

use crate::proto::cluster::{Down, Up};
use chunkcomm::layer::system_channel;
use chunkcomm::{
    AcceptError, Address, ChannelOptions, Duplex, Loss, Node, OpenError, Peer, channel, host,
};
use chunkcomm_proto::hello::{HELLO_BYTES, Hello, HelloError};
use chunkcomm_proto::packet::Lane;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::net::TcpStream;

/// Returns the options of the duplex. It compares a name and no type, because the form of the words
/// depends on the version that the link agreed on.
fn line() -> ChannelOptions {
    let line = system_channel(channel("chunkcomm.cluster.up"));
    line.lane(Lane::Express).schema("chunkcomm.cluster.up/1")
}

/// Opens a line to the manager.
pub(super) async fn open(node: &Node, manager: &Peer) -> Result<Duplex<Up, Down>, OpenError> {
    node.open_duplex(manager, line()).await
}

/// Accepts a member's line, at the manager.
pub(super) async fn accept(node: &Node) -> Result<(Peer, Duplex<Down, Up>), AcceptError> {
    node.accept_duplex(line()).await
}

/// Waits until the peer listens no longer at `address`, where it listened all its life. So its end
/// is known at once instead of after a long silence. Looks there whenever the link's connection is
/// lost; `seen` counts the losses that were looked into.
pub(super) async fn deserted(peer: &Peer, address: &Address, seen: &mut u64) {
    loop {
        let now = peer.losses_beyond(*seen).await;
        if is_gone(address, peer.incarnation()).await {
            return;
        }
        *seen = now;
    }
}

/// Waits as [`deserted`] does and returns the reason to tell; nothing when the link ends before.
pub(super) async fn desertion(peer: &Peer, address: &Address) -> Option<Loss> {
    let mut losses = 0;
    tokio::select! {
        biased;
        // Whoever has the link hears of that end.
        _ = peer.closed() => None,
        () = deserted(peer, address, &mut losses) => {
            Some(format!("nobody listens any more at {address}, where it was").into())
        }
    }
}

/// Most looks at an address where connections end without a word.
const LOOKS_MAX: u32 = 20;

/// Pause between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Whether no node listens there, or another one. A process that is being killed may lose its links
/// before its listener. So an accepted connection proves nothing until the node has sent its hello,
/// which it does at once.
async fn is_gone(address: &Address, incarnation: u128) -> bool {
    for _ in 0..LOOKS_MAX {
        let hello = match address {
            Address::Tcp { host, port } => match TcpStream::connect((host.as_str(), *port)).await {
                Ok(stream) => Ok(hello_of(stream).await),
                Err(fault) => Err(fault),
            },
            #[cfg(unix)]
            Address::Unix(path) => match tokio::net::UnixStream::connect(path).await {
                Ok(stream) => Ok(hello_of(stream).await),
                Err(fault) => Err(fault),
            },
            _ => return false,
        };
        match hello {
            // The port may belong to another node by now.
            Ok(Some(Ok(hello))) => return hello.incarnation != incarnation,
            Ok(Some(Err(_))) => return false,
            Ok(None) => host::sleep(LOOK_AGAIN).await,
            Err(fault) => {
                let gone = [io::ErrorKind::ConnectionRefused, io::ErrorKind::NotFound];
                return gone.contains(&fault.kind());
            }
        }
    }
    false
}

/// Waits for the node's first message; `None` when the connection ended before. A stopped process
/// is waited for.
async fn hello_of(mut stream: impl AsyncRead + Unpin) -> Option<Result<Hello, HelloError>> {
    let mut bytes = [0; HELLO_BYTES];
    stream.read_exact(&mut bytes).await.ok()?;
    Some(Hello::decode(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use chunkcomm_proto::hello::Name;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    async fn listener() -> (TcpListener, Address) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, Address::Tcp { host: "127.0.0.1".to_owned(), port })
    }

    /// Incarnation of the node that is looked for.
    const INCARNATION: u128 = 77;

    fn look(address: Address) -> tokio::task::JoinHandle<bool> {
        tokio::spawn(async move { is_gone(&address, INCARNATION).await })
    }

    fn hello(incarnation: u128) -> [u8; HELLO_BYTES] {
        let name = |text| Name::new(text).unwrap();
        Hello::new(name("default"), name("looked-at"), incarnation).encode()
    }

    #[tokio::test]
    async fn who_takes_a_connection_while_it_dies_is_gone() {
        let (listener, address) = listener().await;
        let look = look(address);
        let (taken, _) = listener.accept().await.unwrap();
        // A process that is killed loses its links first, its listener last.
        drop(taken);
        let (taken, _) = listener.accept().await.unwrap();
        drop((listener, taken));
        assert!(look.await.unwrap());
    }

    #[tokio::test]
    async fn who_says_its_hello_lives() {
        for (incarnation, gone) in [(INCARNATION, false), (78, true)] {
            let (listener, address) = listener().await;
            let look = look(address);
            let (mut taken, _) = listener.accept().await.unwrap();
            taken.write_all(&hello(incarnation)).await.unwrap();
            assert_eq!(look.await.unwrap(), gone, "{incarnation}");
        }
    }

    #[tokio::test]
    async fn who_only_hangs_up_is_somebody_else_and_not_looked_at_for_ever() {
        let (listener, address) = listener().await;
        let look = look(address);
        for _ in 0..LOOKS_MAX {
            drop(listener.accept().await.unwrap());
        }
        assert!(!look.await.unwrap());
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_socket_in_a_folder_is_looked_at_the_same_way() {
        let path = chunkcomm_testkit::Scratch::new("looked-at");
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let look = look(Address::Unix(path.to_path_buf()));
        let (taken, _) = listener.accept().await.unwrap();
        drop((listener, taken));
        assert!(look.await.unwrap());
    }

    #[test]
    fn words_pass_bulk_data() {
        let options = format!("{:?}", line());
        assert!(options.contains("lane: Express, system: true"), "{options}");
    }
}
