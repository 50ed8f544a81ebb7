//! Clusters: members, the manager's words, the end. A program of its own, since its nodes wait for
//! each other.

#![allow(clippy::unwrap_used)]

mod calls;
mod faults;
mod joining;
mod names;
#[path = "../main/support/ports.rs"]
mod ports;
mod precedence;
mod processes;
mod versions;
#[path = "../main/support/waiting.rs"]
mod waiting;
