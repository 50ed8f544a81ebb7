//! Channels end to end: every promise, in each way in which it can be had and broken.
//!
//! One program, so that it is linked once; one module for each promise.

#![allow(clippy::unwrap_used)]

mod admission;
mod api;
mod backlog;
mod backlog_any;
mod bounded;
mod bytes;
mod cancel;
mod connecting;
mod duplex;
mod ends;
mod events;
#[cfg(target_os = "linux")]
mod exhausted;
mod exits;
mod feed;
mod flush;
mod full_ring;
mod hello;
mod last_words;
mod layer_versions;
mod layers;
mod loss;
mod many;
mod mismatch;
mod nodes;
mod observe;
#[cfg(target_os = "linux")]
mod one_copy;
mod opens;
mod owed;
mod polls;
mod redelivery;
mod redelivery_log;
mod resume;
mod runtime_gone;
#[cfg(target_os = "linux")]
mod same_host;
mod select_all;
mod serialize;
mod sessions;
mod silence;
mod sinks;
mod streams;
mod tuning;
mod untold;
mod warnings;
mod watch;
mod wire;
