//! Figures 8, 10 to 12: programs of several groups beside the data-parallel form on as many processors.

use std::fs;

use chunkcomm_testkit::Scratch;

use super::{SIGNIFICANT, WORLD, is_near, messages, transfer};
use crate::commands::collective::formulas::Costs;
use crate::commands::coupled::SP2_FLOP_NS;
use crate::commands::coupled::model::{Form, Pipeline};
use crate::commands::coupled::program::{Program, Ran, Run, Said, line_of, number_of};
use crate::commands::papers::known::known;
use crate::commands::papers::{Curves, Found, Scene};
use crate::commands::redistribute::SP2_PACKING_NS;
use crate::failure::{Doing, Failure};
use crate::harness::protocol::OnOff;
use crate::lan::load;
use crate::table::{Row, column, significant};

/// Arrays or images of a stream, of which three quarters count.
const ARRAYS: u64 = 12;

/// Sweeps over the blocks, of which three quarters count.
const SWEEPS: u64 = 60;

/// Sweeps until the picture: some thousand reach the tolerance.
const PICTURE_SWEEPS: u64 = 200;

/// Residual at which the program ends by itself.
const TOLERANCE: f64 = 1e-6;

/// Most processors.
const NODES_MAX: usize = 64;

/// Most processors of the models.
const MODEL_NODES_MAX: usize = 1 << 14;

/// Factor within which a crossover is where the models have it.
const CROSSOVER_FACTOR: f64 = 2.0;

/// Part of the processors' time in which an efficient program computes. *Assumed*.
const EFFICIENT: f64 = 0.75;

/// Rows a processor of an array that is much larger than the number of processors. *Assumed*.
const MUCH_LARGER: usize = 64;

/// Rows of the arrays; of the largest block in the paper's geometry.
fn sizes(program: Program) -> &'static [usize] {
    match program {
        Program::Fft2d => &[64, 128, 256, 512, 1024],
        Program::Convolution => &[64, 128, 256, 512],
        Program::Multiblock => &[192],
    }
}

/// Processors of all groups.
fn processors(program: Program) -> &'static [usize] {
    match program {
        Program::Fft2d => &[2, 4, 8, 16, 32, 64],
        Program::Convolution => &[4, 8, 16, 32, 64],
        // In proportion of the blocks, 4 : 1 : 4, and numbers between.
        Program::Multiblock => &[3, 5, 9, 12, 18, 27, 36, 45, 63],
    }
}

/// Returns ranks of the groups that transform, multiply and transform back: an eighth multiplies, and the others
/// have as much to do each.
fn ranks_of_convolution(nodes: usize) -> [usize; 4] {
    let products = (nodes / 8).max(1);
    let each = (nodes - products) / 3;
    [each, each, products, nodes - products - 2 * each]
}

/// Seconds of an array, or a sweep, of the forms of a program on as many processors.
#[derive(Debug, Clone, Copy)]
struct Point {
    rows: usize,
    nodes: usize,
    data_parallel: f64,
    /// Of it a processor computes.
    computing: f64,
    /// The form of several groups, as the program does it.
    coupled: f64,
    /// Of `fft2d`: the form of the paper, without overlap; else the same.
    plain: f64,
    /// Number of groups.
    groups: f64,
}

impl Point {
    /// Returns how much faster the coupled form is.
    fn gain(&self) -> f64 {
        self.data_parallel / self.coupled
    }

    /// Returns how much faster the form of the paper is.
    fn plain_gain(&self) -> f64 {
        self.data_parallel / self.plain
    }
}

/// Runs the forms of a program over sizes and processors; `None` if the program is not built.
fn points(
    scene: &Scene<'_>,
    found: &mut Found,
    program: Program,
) -> Result<Option<Vec<Point>>, Failure> {
    let is_blocks = program == Program::Multiblock;
    let rows_max = scene.sized(usize::MAX, if is_blocks { usize::MAX } else { 64 });
    let nodes_max = scene.sized(NODES_MAX, 9);
    let mut points = Vec::new();
    for &rows in sizes(program).iter().filter(|rows| **rows <= rows_max) {
        for &nodes in processors(program).iter().filter(|nodes| **nodes <= nodes_max) {
            let own = (program == Program::Convolution).then(|| ranks_of_convolution(nodes));
            let coupled = Run {
                nodes: Some(nodes as u32),
                shape: Some([rows; 2]),
                count: Some(if is_blocks { SWEEPS } else { ARRAYS }),
                flop_ns: Some(SP2_FLOP_NS),
                packing_ns: Some(SP2_PACKING_NS),
                ranks: own.map(|ranks| ranks.to_vec()),
                ..Run::new(program, &format!("virtual:{WORLD}"))
            };
            let off = Some(OnOff::Off);
            let plain = Run { overlap: off, slabs: off, depth: Some(1), ..coupled.clone() };
            let plain = if program == Program::Fft2d { &plain } else { &coupled };
            let whole = Run { is_data_parallel: true, ranks: None, ..coupled.clone() };
            let mut figures = Vec::new();
            for run in [&whole, &coupled, plain] {
                match figures_of(scene, run)? {
                    Ok(of_run) => figures.push(of_run),
                    Err(reason) => {
                        found.missing(reason);
                        return Ok(None);
                    }
                }
            }
            let [whole, coupled, plain] = [&figures[0], &figures[1], &figures[2]];
            let ([data_parallel, coupled], plain) = ([whole[0], coupled[0]], plain[0]);
            let (computing, groups) = (whole[1], figures[1][2]);
            points.push(Point { rows, nodes, data_parallel, computing, coupled, plain, groups });
        }
    }
    Ok(Some(points))
}

/// Returns the seconds of an array, those in which a processor computes, and the number of groups; or why there are
/// none.
fn figures_of(scene: &Scene<'_>, run: &Run) -> Result<Result<Vec<f64>, String>, Failure> {
    let mut missing = None;
    let figures = known(format!("{run:?}"), || match run.start(&scene.settings.examples)? {
        Ran::Figures(figures) => {
            // Of the first group, an array.
            let computing = figures.said.get("compute_seconds").and_then(|all| all[0].as_f64());
            let computing = computing.unwrap_or(f64::NAN);
            Ok(vec![figures.steady_seconds, computing, figures.ranks().len() as f64])
        }
        Ran::NotBuilt(reason) => {
            missing = Some(reason);
            Err(Failure::broken("starting a program", "it is not built"))
        }
    });
    match missing {
        Some(reason) => Ok(Err(reason)),
        None => figures.map(Ok),
    }
}

/// Adds the points as a table.
fn show(found: &mut Found, points: &[Point], has_plain: bool) {
    let mut columns = vec![
        column("rows", "rows", 4),
        column("nodes", "processors", 4),
        column("data_parallel_ms", "data-parallel, ms", 9),
        column("coupled_ms", "coupled, ms", 9),
        column("gain", "gain", 5),
    ];
    if has_plain {
        columns.extend([column("plain_ms", "no overlap, ms", 9), column("plain_gain", "gain", 5)]);
    }
    let row = |point: &Point| {
        let mut row = Row::default();
        row.set("rows", point.rows)
            .set("nodes", point.nodes)
            .set("data_parallel_ms", point.data_parallel * 1e3)
            .set("coupled_ms", point.coupled * 1e3)
            .set("gain", point.gain())
            .set("plain_ms", point.plain * 1e3)
            .set("plain_gain", point.plain_gain());
        row
    };
    found.table("forms of the program", &columns, points.iter().map(row).collect());
}

/// Returns the least and the largest of some gains as a text.
fn range(gains: impl Iterator<Item = f64>) -> (f64, String) {
    let (least, most) = gains
        .fold((f64::INFINITY, 0.0_f64), |(least, most), gain| (least.min(gain), most.max(gain)));
    (least, format!("{least:.2} to {most:.2} times"))
}

/// Figure 8.
pub(super) fn fft2d(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let Some(points) = points(scene, found, Program::Fft2d)? else { return Ok(()) };
    show(found, &points, true);
    picture(found, &points);
    data_parallel(found, &points);
    messages_of_fft(scene, found)?;
    let curves = sizes(Program::Fft2d).iter().map(|rows| Curve::of(*rows, &points));
    let curves: Vec<_> = curves.filter(|curve| !curve.gains.is_empty()).collect();
    pipelines(scene, found, &points, &curves)?;
    let (least, told) = range(points.iter().map(Point::gain));
    found.verdict("fft-overlap", least > 1.0, told);
    let groups = points.iter().map(|point| point.groups);
    let told = format!("{} groups in fft2d", significant(points[0].groups));
    found.verdict("one-program", groups.clone().all(|groups| groups > 1.0), told);
    Ok(())
}

fn picture(found: &mut Found, points: &[Point]) {
    let line = |rows: usize, name: &str, seconds: fn(&Point) -> f64| {
        let of_rows = points.iter().filter(|point| point.rows == rows);
        let at = of_rows.map(|point| (point.nodes as f64, seconds(point) * 1e3)).collect();
        (format!("N {rows}, {name}"), at)
    };
    let lines = [64, 256, 1024].into_iter().flat_map(|rows| {
        [
            line(rows, "data-parallel", |it| it.data_parallel),
            line(rows, "pipeline", |it| it.plain),
            line(rows, "with overlap", |it| it.coupled),
        ]
    });
    found.curves(Curves {
        name: "8",
        title: "Figure 8: 2-D FFT".to_owned(),
        x: ("processors", true),
        y: ("ms an array", true),
        lines: lines.filter(|(_, points): &(_, Vec<_>)| !points.is_empty()).collect(),
    });
}

/// Decides how the data-parallel form scales.
fn data_parallel(found: &mut Found, points: &[Point]) {
    let efficiency = |point: &Point| {
        let rows = point.rows as f64;
        let seconds = 10.0 * rows * rows * rows.log2() * SP2_FLOP_NS * 1e-9;
        seconds / (point.data_parallel * point.nodes as f64)
    };
    let (large, small): (Vec<_>, Vec<_>) =
        points.iter().partition(|point| point.rows >= MUCH_LARGER * point.nodes);
    let least = large.iter().map(efficiency).fold(1.0, f64::min);
    let lowest = small.iter().map(efficiency).fold(1.0, f64::min);
    let holds = least >= EFFICIENT && lowest < EFFICIENT;
    let told = format!("{least:.2}; else down to {lowest:.2}");
    found.verdict("fft-data-parallel-large", holds, told);

    let at =
        |rows: usize, nodes: usize| points.iter().find(|it| (it.rows, it.nodes) == (rows, nodes));
    let growth = |from: (usize, usize), to: (usize, usize), seconds: fn(&Point) -> f64| {
        let all = |(rows, nodes): (usize, usize)| {
            at(rows, nodes).map_or(f64::NAN, |it| seconds(it) * nodes as f64)
        };
        all(to) / all(from)
    };
    let computing = growth((512, 4), (1024, 4), |it| it.computing);
    let transpose: fn(&Point) -> f64 = |it| it.data_parallel - it.computing;
    // Of a large array, and of many processors.
    let [by_rows, by_nodes] =
        [growth((512, 4), (1024, 4), transpose), growth((64, 32), (64, 64), transpose)];
    let holds =
        is_near(computing, 4.0 * 10.0 / 9.0) && is_near(by_rows, 4.0) && is_near(by_nodes, 4.0);
    let told = format!("{computing:.2}; {by_rows:.2}, {by_nodes:.2} a doubling");
    found.verdict("fft-costs-scale", holds, told);
}

/// Counts the messages of an array.
fn messages_of_fft(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let nodes = scene.sized(NODES_MAX, 8);
    let (rows, columns) =
        (|it: usize| format!("(block,*)@{it}x1"), |it: usize| format!("(*,block)@1x{it}"));
    let half = nodes / 2;
    let pipeline = messages(&transfer([NODES_MAX; 2], rows(half), columns(half), false)?);
    let all_to_all = messages(&transfer([NODES_MAX; 2], rows(nodes), columns(nodes), true)?);
    let told = |messages: usize| format!("{messages} with {nodes}");
    found.verdict("fft-pipeline-messages", pipeline == nodes * nodes / 4, told(pipeline));
    found.verdict("fft-all-to-all-messages", all_to_all == nodes * (nodes - 1), told(all_to_all));
    // Half of the processors send.
    let ratio = all_to_all as f64 / nodes as f64 / (pipeline as f64 / half as f64);
    let holds = is_near(ratio, scene.numbers("fft-half-the-messages")[0]);
    found.verdict("fft-half-the-messages", holds, format!("{ratio:.2} times"));
    Ok(())
}

/// Decides about the pipeline without overlap, the paper's.
fn pipelines(
    scene: &Scene<'_>,
    found: &mut Found,
    points: &[Point],
    curves: &[Curve],
) -> Result<(), Failure> {
    let most_rows = scene.numbers("fft-small-arrays")[0];
    let small: Vec<_> = points.iter().filter(|point| point.rows as f64 <= most_rows).collect();
    let faster = small.iter().filter(|point| point.plain_gain() > 1.0).count();
    let told = format!("in {faster} of {}", small.len());
    found.verdict("fft-small-arrays", 2 * faster >= small.len(), told);
    let (small, large) = (&curves[0], &curves[curves.len() - 1]);
    let told = format!("{} rows: {:.2} to {:.2} times", large.rows, large.first(), large.last());
    let grow = curves.iter().all(|curve| curve.last() > curve.first());
    found.verdict("fft-gains-with-processors", grow, told);
    let holds = small.last() > 1.0 && (curves.len() == 1 || small.last() > large.last());
    let told = format!("{:.2} and {:.2} times", small.last(), large.last());
    found.verdict("fft-gains-with-small", holds, told);
    let ids = [
        "fft-crossover-64",
        "fft-crossover-128",
        "fft-crossover-256",
        "fft-crossover-512",
        "fft-crossover-1024",
    ];
    for id in ids {
        let rows = scene.numbers(id)[0] as usize;
        let Some(curve) = curves.iter().find(|curve| curve.rows == rows) else { continue };
        let (holds, told) = curve.beside_models()?;
        found.verdict(id, holds, told);
    }
    Ok(())
}

/// Gains of the pipeline without overlap over processors.
#[derive(Debug)]
struct Curve {
    rows: usize,
    gains: Vec<(usize, f64)>,
}

impl Curve {
    fn of(rows: usize, points: &[Point]) -> Self {
        let own = points.iter().filter(|point| point.rows == rows);
        Self { rows, gains: own.map(|point| (point.nodes, point.plain_gain())).collect() }
    }

    fn first(&self) -> f64 {
        self.gains.first().map_or(f64::NAN, |(_, gain)| *gain)
    }

    fn last(&self) -> f64 {
        self.gains.last().map_or(f64::NAN, |(_, gain)| *gain)
    }

    /// Returns the gains by the models of both forms, on more processors as well.
    fn of_models(rows: usize) -> Result<Self, Failure> {
        let costs = Costs::of(&load(WORLD)?);
        let costs = costs.ok_or_else(|| Failure::broken("reading the world", "it has no host"))?;
        let (flop_ns, packing_ns) = (SP2_FLOP_NS, SP2_PACKING_NS);
        let form = Form { costs, shape: [rows; 2], flop_ns, packing_ns };
        let nodes = std::iter::successors(Some(2), |nodes| Some(nodes * 2));
        let nodes = nodes.take_while(|nodes| *nodes <= MODEL_NODES_MAX.min(2 * rows));
        let gain = |nodes: usize| {
            let plain = Pipeline { ranks: [nodes / 2; 2], overlap: false, depth: 1 };
            (nodes, form.data_parallel(nodes) / form.pipelined(plain))
        };
        Ok(Self { rows, gains: nodes.map(gain).collect() })
    }

    /// Returns the number of processors from which on the pipeline is faster: between two points where the line
    /// through the logarithms of both is at a gain of 1.
    fn crossover(&self) -> Option<f64> {
        let slower = self.gains.iter().rposition(|(_, gain)| *gain < 1.0);
        let Some(slower) = slower else {
            return self.gains.first().map(|(nodes, _)| *nodes as f64);
        };
        let ((before, loss), (after, gain)) = (self.gains[slower], *self.gains.get(slower + 1)?);
        let share = -loss.ln() / (gain.ln() - loss.ln());
        Some(before as f64 * (after as f64 / before as f64).powf(share))
    }

    /// Compares the crossover with that of the models; returns a text, too.
    fn beside_models(&self) -> Result<(bool, String), Failure> {
        let model = Self::of_models(self.rows)?.crossover();
        let most = self.gains.last().map_or(f64::NAN, |(nodes, _)| *nodes as f64);
        let ours = self.crossover();
        let holds = match (ours, model) {
            (Some(ours), Some(model)) => {
                (1.0 / CROSSOVER_FACTOR..=CROSSOVER_FACTOR).contains(&(ours / model))
            }
            // None was found up to the most: the models' may be there at the earliest.
            (None, Some(model)) => model * CROSSOVER_FACTOR > most,
            (Some(_), None) => false,
            (None, None) => true,
        };
        let shown = |at: Option<f64>, none: String| at.map_or(none, |at| format!("{at:.0}"));
        let (ours, model) = (shown(ours, format!("above {most}")), shown(model, "none".to_owned()));
        Ok((holds, format!("{ours}, models {model}")))
    }
}

/// Figure 10.
pub(super) fn convolution(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let Some(points) = points(scene, found, Program::Convolution)? else { return Ok(()) };
    show(found, &points, false);
    let (mut fewer, mut told) = (true, String::new());
    for &nodes in processors(Program::Convolution) {
        let [pipeline, data_parallel] = messages_of_convolution(nodes)?;
        fewer &= pipeline < data_parallel;
        told = format!("{pipeline}, data-parallel {data_parallel}");
    }
    found.verdict("convolution-messages", fewer, told);
    let significant = points.iter().filter(|point| point.gain() >= SIGNIFICANT).count();
    let told = format!("in {significant} of {}", points.len());
    found.verdict("convolution-faster", 2 * significant >= points.len(), told);
    Ok(())
}

/// Counts the messages of an image in the pipeline, and in the data-parallel form: each transform transposes within
/// its group.
fn messages_of_convolution(nodes: usize) -> Result<[usize; 2], Failure> {
    let rows = |ranks: usize| format!("(block,*)@{ranks}x1");
    let counted = |from: String, to: String, within| {
        Ok::<_, Failure>(messages(&transfer([NODES_MAX; 2], from, to, within)?))
    };
    let transposed = |ranks: usize| counted(rows(ranks), format!("(*,block)@1x{ranks}"), true);
    let [images, kernels, products, results] = ranks_of_convolution(nodes);
    let mut pipeline = transposed(images)? + transposed(kernels)? + transposed(results)?;
    for (from, to) in [(images, products), (kernels, products), (products, results)] {
        pipeline += counted(rows(from), rows(to), false)?;
    }
    Ok([pipeline, 3 * transposed(nodes)?])
}

/// Figures 11 and 12.
pub(super) fn multiblock(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let Some(points) = points(scene, found, Program::Multiblock)? else { return Ok(()) };
    show(found, &points, false);
    // In proportion to the blocks, 4 : 1 : 4, as the paper's.
    let even = points.iter().filter(|point| point.nodes % 9 == 0);
    let (least, told) = range(even.map(Point::gain));
    found.verdict("multiblock-faster", least > 1.0, told);
    solution(scene, found)
}

/// Draws the solution after some sweeps.
fn solution(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let folder = Scratch::folder("pictures");
    let file = folder.join("blocks.png");
    let side = scene.numbers("blocks")[0];
    let options = [
        "--json".to_owned(),
        "--no-progress".to_owned(),
        format!("--lan=virtual:{WORLD}"),
        "--ranks=4,1,4".to_owned(),
        format!("--side={side}"),
        format!("--sweeps={PICTURE_SWEEPS}"),
        format!("--tolerance={TOLERANCE}"),
        format!("--output={}", file.display()),
    ];
    let Said::Line(said) = line_of(&scene.settings.examples, "multiblock", &options)? else {
        return Ok(());
    };
    let residual = number_of(&said, "multiblock", "residual").unwrap_or(f64::NAN);
    let png = if file.is_file() { fs::read(&file).doing("reading a picture")? } else { Vec::new() };
    let holds = png.starts_with(b"\x89PNG") && residual > TOLERANCE;
    let told = format!("{PICTURE_SWEEPS} sweeps, residual {residual:.1e}");
    found.verdict("multiblock-picture", holds, told);
    if holds {
        found.picture("11", "Figure 11: an intermediate solution", png);
    }
    Ok(())
}

/// All three programs.
pub(super) fn summary(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let (mut gains, mut overlapping) = (Vec::new(), 0);
    for program in [Program::Fft2d, Program::Convolution, Program::Multiblock] {
        let Some(points) = points(scene, found, program)? else { return Ok(()) };
        gains.extend(points.iter().map(Point::plain_gain));
        overlapping += points.iter().filter(|point| point.gain() > 1.0).count();
    }
    let faster = gains.iter().filter(|gain| **gain > 1.0).count();
    let told = format!("{faster} of {}, overlapping {overlapping}", gains.len());
    found.verdict("most-instances", 2 * faster > gains.len(), told);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(gains: &[(usize, f64)]) -> Curve {
        Curve { rows: 64, gains: gains.to_vec() }
    }

    #[test]
    fn all_processors_have_a_group() {
        assert_eq!(ranks_of_convolution(4), [1, 1, 1, 1]);
        assert_eq!(ranks_of_convolution(16), [4, 4, 2, 6]);
        for &nodes in processors(Program::Convolution) {
            let ranks = ranks_of_convolution(nodes);
            assert!(ranks.iter().sum::<usize>() == nodes && !ranks.contains(&0), "{ranks:?}");
        }
    }

    #[test]
    fn a_crossover_lies_between_two_points() {
        let at = curve(&[(2, 0.5), (8, 0.8), (32, 1.25), (64, 1.6)]).crossover();
        assert!(at.is_some_and(|at| (at - 16.0).abs() < 1e-9), "{at:?}");
        assert_eq!(curve(&[(2, 1.1), (4, 1.2)]).crossover(), Some(2.0));
        assert_eq!(curve(&[(2, 0.5), (4, 0.9)]).crossover(), None);
        // It counts from where the pipeline stays faster.
        let at = curve(&[(2, 1.1), (4, 0.8), (16, 1.25)]).crossover();
        assert!(at.is_some_and(|at| (at - 8.0).abs() < 1e-9), "{at:?}");
    }

    #[test]
    fn crossovers_of_the_models_grow_with_the_arrays() {
        let at = |rows| Curve::of_models(rows).unwrap().crossover();
        let all = [64, 128, 256].map(at);
        assert!(all.iter().all(Option::is_some) && all.is_sorted(), "{all:?}");
    }
}
