//! Memory whose pages tell when they are written or needed: with [`faults`](crate::faults) the only `unsafe` of
//! tracked buffers.
//!
//! A [`Region`] is memory of the system: a memory file mapped at one address, or private pages. The
//! [`Face`] is that address, and the only way to a reference. Everything else reads the region by system
//! call, and fills it at a second address of the same pages.
//!
//! ```text
//!   closure  --- &mut [T] or &[T] --->  face (pages with protection)
//!                                         |
//!                                    memory file
//!                                      |       |
//!   tracker  --- pread -------> descriptor   second address  <--- copy --- filler
//! ```
//!
//! # Soundness
//!
//! 1. *Validity.* The pages come from `mmap`, are zeroed, and stay mapped until the region is dropped.
//!    `T: Pod` accepts all bytes, and a page's start is aligned for every `T` (asserted).
//! 2. *No aliasing.* References to the memory come from [`Face::elements`] and
//!    [`Face::elements_mut`] alone. They borrow the one face, so Rust's rules hold among them.
//!    The tracker has no reference and no pointer: it uses `pread` on the memory file, which copies
//!    into a buffer of its own. The filler has no reference: [`Region::write_at`] copies to the second
//!    address, in pages that cannot be read at the face (3). Changes of protection read nothing and write
//!    nothing.
//! 3. *One value a byte.* A reader's byte changes from "not yet there" to its value before its page
//!    can be read at all. The reading thread stops until then, and the system call that lets it go on
//!    comes after the bytes. So all reads of a byte through one `&[T]` give one value, however often,
//!    early or late the compiler reads it.
//! 4. *Writes.* A store through `&mut [T]` may come later than the program's text says. So a page
//!    is protected before it is read. A store that comes after that faults, or is found by a scan: the
//!    bytes that were read may be old or torn, but they are plain bytes in another buffer, and the page
//!    is reported as written again.
//! 5. *Handler.* It uses atomics, `mprotect` and `futex`, all of them safe in a signal. It saves
//!    `errno`. [`faults`](crate::faults) has the argument for the memory that it looks at.
//! 6. *Threads.* A [`Region`] gives no reference, and its system calls may run on any thread. A [`Face`]
//!    is an owner of `T: Pod` like a `Vec<T>`.

#![allow(unsafe_code)]

pub(crate) mod bell;
pub(crate) mod uffd;

use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytemuck::Pod;

/// Returns the size of a page in bytes.
pub(crate) fn page_bytes() -> usize {
    static PAGE_BYTES: OnceLock<usize> = OnceLock::new();
    *PAGE_BYTES.get_or_init(|| {
        // SAFETY: takes and returns numbers.
        let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(bytes).expect("the system has pages")
    })
}

/// Returns the error of a system call that returned `result`, or the result.
pub(crate) fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Pages behind a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    /// A memory file, to be read by its descriptor.
    File,
    /// A memory file, to be written at a second address.
    Twice,
    /// Private pages, filled through a userfaultfd alone.
    Private,
}

/// Allowed access of a face's page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    None,
    Read,
    Write,
}

impl Access {
    fn flags(self) -> libc::c_int {
        match self {
            Self::None => libc::PROT_NONE,
            Self::Read => libc::PROT_READ,
            Self::Write => libc::PROT_READ | libc::PROT_WRITE,
        }
    }
}

/// Whole pages of memory, at least one.
pub(crate) struct Region {
    base: NonNull<u8>,
    map_bytes: usize,
    other: Other,
}

/// The other way to a region's bytes, beside its face.
enum Other {
    Descriptor(OwnedFd),
    Address(NonNull<u8>),
    Nothing,
}

// SAFETY: point 6 of the module's argument.
unsafe impl Send for Region {}
// SAFETY: the same.
unsafe impl Sync for Region {}

impl Region {
    fn new(len_bytes: usize, backing: Backing) -> io::Result<Self> {
        let map_bytes = len_bytes.max(1).checked_next_multiple_of(page_bytes());
        let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
        let map_bytes =
            map_bytes.filter(|it| isize::try_from(*it).is_ok()).ok_or_else(too_large)?;
        let file = match backing {
            Backing::File | Backing::Twice => Some(memory_file(map_bytes)?),
            Backing::Private => None,
        };
        let base = map(map_bytes, file.as_ref())?;
        let mut region = Self { base, map_bytes, other: Other::Nothing };
        match (backing, file) {
            (Backing::Twice, file) => region.other = Other::Address(map(map_bytes, file.as_ref())?),
            (_, Some(file)) => region.other = Other::Descriptor(file),
            (_, None) => {}
        }
        Ok(region)
    }

    /// Returns the addresses of the face.
    pub(crate) fn addresses(&self) -> Range<usize> {
        let start = self.base.as_ptr().addr();
        start..start + self.map_bytes
    }

    /// Returns the size in bytes: whole pages.
    pub(crate) fn map_bytes(&self) -> usize {
        self.map_bytes
    }

    /// Changes the access of the face's `bytes`, which begin and end with pages.
    pub(crate) fn protect(&self, bytes: Range<usize>, access: Access) -> io::Result<()> {
        assert!(bytes.start <= bytes.end && bytes.end <= self.map_bytes);
        // SAFETY: within our mapping, which no other part of the program has. References into it stay
        // valid: an access that is not allowed faults and is retried when it is (2, 3, 4).
        let result = unsafe {
            let first = self.base.as_ptr().add(bytes.start).cast();
            libc::mprotect(first, bytes.len(), access.flags())
        };
        checked(result).map(drop)
    }

    /// Forgets the pages of the face; with a file, the bytes stay in the file.
    ///
    /// Must be called while no reference to the face exists, which `face` shows.
    pub(crate) fn forget_pages<T: Pod>(&self, face: &mut Face<T>) -> io::Result<()> {
        assert!(ptr::eq(self, &raw const *face.region), "the face is of this region");
        let forget = |advice| {
            // SAFETY: within our mapping; the mutable borrow of the face shows that there is no
            // reference, so private pages that become zeros are seen by none (1, 2).
            checked(unsafe { libc::madvise(self.base.as_ptr().cast(), self.map_bytes, advice) })
        };
        // The second is for pages that the program has locked in memory (`mlockall`), from Linux 5.18 on.
        forget(libc::MADV_DONTNEED).or_else(|_| forget(libc::MADV_DONTNEED_LOCKED)).map(drop)
    }

    /// Copies the bytes from `offset` on into `into`, by system call.
    pub(crate) fn read_at(&self, mut offset: usize, mut into: &mut [u8]) -> io::Result<()> {
        let Other::Descriptor(file) = &self.other else {
            panic!("a region that is read has a file")
        };
        let fd = file.as_raw_fd();
        while !into.is_empty() {
            let at = libc::off_t::try_from(offset).expect("regions are shorter than files may be");
            // SAFETY: the kernel writes at most `into.len()` bytes to `into`, borrowed mutably (2).
            let read = unsafe { libc::pread(fd, into.as_mut_ptr().cast(), into.len(), at) };
            let read = match usize::try_from(read) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => read,
                Err(_) => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => 0,
                    error => return Err(error),
                },
            };
            offset += read;
            into = &mut into[read..];
        }
        Ok(())
    }

    /// Copies `bytes` to `offset`. The pages must not be readable at the face yet (3).
    ///
    /// A quarter of the time of `pwrite`, which looks each page up in the file.
    pub(crate) fn write_at(&self, offset: usize, bytes: &[u8]) {
        let Other::Address(address) = self.other else { panic!("a region that is filled has two") };
        assert!(offset <= self.map_bytes && bytes.len() <= self.map_bytes - offset);
        // SAFETY: within our second mapping, to which there is no reference, in pages that no reader has
        // seen (2, 3). `bytes` are no part of it, since nothing gives a reference to it.
        unsafe {
            let first = address.as_ptr().add(offset);
            ptr::copy_nonoverlapping(bytes.as_ptr(), first, bytes.len());
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let second = if let Other::Address(address) = self.other { Some(address) } else { None };
        for base in [Some(self.base), second].into_iter().flatten() {
            // SAFETY: our mappings; the last holder is gone, and so is each reference, which borrows
            // the face that holds the region (1, 2).
            unsafe { libc::munmap(base.as_ptr().cast(), self.map_bytes) };
        }
    }
}

/// Maps the pages of a file, or private ones, at an address of the kernel's choice.
fn map(bytes: usize, file: Option<&OwnedFd>) -> io::Result<NonNull<u8>> {
    let kind = if file.is_some() {
        libc::MAP_SHARED
    } else {
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE
    };
    let (access, fd) = (Access::Write.flags(), file.map_or(-1, AsRawFd::as_raw_fd));
    // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
    let base = unsafe { libc::mmap(ptr::null_mut(), bytes, access, kind, fd, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // A forked process would write where nobody notices. Now its access is a fault.
    // SAFETY: our new mapping; nothing changes in this process.
    let result = checked(unsafe { libc::madvise(base, bytes, libc::MADV_DONTFORK) });
    if let Err(error) = result {
        // SAFETY: our new mapping, of which nobody else knows.
        unsafe { libc::munmap(base, bytes) };
        return Err(error);
    }
    Ok(NonNull::new(base.cast()).expect("the kernel maps nothing at zero"))
}

/// Makes a memory file whose pages are all there, so that a fault maps and never allocates.
fn memory_file(bytes: usize) -> io::Result<OwnedFd> {
    // SAFETY: the name is a string with an end.
    let fd = checked(unsafe { libc::memfd_create(c"tracked".as_ptr(), libc::MFD_CLOEXEC) })?;
    // SAFETY: a new descriptor that nobody else has.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    let length = libc::off_t::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
    // SAFETY: takes numbers; the file is ours.
    checked(unsafe { libc::fallocate(fd, 0, 0, length) })?;
    Ok(file)
}

/// The address of a region as elements: the one way to references.
pub(crate) struct Face<T: Pod> {
    region: Arc<Region>,
    len: usize,
    owns: PhantomData<T>,
}

impl<T: Pod> Face<T> {
    /// Makes a region for `len` elements.
    pub(crate) fn new(len: usize, backing: Backing) -> io::Result<Self> {
        const { assert!(size_of::<T>() > 0, "tracked elements have a size") };
        assert!(align_of::<T>() <= page_bytes(), "a page's start is aligned for each element");
        let bytes = len.checked_mul(size_of::<T>());
        let bytes = bytes.ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Self { region: Arc::new(Region::new(bytes, backing)?), len, owns: PhantomData })
    }

    /// Returns the region, which gives no references.
    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Returns the elements to read. Reads of pages that are not readable wait in their fault.
    pub(crate) fn elements(&self) -> &[T] {
        // SAFETY: within the mapping, aligned and valid (1), no mutable reference by the borrow (2),
        // and each byte has one value for all reads (3).
        unsafe { slice::from_raw_parts(self.region.base.as_ptr().cast(), self.len) }
    }

    /// Returns the elements to write.
    pub(crate) fn elements_mut(&mut self) -> &mut [T] {
        // SAFETY: within the mapping, aligned and valid (1), no other reference by the borrow (2).
        unsafe { slice::from_raw_parts_mut(self.region.base.as_ptr().cast(), self.len) }
    }
}

/// Returns `duration` as the system's time, bounded by a century.
fn timespec(duration: Duration) -> libc::timespec {
    let seconds = duration.as_secs().min(100 * 365 * 24 * 3600);
    // SAFETY: all bytes of the struct may be zero.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    time.tv_sec = seconds as libc::time_t;
    time.tv_nsec = duration.subsec_nanos() as libc::c_long;
    time
}

/// Writes `words` to the standard error and ends the process. Safe in a signal handler.
pub(crate) fn abort(words: &[&str]) -> ! {
    for word in words {
        // SAFETY: the kernel reads the bytes of `word`. A failure changes nothing: the process ends.
        unsafe { libc::write(libc::STDERR_FILENO, word.as_ptr().cast(), word.len()) };
    }
    std::process::abort()
}

/// Lets another thread run. Safe in a signal handler.
pub(crate) fn yield_now() {
    // SAFETY: takes nothing.
    unsafe { libc::sched_yield() };
}

#[cfg(test)]
mod tests;
