//! Statements of the paper about its figures, and whether they hold for ours.

use super::{Figure, OneWay, Plain, Point, form};
use crate::commands::claim::Claim;

/// Difference from a number of the paper that counts as none: 15 %.
const NEAR: f64 = 0.15;

/// Gain that counts as significant.
const SIGNIFICANT: f64 = 1.1;

/// Factor within which a crossover is where the models have it.
const CROSSOVER_FACTOR: f64 = 2.0;

/// The pipeline of the convolution has more to send.
const CONVOLUTION_NOTE: &str = "each image passes three transfers more than in the data-parallel form, and no rank \
    of these transforms: the pipeline is faster where messages cost most, with many processors and small images";

/// Most processors of the models.
const MODEL_NODES_MAX: usize = 1 << 14;

/// Returns the statements about plans that are kept (figure 7).
pub(super) fn of_persistence(ways: &[OneWay]) -> Vec<Claim> {
    let smallest = ways.iter().map(|way| way.rows).min().unwrap_or_default();
    let small: Vec<_> = ways.iter().filter(|way| way.rows == smallest).collect();
    let large: Vec<_> = ways.iter().filter(|way| way.rows >= 256).collect();
    let lists = |ways: &[&OneWay]| {
        let each = ways.iter().map(|way| format!("{:.0}", way.saved() * 1e2));
        format!("{} %", each.collect::<Vec<_>>().join(", "))
    };
    let is_within =
        |way: &&OneWay| (0.4 * (1.0 - NEAR)..=0.6 * (1.0 + NEAR)).contains(&way.saved());
    let groups: Vec<_> = small.iter().map(|way| way.ranks.to_string()).collect();
    let mut claims = vec![Claim::new(
        "a kept plan saves 40 to 60 % of the time of small arrays, depending on P",
        small.iter().all(is_within),
        format!("{smallest} rows, groups of {}: {}", groups.join(", "), lists(&small)),
    )];
    if !large.is_empty() {
        let most = large.iter().map(|way| way.saved()).fold(0.0, f64::max);
        claims.push(Claim::new(
            "it saves less than 25 % from 256 rows on",
            most < 0.25,
            format!("at most {:.0} %", most * 1e2),
        ));
    }
    claims
}

/// Returns the statements about programs of several groups (figures 8, 10 and 12).
pub(super) fn of_programs(figure: Figure, points: &[Point]) -> Vec<Claim> {
    let gains = points.iter().map(Point::gain);
    let (least, most) = gains
        .clone()
        .fold((f64::INFINITY, 0.0_f64), |(least, most), gain| (least.min(gain), most.max(gain)));
    let range = format!("{least:.2} to {most:.2} times as fast");
    match figure {
        Figure::Figure7 => Vec::new(),
        Figure::Figure8 => {
            let mut claims = pipelines(points);
            claims.push(Claim::new(
                "with overlap the pipeline is always faster",
                least > 1.0,
                range,
            ));
            claims
        }
        Figure::Figure10 => {
            let significant = gains.filter(|gain| *gain >= SIGNIFICANT).count();
            let of = points.len();
            let claim = Claim::new(
                "the pipeline is often significantly faster",
                2 * significant >= of,
                format!("{SIGNIFICANT} times as fast or more in {significant} of {of}; {range}"),
            );
            vec![if claim.holds { claim } else { claim.noted(CONVOLUTION_NOTE) }]
        }
        Figure::Figure12 => vec![multiblock(points)],
    }
}

/// Returns the statement about blocks whose ranks are in proportion of their points, 4 : 1 : 4, as the paper's.
fn multiblock(points: &[Point]) -> Claim {
    let shown = |points: &[&Point]| {
        let each = points.iter().map(|point| format!("{:.2} with {}", point.gain(), point.nodes));
        each.collect::<Vec<_>>().join(", ")
    };
    let (even, odd): (Vec<_>, Vec<_>) = points.iter().partition(|point| point.nodes % 9 == 0);
    let mut ours = format!("{} processors", shown(&even));
    if !odd.is_empty() {
        ours += &format!("; not in proportion {}", shown(&odd));
    }
    let text = "concurrent blocks, with processors in proportion to their sizes, are always faster";
    Claim::new(text, even.iter().all(|point| point.gain() > 1.0), ours)
}

/// Returns the statements about the pipeline without overlap, the paper's.
fn pipelines(points: &[Point]) -> Vec<Claim> {
    let curves: Vec<Curve> = {
        let mut sizes: Vec<usize> = points.iter().map(|point| point.rows).collect();
        sizes.dedup();
        sizes.into_iter().map(|rows| Curve::of(rows, points)).collect()
    };
    let (Some(small), Some(large)) = (curves.first(), curves.last()) else { return Vec::new() };
    let shown = |gain: f64| format!("{gain:.2}");
    let mut claims = vec![
        Claim::new(
            "without overlap it gains more with more processors",
            curves.iter().all(|curve| curve.last() > curve.first()),
            curves
                .iter()
                .map(|curve| {
                    format!("{} rows {:.2} to {:.2}", curve.rows, curve.first(), curve.last())
                })
                .collect::<Vec<_>>()
                .join(", "),
        ),
        Claim::new(
            "it is faster at the most processors for small arrays, and gains less for large ones",
            small.last() > 1.0 && (curves.len() == 1 || small.last() > large.last()),
            format!("{} and {}", shown(small.last()), shown(large.last())),
        ),
    ];
    claims.extend(curves.iter().filter_map(Curve::crossover_claim));
    claims
}

/// Gains of the pipeline without overlap over processors.
struct Curve {
    rows: usize,
    gains: Vec<(usize, f64)>,
}

impl Curve {
    fn of(rows: usize, points: &[Point]) -> Self {
        let gain = |point: &Point| {
            let Plain { seconds, .. } = point.plain?;
            (point.rows == rows).then_some((point.nodes, point.data_parallel / seconds))
        };
        Self { rows, gains: points.iter().filter_map(gain).collect() }
    }

    fn first(&self) -> f64 {
        self.gains.first().map_or(f64::NAN, |(_, gain)| *gain)
    }

    fn last(&self) -> f64 {
        self.gains.last().map_or(f64::NAN, |(_, gain)| *gain)
    }

    /// Returns the gains by the models of both forms, on more processors as well.
    fn of_models(rows: usize) -> Option<Self> {
        let form = form(rows).ok()?;
        let nodes = std::iter::successors(Some(2), |nodes| Some(nodes * 2));
        let nodes = nodes.take_while(|nodes| *nodes <= MODEL_NODES_MAX.min(2 * rows));
        let gain = |nodes| {
            let [data_parallel, _, plain] = form.all(nodes);
            (nodes, data_parallel / plain)
        };
        Some(Self { rows, gains: nodes.map(gain).collect() })
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

    /// Compares the crossover with that of the models.
    fn crossover_claim(&self) -> Option<Claim> {
        let model = Self::of_models(self.rows)?.crossover();
        let most = self.gains.last()?.0 as f64;
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
        let shown = |at: Option<f64>, beyond: String| at.map_or(beyond, |at| format!("{at:.0}"));
        let text =
            format!("the crossover of {} rows is within 2x of that of the models", self.rows);
        let ours = shown(ours, format!("none up to {most}"));
        let model = shown(model, "none".to_owned());
        Some(Claim::new(text, holds, format!("{ours} processors, models {model}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(gains: &[(usize, f64)]) -> Curve {
        Curve { rows: 64, gains: gains.to_vec() }
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
        let at = |rows| Curve::of_models(rows).and_then(|curve| curve.crossover());
        let all = [64, 128, 256].map(at);
        assert!(all.iter().all(Option::is_some) && all.is_sorted(), "{all:?}");
    }

    #[test]
    fn plans_that_are_kept() {
        let way = |rows, kept_seconds| OneWay { rows, ranks: 2, fresh_seconds: 1.0, kept_seconds };
        let holds =
            |ways: &[OneWay]| of_persistence(ways).iter().map(|it| it.holds).collect::<Vec<_>>();
        assert_eq!(holds(&[way(16, 0.5), way(256, 0.8)]), [true, true]);
        assert_eq!(holds(&[way(16, 0.9), way(256, 0.7)]), [false, false]);
        assert_eq!(holds(&[way(16, 0.2)]), [false]);
    }
}
