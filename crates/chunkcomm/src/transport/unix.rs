//! Unix sockets: peers of the same user on one machine.

use super::{BoxFuture, Listener, Transport, transport_over_readiness};
use crate::Address;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tokio::net::{UnixListener, UnixSocket, UnixStream};

/// Largest number of connections that wait to be accepted; the system may allow fewer.
const CONNECTIONS_WAITING_MAX: u32 = 1024;

// A socket that dials has no path.
transport_over_readiness!(UnixStream, |_: &UnixStream| None);

/// Connects to the socket at `path`.
pub(crate) async fn connect(path: &Path) -> io::Result<Box<dyn Transport>> {
    Ok(Box::new(UnixStream::connect(path).await?))
}

/// Listens at `path`, readable and writable by the user alone. A socket without a listener is
/// replaced.
pub(crate) async fn listen(path: &Path) -> io::Result<Box<dyn Listener>> {
    remove_stale(path).await?;
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    let path = path.to_owned();
    // Until the socket listens nobody can connect, whatever mode it begins with.
    let listening = std::fs::set_permissions(&path, Permissions::from_mode(0o600))
        .and_then(|()| socket.listen(CONNECTIONS_WAITING_MAX));
    match listening {
        Ok(listener) => Ok(Box::new(Unix { listener, path })),
        Err(error) => {
            let _ = std::fs::remove_file(&path);
            Err(error)
        }
    }
}

async fn remove_stale(path: &Path) -> io::Result<()> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket());
    if !is_socket {
        return Ok(());
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        _ => Ok(()),
    }
}

struct Unix {
    listener: UnixListener,
    path: PathBuf,
}

impl Listener for Unix {
    fn accept(&self) -> BoxFuture<'_, io::Result<Box<dyn Transport>>> {
        Box::pin(async move {
            let (stream, _) = self.listener.accept().await?;
            Ok(Box::new(stream) as Box<dyn Transport>)
        })
    }

    fn address(&self) -> Address {
        Address::Unix(self.path.clone())
    }
}

impl Drop for Unix {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
