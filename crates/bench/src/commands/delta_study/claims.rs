//! Statements of the delta paper about its figures, and whether they hold for ours.

use std::ops::RangeInclusive;

use chunkcomm_coupled::patterns::Compute;

use super::{Figure, Point};
use crate::commands::claim::Claim;

/// Difference from a straight line, or from a number of the paper, that counts as none: 15 %.
const NEAR: f64 = 0.15;

/// In `regatta` all pairs together have 26 times the rate of one. Deltas of trig use 0.4 of it a pair.
const LIMIT_NOTE: &str = "with trig our links are not full: a pair computes longer than it sends";

/// A ring takes `2 c + beta` whole and `2 c` in deltas, with `c` and `beta` the time of a byte.
const RING_NOTE: &str = "1.5 needs computing as long as sending: here random and trig compute 0.5 and \
    5 ns a byte, and the assumed wires need 2 ns (Regatta) and 84 ns (cluster)";

/// In a binary tree the two streams into a node share its port.
const TREE_NOTE: &str = "the assumed switch carries 15 pairs at once; two streams into one port have half \
    the rate each, so that 31 tasks take as much";

/// Returns the statements about a figure of curves.
pub(super) fn claims_of(figure: Figure, points: &[Point]) -> Vec<Claim> {
    let curves = Compute::ALL.map(|compute| Curve::of(compute, points));
    match figure {
        Figure::CascadeRegatta => {
            let mut claims = cascade(&curves, 27..=30);
            claims[3].note = Some(LIMIT_NOTE);
            let (paper, ours) = (23.0 / 29.0, curves[2].slope(25));
            claims.push(Claim::new(
                format!("the gain a task of trig is {paper:.2}, or more"),
                ours >= paper,
                format!("{ours:.2}"),
            ));
            claims
        }
        Figure::CascadeCluster => cascade(&curves, 16..=16),
        Figure::RingRegatta => {
            let last = curves.each_ref().map(Curve::last);
            let near = last.iter().all(|last| (last / 1.5 - 1.0).abs() <= NEAR);
            let text = "the gain is about 1.5 for all computations";
            vec![Claim::new(text, near, figures(&last)).noted(RING_NOTE)]
        }
        Figure::RingCluster => {
            let [empty, random, trig] = &curves;
            let gains = [random.last(), trig.last()];
            let flat = "has the same gain at all numbers of tasks";
            vec![
                Claim::new(
                    format!("empty {flat}, none"),
                    empty.is_flat() && empty.last() < 1.0 + NEAR,
                    figures(&[empty.last()]),
                ),
                Claim::new(format!("random {flat}"), random.is_flat(), figures(&gains[..1])),
                Claim::new(format!("trig {flat}"), trig.is_flat(), figures(&gains[1..])),
                Claim::new(
                    "random and trig gain about 1.5",
                    gains.iter().all(|gain| (gain / 1.5 - 1.0).abs() <= NEAR),
                    figures(&gains),
                )
                .noted(RING_NOTE),
            ]
        }
        Figure::ReduceRegatta => {
            let mut claims = reduce(&curves, points, 32);
            let found = bends(&curves);
            claims.push(Claim::new(
                "up to 32 tasks the bandwidth is sufficient",
                found.iter().all(Option::is_none),
                format!("empty, random, trig: {}", places(&found)),
            ));
            claims
        }
        Figure::ReduceCluster => {
            let mut claims = reduce(&curves, points, 16);
            let found = bends(&curves);
            claims.push(
                Claim::new(
                    "it saturates at 16 tasks",
                    found.iter().all(|tasks| *tasks == Some(16)),
                    format!("empty, random, trig: {}", places(&found)),
                )
                .noted(TREE_NOTE),
            );
            claims
        }
        Figure::Increments => Vec::new(),
    }
}

/// Returns the statements about a reduction that may saturate at `tasks`: one for each computation, and
/// those about all.
fn reduce(curves: &[Curve; 3], points: &[Point], tasks: usize) -> Vec<Claim> {
    let until = tasks.ilog2() as usize;
    let mut claims = Vec::new();
    for (compute, curve) in Compute::ALL.iter().zip(curves) {
        let curve = curve.doublings();
        let slope = curve.slope(until);
        claims.push(Claim::new(
            format!("the gain of {compute} grows with the logarithm of the tasks"),
            slope > 0.0 && curve.is_linear(until),
            format!("{slope:.2} a doubling"),
        ));
    }
    let empty = points.iter().filter(|point| point.compute == Compute::Empty);
    let whole: Vec<_> = empty.map(|point| (point.nodes, point.whole_seconds)).collect();
    let transfers = whole.iter().map(|(nodes, seconds)| {
        let (first, least) = whole[0];
        (f64::from(nodes.ilog2()), seconds / least * f64::from(first.ilog2()))
    });
    let transfers: Vec<_> = transfers.collect();
    claims.push(Claim::new(
        "the longest chain of k tasks has log2 k transfers",
        transfers.iter().all(|(levels, found)| (found / levels - 1.0).abs() <= NEAR),
        figures(&transfers.iter().map(|(_, found)| *found).collect::<Vec<_>>()),
    ));
    claims.push(more_gains_more(curves));
    claims
}

/// Returns the numbers of tasks whose next doubling gains less than half of those up to 8.
fn bends(curves: &[Curve; 3]) -> [Option<usize>; 3] {
    curves.each_ref().map(|curve| curve.doublings().saturation(3).map(|levels| 1 << levels))
}

fn more_gains_more(curves: &[Curve; 3]) -> Claim {
    let best = curves.each_ref().map(Curve::last);
    Claim::new(
        "more computing gains as much, or more",
        best.is_sorted_by(|less, more| *more >= less * (1.0 - NEAR)),
        figures(&best),
    )
}

/// Returns numbers of tasks as a text.
fn places(found: &[Option<usize>; 3]) -> String {
    let texts = found.map(|tasks| tasks.map_or_else(|| "none".to_owned(), |it| it.to_string()));
    texts.join(", ")
}

/// Returns the statements about the size of increments: the paper's, and the budget of ours.
pub(super) fn of_increments(best_pages: usize, auto_ratio: f64) -> Vec<Claim> {
    vec![
        Claim::new(
            "the best increment has 3 to 8 pages",
            (3..=8).contains(&best_pages),
            format!("{best_pages} pages"),
        ),
        Claim::new(
            "the computed increment is within 3 % of the best",
            auto_ratio <= 1.03,
            format!("{auto_ratio:.3}"),
        ),
    ]
}

/// The speed-ups of one computation.
struct Curve(Vec<(usize, f64)>);

impl Curve {
    fn of(compute: Compute, points: &[Point]) -> Self {
        let own = points.iter().filter(|point| point.compute == compute);
        Self(own.map(|point| (point.nodes, point.speedup())).collect())
    }

    /// Returns the curve over the doublings of the tasks.
    fn doublings(&self) -> Self {
        Self(self.0.iter().map(|(nodes, speedup)| (nodes.ilog2() as usize, *speedup)).collect())
    }

    fn last(&self) -> f64 {
        self.0.last().map_or(f64::NAN, |(_, speedup)| *speedup)
    }

    /// Returns the gain a task from the first point to the last one with at most `tasks`.
    fn slope(&self, tasks: usize) -> f64 {
        let Some((first, from)) = self.0.first() else { return f64::NAN };
        let end = self.0.iter().rfind(|(nodes, _)| *nodes <= tasks);
        end.map_or(f64::NAN, |(nodes, to)| (to - from) / (nodes - first) as f64)
    }

    /// Whether all points up to `tasks` lie at a straight line.
    fn is_linear(&self, tasks: usize) -> bool {
        let Some((first, from)) = self.0.first() else { return false };
        let slope = self.slope(tasks);
        let on_line = |(nodes, speedup): &(usize, f64)| {
            let line = from + slope * (nodes - first) as f64;
            (speedup / line - 1.0).abs() <= NEAR
        };
        self.0.iter().filter(|(nodes, _)| *nodes <= tasks).all(on_line)
    }

    /// Returns the number of tasks from which one more gains less than half as much as before.
    fn saturation(&self, linear_until: usize) -> Option<usize> {
        let slope = self.slope(linear_until);
        let gains = self.0.windows(2).find(|pair| {
            let gain = (pair[1].1 - pair[0].1) / (pair[1].0 - pair[0].0) as f64;
            gain < slope / 2.0
        });
        gains.map(|pair| pair[0].0)
    }

    fn is_flat(&self) -> bool {
        let last = self.last();
        self.0.iter().all(|(_, speedup)| (speedup / last - 1.0).abs() <= NEAR)
    }
}

/// Returns the statements about a cascade that saturates within `at`: one for each computation, and
/// those about all.
fn cascade(curves: &[Curve; 3], at: RangeInclusive<usize>) -> Vec<Claim> {
    let before = at.start() - 2;
    let mut claims = Vec::new();
    for (compute, curve) in Compute::ALL.iter().zip(curves) {
        claims.push(Claim::new(
            format!("the gain of {compute} grows in proportion to the tasks"),
            curve.is_linear(before),
            format!("{:.2} a task", curve.slope(before)),
        ));
    }
    let found = curves.each_ref().map(|curve| curve.saturation(before));
    let place = match (at.start(), at.end()) {
        (start, end) if start == end => start.to_string(),
        (start, end) => format!("{start} to {end}"),
    };
    claims.push(Claim::new(
        format!("it saturates at {place} tasks"),
        found.iter().all(|tasks| tasks.is_some_and(|tasks| at.contains(&tasks))),
        format!("empty, random, trig: {}", places(&found)),
    ));
    claims.push(more_gains_more(curves));
    claims
}

fn figures(values: &[f64]) -> String {
    values.iter().map(|value| format!("{value:.2}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_that_bends_is_linear_until_there() {
        let speedup = |nodes: usize| nodes.min(16) as f64 * 0.8;
        let curve = Curve([2, 8, 14, 15, 16, 17, 20].map(|nodes| (nodes, speedup(nodes))).to_vec());
        assert!((curve.slope(14) - 0.8).abs() < 1e-9);
        assert!(curve.is_linear(14) && !curve.is_flat());
        assert_eq!(curve.saturation(14), Some(16));
        let straight = Curve(vec![(2, 1.0), (4, 2.0), (6, 3.0)]);
        assert_eq!(straight.saturation(4), None);
        assert!(!Curve(vec![(2, 1.0), (4, 1.0), (6, 3.0)]).is_linear(6));
        assert!(Curve(vec![(2, 1.4), (8, 1.5), (32, 1.5)]).is_flat());
        let bent = Curve(vec![(4, 1.0), (8, 1.5), (16, 2.0), (32, 2.1)]).doublings();
        assert!(bent.is_linear(4) && !bent.is_linear(5));
        assert_eq!(bent.saturation(3), Some(4));
    }
}
