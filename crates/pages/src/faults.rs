//! Faults of protected pages by the signal SIGSEGV, for systems without `userfaultfd`.
//!
//! A [`Guard`] knows the addresses of a region and the states of its parts. The handler looks up the
//! guard of the fault's address, and the guard opens the part or waits until the part is there.
//! Faults outside all guards go to the handler that was there before.
//!
//! # Soundness
//!
//! - *Look-up.* The table is static and has atomics alone. An entry's addresses are set after its guard
//!   and cleared before it. An address inside them is one of a region, and code that touches a
//!   region borrows its face, which lives longer than the borrow, as the guard does. So a guard
//!   that is found lives while the handler runs in that code.
//! - *Handler.* It is installed once, before the first page is protected, and stays. It keeps the action
//!   before it, which was read before the handler could run.
//! - *Signal safety.* Atomics, `mprotect`, `futex`, `sched_yield`, `clock_gettime`, `write`, `abort`.

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::guard::Guard;
use super::sys::checked;

/// Most regions that are protected by this engine at one time.
pub(crate) const GUARDS_MAX: usize = 64;

/// `si_code` of an access that the page's protection forbids (`asm-generic/siginfo.h`).
const SEGV_ACCERR: libc::c_int = 2;

struct Entry {
    start: AtomicUsize,
    end: AtomicUsize,
    guard: AtomicPtr<Guard>,
}

static TABLE: [Entry; GUARDS_MAX] = [const {
    Entry {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        guard: AtomicPtr::new(ptr::null_mut()),
    }
}; GUARDS_MAX];

/// The action before ours.
struct Previous(libc::sigaction);

static PREVIOUS: OnceLock<Result<Previous, i32>> = OnceLock::new();

/// A guard whose faults come to it until this is dropped.
pub(crate) struct Guarded {
    entry: &'static Entry,
    guard: Arc<Guard>,
}

impl Guarded {
    /// Lets the faults of `addresses` come to `guard`.
    ///
    /// # Errors
    /// When the handler cannot be installed, or when [`GUARDS_MAX`] guards exist.
    pub(crate) fn new(guard: Arc<Guard>, addresses: Range<usize>) -> io::Result<Self> {
        install()?;
        let pointer = Arc::as_ptr(&guard).cast_mut();
        let free = |entry: &&'static Entry| {
            let empty = ptr::null_mut();
            let taken =
                entry.guard.compare_exchange(empty, pointer, Ordering::SeqCst, Ordering::SeqCst);
            taken.is_ok()
        };
        let entry = TABLE.iter().find(free).ok_or(io::ErrorKind::QuotaExceeded)?;
        entry.end.store(addresses.end, Ordering::SeqCst);
        entry.start.store(addresses.start, Ordering::SeqCst);
        Ok(Self { entry, guard })
    }

    pub(crate) fn guard(&self) -> &Arc<Guard> {
        &self.guard
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.entry.start.store(0, Ordering::SeqCst);
        self.entry.end.store(0, Ordering::SeqCst);
        self.entry.guard.store(ptr::null_mut(), Ordering::SeqCst);
    }
}

fn install() -> io::Result<()> {
    let installed = PREVIOUS.get_or_init(|| {
        let errno = |error: io::Error| error.raw_os_error().unwrap_or(libc::EINVAL);
        let mut previous = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: reads the present action into `previous`.
        let read = unsafe { libc::sigaction(libc::SIGSEGV, ptr::null(), previous.as_mut_ptr()) };
        checked(read).map_err(errno)?;
        // SAFETY: the call filled it; before, it was zeroed, which is valid, too.
        Ok(Previous(unsafe { previous.assume_init() }))
    });
    installed.as_ref().map_err(|errno| io::Error::from_raw_os_error(*errno))?;
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| {
        // SAFETY: all bytes of the struct may be zero; an empty mask and no flags.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_fault;
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        // SAFETY: the handler has the signature that SA_SIGINFO asks for, and may run at any time:
        // `PREVIOUS` is set.
        let set = unsafe { libc::sigaction(libc::SIGSEGV, &raw const action, ptr::null_mut()) };
        checked(set).map(drop).map_err(|error| error.raw_os_error().unwrap_or(libc::EINVAL))
    });
    installed.map_err(io::Error::from_raw_os_error)
}

extern "C" fn on_fault(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel gives a valid `info` for this signal, with an address for faults. `errno` is
    // this thread's own, and is restored.
    unsafe {
        let errno = libc::__errno_location();
        let kept = *errno;
        let address = (*info).si_addr().addr();
        let ours = (*info).si_code == SEGV_ACCERR && handled(address);
        *errno = kept;
        if !ours {
            pass_on(signal, info, context);
        }
    }
}

/// Handles the fault at `address` if a guard has it.
fn handled(address: usize) -> bool {
    let mut entries = TABLE.iter();
    let entry = entries.find(|entry| {
        let start = entry.start.load(Ordering::SeqCst);
        start != 0
            && (start..entry.end.load(Ordering::SeqCst)).contains(&address)
            && entry.start.load(Ordering::SeqCst) == start
    });
    let Some(entry) = entry else { return false };
    let guard = entry.guard.load(Ordering::SeqCst);
    // SAFETY: the address is in a region whose code runs in this thread, so the guard lives (module's
    // argument, look-up). Only shared references to a guard exist.
    match unsafe { guard.as_ref() } {
        Some(guard) => guard.on_fault(address),
        None => false,
    }
}

/// Does what would have happened without us.
///
/// # Safety
/// The arguments are those of a handler that runs.
unsafe fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(Ok(Previous(previous))) = PREVIOUS.get() else { return };
    match previous.sa_sigaction {
        // The access is retried when we return, and meets the default action. A fault that is ignored
        // ends the process as well.
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: restores an action that the system gave.
            unsafe { libc::sigaction(signal, &raw const *previous, ptr::null_mut()) };
        }
        handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            type Action = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
            // SAFETY: with this flag, the action is a function of this type.
            let handler: Action = unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: without the flag, the action is a function of this type.
            let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}
