//! Buffers that unmodified code fills or reads while they travel (Linux).
//!
//! A closure, or a foreign library that it calls, gets a plain slice. The protection of the slice's pages
//! tells what is finished, or lets a read wait for what has not come:
//!
//! ```text
//!   writer's pages   [ sent ][ sent ][ being written ][ not begun ......... ]
//!                        |       '- protected again, then read and sent
//!                        '- a store here faults: an error, or sent again
//!
//!   reader's pages   [ there ][ there ][ away ........................... ]
//!                                          '- a load here waits
//! ```
//!
//! The idea is that of Bao, Ding, Gao and Archambault, "Delta Send-Recv", section 2. They take a store to
//! page k+1 as a sign that page k is done. No language promises that, so page k is protected again before
//! it is read, and a later store is found.
//!
//! - A process that is forked has no part in a buffer: its access is a fault, which ends it.
//! - A program may lock its memory (`mlockall`): with `minor` and `missing` from Linux 5.18 on.
//!
//! The layers, in reading order: `settings`, `runs` and `error`; `sys`, the only `unsafe`; `guard` and `pages`,
//! the states that a signal handler shares; `window` and `contents`, pure: the order in which increments are
//! finished, and what is compared of them; `watch` and `fill`, the engines; [`TrackedOutput`], [`TrackedInput`]; and `delta`,
//! which joins them to [`DeltaSender`](crate::DeltaSender) and [`DeltaReceiver`](crate::DeltaReceiver).

mod delta;
mod error;
mod runs;
mod settings;

#[cfg(target_os = "linux")]
mod contents;
#[cfg(target_os = "linux")]
pub mod costs;
// In tests, so that it is compiled here, too.
#[cfg(any(test, not(target_os = "linux")))]
#[cfg_attr(target_os = "linux", allow(dead_code, unreachable_pub))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod fill;
#[cfg(target_os = "linux")]
mod guard;
#[cfg(target_os = "linux")]
mod increments;
#[cfg(target_os = "linux")]
mod pages;
#[cfg(target_os = "linux")]
mod receiving;
#[cfg(target_os = "linux")]
mod sending;
#[cfg(target_os = "linux")]
mod sys;
#[cfg(target_os = "linux")]
mod watch;
#[cfg(target_os = "linux")]
mod window;

#[cfg(not(target_os = "linux"))]
pub use elsewhere::{Arrivals, Filler, TrackedInput, TrackedOutput, costs};
#[cfg(target_os = "linux")]
pub use receiving::{Arrivals, Filler, TrackedInput};
#[cfg(target_os = "linux")]
pub use sending::TrackedOutput;

pub use error::{SetupError, TrackedRecvError, TrackedSendError};
pub use runs::{Finished, Received, Sent};
pub use settings::{
    Awaiting, INCREMENT_PAGES, INCREMENT_PAGES_MAX, Missing, RecvEngine, Rewrites, SendEngine,
    Tracking, UnknownEngine,
};

/// The atomics of `increments` and `pages`, in whose place a checker of orders has its own.
#[cfg(target_os = "linux")]
mod atomics {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
    pub(crate) use std::thread::yield_now;
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
