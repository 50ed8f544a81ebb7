//! Allocations of a call of a group, counted by the program's allocator.

#![allow(clippy::unwrap_used)]

#[path = "../clusters/mod.rs"]
mod clusters;
mod groups;
mod memory;

use std::sync::atomic::Ordering;

use chunkcomm_testkit::counting::{ALLOCATIONS, Counting};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Held by the test that counts.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

fn allocations() -> u64 {
    ALLOCATIONS.load(Ordering::Relaxed)
}
