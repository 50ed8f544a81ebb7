//! `chunkperf reproduce`: the statements of five papers beside ours.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;

use super::Verdict;
use super::coupled::program;
use crate::commands::papers::{PAPERS, Paper, Report, Run, Settings, run_all, write};
use crate::failure::Failure;
use crate::options::Common;

/// Options of `chunkperf reproduce`.
#[derive(Debug, Args)]
#[command(
    after_help = "Virtual figures are the same on every machine: their digest. Programs of the hpf paper are \
    built by `cargo build --release --features chunkcomm-examples/virtual --examples`; a run whose program is \
    missing says so."
)]
pub struct ReproduceArgs {
    #[command(flatten)]
    common: Common,
    /// Papers [default: all]
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', value_parser = paper)]
    paper: Vec<&'static Paper>,
    /// Runs of these papers [default: all]
    #[arg(long, value_name = "RUN,..", value_delimiter = ',', value_parser = run_of_some_paper)]
    only: Vec<String>,
    /// Tiny sizes: only shows that everything runs; verdicts mean nothing
    #[arg(long)]
    quick: bool,
    /// One row alone: the numbers of statements by outcome, and figures of the runs
    #[arg(long)]
    summary: bool,
    /// Write the page papers.md and its pictures to this folder, too
    #[arg(long, value_name = "DIR", value_parser = folder)]
    report: Option<PathBuf>,
    /// Folder of the built examples [default: `examples` beside this program]
    #[arg(long, value_name = "DIR", value_parser = program::folder)]
    examples: Option<PathBuf>,
    /// A chunkperf without the feature virtual, for what is measured on this machine
    #[arg(long, value_name = "FILE", value_parser = file)]
    real: Option<PathBuf>,
}

/// Parses the name of a paper.
fn paper(text: &str) -> Result<&'static Paper, String> {
    let names: Vec<&str> = PAPERS.iter().map(|paper| paper.name).collect();
    let known = PAPERS.iter().find(|paper| paper.name == text);
    known.ok_or_else(|| format!("allowed are {}", names.join(", ")))
}

/// Parses the name of a run.
fn run_of_some_paper(text: &str) -> Result<String, String> {
    let names: Vec<&str> = PAPERS.iter().flat_map(|it| it.runs).map(|run| run.name).collect();
    let known = names.contains(&text).then(|| text.to_owned());
    known.ok_or_else(|| format!("allowed are {}", names.join(", ")))
}

/// Parses a folder that is there.
fn folder(text: &str) -> Result<PathBuf, String> {
    let path = Path::new(text);
    path.is_dir()
        .then(|| path.to_owned())
        .ok_or_else(|| "allowed is a folder that is there".to_owned())
}

/// Parses a program that is there.
fn file(text: &str) -> Result<PathBuf, String> {
    let path = Path::new(text);
    path.is_file().then(|| path.to_owned()).ok_or_else(|| "allowed is a built program".to_owned())
}

/// Runs the command.
///
/// # Errors
/// If a run fails, or the report cannot be written.
pub fn run(args: &ReproduceArgs) -> Result<Verdict, Failure> {
    args.common.check_virtual()?;
    let is_whole = args.paper.is_empty() && args.only.is_empty() && !args.quick;
    if args.report.is_some() && !is_whole {
        return Err(Failure::Refused(
            "--report writes about all papers: allowed without --paper, --only and --quick"
                .to_owned(),
        ));
    }
    let settings = Settings {
        quick: args.quick,
        examples: args.examples.clone().map_or_else(program::beside, Ok)?,
        real: args.real.clone(),
    };
    let (begun, json) = (Instant::now(), args.common.json);
    let ran = run_all(args.runs()?, &settings, |ran| {
        if !args.summary {
            write(ran, json);
        }
    })?;
    let report = Report { ran: &ran, seconds: begun.elapsed().as_secs_f64() };
    if args.only.is_empty() && !args.summary {
        report.write_rest(json);
    }
    if let Some(folder) = &args.report {
        report.write_page(folder)?;
    }
    let surprises = report.surprises();
    if !args.quick && !surprises.is_empty() {
        eprintln!(
            "chunkperf: these hold, for all the reasons in the lists: {}",
            surprises.join(", ")
        );
    }
    report.summary().print(json);
    Ok(Verdict::Fine)
}

impl ReproduceArgs {
    fn runs(&self) -> Result<Vec<(&'static Paper, Run)>, Failure> {
        let is_chosen = |paper: &&Paper| {
            self.paper.is_empty() || self.paper.iter().any(|it| it.name == paper.name)
        };
        let runs = PAPERS.iter().filter(is_chosen);
        let runs = runs.flat_map(|paper| paper.runs.iter().map(move |run| (paper, *run)));
        let is_wanted =
            |run: &Run| self.only.is_empty() || self.only.iter().any(|name| name == run.name);
        let runs: Vec<_> = runs.filter(|(_, run)| is_wanted(run)).collect();
        if runs.is_empty() {
            let names: Vec<&str> = self.paper.iter().map(|paper| paper.name).collect();
            let why = format!("--only: of {} there is no such run", names.join(", "));
            return Err(Failure::Refused(why));
        }
        Ok(runs)
    }
}
