//! Buffers that unmodified code writes or reads while their elements travel (Linux).
//!
//! A closure, or a foreign library that it calls, gets a plain slice. The protection of the slice's pages
//! tells finished elements, or lets a read wait for elements that have not come:
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
//! Nothing here knows of a network. `chunkcomm-pipeline` joins these buffers to its deltas, with its feature
//! `tracked`. In code of your own, its explicit parts are faster.
//!
//! | step | of a buffer that is written, [`TrackedOutput`] | of one that is read, [`TrackedInput`] |
//! |---|---|---|
//! | set up | `new`: memory and an engine | `new` |
//! | begin | `track`: all pages are protected | `track`: all pages are away |
//! | go on | `done` gets the elements that were finished since | `fill` puts elements by a [`Filler`] |
//! | end | the code returns, `done` has had the rest | the code and `fill` return |
//! | costs | [`costs::send_costs`] | [`costs::recv_costs`] |
//!
//! # Engines
//!
//! By default the first that works here. Each of them is the best one somewhere:
//!
//! | engine | means | Linux | where it is the one to take |
//! |---|---|---|---|
//! | [`WpAsync`](SendEngine::WpAsync) | the kernel notes writes, scans return them | 6.7 | the fastest: a fault of 0.9 us |
//! | [`Wp`](SendEngine::Wp) | the tracker answers each fault | 5.19 | the only one for strict code that jumps to and fro in a large buffer |
//! | [`Mprotect`](SendEngine::Mprotect) | a handler of SIGSEGV | all | the only one on older systems |
//! | [`Minor`](RecvEngine::Minor) | pages of a memory file are mapped | 5.14 | the fastest |
//! | [`Missing`](RecvEngine::Missing) | private pages are made | 4.11 | before 5.14 the only one without limits on buffers and mappings |
//! | [`Mprotect`](RecvEngine::Mprotect) | a handler of SIGSEGV | all | the only one on older systems, or without `userfaultfd` |
//!
//! - A process that is forked has no part in a buffer: its access is a fault, which ends it.
//! - A program may lock its memory (`mlockall`): with `minor` and `missing` from Linux 5.18 on.
//! - On other systems and on virtual hosts no buffer can be made: [`SetupError::NotSupportedHere`].
//!
//! # Layers
//!
//! In reading order: `settings`, `runs` and `error`; `sys` and `faults`, the only `unsafe`; `guard`, `increments` and
//! `pages`, the states that a signal handler shares; `window` and `contents`, pure: the order in which
//! increments are finished, and the comparison of their contents; `watch` and `fill`, the engines; and
//! [`TrackedOutput`] and [`TrackedInput`].

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
mod faults;
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

pub use error::{AccessError, SetupError};
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
