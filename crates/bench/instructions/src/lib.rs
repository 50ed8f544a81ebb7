//! Programs whose instructions `chunkperf instructions` counts.
//!
//! A program runs all of its nodes on one thread and repeats one thing: a *round*. Callgrind counts
//! while `counted` runs, known by its name. Before it the program starts, and warms up.
//!
//! Reading order: `nodes` (links and clusters in one process), then a file for each kind of
//! program: `messages`, `calls`, `groups`, `deltas`, `farms`, `idle`, `bare`.

mod bare;
mod calls;
mod deltas;
mod farms;
mod groups;
mod idle;
mod messages;
mod nodes;

use std::error::Error;
use std::pin::Pin;

use tokio::runtime::{Builder, Runtime};

/// Outcome of a program; any failure ends it.
pub type Outcome<T> = Result<T, Box<dyn Error>>;

/// A future on the program's one thread.
type Local<'a, T> = Pin<Box<dyn Future<Output = Outcome<T>> + 'a>>;

/// A program that has started.
trait Rounds {
    /// Repeats the program's round this often.
    fn run(&mut self, count: u64) -> Local<'_, ()>;
}

/// A program to count.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// Name of its row.
    pub name: &'static str,
    /// Meaning of its row, for people.
    pub what: &'static str,
    /// Rounds that are counted.
    rounds: u64,
    /// Number of times that a round does the same: increments or tasks.
    in_round: u64,
    /// Number of ends whose shares of the instructions are alike: the row has one.
    ends: u64,
    start: fn() -> Local<'static, Box<dyn Rounds>>,
}

const fn program(
    name: &'static str,
    what: &'static str,
    [rounds, in_round, ends]: [u64; 3],
    start: fn() -> Local<'static, Box<dyn Rounds>>,
) -> Program {
    Program { name, what, rounds, in_round, ends, start }
}

/// All programs, in the order of their rows.
pub const PROGRAMS: &[Program] = &[
    program("lone", "a message there or back, alone", [2_000, 1, 2], messages::lone),
    program("lone-tcp", "the same over TCP", [2_000, 1, 2], messages::lone_tcp),
    program(
        "burst-one",
        "a message of 16 B of a burst, one a call",
        [200_000, 1, 1],
        messages::burst_one,
    ),
    program("burst-many", "the same, many a call", [200_000, 1, 1], messages::burst_many),
    program(
        "burst-1024",
        "a message of 1 KiB of a burst, one a call",
        [10_000, 1, 1],
        messages::burst_long,
    ),
    program("call", "a call there and back", [2_000, 1, 1], calls::call),
    program("barrier", "a barrier of 2 ranks over TCP, a rank", [1_000, 1, 2], groups::barrier),
    program(
        "all-reduce",
        "an all-reduce of 8 B of 2 ranks over TCP, a rank",
        [1_000, 1, 2],
        groups::all_reduce,
    ),
    program(
        "increment",
        "an increment of 4 KiB, an end",
        [50, deltas::INCREMENTS, 2],
        deltas::increments,
    ),
    program("task", "an empty task, alone in its assignment", [20, farms::TASKS, 1], farms::alone),
    program(
        "task-range",
        "an empty task of a range of 1000",
        [100, farms::TASKS, 1],
        farms::ranges,
    ),
    program(
        "redelivered",
        "a message of 16 B that is kept until it is settled",
        [50_000, 1, 1],
        messages::redelivered,
    ),
    program("idle", "30 s of a link that carries nothing, an end", [10, 1, 2], idle::idle),
    program(
        "bare",
        "a number there or back through a duplex of tokio",
        [2_000, 1, 2],
        bare::duplex,
    ),
    program("bare-tcp", "the same over TCP", [2_000, 1, 2], bare::tcp),
];

/// Rounds before the counted ones, as a share of them: a tenth.
const WARM_UP: u64 = 10;

impl Program {
    /// Returns the program of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Program> {
        PROGRAMS.iter().find(|program| program.name == name)
    }

    /// Starts the program, warms it up, and runs its rounds in `counted`. Prints two numbers: that
    /// of the times that it did the same, and that of its ends.
    ///
    /// # Errors
    /// If the program fails.
    pub fn run(&self) -> Outcome<()> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let mut program = runtime.block_on((self.start)())?;
        runtime.block_on(program.run(self.rounds.div_ceil(WARM_UP)))?;
        counted(&runtime, program.run(self.rounds))?;
        println!("{} {}", self.rounds * self.in_round, self.ends);
        Ok(())
    }
}

/// Runs the counted rounds. Callgrind knows the function by its name.
#[inline(never)]
fn counted(runtime: &Runtime, rounds: Local<'_, ()>) -> Outcome<()> {
    runtime.block_on(rounds)
}
