//! An allocator that counts, for a program that makes it its own (`#[global_allocator]`). Every call goes to the system's allocator as it came. The counters
//! are atomics and a thread's flag without a destructor, which do not allocate. So it keeps the
//! promises of the allocator below it.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use chunkcomm::host::memory::FREED_HERE_BYTES_MAX;

/// The allocator.
#[derive(Debug)]
pub struct Counting;

/// Number of allocations of the whole program.
pub static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
/// Bytes that the whole program has allocated and not freed.
pub static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);

/// Number of allocations of at least [`LARGE_BYTES_MIN`] bytes.
pub static LARGE_ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
/// Bytes from which an allocation is large.
pub const LARGE_BYTES_MIN: usize = 256 * 1024;

/// Bytes that the watched threads have allocated and not freed.
pub static WATCHED_BYTES: AtomicI64 = AtomicI64::new(0);
/// Highest value of `WATCHED_BYTES` since a reader last set it back.
pub static WATCHED_PEAK: AtomicI64 = AtomicI64::new(0);

/// Bytes of the largest block that a watched thread has freed since a reader last set it back.
pub static WATCHED_FREED_MAX: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static WATCHED: Cell<bool> = const { Cell::new(false) };
}

/// Counts apart, from now on, the allocations and frees of this thread.
pub fn watch_this_thread() {
    WATCHED.set(true);
}

/// Returns the bytes of the largest block that the watched threads have freed since the last look.
pub fn freed_here() -> usize {
    WATCHED_FREED_MAX.swap(0, Ordering::Relaxed) as usize
}

/// Checks that the watched threads, which run tasks, have freed no large block since the last look.
///
/// # Panics
/// When one has.
#[track_caller]
pub fn assert_freed_elsewhere(what: &str) {
    let freed = freed_here();
    assert!(freed <= FREED_HERE_BYTES_MAX, "{what}: {freed} bytes are freed beside the tasks");
}

fn count_allocation(bytes: usize) {
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    if bytes >= LARGE_BYTES_MIN {
        LARGE_ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

fn count(bytes: i64) {
    LIVE_BYTES.fetch_add(bytes, Ordering::Relaxed);
    if WATCHED.try_with(Cell::get).unwrap_or(false) {
        let live = WATCHED_BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes;
        WATCHED_PEAK.fetch_max(live, Ordering::Relaxed);
        WATCHED_FREED_MAX.fetch_max((-bytes).max(0) as u64, Ordering::Relaxed);
    }
}

// SAFETY: see above.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_allocation(layout.size());
        count(layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count_allocation(bytes);
        count(bytes as i64 - layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(memory, layout, bytes) }
    }
}
