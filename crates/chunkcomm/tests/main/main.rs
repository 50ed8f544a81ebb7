//! Channels end to end: what is promised, in every way it can be had and broken.
//!
//! One program, so that it is linked once; a module a promise.

#![allow(clippy::unwrap_used)]

#[cfg(feature = "tls")]
mod admission;
mod api;
mod bounded;
mod bytes;
mod calls;
mod cancel;
mod ends;
#[cfg(target_os = "linux")]
mod exhausted;
mod exits;
mod flush;
mod full_ring;
mod gather;
mod hello;
mod last_words;
mod loss;
mod manager;
mod mismatch;
mod nodes;
mod observe;
mod ports;
mod processes;
mod resume;
mod serialize;
mod silence;
mod sinks;
mod streams;
mod support;
mod untold;
mod wire;
