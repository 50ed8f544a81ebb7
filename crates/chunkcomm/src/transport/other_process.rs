//! Reading the memory of the process at the other end of a Unix socket (`process_vm_readv`), where the system
//! allows it: mostly to a process of the same user. Here is the `unsafe` of it.
//!
//! Bytes are written by this call alone, into slices that the caller holds, and addresses of the other
//! process are numbers to this one: a wrong one is an error of the system (`EFAULT`).

#![allow(unsafe_code)]

use super::PeerMemory;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A process as the system named it when it connected. It may be gone since, and another one have its number: so
/// every reading takes a word along, by which the caller knows that it read what it should.
struct Process(libc::pid_t);

/// Returns the memory of the process at the other end of `socket`, if that is a Unix socket and the process is of
/// this one's user.
pub(crate) fn memory_behind(socket: BorrowedFd<'_>) -> Option<Box<dyn PeerMemory>> {
    let mut peer = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: libc::gid_t::MAX };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the system writes at most `bytes` bytes to `peer`, any of which are a valid `ucred`.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut bytes,
        )
    };
    let is_own = peer.uid == rustix::process::geteuid().as_raw();
    // The number is 0 where the process is in a namespace that this one does not see, and for TCP.
    (done == 0 && is_own && peer.pid > 0)
        .then(|| Box::new(Process(peer.pid)) as Box<dyn PeerMemory>)
}

impl PeerMemory for Process {
    fn read(
        &self,
        address: u64,
        into: &mut [u8],
        word_at: u64,
        word: &mut [u8; 16],
    ) -> io::Result<usize> {
        let ours = [part(into), part(word)];
        let theirs = [(address, into.len()), (word_at, word.len())].map(|(at, iov_len)| {
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            libc::iovec { iov_base: std::ptr::without_provenance_mut(at), iov_len }
        });
        // SAFETY: the system writes only to `ours`: two slices, initialised, which nobody else has. The bytes it reads are
        // named by numbers, in whatever process: it copies bytes, and makes no reference.
        let read = unsafe {
            let (ours_len, theirs_len) =
                (ours.len() as libc::c_ulong, theirs.len() as libc::c_ulong);
            libc::process_vm_readv(self.0, ours.as_ptr(), ours_len, theirs.as_ptr(), theirs_len, 0)
        };
        usize::try_from(read).map_err(|_| io::Error::last_os_error())
    }
}

fn part(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_process_reads_what_is_there_and_an_error_names_what_is_not() {
        let (near, _far) = UnixStream::pair().unwrap();
        let memory = memory_behind(near.as_fd()).unwrap();
        let (bytes, word) = (vec![7_u8; 100_000], [9_u8; 16]);
        let at = |slice: &[u8]| slice.as_ptr().addr() as u64;
        let (mut into, mut read) = (vec![0; 100_000], [0; 16]);
        let done = memory.read(at(&bytes), &mut into, at(&word), &mut read).unwrap();
        assert_eq!((done, &into, read), (100_016, &bytes, word));
        // Nothing is at the first page: neither bytes nor the word.
        let fault = memory.read(8, &mut into, at(&word), &mut read).unwrap_err();
        assert_eq!(fault.raw_os_error(), Some(libc::EFAULT));
        assert_eq!(memory.read(at(&bytes), &mut into, 8, &mut read).unwrap(), 100_000);
    }

    #[test]
    fn a_tcp_socket_has_no_process_behind_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(memory_behind(stream.as_fd()).is_none());
    }
}
