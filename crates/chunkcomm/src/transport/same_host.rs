//! Unix sockets in Linux's abstract namespace, each named by a node's incarnation: only processes of the
//! same network namespace find one, and it leaves no file. Peers are of this process's user.

use crate::Address;
use crate::proto::describe::fnv1a;

/// Returns the address of the socket of the node `incarnation`.
pub(crate) fn address(incarnation: u128) -> Address {
    Address::Unix(path(incarnation).into())
}

fn path(incarnation: u128) -> String {
    format!("\0chunkcomm-{incarnation:032x}")
}

/// Returns a number of this host and network namespace, another for each incarnation: it is equal where a name
/// means the same socket. 0 where the system does not say.
pub(crate) fn number(incarnation: u128) -> u32 {
    let text = || {
        let boot = std::fs::read("/proc/sys/kernel/random/boot_id").ok()?;
        let namespace = std::fs::read_link("/proc/self/ns/net").ok()?;
        let namespace = namespace.into_os_string().into_encoded_bytes();
        Some([&boot[..], &namespace, &incarnation.to_le_bytes()].concat())
    };
    let Some(text) = text() else { return 0 };
    let hash = fnv1a(&text);
    ((hash ^ hash >> 32) as u32).max(1)
}

/// Whether this is the address of such a socket; no other Unix socket has a name that begins so.
pub(crate) fn is_it(address: &Address) -> bool {
    matches!(address, Address::Unix(path) if path.as_os_str().as_encoded_bytes().starts_with(b"\0"))
}

#[cfg(target_os = "linux")]
pub(crate) use linux::{connect, listen};

#[cfg(target_os = "linux")]
mod linux {
    use super::path;
    use crate::Address;
    use crate::transport::{BoxFuture, Listener, Transport};
    use std::io;
    use tokio::net::{UnixListener, UnixStream};

    /// Number of users that a namespace of users does not know, which are many.
    const UNKNOWN_USER: u32 = 65_534;

    /// Connects to the socket of the node `incarnation`.
    ///
    /// # Errors
    ///
    /// `ConnectionRefused`: no such node is here. `PermissionDenied`: another user listens.
    pub(crate) async fn connect(incarnation: u128) -> io::Result<Box<dyn Transport>> {
        let stream = UnixStream::connect(path(incarnation)).await?;
        if !is_own_users(&stream) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(Box::new(stream))
    }

    /// Listens at the socket of the node `incarnation`.
    pub(crate) fn listen(incarnation: u128) -> io::Result<Box<dyn Listener>> {
        let (listener, address) =
            (UnixListener::bind(path(incarnation))?, super::address(incarnation));
        Ok(Box::new(OwnUsers { listener, address }))
    }

    /// Whether the process at the other end has the user of this one.
    fn is_own_users(stream: &UnixStream) -> bool {
        let own = rustix::process::geteuid().as_raw();
        own != UNKNOWN_USER && stream.peer_cred().is_ok_and(|peer| peer.uid() == own)
    }

    struct OwnUsers {
        listener: UnixListener,
        address: Address,
    }

    impl Listener for OwnUsers {
        fn accept(&self) -> BoxFuture<'_, io::Result<Box<dyn Transport>>> {
            Box::pin(async move {
                let (stream, _) = self.listener.accept().await?;
                if is_own_users(&stream) {
                    return Ok(Box::new(stream) as Box<dyn Transport>);
                }
                // As one that is gone: the node rests after many in a row.
                let why = "the connections are another user's";
                Err(io::Error::new(io::ErrorKind::ConnectionAborted, why))
            })
        }

        fn address(&self) -> Address {
            self.address.clone()
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) async fn connect(_: u128) -> std::io::Result<Box<dyn super::Transport>> {
    Err(std::io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn listen(_: u128) -> std::io::Result<Box<dyn super::Listener>> {
    Err(std::io::ErrorKind::Unsupported.into())
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::exact::{read_exact, write_all};
    use rustix::process::Uid;
    use rustix::thread::set_thread_res_uid;
    use std::io;

    /// Returns a number that no node and no other test has.
    fn absent(number: u128) -> u128 {
        u128::from(std::process::id()) << 64 | number
    }

    #[tokio::test]
    async fn nobody_else_has_the_name_and_it_is_free_when_its_node_is_gone() {
        let (node, refused) = (absent(0xa11), io::ErrorKind::ConnectionRefused);
        assert_eq!(connect(node).await.map(drop).unwrap_err().kind(), refused);
        let listener = listen(node).unwrap();
        let second = listen(node).map(drop).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        assert!(is_it(&listener.address()));
        connect(node).await.unwrap();
        drop(listener);
        assert_eq!(connect(node).await.map(drop).unwrap_err().kind(), refused);
    }

    /// Returns the result of `run` on a thread of user 65534; `None` where no process may change it.
    fn as_another_user<T: Send>(run: impl FnOnce() -> T + Send) -> Option<T> {
        let changed = || {
            let nobody = Uid::from_raw(65_534);
            set_thread_res_uid(nobody, nobody, nobody).is_ok().then(run)
        };
        std::thread::scope(|scope| scope.spawn(changed).join().unwrap())
    }

    #[tokio::test]
    async fn another_user_is_taken_at_neither_end() {
        let node = absent(0xa12);
        let listener = listen(node).unwrap();
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build();
        let dialled = as_another_user(|| runtime().unwrap().block_on(connect(node)).map(drop));
        let Some(dialled) = dialled else { return };
        assert_eq!(dialled.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        let mut own = connect(node).await.unwrap();
        write_all(&mut *own, b"own").await.unwrap();
        let gone = listener.accept().await.map(drop).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::ConnectionAborted);
        let (mut accepted, mut bytes) = (listener.accept().await.unwrap(), [0; 3]);
        read_exact(&mut *accepted, &mut bytes).await.unwrap();
        assert_eq!(&bytes, b"own");
    }
}
