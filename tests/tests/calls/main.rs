//! Calls, processes and channel ends that travel, end to end.
//!
//! One program, so that it is linked once; one module for each promise.

#![allow(clippy::unwrap_used)]

mod calls;
mod computing;
mod interfaces;
mod manager;
mod middleware;
mod processes;
mod scopes;
mod travelling;
