//! Other systems that move messages, each as a program that `chunkperf` measures beside ours. This
//! is the part that the programs in Rust have in common; `c/peer.h` is the same for those in C.
//!
//! `peer-NAME BENCH SIZE NEAR FAR FLAVOUR` is the near end, and starts the far end itself:
//!
//! ```text
//! chunkperf            near end                              far end
//!     |  start            |                                     |
//!     |------------------>|  start (--far)                      |
//!     |                   |------------------------------------>|
//!     |                   |<------------------------- address --|
//!     |                   |---- one message or call ----------->|
//!     |<-- NAME VERSION --|                                     |
//!     |  N                |  FIRST N                            |
//!     |------------------>|------------------------------------>|
//!     |                   |<--------------------------- ready --|
//!     |                   |==== N messages, by the system =====>|
//!     |                   |<---------------------------- done --|
//!     |<-- line of JSON --|                                     |
//! ```
//!
//! - BENCH: `one-way`, `round-trip`, `calls` (256 in flight), `bandwidth` or `idle`, where N is a
//!   number of further connections.
//! - NEAR, FAR: the core of each end, or `-`.
//! - FLAVOUR: `docs`, as the system's own documentation writes it, or `best`, its best settings.
//!
//! Both programs end with stdin, by status 0. A failure is a line on stderr and status 1; a bench
//! that a system does not have is status 3. `PEER_BREAK=order|check` corrupts the third message.

mod far;
mod message;
mod near;
mod setting;

use std::panic;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};

pub use far::{Calls, Checker, Goal, Orders, die_with_parent};
pub use message::{Stamp, verify};
pub use near::{Near, Order, Side, this_program};
pub use setting::{Bench, Flavour, Setting, pin_to};

/// Calls under way at a time.
pub const IN_FLIGHT: u64 = 256;

/// Status of a failure.
const STATUS_FAILED: i32 = 1;

/// Status of wrong arguments.
const STATUS_USAGE: i32 = 2;

/// Status of a bench that the system does not have.
const STATUS_NO_BENCH: i32 = 3;

/// Cause of a failure, for a reader.
#[derive(Debug)]
pub struct Failure(pub String);

impl Failure {
    /// Makes a failure of this cause.
    pub fn new(cause: impl Into<String>) -> Self {
        Self(cause.into())
    }
}

/// Names what failed.
pub trait Doing<T> {
    /// Turns an error into a failure of `doing`.
    ///
    /// # Errors
    /// If there is one.
    fn doing(self, doing: &str) -> Result<T, Failure>;
}

impl<T, E: std::fmt::Display> Doing<T> for Result<T, E> {
    fn doing(self, doing: &str) -> Result<T, Failure> {
        self.map_err(|error| Failure(format!("{doing}: {error}")))
    }
}

/// A measured system.
pub struct System {
    /// Its name, that of its program behind `peer-`.
    pub name: &'static str,
    /// Returns its version.
    pub version: fn() -> Result<String, Failure>,
    /// Benches that it does not have, with the reason.
    pub lacks: &'static [(Bench, &'static str)],
    /// Runs the near end: starts the far end, connects, and hands itself to [`Near::run`].
    pub near: fn(&'static System, &Setting) -> Result<(), Failure>,
    /// Runs the far end, with the arguments that the near end gave to [`Near::start`].
    pub far: fn(&Setting, &[String], Orders) -> Result<(), Failure>,
}

/// Whether the program is about to end: the system may then lose its connections.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Name of the system, for failures on any thread.
static NAME: std::sync::OnceLock<&str> = std::sync::OnceLock::new();

/// Ends the process because of this cause.
pub fn fail(cause: &str) -> ! {
    if ENDING.load(Ordering::Acquire) {
        process::exit(0);
    }
    eprintln!("peer-{}: {cause}", NAME.get().unwrap_or(&"?"));
    process::exit(STATUS_FAILED)
}

/// Runs the program of a system.
pub fn main(system: &'static System) {
    NAME.get_or_init(|| system.name);
    // A thread of the system that panics must end the program, not only itself.
    panic::set_hook(Box::new(|info| fail(&info.to_string().replace('\n', " "))));
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Err(Failure(cause)) = run(system, &arguments) {
        fail(&cause);
    }
}

fn run(system: &'static System, arguments: &[String]) -> Result<(), Failure> {
    let is_far = arguments.first().is_some_and(|first| first == "--far");
    if arguments == ["--version"] {
        println!("{} {}", system.name, (system.version)()?);
        return Ok(());
    }
    let words = &arguments[usize::from(is_far)..];
    let Some(setting) = Setting::of(words) else {
        eprintln!("{}", setting::usage(system.name));
        process::exit(STATUS_USAGE);
    };
    if let Some((_, reason)) = system.lacks.iter().find(|(bench, _)| *bench == setting.bench) {
        eprintln!("peer-{}: {reason}", system.name);
        process::exit(STATUS_NO_BENCH);
    }
    setting.allow_open_files();
    setting.pin(is_far)?;
    if is_far {
        die_with_parent();
        return (system.far)(&setting, &words[setting::WORDS..], Orders::new());
    }
    (system.near)(system, &setting)
}
