//! Shapes of curves: straight, flat, bent.

use chunkcomm_coupled::patterns::Compute;

use super::{COMPUTES, NEAR, Point};

/// The speed-ups of one computation over tasks, ascending.
pub(super) struct Curve(pub(super) Vec<(usize, f64)>);

/// Whether a figure is a number of the paper.
pub(super) fn is_near(ours: f64, paper: f64) -> bool {
    (ours / paper - 1.0).abs() <= NEAR
}

/// Returns the number of tasks from which on each further one takes more time: half of its share of the tasks,
/// or more.
pub(super) fn last_flat(seconds: &[(usize, f64)]) -> Option<usize> {
    let takes_more = |pair: &&[(usize, f64)]| {
        let (tasks, more) = (pair[0].0 as f64, (pair[1].0 - pair[0].0) as f64);
        (pair[1].1 / pair[0].1 - 1.0) / more > 0.5 / tasks
    };
    seconds.windows(2).find(takes_more).map(|pair| pair[0].0)
}

/// Returns numbers of tasks as a text.
pub(super) fn listed(tasks: &[Option<usize>]) -> String {
    let text = |tasks: &Option<usize>| tasks.map_or("none".to_owned(), |it| it.to_string());
    tasks.iter().map(text).collect::<Vec<_>>().join(", ")
}

impl Curve {
    pub(super) fn of(compute: Compute, points: &[Point]) -> Self {
        let own = points.iter().filter(|point| point.compute == compute);
        Self(own.map(|point| (point.tasks, point.speedup())).collect())
    }

    pub(super) fn all(points: &[Point]) -> [Self; 3] {
        COMPUTES.map(|compute| Self::of(compute, points))
    }

    /// Returns the seconds in deltas.
    pub(super) fn seconds(compute: Compute, points: &[Point]) -> Vec<(usize, f64)> {
        let own = points.iter().filter(|point| point.compute == compute);
        own.map(|point| (point.tasks, point.delta_seconds)).collect()
    }

    /// Returns the curve over the doublings of the tasks.
    pub(super) fn doublings(&self) -> Self {
        let doublings = self.0.iter().filter(|(tasks, _)| tasks.is_power_of_two());
        Self(doublings.map(|(tasks, speedup)| (tasks.ilog2() as usize, *speedup)).collect())
    }

    /// Returns the tasks whose next doubling gains less than half of those up to 8; of a curve over doublings.
    pub(super) fn bend(&self) -> Option<usize> {
        self.saturation(3).map(|levels| 1 << levels)
    }

    pub(super) fn first(&self) -> f64 {
        self.0.first().map_or(f64::NAN, |(_, speedup)| *speedup)
    }

    pub(super) fn last(&self) -> f64 {
        self.0.last().map_or(f64::NAN, |(_, speedup)| *speedup)
    }

    pub(super) fn at(&self, tasks: usize) -> f64 {
        let point = self.0.iter().find(|(at, _)| *at == tasks);
        point.map_or(f64::NAN, |(_, speedup)| *speedup)
    }

    /// Returns the gain a task from the first point to the last one with at most `tasks`.
    pub(super) fn slope(&self, tasks: usize) -> f64 {
        let Some((first, from)) = self.0.first() else { return f64::NAN };
        let end = self.0.iter().rfind(|(nodes, _)| *nodes <= tasks);
        end.map_or(f64::NAN, |(nodes, to)| (to - from) / (nodes - first) as f64)
    }

    /// Whether all points up to `tasks` lie at a straight line that rises.
    pub(super) fn is_linear(&self, tasks: usize) -> bool {
        let Some((first, from)) = self.0.first() else { return false };
        let slope = self.slope(tasks);
        let line = |nodes: usize| from + slope * (nodes - first) as f64;
        let mut points = self.0.iter().filter(|(nodes, _)| *nodes <= tasks);
        slope > 0.0 && points.all(|(nodes, speedup)| is_near(*speedup, line(*nodes)))
    }

    /// Returns the number of tasks from which on each further one gains less than half as much as before.
    pub(super) fn saturation(&self, linear_until: usize) -> Option<usize> {
        let slope = self.slope(linear_until);
        let gains_less = |pair: &[(usize, f64)]| {
            (pair[1].1 - pair[0].1) / ((pair[1].0 - pair[0].0) as f64) < slope / 2.0
        };
        let pairs = self.0.windows(2).rev().take_while(|pair| gains_less(pair));
        pairs.last().map(|pair| pair[0].0)
    }

    pub(super) fn is_flat(&self) -> bool {
        self.0.iter().all(|(_, speedup)| is_near(*speedup, self.last()))
    }
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
        // A dip is no end of the gains.
        assert_eq!(Curve(vec![(2, 1.0), (4, 2.0), (6, 2.1), (8, 4.0)]).saturation(4), None);
        assert!(!Curve(vec![(2, 1.0), (4, 1.0), (6, 3.0)]).is_linear(6));
        assert!(Curve(vec![(2, 1.4), (8, 1.5), (32, 1.5)]).is_flat());
        let bent = Curve(vec![(4, 1.0), (8, 1.5), (16, 2.0), (17, 2.0), (32, 2.1)]).doublings();
        assert!(bent.is_linear(4) && !bent.is_linear(5));
        assert_eq!((bent.saturation(3), bent.bend()), (Some(4), Some(16)));
    }

    #[test]
    fn a_switch_that_is_full_takes_more_time_for_each_task() {
        let seconds = |tasks: usize| (tasks, (tasks as f64 / 15.0).max(1.0));
        assert_eq!(last_flat(&[4, 8, 14, 15, 16, 32].map(seconds)), Some(15));
        assert_eq!(last_flat(&[4, 8, 14].map(seconds)), None);
    }
}
