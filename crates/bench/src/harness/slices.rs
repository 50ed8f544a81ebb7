//! Slice after slice, ours and the baseline in turn.

use chunkcomm::stats::PeerStats;
use clap::ValueEnum;

use super::near::{Bench, Timing};
use crate::failure::Failure;
use crate::stats::{Ratio, median, percentile_us};

/// Fewest slices that make a ratio.
pub const SLICES_MIN: usize = 10;

/// Number of slices that tell a ratio of 0.95 from 1: neighbouring slices differ by a tenth and
/// more on a shared machine.
pub const SLICES_FINE: usize = 50;

/// Slices of a fine ratio on each connection. The speed of connections differs by a third with the
/// place of their memory, and stays the same while they last.
const SLICES_A_CONNECTION: usize = 5;

/// Length of a slice in seconds: long against a wake-up, short against the machine's changes of
/// speed.
pub const SLICE_SECONDS: f64 = 0.2;

/// Time in seconds until which the warm-up grows: an eighth of a slice is enough to find the rate.
const WARM_UP_SECONDS: f64 = SLICE_SECONDS / 8.0;

/// Returns the name of an option's value, as it is written.
pub fn name_of<V: ValueEnum + Copy>(value: V) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// A measured side: ours or a baseline, its connection open for the whole run.
pub trait Contender {
    /// Runs one slice of about `count` messages (or other things that the side counts).
    ///
    /// # Errors
    /// If either side fails or a message is wrong.
    fn slice(&mut self, bench: &mut Bench, count: u64) -> Result<Slice, Failure>;

    /// Returns the library's counters of the near end; `None` for a baseline.
    fn stats(&self) -> Option<PeerStats> {
        None
    }
}

/// One measured slice.
#[derive(Debug, Clone)]
pub struct Slice {
    /// Number of its messages.
    pub messages: u64,
    /// Length in seconds.
    pub seconds: f64,
    /// Processor time of both processes, nanoseconds.
    pub cpu_ns: u64,
    /// Nanoseconds of each sample: of a round trip, or of a delivery.
    pub samples_ns: Vec<u64>,
}

impl Slice {
    /// Makes a slice of the times that the two ends saw.
    pub fn new(messages: u64, timing: &Timing, samples_ns: Vec<u64>) -> Self {
        Self { messages, seconds: timing.seconds, cpu_ns: timing.cpu_ns, samples_ns }
    }

    /// Makes a slice of which only the time is known.
    pub fn timed(messages: u64, seconds: f64) -> Self {
        Self { messages, seconds, cpu_ns: 0, samples_ns: Vec::new() }
    }

    /// Returns the messages a second.
    pub fn rate(&self) -> f64 {
        self.messages as f64 / self.seconds
    }

    /// Returns the processor time of both processes a message, in microseconds.
    pub fn cpu_us_per_message(&self) -> f64 {
        self.cpu_ns as f64 / 1e3 / self.messages as f64
    }

    /// Returns the 99th percentile of the samples, in microseconds.
    pub fn p99_us(&self) -> f64 {
        percentile_us(&self.samples_ns, 99)
    }

    /// Returns the median sample, in microseconds.
    pub fn p50_us(&self) -> f64 {
        percentile_us(&self.samples_ns, 50)
    }
}

/// Division of a run into slices.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Number of counted slices of each side.
    pub slices: usize,
    /// Messages of ours in all; with `None` as many as fill the usual time.
    pub total: Option<u64>,
    /// Messages that the first warm-up tries when the total is not given.
    pub first_try: u64,
}

/// Number of slices: as the user says, else as many as the ratio needs.
#[derive(Debug, Clone, Copy)]
pub struct Slices {
    /// The user's number, if given.
    pub given: Option<usize>,
    /// Whether the ratio is to show a difference of a twentieth.
    pub fine: bool,
}

impl Slices {
    /// Returns the number of slices: at most one a message, if the user did not ask for more.
    fn of(self, total: Option<u64>) -> usize {
        let most = total.map_or(usize::MAX, |total| total as usize);
        let usual = if self.fine { SLICES_FINE } else { SLICES_MIN };
        self.given.unwrap_or(usual.min(most).max(SLICES_MIN))
    }
}

impl Plan {
    /// Makes a plan of as many slices as a ratio needs.
    ///
    /// # Errors
    /// If there are fewer messages than slices.
    pub fn new(total: Option<u64>, first_try: u64, against: bool) -> Result<Self, Failure> {
        Self::cut(total, first_try, against, Slices { given: None, fine: false })
    }

    /// Makes a plan of as many slices as `slices` asks for.
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

    /// Returns the plan in parts of at most `slices_max` slices.
    fn parts(&self, slices_max: usize) -> Vec<Self> {
        let indices: Vec<usize> = (0..self.slices).collect();
        let part = |indices: &[usize]| {
            let share = |total| indices.iter().map(|index| self.share(total, *index)).sum();
            Self { slices: indices.len(), total: self.total.map(share), ..*self }
        };
        indices.chunks(slices_max).map(part).collect()
    }

    /// Returns the messages of slice `index` when the total is given: all shares add up to it.
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
    /// The sequential program's, paired by index; empty without one.
    pub sequential: Vec<Slice>,
    /// Those of threads on all cores, paired by index; empty without them.
    pub threads: Vec<Slice>,
    /// Counters of our near end over the counted slices.
    pub stats: Option<PeerStats>,
}

/// Side that a slice belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Ours.
    Ours,
    /// The baseline.
    Baseline,
    /// The same work without the library, by one thread.
    Sequential,
    /// The same work without the library, by a thread on each core.
    Threads,
}

impl Side {
    /// Returns ours, and the baseline if there is one.
    pub fn against(baseline: bool) -> &'static [Self] {
        if baseline { &[Self::Ours, Self::Baseline] } else { &[Self::Ours] }
    }
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
    let outcome =
        alternate(plan, Side::against(against), |side, count| match (side, &mut baseline) {
            (Side::Baseline, Some(baseline)) => baseline.slice(bench, count.messages),
            _ => {
                if count.first_counted {
                    before = ours.stats();
                }
                ours.slice(bench, count.messages)
            }
        })?;
    let stats = ours.stats().zip(before).map(|(after, before)| after.since(&before));
    Ok(Outcome { stats, ..outcome })
}

/// Ours, and the baseline if there is one.
pub type Contenders = (Box<dyn Contender>, Option<Box<dyn Contender>>);

/// Runs as [`run`] does, on connections that `open` makes. A `fine` ratio uses several pairs of
/// connections, one after the other.
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

/// Returns the index of the side whose `rounds` slices have most merit. The sides run in turns, there and
/// back, so that none always follows the same one; one without a slice is out.
///
/// # Errors
/// The first of a slice.
pub fn best_of(
    sides: usize,
    rounds: usize,
    mut slice: impl FnMut(usize) -> Result<Option<Slice>, Failure>,
    merit: impl Fn(&[Slice]) -> f64,
) -> Result<Option<usize>, Failure> {
    let mut order: Vec<(usize, Vec<Slice>)> = (0..sides).map(|side| (side, Vec::new())).collect();
    for _ in 0..rounds {
        let mut next = Vec::new();
        for (side, mut slices) in order.into_iter().rev() {
            if let Some(slice) = slice(side)? {
                slices.push(slice);
                next.push((side, slices));
            }
        }
        order = next;
    }
    let merits = order.into_iter().map(|(side, slices)| (side, merit(&slices)));
    Ok(merits.max_by(|one, other| one.1.total_cmp(&other.1)).map(|(side, _)| side))
}

/// Returns the median of a figure of each slice.
pub fn median_of(slices: &[Slice], figure: impl Fn(&Slice) -> f64) -> f64 {
    median(&slices.iter().map(figure).collect::<Vec<_>>())
}

/// Returns the failure of a baseline at once, unless it may fail.
///
/// # Errors
/// That failure.
pub fn unless_it_may<B>(
    may_fail: bool,
    baseline: Result<B, Failure>,
) -> Result<Result<B, Failure>, Failure> {
    if may_fail { Ok(baseline) } else { baseline.map(Ok) }
}

/// Result of [`beside`]: the slices, the baseline if there was one, and the reason why there was none.
pub type Beside<B> = (Outcome, Option<B>, Option<String>);

/// Measures ours with a baseline, if it was to have one. A baseline that may fail, and is missing or
/// fails, leaves ours alone, with the reason.
///
/// # Errors
/// If ours fails, or a baseline that may not.
pub fn beside<B>(
    may_fail: bool,
    baseline: Result<Option<B>, Failure>,
    mut measure: impl FnMut(Option<&mut B>) -> Result<Outcome, Failure>,
) -> Result<Beside<B>, Failure> {
    let failed = match baseline {
        Ok(None) => return Ok((measure(None)?, None, None)),
        Ok(Some(mut baseline)) => match measure(Some(&mut baseline)) {
            Ok(outcome) => return Ok((outcome, Some(baseline), None)),
            Err(failure) => failure,
        },
        Err(failure) => failure,
    };
    if may_fail { Ok((measure(None)?, None, Some(failed.to_string()))) } else { Err(failed) }
}

/// Size of the next slice.
#[derive(Debug, Clone, Copy)]
pub struct Count {
    /// Number of messages.
    pub messages: u64,
    /// Whether this is the first counted slice of ours.
    pub first_counted: bool,
}

/// Warms the sides up and runs the counted slices; `slice` runs one slice of the given side. From
/// pair to pair the order of the sides is reversed.
///
/// # Errors
/// If a slice fails.
pub fn alternate(
    plan: &Plan,
    sides: &[Side],
    mut slice: impl FnMut(Side, Count) -> Result<Slice, Failure>,
) -> Result<Outcome, Failure> {
    let mut order = Vec::new();
    for &side in sides {
        order.push((side, warm_up(plan, |count| slice(side, count))?));
    }
    let mut outcome = Outcome::default();
    for index in 0..plan.slices {
        for &(side, warm) in &order {
            let messages = plan.total.map_or(warm, |total| plan.share(total, index));
            let first_counted = side == Side::Ours && index == 0;
            let done = slice(side, Count { messages, first_counted })?;
            outcome.of_mut(side).push(done);
        }
        order.reverse();
    }
    Ok(outcome)
}

/// Runs the uncounted slices, in which buffers grow; returns the messages of a full slice.
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
    /// Adds more pairs of the same run.
    pub fn extend(&mut self, more: Self) {
        self.ours.extend(more.ours);
        self.baseline.extend(more.baseline);
        self.sequential.extend(more.sequential);
        self.threads.extend(more.threads);
        self.stats = match (self.stats, more.stats) {
            (Some(all), Some(more)) => Some(all.plus(&more)),
            (all, more) => all.or(more),
        };
    }

    fn of_mut(&mut self, side: Side) -> &mut Vec<Slice> {
        match side {
            Side::Ours => &mut self.ours,
            Side::Baseline => &mut self.baseline,
            Side::Sequential => &mut self.sequential,
            Side::Threads => &mut self.threads,
        }
    }

    /// Returns the number of our messages.
    pub fn messages(&self) -> u64 {
        self.ours.iter().map(|slice| slice.messages).sum()
    }

    /// Returns the seconds of our slices.
    pub fn seconds(&self) -> f64 {
        self.ours.iter().map(|slice| slice.seconds).sum()
    }

    /// Returns our processor time, both processes, in microseconds.
    pub fn cpu_us(&self) -> f64 {
        self.ours.iter().map(|slice| slice.cpu_ns as f64 / 1e3).sum()
    }

    /// Returns the baseline's processor time a message, both processes, in microseconds.
    pub fn baseline_cpu_us_per_message(&self) -> f64 {
        let messages: u64 = self.baseline.iter().map(|slice| slice.messages).sum();
        let cpu_ns: u64 = self.baseline.iter().map(|slice| slice.cpu_ns).sum();
        cpu_ns as f64 / 1e3 / messages as f64
    }

    /// Returns all our samples, in nanoseconds.
    pub fn samples_ns(&self) -> Vec<u64> {
        all_samples(&self.ours)
    }

    /// Returns all samples of the baseline, in nanoseconds.
    pub fn baseline_samples_ns(&self) -> Vec<u64> {
        all_samples(&self.baseline)
    }

    /// Returns the baseline's messages a second.
    pub fn baseline_rate(&self) -> f64 {
        let messages: u64 = self.baseline.iter().map(|slice| slice.messages).sum();
        messages as f64 / self.baseline.iter().map(|slice| slice.seconds).sum::<f64>()
    }

    /// Returns the paired ratio of a figure of each slice.
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
    fn sides_take_turns_in_either_order() {
        let plan = Plan::new(Some(11), 1, true).unwrap();
        let mut calls = Vec::new();
        let sides = [Side::Ours, Side::Sequential, Side::Baseline];
        let outcome = alternate(&plan, &sides, |side, count| {
            calls.push((side, count.first_counted));
            Ok(Slice::timed(count.messages, 1.0))
        });
        let outcome = outcome.unwrap();
        let [first, second, third] = sides.map(|side| (side, false));
        let counted = (Side::Ours, true);
        assert_eq!(calls[..3], [first, second, third], "uncounted");
        assert_eq!(calls[3..9], [counted, second, third, third, second, first]);
        assert_eq!(calls.len(), 3 * (1 + plan.slices));
        for slices in [&outcome.ours, &outcome.baseline, &outcome.sequential] {
            assert_eq!((slices.len(), slices[0].messages, slices[1].messages), (10, 2, 1));
        }
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
