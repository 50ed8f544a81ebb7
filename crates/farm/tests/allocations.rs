//! The farmer's path of a task allocates nothing, counted on the farmer's thread.
//!
//! An allocator can only be written with `unsafe`: this one passes every call on to
//! the system's with the same arguments, and only counts. The counter is a
//! thread-local without a destructor and without lazy initialisation, so that
//! counting itself does not allocate.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use chunkcomm_cluster::Registry;
use chunkcomm_farm::Farm;
use chunkcomm_farm::settings::{Prefetch, WorkersAs};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every method is the system allocator's own, called with the same
// arguments; the caller's promises are passed on as they are.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller promised.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

#[test]
fn a_task_costs_the_farmer_no_allocation() {
    let mut registry = Registry::new();
    let same = registry.register("same", |pair: (u64, u64)| pair);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let farm = Farm::builder(registry).workers(1).workers_as(WorkersAs::Thread);
        let mut farm = farm.prefetch(Prefetch::Fixed(256)).start().await.unwrap();
        // Buffers grow to their size in the first run.
        let mut sum = 0;
        for (tasks, counted) in [(20_000u64, false), (200_000, true)] {
            let before = allocations();
            let pairs = (0..tasks).map(|number| (number, 1));
            let results = farm.stream(&same, pairs).unwrap().as_completed();
            results.for_each(|_, pair| sum += pair.1).await.unwrap();
            let made = allocations() - before;
            // Some allocations a packet and some a run are allowed: a thousand times fewer
            // than tasks when packets are full, and never one a task.
            println!("{made} allocations for {tasks} tasks");
            assert!(!counted || made < tasks / 10, "{made} allocations for {tasks} tasks");
        }
        assert_eq!(sum, 220_000);
    });
}
