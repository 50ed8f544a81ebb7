//! Page faults as events of a descriptor (`userfaultfd`), and the scan of written pages.
//!
//! Numbers and layouts are those of the kernel's `linux/userfaultfd.h` and `linux/fs.h`.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use super::bell::Bell;
use super::{Region, checked, timespec};

/// Accesses that [`Uffd::register`] watches for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Mode {
    /// Accesses of pages without memory.
    Missing = 1,
    /// Writes to protected pages.
    Write = 2,
    /// Accesses of pages that have memory and are not mapped.
    Minor = 4,
}

/// Features that the engines ask for.
pub(crate) mod feature {
    pub(crate) const WRITE: u64 = 1;
    pub(crate) const MINOR_FILE: u64 = 1 << 10;
    pub(crate) const WRITE_FILE: u64 = 1 << 12;
    pub(crate) const WRITE_UNPOPULATED: u64 = 1 << 13;
    pub(crate) const WRITE_ASYNC: u64 = 1 << 15;
}

const API: u64 = 0xAA;
const USER_MODE_ONLY: libc::c_int = 1;
const EVENT_PAGEFAULT: u8 = 0x12;

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Span {
    start: u64,
    len: u64,
}

#[repr(C)]
struct Register {
    span: Span,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct WriteProtect {
    span: Span,
    mode: u64,
}

#[repr(C)]
struct Copy {
    to: u64,
    from: u64,
    len: u64,
    mode: u64,
    copied: i64,
}

#[repr(C)]
struct Continue {
    span: Span,
    mode: u64,
    mapped: i64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Event {
    event: u8,
    reserved: [u8; 7],
    flags: u64,
    address: u64,
    rest: u64,
}

#[repr(C)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    into: u64,
    into_len: u64,
    pages_max: u64,
    inverted: u64,
    required: u64,
    any_of: u64,
    returned: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Found {
    start: u64,
    end: u64,
    categories: u64,
}

/// Number of a request: `_IOC(direction, group, number, size)` of the kernel's `asm-generic/ioctl.h`.
const fn request(direction: u32, group: u8, number: u8, size: usize) -> u32 {
    (direction << 30) | ((size as u32) << 16) | ((group as u32) << 8) | number as u32
}

const BOTH: u32 = 3;
const READ: u32 = 2;
const NEW: u32 = request(0, 0xAA, 0, 0);
const SET_API: u32 = request(BOTH, 0xAA, 0x3F, size_of::<Api>());
const REGISTER: u32 = request(BOTH, 0xAA, 0, size_of::<Register>());
const UNREGISTER: u32 = request(READ, 0xAA, 1, size_of::<Span>());
const COPY: u32 = request(BOTH, 0xAA, 3, size_of::<Copy>());
const WRITE_PROTECT: u32 = request(BOTH, 0xAA, 6, size_of::<WriteProtect>());
const CONTINUE: u32 = request(BOTH, 0xAA, 7, size_of::<Continue>());
const PAGEMAP_SCAN: u32 = request(BOTH, b'f', 16, size_of::<Scan>());
const SCAN_PROTECT: u64 = 1;
const SCAN_CHECK: u64 = 2;
const PAGE_WRITTEN: u64 = 2;
/// Ranges that one scan returns.
const FOUND_MAX: usize = 256;

/// Most events that one read returns.
const EVENTS_MAX: usize = 32;

/// A source of page faults.
pub(crate) struct Uffd {
    fd: OwnedFd,
}

impl Uffd {
    /// Opens a source with `features`: one that sees the kernel's faults, too, where that is
    /// allowed, else one that sees the program's own.
    pub(crate) fn open(features: u64) -> io::Result<Self> {
        let fd = open_any()?;
        let uffd = Self { fd };
        let mut api = Api { api: API, features, ioctls: 0 };
        // SAFETY: the struct is the request's.
        unsafe { uffd.call(SET_API, &raw mut api) }?;
        Ok(uffd)
    }

    /// Does one request.
    ///
    /// # Safety
    /// `argument` is a living struct of the request, and the request's effect on memory is allowed.
    unsafe fn call<A>(&self, request: u32, argument: *mut A) -> io::Result<()> {
        // SAFETY: the caller's promise.
        checked(unsafe { libc::ioctl(self.fd.as_raw_fd(), request as _, argument) }).map(drop)
    }

    /// Watches all of `region`.
    pub(crate) fn register(&self, region: &Region, mode: Mode) -> io::Result<()> {
        let span = span_of(region, 0..region.map_bytes());
        let mut register = Register { span, mode: mode as u64, ioctls: 0 };
        // SAFETY: the addresses are a region's, whose faults may wait (module's points 3 and 4).
        unsafe { self.call(REGISTER, &raw mut register) }
    }

    /// Ends the watch of `region`; those that wait go on.
    pub(crate) fn unregister(&self, region: &Region) -> io::Result<()> {
        let mut span = span_of(region, 0..region.map_bytes());
        // SAFETY: as in `register`.
        unsafe { self.call(UNREGISTER, &raw mut span) }
    }

    /// Protects `bytes` of `region` against writes, or allows them and wakes those that wait.
    pub(crate) fn protect(&self, region: &Region, bytes: Range<usize>, on: bool) -> io::Result<()> {
        let mut protect = WriteProtect { span: span_of(region, bytes), mode: u64::from(on) };
        // SAFETY: the addresses are a region's; contents do not change.
        retried(|| unsafe { self.call(WRITE_PROTECT, &raw mut protect) })
    }

    /// Maps `bytes` of `region`, whose file has its contents, and wakes those that wait.
    pub(crate) fn map(&self, region: &Region, bytes: Range<usize>) -> io::Result<()> {
        let (mut start, end) = (bytes.start, bytes.end);
        while start < end {
            let span = span_of(region, start..end);
            let mut map = Continue { span, mode: 0, mapped: 0 };
            // SAFETY: the addresses are a region's, and no reader saw the pages (point 3).
            match retried(|| unsafe { self.call(CONTINUE, &raw mut map) }) {
                Ok(()) => return Ok(()),
                // A part was mapped before the kernel was asked to stop.
                Err(error) => start += usize::try_from(map.mapped).map_err(|_| error)?,
            }
        }
        Ok(())
    }

    /// Copies `from`, whole pages, to the pages of `region` from `offset` on, and wakes those that wait.
    pub(crate) fn fill(&self, region: &Region, offset: usize, from: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < from.len() {
            let rest = &from[done..];
            let to = span_of(region, offset + done..offset + from.len());
            let (from, len) = (rest.as_ptr().expose_provenance() as u64, rest.len() as u64);
            let mut copy = Copy { to: to.start, from, len, mode: 0, copied: 0 };
            // SAFETY: the kernel reads `rest`, which is borrowed, and fills pages of a region that no
            // reader saw (point 3).
            match retried(|| unsafe { self.call(COPY, &raw mut copy) }) {
                Ok(()) => return Ok(()),
                Err(error) => match usize::try_from(copy.copied) {
                    Ok(copied) if copied > 0 => done += copied,
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }

    /// Puts the offsets in `region` of the faults that wait into `offsets`, without waiting.
    pub(crate) fn faults(&self, region: &Region, offsets: &mut Vec<usize>) -> io::Result<()> {
        let mut events =
            [Event { event: 0, reserved: [0; 7], flags: 0, address: 0, rest: 0 }; EVENTS_MAX];
        loop {
            let bytes = size_of_val(&events);
            // SAFETY: the kernel writes whole events to the array, all bytes of which may be anything.
            let read =
                unsafe { libc::read(self.fd.as_raw_fd(), events.as_mut_ptr().cast(), bytes) };
            let Ok(read) = usize::try_from(read) else {
                return match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
                    error if error.kind() == io::ErrorKind::Interrupted => continue,
                    error => Err(error),
                };
            };
            let events = &events[..read / size_of::<Event>()];
            let faults = events.iter().filter(|event| event.event == EVENT_PAGEFAULT);
            let start = region.addresses().start;
            offsets.extend(faults.map(|event| event.address as usize - start));
            if events.len() < EVENTS_MAX {
                return Ok(());
            }
        }
    }

    /// Waits until a fault waits, `bell` ends, or `timeout` has passed.
    pub(crate) fn wait(&self, bell: &Bell, timeout: Option<Duration>) -> io::Result<()> {
        let poll =
            |fd: &OwnedFd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut fds = [poll(&self.fd), poll(bell.end_fd())];
        let time = timeout.map(timespec);
        let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: two living structs, a time that is null or living, and no mask.
        match checked(unsafe { libc::ppoll(fds.as_mut_ptr(), 2, time, ptr::null()) }) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }
}

fn open_any() -> io::Result<OwnedFd> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    let call = |flags: libc::c_int| {
        // SAFETY: takes a number.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        let fd = checked(libc::c_int::try_from(fd).expect("descriptors are small"))?;
        // SAFETY: a new descriptor that nobody else has.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    };
    let device = || {
        let device = File::options().read(true).write(true).open("/dev/userfaultfd")?;
        // SAFETY: the request takes flags and returns a descriptor.
        let fd = checked(unsafe { libc::ioctl(device.as_raw_fd(), NEW as _, flags) })?;
        // SAFETY: a new descriptor that nobody else has.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    };
    call(flags)
        .or_else(|_: io::Error| device())
        .or_else(|_: io::Error| call(flags | USER_MODE_ONLY))
}

fn span_of(region: &Region, bytes: Range<usize>) -> Span {
    assert!(bytes.start <= bytes.end && bytes.end <= region.map_bytes());
    Span { start: (region.addresses().start + bytes.start) as u64, len: bytes.len() as u64 }
}

/// Calls again while the kernel says that another change of the process's memory comes first.
fn retried(mut call: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
            result => return result,
        }
    }
}

/// The page table of this process.
pub(crate) struct Pagemap {
    file: File,
}

impl Pagemap {
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self { file: File::open("/proc/self/pagemap")? })
    }

    /// Puts the written parts of `region` into `written`, as ranges of bytes in order, and protects them
    /// again in the same step.
    pub(crate) fn scan(&self, region: &Region, written: &mut Vec<Range<usize>>) -> io::Result<()> {
        let addresses = region.addresses();
        let (first, end) = (addresses.start as u64, addresses.end as u64);
        let mut found = [Found { start: 0, end: 0, categories: 0 }; FOUND_MAX];
        let mut start = first;
        while start < end {
            let mut scan = Scan {
                size: size_of::<Scan>() as u64,
                flags: SCAN_PROTECT | SCAN_CHECK,
                start,
                end,
                walk_end: 0,
                into: found.as_mut_ptr().expose_provenance() as u64,
                into_len: FOUND_MAX as u64,
                pages_max: 0,
                inverted: 0,
                required: PAGE_WRITTEN,
                any_of: 0,
                returned: PAGE_WRITTEN,
            };
            // SAFETY: the struct is the request's, `found` has room for its ranges, and the addresses are
            // a region's, whose contents do not change.
            let count = unsafe {
                let fd = self.file.as_raw_fd();
                checked(libc::ioctl(fd, PAGEMAP_SCAN as _, &raw mut scan))?
            };
            let found = &found[..usize::try_from(count).expect("not negative")];
            let offset = |address: u64| (address - first) as usize;
            written.extend(found.iter().map(|it| offset(it.start)..offset(it.end)));
            if scan.walk_end <= start {
                break;
            }
            start = scan.walk_end;
        }
        Ok(())
    }
}
