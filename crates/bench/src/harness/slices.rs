//! Slice after slice, ours and the baseline in turn.

use chunkcomm::PeerStats;
use clap::ValueEnum;

use super::near::{Bench, Timing};
use crate::failure::Failure;
use crate::stats::{Ratio, percentile_us};

/// Fewer slices do not make a ratio.
pub const SLICES_MIN: usize = 10;

/// A ratio that is to tell a twentieth from none needs so many: neighbours differ by a tenth and
/// more on a shared machine.
pub const SLICES_FINE: usize = 50;

/// How fast a connection is differs by a third from one to the next with where its memory happens
/// to lie, and stays so while it lasts: a fine ratio has so many slices on each.
const SLICES_A_CONNECTION: usize = 5;

/// A slice this long is long against a wake-up and short against the machine's moods.
pub const SLICE_SECONDS: f64 = 0.2;

/// The warm-up grows until it takes this part of a slice: enough to tell the rate.
const WARM_UP_SECONDS: f64 = SLICE_SECONDS / 8.0;

/// How the name of an option's value is written.
pub fn name_of<V: ValueEnum + Copy>(value: V) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Something measured: ours or a baseline, its connection open for the whole run.
pub trait Contender {
    /// Runs one slice of about `count` messages (or whatever it counts).
    ///
    /// # Errors
    /// If either side fails or a message is wrong.
    fn slice(&mut self, bench: &mut Bench, count: u64) -> Result<Slice, Failure>;

    /// The library's counters of the near end; a baseline has none.
    fn stats(&self) -> Option<PeerStats> {
        None
    }
}

/// One slice, measured.
#[derive(Debug, Clone)]
pub struct Slice {
    /// How many messages it had.
    pub messages: u64,
    /// How long it took.
    pub seconds: f64,
    /// Processor time of both processes, nanoseconds.
    pub cpu_ns: u64,
    /// Nanoseconds of each sample: round trips, or times of delivery.
    pub samples_ns: Vec<u64>,
}

impl Slice {
    /// From what the two ends saw.
    pub fn new(messages: u64, timing: &Timing, samples_ns: Vec<u64>) -> Self {
        Self { messages, seconds: timing.seconds, cpu_ns: timing.cpu_ns, samples_ns }
    }

    /// Messages a second.
    pub fn rate(&self) -> f64 {
        self.messages as f64 / self.seconds
    }

    /// Processor time of both processes a message, microseconds.
    pub fn cpu_us_per_message(&self) -> f64 {
        self.cpu_ns as f64 / 1e3 / self.messages as f64
    }

    /// What one sample in a hundred is above, microseconds.
    pub fn p99_us(&self) -> f64 {
        percentile_us(&self.samples_ns, 99)
    }

    /// The median sample, microseconds.
    pub fn p50_us(&self) -> f64 {
        percentile_us(&self.samples_ns, 50)
    }
}

/// How a run is cut.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// How many counted slices each side has.
    pub slices: usize,
    /// How many messages ours has in all; none: as many as fill the usual time.
    pub total: Option<u64>,
    /// How many messages the first warm-up tries when the total is not given.
    pub first_try: u64,
}

/// How many slices: as the user says, else as many as the ratio needs.
#[derive(Debug, Clone, Copy)]
pub struct Slices {
    /// By the user.
    pub given: Option<usize>,
    /// A difference of a twentieth is to be seen.
    pub fine: bool,
}

impl Slices {
    /// At most one a message, if the user did not ask for more.
    fn of(self, total: Option<u64>) -> usize {
        let most = total.map_or(usize::MAX, |total| total as usize);
        let usual = if self.fine { SLICES_FINE } else { SLICES_MIN };
        self.given.unwrap_or(usual.min(most).max(SLICES_MIN))
    }
}

impl Plan {
    /// As many slices as a ratio needs.
    ///
    /// # Errors
    /// If there are fewer messages than slices.
    pub fn new(total: Option<u64>, first_try: u64, against: bool) -> Result<Self, Failure> {
        Self::cut(total, first_try, against, Slices { given: None, fine: false })
    }

    /// As many slices as are asked for.
    ///
    /// # Errors
    /// If there are fewer messages than slices.
    pub fn cut(
        total: Option<u64>,
        first_try: u64,
        against: bool,
        slices: Slices,
    ) -> Result<Self, Failure> {
        let slices = slices.of(total);
        let slices = match total {
            Some(total) if (total as usize) < slices && against => {
                return Err(Failure::Refused(format!(
                    "--against alternates {slices} slices: {total} is too few, at least {slices} \
                     are allowed"
                )));
            }
            Some(total) => slices.min(total as usize),
            None => slices,
        };
        Ok(Self { slices, total, first_try })
    }

    /// The same in parts of so many slices at most.
    fn parts(&self, slices_max: usize) -> Vec<Self> {
        let indices: Vec<usize> = (0..self.slices).collect();
        let part = |indices: &[usize]| {
            let share = |total| indices.iter().map(|index| self.share(total, *index)).sum();
            Self { slices: indices.len(), total: self.total.map(share), ..*self }
        };
        indices.chunks(slices_max).map(part).collect()
    }

    /// Messages of slice `index` when the total is given: they add up to it.
    fn share(&self, total: u64, index: usize) -> u64 {
        let slices = self.slices as u64;
        total / slices + u64::from((index as u64) < total % slices)
    }
}

/// The counted slices of a run.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Ours.
    pub ours: Vec<Slice>,
    /// The baseline's, paired by index; empty without one.
    pub baseline: Vec<Slice>,
    /// The library's counters of our near end before and after the counted slices.
    pub stats: Option<(PeerStats, PeerStats)>,
}

/// Whose slice it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Ours.
    Ours,
    /// What it is measured against.
    Baseline,
}

/// Warms both sides up and runs the counted slices.
///
/// # Errors
/// If a slice fails.
pub fn run(
    bench: &mut Bench,
    ours: &mut dyn Contender,
    mut baseline: Option<&mut Box<dyn Contender>>,
    plan: &Plan,
) -> Result<Outcome, Failure> {
    let against = baseline.is_some();
    let mut before = None;
    let outcome = alternate(plan, against, |side, count| match (side, &mut baseline) {
        (Side::Baseline, Some(baseline)) => baseline.slice(bench, count.messages),
        _ => {
            if count.first_counted {
                before = ours.stats();
            }
            ours.slice(bench, count.messages)
        }
    })?;
    Ok(Outcome { stats: before.zip(ours.stats()), ..outcome })
}

/// Ours, and the baseline if there is one.
pub type Contenders = (Box<dyn Contender>, Option<Box<dyn Contender>>);

/// As [`run`], on connections that `open` makes: for a `fine` ratio on several, one pair after
/// the other.
///
/// # Errors
/// If a connection or a slice fails.
pub fn run_on(
    bench: &mut Bench,
    plan: &Plan,
    fine: bool,
    mut open: impl FnMut(&mut Bench) -> Result<Contenders, Failure>,
) -> Result<Outcome, Failure> {
    let mut outcome = Outcome::default();
    let slices_max = if fine { SLICES_A_CONNECTION } else { plan.slices };
    for part in plan.parts(slices_max) {
        let (mut ours, mut baseline) = open(bench)?;
        outcome.extend(run(bench, &mut *ours, baseline.as_mut(), &part)?);
    }
    Ok(outcome)
}

/// How many messages the next slice has.
#[derive(Debug, Clone, Copy)]
pub struct Count {
    /// So many.
    pub messages: u64,
    /// Whether all before were warm-up.
    pub first_counted: bool,
}

/// Warms both sides up and runs the counted slices, each pair in the other order than the one
/// before; `slice` runs one of the side it is given.
///
/// # Errors
/// If a slice fails.
pub fn alternate(
    plan: &Plan,
    against: bool,
    mut slice: impl FnMut(Side, Count) -> Result<Slice, Failure>,
) -> Result<Outcome, Failure> {
    let ours_count = warm_up(plan, |count| slice(Side::Ours, count))?;
    let baseline_count =
        if against { warm_up(plan, |count| slice(Side::Baseline, count))? } else { 0 };
    let mut outcome = Outcome::default();
    for index in 0..plan.slices {
        let order = if index % 2 == 0 {
            [Side::Ours, Side::Baseline]
        } else {
            [Side::Baseline, Side::Ours]
        };
        for side in order {
            let (warm, into) = match side {
                Side::Ours => (ours_count, &mut outcome.ours),
                Side::Baseline if against => (baseline_count, &mut outcome.baseline),
                Side::Baseline => continue,
            };
            let messages = plan.total.map_or(warm, |total| plan.share(total, index));
            let first_counted = side == Side::Ours && index == 0;
            into.push(slice(side, Count { messages, first_counted })?);
        }
    }
    Ok(outcome)
}

/// Runs what is not counted: buffers grow, and the length of a slice is found.
///
/// # Errors
/// If a slice fails.
pub fn warm_up(
    plan: &Plan,
    mut slice: impl FnMut(Count) -> Result<Slice, Failure>,
) -> Result<u64, Failure> {
    let mut uncounted = |messages| slice(Count { messages, first_counted: false });
    if let Some(total) = plan.total {
        uncounted((total / SLICES_MIN as u64).max(1))?;
        return Ok(plan.share(total, 0));
    }
    let mut count = plan.first_try;
    loop {
        let slice = uncounted(count)?;
        if slice.messages < count || slice.seconds >= WARM_UP_SECONDS {
            let full = slice.messages as f64 * SLICE_SECONDS / slice.seconds;
            return Ok((full as u64).max(1));
        }
        count *= 4;
    }
}

impl Outcome {
    /// More pairs of the same.
    pub fn extend(&mut self, more: Self) {
        self.ours.extend(more.ours);
        self.baseline.extend(more.baseline);
        self.stats = match (self.stats, more.stats) {
            // Each of its own node: what they did is the difference of the sums.
            (Some(all), Some(more)) => Some((all.0.plus(&more.0), all.1.plus(&more.1))),
            (all, more) => all.or(more),
        };
    }

    /// Messages of ours.
    pub fn messages(&self) -> u64 {
        self.ours.iter().map(|slice| slice.messages).sum()
    }

    /// Seconds of ours.
    pub fn seconds(&self) -> f64 {
        self.ours.iter().map(|slice| slice.seconds).sum()
    }

    /// Processor time of ours, both processes, microseconds.
    pub fn cpu_us(&self) -> f64 {
        self.ours.iter().map(|slice| slice.cpu_ns as f64 / 1e3).sum()
    }

    /// Processor time of the baseline a message, both processes, microseconds.
    pub fn baseline_cpu_us_per_message(&self) -> f64 {
        let messages: u64 = self.baseline.iter().map(|slice| slice.messages).sum();
        let cpu_ns: u64 = self.baseline.iter().map(|slice| slice.cpu_ns).sum();
        cpu_ns as f64 / 1e3 / messages as f64
    }

    /// All samples of ours.
    pub fn samples_ns(&self) -> Vec<u64> {
        all_samples(&self.ours)
    }

    /// All samples of the baseline.
    pub fn baseline_samples_ns(&self) -> Vec<u64> {
        all_samples(&self.baseline)
    }

    /// The baseline's messages a second.
    pub fn baseline_rate(&self) -> f64 {
        let messages: u64 = self.baseline.iter().map(|slice| slice.messages).sum();
        messages as f64 / self.baseline.iter().map(|slice| slice.seconds).sum::<f64>()
    }

    /// The paired ratio of a figure of each slice.
    pub fn ratio(&self, figure: impl Fn(&Slice) -> f64) -> Ratio {
        let figures = |slices: &[Slice]| slices.iter().map(&figure).collect::<Vec<_>>();
        Ratio::of_pairs(&figures(&self.ours), &figures(&self.baseline))
    }
}

fn all_samples(slices: &[Slice]) -> Vec<u64> {
    slices.iter().flat_map(|slice| slice.samples_ns.iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_the_total() {
        let plan = Plan::new(Some(1003), 1, true).unwrap();
        let sum: u64 = (0..plan.slices).map(|index| plan.share(1003, index)).sum();
        assert_eq!((plan.slices, sum), (10, 1003));
    }

    #[test]
    fn parts_have_all_slices_and_messages() {
        let plan = Plan { slices: 12, total: Some(1003), first_try: 1 };
        let parts = plan.parts(5);
        assert_eq!(parts.iter().map(|part| part.slices).collect::<Vec<_>>(), [5, 5, 2]);
        assert_eq!(parts.iter().filter_map(|part| part.total).sum::<u64>(), 1003);
        assert!(Plan { total: None, ..plan }.parts(5).iter().all(|part| part.total.is_none()));
    }

    #[test]
    fn a_ratio_of_too_few_messages_is_refused() {
        assert!(Plan::new(Some(9), 1, true).is_err());
        assert_eq!(Plan::new(Some(9), 1, false).unwrap().slices, 9);
    }

    #[test]
    fn a_fine_ratio_takes_more_slices_where_there_are_messages_for_them() {
        let slices = |given, fine, total| {
            Plan::cut(total, 1, true, Slices { given, fine }).map(|plan| plan.slices).ok()
        };
        assert_eq!(slices(None, false, None), Some(SLICES_MIN));
        assert_eq!(slices(None, true, None), Some(SLICES_FINE));
        assert_eq!(slices(None, true, Some(20)), Some(20));
        assert_eq!(slices(Some(30), true, None), Some(30));
        assert_eq!(slices(Some(30), true, Some(20)), None);
        assert_eq!(slices(None, true, Some(9)), None);
    }
}
