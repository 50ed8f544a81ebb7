//! Clusters: members, the manager's words, the end. A program of its own, since its nodes wait for
//! each other.

#![allow(clippy::unwrap_used)]

mod agreeing;
mod calls;
mod faults;
mod feeds;
mod joining;
mod names;
mod precedence;
mod processes;
mod sessions;
mod versions;
