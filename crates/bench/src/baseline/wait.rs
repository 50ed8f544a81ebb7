//! Waiting for a socket: asleep or spinning.

use std::io;
use std::os::fd::AsFd;
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;

#[cfg(target_os = "linux")]
use chunkcomm::portable_only;
#[cfg(target_os = "linux")]
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;

/// Deadline that has passed: the call looks and returns.
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Waits until one socket can be read.
pub(crate) enum Waiter {
    /// By epoll: the socket is registered once, not at every wait.
    #[cfg(target_os = "linux")]
    Epoll { epoll: OwnedFd, spin: bool },
    /// By poll, which every system has.
    Poll { spin: bool },
}

impl Waiter {
    /// Makes a waiter for one socket, asleep or spinning.
    #[cfg(target_os = "linux")]
    pub(crate) fn new(socket: impl AsFd, spin: bool) -> io::Result<Self> {
        if portable_only() {
            return Ok(Self::Poll { spin });
        }
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        Ok(Self::Epoll { epoll, spin })
    }

    /// Makes a waiter for one socket, asleep or spinning.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn new(_socket: impl AsFd, spin: bool) -> io::Result<Self> {
        Ok(Self::Poll { spin })
    }

    /// Waits until there are bytes to read.
    #[inline]
    pub(crate) fn readable(&self, socket: impl AsFd) -> io::Result<()> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Epoll { epoll, spin } => epoll_for(epoll, *spin),
            Self::Poll { spin } => poll_for(socket, PollFlags::IN, *spin),
        }
    }
}

#[cfg(target_os = "linux")]
#[inline]
fn epoll_for(epoll: &OwnedFd, spin: bool) -> io::Result<()> {
    let mut events =
        [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 1];
    loop {
        match epoll::wait(epoll, &mut events, spin.then_some(&AT_ONCE)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits until a socket can take more bytes.
pub(crate) fn writable(socket: impl AsFd, spin: bool) -> io::Result<()> {
    poll_for(socket, PollFlags::OUT, spin)
}

fn poll_for(socket: impl AsFd, what: PollFlags, spin: bool) -> io::Result<()> {
    let mut set = [PollFd::new(&socket, what)];
    loop {
        match poll(&mut set, spin.then_some(&AT_ONCE)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn every_way_of_waiting_sees_what_comes() {
        for spin in [false, true] {
            for portable in [false, true] {
                let (mut near, far) = UnixStream::pair().expect("a pair of sockets");
                let waiter =
                    if portable { Waiter::Poll { spin } } else { Waiter::new(&far, spin).unwrap() };
                let waiting = std::thread::spawn(move || waiter.readable(&far));
                near.write_all(b"x").expect("there is room");
                waiting.join().expect("it does not panic").expect("it can be read");
            }
        }
        let (near, _far) = UnixStream::pair().expect("a pair of sockets");
        writable(&near, false).expect("there is room");
    }
}
