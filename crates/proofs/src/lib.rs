//! Sessions with both their ends, and small meshes, under virtual time and by seed. The endpoints
//! that `chunkcomm` ships run with applications around them, the network model between them, and
//! faults.
//!
//! A seed stands for nodes, the network between them, channels, messages and faults (`plan`). The
//! same seed gives the same trace. Every step is checked for:
//! - a message that is lost, repeated, changed or out of order;
//! - an acknowledgement of a packet or message that did not arrive;
//! - memory beyond the promised bound;
//! - a session that ends without cause, or does not end although it should;
//! - an acknowledgement that is late, or missing after a question;
//! - a packet taken that the protocol's text forbids to take.
//!
//! Reading order: `plan` (the contents of a seed), `end` (one end: endpoint, driver's memory,
//! application), `arrivals` (messages checked as they come), `world` (events, ours and the
//! network's). Its chapters are `connections` (the talks on the network's connections), `driver` (bytes
//! and time for one end), `dialling` (until an end has its connection), `applications`, `faults` and
//! `checks`. `rings` holds staged messages, `writing` puts packets on the network, and `coverage` counts what a run met. `graphs` is a
//! simulation of its own, of many channels without faults.
//!
//! Run it with `cargo run --release -p chunkcomm-proofs --bin chunkcomm-simulate -- --help`. The folder
//! `planted` has bugs that these seeds must find.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod arrivals;
mod coverage;
mod end;
mod graphs;
mod plan;
mod rings;
mod world;
mod writing;

use chunkcomm_proto::random::Random;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

pub use coverage::Coverage;
pub use graphs::{GraphOutcome, run_graph};

/// Length in bytes of the pattern that all messages are slices of.
const PATTERN_BYTES: usize = 320 * 1024;

/// Returns the pattern: the bytes that all messages are slices of.
fn pattern() -> &'static [u8] {
    static PATTERN: OnceLock<Vec<u8>> = OnceLock::new();
    PATTERN.get_or_init(|| {
        let mut random = Random::new(7);
        (0..PATTERN_BYTES / 8).flat_map(|_| random.next_u64().to_le_bytes()).collect()
    })
}

/// Result of a run of one seed.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// Hash over everything that happened and when; the same for the same seed.
    pub trace: u64,
    /// Counts of what the run met.
    pub coverage: Coverage,
    /// The first violation of a check, with the virtual time.
    pub violation: Option<String>,
}

/// Runs `seed`. Each line of the trace goes to `trace`.
pub fn run(seed: u64, trace: Option<&mut dyn FnMut(String)>) -> Outcome {
    let mut world = world::World::new(seed, trace);
    // Faults of this crate are panics.
    let ran = catch_unwind(AssertUnwindSafe(|| world.run()));
    let violation = match ran {
        Ok(()) => world.violation.take(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|it| (*it).to_owned()));
            Some(format!("at {}: panicked: {}", world.now.0, text.unwrap_or_default()))
        }
    };
    let coverage = world.coverage();
    Outcome { seed, trace: world.hash, coverage, violation }
}

#[cfg(test)]
mod tests;
