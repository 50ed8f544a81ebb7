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

/// Connections of which any may become readable or writable; a change is reported once.
pub(super) struct Readiness {
    #[cfg(target_os = "linux")]
    epoll: Option<OwnedFd>,
}

impl Readiness {
    /// Makes one without connections.
    #[cfg(target_os = "linux")]
    pub(super) fn new() -> io::Result<Self> {
        let create = || epoll::create(epoll::CreateFlags::CLOEXEC);
        Ok(Self { epoll: (!portable_only()).then(create).transpose()? })
    }

    /// Makes one without connections.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {})
    }

    /// Adds the connection of an index.
    #[cfg(target_os = "linux")]
    pub(super) fn add(&self, socket: impl AsFd, index: usize) -> io::Result<()> {
        let Some(epoll) = &self.epoll else { return Ok(()) };
        let what = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        Ok(epoll::add(epoll, socket, epoll::EventData::new_u64(index as u64), what)?)
    }

    /// Adds the connection of an index.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn add(&self, _socket: impl AsFd, _index: usize) -> io::Result<()> {
        Ok(())
    }

    /// Looks for changes, and waits for one if it is to sleep. `wanted` tells of each connection, by
    /// index, whether it is to be read and to be written. Returns the index of each that changed, and
    /// whether it can be.
    pub(super) fn wait(
        &self,
        wanted: &[(impl AsFd, bool, bool)],
        sleeps: bool,
    ) -> io::Result<Vec<(usize, bool, bool)>> {
        #[cfg(target_os = "linux")]
        if let Some(epoll) = &self.epoll {
            return changes(epoll, wanted.len(), (!sleeps).then_some(&AT_ONCE));
        }
        let flags = |reads: bool, writes: bool| {
            let read = if reads { PollFlags::IN } else { PollFlags::empty() };
            read | if writes { PollFlags::OUT } else { PollFlags::empty() }
        };
        let mut set: Vec<_> = wanted
            .iter()
            .map(|(socket, reads, writes)| PollFd::new(socket, flags(*reads, *writes)))
            .collect();
        poll(&mut set, (!sleeps).then_some(&AT_ONCE))?;
        let is = |fd: &PollFd<'_>, what| fd.revents().intersects(what | PollFlags::HUP);
        let changed = |(index, fd)| (index, is(fd, PollFlags::IN), is(fd, PollFlags::OUT));
        Ok(set.iter().enumerate().map(changed).collect())
    }
}

#[cfg(target_os = "linux")]
fn changes(
    epoll: &OwnedFd,
    count: usize,
    timeout: Option<&Timespec>,
) -> io::Result<Vec<(usize, bool, bool)>> {
    let none =
        epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
    let mut events = vec![none; count];
    let count = epoll::wait(epoll, &mut events, timeout)?;
    let changed = |event: &epoll::Event| {
        // The fields of an event are packed: a copy, no reference.
        let flags = event.flags;
        let is = |what| flags.intersects(what | epoll::EventFlags::HUP);
        (event.data.u64() as usize, is(epoll::EventFlags::IN), is(epoll::EventFlags::OUT))
    };
    Ok(events[..count].iter().map(changed).collect())
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
