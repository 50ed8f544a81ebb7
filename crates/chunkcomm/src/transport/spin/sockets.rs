//! Sockets that are looked at without sleeping and without a turn of the
//! runtime, which costs several times as much.
//!
//! A socket is handed over once its hello is done. What it is ready for comes
//! from an epoll instance of the node's own, edge-triggered; the spinning task
//! asks it ([`Sockets::look`]) and wakes the drivers concerned.

use super::Spinner;
use crate::transport::{Below, Transport};
use rustix::event::epoll;
use rustix::io::Errno;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// A deadline that has passed: look and return.
const AT_ONCE: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };

/// Events taken in one look.
const EVENTS_MAX: usize = 8;

/// The sockets of one node and what they are ready for.
#[derive(Debug)]
pub(super) struct Sockets {
    epoll: OwnedFd,
    known: Mutex<Vec<Option<Arc<Readiness>>>>,
}

#[derive(Debug, Default)]
struct Readiness {
    readable: AtomicBool,
    writable: AtomicBool,
    /// The peer wrote its last: there is always something to read, the end.
    ended: AtomicBool,
    waiting: Mutex<Option<Waker>>,
}

impl Sockets {
    pub(super) fn new() -> io::Result<Sockets> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Sockets { epoll, known: Mutex::default() })
    }

    /// Takes over a socket that does not block.
    pub(super) fn adopt(
        self: &Arc<Self>,
        socket: OwnedFd,
        spinner: Arc<Spinner>,
    ) -> io::Result<Box<dyn Transport>> {
        let ready = Arc::new(Readiness::default());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let free = known.iter().position(Option::is_none);
        let place = free.unwrap_or(known.len());
        let flags = epoll::EventFlags::IN
            | epoll::EventFlags::OUT
            | epoll::EventFlags::RDHUP
            | epoll::EventFlags::ET;
        epoll::add(&self.epoll, &socket, epoll::EventData::new_u64(place as u64), flags)?;
        match known.get_mut(place) {
            Some(slot) => *slot = Some(Arc::clone(&ready)),
            None => known.push(Some(Arc::clone(&ready))),
        }
        drop(known);
        Ok(Box::new(Spun { socket, ready, place, sockets: Arc::clone(self), _spinner: spinner }))
    }

    /// Looks once, without sleeping; true when a socket became ready.
    pub(super) fn look(&self) -> bool {
        let empty =
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut events = [empty; EVENTS_MAX];
        // A look that fails finds nothing; the next one comes at once.
        let count = epoll::wait(&self.epoll, &mut events, Some(&AT_ONCE)).unwrap_or(0);
        if count == 0 {
            return false;
        }
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for event in &events[..count] {
            let place = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
            if let Some(Some(ready)) = known.get(place) {
                ready.became(event.flags);
            }
        }
        true
    }
}

impl Readiness {
    fn became(&self, flags: epoll::EventFlags) {
        let over = epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        if flags.intersects(over | epoll::EventFlags::RDHUP) {
            self.ended.store(true, Ordering::Release);
        }
        if flags.intersects(over | epoll::EventFlags::IN | epoll::EventFlags::RDHUP) {
            self.readable.store(true, Ordering::Release);
        }
        if flags.intersects(over) || flags.contains(epoll::EventFlags::OUT) {
            self.writable.store(true, Ordering::Release);
        }
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waiting {
            waker.wake();
        }
    }

    /// Runs `call` if `what` allows it, else waits. `call` says whether more may
    /// be done at once.
    fn poll<R>(
        &self,
        what: &AtomicBool,
        context: &mut Context<'_>,
        mut call: impl FnMut() -> Result<(R, bool), Errno>,
    ) -> Poll<io::Result<R>> {
        loop {
            // Taken back before the call: what becomes ready meanwhile is noted.
            if !what.swap(false, Ordering::AcqRel) {
                let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                match &*waiting {
                    Some(waker) if waker.will_wake(context.waker()) => {}
                    _ => *waiting = Some(context.waker().clone()),
                }
                drop(waiting);
                if !what.load(Ordering::Acquire) {
                    return Poll::Pending;
                }
                continue;
            }
            match call() {
                Ok((done, more)) => {
                    if more {
                        what.store(true, Ordering::Release);
                    }
                    return Poll::Ready(Ok(done));
                }
                Err(Errno::INTR) => what.store(true, Ordering::Release),
                Err(Errno::AGAIN) => {}
                Err(error) => {
                    what.store(true, Ordering::Release);
                    return Poll::Ready(Err(error.into()));
                }
            }
        }
    }
}

/// One socket.
struct Spun {
    socket: OwnedFd,
    ready: Arc<Readiness>,
    place: usize,
    sockets: Arc<Sockets>,
    /// Goes on as long as somebody has a socket.
    _spinner: Arc<Spinner>,
}

impl Drop for Spun {
    fn drop(&mut self) {
        let _ = epoll::delete(&self.sockets.epoll, &self.socket);
        let mut known = self.sockets.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = known.get_mut(self.place) {
            *slot = None;
        }
    }
}

impl Transport for Spun {
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.ready.poll(&self.ready.readable, context, || {
            let read = rustix::io::read(&self.socket, &mut *buffer)?;
            // A short read took all there was, but for the end.
            Ok((read, read == buffer.len() || self.ready.ended.load(Ordering::Acquire)))
        })
    }

    fn poll_read_two(
        &mut self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>; 2],
    ) -> Poll<io::Result<usize>> {
        let room = buffers[0].len() + buffers[1].len();
        self.ready.poll(&self.ready.readable, context, || {
            let read = rustix::io::readv(&self.socket, buffers)?;
            Ok((read, read == room || self.ready.ended.load(Ordering::Acquire)))
        })
    }

    fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let total: usize = buffers.iter().map(|it| it.len()).sum();
        self.ready.poll(&self.ready.writable, context, || {
            let written = match buffers {
                [one] => rustix::io::write(&self.socket, one)?,
                many => rustix::io::writev(&self.socket, many)?,
            };
            Ok((written, written == total))
        })
    }

    fn poll_shutdown(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write);
        Poll::Ready(done.map_err(io::Error::from))
    }

    #[cfg(target_os = "linux")]
    fn into_below(self: Box<Self>) -> io::Result<Below> {
        Ok(Below::Nothing(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_end_that_came_with_the_last_bytes_is_read_after_them() {
        let spinner = Spinner::new(false).unwrap();
        let sockets = Arc::new(Sockets::new().unwrap());
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut transport = sockets.adopt(ours.into(), spinner).unwrap();
        let mut context = Context::from_waker(Waker::noop());
        let mut buffer = [0; 64];
        theirs.write_all(b"last").unwrap();
        drop(theirs);
        assert!(sockets.look());
        let mut read = || match transport.poll_read(&mut context, &mut buffer) {
            Poll::Ready(read) => read.unwrap(),
            Poll::Pending => panic!("there is something to read"),
        };
        assert_eq!([read(), read(), read()], [4, 0, 0]);
    }
}
