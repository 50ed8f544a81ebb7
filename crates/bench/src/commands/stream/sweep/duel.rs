//! One cell: the heats of the fixed settings, then the final against the best of them.

use super::{Cell, Fixed, Rate};
use crate::failure::Failure;
use crate::harness::near::{Bench, Setting};
use crate::harness::protocol::{NodeKind, Pace, PolicyKind};
use crate::harness::slices::{self, Contender, Outcome, Plan, SLICES_MIN, Slice, median_of};
use crate::ours::stream::{StreamKind, near};
use crate::stats::Ratio;

/// Least rate at saturation, as a part of the best fixed setting's.
const RATE_RATIO_MIN: f64 = 0.9;

/// Most p99 delivery below saturation, and most processor time a message, as multiples of the best
/// fixed setting's.
const COST_RATIO_MAX: f64 = 1.1;

/// Connections of the final, each with `PAIRS` pairs. The speed of connections differs by a third
/// with the place of their memory, and stays the same while they last.
const OPENINGS: usize = 5;

/// Number of slices at saturation; the fastest gives our rate.
const SATURATION_SLICES: usize = 3;
const PAIRS: usize = 2;

/// Messages of a slice at a rate: with fewer, too few lie beyond the 99th percentile to find it.
const PACED_MESSAGES: f64 = 500.0;

/// Messages of the first warm-up.
const FIRST_TRY: u64 = 1_000;

/// Lengths of heats, finals and slices.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lengths {
    /// Slices of each fixed setting in the heats.
    heats: usize,
    /// Number of times that a final whose target is missed continues; all pairs count.
    extra_rounds: usize,
    /// Least and most seconds of a slice at a rate; in between it is as long as `PACED_MESSAGES`
    /// take.
    paced_seconds: [f64; 2],
    /// Messages of a slice, whatever its rate; `None` if the rate decides.
    messages: Option<u64>,
}

impl Lengths {
    pub(super) const USUAL: Self =
        Self { heats: 5, extra_rounds: 9, paced_seconds: [0.2, 1.0], messages: None };
    pub(super) const QUICK: Self =
        Self { heats: 1, extra_rounds: 0, paced_seconds: [0.0, 0.0], messages: Some(20) };

    /// Returns the messages of a slice; `None` at saturation, where the warm-up finds them.
    fn slice(&self, rate: Rate) -> Option<u64> {
        let [least, most] = self.paced_seconds;
        let paced = |rate| {
            let rate = rate as f64;
            (rate * (PACED_MESSAGES / rate).clamp(least, most)) as u64
        };
        self.messages.or_else(|| rate.per_second().map(paced)).map(|count| count.max(1))
    }

    fn plan(&self, rate: Rate) -> Result<Plan, Failure> {
        let total = self.slice(rate).map(|count| count * SLICES_MIN as u64);
        Plan::new(total, FIRST_TRY, true)
    }
}

/// The final of a cell.
#[derive(Debug)]
pub(super) struct Duel {
    /// The best of the fixed settings.
    pub(super) best: Fixed,
    /// Ours, and the best fixed setting as the baseline.
    pub(super) outcome: Outcome,
}

impl Duel {
    /// Returns ours over the best fixed setting: rate, p99 delivery, processor time a message.
    pub(super) fn ratios(&self) -> [Ratio; 3] {
        let of = |figure: fn(&Slice) -> f64| self.outcome.ratio(figure);
        [of(Slice::rate), of(Slice::p99_us), of(Slice::cpu_us_per_message)]
    }

    pub(super) fn is_met(&self, rate: Rate) -> bool {
        let [speed, p99, cpu] = self.ratios().map(|ratio| ratio.median);
        match rate {
            Rate::Saturation => speed >= RATE_RATIO_MIN,
            Rate::PerSecond(_) => p99 <= COST_RATIO_MAX && cpu <= COST_RATIO_MAX,
        }
    }
}

/// Returns our messages a second at this size, about.
///
/// # Errors
/// If a slice fails.
pub(super) fn saturation(
    bench: &mut Bench,
    setting: &Setting,
    bytes: usize,
    lengths: &Lengths,
) -> Result<f64, Failure> {
    let cell = Cell { bytes, rate: Rate::Saturation };
    let mut ours = open(bench, cell, setting.node(PolicyKind::Chunked))?;
    let plan = lengths.plan(Rate::Saturation)?;
    let count = slices::warm_up(&plan, |count| ours.slice(bench, count.messages))?;
    // An interruption makes a slice slower, never faster.
    let mut most = 0.0_f64;
    for _ in 0..SATURATION_SLICES {
        most = most.max(ours.slice(bench, count)?.rate());
    }
    Ok(most)
}

/// Runs heats and final of a cell.
///
/// # Errors
/// If a slice fails.
pub(super) fn run(
    bench: &mut Bench,
    setting: &Setting,
    cell: Cell,
    lengths: &Lengths,
) -> Result<Duel, Failure> {
    let best = heats(bench, setting, cell, lengths)?;
    let mut duel = Duel { best, outcome: Outcome::default() };
    for round in 0..=lengths.extra_rounds {
        if round > 0 && duel.is_met(cell.rate) {
            break;
        }
        for _ in 0..OPENINGS {
            duel.outcome.extend(pairs(bench, setting, cell, best, lengths)?);
        }
    }
    Ok(duel)
}

/// Runs some pairs of slices, on connections of their own.
fn pairs(
    bench: &mut Bench,
    setting: &Setting,
    cell: Cell,
    best: Fixed,
    lengths: &Lengths,
) -> Result<Outcome, Failure> {
    let mut ours = open(bench, cell, setting.node(PolicyKind::Chunked))?;
    let mut fixed = Some(open(bench, cell, best.node(setting))?);
    let plan = Plan {
        slices: PAIRS,
        total: lengths.slice(cell.rate).map(|count| count * PAIRS as u64),
        first_try: FIRST_TRY,
    };
    slices::run(bench, &mut *ours, fixed.as_mut(), &plan)
}

fn heats(
    bench: &mut Bench,
    setting: &Setting,
    cell: Cell,
    lengths: &Lengths,
) -> Result<Fixed, Failure> {
    let plan = lengths.plan(cell.rate)?;
    let (settings, mut runners) = (Fixed::all(), Vec::new());
    for fixed in &settings {
        let mut contender = open(bench, cell, fixed.node(setting))?;
        let count = slices::warm_up(&plan, |count| contender.slice(bench, count.messages))?;
        runners.push((contender, count));
    }
    let slice = |index: usize| {
        let (contender, count) = &mut runners[index];
        contender.slice(bench, *count).map(Some)
    };
    let best =
        slices::best_of(settings.len(), lengths.heats, slice, |slices| merit(cell.rate, slices))?;
    let none = || Failure::broken("sweeping", "there are no fixed settings");
    best.map(|index| settings[index]).ok_or_else(none)
}

/// Returns the merit of a fixed setting: the best has most of it.
fn merit(rate: Rate, slices: &[Slice]) -> f64 {
    match rate {
        Rate::Saturation => median_of(slices, Slice::rate),
        Rate::PerSecond(_) => {
            let costs = [Slice::p99_us, Slice::cpu_us_per_message];
            1.0 / costs.map(|figure| median_of(slices, figure)).iter().product::<f64>()
        }
    }
}

fn open(bench: &mut Bench, cell: Cell, node: NodeKind) -> Result<Box<dyn Contender>, Failure> {
    let (rate, pace) = (cell.rate.per_second(), Pace::Sleep);
    near(bench, StreamKind { rate, pace, ..StreamKind::of(cell.bytes, node) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(seconds: f64, p99_ns: u64, cpu_ns: u64) -> Slice {
        Slice { messages: 10, seconds, cpu_ns, samples_ns: vec![p99_ns; 10] }
    }

    fn duel(ours: &Slice, best: &Slice) -> Duel {
        let outcome = Outcome {
            ours: vec![ours.clone(); 3],
            baseline: vec![best.clone(); 3],
            ..Outcome::default()
        };
        Duel { best: Fixed { packet_bytes: 4096, linger: None }, outcome }
    }

    #[test]
    fn the_rate_counts_at_saturation_and_delivery_and_processor_below() {
        let best = slice(1.0, 1_000, 1_000);
        let paced = Rate::PerSecond(1);
        let slow = duel(&slice(1.2, 1_000, 1_000), &best);
        assert!(!slow.is_met(Rate::Saturation) && slow.is_met(paced));
        let late = duel(&slice(1.0, 1_200, 1_000), &best);
        assert!(late.is_met(Rate::Saturation) && !late.is_met(paced));
        let dear = duel(&slice(1.0, 1_000, 1_200), &best);
        assert!(dear.is_met(Rate::Saturation) && !dear.is_met(paced));
        assert!(duel(&slice(1.1, 1_090, 1_090), &best).is_met(paced));
    }

    #[test]
    fn below_saturation_the_product_decides() {
        let paced = Rate::PerSecond(1);
        let prompt = [slice(1.0, 50_000, 2_000)];
        let patient = [slice(1.0, 1_000_000, 500)];
        let cheap_at_once = [slice(1.0, 55_000, 1_500)];
        assert!(merit(paced, &prompt) > merit(paced, &patient));
        assert!(merit(paced, &cheap_at_once) > merit(paced, &prompt));
    }

    #[test]
    fn a_slice_at_a_rate_takes_its_time_and_none_is_empty() {
        assert_eq!(Lengths::USUAL.slice(Rate::PerSecond(10_000)), Some(2_000));
        assert_eq!(Lengths::USUAL.slice(Rate::PerSecond(1_000)), Some(500));
        assert_eq!(Lengths::USUAL.slice(Rate::PerSecond(1)), Some(1));
        assert_eq!(Lengths::USUAL.slice(Rate::Saturation), None);
        assert_eq!(Lengths::QUICK.slice(Rate::Saturation), Some(20));
    }
}
