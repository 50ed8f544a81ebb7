//! Figure 8: two groups of a pipeline beside the data-parallel form.

use super::programs::{NODES_MAX, Point, points, show, sizes};
use super::{is_near, pairs, transfer};
use crate::commands::coupled::SP2_FLOP_NS;
use crate::commands::coupled::program::Program;
use crate::commands::papers::{Curves, Found, Scene};
use crate::failure::Failure;
use crate::table::significant;

/// Part of the processors' time in which an efficient program computes. *Assumed*.
const EFFICIENT: f64 = 0.75;

/// Rows a processor of an array that is much larger than the number of processors. *Assumed*.
const MUCH_LARGER: usize = 64;

/// Figure 8.
pub(super) fn run(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let Some(points) = points(scene, found, Program::Fft2d)? else { return Ok(()) };
    show(found, &points, true);
    picture(found, &points);
    data_parallel(found, &points);
    messages_of_fft(scene, found)?;
    let curves = sizes(Program::Fft2d).iter().map(|rows| Curve::of(*rows, &points));
    let curves: Vec<_> = curves.filter(|curve| !curve.gains.is_empty()).collect();
    pipelines(scene, found, &points, &curves);
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

/// Counts the pairs of processors with a message in an array; a small array has one each.
fn messages_of_fft(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let nodes = scene.sized(NODES_MAX, 8);
    let (rows, columns) =
        (|it: usize| format!("(block,*)@{it}x1"), |it: usize| format!("(*,block)@1x{it}"));
    let half = nodes / 2;
    let pipeline = pairs(&transfer([NODES_MAX; 2], rows(half), columns(half), false)?);
    let all_to_all = pairs(&transfer([NODES_MAX; 2], rows(nodes), columns(nodes), true)?);
    let told = |pairs: usize| format!("{pairs} pairs with {nodes}");
    found.verdict("fft-pipeline-messages", pipeline == nodes * nodes / 4, told(pipeline));
    found.verdict("fft-all-to-all-messages", all_to_all == nodes * (nodes - 1), told(all_to_all));
    // Half of the processors send.
    let ratio = all_to_all as f64 / nodes as f64 / (pipeline as f64 / half as f64);
    let holds = is_near(ratio, scene.numbers("fft-half-the-messages")[0]);
    found.verdict("fft-half-the-messages", holds, format!("{ratio:.2} times"));
    Ok(())
}

/// Decides about the pipeline without overlap, the paper's.
fn pipelines(scene: &Scene<'_>, found: &mut Found, points: &[Point], curves: &[Curve]) {
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
    let told = |curve: &Curve| format!("{} rows: {:.2} times", curve.rows, curve.last());
    let told = format!("{}, {}", told(small), told(large));
    found.verdict("fft-gains-with-small", holds, told);
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
}
