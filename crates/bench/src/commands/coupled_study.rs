//! `chunkperf coupled-study`: the coupled programs of Foster, Kohr, Krishnaiyer and Choudhary ("Bringing Task
//! Parallelism to HPF via the Message Passing Interface", 1996) in virtual time, and their statements beside ours.
//!
//! Figures 8, 10 and 12 compare a program of several groups with the data-parallel one on as many processors. The
//! paper has curves without numbers; its text about them are *claims*, which hold for ours or not. The programs are
//! the built examples. The world is `sp2`; its assumed numbers were fixed before the first run.

mod claims;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::Verdict;
use super::claim::Claim;
use super::collective::formulas::Costs;
use super::coupled::SP2_FLOP_NS;
use super::coupled::model::{Form, Pipeline};
use super::coupled::program::{self, Program, Ran, Run};
use super::redistribute::SP2_PACKING_NS;
use super::redistribute::ping_pong::one_way_on_sp2;
use crate::failure::Failure;
use crate::harness::protocol::OnOff;
use crate::harness::slices::name_of;
use crate::lan::load;
use crate::options::{Common, values};
use crate::table::{Cells, Row, significant, write_out};

/// The world of all runs.
const WORLD: &str = "sp2";

/// Arrays or images of a stream, of which three quarters count.
const ARRAYS: u64 = 12;

/// Sweeps over the blocks, of which three quarters count.
const SWEEPS: u64 = 60;

/// Options of `chunkperf coupled-study`.
#[derive(Debug, Args)]
pub struct CoupledStudyArgs {
    #[command(flatten)]
    common: Common,
    /// Folder of the built programs [default: `examples` beside this program]
    #[arg(long, value_name = "DIR", value_parser = program::folder)]
    examples: Option<PathBuf>,
    /// The one figure to run
    #[arg(long, value_enum)]
    only: Option<Figure>,
    /// Most rows of an array
    #[arg(long, value_name = "N", default_value = "1024", value_parser = values::count)]
    rows_max: u64,
    /// Most processors of a run
    #[arg(long, value_name = "N", default_value = "64", value_parser = values::nodes)]
    nodes_max: u32,
}

/// A figure of the paper about the times of programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// A matrix between two groups, with a plan that is kept and without.
    #[value(name = "figure-7")]
    Figure7,
    /// Two-dimensional FFT.
    #[value(name = "figure-8")]
    Figure8,
    /// Convolution.
    #[value(name = "figure-10")]
    Figure10,
    /// Multiblock.
    #[value(name = "figure-12")]
    Figure12,
}

/// One way of a matrix between two groups.
#[derive(Debug, Clone, Copy)]
struct OneWay {
    rows: usize,
    /// Ranks of each group.
    ranks: usize,
    fresh_seconds: f64,
    kept_seconds: f64,
}

/// Two forms of a program on as many processors: seconds of an array, or a sweep.
#[derive(Debug, Clone, Copy)]
struct Point {
    rows: usize,
    nodes: usize,
    data_parallel: f64,
    /// The form of several groups, as the program does it.
    coupled: f64,
    /// Of `fft2d`: the form of the paper, without overlap.
    plain: Option<Plain>,
}

/// A pipeline without overlap, as in the paper, and what the models say.
#[derive(Debug, Clone, Copy)]
struct Plain {
    seconds: f64,
    model_seconds: f64,
    /// The model of the form with overlap.
    model_overlapped: f64,
    model_data_parallel: f64,
}

/// Runs the command.
///
/// # Errors
/// If a program is not built, or a run fails.
pub fn run(args: &CoupledStudyArgs) -> Result<Verdict, Failure> {
    args.common.check_virtual()?;
    let examples = args.examples.clone().map_or_else(program::beside, Ok)?;
    let study = Study { args, examples };
    for &figure in Figure::value_variants() {
        if args.only.is_some_and(|only| only != figure) {
            continue;
        }
        let claims = match figure {
            Figure::Figure7 => study.persistence()?,
            _ => study.programs(figure)?,
        };
        claims.iter().for_each(|claim| claim.print(row_of(figure), args.common.json));
        if !args.common.json {
            write_out("\n");
        }
    }
    Ok(Verdict::Fine)
}

fn row_of(figure: Figure) -> Row {
    let mut row = Row::default();
    row.set("bench", "coupled-study")
        .set("transport", "virtual")
        .set("runtime", "virtual")
        .set("lan", format!("virtual:{WORLD}"))
        .set("figure", name_of(figure));
    row
}

/// Times for people, in milliseconds.
fn millis(seconds: f64) -> String {
    significant(seconds * 1e3)
}

struct Study<'a> {
    args: &'a CoupledStudyArgs,
    examples: PathBuf,
}

impl Study<'_> {
    fn cells(&self, heading: &[&str], count: usize) -> Cells {
        let heading = heading.iter().map(|&it| it.to_owned()).collect();
        Cells::new(heading, count, self.args.common.json)
    }

    fn write(&self, figure: Figure, table: &Cells) {
        if !self.args.common.json {
            write_out(&format!("{}\n", name_of(figure)));
            table.write(false);
        }
    }

    /// Sends matrices with fresh and with kept plans.
    fn persistence(&self) -> Result<Vec<Claim>, Failure> {
        let sizes = [16, 32, 64, 128, 256, 512, 1024].into_iter();
        let sizes = sizes.filter(|rows| *rows as u64 <= self.args.rows_max);
        let groups =
            [1, 2, 4, 8].into_iter().filter(|ranks| 2 * ranks <= self.args.nodes_max as usize);
        let cells: Vec<(usize, usize)> =
            sizes.flat_map(|rows| groups.clone().map(move |ranks| (rows, ranks))).collect();
        let heading = ["rows", "ranks", "fresh ms", "kept ms", "saved"];
        let mut table = self.cells(&heading, cells.len());
        let mut ways = Vec::new();
        for (rows, ranks) in cells {
            let [fresh_seconds, kept_seconds] = one_way_on_sp2(rows, ranks)?;
            let way = OneWay { rows, ranks, fresh_seconds, kept_seconds };
            let line = vec![
                rows.to_string(),
                ranks.to_string(),
                millis(fresh_seconds),
                millis(kept_seconds),
                format!("{:.0} %", way.saved() * 1e2),
            ];
            table.add(line, || {
                let mut row = row_of(Figure::Figure7);
                row.set("rows", rows)
                    .set("ranks", ranks)
                    .set("fresh_seconds", fresh_seconds)
                    .set("kept_seconds", kept_seconds)
                    .set("saved", way.saved());
                row
            });
            ways.push(way);
        }
        self.write(Figure::Figure7, &table);
        Ok(claims::of_persistence(&ways))
    }

    /// Runs both forms of a program over sizes and numbers of processors.
    fn programs(&self, figure: Figure) -> Result<Vec<Claim>, Failure> {
        let is_allowed = |(rows, nodes): &(usize, usize)| {
            *rows as u64 <= self.args.rows_max && *nodes <= self.args.nodes_max as usize
        };
        let sizes = figure.sizes().iter();
        let cells = sizes.flat_map(|&rows| figure.nodes().iter().map(move |&nodes| (rows, nodes)));
        let cells: Vec<_> = cells.filter(is_allowed).collect();
        let mut heading = vec!["rows", "processors", "data-parallel ms", "coupled ms", "gain"];
        if figure == Figure::Figure8 {
            heading.extend(["of model", "no overlap ms", "gain", "of model"]);
        }
        let mut table = self.cells(&heading, cells.len());
        let mut points = Vec::new();
        for (rows, nodes) in cells {
            let point = self.point(figure, rows, nodes)?;
            table.add(point.line(), || point.row(figure));
            points.push(point);
        }
        self.write(figure, &table);
        Ok(claims::of_programs(figure, &points))
    }

    fn point(&self, figure: Figure, rows: usize, nodes: usize) -> Result<Point, Failure> {
        let program = figure.program();
        let of_sweeps = program == Program::Multiblock;
        let coupled = Run {
            nodes: Some(nodes as u32),
            shape: Some([rows; 2]),
            count: Some(if of_sweeps { SWEEPS } else { ARRAYS }),
            flop_ns: Some(SP2_FLOP_NS),
            packing_ns: Some(SP2_PACKING_NS),
            ..Run::new(program, &format!("virtual:{WORLD}"))
        };
        let data_parallel = Run { is_data_parallel: true, ..coupled.clone() };
        let coupled = Run { ranks: figure.ranks(nodes), ..coupled };
        let plain = match figure {
            Figure::Figure8 => {
                let off = Some(OnOff::Off);
                let plain = Run { overlap: off, slabs: off, depth: Some(1), ..coupled.clone() };
                Some(Plain::of(self.seconds(&plain)?, rows, nodes)?)
            }
            _ => None,
        };
        let (coupled, data_parallel) = (self.seconds(&coupled)?, self.seconds(&data_parallel)?);
        Ok(Point { rows, nodes, data_parallel, coupled, plain })
    }

    fn seconds(&self, run: &Run) -> Result<f64, Failure> {
        match run.start(&self.examples)? {
            Ran::Figures(figures) => Ok(figures.steady_seconds),
            Ran::NotBuilt(reason) => Err(Failure::broken("starting a program", reason)),
        }
    }
}

impl Figure {
    fn program(self) -> Program {
        match self {
            Self::Figure7 | Self::Figure8 => Program::Fft2d,
            Self::Figure10 => Program::Convolution,
            Self::Figure12 => Program::Multiblock,
        }
    }

    /// Rows of an array; of the largest block in the paper's geometry.
    fn sizes(self) -> &'static [usize] {
        match self {
            Self::Figure7 | Self::Figure8 => &[64, 128, 256, 512, 1024],
            Self::Figure10 => &[64, 128, 256, 512],
            Self::Figure12 => &[192],
        }
    }

    /// Ranks of the groups, where the program's own choice is not in proportion of the work.
    fn ranks(self, nodes: usize) -> Option<Vec<usize>> {
        (self == Self::Figure10).then(|| ranks_of_convolution(nodes).to_vec())
    }

    /// Processors of all groups.
    fn nodes(self) -> &'static [usize] {
        match self {
            Self::Figure7 | Self::Figure8 => &[2, 4, 8, 16, 32, 64, 128],
            Self::Figure10 => &[4, 8, 16, 32, 64, 128],
            // In proportion of the blocks, 4 : 1 : 4, and numbers between.
            Self::Figure12 => &[3, 5, 9, 12, 18, 27, 36, 45, 63],
        }
    }
}

/// Returns ranks of the groups that transform, multiply and transform back: an eighth multiplies, and the others
/// have as much to do each.
fn ranks_of_convolution(nodes: usize) -> [usize; 4] {
    let products = (nodes / 8).max(1);
    let each = (nodes - products) / 3;
    [each, each, products, nodes - products - 2 * each]
}

/// Returns the form of `fft2d` on the world.
fn form(rows: usize) -> Result<Form, Failure> {
    let costs = Costs::of(&load(WORLD)?);
    let costs = costs.ok_or_else(|| Failure::broken("reading the world", "it has no host"))?;
    let (flop_ns, packing_ns) = (SP2_FLOP_NS, SP2_PACKING_NS);
    Ok(Form { costs, shape: [rows; 2], flop_ns, packing_ns })
}

impl Form {
    /// Returns the seconds of the data-parallel form, and of the pipeline with and without overlap, on as many
    /// processors.
    fn all(&self, nodes: usize) -> [f64; 3] {
        let ranks = [nodes / 2; 2];
        let overlapped = Pipeline { ranks, overlap: true, depth: 2 };
        let plain = Pipeline { ranks, overlap: false, depth: 1 };
        [self.data_parallel(nodes), self.pipelined(overlapped), self.pipelined(plain)]
    }
}

impl Plain {
    fn of(seconds: f64, rows: usize, nodes: usize) -> Result<Self, Failure> {
        let [model_data_parallel, model_overlapped, model_seconds] = form(rows)?.all(nodes);
        Ok(Self { seconds, model_seconds, model_overlapped, model_data_parallel })
    }
}

impl OneWay {
    /// Part of the time that a kept plan saves.
    fn saved(&self) -> f64 {
        1.0 - self.kept_seconds / self.fresh_seconds
    }
}

impl Point {
    /// Returns how much faster the coupled form is.
    fn gain(&self) -> f64 {
        self.data_parallel / self.coupled
    }

    fn line(&self) -> Vec<String> {
        let ratio = |ratio: f64| format!("{ratio:.3}");
        let mut line = vec![
            self.rows.to_string(),
            self.nodes.to_string(),
            millis(self.data_parallel),
            millis(self.coupled),
            ratio(self.gain()),
        ];
        if let Some(plain) = self.plain {
            line.extend([
                ratio(self.coupled / plain.model_overlapped),
                millis(plain.seconds),
                ratio(self.data_parallel / plain.seconds),
                ratio(plain.seconds / plain.model_seconds),
            ]);
        }
        line
    }

    fn row(&self, figure: Figure) -> Row {
        let mut row = row_of(figure);
        row.set("program", name_of(figure.program()))
            .set("rows", self.rows)
            .set("nodes", self.nodes)
            .set("data_parallel_seconds", self.data_parallel)
            .set("coupled_seconds", self.coupled)
            .set("gain", self.gain());
        if let Some(plain) = self.plain {
            row.set("coupled_model_seconds", plain.model_overlapped)
                .set("data_parallel_model_seconds", plain.model_data_parallel)
                .set("plain_seconds", plain.seconds)
                .set("plain_model_seconds", plain.model_seconds);
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_processors_have_a_group() {
        assert_eq!(ranks_of_convolution(4), [1, 1, 1, 1]);
        assert_eq!(ranks_of_convolution(16), [4, 4, 2, 6]);
        for &nodes in Figure::Figure10.nodes() {
            let ranks = ranks_of_convolution(nodes);
            assert!(ranks.iter().sum::<usize>() == nodes && !ranks.contains(&0), "{ranks:?}");
        }
    }
}
