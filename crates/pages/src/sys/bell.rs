//! A counter that a signal handler may ring and a thread may wait on.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use super::{checked, timespec};

/// Rings of things that happened; the last ring says that nothing follows.
///
/// A thread reads [`rings`](Self::rings), looks at what it waits for, and waits for another number. A ring
/// between the two is not missed: the kernel compares the number again.
pub(crate) struct Bell {
    rings: AtomicU32,
    /// Number of threads that wait, so that a ring without them costs no system call.
    waiting: AtomicU32,
    ended: AtomicBool,
    /// Readable from the end on, for those that wait for descriptors.
    end: OwnedFd,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: takes numbers.
        let fd = checked(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: a new descriptor that nobody else has.
        let end = unsafe { OwnedFd::from_raw_fd(fd) };
        let (rings, waiting) = (AtomicU32::new(0), AtomicU32::new(0));
        Ok(Self { rings, waiting, ended: AtomicBool::new(false), end })
    }

    /// Returns the number of rings, to compare in [`wait`](Self::wait).
    pub(crate) fn rings(&self) -> u32 {
        self.rings.load(Ordering::SeqCst)
    }

    /// Wakes all that wait. Safe in a signal handler.
    pub(crate) fn ring(&self) {
        self.rings.fetch_add(1, Ordering::SeqCst);
        // `waiting` is raised before the kernel compares `rings`: either it is seen here, or the new
        // number is seen there.
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let all = libc::c_int::MAX;
            let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
            // SAFETY: the address is that of a living atomic.
            unsafe { libc::syscall(libc::SYS_futex, self.rings.as_ptr(), wake, all) };
        }
    }

    /// Waits until the number of rings is not `seen`, or until `timeout` has passed. May return
    /// earlier. Safe in a signal handler.
    pub(crate) fn wait(&self, seen: u32, timeout: Option<Duration>) {
        let time = timeout.map(timespec);
        let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
        let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the address is that of a living atomic, the time is null or a living struct.
        unsafe { libc::syscall(libc::SYS_futex, self.rings.as_ptr(), wait, seen, time) };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether [`end`](Self::end) was called.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Rings for the last time.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        let one = 1_u64;
        // SAFETY: the kernel reads the eight bytes of `one`. The call fails only for a full counter.
        unsafe { libc::write(self.end.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
        self.ring();
    }

    /// Makes the bell usable for another run.
    pub(crate) fn reset(&self) {
        let mut count = 0_u64;
        // SAFETY: the kernel writes the eight bytes of `count`. The call fails only when it is zero.
        unsafe { libc::read(self.end.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) };
        self.ended.store(false, Ordering::SeqCst);
    }

    /// Returns the descriptor that is readable from the end on.
    pub(crate) fn end_fd(&self) -> &OwnedFd {
        &self.end
    }
}
