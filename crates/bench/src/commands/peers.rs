//! `chunkperf peers`: ours beside every other system, in one table.

mod idle;
mod lines;
mod print;

use std::time::Instant;

use clap::Args;

use self::lines::{LINES, Line};
use self::print::Table;
use super::Verdict;
use crate::failure::Failure;
use crate::harness::slices::name_of;
use crate::peers::{PeersDir, System};
use crate::stats::{Ratio, median};
use crate::table::write_out;

/// Options of `chunkperf peers`.
#[derive(Debug, Args)]
pub struct PeersArgs {
    /// Systems of the table [default: all]
    #[arg(long, value_name = "NAME,..", value_enum, value_delimiter = ',')]
    only: Vec<System>,
    /// One table in Markdown, a column a system
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Tiny sizes: only shows that everything runs; figures mean nothing
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    peers: PeersDir,
    /// One JSON object a figure on stdout, and nothing else
    #[arg(long)]
    json: bool,
}

/// A column of the table beside ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    /// Ours with many messages a call.
    Many,
    /// Another system.
    Of(System),
}

impl Column {
    fn name(self) -> String {
        match self {
            Self::Many => "many".to_owned(),
            Self::Of(system) => name_of(system),
        }
    }
}

/// A system in a line, beside ours.
#[derive(Debug, Clone)]
struct Cell {
    line: &'static Line,
    column: Column,
    measured: Result<Measured, String>,
}

/// Figures of a system and of ours.
#[derive(Debug, Clone)]
struct Measured {
    /// Name and version, as the system tells them.
    version: String,
    flavour: &'static str,
    /// Our figures, a pair or a turn each.
    ours: Vec<f64>,
    /// Those of the system, paired by index.
    theirs: Vec<f64>,
}

impl Measured {
    fn figure(&self) -> f64 {
        median(&self.theirs)
    }

    /// Returns ours over theirs.
    fn ratio(&self) -> Ratio {
        Ratio::of_pairs(&self.ours, &self.theirs)
    }
}

impl Cell {
    /// Whether the system is better than ours: by the median of the pairs.
    fn wins(&self) -> bool {
        let Ok(measured) = &self.measured else { return false };
        let ratio = measured.ratio().median;
        let is_peer = self.column != Column::Many;
        is_peer && if self.line.less_is_better() { ratio > 1.0 } else { ratio < 1.0 }
    }
}

/// Runs the command.
///
/// # Errors
/// If ours fails. A system that is missing or fails stands in the table with the reason.
pub fn run(args: &PeersArgs) -> Result<Verdict, Failure> {
    let started = Instant::now();
    let count = LINES.iter().map(|line| args.columns(line).len()).sum();
    let mut table = Table::new(args.chosen());
    for line in LINES {
        let columns = args.columns(line);
        line.measure(&columns, args, &mut |cell| {
            table.add(cell);
            table.tell(count, started.elapsed());
            if args.json {
                table.last_row().print(true);
            }
        })?;
    }
    if !args.json {
        if args.quick {
            write_out("tiny sizes: the figures mean nothing\n");
        }
        write_out(&if args.markdown { table.to_markdown() } else { table.to_lines() });
    }
    Ok(Verdict::Fine)
}

impl PeersArgs {
    /// Returns the systems of the table, in its order.
    fn chosen(&self) -> Vec<System> {
        use clap::ValueEnum;
        let all = System::value_variants().iter().copied();
        all.filter(|system| self.only.is_empty() || self.only.contains(system)).collect()
    }

    fn columns(&self, line: &Line) -> Vec<Column> {
        let systems = self.chosen().into_iter().filter(|&system| line.has(system));
        let many = line.has_many().then_some(Column::Many);
        many.into_iter().chain(systems.map(Column::Of)).collect()
    }
}
