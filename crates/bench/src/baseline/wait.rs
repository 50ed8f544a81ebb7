//! Waiting for a socket: asleep or spinning.

use std::io;
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// A deadline that has passed: look and return.
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Waits until one socket can be read.
#[cfg(target_os = "linux")]
pub(crate) struct Waiter {
    epoll: std::os::fd::OwnedFd,
    spin: bool,
}

#[cfg(target_os = "linux")]
impl Waiter {
    /// For one socket, asleep or spinning.
    pub(crate) fn new(socket: impl AsFd, spin: bool) -> io::Result<Self> {
        use rustix::event::epoll;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        Ok(Self { epoll, spin })
    }

    /// Returns when there is something to read.
    #[inline]
    pub(crate) fn readable(&self, _socket: impl AsFd) -> io::Result<()> {
        use rustix::event::epoll;
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 1];
        loop {
            let timeout = self.spin.then_some(&AT_ONCE);
            match epoll::wait(&self.epoll, &mut events, timeout) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Waits until one socket can be read.
#[cfg(not(target_os = "linux"))]
pub(crate) struct Waiter {
    spin: bool,
}

#[cfg(not(target_os = "linux"))]
impl Waiter {
    /// For one socket, asleep or spinning.
    pub(crate) fn new(_socket: impl AsFd, spin: bool) -> io::Result<Self> {
        Ok(Self { spin })
    }

    /// Returns when there is something to read.
    pub(crate) fn readable(&self, socket: impl AsFd) -> io::Result<()> {
        poll_for(socket, PollFlags::IN, self.spin)
    }
}

/// Returns when a socket can take more bytes.
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
