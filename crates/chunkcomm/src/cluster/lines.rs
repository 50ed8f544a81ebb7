//! The channels between members and manager: system messages go by the express lane,
//! each at once.

use crate::channel::ChannelOptions;
use crate::driver::clock;
use crate::error::{AcceptError, OpenError};
use crate::proto::cluster::{Down, Up};
use crate::proto::packet::Lane;
use crate::{Address, Node, Peer, Receiver, Sender};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::net::TcpStream;

/// To the manager.
const UP: &str = "chunkcomm.cluster.up";
/// From the manager.
const DOWN: &str = "chunkcomm.cluster.down";

/// Raised when the messages change. The two ends of a line compare it: where it differs, the
/// line is refused, by an error that has both.
const WORDS_VERSION: u32 = 3;

fn options(name: &str) -> ChannelOptions {
    ChannelOptions::default().lane(Lane::Express).schema(format!("{name}/{WORDS_VERSION}"))
}

/// A line to the manager.
pub(super) async fn open_up(node: &Node, manager: &Peer) -> Result<Sender<Up>, OpenError> {
    node.open_with(manager, UP, options(UP)).await
}

/// The manager's side of it.
pub(super) async fn accept_up(node: &Node) -> Result<(Peer, Receiver<Up>), AcceptError> {
    node.accept_with(UP, options(UP)).await
}

/// A line from the manager to a member.
pub(super) async fn open_down(node: &Node, member: &Peer) -> Result<Sender<Down>, OpenError> {
    node.open_with(member, DOWN, options(DOWN)).await
}

/// The member's side of it. Lines of earlier managers are dropped.
pub(super) async fn accept_down(
    node: &Node,
    manager: &Peer,
) -> Result<Receiver<Down>, AcceptError> {
    loop {
        let (peer, receiver) = node.accept_with(DOWN, options(DOWN)).await?;
        if peer.incarnation() == manager.incarnation() {
            return Ok(receiver);
        }
    }
}

/// Waits until nobody listens any more where the node listened, for all its life, that
/// the link is with: so its end is known at once, rather than by a long silence. Looked
/// at whenever the link's connection is lost; `seen` of these losses were.
pub(super) async fn deserted(peer: &Peer, address: &Address, seen: &mut u64) {
    loop {
        let now = peer.troubled(*seen).await;
        if nobody_listens(address).await {
            return;
        }
        *seen = now;
    }
}

/// Looks so often at an address where connections end without a word.
const LOOKS_MAX: u32 = 20;

/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Refused there, or nothing is there. A process that is being killed may lose its links
/// before its listener: so a connection that is taken proves nothing until the node has said
/// its hello, which it does at once.
async fn nobody_listens(address: &Address) -> bool {
    for _ in 0..LOOKS_MAX {
        let heard = match address {
            Address::Tcp { host, port } => match TcpStream::connect((host.as_str(), *port)).await {
                Ok(mut stream) => Ok(says_something(&mut stream).await),
                Err(fault) => Err(fault),
            },
            #[cfg(unix)]
            Address::Unix(path) => match tokio::net::UnixStream::connect(path).await {
                Ok(mut stream) => Ok(says_something(&mut stream).await),
                Err(fault) => Err(fault),
            },
            _ => return false,
        };
        match heard {
            Ok(true) => return false,
            Ok(false) => clock::pause(LOOK_AGAIN).await,
            Err(fault) => {
                let gone = [io::ErrorKind::ConnectionRefused, io::ErrorKind::NotFound];
                return gone.contains(&fault.kind());
            }
        }
    }
    false
}

/// Waits for its first byte; `false`: it ended without any. Who is stopped is waited for.
async fn says_something(stream: &mut (impl AsyncRead + Unpin)) -> bool {
    let mut byte = [0];
    stream.read(&mut byte).await.is_ok_and(|count| count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    async fn listener() -> (TcpListener, Address) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, Address::Tcp { host: "127.0.0.1".to_owned(), port })
    }

    #[tokio::test]
    async fn who_takes_a_connection_while_it_dies_is_gone() {
        let (listener, address) = listener().await;
        let look = tokio::spawn(async move { nobody_listens(&address).await });
        let (taken, _) = listener.accept().await.unwrap();
        // Its links go first, its listener last.
        drop(taken);
        let (taken, _) = listener.accept().await.unwrap();
        drop((listener, taken));
        assert!(look.await.unwrap());
    }

    #[tokio::test]
    async fn who_says_a_word_lives() {
        let (listener, address) = listener().await;
        let look = tokio::spawn(async move { nobody_listens(&address).await });
        let (mut taken, _) = listener.accept().await.unwrap();
        taken.write_all(&[7]).await.unwrap();
        assert!(!look.await.unwrap());
    }

    #[tokio::test]
    async fn who_only_hangs_up_is_somebody_else_and_not_looked_at_for_ever() {
        let (listener, address) = listener().await;
        let look = tokio::spawn(async move { nobody_listens(&address).await });
        for _ in 0..LOOKS_MAX {
            drop(listener.accept().await.unwrap());
        }
        assert!(!look.await.unwrap());
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_socket_in_a_folder_is_looked_at_the_same_way() {
        let name = format!("chunkcomm-{}-looked-at", std::process::id());
        let path = std::env::temp_dir().join(name);
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let address = Address::Unix(path.clone());
        let look = tokio::spawn(async move { nobody_listens(&address).await });
        let (taken, _) = listener.accept().await.unwrap();
        drop((listener, taken));
        assert!(look.await.unwrap());
        std::fs::remove_file(path).unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_pass_bulk_data_and_have_a_version() {
        for name in [UP, DOWN] {
            let options = options(name);
            assert_eq!(options.lane, Lane::Express);
            assert_eq!(options.schema, Some(format!("{name}/{WORDS_VERSION}")));
        }
    }
}
