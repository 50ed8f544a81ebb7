//! Reading and writing an exact number of bytes, before a driver has the connection.

use super::Transport;
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice};

/// Writes all of `bytes`.
pub(crate) async fn write_all(transport: &mut dyn Transport, bytes: &[u8]) -> io::Result<()> {
    let mut at = 0;
    while at < bytes.len() {
        let rest = [IoSlice::new(&bytes[at..])];
        match poll_fn(|context| transport.poll_write(context, &rest)).await? {
            0 => return Err(ErrorKind::WriteZero.into()),
            count => at += count,
        }
    }
    Ok(())
}

/// Fills `bytes`.
pub(crate) async fn read_exact(transport: &mut dyn Transport, bytes: &mut [u8]) -> io::Result<()> {
    let mut at = 0;
    while at < bytes.len() {
        let room = &mut bytes[at..];
        match poll_fn(|context| transport.poll_read(context, room)).await? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => at += count,
        }
    }
    Ok(())
}
