//! Statements of the delta paper about its figures, and whether they hold for ours.

use chunkcomm_pipeline::patterns::Compute;

use super::{Figure, Point, new_row};
use crate::table::write_out;

/// Difference from a straight line, or from a number of the paper, that counts as none: 15 %.
const NEAR: f64 = 0.15;

/// A statement of the paper.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    text: String,
    pub(super) holds: bool,
    /// Our figures behind the verdict.
    ours: String,
}

impl Claim {
    fn new(text: &str, holds: bool, ours: String) -> Self {
        Self { text: text.to_owned(), holds, ours }
    }

    pub(super) fn print(&self, json: bool) {
        if json {
            let mut row = new_row();
            row.set("claim", self.text.as_str())
                .set("holds", self.holds)
                .set("ours", self.ours.as_str())
                .print(true);
            return;
        }
        let holds = if self.holds { "holds" } else { "DOES NOT HOLD" };
        write_out(&format!("{holds}: {} (ours: {})\n", self.text, self.ours));
    }
}

/// Returns the statements about a figure of curves.
pub(super) fn claims_of(figure: Figure, points: &[Point]) -> Vec<Claim> {
    let curves = Compute::ALL.map(|compute| Curve::of(compute, points));
    match figure {
        Figure::Figure2a => cascade(&curves, 27..=30, Some(23.0 / 29.0)),
        Figure::Figure2d => cascade(&curves, 16..=16, None),
        Figure::Figure2b => {
            let last = curves.each_ref().map(Curve::last);
            let near = last.iter().all(|last| (last / 1.5 - 1.0).abs() <= NEAR);
            vec![Claim::new("the gain is about 1.5 for all computations", near, figures(&last))]
        }
        Figure::Figure2e => {
            let last = curves.each_ref().map(Curve::last);
            let [empty, random, trig] = &curves;
            vec![
                Claim::new("empty does not gain", empty.last() < 1.0 + NEAR, figures(&last[..1])),
                Claim::new(
                    "random and trig gain the same at all numbers of tasks",
                    [random, trig].iter().all(|curve| curve.is_flat() && curve.last() > 1.0),
                    figures(&last[1..]),
                ),
            ]
        }
        Figure::Increments => Vec::new(),
    }
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

/// Returns the statements about a cascade that saturates within `at`, with the paper's gain a task.
fn cascade(
    curves: &[Curve; 3],
    at: std::ops::RangeInclusive<usize>,
    paper_slope: Option<f64>,
) -> Vec<Claim> {
    let before = at.start() - 2;
    let slopes = curves.each_ref().map(|curve| curve.slope(before));
    let found = curves.each_ref().map(|curve| curve.saturation(before));
    let found_text =
        found.map(|tasks| tasks.map_or_else(|| "none".to_owned(), |tasks| tasks.to_string()));
    let best = curves.each_ref().map(Curve::last);
    let mut claims = vec![
        Claim::new(
            "the gain grows in proportion to the tasks",
            curves.iter().all(|curve| curve.is_linear(before)),
            format!("{} a task", figures(&slopes)),
        ),
        Claim::new(
            &format!("it saturates at {} to {} tasks", at.start(), at.end()),
            found.iter().all(|tasks| tasks.is_some_and(|tasks| at.contains(&tasks))),
            format!("empty, random, trig: {}", found_text.join(", ")),
        ),
        Claim::new(
            "more computing gains more",
            best[0] <= best[1] && best[1] <= best[2],
            figures(&best),
        ),
    ];
    if let Some(paper) = paper_slope {
        let slope = slopes[2];
        claims.push(Claim::new(
            &format!("the gain a task of trig is at least {paper:.2}, less 15 %"),
            slope >= paper * (1.0 - NEAR),
            format!("{slope:.2}"),
        ));
    }
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
    }
}
