//! `chunkperf coupled`: a built example program of coupled groups, its figures beside a model, or beside
//! another form of the same program.

#[cfg(feature = "virtual")]
pub(crate) mod model;
mod models;
pub(crate) mod program;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use self::program::{Figures, Program, Ran, Ranks, Run};
use super::redistribute::SP2_PACKING_NS;
use super::{Verdict, set_ratio};
use crate::failure::Failure;
use crate::harness::protocol::OnOff;
use crate::harness::slices::name_of;
use crate::lan;
use crate::options::{Common, values};
use crate::stats::{Ratio, median};
use crate::table::Row;

/// Nanoseconds of a floating point operation on the SP2: 25 MFLOPS. *Assumed*; the paper has no number.
pub(crate) const SP2_FLOP_NS: f64 = 40.0;

/// Runs of each form on the real network, in turns.
const RUNS: usize = 5;

/// Keys of a row that the program says itself.
const PROGRAM_KEYS: [&str; 8] =
    ["form", "ranks", "shape", "overlap", "slabs", "depth", "compute_seconds", "waiting_share"];

/// Options of `chunkperf coupled`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "The programs are built by `cargo build --release --features chunkcomm-examples/virtual \
    --examples`; options that are not given are left to them. `steady_seconds` is the time of an array, or of a \
    sweep, without start and end of the stream. With --against, forms run in turns, several times each on \
    the real network, and the ratio is that of arrays a second. `form_error` is the distance of \
    `steady_seconds` from `model_seconds`, as a part of that."
)]
pub struct CoupledArgs {
    #[command(subcommand)]
    form: Option<CoupledForm>,
    #[command(flatten)]
    common: Common,
    /// The program
    #[arg(long, value_enum, value_name = "PROGRAM", default_value_t = Program::Fft2d)]
    program: Program,
    /// Folder of the built programs [default: `examples` beside this program]
    #[arg(long, value_name = "DIR", value_parser = program::folder)]
    examples: Option<PathBuf>,
    /// Rows and columns of an array, or of the largest block, which is a square
    #[arg(long, value_name = "RxC", value_parser = values::shape)]
    shape: Option<[usize; 2]>,
    /// Ranks of each group
    #[arg(long, value_name = "A,B,..", value_parser = program::ranks)]
    ranks: Option<Ranks>,
    /// Ranks of all groups
    #[arg(long, value_name = "N", value_parser = values::nodes)]
    nodes: Option<u32>,
    /// One group of all ranks does all steps in turn
    #[arg(long)]
    data_parallel: bool,
    /// Whether packing overlaps sending
    #[arg(long, value_enum, value_name = "ON|OFF")]
    overlap: Option<OnOff>,
    /// Whether rows leave as they are finished
    #[arg(long, value_enum, value_name = "ON|OFF")]
    slabs: Option<OnOff>,
    /// Rounds of a transfer that are under way at most
    #[arg(long, value_name = "1|2", value_parser = values::depth)]
    depth: Option<usize>,
    /// Arrays or images of the stream, or sweeps
    #[arg(long, value_name = "K", value_parser = values::count)]
    arrays: Option<u64>,
    /// Network between the nodes: real is this machine's, virtual:NAME or virtual:FILE one in virtual time
    #[arg(long, default_value = "real", value_parser = lan::lan)]
    lan: String,
    /// Write the timeline of a virtual LAN to this file, for Perfetto or Chrome
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Nanoseconds of a floating point operation on virtual hosts [default: the program's, on sp2 40]
    #[arg(long, value_name = "NS", value_parser = values::nanoseconds)]
    flop: Option<f64>,
    /// Nanoseconds of packing or unpacking a byte on virtual hosts [default: the program's, on sp2 17.24]
    #[arg(long, value_name = "NS", value_parser = values::nanoseconds)]
    packing: Option<f64>,
    /// Form of the same program that is measured in the same run, and whose ratio is printed
    #[arg(long, value_enum, value_name = "FORM")]
    against: Option<Against>,
}

#[derive(Debug, Subcommand)]
enum CoupledForm {
    /// One farm in several programming models, real and in virtual time
    Models(models::ModelsArgs),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Against {
    /// One group of all ranks.
    DataParallel,
    /// Nothing leaves before the whole array is finished.
    NoSlabs,
    /// Nothing leaves before all is packed.
    NoOverlap,
}

/// Runs the command.
///
/// # Errors
/// If the options do not go together, or the program fails.
pub fn run(args: &CoupledArgs) -> Result<Verdict, Failure> {
    if let Some(CoupledForm::Models(args)) = &args.form {
        return models::run(args);
    }
    args.check()?;
    let examples = args.examples.clone().map_or_else(program::beside, Ok)?;
    let ours = args.ours();
    let forms: Vec<Run> = [Some(ours.clone()), args.against.map(|against| against.of(&ours))]
        .into_iter()
        .flatten()
        .collect();
    let runs = if args.lan == "real" && forms.len() > 1 { RUNS } else { 1 };
    let mut all = [Vec::new(), Vec::new()];
    for _ in 0..runs {
        for (form, figures) in forms.iter().zip(&mut all) {
            match form.start(&examples)? {
                Ran::Figures(of_run) => figures.push(of_run),
                Ran::NotBuilt(reason) => {
                    let mut row = args.row_of(&ours);
                    row.set("steady_seconds", None::<f64>).set("reason", reason);
                    row.print(args.common.json);
                    return Ok(Verdict::Fine);
                }
            }
        }
    }
    let [figures, baseline] = all;
    args.row(&ours, &figures, &baseline)?.print(args.common.json);
    Ok(Verdict::Fine)
}

impl CoupledArgs {
    fn check(&self) -> Result<(), Failure> {
        let refuse = |why: String| Err(Failure::Refused(why));
        if !self.common.is_plain() {
            return refuse(
                "the programs choose by themselves: allowed are no --transport, --runtime, --threads, \
                 --session, --connect and --without"
                    .to_owned(),
            );
        }
        let is_real = self.lan == "real";
        if is_real && (self.trace.is_some() || self.flop.is_some() || self.packing.is_some()) {
            return refuse(
                "--trace, --flop, --packing: allowed with --lan virtual:NAME".to_owned(),
            );
        }
        let of_transfers = matches!(self.against, Some(Against::NoSlabs | Against::NoOverlap));
        if of_transfers && self.program != Program::Fft2d {
            return refuse("no-slabs, no-overlap: allowed with --program fft2d".to_owned());
        }
        if self.program == Program::Multiblock
            && self.shape.is_some_and(|[rows, columns]| rows != columns)
        {
            return refuse("--shape: allowed with --program multiblock are squares".to_owned());
        }
        let Some(Ranks(ranks)) = &self.ranks else { return Ok(()) };
        let groups = self.program.groups();
        if ranks.len() != groups {
            let program = name_of(self.program);
            return refuse(format!(
                "--ranks: {program} has {groups} groups, allowed are {groups} numbers"
            ));
        }
        if self.data_parallel {
            return refuse(
                "--data-parallel has one group: allowed is --nodes, not --ranks".to_owned(),
            );
        }
        Ok(())
    }

    /// Returns the run that the options stand for.
    fn ours(&self) -> Run {
        let is_sp2 = self.lan == "virtual:sp2";
        Run {
            nodes: self.nodes,
            ranks: self.ranks.clone().map(|Ranks(ranks)| ranks),
            is_data_parallel: self.data_parallel,
            shape: self.shape,
            count: self.arrays,
            overlap: self.overlap,
            slabs: self.slabs,
            depth: self.depth,
            flop_ns: self.flop.or(is_sp2.then_some(SP2_FLOP_NS)),
            packing_ns: self.packing.or(is_sp2.then_some(SP2_PACKING_NS)),
            trace: self.trace.clone(),
            ..Run::new(self.program, &self.lan)
        }
    }

    /// Returns what every row says.
    fn row_of(&self, ours: &Run) -> Row {
        let mut row = self.common.row("coupled");
        if self.lan != "real" {
            row.set("transport", "virtual").set("runtime", "virtual");
        }
        row.set("program", name_of(self.program))
            .set("lan", self.lan.as_str())
            .set("flop_ns", ours.flop_ns)
            .set("packing_ns", ours.packing_ns);
        row
    }

    /// Returns the row of some runs, and of as many of another form where one was asked for.
    fn row(&self, ours: &Run, figures: &[Figures], baseline: &[Figures]) -> Result<Row, Failure> {
        let seconds_of = |figures: &[Figures], which: fn(&Figures) -> f64| {
            median(&figures.iter().map(which).collect::<Vec<_>>())
        };
        let mut row = self.row_of(ours);
        for key in PROGRAM_KEYS {
            row.set(key, figures[0].said.get(key).cloned().unwrap_or_default());
        }
        row.set(
            "arrays",
            figures[0].said.get(self.program.count_option()).cloned().unwrap_or_default(),
        );
        let steady_seconds = seconds_of(figures, |it| it.steady_seconds);
        row.set("seconds", seconds_of(figures, |it| it.seconds))
            .set("steady_seconds", steady_seconds);
        #[cfg(feature = "virtual")]
        if let Some(model) = model::of_run(ours, &figures[0])? {
            row.set("model_seconds", model).set("form_error", (steady_seconds / model - 1.0).abs());
        }
        let Some(against) = self.against else { return Ok(row) };
        let rates = |figures: &[Figures]| {
            figures.iter().map(|it| 1.0 / it.steady_seconds).collect::<Vec<f64>>()
        };
        let ratio = Ratio::of_pairs(&rates(figures), &rates(baseline));
        set_ratio(&mut row, &name_of(against), ratio);
        row.set("baseline_seconds", seconds_of(baseline, |it| it.steady_seconds));
        Ok(row)
    }
}

impl Against {
    /// Returns the run of the other form, on as many ranks.
    fn of(self, ours: &Run) -> Run {
        let mut other = Run { trace: None, ..ours.clone() };
        match self {
            Self::DataParallel => {
                let ranks = other.ranks.take();
                let sum = ranks.map(|ranks| ranks.iter().sum::<usize>() as u32);
                (other.nodes, other.is_data_parallel) = (other.nodes.or(sum), true);
            }
            Self::NoSlabs => other.slabs = Some(OnOff::Off),
            Self::NoOverlap => other.overlap = Some(OnOff::Off),
        }
        other
    }
}
