//! "Dynamic Chunking in Eden": its cost model, its echo, its time-out, its programs and its protocol.
//!
//! Eden's *processing elements* are nodes ([`pool`]). Ungathered, each message is a packet; gathered, a
//! packet leaves by the paper's criteria: urgent, out of room, full, old, idle.
//!
//! Reading order: [`pool`] (hosts and their costs), [`model`], [`echo`], [`time_out`], [`sorting`] and
//! [`maps`] (programs), [`programs`], [`chunks`], [`protocol`].

mod chunks;
mod echo;
mod maps;
mod model;
mod pool;
mod programs;
mod protocol;
mod sorting;
mod start_up;
mod time_out;

use super::{Means, Run};

/// Its runs.
pub(super) static RUNS: &[Run] = &[
    Run { name: "model", means: Means::Virtual, run: model::run },
    Run { name: "echo", means: Means::Virtual, run: echo::run },
    Run { name: "time-out", means: Means::Virtual, run: time_out::run },
    Run { name: "programs", means: Means::Virtual, run: programs::run },
    Run { name: "chunks", means: Means::Virtual, run: chunks::run },
    Run { name: "protocol", means: Means::Virtual, run: protocol::run },
    Run { name: "start-up", means: Means::Real, run: start_up::run },
    Run { name: "layers", means: Means::Real, run: protocol::layers },
];
