//! The tests that cross the crates, in one binary.
#![allow(clippy::unwrap_used)] // the helpers are tests too

mod cancel;
mod cascade;
mod cluster_options;
mod echo;
mod errors;
mod example;
mod farm;
#[cfg(target_os = "linux")]
mod farm_cluster;
#[cfg(target_os = "linux")]
mod farm_enemies;
mod floors;
#[path = "../../../crates/chunkcomm/tests/main/support/host.rs"]
mod host;
mod mandelbrot;
#[cfg(unix)]
mod mishaps;
mod nodes;
#[cfg(target_os = "linux")]
mod nodes_faults;
#[cfg(target_os = "linux")]
mod nodes_ssh;
#[cfg(target_os = "linux")]
mod nodes_ssh_ends;
mod parsort;
mod pipeline;
#[path = "../../../crates/chunkcomm/tests/main/support/ports.rs"]
mod ports;
mod proc;
mod pure;
#[path = "../../../crates/chunkcomm/tests/main/support/random.rs"]
mod random;
#[cfg(unix)]
mod service;
mod stages;
#[cfg(unix)]
mod telemetry;
mod types;
#[path = "../../../crates/chunkcomm/tests/main/support/waiting.rs"]
mod waiting;
mod wordcount;
