//! B. Bao, C. Ding, Y. Gao, R. Archambault, "Delta Send-Recv" (2010), in virtual time.
//!
//! Its machines are the worlds `regatta` and `pc-cluster-100m`. Their assumed numbers were fixed before the
//! first run, but for the limits of both switches, which are fitted. The paper's text has few numbers of its
//! figure 2; the rest of it are shapes of curves, see `curve`.

mod cascade;
mod curve;
mod reduce;
mod tracked;

use chunkcomm_coupled::patterns::{self, Compute, Pattern};
use chunkcomm_group::Algorithm;
use chunkcomm_simulation::WorldSpec;

use self::curve::{Curve, is_near, last_flat, listed};
use super::known::known;
use super::{Curves, Found, Run, Scene};
use crate::commands::delta::collective::timed as collective;
use crate::commands::delta::world::{Way, timed};
use crate::failure::Failure;
use crate::harness::flows::{FlowKind, FlowPattern, FlowWay};
use crate::lan::{LanArgs, load};
use crate::options::values::Auto;
use crate::table::{Column, Row, column, significant};

/// Runs that decide the statements.
pub(super) const RUNS: &[Run] = &[
    Run::virtually("pair", pair),
    Run::virtually("cascade", cascade::run),
    Run::virtually("ring", ring),
    Run::virtually("reduce", reduce::run),
    Run::virtually("increments", increments),
    Run::virtually("summary", summary),
    Run::really("tracked", tracked::run),
];

const PAGE_BYTES: usize = 4096;

/// Nodes of the chain through which increments of all sizes are sent, as in the paper's best speed-up.
const NODES: usize = 29;

/// Nanoseconds of a byte that is combined: one an element. *Assumed*; the paper has no number.
const GAMMA_NS: f64 = 0.25;

/// Difference from a straight line, or from a number of the paper, that counts as none: 15 %.
const NEAR: f64 = 0.15;

/// Part of a switch's limit from which on it is full: 80 %, as filling a chain takes up to a sixth.
const FULL: f64 = 0.8;

/// Loss that counts as none: 3 %.
const SLOWER: f64 = 0.03;

/// Computations by growing cost.
const COMPUTES: [Compute; 3] = Compute::ALL;

const REGATTA: &str = "regatta";
const CLUSTER: &str = "pc-cluster-100m";

/// Way of the arrays among the tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Cascade,
    Ring,
    Reduce,
    Broadcast,
}

/// Curves of a figure: one pattern on one machine.
#[derive(Debug, Clone, Copy)]
struct Figure {
    shape: Shape,
    world: &'static str,
    /// Numbers of tasks, close together where the paper's curves bend. A tree of less than four has no node
    /// with two others below it.
    tasks: &'static [usize],
}

const CASCADE_REGATTA: Figure = Figure {
    shape: Shape::Cascade,
    world: REGATTA,
    tasks: &[2, 8, 16, 24, 26, 27, 28, 29, 30, 32],
};
const CASCADE_CLUSTER: Figure =
    Figure { shape: Shape::Cascade, world: CLUSTER, tasks: &[2, 4, 8, 14, 15, 16, 17, 18, 24] };
const RING_REGATTA: Figure =
    Figure { shape: Shape::Ring, world: REGATTA, tasks: &[2, 4, 8, 16, 32] };
const RING_CLUSTER: Figure =
    Figure { shape: Shape::Ring, world: CLUSTER, tasks: &[2, 4, 8, 15, 16, 17, 32] };
const REDUCE_REGATTA: Figure =
    Figure { shape: Shape::Reduce, world: REGATTA, tasks: &[4, 8, 16, 32] };
const REDUCE_CLUSTER: Figure =
    Figure { shape: Shape::Reduce, world: CLUSTER, tasks: &[4, 8, 16, 30, 31, 32, 40] };

/// One run of a figure, whole and in deltas.
#[derive(Debug, Clone, Copy)]
struct Point {
    compute: Compute,
    tasks: usize,
    whole_seconds: f64,
    delta_seconds: f64,
}

impl Point {
    fn speedup(&self) -> f64 {
        self.whole_seconds / self.delta_seconds
    }
}

/// Sizes of all runs.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    array_bytes: usize,
    delta_bytes: usize,
    tasks_max: usize,
}

impl Sizes {
    fn of(scene: &Scene<'_>) -> Self {
        let number = |id: &str| scene.numbers(id)[0] as usize;
        Self {
            array_bytes: scene.sized(number("array-bytes") << 20, 64 << 10),
            delta_bytes: number("delta-pages") * PAGE_BYTES,
            tasks_max: scene.sized(number("cluster-nodes"), 8),
        }
    }

    /// Runs a chain by each of these ways; returns the seconds of each, and the bytes of its increments.
    fn chain(
        &self,
        (world, pattern, compute): (&WorldSpec, Pattern, Compute),
        (nodes, independent): (usize, u32),
        ways: &[Way],
    ) -> Result<Vec<(f64, usize)>, Failure> {
        let lan = LanArgs { lan: String::new(), trace: None, check: false };
        let run = patterns::Run::new(pattern, compute, self.array_bytes / size_of::<f32>());
        let run = patterns::Run { independent, verify: false, ..run };
        let timed = timed(&lan, world, nodes, &run, ways)?.results.swap_remove(0);
        Ok(timed.iter().map(|it| (it.seconds, it.delta_bytes)).collect())
    }

    /// Returns the seconds of a pattern, whole and in deltas.
    fn both(
        &self,
        (world, shape): (&str, Shape),
        compute: Compute,
        nodes: usize,
    ) -> Result<[f64; 2], Failure> {
        let Self { array_bytes, delta_bytes, .. } = *self;
        let name = format!("{shape:?} {world} {compute} {nodes} {array_bytes} {delta_bytes}");
        let seconds = known(name, || {
            let chained = |pattern| {
                let ways = [Way::Whole, Way::Delta(Auto::Fixed(delta_bytes))];
                let ran = self.chain((&load(world)?, pattern, compute), (nodes, 0), &ways)?;
                Ok(ran.into_iter().map(|(seconds, _)| seconds).collect())
            };
            let tree = |pattern, algorithm: Algorithm| {
                let lan = LanArgs { lan: String::new(), trace: None, check: false };
                let kind = FlowKind {
                    pattern,
                    nodes,
                    bytes: array_bytes,
                    delta_bytes,
                    compute,
                    gamma_ns: GAMMA_NS,
                    algorithm: algorithm.to_string(),
                };
                Ok(collective(&lan, world, &kind, &[FlowWay::Whole, FlowWay::Delta])?.0)
            };
            match shape {
                Shape::Cascade => chained(Pattern::Cascade),
                Shape::Ring => chained(Pattern::Ring),
                Shape::Reduce => tree(FlowPattern::Reduce, Algorithm::Binary),
                Shape::Broadcast => tree(FlowPattern::Broadcast, Algorithm::Binary),
            }
        })?;
        Ok([seconds[0], seconds[1]])
    }

    /// Runs the points of a figure.
    fn points(&self, figure: Figure) -> Result<Vec<Point>, Failure> {
        let mut points = Vec::new();
        for compute in COMPUTES {
            // A tree of other numbers is looked at without computing alone.
            let is_wanted = |tasks: usize| {
                figure.shape != Shape::Reduce
                    || compute == Compute::Empty
                    || tasks.is_power_of_two()
            };
            let tasks = figure.tasks.iter().filter(|tasks| **tasks <= self.tasks_max);
            for &tasks in tasks.filter(|tasks| is_wanted(**tasks)) {
                let [whole_seconds, delta_seconds] =
                    self.both((figure.world, figure.shape), compute, tasks)?;
                points.push(Point { compute, tasks, whole_seconds, delta_seconds });
            }
        }
        Ok(points)
    }

    /// Returns the bytes a second of all tasks together, as a part of the limit of the switch.
    fn share_of_switch(&self, figure: Figure, point: Point) -> Result<f64, Failure> {
        let limit = load(figure.world)?.segments[0].spec.total_bytes_per_second as f64;
        let streams = point.tasks - usize::from(figure.shape != Shape::Ring);
        let bytes = (streams * self.array_bytes) as f64;
        Ok(bytes / point.delta_seconds / limit)
    }

    /// Returns that of the most tasks, for each computation.
    fn shares(&self, figure: Figure, points: &[Point]) -> Result<[f64; 3], Failure> {
        let mut shares = [f64::NAN; 3];
        for (share, compute) in shares.iter_mut().zip(COMPUTES) {
            if let Some(&last) = points.iter().rfind(|point| point.compute == compute) {
                *share = self.share_of_switch(figure, last)?;
            }
        }
        Ok(shares)
    }
}

impl Figure {
    fn heading(self) -> String {
        format!("{:?} on {}", self.shape, self.world)
    }
}

const COLUMNS: &[Column] = &[
    column("compute", "compute", 8),
    column("tasks", "tasks", 5),
    column("whole_seconds", "whole, s", 8),
    column("delta_seconds", "deltas, s", 8),
    column("speedup", "speed-up", 8),
];

/// Adds the points as a table, and as a picture if it has a name.
fn show(found: &mut Found, figure: Figure, points: &[Point], picture: Option<&'static str>) {
    let row = |point: &Point| {
        let mut row = Row::default();
        row.set("compute", point.compute.to_string())
            .set("tasks", point.tasks)
            .set("whole_seconds", point.whole_seconds)
            .set("delta_seconds", point.delta_seconds)
            .set("speedup", point.speedup());
        row
    };
    found.table(figure.heading(), COLUMNS, points.iter().map(row).collect());
    let Some(name) = picture else { return };
    let lines = COMPUTES.map(|compute| {
        let curve = Curve::of(compute, points);
        (compute.to_string(), curve.0.iter().map(|(x, y)| (*x as f64, *y)).collect())
    });
    found.curves(Curves {
        name,
        title: format!("Figure {name}: {}", figure.heading()),
        x: ("tasks", figure.shape == Shape::Reduce),
        y: ("speed-up of deltas", false),
        lines: lines.to_vec(),
    });
}

/// Returns milliseconds as a text.
fn ms(seconds: f64) -> String {
    format!("{} ms", significant(seconds * 1e3))
}

/// Two tasks on the Regatta, with trig.
fn pair(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    // More than a transfer takes.
    const INDEPENDENT: u32 = 2;
    let (sizes, world) = (Sizes::of(scene), load(REGATTA)?);
    let [transfer, _] = sizes.both((REGATTA, Shape::Cascade), Compute::Empty, 2)?;
    let [whole, deltas] = sizes.both((REGATTA, Shape::Cascade), Compute::Trig, 2)?;
    // Both compute.
    let compute = (whole - transfer) / 2.0;
    let independent = sizes.chain(
        (&world, Pattern::Cascade, Compute::Trig),
        (2, INDEPENDENT),
        &[Way::Whole, Way::Overlapped],
    )?;
    let [(in_turn, _), (overlapped, _)] = independent[..] else {
        return Err(Failure::broken("running a pair", "a way has no time"));
    };
    let hidden = (in_turn - overlapped) / transfer;
    found.verdict(
        "overlap-hides-independent",
        hidden >= 1.0 - NEAR,
        format!("hides {:.0} % of transfer", hidden * 1e2),
    );
    let stage = compute.max(transfer);
    let told = format!("{}, longest stage {}", ms(deltas), ms(stage));
    found.verdict("three-stages", deltas < stage * (1.0 + NEAR), told);
    // No overlap of one side alone is faster: the other side computes before or behind all of it.
    let one_side = stage + compute;
    let told = format!("{}, one side {}", ms(deltas), ms(one_side));
    found.verdict("both-sides-beat-one", deltas < one_side, told);
    Ok(())
}

fn more_gains_more(found: &mut Found, id: &'static str, curves: &[Curve; 3]) {
    let best = curves.each_ref().map(Curve::last);
    let holds = best[2] > best[0] && best.is_sorted_by(|less, more| *more >= less * (1.0 - SLOWER));
    found.verdict(id, holds, best.map(|gain| format!("{gain:.2}")).join(", "));
}

/// Rings on both machines.
fn ring(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let sizes = Sizes::of(scene);
    let regatta = sizes.points(RING_REGATTA)?;
    let cluster = sizes.points(RING_CLUSTER)?;
    show(found, RING_REGATTA, &regatta, None);
    show(found, RING_CLUSTER, &cluster, None);
    let on_regatta = Curve::all(&regatta);
    let on_cluster = Curve::all(&cluster);
    let told = |curve: &Curve| format!("{:.2}", curve.last());
    let ids = ["ring-regatta-empty", "ring-regatta-random", "ring-regatta-trig"];
    for (id, curve) in ids.into_iter().zip(&on_regatta) {
        found.verdict(id, is_near(curve.last(), scene.numbers(id)[0]), told(curve));
    }
    let rises = |curve: &Curve| curve.last() >= curve.first() * (1.0 + SLOWER);
    let ends = on_regatta.each_ref();
    let ends = ends.map(|curve| format!("{:.2} to {:.2}", curve.first(), curve.last()));
    found.verdict("ring-regatta-rises", on_regatta.iter().all(rises), ends.join(", "));
    let shares = sizes.shares(RING_REGATTA, &regatta)?;
    found.verdict(
        "ring-regatta-sufficient",
        shares.iter().all(|share| *share < FULL),
        format!("used: {}", shares.map(|share| format!("{share:.2}")).join(", ")),
    );
    let [empty, random, trig] = &on_cluster;
    let none = scene.numbers("ring-cluster-empty")[0];
    let holds = empty.is_flat() && is_near(empty.last(), none);
    found.verdict("ring-cluster-empty", holds, told(empty));
    found.verdict("ring-cluster-random", random.is_flat(), told(random));
    found.verdict("ring-cluster-trig", trig.is_flat(), told(trig));
    let at = scene.numbers("ring-cluster-saturates")[0] as usize;
    let ends = COMPUTES.map(|compute| last_flat(&Curve::seconds(compute, &cluster)));
    let told = format!("at {}", listed(&ends));
    found.verdict("ring-cluster-saturates", ends.iter().all(|end| *end == Some(at)), told);
    let all = || on_regatta.iter().chain(&on_cluster);
    let away = |curve: &Curve| (curve.last() / curve.first() - 1.0).abs();
    let most = all().map(away).fold(0.0, f64::max);
    let told = format!("at most {:.0} % away", most * 1e2);
    found.verdict("ring-gains-as-a-pair", most <= NEAR, told);
    Ok(())
}

/// Increments of all sizes through a chain on the Regatta with trig, and the computed one.
fn increments(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    const PAGES: [usize; 13] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32];
    let (sizes, world) = (Sizes::of(scene), load(REGATTA)?);
    let nodes = scene.sized(NODES, 3);
    let fixed = |pages| Way::Delta(Auto::Fixed(pages * PAGE_BYTES));
    // The first run opens the windows of the connections, and is not counted.
    let ways = [&[Way::Delta(Auto::Auto); 2], &PAGES.map(fixed)[..]].concat();
    let trig = (&world, Pattern::Cascade, Compute::Trig);
    let timed = sizes.chain(trig, (nodes, 0), &ways)?;
    let (auto, timed) = (timed[1], &timed[2..]);
    let best = timed.iter().min_by(|one, other| one.0.total_cmp(&other.0));
    let best = *best.unwrap_or(&auto);
    let auto_ratio = auto.0 / best.0;
    let row = |(seconds, bytes): (f64, usize)| {
        let mut row = Row::default();
        row.set("pages", bytes as f64 / PAGE_BYTES as f64)
            .set("seconds", seconds)
            .set("of_best", seconds / best.0);
        row
    };
    let columns =
        [column("pages", "pages", 5), column("seconds", "s", 8), column("of_best", "of best", 7)];
    let all = timed.iter().chain([&auto]).map(|it| row(*it));
    found.table(format!("{nodes} tasks; the last line is computed"), &columns, all.collect());
    let pages = best.1 / PAGE_BYTES;
    let range = scene.numbers("best-increment");
    let holds = (range[0]..=range[1]).contains(&(pages as f64));
    found.verdict("best-increment", holds, format!("{pages} pages"));
    found.figure("auto_ratio", auto_ratio);
    let empty = (&world, Pattern::Cascade, Compute::Empty);
    let pair = sizes.chain(empty, (2, 0), &[Way::Whole, fixed(1)])?;
    let more = pair[1].0 / pair[0].0;
    found.verdict("messages-cost", more > 1.0, format!("{more:.3} of one's time"));
    Ok(())
}

/// All patterns together.
fn summary(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let sizes = Sizes::of(scene);
    let (mut all, mut chains_gain_most) = (Vec::new(), true);
    for figures in [
        [CASCADE_REGATTA, RING_REGATTA, REDUCE_REGATTA],
        [CASCADE_CLUSTER, RING_CLUSTER, REDUCE_CLUSTER],
    ] {
        let mut best = [0.0; 3];
        for (best, figure) in best.iter_mut().zip(figures) {
            let gains: Vec<f64> = sizes.points(figure)?.iter().map(Point::speedup).collect();
            *best = gains.iter().copied().fold(0.0, f64::max);
            all.extend(gains);
        }
        chains_gain_most &= best[0] > best[1] && best[0] > best[2];
    }
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    let most = all.iter().copied().fold(0.0, f64::max);
    found.verdict("never-slower", least > 1.0, format!("{least:.2} to {most:.1} times"));
    let told = if chains_gain_most { "on both machines" } else { "not on both" };
    found.verdict("chaining-gains-most", chains_gain_most, told);
    Ok(())
}
