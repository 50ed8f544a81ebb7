//! `chunkperf instructions`: instructions and lines of code of one thing, counted by callgrind.

mod callgrind;
mod counts;

use std::path::PathBuf;

use chunkcomm_instructions::{PROGRAMS, Program};
use clap::Args;
use clap::builder::PossibleValuesParser;

use self::callgrind::Callgrind;
use self::counts::{Count, Counts};
use super::Verdict;
use crate::failure::{Doing, Failure};
use crate::options::values;
use crate::table::{Column, Form, Row, Table, column};

/// Columns for people.
const COLUMNS: [Column; 4] = [
    column("name", "name", 11),
    column("instructions", "instructions", 12),
    column("lines", "lines", 5),
    column("what", "what", 0),
];

/// Options of `chunkperf instructions`.
#[derive(Debug, Args)]
pub struct InstructionsArgs {
    /// Rows to count, by name
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', value_parser = names())]
    only: Vec<String>,
    /// Table that no count may exceed by more than 5 %, and no number of lines below 160 by more than 8
    #[arg(long, value_name = "FILE", value_parser = values::table_file)]
    check: Option<PathBuf>,
    /// File for the table of these counts
    #[arg(long, value_name = "FILE", value_parser = values::table_file)]
    write: Option<PathBuf>,
    /// A built chunkcomm-instructions, whose programs are counted [default: those of this program]
    #[arg(long, value_name = "FILE", value_parser = values::program)]
    program: Option<PathBuf>,
    /// One JSON object a row on stdout, and nothing else
    #[arg(long)]
    json: bool,
    /// Runs one of the programs, under callgrind
    #[arg(long, value_name = "NAME", hide = true, value_parser = names())]
    run: Option<String>,
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(PROGRAMS.iter().map(|program| program.name))
}

/// Runs the command.
///
/// # Errors
/// If there is no valgrind, a program fails, or a file cannot be read or written.
pub fn run(args: &InstructionsArgs) -> Result<Verdict, Failure> {
    if let Some(program) = args.run.as_deref().and_then(Program::named) {
        return match program.run() {
            Ok(()) => Ok(Verdict::Fine),
            Err(error) => Err(Failure::caused(program.name, &*error)),
        };
    }
    let limits = args.check.as_ref().map(|file| Counts::from_file(file)).transpose()?;
    let counts = count(args)?;
    if let Some(file) = &args.write {
        std::fs::write(file, counts.to_text()?).doing(&format!("writing {}", file.display()))?;
    }
    let exceeded = limits.map_or_else(Vec::new, |limits| counts.above(&limits));
    for line in &exceeded {
        eprintln!("chunkperf: {line}");
    }
    Ok(if exceeded.is_empty() { Verdict::Fine } else { Verdict::Missed })
}

/// Counts the chosen programs, and prints their rows.
fn count(args: &InstructionsArgs) -> Result<Counts, Failure> {
    let callgrind = Callgrind::new()?;
    let this = std::env::current_exe().doing("finding this program's file")?;
    let mut table = Table::new(&COLUMNS, Form::of(args.json));
    let mut counts = Counts::default();
    let is_chosen =
        |name: &str| args.only.is_empty() || args.only.iter().any(|chosen| chosen == name);
    for program in PROGRAMS.iter().filter(|program| is_chosen(program.name)) {
        let counted = match &args.program {
            Some(other) => callgrind.count(other, &[program.name])?,
            None => callgrind.count(&this, &["instructions", "--run", program.name])?,
        };
        let [times, ends] = counted.printed()?.map(|number| number.max(1));
        let count = Count {
            instructions: counted.instructions() / (times * ends),
            lines: counted.lines(times / 2),
        };
        let mut row = Row::default();
        row.set("bench", "instructions")
            .set("name", program.name)
            .set("instructions", count.instructions)
            .set("lines", count.lines)
            .set("what", program.what);
        table.add(row);
        counts.rows.push((program.name.to_owned(), count));
    }
    Ok(counts)
}
