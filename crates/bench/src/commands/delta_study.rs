//! `chunkperf delta-study`: the patterns of the delta paper in virtual time, its numbers beside ours.
//!
//! The paper's text has few numbers of its figure 2: the best speed-up of the cascade, the tasks at
//! which it saturates, and the gain of the ring. Its statements about the curves are *claims*, which hold
//! for ours or not. The machines are the worlds `regatta` and `pc-cluster-100m`, whose assumed numbers
//! were fixed before the first run.

mod claims;

use chunkcomm_coupled::patterns::{Compute, Pattern, Run};
use chunkcomm_group::Algorithm;
use clap::{Args, ValueEnum};

use self::claims::claims_of;
use super::Verdict;
use super::claim::Claim;
use super::delta::collective::timed as reductions;
use super::delta::world::{Timed, Way, timed};
use crate::failure::Failure;
use crate::harness::flows::{FlowKind, FlowPattern, FlowWay};
use crate::harness::slices::name_of;
use crate::lan::LanArgs;
use crate::options::Common;
use crate::options::values::{self, Auto};
use crate::table::{Row, aligned, significant, write_out};

/// "The delta size to 5 memory pages" (section 3).
const DELTA_BYTES: usize = 5 * PAGE_BYTES;

const PAGE_BYTES: usize = 4096;

/// Nodes of the chain through which increments of all sizes are sent: "23 times faster running time on
/// 29 MPI tasks" (section 4).
const NODES: usize = 29;

/// Nanoseconds of a byte that is combined: one an element. *Assumed*; the paper has no number.
const GAMMA_NS: f64 = 0.25;

/// Options of `chunkperf delta-study`.
#[derive(Debug, Args)]
pub struct DeltaStudyArgs {
    #[command(flatten)]
    common: Common,
    /// The one figure to run
    #[arg(long, value_enum)]
    only: Option<Figure>,
    /// Bytes of the array, whole elements of 4
    #[arg(long, value_name = "B", default_value = "4MiB", value_parser = values::bytes)]
    bytes: usize,
    /// Most nodes of a run
    #[arg(long, value_name = "N", default_value = "32", value_parser = values::count)]
    nodes_max: u64,
    /// Print one row alone: how many claims hold of those that the assumed numbers allow
    #[arg(long)]
    summary: bool,
}

/// A part of figure 2 of the paper, or its statement about increments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// Cascade on the Regatta, figure 2 (a).
    CascadeRegatta,
    /// Ring on the Regatta, figure 2 (b).
    RingRegatta,
    /// Reduce on the Regatta, figure 2 (c).
    ReduceRegatta,
    /// Cascade on the cluster, figure 2 (d).
    CascadeCluster,
    /// Ring on the cluster, figure 2 (e).
    RingCluster,
    /// Reduce on the cluster, figure 2 (f).
    ReduceCluster,
    /// Increments of all sizes through 29 nodes of the Regatta, and the computed one.
    Increments,
}

/// One run of a figure, whole and in deltas.
#[derive(Debug, Clone, Copy)]
struct Point {
    compute: Compute,
    nodes: usize,
    whole_seconds: f64,
    delta_seconds: f64,
}

/// Runs the command.
///
/// # Errors
/// If a run fails.
pub fn run(args: &DeltaStudyArgs) -> Result<Verdict, Failure> {
    args.common.check_virtual()?;
    let mut all = Vec::new();
    for &figure in Figure::value_variants() {
        if args.only.is_some_and(|only| only != figure) {
            continue;
        }
        let claims = match figure {
            Figure::Increments => args.increments()?,
            _ => args.curves(figure)?,
        };
        if !args.summary {
            claims.iter().for_each(|claim| claim.print(new_row(), args.common.json));
            if !args.common.json {
                write_out("\n");
            }
        }
        all.extend(claims);
    }
    if args.summary {
        let all: Vec<_> = all.iter().filter(|claim| claim.note.is_none()).collect();
        let held = all.iter().filter(|claim| claim.holds).count();
        let mut row = new_row();
        row.set("claims", all.len())
            .set("claims_held", held)
            .set("share_held", held as f64 / all.len() as f64)
            .print(args.common.json);
    }
    Ok(Verdict::Fine)
}

fn new_row() -> Row {
    let mut row = Row::default();
    row.set("bench", "delta-study").set("transport", "virtual").set("runtime", "virtual");
    row
}

impl DeltaStudyArgs {
    fn timed(
        &self,
        world: &str,
        pattern: Pattern,
        compute: Compute,
        nodes: usize,
        ways: &[Way],
    ) -> Result<Vec<Timed>, Failure> {
        let lan = LanArgs { lan: String::new(), trace: None, check: false };
        let run =
            Run { verify: false, ..Run::new(pattern, compute, self.bytes / size_of::<f32>()) };
        Ok(timed(&lan, world, nodes, &run, ways)?.results.swap_remove(0))
    }

    /// Returns the seconds of a reduction, whole and in deltas.
    fn reduced(&self, world: &str, compute: Compute, nodes: usize) -> Result<[f64; 2], Failure> {
        let lan = LanArgs { lan: String::new(), trace: None, check: false };
        let kind = FlowKind {
            pattern: FlowPattern::Reduce,
            nodes,
            bytes: self.bytes,
            delta_bytes: DELTA_BYTES,
            compute,
            gamma_ns: GAMMA_NS,
            algorithm: Algorithm::Binary.to_string(),
        };
        let (seconds, _) = reductions(&lan, world, &kind, &[FlowWay::Whole, FlowWay::Delta])?;
        Ok([seconds[0], seconds[1]])
    }

    /// Runs the points of a figure and prints them.
    fn curves(&self, figure: Figure) -> Result<Vec<Claim>, Failure> {
        let mut points = Vec::new();
        for compute in Compute::ALL {
            for &nodes in figure.tasks() {
                if nodes as u64 > self.nodes_max {
                    continue;
                }
                let [whole_seconds, delta_seconds] = match figure.pattern() {
                    Some(pattern) => {
                        let ways = [Way::Whole, Way::Delta(Auto::Fixed(DELTA_BYTES))];
                        let timed = self.timed(figure.world(), pattern, compute, nodes, &ways)?;
                        [timed[0].seconds, timed[1].seconds]
                    }
                    None => self.reduced(figure.world(), compute, nodes)?,
                };
                points.push(Point { compute, nodes, whole_seconds, delta_seconds });
            }
        }
        if !self.summary {
            self.print_points(figure, &points);
        }
        Ok(claims_of(figure, &points))
    }

    fn print_points(&self, figure: Figure, points: &[Point]) {
        if self.common.json {
            points.iter().for_each(|point| point.row(figure).print(true));
            return;
        }
        let heading = ["compute", "tasks", "whole s", "deltas s", "speed-up", "paper"];
        let mut lines = vec![heading.map(str::to_owned).to_vec()];
        lines.extend(points.iter().map(|point| point.line(figure)));
        write_out(&format!("{}\n{}", name_of(figure), aligned(&lines)));
    }

    /// Sends increments of all sizes, and prints the computed one beside the best.
    fn increments(&self) -> Result<Vec<Claim>, Failure> {
        let nodes = NODES.min(self.nodes_max as usize);
        let pages = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32];
        let fixed = pages.map(|pages| Way::Delta(Auto::Fixed(pages * PAGE_BYTES)));
        // The first run opens the windows of the connections, and is not counted.
        let ways = [&[Way::Delta(Auto::Auto); 2], &fixed[..]].concat();
        let world = Figure::Increments.world();
        let mut timed = self.timed(world, Pattern::Cascade, Compute::Trig, nodes, &ways)?;
        let auto = timed.remove(1);
        timed.remove(0);
        let best = timed.iter().min_by(|one, other| one.seconds.total_cmp(&other.seconds));
        let best = *best.unwrap_or(&auto);
        let auto_ratio = auto.seconds / best.seconds;
        if self.common.json && !self.summary {
            let mut row = new_row();
            row.set("figure", name_of(Figure::Increments))
                .set("nodes", nodes)
                .set("best_delta_bytes", best.delta_bytes)
                .set("best_seconds", best.seconds)
                .set("auto_delta_bytes", auto.delta_bytes)
                .set("auto_seconds", auto.seconds)
                .set("auto_ratio", auto_ratio)
                .print(true);
            // A budget reads one row.
            return Ok(Vec::new());
        }
        if !self.summary {
            let heading = ["increment", "bytes", "seconds", "of the best"];
            let line = |name: String, timed: &Timed| {
                let of_best = format!("{:.3}", timed.seconds / best.seconds);
                vec![name, timed.delta_bytes.to_string(), significant(timed.seconds), of_best]
            };
            let mut lines = vec![heading.map(str::to_owned).to_vec()];
            let names = pages.map(|pages| format!("{pages} pages"));
            lines.extend(names.into_iter().zip(&timed).map(|(name, timed)| line(name, timed)));
            lines.push(line("auto".to_owned(), &auto));
            write_out(&format!("{}\n{}", name_of(Figure::Increments), aligned(&lines)));
        }
        Ok(claims::of_increments(best.delta_bytes / PAGE_BYTES, auto_ratio))
    }
}

impl Figure {
    fn world(self) -> &'static str {
        match self {
            Self::CascadeRegatta | Self::RingRegatta | Self::ReduceRegatta | Self::Increments => {
                "regatta"
            }
            Self::CascadeCluster | Self::RingCluster | Self::ReduceCluster => "pc-cluster-100m",
        }
    }

    /// Returns the pattern of a chain; a reduction has none.
    fn pattern(self) -> Option<Pattern> {
        match self {
            Self::CascadeRegatta | Self::CascadeCluster | Self::Increments => {
                Some(Pattern::Cascade)
            }
            Self::RingRegatta | Self::RingCluster => Some(Pattern::Ring),
            Self::ReduceRegatta | Self::ReduceCluster => None,
        }
    }

    /// Returns the numbers of tasks: close together where the paper's curves bend. A tree of less than
    /// four has no node with two others below it.
    fn tasks(self) -> &'static [usize] {
        match self {
            Self::CascadeRegatta | Self::Increments => &[2, 8, 16, 24, 26, 27, 28, 29, 30, 32],
            Self::CascadeCluster => &[2, 4, 8, 14, 15, 16, 17, 18, 24],
            _ => &[4, 8, 16, 32],
        }
    }

    /// Returns the paper's speed-up, where its text has one.
    fn paper_speedup(self, compute: Compute, nodes: usize) -> Option<f64> {
        match (self, compute) {
            // "Up to 23 times faster running time on 29 MPI tasks" (section 4): the largest gain is that
            // of the largest computation (section 3).
            (Self::CascadeRegatta, Compute::Trig) if nodes == 29 => Some(23.0),
            // "Around 50% in all three computation types" (section 3).
            (Self::RingRegatta, _) if nodes == 32 => Some(1.5),
            // "The empty computation shows no improvement" (section 3).
            (Self::RingCluster, Compute::Empty) => Some(1.0),
            _ => None,
        }
    }
}

impl Point {
    fn speedup(&self) -> f64 {
        self.whole_seconds / self.delta_seconds
    }

    fn line(&self, figure: Figure) -> Vec<String> {
        let paper = figure.paper_speedup(self.compute, self.nodes);
        vec![
            self.compute.to_string(),
            self.nodes.to_string(),
            significant(self.whole_seconds),
            significant(self.delta_seconds),
            format!("{:.2}", self.speedup()),
            paper.map_or_else(|| "-".to_owned(), |paper| format!("{paper:.1}")),
        ]
    }

    fn row(&self, figure: Figure) -> Row {
        let mut row = new_row();
        row.set("figure", name_of(figure))
            .set("lan", format!("virtual:{}", figure.world()))
            .set("compute", self.compute.to_string())
            .set("nodes", self.nodes)
            .set("delta_bytes", DELTA_BYTES)
            .set("whole_seconds", self.whole_seconds)
            .set("delta_seconds", self.delta_seconds)
            .set("speedup", self.speedup())
            .set("paper_speedup", figure.paper_speedup(self.compute, self.nodes));
        row
    }
}
