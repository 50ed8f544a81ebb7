//! Tries all orders in which two or three threads may meet in the lock-free states of tracked buffers, with
//! loom (after Norris and Demsky, "CDSChecker"). The sources are those of `chunkcomm-pages`, with
//! loom's atomics.
//!
//! ```text
//! cargo test --manifest-path orders/Cargo.toml
//! ```

#![cfg(test)]

mod atomics {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
    pub(crate) use loom::thread::yield_now;
}

#[path = "../../crates/pages/src/increments.rs"]
mod increments;
#[expect(dead_code, reason = "only the states are tried")]
#[path = "../../crates/pages/src/pages.rs"]
mod pages;
mod sys;

/// The setting that `pages` knows.
mod settings {
    #[derive(PartialEq)]
    pub(crate) enum Missing {
        Abort,
        Unfilled,
    }
}

mod reading;
mod writing;
