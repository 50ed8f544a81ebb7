//! Counts the ways to put N queens on a board of N x N so that none attacks another. A task
//! puts one queen, and each way to do so is a further task; from a certain row on a task counts all.
//!
//! ```text
//! cargo run --release --example nqueens -- --queens 14
//! ```

use std::error::Error;
use std::process::ExitCode;

use chunkcomm_cluster::{Function, Registry};
use chunkcomm_examples::command_line::{numbers, parse, write_out};
use chunkcomm_examples::farm_options::FarmOptions;
use chunkcomm_examples::farm_report::Report;
use chunkcomm_examples::farming::{FINISH_DEADLINE, start};
use chunkcomm_examples::program::failed;
use chunkcomm_farm::serve_if_started;
use clap::Parser;
use serde::{Deserialize, Serialize};

/// Numbers of solutions for 1 queen, 2 queens, .. (<https://oeis.org/A000170>).
const KNOWN: [u64; 18] = [
    1,
    0,
    0,
    2,
    10,
    4,
    40,
    92,
    352,
    724,
    2_680,
    14_200,
    73_712,
    365_596,
    2_279_184,
    14_772_512,
    95_815_104,
    666_090_624,
];

const QUEENS_MAX: u64 = KNOWN.len() as u64;

/// Counts the solutions of the N queens with a farm, and compares the count with the known one.
#[derive(Parser, Clone, Debug)]
#[command(name = "nqueens", version)]
struct Options {
    /// Queens, and sides of the board
    #[arg(long, value_name = "N", value_parser = numbers::<u32>(1..=QUEENS_MAX), default_value_t = 14)]
    queens: u32,

    /// Rows that tasks fill one by one; the more, the more and the shorter are the tasks
    #[arg(long, value_name = "N", value_parser = numbers::<u32>(0..=QUEENS_MAX), default_value_t = 3)]
    rows: u32,

    /// See [`FarmOptions`].
    #[command(flatten)]
    farm: FarmOptions,
}

/// A board whose first rows have their queens: a task. A bit stands for a column of the next row.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Board {
    side: u32,
    /// Rows that tasks fill one by one.
    split: u32,
    rows: u32,
    /// Columns with a queen.
    columns: u32,
    /// Columns attacked along the diagonals that go to higher and to lower bits.
    rising: u32,
    falling: u32,
}

impl Board {
    /// Returns the boards with one more queen, which no other attacks.
    fn next(self) -> impl Iterator<Item = Board> {
        let free = !(self.columns | self.rising | self.falling);
        let places = (0..self.side).map(|column| 1 << column);
        places.filter(move |queen| free & queen != 0).map(move |queen| Board {
            rows: self.rows + 1,
            columns: self.columns | queen,
            rising: (self.rising | queen) << 1,
            falling: (self.falling | queen) >> 1,
            ..self
        })
    }
}

/// Counts the ways to fill the other rows of a board, or returns the boards with one more queen: the
/// task of a worker.
fn solve(board: Board) -> (u64, Vec<Board>) {
    if board.rows < board.split { (0, board.next().collect()) } else { (count(board), Vec::new()) }
}

fn count(board: Board) -> u64 {
    if board.rows == board.side { 1 } else { board.next().map(count).sum() }
}

fn main() -> ExitCode {
    let mut registry = Registry::new();
    let solve = registry.register("solve", solve);
    serve_if_started(&registry); // a worker process goes no further

    let options = parse::<Options>();
    match farm_out(options, registry, &solve) {
        Ok(is_right) => ExitCode::from(u8::from(!is_right)),
        Err(error) => failed("nqueens", &*error),
    }
}

/// Counts with the farm; returns whether the count is the known one.
#[tokio::main(flavor = "current_thread")]
async fn farm_out(
    options: &Options,
    registry: Registry,
    solve: &Function<Board, (u64, Vec<Board>)>,
) -> Result<bool, Box<dyn Error>> {
    let queens = options.queens;
    let split = options.rows.min(queens);
    let empty = Board { side: queens, split, ..Board::default() };
    let mut farm = start(&options.farm, registry, None).await?;
    let mut found = 0;
    let stats = farm.run_pool(solve, [empty], |count| found += count).await?;
    farm.finish(FINISH_DEADLINE).await?;
    options.farm.write_timeline(&stats)?;

    let known = KNOWN[queens as usize - 1];
    let mut report = Report::default();
    report.row("solutions", format_args!("{found} with {queens} queens"));
    report.run(&options.farm, false, None, &stats);
    report.row("check", format_args!("{known} are known"));
    write_out(report.text())?;
    Ok(found == known)
}
