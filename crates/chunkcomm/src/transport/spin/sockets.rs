//! Sockets that are looked at without sleeping, and without a turn of the runtime, which costs
//! several times as much.
//!
//! Bytes in one buffer are moved by `recv` and `send`. `read` and `write` pass the kernel's file
//! layer first, which takes a fiftieth of a round trip over loopback.
//!
//! A socket is handed over once its hello is done. The spinning task asks what the socket is ready
//! for ([`Sockets::look`]) and wakes the drivers concerned.
//!
//! - A few sockets are asked one by one (`poll`): a peer's write then has no sleeper to wake, and
//!   its bytes are seen as soon as they lie in the socket. That saves about a fifth of a round trip
//!   over loopback.
//! - More sockets are watched by an epoll instance of the node's own. Its look costs the same for
//!   any number.

use super::Spinner;
use crate::transport::other_process::memory_behind;
use crate::transport::{Below, PeerMemory, Transport};
use rustix::event::{PollFd, PollFlags, epoll};
use rustix::io::Errno;
use rustix::net;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// A deadline that has passed, for a look that returns at once.
const AT_ONCE: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };

/// Most events taken in one look.
const EVENTS_MAX: usize = 8;

/// Largest number of sockets that are asked one by one. More are watched by epoll, until half of
/// this number are left.
const FEW: usize = 8;

/// The sockets of one node.
#[derive(Debug)]
pub(super) struct Sockets {
    epoll: OwnedFd,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// The sockets by place, the number under which the epoll instance knows them.
    places: Vec<Option<Arc<Watched>>>,
    count: usize,
    /// The epoll instance has the sockets.
    many: bool,
}

/// A socket and its readiness.
#[derive(Debug)]
struct Watched {
    socket: OwnedFd,
    readable: AtomicBool,
    writable: AtomicBool,
    /// A write waits for room.
    wants_room: AtomicBool,
    /// The peer has ended its direction: there is always something to read, the end.
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
        // Tried first, whether ready or not.
        let watched = Arc::new(Watched {
            socket,
            readable: AtomicBool::new(true),
            writable: AtomicBool::new(true),
            wants_room: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            waiting: Mutex::default(),
        });
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.many {
            self.watch(known.free(), &watched)?;
        } else if known.count == FEW {
            for (place, other) in known.all() {
                self.watch(place, other)?;
            }
            self.watch(known.free(), &watched)?;
            known.many = true;
        }
        let place = known.insert(Arc::clone(&watched));
        drop(known);
        Ok(Box::new(Spun { watched, place, sockets: Arc::clone(self), _spinner: spinner }))
    }

    fn watch(&self, place: usize, watched: &Watched) -> io::Result<()> {
        let flags = epoll::EventFlags::IN
            | epoll::EventFlags::OUT
            | epoll::EventFlags::RDHUP
            | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(place as u64);
        match epoll::add(&self.epoll, &watched.socket, data, flags) {
            // The socket is left from an attempt that failed half-way.
            Err(Errno::EXIST) => epoll::modify(&self.epoll, &watched.socket, data, flags)?,
            other => other?,
        }
        Ok(())
    }

    fn forget(&self, place: usize) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gone) = known.remove(place) {
            // A socket that is not there is not watched.
            let _ = epoll::delete(&self.epoll, &gone.socket);
        }
        if known.many && known.count <= FEW / 2 {
            known.many = false;
            for (_, watched) in known.all() {
                let _ = epoll::delete(&self.epoll, &watched.socket);
            }
        }
    }

    /// Looks once, without sleeping; returns whether a socket is ready.
    pub(super) fn look(&self) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.many { self.look_at_events(&known) } else { known.look_at_each() }
    }

    fn look_at_events(&self, known: &Known) -> bool {
        let empty =
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut events = [empty; EVENTS_MAX];
        // A look that fails finds nothing; the next one comes at once.
        let count = epoll::wait(&self.epoll, &mut events, Some(&AT_ONCE)).unwrap_or(0);
        for event in &events[..count] {
            let place = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
            if let Some(Some(watched)) = known.places.get(place) {
                let flags = event.flags;
                let ended = epoll::EventFlags::RDHUP;
                watched.became(Became {
                    over: flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR),
                    ended: flags.contains(ended),
                    readable: flags.contains(epoll::EventFlags::IN),
                    writable: flags.contains(epoll::EventFlags::OUT),
                });
            }
        }
        count > 0
    }
}

impl Known {
    /// Returns the place of the next socket.
    fn free(&self) -> usize {
        let free = self.places.iter().position(Option::is_none);
        free.unwrap_or(self.places.len())
    }

    fn insert(&mut self, watched: Arc<Watched>) -> usize {
        let place = self.free();
        match self.places.get_mut(place) {
            Some(slot) => *slot = Some(watched),
            None => self.places.push(Some(watched)),
        }
        self.count += 1;
        place
    }

    fn remove(&mut self, place: usize) -> Option<Arc<Watched>> {
        let gone = self.places.get_mut(place)?.take()?;
        self.count -= 1;
        Some(gone)
    }

    fn all(&self) -> impl Iterator<Item = (usize, &Arc<Watched>)> {
        let places = self.places.iter().enumerate();
        places.filter_map(|(place, watched)| Some((place, watched.as_ref()?)))
    }

    /// Asks at most [`FEW`] sockets; returns whether one is ready.
    fn look_at_each(&self) -> bool {
        let mut asked: [Option<&Watched>; FEW] = [None; FEW];
        for (slot, (_, watched)) in asked.iter_mut().zip(self.all()) {
            *slot = Some(watched);
        }
        let Some(first) = asked[0] else { return false };
        let mut answers = asked.map(|watched| watched.unwrap_or(first).question());
        let answers = &mut answers[..self.count.min(FEW)];
        if rustix::event::poll(answers, Some(&AT_ONCE)).unwrap_or(0) == 0 {
            return false;
        }
        for (watched, answer) in asked.iter().flatten().zip(answers) {
            let flags = answer.revents();
            if !flags.is_empty() {
                watched.became(Became {
                    over: flags.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL),
                    ended: flags.contains(PollFlags::RDHUP),
                    readable: flags.contains(PollFlags::IN),
                    writable: flags.contains(PollFlags::OUT),
                });
            }
        }
        true
    }
}

/// The result of a look at one socket.
#[derive(Debug, Clone, Copy)]
struct Became {
    over: bool,
    ended: bool,
    readable: bool,
    writable: bool,
}

impl Watched {
    /// Returns the question to the kernel. It asks for room only while a write waits for it, since
    /// there nearly always is room.
    fn question(&self) -> PollFd<'_> {
        let mut flags = PollFlags::IN | PollFlags::RDHUP;
        flags.set(PollFlags::OUT, self.wants_room.load(Ordering::Acquire));
        PollFd::new(&self.socket, flags)
    }

    fn became(&self, now: Became) {
        if now.over || now.ended {
            self.ended.store(true, Ordering::Release);
        }
        if now.over || now.ended || now.readable {
            self.readable.store(true, Ordering::Release);
        }
        if now.over || now.writable {
            self.wants_room.store(false, Ordering::Release);
            self.writable.store(true, Ordering::Release);
        }
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waiting {
            waker.wake();
        }
    }

    fn poll_readable<R>(
        &self,
        context: &mut Context<'_>,
        call: impl FnMut() -> Result<(R, bool), Errno>,
    ) -> Poll<io::Result<R>> {
        self.poll(&self.readable, context, call)
    }

    fn poll_writable<R>(
        &self,
        context: &mut Context<'_>,
        call: impl FnMut() -> Result<(R, bool), Errno>,
    ) -> Poll<io::Result<R>> {
        let done = self.poll(&self.writable, context, call);
        if done.is_pending() {
            self.wants_room.store(true, Ordering::Release);
        }
        done
    }

    /// Runs `call` if `what` allows it, else waits. `call` returns whether more may be done at
    /// once.
    fn poll<R>(
        &self,
        what: &AtomicBool,
        context: &mut Context<'_>,
        mut call: impl FnMut() -> Result<(R, bool), Errno>,
    ) -> Poll<io::Result<R>> {
        loop {
            // Taken back before the call, so that readiness that comes meanwhile is noted.
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
    watched: Arc<Watched>,
    place: usize,
    sockets: Arc<Sockets>,
    /// The spinner goes on as long as a socket has it.
    _spinner: Arc<Spinner>,
}

impl Drop for Spun {
    fn drop(&mut self) {
        self.sockets.forget(self.place);
    }
}

impl Transport for Spun {
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.watched.poll_readable(context, || {
            let (read, _) = net::recv(&self.watched.socket, &mut *buffer, net::RecvFlags::empty())?;
            // A short read took all there was, except the end.
            Ok((read, read == buffer.len() || self.watched.ended.load(Ordering::Acquire)))
        })
    }

    fn poll_read_two(
        &mut self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>; 2],
    ) -> Poll<io::Result<usize>> {
        let room = buffers[0].len() + buffers[1].len();
        self.watched.poll_readable(context, || {
            let read = rustix::io::readv(&self.watched.socket, buffers)?;
            Ok((read, read == room || self.watched.ended.load(Ordering::Acquire)))
        })
    }

    fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let total: usize = buffers.iter().map(|it| it.len()).sum();
        self.watched.poll_writable(context, || {
            let written = match buffers {
                [one] => net::send(&self.watched.socket, one, net::SendFlags::NOSIGNAL)?,
                many => rustix::io::writev(&self.watched.socket, many)?,
            };
            Ok((written, written == total))
        })
    }

    fn poll_shutdown(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = net::shutdown(&self.watched.socket, net::Shutdown::Write);
        Poll::Ready(done.map_err(io::Error::from))
    }

    fn peer_memory(&self) -> Option<Box<dyn PeerMemory>> {
        memory_behind(self.watched.socket.as_fd())
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

    #[test]
    fn few_and_many_sockets_are_seen_alike() {
        let spinner = Spinner::new(false).unwrap();
        let sockets = Arc::new(Sockets::new().unwrap());
        let mut context = Context::from_waker(Waker::noop());
        let mut pairs = Vec::new();
        let mut buffer = [0; 16];
        // Up to twice the few, then down to none; each time all sockets are written to.
        for step in 0..4 * FEW {
            if step < 2 * FEW {
                let (ours, theirs) = UnixStream::pair().unwrap();
                ours.set_nonblocking(true).unwrap();
                pairs.push((sockets.adopt(ours.into(), Arc::clone(&spinner)).unwrap(), theirs));
            } else {
                pairs.remove(step % pairs.len());
            }
            let known = sockets.known.lock().unwrap();
            assert_eq!(known.count, pairs.len());
            let bounds = if step < 2 * FEW { FEW } else { FEW / 2 };
            assert_eq!(known.many, pairs.len() > bounds, "with {} sockets", pairs.len());
            drop(known);
            for (ours, _) in &mut pairs {
                assert!(ours.poll_read(&mut context, &mut buffer).is_pending());
            }
            for (place, (_, theirs)) in pairs.iter_mut().enumerate() {
                theirs.write_all(&[u8::try_from(place).unwrap()]).unwrap();
            }
            // A look takes a bounded number of events.
            for _ in 0..4 {
                sockets.look();
            }
            for (place, (ours, _)) in pairs.iter_mut().enumerate() {
                let Poll::Ready(read) = ours.poll_read(&mut context, &mut buffer) else {
                    panic!("socket {place} of {step} was not seen");
                };
                assert_eq!((read.unwrap(), usize::from(buffer[0])), (1, place));
            }
        }
    }

    #[test]
    fn a_write_that_waits_is_woken_when_there_is_room() {
        let spinner = Spinner::new(false).unwrap();
        let sockets = Arc::new(Sockets::new().unwrap());
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut transport = sockets.adopt(ours.into(), spinner).unwrap();
        let mut context = Context::from_waker(Waker::noop());
        let bytes = [7; 4096];
        let mut waiting = 0;
        while transport.poll_write(&mut context, &[IoSlice::new(&bytes)]).is_ready() {
            waiting += 1;
        }
        assert!(waiting > 0 && !sockets.look(), "a full socket is ready for nothing");
        theirs.set_nonblocking(true).unwrap();
        let mut sink = [0; 4096];
        while io::Read::read(&mut theirs, &mut sink).is_ok() {}
        assert!(sockets.look());
        assert!(transport.poll_write(&mut context, &[IoSlice::new(&bytes)]).is_ready());
        assert!(!sockets.look(), "room is asked for only while a write waits");
    }
}
