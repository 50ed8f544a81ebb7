//! Figures 10 to 12, and the runs of all programs: several groups beside the data-parallel form on as many processors.

use std::fs;

use chunkcomm_testkit::Scratch;

use super::{SIGNIFICANT, WORLD, pairs, transfer};
use crate::commands::coupled::SP2_FLOP_NS;
use crate::commands::coupled::program::{Program, Ran, Run, Said, line_of, number_of};
use crate::commands::papers::known::known;
use crate::commands::papers::{Found, Scene};
use crate::commands::redistribute::SP2_PACKING_NS;
use crate::failure::{Doing, Failure};
use crate::harness::protocol::OnOff;
use crate::table::{Row, column};

/// Arrays or images of a stream, of which three quarters count.
const ARRAYS: u64 = 12;

/// Sweeps over the blocks, of which three quarters count.
const SWEEPS: u64 = 60;

/// Sweeps until the picture: some thousand reach the tolerance.
const PICTURE_SWEEPS: u64 = 200;

/// Residual at which the program ends by itself.
const TOLERANCE: f64 = 1e-6;

/// Most processors.
pub(super) const NODES_MAX: usize = 64;

/// Rows of the arrays; of the largest block in the paper's geometry.
pub(super) fn sizes(program: Program) -> &'static [usize] {
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
pub(super) struct Point {
    pub(super) rows: usize,
    pub(super) nodes: usize,
    pub(super) data_parallel: f64,
    /// Of it a processor computes.
    pub(super) computing: f64,
    /// The form of several groups, as the program does it.
    pub(super) coupled: f64,
    /// Of `fft2d`: the form of the paper, without overlap; else the same.
    pub(super) plain: f64,
    /// Number of groups.
    pub(super) groups: f64,
}

impl Point {
    /// Returns how much faster the coupled form is.
    fn gain(&self) -> f64 {
        self.data_parallel / self.coupled
    }

    /// Returns how much faster the form of the paper is.
    pub(super) fn plain_gain(&self) -> f64 {
        self.data_parallel / self.plain
    }
}

/// Runs the forms of a program over sizes and processors; `None` if the program is not built.
pub(super) fn points(
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
pub(super) fn show(found: &mut Found, points: &[Point], has_plain: bool) {
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
        Ok::<_, Failure>(pairs(&transfer([NODES_MAX; 2], from, to, within)?))
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
    let told = format!("{faster} of {}, with overlap {overlapping}", gains.len());
    found.verdict("most-instances", 2 * faster > gains.len(), told);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_processors_have_a_group() {
        assert_eq!(ranks_of_convolution(4), [1, 1, 1, 1]);
        assert_eq!(ranks_of_convolution(16), [4, 4, 2, 6]);
        for &nodes in processors(Program::Convolution) {
            let ranks = ranks_of_convolution(nodes);
            assert!(ranks.iter().sum::<usize>() == nodes && !ranks.contains(&0), "{ranks:?}");
        }
    }
}
